//! Faults to put into the pull rules on purpose, to see that what verifies them notices: the
//! invariants, the outcomes of small workloads, and the search through all orders of events.
//! Elsewhere than in tests no machine has one, and asking costs nothing.

use crate::machine::Machine;

/// A rule left out or turned round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A refill does not raise the epoch: who was turned down does not ask again.
    RefillUnseen,
    /// What is given back does not raise it.
    GiveBackUnseen,
    /// The task parked last comes back first.
    LastParkedFirst,
    /// What parks joins the end, also if it came back and has not run.
    TurnLost,
    /// A share leaves the pool and is not mailed.
    ShareLost,
    /// Mail is written and no interrupt sent.
    MailNotSent,
    /// The first that are told do not tell others.
    NobodyTellsOn,
    /// A silo that is turned down does not join those that wait.
    WaiterForgotten,
    /// What ran without runtime is nobody's debt.
    DebtForgiven,
    /// What runs out of runtime runs on.
    RunsOn,
    /// Only the level of the task itself is asked.
    AncestorsNotAsked,
    /// Parked tasks that may come back do not make their CPU choose again.
    CpuNotAsked,
    /// What parks is not hung into the tree.
    NotHung,
    /// A group weighs on a CPU what is queued there, not what is parked.
    ParkedWeightless,
}

impl Machine<'_> {
    #[cfg(test)]
    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "tests ask the machine")]
    #[inline]
    pub(crate) fn has(&self, _: Fault) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::Fault;
    use crate::interleave::{Bounds, explore_with};
    use crate::{Options, kernel};
    use cpumax_outcome::Outcome;
    use cpumax_workload::{Workload, random};
    use std::fmt::Write as _;

    /// Random workloads that are tried besides.
    const RANDOM: u64 = 400;

    const FAULTS: [Fault; 14] = [
        Fault::RefillUnseen,
        Fault::GiveBackUnseen,
        Fault::LastParkedFirst,
        Fault::TurnLost,
        Fault::ShareLost,
        Fault::MailNotSent,
        Fault::NobodyTellsOn,
        Fault::WaiterForgotten,
        Fault::DebtForgiven,
        Fault::RunsOn,
        Fault::AncestorsNotAsked,
        Fault::CpuNotAsked,
        Fault::NotHung,
        Fault::ParkedWeightless,
    ];

    /// A machine, its limited groups, and the longest that a task may wait.
    struct Case {
        cpus: u32,
        groups: &'static str,
        tasks: &'static [(u32, &'static str, &'static str)],
        wait_ns: u64,
    }

    const CASES: [Case; 8] = [
        // More of them than a share feeds: they take turns.
        Case {
            cpus: 1,
            groups: "/a 1000 4000",
            tasks: &[(6, "/a", "{ user = \"3ms\" }")],
            wait_ns: 30_000_000,
        },
        // One CPU and its fair share of a quota for three.
        Case {
            cpus: 1,
            groups: "/a 2000 4000",
            tasks: &[(3, "/a", "{ user = \"12ms\" }")],
            wait_ns: 20_000_000,
        },
        // Two groups side by side: some come back and find the runtime gone when it is their turn
        // to run.
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
        // In the kernel across the end of the quota; one that goes to sleep gives back.
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
        // Goes to sleep without runtime, wakes up after the refill: and has not to wait.
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

    /// What a run of these must show: all done, nobody passed over, nothing beyond a slice for each
    /// CPU and what ran in the kernel.
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

    /// Who notices, if anybody does.
    fn found(fault: Option<Fault>) -> Option<String> {
        let kernel = kernel::parse_kernels("pull").unwrap()[0];
        let options = Options { check: true, ..Options::new(kernel, 1) };
        let bounds = Bounds { window_ns: 200_000, overtakings: 1, runs: 30 };
        let in_cases = CASES.iter().find_map(|case| {
            let workload = workload(case);
            let prepare = |machine: &mut crate::machine::Machine<'_>| machine.fault = fault;
            let verify = |outcome: &Outcome| verify(case, &workload, outcome);
            explore_with(&workload, &options, bounds, prepare, verify).err().map(|e| e.to_string())
        });
        // What needs more to come together than the cases have.
        let in_random = || {
            (0..RANDOM).find_map(|seed| {
                let workload = random::workload(seed);
                let mut run = crate::Simulation::new(&workload, &options, None);
                run.machine.fault = fault;
                run.run(None).err().map(|e| format!("random workload {seed}: {e}"))
            })
        };
        in_cases.or_else(in_random)
    }

    #[test]
    fn every_fault_is_found() {
        assert_eq!(found(None), None);
        let unnoticed: Vec<Fault> = FAULTS
            .into_iter()
            .filter(|&fault| {
                let found = found(Some(fault));
                println!("{fault:?}: {found:?}");
                found.is_none()
            })
            .collect();
        assert_eq!(unnoticed, []);
    }
}
