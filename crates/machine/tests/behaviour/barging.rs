//! A released kernel mutex or rwsem is free: the waiter that is woken to take it may come too
//! late.

use super::support::{self, under_noise};
use cpumax_outcome::Outcome;

/// A group without quota in which `waiter` waits, a holder outside, and `other` that takes the
/// lock in between.
fn outcome(lock: &str, in_call: bool, version: &str, limit: &str) -> Outcome {
    let mode = if lock == "mutex" { "" } else { ", mode = \"write\"" };
    let [open, close] = if in_call { ["{ syscall = [", "] },"] } else { ["", ","] };
    let held = |work: &str| {
        let work =
            if in_call { format!("kernel = \"{work}\"") } else { format!("user = \"{work}\"") };
        format!("{open} {{ lock = \"l\"{mode} }}, {{ {work} }}, {{ unlock = \"l\" }} {close}")
    };
    let text = format!(
        r#"
        duration = "1s"
        [machine]
        cpus = 2
        timer_phase = "1.5ms"
        [[group]]
        path = "/limited"
        {limit}
        [[lock]]
        name = "l"
        kind = "{lock}"
        [[task]]
        name = "hog"
        group = "/limited"
        cpus = "0"
        program = [{{ forever = [{{ user = "10s" }}] }}]
        [[task]]
        name = "waiter"
        group = "/limited"
        cpus = "0"
        program = [{{ forever = [{{ begin = true }}, {} {{ done = true }}, {{ user = "700us" }}] }}]
        [[task]]
        name = "holder"
        cpus = "1"
        program = [{{ forever = [{} {{ sleep = "2200us" }}] }}]
        [[task]]
        name = "other"
        cpus = "1"
        program = [{{ forever = [{{ sleep = "4300us" }}, {{ begin = true }},
          {} {{ done = true }}] }}]
        "#,
        held("30us"),
        held("2300us"),
        held("230us"),
    );
    support::outcome(&text, version)
}

const QUOTA: &str = "max = \"10000 100000\"";

#[test]
fn a_frozen_waiter_keeps_nobody_from_a_lock_of_the_kernel() {
    for lock in ["mutex", "rwsem"] {
        let outcome = outcome(lock, true, "6.12", QUOTA);
        let (other, waiter) = (&outcome.tasks["other"], &outcome.tasks["waiter"]);
        assert!(waiter.latency_ns.max > 60_000_000, "{lock}: {waiter:?}");
        assert!(other.latency_ns.max < 20_000_000, "{lock}: {other:?}");
        assert!(other.completions > 80, "{lock}: {other:?}");
    }
}

#[test]
fn a_frozen_waiter_is_handed_what_is_handed_over_in_order() {
    for (lock, in_call) in [("mutex", false), ("percpu-rwsem", true)] {
        let outcome = outcome(lock, in_call, "6.12", QUOTA);
        let other = &outcome.tasks["other"];
        assert!(other.latency_ns.max > 60_000_000, "{lock}: {other:?}");
    }
}

#[test]
fn a_waiter_that_came_too_late_is_not_starved() {
    // Without a limit the waiter competes with two tasks that release and take the lock again
    // while it wakes up.
    for (lock, longest_ns) in [("mutex", 20_000_000), ("rwsem", 30_000_000)] {
        for version in ["6.12", "6.18", "7.3"] {
            let outcome = outcome(lock, true, version, "");
            let waiter = &outcome.tasks["waiter"];
            assert!(waiter.latency_ns.max < longest_ns, "{lock} on {version}: {waiter:?}");
            assert!(waiter.completions > 20, "{lock} on {version}: {waiter:?}");
        }
    }
}

#[test]
fn a_move_under_noise_may_be_killed_stopped_and_throttled() {
    let text = r#"
        duration = "900ms"
        [machine]
        cpus = 1
        timer_phase = "1.5ms"
        [[group]]
        path = "/a"
        max = "10000 100000"
        [[group]]
        path = "/b"
        max = "20000 100000"
        [[task]]
        name = "mover{0..4}"
        count = 2
        group = "/a"
        program = [{ forever = [
          { move = "self", to = "/b" }, { user = "230us" }, { move = "self", to = "/a" },
            { user = "110us" }, { done = true },
        ] }]
        [[task]]
        name = "sleeper"
        count = 3
        program = [{ forever = [{ sleep = "310us" }, { user = "40us" }] }]
        [[at]]
        time = "201330us"
        task = "mover0"
        signal = "kill"
        [[at]]
        time = "304110us"
        task = "mover1"
        signal = "stop"
        [[at]]
        time = "505170us"
        task = "mover1"
        signal = "cont"
    "#;
    for version in ["6.1", "6.12", "6.18", "7.3", "pull"] {
        for noise in 0..20 {
            let (outcome, _) = under_noise(text, version, noise);
            assert_eq!(outcome.tasks["mover0"].exited, 2, "{version}, noise {noise}");
            let done = outcome.tasks["mover2"].completions;
            assert!(done > 5, "{version}, noise {noise}: {done}");
        }
    }
}

#[test]
fn readers_are_let_in_together_where_they_wait() {
    let text = r#"
        duration = "400ms"
        [machine]
        cpus = 4
        [[lock]]
        name = "l"
        kind = "rwsem"
        [[task]]
        name = "writer"
        cpus = "0"
        program = [{ forever = [
          { syscall = [{ lock = "l", mode = "write" }, { kernel = "5ms" }, { unlock = "l" }] },
            { sleep = "7300us" },
        ] }]
        [[task]]
        name = "second"
        cpus = "0"
        start = "1500us"
        program = [{ forever = [
          { syscall = [{ lock = "l", mode = "write" }, { kernel = "100us" }, { unlock = "l" }] },
            { sleep = "11900us" },
        ] }]
        [[task]]
        name = "reader"
        count = 3
        cpus = "1-3"
        stagger = "600us"
        start = "1ms"
        program = [{ forever = [
          { begin = true }, { syscall = [{ lock = "l", mode = "read" }, { kernel = "1ms" },
            { unlock = "l" }] },
          { done = true }, { sleep = "11300us" },
        ] }]
    "#;
    let outcome = support::outcome(text, "6.18");
    let readers = &outcome.tasks["reader"];
    // The writer's 5 ms and its own: no reader waits for another.
    assert!(readers.latency_ns.max <= 6_100_000, "{readers:?}");
    assert!(readers.latency_ns.max > 4_000_000, "{readers:?}");
}
