// SPDX-License-Identifier: GPL-2.0-only
//! The list of checks. The modules below implement them.

mod beside_model;
mod costs;
mod endings;
mod fates;
mod forkers;
mod limits;
mod lives;
mod parked;
mod races;
mod refused;
mod seen;
mod selftests;
mod storm;
mod traced;
mod turns;
mod uring;

use crate::guest::Checked;
pub use beside_model::GUEST;
pub use seen::CPUMAX;
pub use selftests::shell;

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
    /// Sockets, each with a last-level cache.
    pub sockets: u32,
    /// Timeout in seconds, long enough for a loaded host.
    pub patience_s: u64,
    /// The check needs a machine that no other check uses.
    pub alone: bool,
    /// The kernel's log may report that a scheduler was removed, because the check causes that.
    pub ends_badly: bool,
    pub time: Time,
}

/// How time passes in the machine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// An instruction takes two nanoseconds on each CPU, and idle time is skipped. The load of the
    /// host does not matter, so all measured numbers come from this mode. Several CPUs take turns,
    /// and a CPU that is always busy leaves hardly any time to the others.
    Instructions,
    /// As `Instructions`, but each CPU has its own clock, so that CPUs run in parallel as real ones
    /// do. This is the slowest mode.
    Turns,
    /// Time of the host, and each CPU is a thread of the host. For checks that need CPUs that
    /// really run at the same time.
    Host,
}

impl Check {
    const fn on(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    const fn with_sockets(mut self, sockets: u32) -> Self {
        self.sockets = sockets;
        self
    }

    const fn alone(mut self) -> Self {
        self.alone = true;
        self
    }
}

const fn quick(name: &'static str, run: fn() -> Checked) -> Check {
    Check {
        name,
        run,
        set: Set::Quick,
        cpus: 1,
        sockets: 1,
        patience_s: 240,
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

const fn in_turns(name: &'static str, cpus: u32, run: fn() -> Checked) -> Check {
    slow(Check { cpus, time: Time::Turns, ..exact(name, run) })
}

/// A check that is busy for a long time, starts the scheduler several times, or ends many
/// processes, which takes an emulated CPU long.
const fn slow(mut check: Check) -> Check {
    check.patience_s = 2400;
    check
}

const fn ending_badly(mut check: Check) -> Check {
    check.ends_badly = true;
    check
}

pub const CHECKS: &[Check] = &[
    quick("rates", limits::rates),
    quick("limits_set_before", limits::set_before),
    quick("lock_holder", parked::lock_holder),
    quick("parked_tasks_obey", parked::obey).on(2),
    quick("loader_dies", refused::loader_dies),
    exact("counted", limits::counted),
    exact("rates_of_few", limits::rates_of_few),
    exact("rates_of_many", limits::rates_of_many).on(4),
    exact("burst", limits::burst),
    exact("deepest", limits::deepest),
    exact("rewriting", limits::rewriting),
    exact("seen", seen::seen).alone(),
    slow(exact("told", seen::told)),
    exact("in_turn", parked::in_turn),
    exact("freezer", parked::freezer),
    exact("second_hop", parked::second_hop).on(2),
    parallel("second_slot", 2, parked::second_slot),
    exact("refill_race", races::refill_race),
    parallel("lost_park", 2, races::lost_park),
    ending_badly(parallel("leaving_cpu", 4, races::leaving_cpu)).alone(),
    exact("inherited", fates::inherited),
    exact("moves", fates::moves),
    exact("freed_queues", fates::freed_queues).on(2),
    exact("exits", fates::exits).on(2),
    exact("direct_dispatch", fates::direct_dispatch).on(2),
    exact("migrations", fates::migrations).on(2),
    exact("bystander", fates::bystander),
    exact("exhaustion", fates::exhaustion),
    exact("ptraced", traced::ptraced),
    exact("execs", traced::execs),
    exact("setxid", traced::setxid).on(2),
    exact("class_change", traced::class_change).on(2),
    exact("watchdog", parked::watchdog),
    exact("killed", parked::killed),
    exact("nothing_left", endings::nothing_left),
    exact("dumped", endings::dumped),
    slow(exact("crowd", parked::crowd)),
    exact("watchdog_passes", parked::watchdog_passes),
    ending_badly(exact("watchdog_barks", parked::watchdog_barks)),
    parallel("hotplug", 4, parked::hotplug),
    ending_badly(parallel("pinned", 4, parked::pinned)).alone(),
    ending_badly(parallel("pinned_readers", 4, parked::pinned_readers)).alone(),
    ending_badly(exact("starts_again", refused::starts_again).on(2)),
    slow(exact("shares", refused::shares)),
    slow(exact("no_room", refused::no_room)),
    exact("missing_function", refused::missing_function),
    exact("missing", refused::missing),
    exact("locked_down", refused::locked_down).alone(),
    exact("load_cost", refused::load_cost),
    ending_badly(exact("refusals", refused::refusals)),
    slow(exact("kernel_selftests", selftests::kernel_selftests).on(4)),
    exact("beside_model", beside_model::beside_model),
    exact("switch_costs", costs::switch_costs),
    slow(exact("hackbench_of_400", costs::hackbench_of_400)),
    slow(exact("forkers", forkers::forkers).on(2)),
    exact("release_costs", costs::release_costs),
    exact("release_costs_of_four", costs::release_costs_of_four).on(4),
    in_turns("release_of_many", 8, costs::release_of_many),
    exact("wakeups", costs::wakeups),
    exact("io_workers", uring::io_workers),
    exact("io_poller", uring::io_poller),
    exact("parked_moves", lives::parked_moves),
    exact("parked_forks", lives::parked_forks),
    exact("parked_exits", lives::parked_exits),
    exact("newcomer", turns::newcomer),
    exact("siblings", turns::siblings),
    exact("two_caches", turns::two_caches).on(4).with_sockets(2),
    parallel("storm", 4, storm::storm),
];
