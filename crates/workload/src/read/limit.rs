//! Writes of limits to the kernel's files.

use super::fields::Read;
use crate::error::{Error, Refusal};
use crate::units::quoted;
use cpumax_limit::Limit;

/// The limit after a write to `cpu.max`. Stricter than the kernel, which ignores text after the
/// second number.
pub(super) fn write_max(limit: Limit, text: &str) -> Read<Limit> {
    const ACCEPTED: &str = "quota and period in microseconds as in cpu.max, such as \
         \"20000 100000\", or \"max\"; the quota from 1000, the period from 1000 to 1000000";
    let number = |token: &str| token.bytes().all(|byte| byte.is_ascii_digit());
    let tokens: Vec<&str> = text.split_ascii_whitespace().collect();
    let well_formed = match tokens.as_slice() {
        [quota] => *quota == "max" || number(quota),
        [quota, period] => (*quota == "max" || number(quota)) && number(period),
        _ => false,
    };
    if !well_formed {
        let problem = format!("{} is not a limit", quoted(text));
        return Err(Refusal::new(Error::Limit, problem, ACCEPTED));
    }
    limit
        .write_cpu_max(text)
        .map_err(|error| Refusal::new(Error::Limit, error.to_string(), ACCEPTED))
}

/// The limit after a write to `cpu.max.burst`.
pub(super) fn write_burst(limit: Limit, text: &str) -> Read<Limit> {
    const ACCEPTED: &str = "microseconds as in cpu.max.burst, from 0 to the quota";
    limit
        .write_cpu_max_burst(text)
        .map_err(|error| Refusal::new(Error::Limit, error.to_string(), ACCEPTED))
}
