//! Counters of a limit in the files `cpu.stat` and `cpu.stat.local`.
//!
//! v2 shows microseconds (`throttled_usec`), v1 nanoseconds (`throttled_time`); both are kept as
//! nanoseconds. Other lines of the files are skipped when read, and not printed.

use crate::error::Quoted;
use crate::{Hierarchy, NS_PER_US, Rules};

/// Counters in the `cpu.stat` of one group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct CpuStat {
    /// CPU time used by the group and everything below it, ns; v2 only.
    pub usage_ns: u64,
    /// Part of it in user mode, ns; v2 only.
    pub user_ns: u64,
    /// Part of it in kernel mode, ns; v2 only.
    pub system_ns: u64,
    /// Periods that passed while the period timer was armed. The kernel prints a signed number,
    /// negative beyond 2^31.
    pub nr_periods: u32,
    /// Those that began with some CPU throttled; printed as `nr_periods` is.
    pub nr_throttled: u32,
    /// Sum over CPUs of the time throttled by the group's own limit, ns.
    pub throttled_ns: u64,
    /// Periods in which more than the quota was used (from 5.16); printed as `nr_periods` is.
    pub nr_bursts: u32,
    /// Runtime used beyond the quota, in all, ns (from 5.16).
    pub burst_ns: u64,
}

/// Counters in the `cpu.stat.local` of one group (from 6.6).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct LocalStat {
    /// Sum over CPUs of the time throttled by any limit, own or inherited, ns.
    pub throttled_ns: u64,
}

/// A text is not a `cpu.stat`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: expected a name and a number, e.g. \"nr_periods 12\", not {}", Quoted(.text))]
pub struct StatError {
    /// Number of the line, from 1.
    pub line: usize,
    /// The line, cut to 64 characters.
    pub text: String,
}

impl CpuStat {
    /// Parses `cpu.stat` of either hierarchy. Unknown names are skipped, a missing name is 0, and
    /// of a repeated name the last counts.
    ///
    /// # Errors
    /// The first line that is not a name and a number.
    pub fn parse(text: &str) -> Result<CpuStat, StatError> {
        let mut stat = CpuStat::default();
        each_line(text, |name, value| {
            match name {
                "usage_usec" => stat.usage_ns = us(value)?,
                "user_usec" => stat.user_ns = us(value)?,
                "system_usec" => stat.system_ns = us(value)?,
                "nr_periods" => stat.nr_periods = count(value)?,
                "nr_throttled" => stat.nr_throttled = count(value)?,
                "throttled_usec" => stat.throttled_ns = us(value)?,
                "throttled_time" => stat.throttled_ns = ns(value)?,
                "nr_bursts" => stat.nr_bursts = count(value)?,
                "burst_usec" => stat.burst_ns = us(value)?,
                "burst_time" => stat.burst_ns = ns(value)?,
                _ => {}
            }
            Some(())
        })?;
        Ok(stat)
    }

    /// The file of these counters as the kernel prints it: v1 without CPU times, bursts only where
    /// the kernel has them.
    pub fn print(&self, hierarchy: Hierarchy, rules: &Rules) -> String {
        let mut lines = Vec::new();
        if hierarchy == Hierarchy::V2 {
            lines.push(format!("usage_usec {}", self.usage_ns / NS_PER_US));
            lines.push(format!("user_usec {}", self.user_ns / NS_PER_US));
            lines.push(format!("system_usec {}", self.system_ns / NS_PER_US));
        }
        lines.push(format!("nr_periods {}", self.nr_periods.cast_signed()));
        lines.push(format!("nr_throttled {}", self.nr_throttled.cast_signed()));
        lines.push(time("throttled", self.throttled_ns, hierarchy));
        if rules.burst_stat {
            lines.push(format!("nr_bursts {}", self.nr_bursts.cast_signed()));
            lines.push(time("burst", self.burst_ns, hierarchy));
        }
        lines.push(String::new());
        lines.join("\n")
    }
}

impl LocalStat {
    /// Parses `cpu.stat.local` of either hierarchy, as [`CpuStat::parse`] does.
    ///
    /// # Errors
    /// The first line that is not a name and a number.
    pub fn parse(text: &str) -> Result<LocalStat, StatError> {
        let mut stat = LocalStat::default();
        each_line(text, |name, value| {
            match name {
                "throttled_usec" => stat.throttled_ns = us(value)?,
                "throttled_time" => stat.throttled_ns = ns(value)?,
                _ => {}
            }
            Some(())
        })?;
        Ok(stat)
    }

