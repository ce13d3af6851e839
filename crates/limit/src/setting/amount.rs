//! CPU amounts in the notation of Kubernetes, systemd and docker, and the `cpu.max` that each of
//! these systems makes of them.
//!
//! Follows kubelet's `MilliCPUToQuota()`, the systemd cgroup driver's rounding
//! (`CPUQuotaPerSecUSec` in whole 10 ms), systemd's `CPUQuota=` with `cgroup_cpu_adjust_period()`,
//! and docker's `--cpus`. Integers only.

mod unit;

pub(super) use unit::no_unit;

use super::SettingError;
use crate::{Limit, LimitError, NS_PER_US};

/// The default period, us: that of kubelet, docker, systemd, and a new group.
const DEFAULT_PERIOD_US: u64 = 100_000;
const LEAST_US: u128 = 1_000;
const LONGEST_US: u128 = 1_000_000;
const US_PER_S: u128 = 1_000_000;
/// Amounts are counted in 10^-9 of their unit.
const NANO: u128 = 1_000_000_000;
/// Digits of a number before and behind its point.
const DIGITS: usize = 15;
const FRACTION_DIGITS: usize = 9;
/// A bare whole number below this means CPUs.
const FEW_CPUS: u128 = 100;
/// A bare whole number of us, without a period, is less: docker's `NanoCpus` are larger numbers.
const BARE_US: u64 = 1_000_000;
/// With a period a bare whole number of CPUs is less: larger ones may be times.
const BARE_CPUS: u64 = 10;
/// No machine has more CPUs.
const CPUS_MAX: u64 = 1_024;
/// Words of other systems for no limit: systemd's, a shell's, and that of cgroup v1.
const NO_LIMIT: [&str; 4] = ["max", "infinity", "unlimited", "-1"];

/// The kind of group, which decides the rounding of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// A container's: kubelet's arithmetic.
    Container,
    /// A pod's: the systemd cgroup driver rounds the quota of kubelet.
    Pod,
}

/// The text to write into `cpu.max` for an amount such as `500m`, `2`, `50%/10ms`, `25ms/100ms` or
/// `1.5cpus`; without a period 100 ms. An error if it is unclear, finer than its system keeps, or
/// refused by the kernel.
pub(crate) fn cpu_max(text: &str, level: Level) -> Result<String, SettingError> {
    let (amount, period) = match text.split_once('/') {
        Some((amount, period)) => (amount.trim_end(), Some(period.trim())),
        None => (text, None),
    };
    let is_quota = whole(amount).is_some_and(|us| u128::from(us) >= LEAST_US);
    let period = match period {
        // Both numbers are in us, as in the kernel's file.
        Some(period) if is_quota && whole(period).is_some() => whole(period),
        Some(period) => match unit::of_fraction(text, amount, period) {
            Some(error) => return Err(error),
            None => Some(period_us(text, period)?),
        },
        None => None,
    };
    if NO_LIMIT.contains(&amount) {
        return Ok(period.map_or_else(|| "max".to_owned(), |us| format!("max {us}")));
    }
    if let Some(error) = unit::of_large(text, amount, period).or_else(|| unit::of_words(text)) {
        return Err(error);
    }
    let amount = Amount::parse(text, amount, period.is_some())?;
    let period_us = u128::from(period.unwrap_or(DEFAULT_PERIOD_US));
    let (quota_us, period_us) = match amount {
        Amount::QuotaUs(quota_us) => (quota_us, period_us),
        Amount::Milli(milli) => (kubernetes(milli, period_us, level), period_us),
        Amount::Permyriad(permyriad) => systemd(permyriad, period_us),
        Amount::Nano(nano) => (nano * period_us / NANO, period_us),
    };
    checked(text, quota_us, period_us)?;
    Ok(format!("{quota_us} {period_us}"))
}

