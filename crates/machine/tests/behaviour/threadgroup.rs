//! `cgroup_threadgroup_rwsem`, which forks and exits take for reading and moves for writing.

use super::support::outcome;

/// The tick at 4 ms finds the forker's quota exceeded while it holds the lock, at 3.995 to 4.030
/// ms; its debt is paid after 400 ms.
const STOPPED_INSIDE: &str = r#"
    duration = "1s"
    [machine]
    cpus = 2
    preempt = "full"
    timer_phase = "0ms"
    [[group]]
    path = "/tight"
    max = "1000 100000"
    [[group]]
    path = "/a"
    [[group]]
    path = "/b"
    [[task]]
    name = "forker"
    group = "/tight"
    cpus = "0"
    program = [{ user = "3995us" }, { fork = "child" }, { wait = "children" }]
    [[task]]
    name = "child"
    count = 0
    program = [{ user = "10us" }]
    [[task]]
    name = "moved"
    group = "/a"
    cpus = "1"
    program = [{ user = "700ms" }]
    [[task]]
    name = "bystander"
    cpus = "0"
    program = [{ sleep = "20ms" }, { fork = "child" }, { done = true }]
    [[task]]
    name = "ends"
    cpus = "0"
    program = [{ sleep = "30ms" }]
"#;
const MOVER: &str = r#"
    [[task]]
    name = "mover"
    cpus = "0"
    program = [{ sleep = "10ms" }, { move = "moved", to = "/b" }, { done = true }]
"#;
const FROM_OUTSIDE: &str = r#"
    [[at]]
    time = "10ms"
    task = "moved"
    move = "/b"
"#;

#[test]
fn a_writer_waits_for_a_reader_that_is_stopped_inside_and_all_others_for_the_writer() {
    for (version, stops) in [("5.4", true), ("6.12", true), ("6.18", false), ("7.3", false)] {
        for moves in [MOVER, FROM_OUTSIDE] {
            let outcome = outcome(&format!("{STOPPED_INSIDE}{moves}"), version);
            let waited = |ns: u64| if stops { ns > 250_000_000 } else { ns < 11_000_000 };
            let tasks = &outcome.tasks;
            if moves == MOVER {
                let ns = tasks["mover"].latency_ns.max;
                assert!(waited(ns), "{version}: a move takes {ns} ns");
            }
            let in_a_ns = outcome.groups["/a"].usage_usec * 1000;
            assert!(waited(in_a_ns), "{version}: moved after {in_a_ns} ns");
            let ns = tasks["bystander"].latency_ns.max;
            assert!(waited(ns), "{version}: a fork takes {ns} ns");
            let ended_ns = tasks["ends"].finished_ns;
            assert!(waited(ended_ns - 30_000_000), "{version}: ends at {ended_ns} ns");
            assert_eq!(tasks["child"].exited, 2, "{version}");
        }
    }
}

#[test]
fn where_nobody_moves_nobody_waits() {
    for version in ["5.4", "6.12"] {
        let tasks = outcome(STOPPED_INSIDE, version).tasks;
        assert_eq!(tasks["bystander"].latency_ns.max, 0, "{version}");
        // The task sleeps when it first runs, after the forker, which has its CPU for 4 ms.
        assert!(tasks["ends"].finished_ns < 36_000_000, "{version}");
    }
}
