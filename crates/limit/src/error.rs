//! Errors of limits. One variant for each rule, with the value given and what is accepted.

use crate::{
    BURST_SINCE, MAX_PERIOD_NS, MAX_QUOTA_NS, MIN_PERIOD_NS, MIN_QUOTA_NS, NS_PER_US, RATIO_ONE,
};
use std::fmt;

/// The rule that a limit breaks. The text names the value and what would be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the text or the name of a variant tells its fields")]
pub enum LimitError {
    /// The text is not in the file's form.
    #[error("{file} takes {takes}, not {}", Quoted(.text))]
    NotANumber {
        file: &'static str,
        /// The form that it takes.
        takes: &'static str,
        text: String,
    },
    /// The number does not fit the type it is read into.
    #[error("{file}: {} does not fit in 64 bits", Quoted(.text))]
    DoesNotFit { file: &'static str, text: String },
    /// The kernel has no such file.
    #[error("{file} exists from Linux {since} on")]
    NoSuchFile {
        file: &'static str,
        /// First kernel that has it.
        since: &'static str,
    },
    /// The root group cannot be limited.
    #[error("the root group cannot be limited; limit a group below it")]
    Root,
    /// A number of microseconds that is too large to be turned into nanoseconds.
    #[error(
        "a {member} of {value_us} us is not representable; at most {} us",
        u64::MAX / NS_PER_US
    )]
    NotRepresentable { member: Member, value_us: u64 },
    /// Quota below 1 ms.
    #[error(
        "a quota of {} is too small; at least {}, or `max` for no limit",
        Us(*.quota_ns),
        Us(MIN_QUOTA_NS)
    )]
    QuotaTooSmall { quota_ns: u64 },
    /// Period below 1 ms.
    #[error(
        "a period of {} is too short; from {} to {}",
        Us(*.period_ns),
        Us(MIN_PERIOD_NS),
        Us(MAX_PERIOD_NS)
    )]
    PeriodTooSmall { period_ns: u64 },
    /// Period above 1 s.
    #[error(
        "a period of {} is too long; from {} to {}",
        Us(*.period_ns),
        Us(MIN_PERIOD_NS),
        Us(MAX_PERIOD_NS)
    )]
    PeriodTooLarge { period_ns: u64 },
    /// Quota above 2^44-1 us.
    #[error("a quota of {} is too large; at most {}", Us(*.quota_ns), Us(MAX_QUOTA_NS))]
    QuotaTooLarge { quota_ns: u64 },
    /// The kernel has no burst.
    #[error("burst exists from Linux {BURST_SINCE} on; leave it 0")]
    NoBurst,
    /// Burst above a finite quota.
    #[error(
        "a burst of {} is above the quota of {}; lower the burst first",
        Us(*.burst_ns),
        Us(*.quota_ns)
    )]
    BurstAboveQuota { burst_ns: u64, quota_ns: u64 },
    /// Quota and burst together above 2^44-1 us.
    #[error(
        "a quota of {} and a burst of {} are together more than {}",
        Us(*.quota_ns),
        Us(*.burst_ns),
        Us(MAX_QUOTA_NS)
    )]
    BurstAndQuotaTooLarge { burst_ns: u64, quota_ns: u64 },
    /// A v1 group has more than a group above it.
    #[error(
        "a limit of {} CPUs is more than the {} CPUs of a group above it (v1 allows at most that)",
        Cpus(*.ratio),
        Cpus(*.above)
    )]
    AboveParent {
        /// Index of the group among the checked places.
        group: usize,
        /// Its quota / period, in units of 2^-20.
        ratio: u64,
        /// Effective ratio of its parent, in units of 2^-20.
        above: u64,
    },
}

impl LimitError {
    /// The error number with which a real `write()` fails.
    pub fn errno(&self) -> Errno {
        match self {
            LimitError::DoesNotFit { .. } => Errno::Range,
            LimitError::NoSuchFile { .. } | LimitError::NoBurst => Errno::NoEntry,
            _ => Errno::Invalid,
        }
    }
}

/// Error number of a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Errno {
    /// `ENOENT`
    NoEntry = 2,
    /// `EINVAL`
    Invalid = 22,
    /// `ERANGE`
    Range = 34,
}

/// One of the three numbers of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Member {
    /// Runtime per period.
    Quota,
    /// Length of a period.
    Period,
    /// Unused runtime that may be carried over.
    Burst,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Member::Quota => "quota",
            Member::Period => "period",
            Member::Burst => "burst",
        })
    }
}

/// Shows nanoseconds as microseconds, the unit of the files, where that is exact.
struct Us(u64);

impl fmt::Display for Us {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(NS_PER_US) {
            write!(f, "{} us", self.0 / NS_PER_US)
        } else {
            write!(f, "{} ns", self.0)
        }
    }
}

/// Shows a ratio in units of 2^-20 as a number of CPUs, with six decimals.
struct Cpus(u64);

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = (self.0 & (RATIO_ONE - 1)) * 1_000_000 / RATIO_ONE;
        write!(f, "{}.{fraction:06}", self.0 / RATIO_ONE)
    }
}

/// Foreign text in a message: escaped, and cut to 40 characters.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_CHARS: usize = 40;
        f.write_str("\"")?;
        for c in self.0.chars().take(SHOWN_CHARS).flat_map(char::escape_debug) {
            write!(f, "{c}")?;
        }
        f.write_str(if self.0.chars().nth(SHOWN_CHARS).is_some() { "…\"" } else { "\"" })
    }
}
