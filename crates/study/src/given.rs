//! Parses numbers, shares, times and ranges that users give. An error ends with what would be
//! accepted.
//!
//! ```
//! use cpumax_study::given::{factor, run_time, seeds, share};
//!
//! assert_eq!(run_time("100ms"), Ok(100_000_000));
//! assert_eq!(share("5%"), Ok(5.0));
//! assert_eq!(seeds("1..20").map(|seeds| seeds.last), Ok(20));
//! assert_eq!(factor("0").unwrap_err(), "give a number from 0.01 to 100, such as 1.15");
//! ```

use cpumax_recording::Selector;
use cpumax_workload::bounds::{HZ, MAX_DURATION_NS};
use humantime::parse_duration;
use std::path::PathBuf;
use std::time::Duration;

/// A range of seeds, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seeds {
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
}

const SEEDS_MAX: u64 = 100_000;

/// Parses seeds `A..B` or `A..=B`, both included; at most 100000 of them.
///
/// # Errors
/// The fault, and what would be accepted; so for all functions of this module.
pub fn seeds(text: &str) -> Result<Seeds, String> {
    let takes = "give two numbers such as 1..20";
    let (first, last) = text.split_once("..").ok_or(takes)?;
    let last = last.strip_prefix('=').unwrap_or(last);
    let number = |text: &str| text.trim().parse().map_err(|error| format!("{error}; {takes}"));
    let (first, last): (u64, u64) = (number(first)?, number(last)?);
    match last.checked_sub(first) {
        None => Err(format!("its end is before its start; {takes}")),
        Some(more) if more >= SEEDS_MAX => Err(format!("give at most {SEEDS_MAX} seeds")),
        Some(_) => Ok(Seeds { first, last }),
    }
}

/// Parses `HERE:THERE`, split at the last colon: a file of this machine, which is not looked for,
/// and an absolute path in the guest.
///
/// # Errors
/// Any other text; the message tells what is accepted.
pub fn file_to_put(text: &str) -> Result<(PathBuf, String), String> {
    match text.rsplit_once(':') {
        Some((host, guest)) if !host.is_empty() && guest.starts_with('/') && guest.len() > 1 => {
            Ok((PathBuf::from(host), guest.to_owned()))
        }
        _ => {
            Err("give the file here and its absolute path there, such as ./busybox:/bin/sh"
                .to_owned())
        }
    }
}

/// Parses a finite number of at least 1.
///
/// # Errors
/// Any other text; the message tells what is accepted.
pub fn ratio(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ratio) if ratio.is_finite() && ratio >= 1.0 => Ok(ratio),
        _ => Err("give a number from 1, such as 2.5".to_owned()),
    }
}

/// Parses a kernel's ticks in a second: one of `HZ`.
///
/// # Errors
/// Any other text; the message tells what is accepted.
pub fn hz(text: &str) -> Result<u32, String> {
    let hz = text.parse().ok().filter(|hz| HZ.contains(hz));
    hz.ok_or_else(|| "give 100, 250, 300 or 1000".to_owned())
}

/// Parses a factor from 0.01 to 100.
///
/// # Errors
/// Any other text; the message tells what is accepted.
pub fn factor(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(factor) if (0.01..=100.0).contains(&factor) => Ok(factor),
        _ => Err("give a number from 0.01 to 100, such as 1.15".to_owned()),
    }
}

/// Parses per cent from 0 to 1000, with or without the sign; `10%` is 10.0.
///
/// # Errors
/// Any other text; the message tells what is accepted.
pub fn percent(text: &str) -> Result<f64, String> {
    let text = text.trim();
    match text.strip_suffix('%').unwrap_or(text).trim_end().parse::<f64>() {
        Ok(percent) if (0.0..=1000.0).contains(&percent) => Ok(percent),
        _ => Err("give per cent from 0 to 1000, such as 10%".to_owned()),
    }
}

/// Parses per cent from 0 to 100, with or without the sign; `5%` is 5.0.
///
/// # Errors
/// Any other text; the message tells what is accepted.
pub fn share(text: &str) -> Result<f64, String> {
    let percent = percent(text).ok().filter(|percent| *percent <= 100.0);
    percent.ok_or_else(|| "give per cent from 0 to 100, such as 5%".to_owned())
}

/// Parses a time with its unit, also 0, as far as ns fit 64 bits; returns ns.
///
/// # Errors
/// Any other text; the message tells what is accepted.
pub fn time(text: &str) -> Result<u64, String> {
    u64::try_from(duration(text)?.as_nanos())
        .map_err(|_| "give at most a day, such as 10s".to_owned())
}

/// Parses a selector of recorded threads, such as `comm:nginx*`.
///
/// # Errors
/// Any other text; the message tells what is accepted.
pub fn selector(text: &str) -> Result<Selector, String> {
    text.parse().map_err(|error: cpumax_recording::Error| error.to_string())
}

/// Parses a cost of less than a second; returns ns.
///
/// # Errors
/// Any other text; the message tells what is accepted.
pub fn event_cost(text: &str) -> Result<u32, String> {
    match duration(text)?.as_nanos() {
        ns @ ..1_000_000_000 => Ok(ns as u32),
        _ => Err("give less than a second, such as 500ns".to_owned()),
    }
}

/// Parses a length of time, such as `10s`.
///
/// # Errors
/// Any other text; the message tells what is accepted.
pub fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| format!("{error}; give a time such as 10s or 500ms"))
}

/// Parses the duration of runs, up to a day; returns ns.
///
/// # Errors
/// Any other text; the message tells what is accepted.
pub fn run_time(text: &str) -> Result<u64, String> {
    match u64::try_from(duration(text)?.as_nanos()) {
        Ok(ns @ 1..=MAX_DURATION_NS) => Ok(ns),
        _ => Err("give more than 0s and at most a day, such as 10s".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_in_per_cent_with_or_without_the_sign() {
        assert_eq!(percent("10%"), Ok(10.0));
        assert_eq!(percent("0.5"), Ok(0.5));
        assert!(share("100%").is_ok() && share("100.1%").is_err());
        for text in ["", "%", "-1", "NaN", "10%%x", "1e9"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }

    #[test]
    fn seeds_are_two_numbers_in_order() {
        assert_eq!(seeds("1..20"), Ok(Seeds { first: 1, last: 20 }));
        assert_eq!(seeds("5..=5"), Ok(Seeds { first: 5, last: 5 }));
        for text in ["", "3", "a..b", "5..4", "0..100000", "-1..4"] {
            assert!(seeds(text).is_err(), "{text}");
        }
    }
}
