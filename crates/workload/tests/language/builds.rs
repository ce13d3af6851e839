//! A workload made in Rust equals that of a file, and is refused for the same reasons.

use cpumax_workload::build::{Builder, Table, table};
use cpumax_workload::{
    Class, CpuSet, Distribution, Error, LockKind, LockMode, Preempt, Signal, Workload,
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
    let softirq = table("every", ms(10)).with("hold", us(5)).with("lock", "ep");
    let machine = table("cpus", 16)
        .with("llc", 8)
        .with("hz", 1000)
        .with("hrtick", true)
        .with("timer_phase", ms(0))
        .with("tick_skew", true)
        .with("base_slice", ms(3))
        .with("costs", true)
        .with("preempt", Preempt::Rt)
        .with("nohz_full", CpuSet(vec![1, 2, 3]))
        .with("softirq", [softirq.with("mode", LockMode::Write)]);
    let group = |path: &str, max: &str| table("path", path).with("max", max);
    let lock = |name: &str, kind: LockKind| table("name", name).with("kind", kind);
    let writer = table("name", "writer")
        .with("count", 2)
        .with("group", "/limited")
        .with("nice", -5)
        .with("cpus", CpuSet(vec![0, 1, 2, 3, 8]))
        .with("start", ms(1))
        .with("stagger", ms(2))
        .with("slice", ms(3))
        .with("program", [table("forever", writer())]);
    let uniform = Distribution::Uniform { low_ns: 1_000_000, high_ns: 2_000_000 };
    let child = table("name", "child")
        .with("count", 0)
        .with("class", Class::Idle)
        .with("cpus", "each")
        .with("program", [table("user", uniform), table("exit", true)]);
    let clients = table("name", "clients")
        .with("channel", "requests")
        .with("every", Distribution::Exponential { mean_ns: 2_000_000 })
        .with("start", ms(1000))
        .with("count", 1000);
    let listed = table("name", "listed").with("channel", "done").with("at", [ms(1), ms(5)]);
    let limited =
        |time, key, value: &str| table("time", ms(time)).with("group", "/limited").with(key, value);
    let affinity = table("time", ms(5000)).with("task", "writer");
    let usage = table("metric", "groups./limited.usage_usec")
        .with("on", "6.18..7.1, G2a, 4.19")
        .with("over", "4.19")
        .with("per", "simulated_ns")
        .with("min", 0.5)
        .with("max", 2.0)
        .with("why", "because");
    Workload::builder("example")
        .with("shows", "All there is.")
        .with("duration", Duration::from_secs(10))
        .with("machine", machine)
        .part("group", group("/a/b", "20000 100000").with("burst", 10_000).with("weight", 200))
        .part("group", group("/limited", "max 50000"))
        .part("group", table("path", "/a").with("hierarchy", "v1").with("weight", 200))
        .part("lock", lock("inode", LockKind::Rwsem))
        .part("lock", lock("ep", LockKind::Rwlock))
        .part("lock", lock("m", LockKind::Mutex))
        .part("channel", table("name", "requests").with("capacity", 16))
        .part("channel", table("name", "done"))
        .part("task", writer)
        .part("task", child)
        .part("source", clients)
        .part("source", listed)
        .part("at", limited(3000, "burst", "5000"))
        .part(
            "at",
            limited(1000, "max", "10000 50000").with("repeat", ms(1)).with("until", ms(2000)),
        )
        .part("at", table("time", ms(4000)).with("offline", 1))
        .part("at", affinity.with("affinity", CpuSet(vec![0, 1])))
        .part("expect", usage)
        .part("expect", table("metric", "tasks.writer.latency_ns.p99").with("is", 7.0))
}

fn writer() -> Vec<Table> {
    let lognormal = Distribution::LogNormal { median_ns: 1_000_000, sigma: 0.5 };
    let counted =
        Distribution::Empirical { values_ns: vec![1_000_000, 9_000_000], cumulative: vec![3, 4] };
    let under_lock = [
        table("lock", "inode").with("mode", LockMode::Write),
        table("kernel", lognormal),
        table("unlock", "inode"),
    ];
    vec![
        table("user", ms(1)),
        table("kernel", Distribution::Uniform { low_ns: 1_000_000, high_ns: 2_000_000 }),
        table("irqoff", us(100)),
        table("sleep", Distribution::Exponential { mean_ns: 5_000_000 }),
        table("every", ms(20)),
        table("syscall", under_lock),
        table("lock", "m"),
        table("user", counted),
        table("unlock", "m"),
        table("send", "requests").with("n", 2),
        table("recv", "done"),
        table("loop", 3).with("do", [table("fork", "child")]),
        table("wait", "children"),
        table("yield", true),
        table("move", "self").with("to", "/a/b"),
        table("nice", 5).with("of", "child"),
        table("affinity", CpuSet(vec![0, 1])),
        table("class", Class::Rt),
        table("begin", true),
        table("done", true),
    ]
}

#[test]
fn rust_and_file_say_the_same() {
    assert_eq!(everything().build().unwrap(), super::accepts::everything());
}

#[test]
fn rust_is_refused_with_the_part_at_fault() {
    let program = [table("user", ms(1)), table("lock", "inod").with("mode", LockMode::Read)];
    let wrong = Workload::builder("wrong")
        .part("lock", table("name", "inode").with("kind", LockKind::Rwsem))
        .part("task", table("name", "a").with("program", program));
    let error = wrong.build().unwrap_err();
    assert!(matches!(error, Error::Name(_)));
    assert_eq!(
        error.to_string(),
        "task \"a\", instruction 2: there is no lock named \"inod\"; did you mean `inode`?"
    );
    assert!(error.finding().unwrap().location.is_none());

    let wrong = Workload::builder("wrong").with("duration", Duration::MAX).build().unwrap_err();
    assert_eq!(wrong.to_string(), "duration is 18446744073709551615ns; from 1ns to 86400s");

    let refused = |steps: Vec<Table>| {
        Workload::builder("wrong")
            .part("lock", table("name", "m").with("kind", "mutex"))
            .part("task", table("name", "a").with("program", steps))
            .build()
            .unwrap_err()
    };
    let twice = vec![table("lock", "m"), table("lock", "m")];
    assert!(matches!(refused(twice), Error::Lock(_)));
    let endless = vec![table("forever", [table("yield", true)])];
    assert!(matches!(refused(endless), Error::Program(_)));
    let misspelt = Workload::builder("wrong").part("task", table("nam", "a")).build().unwrap_err();
    assert_eq!(misspelt.to_string(), "[[task]] has no field \"nam\"; did you mean `name`?");
}

/// Parts that have other forms in Rust than in a file.
#[test]
fn groups_and_interventions_by_the_builder() {
    let workload = Workload::builder("small")
        .with("machine", table("cpus", 2))
        .part("group", table("path", "/x/y/z"))
        .part("task", table("name", "t").with("group", "/x/y"))
        .part("at", table("time", ms(2)).with("task", "t").with("signal", Signal::Kill))
        .part("at", table("time", ms(1)).with("online", 1))
        .build()
        .unwrap();
    let paths: Vec<&str> = workload.groups.iter().map(|group| &*group.path).collect();
    assert_eq!(paths, ["/", "/x", "/x/y", "/x/y/z"]);
    assert_eq!(workload.tasks[0].group, 2);
    let times: Vec<u64> = workload.interventions.iter().map(|i| i.at_ns).collect();
    assert_eq!(times, [1_000_000, 2_000_000], "in order of time");
}
