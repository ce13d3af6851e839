//! Which kernel version has which rules.
//!
//! [`RELEASES`] is the history of bandwidth control in the model; `--kernel` texts are looked up
//! in it. [`named`] maps kernels of distributions and stable releases to these.

mod by_name;
mod list;
pub mod named;

pub use by_name::{RuleError, rules};
pub use list::{covers, parse_kernels};

#[cfg(any(test, feature = "faults"))]
use crate::faults::Fault;
use crate::rules::{self, Rules};
use cpumax_limit::one_line;
use cpumax_workload::Preempt;
use std::fmt;
use std::str::FromStr;

/// A kernel release, e.g. 6.12.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Major version: the 6 of 6.12.
    pub major: u16,
    /// Minor version: the 12 of 6.12.
    pub minor: u16,
}

/// A generation of bandwidth control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Generation {
    /// 3.16 to 4.17: per-CPU slices should expire and do not.
    G0,
    /// 4.18 to 5.3: per-CPU slices expire.
    G1,
    /// 5.4 to 6.2: slices do not expire; unthrottling inside the timer interrupt.
    G2,
    /// 6.3 to 6.17: unthrottling by interrupts to the CPUs.
    G2a,
    /// 6.18 to 7.1: tasks park themselves at the return to user mode.
    G3,
    /// 7.2: the runtime accounting itself throttles.
    G4,
    /// 7.3: the same on a flat run queue.
    G4F,
    /// Rules that no release has.
    Own,
}

/// One entry of the history: its rules hold from this version on.
#[derive(Debug, Clone, Copy)]
pub struct Release {
    /// First version.
    pub from: Version,
    /// Its generation.
    pub generation: Generation,
    /// Its rules.
    pub(crate) rules: &'static Rules,
    /// Changes since the entry before, as `cpumax kernels` shows them.
    pub changed: &'static str,
}

/// A kernel to run on: a version and its rules.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    /// The version asked for.
    pub version: Version,
    /// Its generation.
    pub generation: Generation,
    /// Its rules.
    pub(crate) rules: Rules,
    /// A fault injected on purpose.
    #[cfg(any(test, feature = "faults"))]
    pub(crate) fault: Option<Fault>,
}

/// The version with these numbers.
const fn v(major: u16, minor: u16) -> Version {
    Version { major, minor }
}

/// First version that is not modelled; asking for it or a later one is an error.
pub const UNKNOWN_FROM: Version = v(7, 4);

/// Kernels that were never released, by name.
pub const UNRELEASED: &[Unreleased] = &[
    Unreleased {
        version: v(u16::MAX, 0),
        name: "tasks-sync",
        rules: &rules::TASKS_SYNC,
        changed: "6.18 with the release of 6.2, like the back-port in docs/lab/calibration.md",
    },
    Unreleased {
        version: PULL,
        name: "pull",
        rules: &rules::PULL,
        changed: "rules of our own: CPUs fetch runtime and tasks themselves, see \
                  docs/lab/proposal.md",
    },
];
/// The rules of this project.
const PULL: Version = v(u16::MAX, 1);

/// A kernel that was never released.
#[derive(Debug, Clone, Copy)]
pub struct Unreleased {
    /// Pseudo-version used in place of a version.
    pub version: Version,
    /// Name that `--kernel` accepts.
    pub name: &'static str,
    /// Its rules.
    pub(crate) rules: &'static Rules,
    /// Description.
    pub changed: &'static str,
}

/// The unreleased kernel that has this version number; `None` for released ones.
fn unreleased(version: Version) -> Option<&'static Unreleased> {
    UNRELEASED.iter().find(|kernel| kernel.version == version)
}

