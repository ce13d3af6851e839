//! Small machines, every order of events: two CPUs, a few groups and tasks, all combinations of
//! what tasks do, and all orders in which events that are due close together can overtake each
//! other.
//!
//! `CPUMAX_OVERTAKINGS=N` allows more overtakings in a run than a normal test run, and
//! `CPUMAX_KERNEL=NAME` tries one kernel only.

use cpumax_machine::interleave::{Bounds, explore};
use cpumax_machine::kernel::parse_kernels;
use cpumax_machine::{Options, run};
use cpumax_outcome::Outcome;
use cpumax_workload::Workload;
use std::fmt::Write as _;

/// Programs of tasks; each ends by itself.
const PROGRAMS: [&str; 4] = [
    // Uses up more than one period's quota.
    "{ user = \"3ms\" }",
    // Sleeps and wakes, often while throttled.
    "{ loop = 4, do = [{ user = \"400us\" }, { syscall = [{ kernel = \"50us\" }, \
     { sleep = \"700us\" }] }] }",
    // In the kernel across the end of the quota and of the period.
    "{ user = \"300us\" }, { syscall = [{ kernel = \"4ms\" }] }, { user = \"500us\" }",
    // Holds a lock in the kernel for which others wait.
    "{ loop = 3, do = [{ user = \"500us\" }, { syscall = [{ lock = \"l\" }, \
     { kernel = \"300us\" }, { unlock = \"l\" }] }] }",
];

/// Groups, and the groups of the three tasks.
const TREES: [(&str, [&str; 3]); 4] = [
    ("[[group]]\npath = \"/a\"\nmax = \"2000 4000\"\n", ["/a", "/a", "/a"]),
    (
        "[[group]]\npath = \"/a\"\nmax = \"2500 4000\"\n[[group]]\npath = \"/a/b\"\n\
         max = \"1000 4000\"\n",
        ["/a", "/a/b", "/a/b"],
    ),
    (
        "[[group]]\npath = \"/a\"\nmax = \"2000 5000\"\n[[group]]\npath = \"/a/b\"\n[[group]]\n\
         path = \"/a/c\"\nmax = \"1000 3000\"\n",
        ["/a/b", "/a/c", "/a/c"],
    ),
    (
        "[[group]]\npath = \"/a\"\nmax = \"1000 4000\"\n[[group]]\npath = \"/c\"\n",
        ["/a", "/a", "/c"],
    ),
];

/// Interventions from outside.
const INTERVENTIONS: [&str; 3] = [
    "",
    "[[at]]\ntime = \"5ms\"\ngroup = \"/a\"\nmax = \"1500 3000\"\n",
    "[[at]]\ntime = \"6ms\"\ntask = \"t1\"\nmove = \"/a\"\n",
];

fn workload(tree: usize, programs: [usize; 3], intervention: &str) -> Workload {
    let (groups, members) = TREES[tree];
    let mut text = format!(
        "name = \"small\"\nshows = \"-\"\nduration = \"60ms\"\n[machine]\ncpus = 2\nhz = 1000\n\
         timer_phase = \"0ms\"\n{groups}"
    );
    text += "[[lock]]\nname = \"l\"\nkind = \"mutex\"\n";
    for (task, (&program, group)) in programs.iter().zip(members).enumerate() {
        let program = PROGRAMS[program];
        let start_us = task * 40;
        let _ = write!(
            text,
            "[[task]]\nname = \"t{task}\"\ngroup = \"{group}\"\nstart = \"{start_us}us\"\n\
             program = [{program}]\n"
        );
    }
    text += intervention;
    cpumax_workload::parse(&text, "small").unwrap_or_else(|e| panic!("{text}\n{e}"))
}

fn all_done(outcome: &Outcome) -> Result<(), String> {
    let left = outcome.tasks.iter().find(|(_, task)| task.exited < task.count);
    left.map_or(Ok(()), |(name, _)| Err(format!("{name} never came to its end")))
}

fn number(name: &str, otherwise: u32) -> u32 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().expect("is a number"))
}

#[test]
fn no_order_of_events_breaks_the_pull_rules() {
    let name = std::env::var("CPUMAX_KERNEL").unwrap_or_else(|_| "pull".to_owned());
    let kernel = parse_kernels(&name).expect("is a kernel")[0];
    let options = Options { check: true, ..Options::new(kernel, 1) };
    let overtakings = number("CPUMAX_OVERTAKINGS", 1);
    let bounds = Bounds { window_ns: 200_000, overtakings, runs: u64::MAX };
    let (mut runs, mut events, mut workloads) = (0, 0, 0);
    for tree in 0..TREES.len() {
        for first in 0..PROGRAMS.len() {
            for second in 0..PROGRAMS.len() {
                for third in second..PROGRAMS.len() {
                    for intervention in INTERVENTIONS {
                        let programs = [first, second, third];
                        let workload = workload(tree, programs, intervention);
                        let explored = explore(&workload, &options, bounds, all_done)
                            .unwrap_or_else(|found| {
                                panic!(
                                    "tree {tree}, programs {programs:?}, {intervention}: {found}"
                                )
                            });
                        assert!(explored.complete);
                        runs += explored.runs;
                        events += explored.events;
                        workloads += 1;
                    }
                }
            }
        }
    }
    println!("{workloads} workloads, {runs} orders, {events} events");
    assert!(runs > 10 * workloads, "{runs} orders of {workloads} workloads are hardly any");
}

#[test]
fn without_overtaking_it_is_the_run_itself() {
    let workload = workload(1, [0, 1, 2], "");
    for kernel in parse_kernels("4.19,6.18,7.3,pull").expect("are kernels") {
        let options = Options { check: true, ..Options::new(kernel, 1) };
        let alone = run(&workload, &options, None, None).expect("runs");
        let bounds = Bounds { window_ns: 0, overtakings: 0, runs: u64::MAX };
        let explored = explore(&workload, &options, bounds, |outcome| {
            if *outcome == alone { Ok(()) } else { Err("it is another".to_owned()) }
        });
        assert_eq!(explored.map(|e| (e.runs, e.complete)), Ok((1, true)));
    }
}
