//! The CPUs that a thread may use.
//!
//! The name of a per-CPU kernel thread contains its CPU. Other threads have the
//! `cpuset.cpus.effective` of their control group. Without that file their waits show it: the load
//! balancer moves a thread that waits for one CPU while another is idle, unless it may not run
//! there.

use super::{Selection, is_in, kernel_threads};
use crate::recording::Recording;
use crate::thread::Thread;
use cpumax_workload::{Affinity, CpuSet};

/// Control group file with the CPUs on which its threads may run.
const CPUSET: &str = "cpuset.cpus.effective";

/// CPUs that chosen threads may use.
pub(super) struct Allowed<'a> {
    /// CPUs of the limited group, as the caller says.
    told: Option<&'a CpuSet>,
    /// Masks of the CPUs that threads ran on which waited beside idle CPUs.
    kept: Vec<u64>,
}

impl<'a> Allowed<'a> {
    /// The CPUs that the selection gives the limited group, and those that its pinned threads
    /// (`inside`) kept to.
    pub fn of(recording: &Recording, selection: &'a Selection, inside: &[bool]) -> Allowed<'a> {
        let threads = recording.threads.iter().zip(inside).filter(|(_, inside)| **inside);
        let mut kept: Vec<u64> = threads
            .filter(|(thread, _)| thread.is_pinned())
            .map(|(thread, _)| thread.cpus)
            .collect();
        kept.sort_unstable_by_key(|cpus| (cpus.count_ones(), *cpus));
        kept.dedup();
        Allowed { told: selection.pin.as_ref(), kept }
    }
}

impl Recording {
    /// The affinity of a thread in a machine of `cpus` CPUs; adds its set to `sets` if that is new.
    /// `inside`: it is in the limited group. All CPUs, or none of this machine, give
    /// [`Affinity::All`].
    pub(super) fn affinity(
        &self,
        thread: &Thread,
        inside: bool,
        allowed: &Allowed<'_>,
        cpus: u16,
        sets: &mut Vec<CpuSet>,
    ) -> Affinity {
        let set = match self.allowed_cpus(thread, inside, allowed) {
            Some(CpuSet(numbers)) => numbers.into_iter().filter(|cpu| *cpu < cpus).collect(),
            None => Vec::new(),
        };
        if set.is_empty() || set.len() == usize::from(cpus) {
            return Affinity::All;
        }
        let set = CpuSet(set);
        let at = sets.iter().position(|other| *other == set).unwrap_or_else(|| {
            sets.push(set);
            sets.len() - 1
        });
        Affinity::Set(at as u32)
    }

    /// CPUs of the workload that the thread may use; `None`: all. Sources are, in order: a kernel
    /// thread's name, the selection, its cpuset, its waits beside idle CPUs.
    fn allowed_cpus(&self, thread: &Thread, inside: bool, allowed: &Allowed<'_>) -> Option<CpuSet> {
        if self.is_kernel(thread) {
            return self.cpu_set(kernel_threads::bound_cpu(&thread.comm));
        }
        if let Some(told) = allowed.told.filter(|_| inside) {
            return Some(told.clone());
        }
        if let Some(set) = self.cpuset(thread) {
            return self.cpu_set(set.0);
        }
        // A thread that never waited gets the CPUs of one that did, if it stayed on them.
        let stayed = thread.is_often_seen().then_some(thread.cpus)?;
        let kept = allowed.kept.iter().filter(|_| inside).find(|cpus| stayed & !**cpus == 0)?;
        let kept = if thread.is_pinned() { stayed } else { *kept };
        self.cpu_set((0..64).filter(|cpu| kept >> cpu & 1 == 1))
    }

    /// The cpuset of its group, or of the nearest one above that has the file, by the machine's
    /// numbers; `None` if none has.
    fn cpuset(&self, thread: &Thread) -> Option<CpuSet> {
        let own = self.group_path(thread)?;
        let groups = &self.machine.about.as_ref()?.groups;
        let above = groups.iter().filter(|group| is_in(own, group.path.trim_end_matches('/')));
        let told = above.filter_map(|group| Some((group.path.len(), group.files.get(CPUSET)?)));
        told.max_by_key(|(depth, _)| *depth)?.1.trim().parse().ok()
    }

    /// These CPUs of the machine, as the workload numbers them; `None` if it has none of them.
    fn cpu_set(&self, numbers: impl IntoIterator<Item = u16>) -> Option<CpuSet> {
        let set: Vec<u16> = numbers.into_iter().filter_map(|cpu| self.cpu_ix(cpu)).collect();
        (!set.is_empty()).then_some(CpuSet(set))
    }
}
