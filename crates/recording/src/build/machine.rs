//! The machine of a workload: the settings that influence the kernel's decisions.

use crate::about::About;
use cpumax_workload::bounds::{BANDWIDTH_SLICE_NS, HZ, SLICE_NS};
use cpumax_workload::{MachineSpec, Preempt};

/// A machine with so many CPUs: tick, preemption and slices as recorded. Settings that are missing,
/// or that no kernel has, get their defaults.
pub(super) fn machine(cpus: u16, about: Option<&About>) -> MachineSpec {
    let usual = MachineSpec { cpus, ..MachineSpec::default() };
    let Some(about) = about else { return usual };
    let slice = |name: &str| about.slices.get(name)?.trim().parse::<u64>().ok();
    let bandwidth_us = slice("sched_cfs_bandwidth_slice_us").and_then(|us| us.checked_mul(1_000));
    MachineSpec {
        hz: about.hz.filter(|hz| HZ.contains(hz)).unwrap_or(usual.hz),
        preempt: about.preemption.as_deref().and_then(preempt),
        base_slice_ns: slice("base_slice_ns").filter(|ns| SLICE_NS.contains(ns)),
        bandwidth_slice_ns: bandwidth_us
            .filter(|ns| BANDWIDTH_SLICE_NS.contains(ns))
            .unwrap_or(usual.bandwidth_slice_ns),
        ..usual
    }
}

/// The model of preemption of this name; `None` for `dynamic`, which may be any of them, and
/// unknown ones.
fn preempt(name: &str) -> Option<Preempt> {
    Some(match name {
        "none" => Preempt::None,
        "voluntary" => Preempt::Voluntary,
        "lazy" => Preempt::Lazy,
        "full" => Preempt::Full,
        "rt" => Preempt::Rt,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn about(hz: u32, preemption: &str, slices: &[(&str, &str)]) -> About {
        let slices: BTreeMap<&str, &str> = slices.iter().copied().collect();
        let told = serde_json::json!({ "hz": hz, "preemption": preemption, "slices": slices });
        serde_json::from_value(told).unwrap()
    }

    #[test]
    fn ticks_preemption_and_slices_are_those_of_the_machine_that_recorded() {
        let slices = [("base_slice_ns", "700000"), ("sched_cfs_bandwidth_slice_us", "1000")];
        let told = machine(2, Some(&about(1000, "full", &slices)));
        let expected = MachineSpec {
            cpus: 2,
            hz: 1000,
            preempt: Some(Preempt::Full),
            base_slice_ns: Some(700_000),
            bandwidth_slice_ns: 1_000_000,
            ..MachineSpec::default()
        };
        assert_eq!(told, expected);
    }

    #[test]
    fn impossible_settings_get_defaults() {
        let usual = MachineSpec { cpus: 2, ..MachineSpec::default() };
        let slices =
            [("base_slice_ns", "1"), ("sched_cfs_bandwidth_slice_us", "99999999999999999")];
        assert_eq!(machine(2, Some(&about(7, "dynamic", &slices))), usual);
        assert_eq!(machine(2, None), usual);
    }
}
