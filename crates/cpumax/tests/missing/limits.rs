//! Recordings made under a limit.

use super::own::recording;
use super::smallest;
use super::traces::{IDLE, MS, Trace};
use cpumax_forecast::{Replay, Request, advise::Goal, replay::Run};
use cpumax_machine::kernel;
use cpumax_recording::Recording;
use cpumax_study::{Running, Try};
use serde_json::json;

/// A job of 30 ms every 200 ms under 20 ms in 100, which throttles it for the rest of a period.
fn stopped() -> Recording {
    let mut trace = Trace::perf(2);
    let job = "job/401";
    for at in 0..110 {
        let ns = at * 200 * MS;
        trace.wake(ns, 0, IDLE, job);
        for (from_ns, run_ns, state) in [(ns, 20 * MS, "R"), (ns + 100 * MS, 10 * MS, "S")] {
            let charge =
                format!("sched:sched_stat_runtime: comm=job pid=401 runtime={run_ns} [ns]");
            trace.switch(from_ns + 2_000, 0, IDLE, "R", job);
            trace.event(from_ns + 2_000 + run_ns, 0, job, &charge);
            trace.switch(from_ns + 2_000 + run_ns, 0, job, state, IDLE);
        }
    }
    let about = json!({
        "release": "6.18.1", "online": "0-1", "hz": 1000,
        "groups": [{ "path": "/web", "files": { "cpu.max": "20000 100000" } }],
    });
    recording(&trace, &about, &[("job", "/web")])
}

/// 4 of 20 ms in a group without a limit, below a group with 30 ms in 100.
fn limited_above() -> Recording {
    let mut trace = Trace::perf(2);
    for at in 0..110 {
        trace.burst(at * 20 * MS, 0, "job/401", 4 * MS);
    }
    trace.burst(2_201 * MS, 1, "side/402", MS);
    let about = json!({
        "release": "6.18.1", "online": "0-1", "hz": 250,
        "groups": [
            { "path": "/a/web", "files": { "cpu.max": "max 100000" } },
            { "path": "/a", "files": { "cpu.max": "30000 100000" } },
        ],
    });
    recording(&trace, &about, &[("job", "/a/web"), ("side", "/a/side")])
}

fn run(recording: &Recording, request: &Request) -> (Replay, Vec<Run>) {
    let replay = Replay::new("made.cpumax", recording, request).unwrap();
    let kernels = kernel::parse_kernels("6.18").unwrap();
    let runs = replay.runs(&kernels, 1, &Running::default(), &()).unwrap();
    (replay, runs)
}

#[test]
fn a_recording_under_a_limit_is_held_against_a_replay_under_it() {
    let recording = stopped();
    let limits = vec![Try::parse("20000 100000").unwrap()];
    let request = Request { limits, periods_ns: vec![100 * MS], ..Request::default() };
    let (replay, runs) = run(&recording, &request);
    assert_eq!(replay.own_limit().limit.quota_ns(), Some(20 * MS));
    let ms = |run: &Run| run.prediction.request_latency_ns.unwrap().p50.value as f64 / 1e6;
    let [none, limited] = &runs[..] else { panic!("{runs:?}") };
    assert!((29.0..=31.0).contains(&ms(none)), "without a limit p50 is {} ms", ms(none));
    assert!((105.0..=115.0).contains(&ms(limited)), "p50 was 110 ms and is {}", ms(limited));
    for run in &runs {
        assert_eq!(run.differs, Vec::<String>::new());
        assert!(run.prediction.predictable, "{:?}", run.prediction.why_not);
    }
    let cpus = smallest(&recording, &request, Goal::P99(100 * MS)).unwrap();
    assert!((0.28..=0.33).contains(&cpus), "300m keeps it, and {cpus} CPUs are named");
}

#[test]
fn a_limit_above_holds_threads_of_a_group_and_chosen_ones() {
    let recording = limited_above();
    for (group, path) in [(Vec::new(), "/a/web"), (vec!["comm:job"], "/a/limited")] {
        let request = Request {
            group: group.iter().map(|pattern| pattern.parse().unwrap()).collect(),
            limits: vec![Try::parse("500m").unwrap()],
            scale_load: Some(2.0),
            ..Request::default()
        };
        let (replay, runs) = run(&recording, &request);
        assert_eq!(replay.path(), path);
        let above: Vec<(&str, Option<u64>)> =
            replay.in_force().map(|(path, share)| (path, share.limit.quota_ns())).collect();
        assert_eq!(above, [("/a", Some(30 * MS))]);
        for run in &runs {
            let cpus = run.prediction.cpus.unwrap().value;
            assert!((0.28..=0.32).contains(&cpus), "{path} uses {cpus} of 0.3 CPUs");
        }
    }
}