/// The history, oldest first.
pub const RELEASES: &[Release] = &[
    Release {
        from: v(3, 16),
        generation: Generation::G0,
        rules: &rules::G0,
        changed: "per-CPU slices do not expire, by mistake, except after a group was idle; newly \
                  throttled CPUs are served first",
    },
    Release {
        from: v(4, 18),
        generation: Generation::G1,
        rules: &rules::G1_4_18,
        changed: "per-CPU slices expire at the period's edge",
    },
    Release {
        from: v(4, 19),
        generation: Generation::G1,
        rules: &rules::G1,
        changed: "throttled CPUs are served in order",
    },
    Release {
        from: v(5, 1),
        generation: Generation::G1,
        rules: &rules::G1_5_1,
        changed: "a period too short for its timer grows by 147/128",
    },
    Release {
        from: v(5, 3),
        generation: Generation::G1,
        rules: &rules::G1_5_3,
        changed: "giving runtime back no longer pushes the slack timer out",
    },
    Release {
        from: v(5, 4),
        generation: Generation::G2,
        rules: &rules::G2,
        changed: "slices no longer expire; a period too short for its timer doubles",
    },
    Release {
        from: v(5, 8),
        generation: Generation::G2,
        rules: &rules::G2_5_8,
        changed: "a throttle tries the pool once more; distribution cannot spend runtime twice",
    },
    Release {
        from: v(5, 14),
        generation: Generation::G2,
        rules: &rules::G2_5_14,
        changed: "burst: unused quota can be carried over",
    },
    Release {
        from: v(5, 15),
        generation: Generation::G2,
        rules: &rules::G2_5_15,
        changed: "a task of class idle gains less by having slept",
    },
    Release {
        from: v(6, 0),
        generation: Generation::G2,
        rules: &rules::G2_6_0,
        changed: "a search for an idle CPU goes by the load of the cache",
    },
    Release {
        from: v(6, 3),
        generation: Generation::G2a,
        rules: &rules::G2A,
        changed: "CPUs are released by interrupts instead of inside the period timer",
    },
    Release {
        from: v(6, 4),
        generation: Generation::G2a,
        rules: &rules::G2A_6_4,
        changed: "period timers are spread instead of firing together",
    },
    Release {
        from: v(6, 6),
        generation: Generation::G2a,
        rules: &rules::G2A_6_6,
        changed: "EEVDF; cpu.stat.local; limited tasks keep the tick on nohz_full CPUs",
    },
    Release {
        from: v(6, 12),
        generation: Generation::G2a,
        rules: &rules::G2A_6_12,
        changed: "delayed dequeue; base slice 0.7 ms",
    },
    Release {
        from: v(6, 13),
        generation: Generation::G2a,
        rules: &rules::G2A_6_13,
        changed: "a new weight scales the time left to a deadline",
    },
    Release {
        from: v(6, 14),
        generation: Generation::G2a,
        rules: &rules::G2A_6_14,
        changed: "CPU hotplug no longer opens the limits of other CPUs",
    },
    Release {
        from: v(6, 16),
        generation: Generation::G2a,
        rules: &rules::G2A_6_16,
        changed: "lazy preemption by default (Debian)",
    },
    Release {
        from: v(6, 17),
        generation: Generation::G2a,
        rules: &rules::G2A_6_17,
        changed: "a task whose protected time is over is rescheduled beside others",
    },
    Release {
        from: v(6, 18),
        generation: Generation::G3,
        rules: &rules::G3,
        changed: "task-based throttle: each task parks itself at its return to user mode",
    },
    Release {
        from: v(6, 19),
        generation: Generation::G3,
        rules: &rules::G3_6_19,
        changed: "lag reaches as far as the longest slice and a tick; new tasks do not preempt",
    },
    Release {
        from: v(7, 0),
        generation: Generation::G3,
        rules: &rules::G3_7_0,
        changed: "a task moved to another group is tested for preemption",
    },
    Release {
        from: v(7, 1),
        generation: Generation::G3,
        rules: &rules::G3_7_1,
        changed: "high-resolution tick on by default",
    },
    Release {
        from: v(7, 2),
        generation: Generation::G4,
        rules: &rules::G4,
        changed: "the accounting throttles by itself; known faults: ancestor leak, boundary skip",
    },
    Release {
        from: v(7, 3),
        generation: Generation::G4F,
        rules: &rules::G4F,
        changed: "one flat run queue per CPU; ancestor leak gone, boundary skip stays",
    },
];

impl Generation {
    /// All generations of Linux, oldest first.
    pub const ALL: [Generation; 7] = [
        Generation::G0,
        Generation::G1,
        Generation::G2,
        Generation::G2a,
        Generation::G3,
        Generation::G4,
        Generation::G4F,
    ];

    /// The version that stands for the generation when only that is named.
    const fn representative(self) -> Version {
        match self {
            Generation::G0 => v(4, 14),
            Generation::G1 => v(4, 19),
            Generation::G2 => v(6, 1),
            Generation::G2a => v(6, 12),
            Generation::G3 => v(6, 18),
            Generation::G4 => v(7, 2),
            Generation::G4F => v(7, 3),
            Generation::Own => PULL,
        }
    }
}

impl fmt::Display for Generation {
    /// Writes the generation's name, such as `G2a`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Generation::Own => f.pad("own"),
            released => f.pad(&format!("{released:?}")),
        }
    }
}

