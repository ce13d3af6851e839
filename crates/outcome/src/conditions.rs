//! What a run found rather than chose: the tick, the preemption and the phases of the kernel it ran
//! on. A run on a real kernel reports them; a model that is held against that run is told them.
//!
//! Everything is optional: what is not known is left to the workload and the kernel's rules.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The conditions of one run. Times count from the start of the run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Conditions {
    /// Ticks a second.
    pub hz: Option<u32>,
    /// Where the kernel lets itself be preempted.
    pub preempt: Option<Preemption>,
    /// Whether a high-resolution tick ends slices.
    pub hrtick: Option<bool>,
    /// The EEVDF base slice in use, scaled by the number of CPUs, ns.
    pub base_slice_ns: Option<u64>,
    /// First tick of CPU 0 that is not before the start of the run, ns.
    pub first_tick_ns: Option<u64>,
    /// By path of the group: first edge of its period, as its timer stands, that is not before the
    /// start of the run (or, for a group that gets its first limit later, any edge), ns.
    pub first_edge_ns: BTreeMap<String, u64>,
    /// By path of a group with a burst: runtime in its pool at the start of the run, ns. It can be
    /// more than the quota.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pool_ns: BTreeMap<String, u64>,
    /// Where time is the host's: how late sleeps were over, the task in user mode again, ns: a
    /// tenth earlier of those that were not so late that the task must have waited for its CPU;
    /// nothing, where hardly any were not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake_late_ns: Option<u64>,
    /// Where time is the host's: how long a page of 4 KiB takes that work in the kernel reads, and
    /// one that it writes under a lock, ns. A kernel that is preempted where it looks whether it
    /// should be does so after each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_ns: Option<[u64; 2]>,
    /// Where time is the host's: by kind of task, on which CPU each of those that were started from
    /// outside began. Where a task was before the run, and who was just then busy, no workload
    /// says.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub first_cpus: BTreeMap<String, Vec<Option<u32>>>,
    /// When whoever started tasks, sent what arrives, intervened and read the counters at the end,
    /// or a thread of the kernel, was on CPU 0 for that: from when and how long, ns. They are
    /// real-time tasks, so that nothing keeps them from being on time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outside_ns: Vec<(u64, u64)>,
    /// What was to be done at the first time and was at the second, ns since the start: who does it
    /// had to sleep, as while a task moves itself nobody else is born or moved; or a thread of the
    /// kernel waited to come to its CPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub late_ns: Vec<(u64, u64)>,
}

/// Where a kernel lets itself be preempted, as its `preempt` file in debugfs says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Preemption {
    /// Where a task sleeps or returns to user mode.
    None,
    /// Also at voluntary points.
    Voluntary,
    /// At the return to user mode, and everywhere at the next tick.
    Lazy,
    /// Everywhere.
    Full,
    /// `PREEMPT_RT`.
    Rt,
    /// `PREEMPT_RT` and lazy.
    RtLazy,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_not_known() {
        let conditions: Conditions =
            serde_json::from_str(r#"{"hz": 250, "preempt": "lazy", "new": 1}"#).unwrap();
        let known =
            Conditions { hz: Some(250), preempt: Some(Preemption::Lazy), ..Conditions::default() };
        assert_eq!(conditions, known);
    }
}
