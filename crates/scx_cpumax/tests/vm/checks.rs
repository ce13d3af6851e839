// SPDX-License-Identifier: GPL-2.0-only
//! The list of checks; what they do is in the modules below.

mod limits;
mod parked;
mod refused;
mod storm;

use crate::guest::Checked;

/// When a check runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Set {
    /// In `make test`.
    Quick,
    /// In `make scx-test` only.
    Full,
}

pub struct Check {
    pub name: &'static str,
    pub run: fn() -> Checked,
    pub set: Set,
    pub cpus: u32,
    /// On a loaded host.
    pub patience_s: u64,
    /// In a machine of its own.
    pub alone: bool,
    /// The kernel's log may say that a scheduler was thrown out: that is what is checked.
    pub ends_badly: bool,
}

const fn quick(name: &'static str, run: fn() -> Checked) -> Check {
    Check { name, run, set: Set::Quick, cpus: 2, patience_s: 120, alone: false, ends_badly: false }
}

const fn full(name: &'static str, cpus: u32, run: fn() -> Checked) -> Check {
    Check { name, run, set: Set::Full, cpus, patience_s: 300, alone: false, ends_badly: false }
}

const fn ending_badly(mut check: Check) -> Check {
    check.ends_badly = true;
    check
}

pub const CHECKS: &[Check] = &[
    quick("rates", limits::rates),
    quick("limits_set_before", limits::set_before),
    quick("lock_holder", parked::lock_holder),
    quick("parked_tasks_obey", parked::obey),
    quick("loader_dies", refused::loader_dies),
    full("rates_of_many", 4, limits::rates_of_many),
    full("burst", 2, limits::burst),
    full("rewriting", 2, limits::rewriting),
    full("second_hop", 2, parked::second_hop),
    full("second_slot", 2, parked::second_slot),
    full("refill_race", 2, parked::refill_race),
    full("watchdog", 2, parked::watchdog),
    ending_badly(full("watchdog_barks", 2, parked::watchdog_barks)),
    full("hotplug", 4, parked::hotplug),
    ending_badly(full("refusals", 2, refused::refusals)),
    full("storm", 4, storm::storm),
];
