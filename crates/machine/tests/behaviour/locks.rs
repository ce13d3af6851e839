//! Where unthrottling takes time, a distribution that comes to a CPU whose run queues are locked
//! by another waits for it.

use super::support::{self, plain, recorded_of, workload};
use cpumax_outcome::Outcome;
use cpumax_outcome::trace::What;

/// CPUs that each timer unthrottles.
const CPUS: u64 = 32;
/// Groups below each limited one: they make unthrottling a CPU long.
const BELOW: u64 = 400;
/// Cost of sending to a CPU, and of visiting a group there, ns.
const REMOTE_NS: u64 = 3_600;
const VISIT_NS: u64 = 135;

fn outcome(limited: u32, costs: bool, version: &str) -> Outcome {
    outcome_with(limited, costs, version, "")
}

fn outcome_with(limited: u32, costs: bool, version: &str, more: &str) -> Outcome {
    let last = limited - 1;
    let text = format!(
        r#"
        duration = "290ms"
        [machine]
        cpus = {CPUS}
        costs = {costs}
        timer_phase = "0s"
        [[group]]
        path = "/limited{{0..{last}}}"
        max = "300000 100000"
        [[group]]
        path = "/limited{{0..{last}}}/empty{{1..{BELOW}}}"
        [[task]]
        name = "hog{{0..{last}}}"
        count = {CPUS}
        group = "/limited{{0..{last}}}"
        program = [{{ forever = [{{ user = "1s" }}] }}]
        {more}
        "#
    );
    support::outcome(&text, version)
}

#[test]
fn a_timer_waits_where_the_other_ones_release_has_locked_a_cpu() {
    for version in ["6.3", "6.18", "7.3"] {
        let alone = outcome(1, true, version).release.irqoff_ns.max;
        let both = outcome(2, true, version).release.irqoff_ns.max;
        let handler_ns = BELOW * VISIT_NS;
        assert!(alone >= (CPUS - 1) * REMOTE_NS, "{version}: {alone} ns");
        assert!(both >= alone + handler_ns / 2, "{version}: {both} ns, alone {alone} ns");
    }
}

#[test]
fn nobody_waits_where_time_does_not_pass() {
    for version in ["6.1", "6.18", "7.3"] {
        let alone = outcome(1, false, version).release.irqoff_ns.max;
        let both = outcome(2, false, version).release.irqoff_ns.max;
        assert!(both <= alone + alone / 10, "{version}: {both} ns, alone {alone} ns");
    }
}

#[test]
fn a_distribution_without_remote_locks_does_not_wait() {
    for limited in [1, 2] {
        let longest = outcome(limited, true, "pull").release.irqoff_ns.max;
        assert!(longest < 5 * REMOTE_NS, "{longest} ns");
    }
}

#[test]
fn a_limit_may_be_written_while_a_release_lasts() {
    for version in ["6.3", "6.12", "6.18", "7.0", "7.3"] {
        for after_us in [10, 50, 100] {
            let write = format!(
                "[[at]]\ntime = \"{}us\"\ngroup = \"/limited0\"\nmax = \"300000 100000\"\n",
                100_000 + after_us
            );
            let outcome = outcome_with(1, true, version, &write);
            let used_us = outcome.groups["/limited0"].usage_usec;
            assert!((900_000..1_300_000).contains(&used_us), "{version} {after_us}: {used_us}");
        }
    }
}

#[test]
fn nobody_is_switched_to_where_a_release_lasts() {
    let text = format!(
        r#"
        duration = "250ms"
        [machine]
        cpus = {CPUS}
        costs = true
        timer_phase = "0s"
        [[group]]
        path = "/limited"
        max = "200000 100000"
        [[task]]
        name = "hog"
        count = {CPUS}
        cpus = "each"
        group = "/limited"
        program = [{{ forever = [{{ user = "1s" }}] }}]
        [[task]]
        name = "waking"
        count = {CPUS}
        start = "1ms"
        program = [{{ forever = [{{ user = "20us" }}, {{ sleep = "20us" }}] }}]
        "#
    );
    for version in ["6.3", "6.18", "7.3"] {
        let (_, trace) = recorded_of(&workload(&text), &plain(version));
        let mut releases = 0;
        for edge in &trace.events {
            if !matches!(edge.what, What::Period { .. }) {
                continue;
            }
            // The last CPU is told then.
            let lasts_ns = (CPUS - 2) * REMOTE_NS;
            let meanwhile = edge.time_ns + 1..edge.time_ns + lasts_ns;
            let switched = trace.events.iter().filter(|event| {
                event.cpu == edge.cpu
                    && meanwhile.contains(&event.time_ns)
                    && matches!(event.what, What::Switch { .. })
            });
            assert_eq!(switched.count(), 0, "{version} at {} ns", edge.time_ns);
            releases += 1;
        }
        assert_eq!(releases, 2, "{version}");
    }
}
