//! Differences between kernels in how limits are read, checked and shown. One field stands for each
//! difference, and is read at one place.
//!
//! A version means the last release of its line: 6.1 is a 6.1 with all its stable fixes.

/// How one kernel version reads, checks and shows limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rules {
    /// A finite quota may not exceed 2^44-1 us (5.8).
    pub quota_has_maximum: bool,
    /// `cpu.max.burst` and `cpu.cfs_burst_us` exist (5.14).
    pub burst: bool,
    /// `cpu.stat` has `nr_bursts` and `burst_usec` (5.16).
    pub burst_stat: bool,
    /// A write to `cpu.max` leaves the burst as it is. Before 6.10 it divides the burst by 1000,
    /// except in the lines that were maintained when this was fixed (May 2024).
    pub cpu_max_keeps_burst: bool,
    /// The effective ratio of a v2 group is the smallest above it (6.6). Before, it was always
    /// unlimited, by a comparison of signed numbers.
    pub v2_ratio_inherited: bool,
    /// `cpu.stat.local` exists (6.6).
    pub stat_local: bool,
    /// All checks are made in microseconds (6.17), so that a number too large to be turned into
    /// nanoseconds is refused everywhere. Before, it wraps in `cpu.max`.
    pub checked_in_us: bool,
}

impl Rules {
    /// The newest kernel known here, 7.3.
    pub const NEWEST: Rules = Rules::of(7, 3);

    /// The rules of Linux `major.minor`. From 3.16 to 5.7 they are equal, except that groups of v2
    /// have no limits before 4.15; `cpu.max` then stands for v1's two files.
    pub const fn of(major: u32, minor: u32) -> Rules {
        let version = (major, minor);
        Rules {
            quota_has_maximum: from(version, 5, 8),
            burst: from(version, 5, 14),
            burst_stat: from(version, 5, 16),
            cpu_max_keeps_burst: from(version, 6, 8)
                || matches!(version, (..=4, _) | (5, ..=13 | 15) | (6, 1 | 6)),
            v2_ratio_inherited: from(version, 6, 6),
            stat_local: from(version, 6, 6),
            checked_in_us: from(version, 6, 17),
        }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Rules::NEWEST
    }
}

/// Whether `version` is `major.minor` or newer.
const fn from(version: (u32, u32), major: u32, minor: u32) -> bool {
    version.0 > major || (version.0 == major && version.1 >= minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_what_was_there_by_then() {
        let g1 = Rules::of(4, 19);
        assert_eq!(g1, Rules::of(3, 16));
        assert!(!g1.quota_has_maximum && !g1.burst && !g1.stat_local && g1.cpu_max_keeps_burst);
        assert!(Rules::of(5, 14).burst && !Rules::of(5, 14).burst_stat);
        let cut: Vec<_> = (14..20)
            .map(|minor| (5, minor))
            .chain((0..20).map(|minor| (6, minor)))
            .filter(|(major, minor)| !Rules::of(*major, *minor).cpu_max_keeps_burst)
            .collect();
        let unmaintained = [14, 16, 17, 18, 19].map(|minor| (5, minor));
        assert_eq!(cut[..5], unmaintained);
        assert_eq!(cut[5..], [0, 2, 3, 4, 5, 7].map(|minor| (6, minor)));
        assert!(!Rules::of(6, 16).checked_in_us && Rules::of(6, 18).checked_in_us);
        assert_eq!(Rules::of(7, 0), Rules::NEWEST);
    }
}
