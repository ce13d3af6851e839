//! Services that may not use all CPUs.

use super::traces::{IDLE, MS, Trace};
use cpumax_forecast::{Replay, Request};
use cpumax_machine::kernel;
use cpumax_recording::Recording;
use cpumax_study::{Running, Try};

fn request() -> Request {
    Request {
        group: vec!["comm:*o*".parse().unwrap()],
        limits: vec![Try::parse("400m").unwrap()],
        ..Request::default()
    }
}

/// Two threads that work for 12 ms of each 40, one after the other on the first of four CPUs.
fn one_after_the_other() -> Trace {
    let mut trace = Trace::perf(4);
    for cpu in 1..4 {
        trace.stay(u64::from(cpu) * MS, cpu, &format!("kick{cpu}/{}", 500 + cpu), 20_000);
    }
    for at in 0..60 {
        let ns = 10 * MS + at * 40 * MS;
        trace.wake(ns, 0, IDLE, "one/401");
        trace.wake(ns + 1_000, 0, IDLE, "two/402");
        trace.switch(ns + 2_000, 0, IDLE, "R", "one/401");
        trace.switch(ns + 12 * MS, 0, "one/401", "S", "two/402");
        trace.switch(ns + 24 * MS, 0, "two/402", "S", IDLE);
    }
    trace
}

/// p99 of bursts without a limit, ms, and the threads that are bound to CPUs.
fn replayed(recording: &Recording, request: &Request) -> (f64, Option<(usize, String)>) {
    let replay = Replay::new("made up", recording, request).unwrap();
    let kernels = kernel::parse_kernels("6.8").unwrap();
    let runs = replay.runs(&kernels, 1, &Running::default(), &()).unwrap();
    let kept = replay.kept().map(|kept| (kept.threads, kept.cpus));
    let p99 = runs[0].prediction.request_latency_ns.unwrap().p99.value;
    (p99 as f64 / 1e6, kept)
}

#[test]
fn threads_that_wait_beside_idle_cpus_are_kept_to_theirs() {
    let recording = one_after_the_other().read();
    let (p99, kept) = replayed(&recording, &request());
    assert!((21.0..27.0).contains(&p99), "24 ms were recorded, {p99} replayed");
    assert_eq!(kept, Some((2, "0".to_owned())));
}

#[test]
fn another_machine_is_asked_for() {
    let recording = one_after_the_other().read();
    let free = Request { pin: Some("0-3".parse().unwrap()), ..request() };
    let (p99, kept) = replayed(&recording, &free);
    assert!((10.0..15.0).contains(&p99), "side by side: {p99}");
    assert_eq!(kept, None);
    let one = Request { cpus: Some(1), hz: Some(1000), ..request() };
    let replay = Replay::new("made up", &recording, &one).unwrap();
    let machine = &replay.as_scenario(None).unwrap().machine;
    assert_eq!((machine.cpus, machine.hz), (1, 1000));
}
