//! Limits of loads and services.

use anyhow::{Result, bail};
use std::fmt;
use std::str::FromStr;

/// Largest period, quota and burst, ms: the largest period of the kernel.
const LONGEST_MS: u64 = 1000;

/// Quota, period and burst, written as `25/50+b25`, ms; `U`: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_field_names, reason = "each has its unit")]
pub struct Limit {
    pub quota_us: Option<u64>,
    pub period_us: u64,
    pub burst_us: u64,
}

impl Limit {
    pub const NONE: Limit = Limit { quota_us: None, period_us: 100_000, burst_us: 0 };

    pub const fn of_100_ms(quota_ms: u64) -> Limit {
        Limit { quota_us: Some(quota_ms * 1000), ..Limit::NONE }
    }

    /// Value for `cpumax replay --set`; `None` without a limit.
    pub fn assignment(&self) -> Option<String> {
        let max = format!("cpu.max={} {}", self.quota_us?, self.period_us);
        Some(match self.burst_us {
            0 => max,
            burst_us => format!("{max},cpu.max.burst={burst_us}"),
        })
    }

    /// Text for people: `50 ms in 100 ms, burst 50 ms`.
    pub fn describe(&self) -> String {
        let Some(quota_us) = self.quota_us else { return "no limit".to_owned() };
        let limit = format!("{} ms in {} ms", ms(quota_us), ms(self.period_us));
        match self.burst_us {
            0 => limit,
            burst_us => format!("{limit}, burst {} ms", ms(burst_us)),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(quota_us) = self.quota_us else { return f.write_str("U") };
        write!(f, "{}/{}", ms(quota_us), ms(self.period_us))?;
        match self.burst_us {
            0 => Ok(()),
            burst_us => write!(f, "+b{}", ms(burst_us)),
        }
    }
}

impl FromStr for Limit {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Limit> {
        if text == "U" {
            return Ok(Limit::NONE);
        }
        let us = |text: &str| {
            let ms: f64 = text.parse().ok()?;
            (ms > 0.0 && ms <= LONGEST_MS as f64).then_some((ms * 1000.0).round() as u64)
        };
        let parts = text.split_once('/').and_then(|(quota, rest)| {
            let (period, burst) = match rest.split_once("+b") {
                None => (rest, Some(0)),
                Some((period, burst)) => (period, us(burst)),
            };
            Some((us(quota)?, us(period)?, burst?))
        });
        let Some((quota_us, period_us, burst_us)) = parts else {
            bail!("`{text}`: expected quota/period in ms, such as `50/100` or `25/50+b25`, or `U`");
        };
        Ok(Limit { quota_us: Some(quota_us), period_us, burst_us })
    }
}

fn ms(us: u64) -> f64 {
    us as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_read_as_it_is_written() {
        for text in ["U", "20/100", "2.5/5", "25/50+b25"] {
            assert_eq!(text.parse::<Limit>().unwrap().to_string(), text);
        }
        for text in ["", "20", "20/", "0/100", "-1/100", "20/100+b", "20/9000", "x/y"] {
            assert!(text.parse::<Limit>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_limit_is_given_to_replay_in_microseconds() {
        let assignment = |text: &str| text.parse::<Limit>().unwrap().assignment();
        assert_eq!(assignment("U"), None);
        assert_eq!(assignment("20/100").unwrap(), "cpu.max=20000 100000");
        assert_eq!(assignment("2.5/5+b1").unwrap(), "cpu.max=2500 5000,cpu.max.burst=1000");
    }
}
