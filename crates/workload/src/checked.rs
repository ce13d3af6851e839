//! Checked workloads, and copies of them with one thing changed.

use crate::check::{self, Checked, PartRefusal};
use crate::error::{Error, Kind, PartIx};
use crate::model::{GroupIx, Parts, TaskSpec};
use cpumax_limit::{Limit, Rules};
use serde::{Deserialize, Serialize};
use std::ops::Deref;

/// A whole experiment that has passed the checks: every world can run it.
///
/// It dereferences to its [`Parts`]. It comes from a scenario file ([`crate::parse`]), from Rust
/// code ([`Workload::builder`]), or from parts:
///
/// ```
/// use cpumax_workload::{Workload, parse};
///
/// let workload = parse("[[task]]\nname = \"hog\"\nprogram = [{ user = \"1s\" }]", "hog.toml")?;
/// let mut parts = workload.into_parts();
/// parts.tasks[0].count = 4;
/// let four = Workload::try_from(parts)?;
/// assert_eq!(four.tasks[0].count, 4);
///
/// let mut parts = four.into_parts();
/// parts.tasks[0].group = 7;
/// assert!(Workload::try_from(parts).is_err(), "there is one group only, the root");
/// # Ok::<(), cpumax_workload::Error>(())
/// ```
///
/// It is serialized as its parts, which are checked when they are read. Callers bound the size of
/// what they read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Parts")]
pub struct Workload(Parts);

impl Deref for Workload {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl TryFrom<Parts> for Workload {
    type Error = Error;

    /// Checks everything ([`Parts::check`]).
    fn try_from(parts: Parts) -> Result<Workload, Error> {
        parts.check()?;
        Ok(Workload(parts))
    }
}

impl From<Workload> for Parts {
    fn from(workload: Workload) -> Parts {
        workload.0
    }
}

impl Workload {
    /// A workload of parts that have just been checked.
    pub(crate) fn checked(parts: Parts) -> Workload {
        Workload(parts)
    }

    /// Its parts, to be changed and checked again.
    pub fn into_parts(self) -> Parts {
        self.0
    }

    /// Replaces the name, and the sentence that says what the workload demonstrates.
    ///
    /// # Errors
    /// A text that cannot be a name.
    pub fn with_name(mut self, name: &str, shows: &str) -> Result<Workload, Error> {
        name.clone_into(&mut self.0.name);
        shows.clone_into(&mut self.0.shows);
        self.after(check::check_name_and_duration)
    }

    /// Replaces the simulated time, ns, up to a day.
    ///
    /// # Errors
    /// A length out of range.
    pub fn with_duration(mut self, duration_ns: u64) -> Result<Workload, Error> {
        self.0.duration_ns = duration_ns;
        self.after(check::check_name_and_duration)
    }

    /// Replaces the limit of one group, on a kernel with these rules.
    ///
    /// # Errors
    /// An unknown group or the root; a limit that this kernel or the newest refuses; in a v1
    /// hierarchy also a later write that would then be refused.
    pub fn with_limit(
        mut self,
        group: GroupIx,
        limit: Limit,
        rules: &Rules,
    ) -> Result<Workload, Error> {
        self.below_root(group, "limit")?;
        let (quota_ns, period_ns, burst_ns) =
            (limit.quota_ns(), limit.period_ns(), limit.burst_ns());
        if let Err(error) = Limit::new_under(rules, quota_ns, period_ns, burst_ns) {
            let part = PartIx::Group(group as usize);
            return self.refuse(part, "max", Error::Limit, error.to_string());
        }
        self.0.groups[group as usize].limit = limit;
        self.after(|parts| {
            check::check_limit(PartIx::Group(group as usize), limit)?;
            check::check_v1_limits(parts)
        })
    }

    /// Replaces the weight of one group, 1 to 10000.
    ///
    /// # Errors
    /// An unknown group or the root, or a weight out of range.
    pub fn with_weight(mut self, group: GroupIx, weight: u32) -> Result<Workload, Error> {
        self.below_root(group, "weight")?;
        self.0.groups[group as usize].weight = weight;
        self.after(|_| {
            let part = PartIx::Group(group as usize);
            check::check_in_range(part, "weight", weight.into(), check::WEIGHTS)
        })
    }

    /// Replaces the number of CPUs, 1 to 4096. Where more CPUs than that shared a last-level cache,
    /// all share it.
    ///
    /// # Errors
    /// A number out of range, or a CPU named elsewhere in the workload that the machine would lack.
    pub fn with_cpus(mut self, cpus: u16) -> Result<Workload, Error> {
        let machine = &mut self.0.machine;
        machine.cpus = cpus;
        if machine.llc_cpus > cpus {
            machine.llc_cpus = 0;
        }
        self.0.check()?;
        Ok(self)
    }

    /// Sets the phase at which all period timers fire, ns.
    ///
    /// # Errors
    /// A time longer than any period.
    pub fn with_timer_phase(mut self, phase_ns: u64) -> Result<Workload, Error> {
        self.0.machine.timer_phase_ns = Some(phase_ns);
        self.after(check::check_machine)
    }

    /// Sets the label of each kind of task, its name in results; `None`: its own name.
    ///
    /// # Errors
    /// A text that cannot be a label, or an expectation about a label that no longer exists.
    pub fn with_labels(
        mut self,
        label: impl Fn(&TaskSpec) -> Option<String>,
    ) -> Result<Workload, Error> {
        for task in &mut self.0.tasks {
            task.label = label(task);
        }
        self.after(|parts| {
            check::check_labels(parts)?;
            check::check_expectations(parts)
        })
    }

    /// The index of the group at this path.
    pub fn group(&self, path: &str) -> Option<GroupIx> {
        self.groups.iter().position(|group| group.path == path).map(|ix| ix as GroupIx)
    }

    /// The workload, if this check finds nothing wrong with it.
    fn after(self, check: impl FnOnce(&Parts) -> Checked) -> Result<Workload, Error> {
        match check(&self.0) {
            Ok(()) => Ok(self),
            Err(found) => Err(self.error(found)),
        }
    }

    fn error(&self, found: PartRefusal) -> Error {
        found.refusal.part(found.part.describe(self)).into_error(None)
    }

    fn refuse<T>(
        &self,
        part: PartIx,
        field: &'static str,
        kind: Kind,
        problem: String,
    ) -> Result<T, Error> {
        check::refuse(part, field, kind, problem, "").map_err(|found| self.error(found))
    }

    /// Refuses the root, which has no such setting (`what`), and an index without a group.
    fn below_root(&self, group: GroupIx, what: &str) -> Result<(), Error> {
        let part = PartIx::Group(group as usize);
        check::check_reference(part, "group", group, self.groups.len())
            .map_err(|found| self.error(found))?;
        match group {
            0 => self.refuse(part, "group", Error::Limit, format!("the root group has no {what}")),
            _ => Ok(()),
        }
    }
}
