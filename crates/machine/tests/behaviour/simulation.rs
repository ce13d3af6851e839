//! A run that is stopped and inspected repeatedly gives the same outcome as one that is not.

use super::support::{outcome_of, plain, workload};
use cpumax_machine::kernel::parse_kernels;
use cpumax_machine::{Doing, Error, Options, Simulation};
use cpumax_workload::{Workload, random};
use std::ops::ControlFlow;

const KERNELS: &str = "4.14,4.18,5.14,6.1,6.12,6.18,7.2,7.3,pull";

/// Checks that all state can be read and is consistent.
fn look(workload: &Workload, simulation: &Simulation<'_>) {
    let mut running = 0;
    for cpu in 0..workload.machine.cpus {
        let state = simulation.cpu(cpu).expect("there is such a CPU");
        let Some(name) = state.running else { continue };
        running += 1;
        if let Some(task) = simulation.task(&name) {
            // Forked tasks share their names.
            let is_it = task.cpu == cpu && task.doing == Doing::Running;
            assert!(is_it || name.starts_with("child"), "{name} on CPU {cpu}: {task:?}");
        }
    }
    assert!(running <= usize::from(workload.machine.cpus));
    assert_eq!(simulation.cpu(workload.machine.cpus), None);
    for group in workload.groups.iter().skip(1) {
        let state = simulation.group(&group.path).expect("there is such a group");
        let most_ns = simulation.now() * u64::from(workload.machine.cpus);
        assert!(state.usage_ns <= most_ns, "{} used {} ns", group.path, state.usage_ns);
        assert!(state.nr_throttled <= state.nr_periods, "{state:?}");
    }
}

#[test]
fn inspection_changes_nothing() {
    let mut looked = 0;
    for seed in 0..12 {
        let workload = random::workload(seed);
        for kernel in parse_kernels(KERNELS).unwrap() {
            let options = Options::new(kernel, seed);
            let alone = outcome_of(&workload, &options);
            let mut simulation = Simulation::new(&workload, &options, None);
            let mut at_ns = 0;
            while simulation.step_until(at_ns).unwrap() {
                assert_eq!(simulation.now(), at_ns);
                look(&workload, &simulation);
                for _ in 0..3 {
                    assert!(simulation.step().unwrap() || simulation.now() > at_ns);
                    look(&workload, &simulation);
                }
                at_ns = simulation.now() + 1 + workload.duration_ns / 37;
                looked += 1;
            }
            assert_eq!(simulation.now(), workload.duration_ns);
            let usage_us = |path: &str| simulation.group(path).unwrap().usage_ns / 1000;
            for (path, group) in &alone.groups {
                assert_eq!(usage_us(path), group.usage_usec, "{path} of {seed} on {kernel:?}");
            }
            assert_eq!(simulation.outcome(), alone, "seed {seed} on {}", kernel.version);
        }
    }
    assert!(looked > 1000, "{looked} looks are too few to prove anything");
}

#[test]
fn tasks_tell_what_they_are_doing() {
    let text = r#"
        duration = "1s"
        [machine]
        cpus = 1
        [[group]]
        path = "/g"
        max = "2000 100000"
        [[lock]]
        name = "l"
        kind = "mutex"
        [[channel]]
        name = "c"
        capacity = 1
        [[task]]
        name = "holder"
        program = [{ lock = "l" }, { sleep = "500ms" }, { unlock = "l" }]
        [[task]]
        name = "waiter"
        start = "40ms"
        program = [{ lock = "l" }, { unlock = "l" }]
        [[task]]
        name = "sender"
        program = [{ send = "c" }, { send = "c" }]
        [[task]]
        name = "parent"
        program = [{ fork = "child" }, { wait = "children" }]
        [[task]]
        name = "child"
        count = 0
        program = [{ sleep = "2s" }]
        [[task]]
        name = "limited"
        group = "/g"
        count = 2
        program = [{ user = "1s" }]
        [[task]]
        name = "gone"
        start = "45ms"
        program = [{ user = "1us" }]
        [[task]]
        name = "late"
        start = "900ms"
        program = [{ recv = "c" }]
    "#;
    let workload = workload(text);
    for kernel in parse_kernels(KERNELS).unwrap() {
        let mut simulation = Simulation::new(&workload, &Options::new(kernel, 1), None);
        simulation.step_until(50_000_000).unwrap();
        let doing = |name: &str| simulation.task(name).map(|task| task.doing);
        assert_eq!(doing("holder"), Some(Doing::Sleeping));
        assert_eq!(doing("waiter"), Some(Doing::Locking("l".to_owned())));
        assert_eq!(doing("sender"), Some(Doing::Sending("c".to_owned())));
        assert_eq!(doing("parent"), Some(Doing::WaitingForChildren));
        assert_eq!(doing("child"), Some(Doing::Sleeping));
        assert_eq!(doing("gone"), Some(Doing::Exited));
        assert_eq!(doing("late"), None, "not yet");
        for name in ["limited/0", "limited/1"] {
            assert_eq!(doing(name), Some(Doing::Throttled), "{name} on {}", kernel.version);
        }
        assert_eq!(simulation.task("limited/1").unwrap().group, "/g");
        let group = simulation.group("/g").unwrap();
        assert_eq!((group.quota_ns, group.period_ns), (Some(2_000_000), 100_000_000));
        assert_eq!(group.weight, 100);
        assert_eq!(simulation.group("/h"), None);
    }
}

#[test]
fn an_interrupted_run_goes_on_and_a_failed_one_does_not() {
    let random = random::workload(3);
    let options = Options { seed: 3, ..plain("7.3") };
    let alone = outcome_of(&random, &options);
    let mut simulation = Simulation::new(&random, &options, None);
    let mut stop = |_| ControlFlow::Break(());
    assert!(matches!(simulation.run(Some(&mut stop)), Err(Error::Interrupted(_))));
    simulation.run(None).unwrap();
    assert_eq!(simulation.outcome(), alone);

    let text = r#"
        [[channel]]
        name = "c"
        [[job]]
        name = "j"
        program = [{ user = "1ms" }]
        [[task]]
        name = "t"
        program = [{ forever = [{ post = "j", to = "c", after = "500ms" }, { user = "1ns" }] }]
    "#;
    let workload = workload(text);
    let mut simulation = Simulation::new(&workload, &options, None);
    let error = simulation.run(None).unwrap_err();
    assert!(matches!(error, Error::TooManyDue { .. }), "{error}");
    let at_ns = simulation.now();
    assert_eq!(simulation.step(), Err(error));
    assert_eq!(simulation.now(), at_ns);
}
