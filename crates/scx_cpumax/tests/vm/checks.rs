// SPDX-License-Identifier: GPL-2.0-only
//! The list of checks; what they do is in the modules below.

mod costs;
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
    pub time: Time,
}

/// How time passes in the machine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// An instruction takes two nanoseconds, whichever CPU it is on, and idle time is skipped. What the host does meanwhile
    /// does not matter, so this is what numbers are taken in. Several CPUs take turns of a tick at most.
    Instructions,
    /// The host's, and each CPU is a thread of the host's: for what really must happen at the same time.
    Host,
}

const fn quick(name: &'static str, run: fn() -> Checked) -> Check {
    Check {
        name,
        run,
        set: Set::Quick,
        cpus: 1,
        patience_s: 120,
        alone: false,
        ends_badly: false,
        time: Time::Instructions,
    }
}

const fn exact(name: &'static str, run: fn() -> Checked) -> Check {
    Check { set: Set::Full, patience_s: 300, ..quick(name, run) }
}

const fn parallel(name: &'static str, cpus: u32, run: fn() -> Checked) -> Check {
    Check { cpus, time: Time::Host, ..exact(name, run) }
}

const fn ending_badly(mut check: Check) -> Check {
    check.ends_badly = true;
    check
}

pub const CHECKS: &[Check] = &[
    quick("rates", limits::rates),
    quick("limits_set_before", limits::set_before),
    quick("lock_holder", parked::lock_holder),
    Check { cpus: 2, ..quick("parked_tasks_obey", parked::obey) },
    quick("loader_dies", refused::loader_dies),
    Check { cpus: 4, ..exact("rates_of_many", limits::rates_of_many) },
    exact("burst", limits::burst),
    exact("rewriting", limits::rewriting),
    parallel("second_hop", 2, parked::second_hop),
    parallel("second_slot", 2, parked::second_slot),
    parallel("refill_race", 2, parked::refill_race),
    exact("watchdog", parked::watchdog),
    ending_badly(exact("watchdog_barks", parked::watchdog_barks)),
    parallel("hotplug", 4, parked::hotplug),
    ending_badly(exact("refusals", refused::refusals)),
    exact("switch_costs", costs::switch_costs),
    parallel("storm", 4, storm::storm),
];
