//! Numbers without a unit that would silently give an unlikely limit, and words in place of a
//! slash. Each is refused with texts that may have been meant and that are accepted.

use super::{BARE_CPUS, BARE_US, CPUS_MAX, LEAST_US, Unit, whole};
use crate::setting::{Setting, SettingError};
use crate::{DEFAULT_PERIOD_NS, Limit, Rules};

/// A whole number of more CPUs than likely: `NanoCpus` of docker, or a time without its unit.
/// `period_us` is the period given. `None` where the number is likely, or no other text would be
/// accepted.
pub(super) fn of_large(given: &str, amount: &str, period_us: Option<u64>) -> Option<SettingError> {
    let number = whole(amount)?;
    let rest = given.strip_prefix(amount)?;
    let with = |units: &[&str]| units.iter().map(|unit| format!("{amount}{unit}{rest}")).collect();
    let is_quota = u128::from(number) >= LEAST_US;
    let is_likely = match period_us {
        None => number < BARE_US,
        // Refused for its period.
        Some(us) if u128::from(us) < LEAST_US => true,
        Some(us) if is_quota => number <= us.saturating_mul(CPUS_MAX),
        Some(_) => number < BARE_CPUS,
    };
    if is_likely {
        return None;
    }
    if !is_quota {
        return no_unit(given, with(&["ms", "%", "cpus", "m"]));
    }
    let mut texts: Vec<String> = with(&["n"]);
    texts.retain(|text| limit(text).and_then(|limit| limit.cpus()) <= Some(CPUS_MAX as f64));
    let period = period_us.map_or_else(String::new, |us| format!(" {us}"));
    texts.push(format!("cpu.max={amount}{period}"));
    no_unit(given, texts)
}

/// The error for a fraction of a CPU, `1/4`, or a quota and a period without their units, with what
/// may have been meant; `None` for other texts.
pub(super) fn of_fraction(given: &str, amount: &str, period: &str) -> Option<SettingError> {
    let digits = period.find(|c: char| !c.is_ascii_digit()).unwrap_or(period.len());
    let (period, unit) = period.split_at(digits);
    if !matches!(Unit::of(unit.trim()), Some(Unit::Nothing | Unit::Cpus)) {
        return None;
    }
    let milli = whole(amount)?.checked_mul(1_000)?.checked_div(whole(period)?)?;
    let cpus = format!("{}.{:03}", milli / 1_000, milli % 1_000);
    let cpus = without_zeros(&cpus).to_owned();
    no_unit(given, vec![cpus, format!("{amount}ms/{period}ms")])
}

/// The error for words in place of a slash, as in `25ms per 100ms`; `None` for other texts.
pub(super) fn of_words(given: &str) -> Option<SettingError> {
    let words = [" per ", " of ", " in ", " every "];
    let mut texts = words.iter().filter(|word| given.contains(**word));
    let meant = texts.find_map(|word| {
        let (quota, period) = given.split_once(word)?;
        let meant = format!("{}/{}", quota.trim(), period.trim());
        limit(&meant).map(|_| meant)
    })?;
    Some(SettingError::Slash { text: given.to_owned(), meant })
}

/// The error with those of the texts that are accepted, one for each limit; `None` if none is.
pub(in crate::setting) fn no_unit(given: &str, texts: Vec<String>) -> Option<SettingError> {
    let mut limits = Vec::new();
    let mut meant = Vec::new();
    for text in texts {
        let Some(limit) = limit(&text).filter(|limit| !limits.contains(limit)) else { continue };
        let cpus = limit.cpus()?;
        let period = match limit.period_ns() {
            DEFAULT_PERIOD_NS => String::new(),
            ns => format!(" in periods of {} ms", ns as f64 / 1e6),
        };
        let cpus = without_zeros(&format!("{cpus:.3}")).to_owned();
        let unit = if cpus == "1" { "CPU" } else { "CPUs" };
        meant.push(format!("'{text}' for {cpus} {unit}{period}"));
        limits.push(limit);
    }
    (!meant.is_empty()).then(|| SettingError::NoUnit { given: given.to_owned(), meant })
}

/// The number without zeros at the end of its fraction.
fn without_zeros(number: &str) -> &str {
    number.trim_end_matches('0').trim_end_matches('.')
}

/// The limit that a text gives to a group without one; `None` if it is refused.
fn limit(text: &str) -> Option<Limit> {
    let setting: Setting = text.parse().ok()?;
    let applied = setting.parts().first()?.apply(Limit::UNLIMITED, &Rules::NEWEST);
    applied.ok().map(|applied| applied.limit)
}

#[cfg(test)]
mod tests {
    use super::super::{Level, cpu_max};

    #[test]
    fn an_unlikely_number_is_refused_with_its_meanings() {
        for (given, told) in [
            ("500000000", "give '500000000n' for 0.5 CPUs, or 'cpu.max=500000000' for 5000 CPUs"),
            ("1500000000", "give '1500000000n' for 1.5 CPUs, or 'cpu.max=1500000000' for 15000"),
            ("1000000", "give 'cpu.max=1000000' for 10 CPUs"),
            ("500000000/100ms", "'500000000n/100ms' for 0.5 CPUs, or 'cpu.max=500000000 100000'"),
            ("500000000/100000", "'cpu.max=500000000 100000' for 5000 CPUs"),
            (
                "50/100ms",
                "'50ms/100ms' for 0.5 CPUs, or '50cpus/100ms' for 50 CPUs, or '50m/100ms' for 0.05",
            ),
            (
                "50/10ms",
                "'50ms/10ms' for 5 CPUs in periods of 10 ms, or '50%/10ms' for 0.5 CPUs in",
            ),
            ("1/2", "'0.5' for 0.5 CPUs, or '1ms/2ms' for 0.5 CPUs in periods of 2 ms"),
            ("1/3", "'0.333' for 0.333 CPUs, or '1ms/3ms' for 0.333 CPUs in periods of 3 ms"),
            ("1/4", "give '0.25' for 0.25 CPUs"),
            ("3/2 CPUs", "give '1.5' for 1.5 CPUs"),
            ("25/100", "give '0.25' for 0.25 CPUs"),
            ("25ms per 100ms", "give '25ms/100ms'"),
            ("50% of 10ms", "give '50%/10ms'"),
        ] {
            let error = cpu_max(given, Level::Container).unwrap_err().to_string();
            assert!(error.contains(told), "{given}: {error}");
        }
    }

    #[test]
    fn likely_numbers_are_taken() {
        for (given, written) in [
            ("800000", "800000 100000"),
            ("9/10ms", "90000 10000"),
            ("1/4ms", "4000 4000"),
            ("12.0/10ms", "120000 10000"),
            ("500000/1s", "500000 1000000"),
            ("3200000/100000", "3200000 100000"),
        ] {
            assert_eq!(cpu_max(given, Level::Container).unwrap(), written, "{given}");
        }
    }
}
