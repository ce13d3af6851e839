//! A workload made in Rust equals that of a file, and is refused for the same reasons.

use cpumax_limit::Limit;
use cpumax_workload::build::{Act, Builder, Change, Cpus, Expect, Group, Machine, Source, Task};
use cpumax_workload::step::*;
use cpumax_workload::{
    Class, CpuSet, Distribution, Error, Expectation, LockKind, LockMode, MachineSpec, Preempt,
    Signal, Workload,
};
use std::time::Duration;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// The largest example of a file, made in Rust.
fn everything() -> Builder {
    let spec = MachineSpec {
        cpus: 16,
        llc_cpus: 8,
        hz: 1000,
        hrtick: Some(true),
        timer_phase_ns: Some(0),
        tick_skew: true,
        base_slice_ns: Some(3_000_000),
        cost_timing: true,
        ..MachineSpec::default()
    };
    let max = |text: &str| Limit::UNLIMITED.write_cpu_max(text).unwrap();
    let expectation = |kernels: &str, metric: &str, min: f64, max: f64, why: &str| Expectation {
        kernels: kernels.to_owned(),
        metric: metric.to_owned(),
        over: None,
        per: None,
        min: Some(min),
        max: Some(max),
        why: why.to_owned(),
    };
    Workload::builder("example")
        .shows("All there is.")
        .duration(Duration::from_secs(10))
        .machine(Machine::new(spec).preempt(Preempt::Rt).nohz_full(CpuSet(vec![1, 2, 3])).softirq(
            0,
            ms(10),
            "ep",
            LockMode::Write,
            us(5),
        ))
        .with_group(
            Group::new("/a/b")
                .limit(max("20000 100000").with_burst_ns(10_000_000).unwrap())
                .weight(200),
        )
        .group("/limited", max("max 50000"))
        .with_group(Group::new("/a").v1(true).weight(200))
        .lock("inode", LockKind::Rwsem)
        .lock("ep", LockKind::Rwlock)
        .lock("m", LockKind::Mutex)
        .bounded_channel("requests", 16)
        .channel("done")
        .task(
            Task::new("writer")
                .count(2)
                .group("/limited")
                .nice(-5)
                .cpus(Cpus::Set(CpuSet(vec![0, 1, 2, 3, 8])))
                .start(ms(1))
                .stagger(ms(2))
                .slice(ms(3))
                .program([forever(writer())]),
        )
        .task(Task::new("child").count(0).class(Class::Idle).cpus(Cpus::Each).program([
            user(Distribution::Uniform { low_ns: 1_000_000, high_ns: 2_000_000 }),
            exit(),
        ]))
        .source(
            Source::every("clients", "requests", Distribution::Exponential { mean_ns: 2_000_000 })
                .start(ms(1000))
                .count(1000),
        )
        .source(Source::at("listed", "done", [ms(1), ms(5)]))
        .change(Change::at(
            ms(3000),
            Act::LimitFiles {
                group: "/limited".to_owned(),
                max: None,
                burst: Some("5000".to_owned()),
            },
        ))
        .change(
            Change::at(ms(1000), Act::Limit("/limited".to_owned(), max("10000 50000")))
                .repeat(ms(1))
                .until(ms(2000)),
        )
        .change(Change::at(ms(4000), Act::Offline(1)))
        .change(Change::at(ms(5000), Act::Affinity("writer".to_owned(), CpuSet(vec![0, 1]))))
        .expect(Expect::new(Expectation {
            over: Some("4.19".to_owned()),
            per: Some("simulated_ns".to_owned()),
            ..expectation("6.18..7.1, G2a, 4.19", "groups./limited.usage_usec", 0.5, 2.0, "because")
        }))
        .expect(Expect::new(expectation("", "tasks.writer.latency_ns.p99", 7.0, 7.0, "")))
}

fn writer() -> Vec<Step> {
    vec![
        user(ms(1)),
        kernel(Distribution::Uniform { low_ns: 1_000_000, high_ns: 2_000_000 }),
        irqoff(us(100)),
        sleep(Distribution::Exponential { mean_ns: 5_000_000 }),
        every(ms(20)),
        syscall([
            write_lock("inode"),
            kernel(Distribution::LogNormal { median_ns: 1_000_000, sigma: 0.5 }),
            unlock("inode"),
        ]),
        lock("m"),
        user(Distribution::Empirical {
            values_ns: vec![1_000_000, 9_000_000],
            cumulative: vec![3, 4],
        }),
        unlock("m"),
        send("requests", 2),
        recv("done", 1),
        repeat(3, [fork("child")]),
        wait_children(),
        yield_now(),
        move_to("self", "/a/b"),
        nice("child", 5),
        affinity("self", CpuSet(vec![0, 1])),
        class("self", Class::Rt),
        begin(),
        done(),
    ]
}

#[test]
fn rust_and_file_say_the_same() {
    assert_eq!(everything().build().unwrap(), super::accepts::everything());
}

#[test]
fn rust_is_refused_with_the_part_at_fault() {
    let wrong = Workload::builder("wrong")
        .lock("inode", LockKind::Rwsem)
        .task(Task::new("a").program([user(ms(1)), read_lock("inod")]));
    let error = wrong.build().unwrap_err();
    assert!(matches!(error, Error::Name(_)));
    assert_eq!(
        error.to_string(),
        "task \"a\", instruction 2: there is no lock named \"inod\"; did you mean `inode`?"
    );
    assert!(error.finding().unwrap().location.is_none());

    let wrong = Workload::builder("wrong").duration(Duration::MAX).build().unwrap_err();
    assert_eq!(wrong.to_string(), "duration is 18446744073709551615ns; from 1ns to 86400s");

    let twice = |steps: Vec<Step>| {
        let task = Task::new("a").program(steps);
        Workload::builder("wrong").lock("m", LockKind::Mutex).task(task).build().unwrap_err()
    };
    assert!(matches!(twice(vec![lock("m"), lock("m")]), Error::Lock(_)));
    assert!(matches!(twice(vec![forever([yield_now()])]), Error::Program(_)));
}

/// Parts that have other forms in Rust than in a file.
#[test]
fn groups_and_interventions_by_the_builder() {
    let workload = Workload::builder("small")
        .cpus(2)
        .group("/x/y/z", Limit::UNLIMITED)
        .task(Task::new("t").group("/x/y"))
        .change(Change::at(ms(2), Act::Signal("t".to_owned(), Signal::Kill)))
        .change(Change::at(ms(1), Act::Online(1)))
        .build()
        .unwrap();
    let paths: Vec<&str> = workload.groups.iter().map(|group| &*group.path).collect();
    assert_eq!(paths, ["/", "/x", "/x/y", "/x/y/z"]);
    assert_eq!(workload.tasks[0].group, 2);
    let times: Vec<u64> = workload.interventions.iter().map(|i| i.at_ns).collect();
    assert_eq!(times, [1_000_000, 2_000_000], "in order of time");
}
