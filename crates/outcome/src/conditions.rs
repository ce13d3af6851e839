//! Conditions that a run finds and does not choose: the tick, the preemption and the phases of its
//! kernel. A run on a real kernel reports them; the model takes them over to be compared with that
//! run.
//!
//! Every field is optional; an unknown one is left to the workload and the kernel's rules.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The conditions of one run. Times count from the start of the run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Conditions {
    /// Ticks a second.
    pub hz: Option<u32>,
    /// The kernel's preemption model.
    pub preempt: Option<Preemption>,
    /// Whether a high-resolution tick ends slices.
    pub hrtick: Option<bool>,
    /// The EEVDF base slice in use, scaled by the number of CPUs, ns.
    pub base_slice_ns: Option<u64>,
    /// First tick of CPU 0 that is not before the start of the run, ns.
    pub first_tick_ns: Option<u64>,
    /// By path of the group: first edge of its period timer at or after the start of the run, ns;
    /// for a group that gets its first limit later, any edge.
    pub first_edge_ns: BTreeMap<String, u64>,
    /// By path of a group with a burst: runtime in its pool at the start of the run, ns. It may
    /// exceed the quota.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pool_ns: BTreeMap<String, u64>,
    /// Where time is the host's: how late sleeps ended, until the task was in user mode again, ns.
    /// The value is the first decile of those that were not so late that the task must have waited
    /// for its CPU; absent where hardly any remain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake_late_ns: Option<u64>,
    /// Where time is the host's: time of a page of 4 KiB that work in the kernel reads, and of one
    /// that it writes under a lock, ns. After each page the kernel checks whether it should be
    /// preempted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_ns: Option<[u64; 2]>,
    /// Where time is the host's: by kind of task, the CPU on which each task that was started from
    /// outside began. It depends on the task's CPU before the run and on who was busy then, which
    /// no workload tells.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub first_cpus: BTreeMap<String, Vec<Option<u32>>>,
    /// Intervals, from when and how long, ns, in which CPU 0 ran something outside of the workload:
    /// the helper that starts tasks, sends arrivals, intervenes and reads the counters, or a thread
    /// of the kernel. They are real-time tasks, so nothing delays them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outside_ns: Vec<(u64, u64)>,
    /// Actions that were due at the first time and done at the second, ns since the start. Their
    /// helper had to sleep (while a task moves itself no other is forked or moved), or a thread of
    /// the kernel waited for its CPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub late_ns: Vec<(u64, u64)>,
}

/// A preemption model, as the `preempt` file in debugfs names it.
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
    fn missing_conditions_are_unknown() {
        let conditions: Conditions =
            serde_json::from_str(r#"{"hz": 250, "preempt": "lazy", "new": 1}"#).unwrap();
        let known =
            Conditions { hz: Some(250), preempt: Some(Preemption::Lazy), ..Conditions::default() };
        assert_eq!(conditions, known);
    }
}
