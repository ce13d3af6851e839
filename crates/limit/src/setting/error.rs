//! Errors of settings, with the value given and what is accepted.
//!
//! A text in single quotes in a message is accepted when it is given instead; a test feeds each of
//! them back.

use super::Setting;
use crate::error::Quoted;
use crate::{LimitError, Missing};

/// Forms of a limit, for messages.
const FORMS: &str = "QUOTA PERIOD in us ('50000 100000'), max, CPUs as Kubernetes ('500m', '0.5'), \
                     systemd ('50%') or docker ('1.5cpus') has them, each perhaps with a period \
                     ('500m/10ms'), or FILE=VALUE";

/// The files that can be written.
pub(super) const FILES: &str = "cpu.max, cpu.max.burst, cpu.weight, cpu.cfs_quota_us, \
                                cpu.cfs_period_us and cpu.cfs_burst_us";

/// Why a setting cannot be read, or the kernel would not take it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the text or the name of a variant tells its fields")]
pub enum SettingError {
    /// The text does not look like a limit.
    #[error("{} is not a limit: give {FORMS}", Quoted(.text))]
    NotALimit { text: String },
    /// A time without a period.
    #[error(
        "{} is a time, and a limit is a part of a period: give both, as in '{}', or CPUs, as in \
         '500m'",
        Quoted(.text),
        in_a_period(.text)
    )]
    Time { text: String },
    /// A number that may be CPUs or microseconds.
    #[error(
        "{} may mean {number} CPUs, {number}m or {number} us: give '{number}cpus', '{number}m', or \
         a quota in us, which is at least 1000",
        Quoted(.given)
    )]
    Ambiguous {
        given: String,
        /// The number in it.
        number: String,
    },
    /// A number without a unit that would give an unlikely limit.
    #[error("{} is unclear without a unit: give {}", Quoted(.given), meant.join(", or "))]
    NoUnit {
        given: String,
        /// Texts that may have been meant, in single quotes, and the CPUs that each gives.
        meant: Vec<String>,
    },
    /// Words between a quota and its period.
    #[error("{}: a slash stands between quota and period; give '{meant}'", Quoted(.text))]
    Slash {
        text: String,
        /// The text with a slash.
        meant: String,
    },
    /// A comma in place of a point or a space.
    #[error("{}: commas stand between limits; give '{meant}'", Quoted(.text))]
    Comma {
        text: String,
        /// The text without the comma.
        meant: String,
    },
    /// A period without a quota, as in systemd.
    #[error("{}: a period is given with its quota, as in '{meant}'", Quoted(.given))]
    PeriodAlone {
        given: String,
        /// An example of a quota in that period.
        meant: String,
    },
    /// No CPU time at all.
    #[error("{} gives no CPU time: give a number above 0, or max for no limit", Quoted(.text))]
    Zero { text: String },
    /// More digits than the system of this notation keeps.
    #[error("{} has too many digits: give a multiple of {step}", Quoted(.text))]
    TooFine { text: String, step: &'static str },
    /// The text behind the slash is not a period.
    #[error(
        "{}: {} is not a period: give a whole number of us with its unit, from 1ms to 1s, such as \
         10ms",
        Quoted(.given),
        Quoted(.text)
    )]
    Period {
        given: String,
        /// The text in place of its period.
        text: String,
    },
    /// The kernel would read a part of it and ignore the rest.
    #[error(
        "{}: of this the kernel reads cpu.max={read} and ignores the rest{}",
        Quoted(.given),
        instead(.meant)
    )]
    CutOff {
        given: String,
        /// The part that the kernel reads.
        read: String,
        /// Texts that may have been meant, in accepted form.
        meant: Vec<String>,
    },
    /// A file without a value.
    #[error("{} has no value: give FILE=VALUE, such as 'cpu.max=50000 100000'", Quoted(.text))]
    NoValue { text: String },
    /// A file that cannot be written.
    #[error("there is no file {}: {FILES} can be set", Quoted(.file))]
    NoSuchFile { file: String },
    /// A weight out of range.
    #[error("cpu.weight takes a whole number from 1 to 10000, not {}", Quoted(.text))]
    Weight { text: String },
    /// A file of a group is written twice.
    #[error("{} has {file} twice for {group}: give each group and file once", Quoted(.setting))]
    Twice { setting: String, file: &'static str, group: String },
    /// No group, or no limit for it.
    #[error(
        "{} has no limit for a group: give [GROUP:]LIMIT, such as '/limited:500m'",
        Quoted(.text)
    )]
    NoLimit { text: String },
    /// The kernel refuses it.
    #[error("{}: {why}", Quoted(.given))]
    Refused { given: String, why: LimitError },
    /// The kernel has none of the files.
    #[error("{}: nothing of this can be set: {missing}", Quoted(.given))]
    Nothing { given: String, missing: Missing },
}

/// `; give 'A', or 'B'`; all forms without texts.
fn instead(meant: &[String]) -> String {
    let quoted: Vec<String> = meant.iter().map(|meant| format!("'{meant}'")).collect();
    let quoted = quoted.join(", or ");
    format!("; give {}", if quoted.is_empty() { FORMS } else { &quoted })
}

/// A time as a part of 100 ms, `25ms/100ms`, or an example where that is refused.
fn in_a_period(time: &str) -> String {
    let meant = format!("{time}/100ms");
    if meant.parse::<Setting>().is_ok() { meant } else { "50ms/100ms".to_owned() }
}
