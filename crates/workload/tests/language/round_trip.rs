//! What is printed reads back as what it was, for random workloads and for the largest example.

use cpumax_workload::{Workload, parse, print, random};

fn round_trip(workload: &Workload) {
    let text = print(workload);
    let again = parse(&text, "printed.toml").unwrap_or_else(|error| panic!("{error}\n\n{text}"));
    assert_eq!(&again, workload, "{text}");
}

#[test]
fn everything_at_once() {
    round_trip(&super::accepts::everything());
}

#[test]
fn random_workloads() {
    for seed in 0..500 {
        round_trip(&random::workload(seed));
        round_trip(&random::with_jobs(seed));
    }
}

#[test]
fn random_workloads_are_reproducible_and_different() {
    assert_eq!(random::workload(7), random::workload(7));
    assert_ne!(random::workload(7), random::workload(8));
}

#[test]
fn random_workloads_use_the_whole_language() {
    let all: String = (0..500).map(|seed| print(&random::with_jobs(seed))).collect();
    let words = [
        "user =",
        "kernel =",
        "irqoff =",
        "sleep =",
        "every =",
        "syscall =",
        "forever =",
        "loop =",
        "lock =",
        "mode = \"read\"",
        "unlock =",
        "send =",
        "recv =",
        "serve =",
        "post =",
        "after =",
        "keep = true",
        "[[job]]",
        "jobs =",
        "lossy =",
        "fork =",
        "wait =",
        "exit =",
        "yield =",
        "move =",
        "affinity =",
        "nice =",
        "class =",
        "begin =",
        "done =",
        "signal =",
        "offline =",
        "online =",
        "repeat =",
        "until =",
        "burst =",
        "weight =",
        "hierarchy =",
        "shows =",
        "nohz_full =",
        "machine.softirq",
        "uniform =",
        "exponential =",
        "lognormal =",
        "empirical =",
        "\"spin\"",
        "\"percpu-rwsem\"",
        "\"rwlock\"",
        "\"kthread\"",
        "\"idle\"",
        "[[source]]",
        "at = [",
        "stagger =",
        "capacity =",
        "cpus = \"each\"",
        "timer_phase =",
        "tick_skew =",
        "costs =",
        "hrtick =",
        "base_slice =",
    ];
    for word in words {
        assert!(all.contains(word), "no random workload has `{word}`");
    }
}
