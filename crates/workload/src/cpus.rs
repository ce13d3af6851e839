//! Sets of CPUs, read and printed as the kernel does: `0-3,8`.

use crate::bounds::MAX_CPUS;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write};
use std::str::FromStr;

pub(crate) const CPUS_FORM: &str = "CPU numbers and ranges, such as \"0-3,8\"";

/// A set of CPUs, ascending, without repetition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuSet(pub Vec<u16>);

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print_cpus(self))
    }
}

impl FromStr for CpuSet {
    type Err = String;

    /// Reads a list such as `0-3,8`; the error tells that form.
    fn from_str(text: &str) -> Result<CpuSet, String> {
        parse_cpus(text).ok_or_else(|| format!("{CPUS_FORM}, each below {MAX_CPUS}"))
    }
}

/// Reads a set of CPUs in any order, with or without overlaps; `None` for malformed or empty text,
/// or a CPU from 4096 on.
pub(crate) fn parse_cpus(text: &str) -> Option<CpuSet> {
    let number = |text: &str| -> Option<u16> {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        text.parse().ok().filter(|&cpu: &u16| digits && u64::from(cpu) < MAX_CPUS)
    };
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first.trim())?, number(last.trim())?);
        if first > last {
            return None;
        }
        cpus.extend(first..=last);
        // Overlapping ranges must not take memory without bound.
        if cpus.len() as u64 > 2 * MAX_CPUS {
            tidy(&mut cpus);
        }
    }
    tidy(&mut cpus);
    Some(CpuSet(cpus))
}

/// Sorts the CPUs and removes repeated ones.
fn tidy(cpus: &mut Vec<u16>) {
    if !cpus.is_sorted_by(|a, b| a < b) {
        cpus.sort_unstable();
        cpus.dedup();
    }
}

/// Prints a set of CPUs as the kernel does: `0-3,8`.
pub(crate) fn print_cpus(cpus: &CpuSet) -> String {
    let mut text = String::new();
    let mut rest = cpus.0.as_slice();
    while let Some(&first) = rest.first() {
        let run =
            rest.windows(2).take_while(|pair| pair[0].checked_add(1) == Some(pair[1])).count();
        if !text.is_empty() {
            text.push(',');
        }
        let _ = match run {
            0 => write!(text, "{first}"),
            _ => write!(text, "{first}-{}", rest[run]),
        };
        rest = &rest[run + 1..];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_cpus() {
        let good = [
            ("0", "0"),
            ("0-3,8", "0-3,8"),
            ("8,1,0, 2-2", "0-2,8"),
            ("5-6,6-9", "5-9"),
            ("4095", "4095"),
        ];
        for (text, printed) in good {
            let set = parse_cpus(text);
            assert_eq!(set.as_ref().map(print_cpus).as_deref(), Some(printed), "{text}");
        }
        for text in ["", ",", "1,", "3-1", "4096", "0-70000", "a", "-1", "+1", "1--2", "1-2-3"] {
            assert_eq!(parse_cpus(text), None, "{text}");
        }
    }
}