/// The number, where the text has digits only and fits 64 bits.
fn whole(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Parses a period with its unit; returns us. The error has `given`, the whole text; the range is
/// not checked.
pub(crate) fn period_us(given: &str, text: &str) -> Result<u64, SettingError> {
    let refused = || SettingError::Period { given: given.to_owned(), text: text.to_owned() };
    time_us(text).ok_or_else(refused)
}

/// The whole us of a time such as `10ms`, `500us` or `1s`; `None` for fractions of a us and other
/// texts.
pub(crate) fn time_us(text: &str) -> Option<u64> {
    let at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(at);
    let us = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => US_PER_S,
        _ => return None,
    };
    let us = nanos(number.trim_end())? * us;
    us.is_multiple_of(NANO).then_some(us / NANO).and_then(|us| u64::try_from(us).ok())
}

/// kubelet's quota, us, for milli-CPUs of a period, at least a millisecond. For a pod the systemd
/// driver rounds it up to a hundredth of a CPU, as systemd keeps whole percents.
fn kubernetes(milli: u128, period_us: u128, level: Level) -> u128 {
    const STEP_US: u128 = 10_000;
    let quota_us = (milli * period_us / 1_000).max(LEAST_US);
    match level {
        Level::Container => quota_us,
        Level::Pod => {
            let in_a_second_us = quota_us * US_PER_S / period_us.max(1);
            in_a_second_us.div_ceil(STEP_US) * STEP_US * period_us / US_PER_S
        }
    }
}

/// systemd's quota and period, us, for hundredths of a percent of a CPU. A period in which the
/// quota would be below a millisecond grows, up to 1 s.
fn systemd(permyriad: u128, period_us: u128) -> (u128, u128) {
    let in_a_second_us = permyriad * US_PER_S / 10_000;
    let least_us = LEAST_US * US_PER_S / in_a_second_us.max(1);
    let period_us = period_us.max(LEAST_US).max(least_us).min(LONGEST_US);
    ((in_a_second_us * period_us / US_PER_S).max(LEAST_US), period_us)
}

/// An error if the newest kernel refuses this quota or period; `given` is the text it came from.
fn checked(given: &str, quota_us: u128, period_us: u128) -> Result<(), SettingError> {
    let ns = |us: u128| u64::try_from(us * u128::from(NS_PER_US)).unwrap_or(u64::MAX);
    match Limit::new(Some(ns(quota_us)), ns(period_us), 0) {
        Ok(_) => Ok(()),
        Err(why) => Err(refused(given, why)),
    }
}

/// The error of a given text that the kernel refuses.
pub(crate) fn refused(given: &str, why: LimitError) -> SettingError {
    SettingError::Refused { given: given.to_owned(), why }
}

enum Amount {
    /// The kernel's: us in a period.
    QuotaUs(u128),
    /// Kubernetes': thousandths of a CPU.
    Milli(u128),
    /// systemd's: hundredths of a percent of a CPU.
    Permyriad(u128),
    /// docker's: 10^-9 of a CPU.
    Nano(u128),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Nothing,
    Milli,
    Percent,
    Cpus,
    Nano,
    Time,
}

impl Unit {
    /// The unit of this word, in any case where it is spelled out; `None` for an unknown one.
    fn of(text: &str) -> Option<Unit> {
        Some(match text {
            "" => Unit::Nothing,
            "m" => Unit::Milli,
            "%" => Unit::Percent,
            // Metrics of Kubernetes use 10^-9.
            "n" => Unit::Nano,
            "us" | "ms" | "s" => Unit::Time,
            word => match word.to_ascii_lowercase().as_str() {
                "cpu" | "cpus" | "core" | "cores" | "vcpu" | "vcpus" => Unit::Cpus,
                "mcpu" | "mcpus" | "millicpu" | "millicpus" | "millicore" | "millicores" => {
                    Unit::Milli
                }
                "nanocpu" | "nanocpus" | "nanocore" | "nanocores" => Unit::Nano,
                "percent" => Unit::Percent,
                _ => return None,
            },
        })
    }
}

