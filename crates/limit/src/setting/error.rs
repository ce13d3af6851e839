//! Why a setting is not understood, or not taken: with the value given and what is accepted.
//!
//! What stands in single quotes in a message is taken when it is given instead; a test feeds each
//! of them back.

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
pub enum SettingError {
    /// Nothing that a limit looks like.
    #[error("{} is no limit: give {FORMS}", Quoted(.text))]
    NotALimit {
        /// What was given.
        text: String,
    },
    /// A time, where it is not said of what period.
    #[error(
        "{} is a time, and a limit is a part of a period: give both, as in '{}', or CPUs, as in \
         '500m'",
        Quoted(.text),
        in_a_period(.text)
    )]
    Time {
        /// What was given.
        text: String,
    },
    /// A number that may be CPUs or microseconds.
    #[error(
        "{} may mean {number} CPUs, {number}m or {number} us: write '{number}cpus{rest}', \
         '{number}m{rest}', or a quota in us, which is at least 1000",
        Quoted(.given)
    )]
    Ambiguous {
        /// What was given.
        given: String,
        /// The number in it.
        number: String,
        /// What stands behind that: nothing, or the period.
        rest: String,
    },
    /// A comma where a point is meant, or where a space is.
    #[error("{}: commas stand between limits; give '{meant}'", Quoted(.text))]
    Comma {
        /// What was given.
        text: String,
        /// The same without it.
        meant: String,
    },
    /// A period that stands for itself, as systemd has it.
    #[error("{}: a period is given with its quota, as in '{meant}'", Quoted(.given))]
    PeriodAlone {
        /// What was given.
        given: String,
        /// Some quota in that period.
        meant: String,
    },
    /// No CPU time at all.
    #[error("{} is nothing: give a number above 0, or max for no limit", Quoted(.text))]
    Zero {
        /// What was given.
        text: String,
    },
    /// More digits than the system that has this form keeps.
    #[error("{} is finer than what can be had: give a multiple of {step}", Quoted(.text))]
    TooFine {
        /// What was given.
        text: String,
        /// The least there is.
        step: &'static str,
    },
    /// What stands behind the slash is no period.
    #[error(
        "{}: {} is no period: give a whole number of us with its unit, from 1ms to 1s, such as \
         10ms",
        Quoted(.given),
        Quoted(.text)
    )]
    Period {
        /// The limit.
        given: String,
        /// What is to be its period.
        text: String,
    },
    /// The kernel would read a part of this and ignore the rest.
    #[error(
        "{}: of this the kernel reads cpu.max={read} and ignores the rest{}",
        Quoted(.given),
        instead(.meant)
    )]
    CutOff {
        /// What was given.
        given: String,
        /// What the kernel reads of it.
        read: String,
        /// What may be meant, as it is taken.
        meant: Vec<String>,
    },
    /// A file without a value.
    #[error("{} has no value: give FILE=VALUE, such as 'cpu.max=50000 100000'", Quoted(.text))]
    NoValue {
        /// What was given.
        text: String,
    },
    /// A file that cannot be written.
    #[error("there is no file {}: {FILES} can be set", Quoted(.file))]
    NoSuchFile {
        /// Its name.
        file: String,
    },
    /// A weight out of range.
    #[error("cpu.weight takes a whole number from 1 to 10000, not {}", Quoted(.text))]
    Weight {
        /// What was given.
        text: String,
    },
    /// A file of a group is written twice.
    #[error("{} has {file} twice for {group}: give each group and file once", Quoted(.setting))]
    Twice {
        /// The whole setting.
        setting: String,
        /// The file.
        file: &'static str,
        /// Whose it is.
        group: String,
    },
    /// No group, or no limit for it.
    #[error(
        "{} has no limit for a group: give [GROUP:]LIMIT, such as '/limited:500m'",
        Quoted(.text)
    )]
    NoLimit {
        /// What was given.
        text: String,
    },
    /// The kernel refuses it.
    #[error("{}: {why}", Quoted(.given))]
    Refused {
        /// What was given.
        given: String,
        /// Which rule it breaks.
        why: LimitError,
    },
    /// The kernel has none of the files.
    #[error("{}: nothing of this can be set: {missing}", Quoted(.given))]
    Nothing {
        /// What was given.
        given: String,
        /// The first file that it does not have.
        missing: Missing,
    },
}

/// `; give 'A', or 'B'`.
fn instead(meant: &[String]) -> String {
    let quoted: Vec<String> = meant.iter().map(|meant| format!("'{meant}'")).collect();
    if quoted.is_empty() { String::new() } else { format!("; give {}", quoted.join(", or ")) }
}

/// A time as a part of the usual period, where the kernel takes that.
fn in_a_period(time: &str) -> String {
    let meant = format!("{time}/100ms");
    if meant.parse::<Setting>().is_ok() { meant } else { "50ms/100ms".to_owned() }
}
