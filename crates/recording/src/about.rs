//! The description that `cpumax record` puts into a recording: the machine, the limits in force,
//! what changed and what was lost. It stands in the file as JSON; docs/guide/record.md describes
//! it.

use cpumax_limit::{Limit, Rules};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub mod functions;

/// The machine and the recorded groups at the beginning of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct About {
    /// The tool that made it, e.g. `cpumax 0.2.0`.
    pub tool: String,
    /// The command that made it.
    pub command: String,
    /// Recorded threads: `all`, `group PATH`, `process PID` or `command`.
    pub chosen: String,
    /// Release of the kernel, e.g. `6.18.1`.
    pub release: String,
    /// Further version text of the kernel.
    pub version: String,
    /// Functions of the kernel that tell how it limits groups, and whether it has them; empty: that
    /// is not known.
    pub functions: BTreeMap<String, bool>,
    /// Architecture, e.g. `x86_64`.
    pub arch: String,
    /// Ticks a second, where the kernel's configuration can be read.
    pub hz: Option<u32>,
    /// How far the kernel can be preempted: none, voluntary, full or lazy, where it tells.
    pub preemption: Option<String>,
    /// Processors on line, as ranges.
    pub online: String,
    /// Processors there can be, as ranges.
    pub possible: String,
    /// Caches of the first processor, and the processors that share them.
    pub caches: Vec<Cache>,
    /// Settings of the scheduler by their names, as the kernel prints them.
    pub slices: BTreeMap<String, String>,
    /// When it began, ns since 1970.
    pub unix_ns: u64,
    /// Beginning on the clock of the events, ns since the machine was started.
    pub boot_ns: u64,
    /// Whether the hierarchy of groups is of version 1.
    pub is_version_1: bool,
    /// The group that is recorded and those it is in, innermost first.
    pub groups: Vec<GroupFiles>,
    /// Pressure stall information (`/proc/pressure`), by resource.
    pub pressure: BTreeMap<String, String>,
    /// Cost of recording an entry into a system call, or an exit, measured before the recording
    /// began, ns; 0: not known.
    pub call_cost_ns: u64,
    /// Cost of any other event, measured alike, ns; 0: not known.
    pub event_cost_ns: u64,
}

impl About {
    /// Whether the recorder measured what recording a system call or another event costs.
    pub fn is_cost_measured(&self) -> bool {
        self.call_cost_ns > 0 || self.event_cost_ns > 0
    }
}

impl GroupFiles {
    /// The limit with its burst in the group's files of either hierarchy version, which may be
    /// unlimited. `None` if they hold none, or what no kernel writes there.
    pub fn limit(&self) -> Option<Limit> {
        let file = |name: &str| self.files.get(name).map(|text| text.trim());
        let version_1 = || {
            let (quota, period) = (file("cpu.cfs_quota_us")?, file("cpu.cfs_period_us")?);
            Some(format!("{} {period}", if quota == "-1" { "max" } else { quota }))
        };
        let text = file("cpu.max").map(str::to_owned).or_else(version_1)?;
        let limit = Limit::UNLIMITED.write_cpu_max(&text).ok()?;
        let burst_us = file("cpu.max.burst").or_else(|| file("cpu.cfs_burst_us")).unwrap_or("0");
        let burst_ns = burst_us.parse::<u64>().ok()?.checked_mul(1_000)?;
        Limit::new_under(&Rules::NEWEST, limit.quota_ns(), limit.period_ns(), burst_ns).ok()
    }
}

/// The end of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct Ended {
    /// Why: `asked`, `time`, `size`, `budget` or `command`.
    pub why: String,
    /// How long it took, ns.
    pub elapsed_ns: u64,
    /// Events that were taken.
    pub events: u64,
    /// Events for which there was no room, by the number of the processor.
    pub lost: BTreeMap<u32, u64>,
    /// Chosen threads that are not recorded, as there are too many.
    pub forgotten: u64,
    /// Sockets that got other numbers if they were used again, as there were too many.
    pub forgotten_sockets: u64,
    /// CPU time of the recorder itself, ns.
    pub recorder_ns: u64,
    /// CPU time that handing over an event took a recorded thread, on average, ns; 0: not known.
    pub event_ns: u64,
    /// Files of the recorded groups at the end.
    pub groups: Vec<GroupFiles>,
    /// Files of them that were given other values meanwhile, in order.
    pub changes: Vec<Change>,
    /// When the recorded group was removed and made again at its path, as a service does that is
    /// restarted, since the recording began, ns.
    pub made_again: Vec<u64>,
    /// The recorded group was not there any more, or another one that was not recorded.
    pub is_gone: bool,
    /// Pressure stall information at the end.
    pub pressure: BTreeMap<String, String>,
}

/// A level of cache.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct Cache {
    /// 1 is the smallest.
    pub level: u32,
    /// E.g. `Data` or `Unified`.
    pub kind: String,
    /// E.g. `32K`.
    pub size: String,
    /// Processors that share it, as ranges.
    pub shared_by: String,
}

/// A group's files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct GroupFiles {
    /// Its path from the root of its hierarchy.
    pub path: String,
    /// Contents by file name: `cpu.max`, `cpu.weight`, `cpu.stat` and others.
    pub files: BTreeMap<String, String>,
}

/// A file was given another value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct Change {
    /// When it was noticed, since the recording began, ns.
    pub at_ns: u64,
    /// The group.
    pub path: String,
    /// The file.
    pub file: String,
    /// The new value.
    pub value: String,
}
