//! Verification finds each fault that is injected into the pull rules: by invariants, by the
//! outcomes of small workloads, and by a search through orders of events.

use crate::faults::Fault;
use crate::interleave::{Bounds, explore};
use crate::{Options, kernel};
use cpumax_outcome::Outcome;
use cpumax_workload::{Workload, random};
use std::fmt::Write as _;

/// Random workloads tried besides.
const RANDOM: u64 = 400;

/// A machine, its limited groups, and the longest that a task may wait.
struct Case {
    cpus: u32,
    groups: &'static str,
    tasks: &'static [(u32, &'static str, &'static str)],
    wait_ns: u64,
}

const CASES: [Case; 8] = [
    // More tasks than a share feeds: they take turns.
    Case {
        cpus: 1,
        groups: "/a 1000 4000",
        tasks: &[(6, "/a", "{ user = \"3ms\" }")],
        wait_ns: 30_000_000,
    },
    // One CPU with its fair share of a quota for three.
    Case {
        cpus: 1,
        groups: "/a 2000 4000",
        tasks: &[(3, "/a", "{ user = \"12ms\" }")],
        wait_ns: 20_000_000,
    },
    // Two groups side by side: some tasks come back and find the runtime gone when they are
    // switched to.
    Case {
        cpus: 1,
        groups: "/a 7500 15000,/b 7500 15000",
        tasks: &[(3, "/a", "{ user = \"4ms\" }"), (3, "/b", "{ user = \"4ms\" }")],
        wait_ns: 6_000_000,
    },
    // Two levels, both limited.
    Case {
        cpus: 2,
        groups: "/a 2500 4000,/a/b 1000 4000",
        tasks: &[(1, "/a", "{ user = \"3ms\" }"), (2, "/a/b", "{ user = \"3ms\" }")],
        wait_ns: 20_000_000,
    },
    // The outer limit is the tighter one.
    Case {
        cpus: 2,
        groups: "/a 1000 4000,/a/b 3000 4000",
        tasks: &[(2, "/a/b", "{ user = \"4ms\" }")],
        wait_ns: 20_000_000,
    },
    // A system call across the end of the quota; a task that sleeps gives runtime back.
    Case {
        cpus: 2,
        groups: "/a 3000 8000",
        tasks: &[
            (
                1,
                "/a",
                "{ user = \"300us\" }, { syscall = [{ kernel = \"4ms\" }] }, \
                 { user = \"500us\" }",
            ),
            (1, "/a", "{ loop = 4, do = [{ user = \"200us\" }, { sleep = \"2ms\" }] }"),
            (1, "/a", "{ user = \"3ms\" }"),
        ],
        wait_ns: 20_000_000,
    },
    // Sleeps without runtime, and wakes after the refill without waiting.
    Case {
        cpus: 1,
        groups: "/a 2000 8000",
        tasks: &[(
            1,
            "/a",
            "{ loop = 3, do = [{ user = \"1500us\" }, { syscall = [{ kernel = \"700us\" }, \
             { sleep = \"10ms\" }] }] }",
        )],
        wait_ns: 1_000_000,
    },
    // More CPUs than one handler tells.
    Case {
        cpus: 7,
        groups: "/a 2000 4000",
        tasks: &[(7, "/a", "{ user = \"3ms\" }")],
        wait_ns: 20_000_000,
    },
];

/// The workload of a small case.
fn workload(case: &Case) -> Workload {
    let mut text = format!(
        "name = \"small\"\nshows = \"-\"\nduration = \"150ms\"\n[machine]\nhz = 1000\n\
         timer_phase = \"0ms\"\ncpus = {}\n",
        case.cpus
    );
    for group in case.groups.split(',') {
        let (path, max) = group.split_once(' ').unwrap();
        let _ = write!(text, "[[group]]\npath = \"{path}\"\nmax = \"{max}\"\n");
    }
    for (at, (count, group, program)) in case.tasks.iter().enumerate() {
        let _ = write!(
            text,
            "[[task]]\nname = \"t{at}\"\ncount = {count}\ngroup = \"{group}\"\n\
             program = [{program}]\n"
        );
    }
    cpumax_workload::parse(&text, "small").unwrap_or_else(|e| panic!("{text}\n{e}"))
}

/// Checks an outcome: all tasks done, no long wait, and no use beyond the quota by more than a
/// slice per CPU and work in the kernel.
///
/// # Errors
/// The violated condition.
fn verify(case: &Case, workload: &Workload, outcome: &Outcome) -> Result<(), String> {
    for (name, task) in &outcome.tasks {
        if task.exited < task.count {
            return Err(format!("{name} never came to its end"));
        }
        if task.longest_stall_ns > case.wait_ns {
            return Err(format!("a {name} waits for {} ns", task.longest_stall_ns));
        }
    }
    let slice_usec = workload.machine.bandwidth_slice_ns / 1000;
    for spec in &workload.groups {
        let Some(quota_ns) = spec.limit.quota_ns() else { continue };
        let most = quota_ns / 1000 + slice_usec * u64::from(workload.machine.cpus) + 4_000;
        let used = outcome.groups[&spec.path].max_period_usage_usec;
        if used > most {
            return Err(format!("{} uses {used} of {most} us", spec.path));
        }
    }
    Ok(())
}

/// Message of the check that finds a fault planted into the pull rules, in small cases or random
/// workloads; `None` if none does.
fn found(fault: Option<Fault>) -> Option<String> {
    let kernel = kernel::parse_kernels("pull").unwrap()[0];
    let kernel = fault.map_or(kernel, |fault| kernel.with_fault(fault));
    let options = Options { check: true, ..Options::new(kernel, 1) };
    let bounds = Bounds { window_ns: 200_000, overtakings: 1, runs: 30 };
    let in_cases = CASES.iter().find_map(|case| {
        let workload = workload(case);
        let verify = |outcome: &Outcome| verify(case, &workload, outcome);
        explore(&workload, &options, bounds, verify).err().map(|e| e.to_string())
    });
    // For faults that need more to come together.
    let in_random = || {
        (0..RANDOM).find_map(|seed| {
            let workload = random::workload(seed);
            let mut run = crate::Simulation::new(&workload, &options, None);
            run.run(None).err().map(|e| format!("random workload {seed}: {e}"))
        })
    };
    in_cases.or_else(in_random)
}

#[test]
fn every_fault_is_found() {
    assert_eq!(found(None), None);
    let unnoticed: Vec<Fault> = (Fault::ALL.iter().copied())
        .filter(|&fault| fault.is_of_pull())
        .filter(|&fault| {
            let found = found(Some(fault));
            println!("{fault:?}: {found:?}");
            found.is_none()
        })
        .collect();
    assert_eq!(unnoticed, []);
}
