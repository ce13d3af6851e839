//! The cgroup files of a limit. Each write submits all three members again, with one of them (in
//! `cpu.max` one or two) replaced.

use crate::number::{self, Refused};
use crate::{Limit, LimitError, Member, NS_PER_US, Rules};

/// A file of a group that holds a part of its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum File {
    /// v2 `cpu.max`: quota, and period when given.
    CpuMax,
    /// v2 `cpu.max.burst`.
    CpuMaxBurst,
    /// v1 `cpu.cfs_quota_us`; negative is unlimited.
    CfsQuotaUs,
    /// v1 `cpu.cfs_period_us`.
    CfsPeriodUs,
    /// v1 `cpu.cfs_burst_us`.
    CfsBurstUs,
}

/// First kernel that has a burst.
pub const BURST_SINCE: &str = "5.14";

/// Longest first token that `cpu.max` reads, bytes: the digits of the largest 64-bit number.
const CPU_MAX_TOKEN_BYTES: usize = 20;

impl File {
    /// All files.
    pub const ALL: [File; 5] =
        [File::CpuMax, File::CpuMaxBurst, File::CfsQuotaUs, File::CfsPeriodUs, File::CfsBurstUs];

    /// The name in the group's directory.
    pub fn name(self) -> &'static str {
        match self {
            File::CpuMax => "cpu.max",
            File::CpuMaxBurst => "cpu.max.burst",
            File::CfsQuotaUs => "cpu.cfs_quota_us",
            File::CfsPeriodUs => "cpu.cfs_period_us",
            File::CfsBurstUs => "cpu.cfs_burst_us",
        }
    }

    /// The form of the file's value, for errors.
    fn takes(self) -> &'static str {
        match self {
            File::CpuMax => "\"QUOTA [PERIOD]\" in us, e.g. \"50000 100000\" or \"max\"",
            File::CfsQuotaUs => "one number of us, e.g. 50000, or -1 for no limit",
            File::CpuMaxBurst | File::CfsPeriodUs | File::CfsBurstUs => {
                "one number of us, e.g. 50000"
            }
        }
    }
}

impl Limit {
    /// The limit after a write of `text` to `file`, under a kernel with these rules.
    ///
    /// Assumes that the group is not the root, and ignores the hierarchy. An empty text is an error
    /// here, while a real `write()` of no bytes succeeds without reaching the kernel's parser.
    ///
    /// # Errors
    /// The first rule that is broken; the limit then stays as it was.
    pub fn write(&self, file: File, text: &str, rules: &Rules) -> Result<Limit, LimitError> {
        let refused = |why| match why {
            Refused::NotANumber => {
                LimitError::NotANumber { file: file.name(), takes: file.takes(), text: cut(text) }
            }
            Refused::DoesNotFit => LimitError::DoesNotFit { file: file.name(), text: cut(text) },
        };
        let strict_u64 = || number::strict_u64(text).map_err(refused);
        let kept = if rules.checked_in_us { self.floored_to_us() } else { *self };
        let Limit { mut quota_ns, mut period_ns, mut burst_ns } = kept;
        match file {
            File::CpuMax => {
                let written = CpuMax::parse(text).ok_or_else(|| refused(Refused::NotANumber))?;
                (quota_ns, period_ns) = written.in_ns(self, rules.checked_in_us)?;
                if !rules.cpu_max_keeps_burst {
                    burst_ns /= NS_PER_US;
                }
            }
            File::CfsQuotaUs => {
                let quota_us = u64::try_from(number::strict_i64(text).map_err(refused)?).ok();
                quota_ns = quota_us.map(|us| to_ns(Member::Quota, us)).transpose()?;
            }
            File::CfsPeriodUs => period_ns = to_ns(Member::Period, strict_u64()?)?,
            File::CpuMaxBurst | File::CfsBurstUs if !rules.burst => {
                return Err(LimitError::NoSuchFile { file: file.name(), since: BURST_SINCE });
            }
            File::CpuMaxBurst | File::CfsBurstUs => {
                burst_ns = to_ns(Member::Burst, strict_u64()?)?;
            }
        }
        Limit::new_under(rules, quota_ns, period_ns, burst_ns)
    }

    /// The limit rounded down to whole microseconds: a kernel from 6.17 on loses the rest when it
    /// submits the old values again.
    fn floored_to_us(self) -> Limit {
        let floor = |ns: u64| ns / NS_PER_US * NS_PER_US;
        Limit {
            quota_ns: self.quota_ns.map(floor),
            period_ns: floor(self.period_ns),
            burst_ns: floor(self.burst_ns),
        }
    }

    /// The content of `file`, without the newline at its end.
    pub fn read(&self, file: File) -> String {
        match file {
            File::CpuMax => self.to_string(),
            File::CpuMaxBurst | File::CfsBurstUs => (self.burst_ns / NS_PER_US).to_string(),
            File::CfsPeriodUs => (self.period_ns / NS_PER_US).to_string(),
            File::CfsQuotaUs => match self.quota_ns {
                Some(quota_ns) => (quota_ns / NS_PER_US).to_string(),
                None => "-1".to_string(),
            },
        }
    }
}

struct CpuMax {
    /// `None` is `max`.
    quota_us: Option<u64>,
    /// `None` keeps the period.
    period_us: Option<u64>,
}

impl CpuMax {
    /// Parses like the kernel: junk behind a number is ignored, and so is a second token that is
    /// not a number. A number that does not fit wraps. `None` when the first token is neither `max`
    /// nor starts with a digit.
    fn parse(text: &str) -> Option<CpuMax> {
        let (token, rest) = number::token(text, CPU_MAX_TOKEN_BYTES);
        let quota_us = match number::leading_u64(token) {
            Some(quota_us) => Some(quota_us),
            None if token == b"max" => None,
            None => return None,
        };
        Some(CpuMax { quota_us, period_us: number::leading_u64(rest) })
    }

    /// Quota (`None`: unlimited) and period, ns, after this has been written over `old`. A number
    /// too large for ns is an error if `checked_in_us`, else it wraps.
    fn in_ns(&self, old: &Limit, checked_in_us: bool) -> Result<(Option<u64>, u64), LimitError> {
        // In every version, the old period passes through microseconds.
        let period_us = self.period_us.unwrap_or(old.period_ns / NS_PER_US);
        if checked_in_us {
            let period_ns = to_ns(Member::Period, period_us)?;
            // The kernel itself represents `max` by the largest number.
            let quota_us = self.quota_us.filter(|us| *us != u64::MAX);
            let quota_ns = quota_us.map(|us| to_ns(Member::Quota, us)).transpose()?;
            Ok((quota_ns, period_ns))
        } else {
            let wrap = |us: u64| us.wrapping_mul(NS_PER_US);
            Ok((self.quota_us.map(wrap), wrap(period_us)))
        }
    }
}

/// Microseconds in ns; an error that names `member` where they do not fit.
fn to_ns(member: Member, value_us: u64) -> Result<u64, LimitError> {
    value_us.checked_mul(NS_PER_US).ok_or(LimitError::NotRepresentable { member, value_us })
}

/// The part of foreign text that an error keeps: 64 characters.
fn cut(text: &str) -> String {
    const KEPT_CHARS: usize = 64;
    text.chars().take(KEPT_CHARS).collect()
}