    /// The file as the kernel prints it; `None` where it has no such file.
    pub fn print(&self, hierarchy: Hierarchy, rules: &Rules) -> Option<String> {
        rules.stat_local.then(|| time("throttled", self.throttled_ns, hierarchy) + "\n")
    }
}

/// A line with a time, in us for v2 and ns for v1.
fn time(what: &str, ns: u64, hierarchy: Hierarchy) -> String {
    match hierarchy {
        Hierarchy::V1 => format!("{what}_time {ns}"),
        Hierarchy::V2 => format!("{what}_usec {}", ns / NS_PER_US),
    }
}

/// Hands name and value of each line that is not blank to `take`. An error for the first line that
/// is no name and number, or for which it returns `None`.
fn each_line(text: &str, mut take: impl FnMut(&str, i128) -> Option<()>) -> Result<(), StatError> {
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let mut words = line.split_ascii_whitespace();
        let taken = match (words.next(), words.next(), words.next()) {
            (Some(name), Some(value), None) => value.parse().ok().and_then(|v| take(name, v)),
            _ => None,
        };
        taken
            .ok_or_else(|| StatError { line: index + 1, text: line.chars().take(64).collect() })?;
    }
    Ok(())
}

/// A 32-bit counter, printed signed or unsigned; `None` if it does not fit.
fn count(value: i128) -> Option<u32> {
    u32::try_from(value).ok().or_else(|| i32::try_from(value).ok().map(i32::cast_unsigned))
}

/// The value as ns; `None` if it is negative or too large.
fn ns(value: i128) -> Option<u64> {
    u64::try_from(value).ok()
}

/// The value of us in ns; `None` if it is negative or too large.
fn us(value: i128) -> Option<u64> {
    ns(value)?.checked_mul(NS_PER_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_hierarchies_read_alike() {
        let v2 = "usage_usec 11\nuser_usec 7\nsystem_usec 4\nnice_usec 0\nnr_periods 3\n\
                  nr_throttled 2\nthrottled_usec 5\nnr_bursts 1\nburst_usec 6\n";
        let v1 = "nr_periods 3\nnr_throttled 2\nthrottled_time 5000\nwait_sum 9\nnr_bursts 1\n\
                  burst_time 6000\n";
        let stat = CpuStat::parse(v2).unwrap();
        assert_eq!((stat.usage_ns, stat.throttled_ns, stat.burst_ns), (11_000, 5_000, 6_000));
        let times = CpuStat { usage_ns: 0, user_ns: 0, system_ns: 0, ..stat };
        assert_eq!(CpuStat::parse(v1).unwrap(), times);
        assert_eq!(stat.print(Hierarchy::V1, &Rules::NEWEST), v1.replace("wait_sum 9\n", ""));
        assert_eq!(stat.print(Hierarchy::V2, &Rules::NEWEST), v2.replace("nice_usec 0\n", ""));
    }

    #[test]
    fn counters_wrap_as_signed_numbers() {
        let stat = CpuStat { nr_periods: 1 << 31, ..CpuStat::default() };
        let printed = stat.print(Hierarchy::V1, &Rules::of(4, 19));
        assert_eq!(printed, "nr_periods -2147483648\nnr_throttled 0\nthrottled_time 0\n");
        assert_eq!(CpuStat::parse(&printed).unwrap(), stat);
    }

    #[test]
    fn a_bad_line_is_named() {
        for bad in ["nr_periods", "nr_periods x", "nr_periods 1 2", "nr_periods 4294967296"] {
            let error = CpuStat::parse(&format!("usage_usec 1\n\n{bad}\n")).unwrap_err();
            assert_eq!((error.line, error.text.as_str()), (3, bad));
        }
        let error = LocalStat::parse("throttled_usec 18446744073709552").unwrap_err();
        assert!(error.to_string().starts_with("line 1: expected a name and a number"));
    }

    #[test]
    fn the_local_file_came_with_6_6() {
        let stat = LocalStat { throttled_ns: 1_500 };
        assert_eq!(stat.print(Hierarchy::V2, &Rules::of(6, 5)), None);
        assert_eq!(stat.print(Hierarchy::V2, &Rules::of(6, 6)).unwrap(), "throttled_usec 1\n");
        let printed = stat.print(Hierarchy::V1, &Rules::NEWEST).unwrap();
        assert_eq!(LocalStat::parse(&printed).unwrap(), stat);
    }
}