impl Amount {
    /// Parses `text`, which is `given` without its period. A bare number below 100 or with a point
    /// means CPUs, one from 1000 on us; between them it is ambiguous. An error for 0 and for digits
    /// that the unit's system does not keep.
    fn parse(given: &str, text: &str, has_period: bool) -> Result<Amount, SettingError> {
        let nothing = || SettingError::NotALimit { text: given.to_owned() };
        let at = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = text.split_at(at);
        let unit = Unit::of(unit.trim()).ok_or_else(nothing)?;
        if unit == Unit::Time && !has_period {
            return Err(SettingError::Time { text: given.to_owned() });
        }
        let too_fine = |step| SettingError::TooFine { text: given.to_owned(), step };
        let nanos = match nanos(number) {
            Some(0) => return Err(SettingError::Zero { text: given.to_owned() }),
            Some(nanos) => nanos,
            None if fraction(number) > FRACTION_DIGITS => return Err(too_fine("0.000000001")),
            None => return Err(nothing()),
        };
        let whole = |of: u128, step| {
            nanos.is_multiple_of(of).then_some(nanos / of).ok_or_else(|| too_fine(step))
        };
        match unit {
            Unit::Milli => Ok(Amount::Milli(whole(NANO, "1m")?)),
            Unit::Percent => Ok(Amount::Permyriad(whole(NANO / 100, "0.01%")?)),
            Unit::Cpus => Ok(Amount::Nano(nanos)),
            Unit::Nano => Ok(Amount::Nano(whole(NANO, "1n")?)),
            Unit::Time => {
                let us = time_us(text).ok_or_else(|| too_fine("1us"))?;
                Ok(Amount::QuotaUs(us.into()))
            }
            Unit::Nothing if fraction(number) > 0 || nanos < FEW_CPUS * NANO => {
                Ok(Amount::Milli(whole(NANO / 1_000, "0.001")?))
            }
            Unit::Nothing if nanos < LEAST_US * NANO => {
                let (given, number) = (given.to_owned(), number.to_owned());
                Err(SettingError::Ambiguous { given, number })
            }
            Unit::Nothing => Ok(Amount::QuotaUs(nanos / NANO)),
        }
    }
}

/// Parses a decimal number in units of 10^-9; `None` for malformed or too long ones.
fn nanos(text: &str) -> Option<u128> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let has_digits = !whole.is_empty() || !decimals.is_empty();
    let ends_in_point = text.ends_with('.');
    if !is_number(whole) || !is_number(decimals) || !has_digits || ends_in_point {
        return None;
    }
    if whole.len() > DIGITS || decimals.len() > FRACTION_DIGITS {
        return None;
    }
    let digits = format!("{whole}{decimals:0<FRACTION_DIGITS$}");
    digits.parse().ok()
}

