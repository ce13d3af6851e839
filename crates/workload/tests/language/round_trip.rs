//! Printed workloads read back as equal ones: random ones, and the largest example.

use cpumax_workload::{Op, Span, Workload, parse, print, random, to_file};

fn round_trip(workload: &Workload) {
    let text = print(workload);
    let again = parse(&text, "printed.toml").unwrap_or_else(|error| panic!("{error}\n\n{text}"));
    assert_eq!(&again, workload, "{text}");
}

#[test]
fn everything_at_once() {
    round_trip(&super::accepts::everything());
}

/// `w{0..3}` stands for four names; recorded names may contain that text.
#[test]
fn names_that_look_like_ranges() {
    let names = ["w{0..3}", "{{1..2}", "{2..1}", "{0..1}{0..1}", "\"'\\", "\u{202e}a b", "[[x]]"];
    for name in names {
        let mut parts = random::workload(1).into_parts();
        name.clone_into(&mut parts.tasks[0].name);
        parts.groups.push(cpumax_workload::GroupSpec {
            path: format!("/{}", name.replace('/', "")),
            parent: Some(0),
            limit: cpumax_limit::Limit::UNLIMITED,
            weight: 100,
            v1: false,
        });
        parts.tasks[0].group = parts.groups.len() as u32 - 1;
        parts.expectations.clear();
        round_trip(&Workload::try_from(parts).unwrap());
    }
}

#[test]
fn as_json() {
    for seed in 0..200 {
        let workload = random::workload(seed);
        let json = serde_json::to_string(&workload).unwrap();
        assert_eq!(serde_json::from_str::<Workload>(&json).unwrap(), workload, "{json}");
    }
}

#[test]
fn what_is_deserialized_is_checked() {
    let workload = parse("[[task]]\nname = \"a\"\n", "a.toml").unwrap();
    let json = serde_json::to_string(&workload).unwrap();
    let refused = [
        (r#""group":0"#, r#""group":7"#, "group refers to number 7"),
        (r#""cpus":1"#, r#""cpus":0"#, "cpus is 0"),
        (r#""quota_ns":null"#, r#""quota_ns":1"#, "quota"),
        (r#""count":1"#, r#""count":1,"more":1"#, "unknown field `more`"),
    ];
    for (right, wrong, expected) in refused {
        assert!(json.contains(right), "{json}");
        let error = serde_json::from_str::<Workload>(&json.replacen(right, wrong, 1)).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// A workload that is too large to be read again is not written.
#[test]
fn a_file_is_no_larger_than_what_can_be_read() {
    let of = |ops: usize| {
        let mut parts = parse("[[task]]\nname = \"a\"\n", "a.toml").unwrap().into_parts();
        parts.tasks[0].program = vec![Op::User(Span::Fixed(1)); ops].into();
        Workload::try_from(parts).unwrap()
    };
    let text = to_file(&of(100_000), "a.toml").unwrap();
    assert_eq!(parse(&text, "a.toml").unwrap(), of(100_000));
    let error = to_file(&of(300_000), "a.toml").unwrap_err().to_string();
    assert!(error.starts_with("a.toml: the scenario has 6 MiB"), "{error}");
    assert!(parse(&print(&of(300_000)), "a.toml").is_err());
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
