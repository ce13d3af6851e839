//! Workloads as worlds are given them: checked, and changed only in ways that keep them so.

use crate::check::{self, Checked, Found};
use crate::error::{Error, Kind, Spot};
use crate::model::{GroupIx, Parts, TaskSpec};
use cpumax_limit::{Limit, Rules};
use serde::{Deserialize, Serialize};
use std::ops::Deref;

/// A whole experiment that has passed the checks: whatever world it is given to can run it.
///
/// What is in it is read through [`Parts`], to which it dereferences. It is made of a scenario file
/// ([`crate::parse`]), in Rust ([`Workload::builder`]), or of its parts, which are checked:
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
/// It is serialized as its parts are; what is deserialized has passed the same checks. How much is
/// read is up to who reads.
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
    /// Of parts that have just been checked.
    pub(crate) fn checked(parts: Parts) -> Workload {
        Workload(parts)
    }

    /// What it is made of, to be changed and checked again.
    pub fn into_parts(self) -> Parts {
        self.0
    }

    /// Under another name, and with another sentence that says what it shows.
    ///
    /// # Errors
    /// What cannot be a name.
    pub fn with_name(mut self, name: &str, shows: &str) -> Result<Workload, Error> {
        name.clone_into(&mut self.0.name);
        shows.clone_into(&mut self.0.shows);
        self.after(check::top)
    }

    /// For another length of simulated time, ns, up to a day.
    ///
    /// # Errors
    /// A length out of range.
    pub fn with_duration(mut self, duration_ns: u64) -> Result<Workload, Error> {
        self.0.duration_ns = duration_ns;
        self.after(check::top)
    }

    /// With another limit for one group, on a kernel with these rules.
    ///
    /// # Errors
    /// There is no such group or it is the root, that kernel or the newest would refuse the limit,
    /// or, in a v1 hierarchy, one of the writes that come later.
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
            let spot = Spot::Group(group as usize);
            return self.refuse(spot, "max", Kind::Limit, error.to_string());
        }
        self.0.groups[group as usize].limit = limit;
        self.after(|parts| {
            check::limit(Spot::Group(group as usize), limit)?;
            check::v1_limits(parts)
        })
    }

    /// With another weight for one group, 1 to 10000.
    ///
    /// # Errors
    /// There is no such group or it is the root, or the weight is out of range.
    pub fn with_weight(mut self, group: GroupIx, weight: u32) -> Result<Workload, Error> {
        self.below_root(group, "weight")?;
        self.0.groups[group as usize].weight = weight;
        self.after(|_| {
            let spot = Spot::Group(group as usize);
            check::in_range(spot, "weight", weight.into(), check::WEIGHTS)
        })
    }

    /// On a machine with another number of CPUs, 1 to 4096, all of them sharing their last-level
    /// cache where that was shared by more.
    ///
    /// # Errors
    /// A number out of range, or something is said of a CPU that there would not be.
    pub fn with_cpus(mut self, cpus: u16) -> Result<Workload, Error> {
        let machine = &mut self.0.machine;
        machine.cpus = cpus;
        if machine.llc_cpus > cpus {
            machine.llc_cpus = 0;
        }
        self.0.check()?;
        Ok(self)
    }

    /// With all period timers firing at this place in their periods, ns.
    ///
    /// # Errors
    /// A time longer than any period.
    pub fn with_timer_phase(mut self, phase_ns: u64) -> Result<Workload, Error> {
        self.0.machine.timer_phase_ns = Some(phase_ns);
        self.after(check::machine)
    }

    /// With a label for each kind of task, under which results tell of it; `None`: its own name.
    ///
    /// # Errors
    /// What cannot be a label, or an expectation about one that there is no longer.
    pub fn with_labels(
        mut self,
        label: impl Fn(&TaskSpec) -> Option<String>,
    ) -> Result<Workload, Error> {
        for task in &mut self.0.tasks {
            task.label = label(task);
        }
        self.after(|parts| {
            check::labels(parts)?;
            check::expectations(parts)
        })
    }

    /// The group of this path.
    pub fn group(&self, path: &str) -> Option<GroupIx> {
        self.groups.iter().position(|group| group.path == path).map(|ix| ix as GroupIx)
    }

    fn after(self, check: impl FnOnce(&Parts) -> Checked) -> Result<Workload, Error> {
        match check(&self.0) {
            Ok(()) => Ok(self),
            Err(found) => Err(self.error(found)),
        }
    }

    fn error(&self, found: Found) -> Error {
        found.flaw.part(found.spot.describe(self)).into_error(None)
    }

    fn refuse<T>(
        &self,
        spot: Spot,
        field: &'static str,
        kind: Kind,
        problem: String,
    ) -> Result<T, Error> {
        check::flaw(spot, field, kind, problem, "").map_err(|found| self.error(found))
    }

    fn below_root(&self, group: GroupIx, what: &str) -> Result<(), Error> {
        let spot = Spot::Group(group as usize);
        check::reference(spot, "group", group, self.groups.len())
            .map_err(|found| self.error(found))?;
        match group {
            0 => self.refuse(spot, "group", Kind::Limit, format!("the root group has no {what}")),
            _ => Ok(()),
        }
    }
}