/// Number of digits behind the point.
fn fraction(text: &str) -> usize {
    text.split_once('.').map_or(0, |(_, decimals)| decimals.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(text: &str) -> String {
        cpu_max(text, Level::Container).unwrap()
    }

    #[test]
    fn kubelet_takes_thousandths_of_a_period_and_at_least_a_millisecond() {
        for (given, written) in [
            ("500m", "50000 100000"),
            ("2000m", "200000 100000"),
            ("2", "200000 100000"),
            ("0.5", "50000 100000"),
            (".5", "50000 100000"),
            ("417m", "41700 100000"),
            ("1m", "1000 100000"),
            ("500m/10ms", "5000 10000"),
            ("333m/5ms", "1665 5000"),
            ("0.1/5ms", "1000 5000"),
            ("1/0.5s", "500000 500000"),
            ("99", "9900000 100000"),
            ("500 m", "50000 100000"),
            ("500 millicores/10 ms", "5000 10000"),
            ("128.0", "12800000 100000"),
        ] {
            assert_eq!(container(given), written, "{given}");
        }
    }

    #[test]
    fn the_systemd_driver_rounds_a_pod_up_to_a_hundredth_of_a_cpu() {
        for (given, written) in [
            ("417m", "42000 100000"),
            ("420m", "42000 100000"),
            ("51m", "6000 100000"),
            ("1m", "1000 100000"),
            ("417m/10ms", "4200 10000"),
            ("2", "200000 100000"),
            // Only numbers of CPUs are rounded.
            ("41700", "41700 100000"),
            ("41.7%", "41700 100000"),
        ] {
            assert_eq!(cpu_max(given, Level::Pod).unwrap(), written, "{given}");
        }
    }

    #[test]
    fn systemd_lengthens_a_period_that_would_hold_less_than_a_millisecond() {
        for (given, written) in [
            ("50%", "50000 100000"),
            ("50%/10ms", "5000 10000"),
            ("250%", "250000 100000"),
            ("0.5%", "1000 200000"),
            ("40%/1ms", "1000 2500"),
            ("0.01%", "1000 1000000"),
            ("50 %", "50000 100000"),
            ("200.000%", "200000 100000"),
            ("33 percent", "33000 100000"),
            ("33.33%", "33330 100000"),
        ] {
            assert_eq!(container(given), written, "{given}");
        }
    }

    #[test]
    fn docker_cuts_a_quota_to_whole_microseconds() {
        assert_eq!(container("1.5cpus"), "150000 100000");
        for one in ["1cpu", "1 CPU", "1 core", "1Cpus", "1.0 vCPU", "1000000000 NanoCpus"] {
            assert_eq!(container(one), "100000 100000", "{one}");
        }
        assert_eq!(container("0.123456789cpus"), "12345 100000");
        assert_eq!(container("1.5cpus/10ms"), "15000 10000");
        let error = cpu_max("0.001cpus", Level::Container).unwrap_err();
        assert!(error.to_string().contains("100 us is too small"), "{error}");
    }

    #[test]
    fn a_number_from_1000_on_is_the_kernels() {
        assert_eq!(container("50000"), "50000 100000");
        assert_eq!(container("50000/200ms"), "50000 200000");
        assert_eq!(container("1000"), "1000 100000");
        assert_eq!(container("max"), "max");
        assert_eq!(container("max/10ms"), "max 10000");
        for text in ["infinity", "unlimited", "-1"] {
            assert_eq!(container(text), "max", "{text}");
        }
        assert_eq!(container("999999"), "999999 100000");
        assert_eq!(container("50000/100000"), "50000 100000");
        assert_eq!(container("50000 / 20000"), "50000 20000");
    }

    #[test]
    fn a_time_of_a_period_is_a_quota() {
        assert_eq!(container("25ms/100ms"), "25000 100000");
        assert_eq!(container("25 ms / 0.1 s"), "25000 100000");
        assert_eq!(container("5000us/10ms"), "5000 10000");
        assert!(cpu_max("0.5us/10ms", Level::Container).is_err());
        assert!(cpu_max("25ms", Level::Container).is_err());
    }

    #[test]
    fn ambiguous_numbers_are_refused_with_all_meanings() {
        for text in ["100", "500", "999", "500/10ms"] {
            let error = cpu_max(text, Level::Container).unwrap_err().to_string();
            assert!(error.contains("500m") || !text.starts_with("500"), "{error}");
            assert!(error.contains("us") && error.contains("cpus"), "{error}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "-2",
            "+1",
            "1e3",
            "1.",
            ".",
            "1..2",
            "0",
            "0m",
            "0%",
            "500 M",
            "0.5m",
            "0.0001",
            "0.001%",
            "50us",
            "2k",
            "0.5 n",
            "1 loaf",
            "1/",
            "1/10",
            "1/0ms",
            "1/2s",
            "1/10ns",
            "1/10ms/1",
            "9999999999999999",
            "999999999999999",
            "infinite",
            "½",
        ] {
            let error = cpu_max(text, Level::Container).unwrap_err().to_string();
            assert!(error.contains(text), "{text}: {error}");
        }
    }
}