impl fmt::Display for Version {
    /// Writes `6.12`, or the name of an unreleased kernel.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(kernel) = unreleased(*self) {
            return f.pad(kernel.name);
        }
        f.pad(&format!("{}.{}", self.major, self.minor))
    }
}

/// Error of reading a list of kernels.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// Neither a version nor a generation.
    #[error(
        "kernel '{}': give a version such as 6.12, a range such as 6.12..7.3, a generation (G0, \
         G1, G2, G2a, G3, G4, G4F), el7 to el10, a version and what it has (6.12+task, 5.14+csd, \
         4.18+noexpire), tasks-sync or pull",
        one_line(.0)
    )]
    Unreadable(String),
    /// Older than the oldest modelled.
    #[error(
        "kernel {0} is older than the oldest that is modelled, {first}",
        first = RELEASES[0].from
    )]
    TooOld(Version),
    /// Newer than the newest modelled.
    #[error(
        "kernel {0} is newer than the newest that is modelled, {last}",
        last = RELEASES[RELEASES.len() - 1].from
    )]
    TooNew(Version),
    /// A range whose end is before its start.
    #[error("kernel range '{}' is empty: its end is before its start", one_line(.0))]
    EmptyRange(String),
    /// A real-time flavour; the scenario decides that instead.
    #[error(
        "kernel '{}': a scenario chooses a real-time kernel, by `preempt = \"rt\"` or \
         `\"rt-lazy\"` in its [machine]; give a version such as 7.3",
        one_line(.0)
    )]
    RealTime(String),
}

impl FromStr for Version {
    type Err = KernelError;

    /// Parses `6.12`, `v6.12`, `6.12.107` or `6.12.107+deb13-cloud-amd64`: all are 6.12.
    ///
    /// # Errors
    /// The text is no version of this form.
    fn from_str(text: &str) -> Result<Self, KernelError> {
        let bad = || KernelError::Unreadable(text.to_owned());
        let mut parts = text.strip_prefix('v').unwrap_or(text).splitn(3, '.');
        let major = parts.next().unwrap_or("");
        let minor = parts.next().ok_or_else(bad)?;
        let digits = minor.len() - minor.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (minor, rest) = minor.split_at(digits);
        if !(rest.is_empty() || rest.starts_with(['-', '+'])) {
            return Err(bad());
        }
        if let Some(patch) = parts.next()
            && (!rest.is_empty() || !patch.starts_with(|c: char| c.is_ascii_digit()))
        {
            return Err(bad());
        }
        if !major.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad());
        }
        Ok(Version {
            major: major.parse().map_err(|_| bad())?,
            minor: minor.parse().map_err(|_| bad())?,
        })
    }
}

impl Kernel {
    /// A kernel with these rules and no fault.
    fn new(version: Version, generation: Generation, rules: &Rules) -> Kernel {
        Kernel {
            version,
            generation,
            rules: *rules,
            #[cfg(any(test, feature = "faults"))]
            fault: None,
        }
    }

    /// This kernel with a fault injected.
    #[cfg(any(test, feature = "faults"))]
    #[must_use]
    pub fn with_fault(self, fault: Fault) -> Kernel {
        Kernel { fault: Some(fault), ..self }
    }

    /// The newest modelled kernel.
    pub fn newest() -> Kernel {
        let Release { from, generation, rules, .. } = RELEASES[RELEASES.len() - 1];
        Kernel::new(from, generation, rules)
    }

    /// Default preemption model, as Debian builds this kernel.
    pub fn preempt(&self) -> Preempt {
        self.rules.preempt
    }

    /// The modelled kernel for this version: that of the newest release not after it.
    ///
    /// # Errors
    /// When it is older or newer than what is modelled.
    pub fn of(version: Version) -> Result<Kernel, KernelError> {
        if let Some(kernel) = unreleased(version) {
            return Ok(Kernel::new(version, Generation::Own, kernel.rules));
        }
        if version >= UNKNOWN_FROM {
            return Err(KernelError::TooNew(version));
        }
        let release = RELEASES
            .iter()
            .rev()
            .find(|r| r.from <= version)
            .ok_or(KernelError::TooOld(version))?;
        Ok(Kernel::new(version, release.generation, release.rules))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_is_in_order() {
        assert!(
            RELEASES
                .windows(2)
                .all(|w| w[0].from < w[1].from && w[0].generation <= w[1].generation)
        );
    }
}
