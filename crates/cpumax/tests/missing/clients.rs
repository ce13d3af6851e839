//! Recordings that do not show how clients send requests.

use super::traces::{IDLE, MS, Trace};
use super::{question, smallest};
use cpumax_forecast::advise::{Case, Goal, advise};
use cpumax_forecast::recorded::Inspected;
use cpumax_forecast::{Replay, Request};
use cpumax_machine::kernel;
use cpumax_recording::{Clients, GapKind, Options, Recording};
use cpumax_report::{Page, recording_text};
use cpumax_study::{Ranged, Running, Try};

fn request(limit: &str) -> Request {
    Request {
        group: vec!["comm:srv*".parse().unwrap()],
        limits: vec![Try::parse(limit).unwrap()],
        periods_ns: vec![100 * MS],
        ..Request::default()
    }
}

/// Whether results are marked predictable without a limit and under this one, and the doubts.
fn relied_on(recording: &Recording, limit: &str) -> (Vec<bool>, String) {
    let replay = Replay::new("made up", recording, &request(limit)).unwrap();
    let kernels = kernel::parse_kernels("6.18").unwrap();
    let runs = replay.runs(&kernels, 1, &Running::default(), &()).unwrap();
    let why_not = runs.iter().filter_map(|run| run.prediction.why_not.clone());
    let why_not: Vec<String> = why_not.collect();
    (runs.iter().map(|run| run.prediction.predictable).collect(), why_not.join("\n"))
}

/// Four threads that each work 4 ms for a client on another machine, which pauses for 10 ms.
fn elsewhere() -> Trace {
    let mut trace = Trace::perf(4);
    for at in 0..200 {
        for cpu in 0..4 {
            let (ns, thread) =
                ((at * 14 + u64::from(cpu) * 3) * MS, format!("srv-{cpu}/{}", 101 + cpu));
            trace.event(ns, cpu, IDLE, "irq:softirq_entry: vec=3 [action=NET_RX]");
            trace.wake(ns + 1_000, cpu, IDLE, &thread);
            trace.event(ns + 2_000, cpu, IDLE, "irq:softirq_exit: vec=3 [action=NET_RX]");
            trace.stay(ns + 3_000, cpu, &thread, 4 * MS);
        }
    }
    trace
}

#[test]
fn clients_elsewhere_may_wait_or_not() {
    let recording = elsewhere().read();
    let (relied_on, why_not) = relied_on(&recording, "400m");
    assert_eq!(relied_on, [false, false], "their requests are inferred");
    assert!(why_not.contains("give --clients open, --clients closed"), "{why_not}");
    // A limit that hardly ever throttles it does for both, and one of 400m if clients wait.
    let goal = Goal::P99(150 * MS);
    assert_eq!(smallest(&recording, &request("400m"), goal), None);
    let cases = [Case::new("made up".to_owned(), &recording, &request("400m")).unwrap()];
    let advice = advise(&cases, &question(goal), &Running::default(), &()).unwrap();
    let lacks: Vec<&str> = advice.lacks.iter().map(|lack| lack.why.as_str()).collect();
    assert!(matches!(lacks[..], [why] if why.contains("give --clients open")), "{lacks:?}");
    let clients = |told: &str| Request { clients: told.parse().ok(), ..request("400m") };
    let open = smallest(&recording, &clients("open"), goal).unwrap();
    let closed = smallest(&recording, &clients("closed"), goal).unwrap();
    assert!(open >= 1.14 && closed < 0.6, "open {open}, closed {closed}");
}

/// Median and p99 of requests under this limit, ms, and answers a second.
fn told(recording: &Recording, limit: &str, clients: &str) -> [f64; 3] {
    let request = Request { clients: Some(clients.parse().unwrap()), ..request(limit) };
    let replay = Replay::new("made up", recording, &request).unwrap();
    let kernels = kernel::parse_kernels("6.18").unwrap();
    let runs = replay.runs(&kernels, 1, &Running::default(), &()).unwrap();
    let told = &runs[1].prediction;
    assert!(told.predictable, "{:?}", told.why_not);
    let latency = told.request_latency_ns.unwrap();
    let ms = |ranged: Ranged<u64>| ranged.value as f64 / 1e6;
    [ms(latency.p50), ms(latency.p99), told.requests_per_second.unwrap().value]
}

#[test]
fn how_clients_elsewhere_ask_can_be_told() {
    let recording = elsewhere().read();
    // A client takes 4 ms of work and 10 ms of pause: 400m allow 100 requests a second.
    let [p50, p99, answered] = told(&recording, "400m", "closed");
    assert!((4.0..30.0).contains(&p50) && (60.0..150.0).contains(&p99), "{p50} {p99}");
    assert!((90.0..105.0).contains(&answered), "{answered}");
    let [p50, ..] = told(&recording, "400m", "open");
    assert!(p50 > 500.0, "the queue grows, whoever waits: {p50}");
    for wrong in ["0", "both", "-3", "1e9"] {
        assert!(wrong.parse::<Clients>().unwrap_err().contains("'closed', 'open'"), "{wrong}");
    }
}

/// A timer wakes a client, which asks a server that works for 2 to 5 ms. With interrupt events the
/// timer is seen.
fn inferred(has_interrupts: bool) -> Trace {
    let mut trace = Trace::perf(2);
    for at in 0..200_u64 {
        let (client, server) = (format!("cli-{}/{}", at % 2, 20 + at % 2), "srv/10");
        let (ns, work_ns) = (at * 9 * MS + at * at % 7 * 300_000, 2 * MS + at % 4 * MS);
        if has_interrupts {
            trace.event(ns, 1, IDLE, "timer:hrtimer_expire_entry: hrtimer=0x1 now=1");
        }
        trace.wake(ns + 1_000, 1, IDLE, &client);
        if has_interrupts {
            trace.event(ns + 2_000, 1, IDLE, "timer:hrtimer_expire_exit: hrtimer=0x1");
        }
        trace.switch(ns + 3_000, 1, IDLE, "R", &client);
        trace.wake(ns + 10_000, 1, &client, server);
        trace.switch(ns + 12_000, 1, &client, "S", IDLE);
        trace.switch(ns + 13_000, 0, IDLE, "R", server);
        trace.wake(ns + 13_000 + work_ns, 0, server, &client);
        trace.switch(ns + 15_000 + work_ns, 0, server, "S", IDLE);
        trace.switch(ns + 16_000 + work_ns, 1, IDLE, "R", &client);
        trace.switch(ns + 30_000 + work_ns, 1, &client, "S", IDLE);
    }
    trace
}

#[test]
fn requests_that_are_inferred_from_text_are_relied_on_where_it_has_interrupts() {
    let with = inferred(true).read();
    let (relied, why_not) = relied_on(&with, "500m");
    assert!(relied[0], "{why_not}");
    let without = inferred(false).read();
    let (relied, why_not) = relied_on(&without, "500m");
    assert_eq!(relied, [false, false]);
    assert!(why_not.contains("Wakeups by interrupts are not told"), "{why_not}");
    assert_eq!(smallest(&without, &request("500m"), Goal::P99(50 * MS)), None);
    let replay = Replay::new("made up", &without, &request("500m")).unwrap();
    assert!(!replay.service().unwrap().sure);
    assert!(replay.doubtful_gaps().any(|gap| gap.kind == GapKind::Context));
}

#[test]
fn inferred_requests_of_a_group_are_inspected() {
    let path = "../../recordings/web-closed.perf.data";
    let recording = Recording::read(path.as_ref(), Options::default()).unwrap();
    let told = serde_json::to_value(Inspected::new("web-closed", &recording)).unwrap();
    let served = &told["services"]["/testload"];
    let expected = serde_json::json!([591, 4, false]);
    assert_eq!(
        serde_json::json!([served["requests"], served["connections"], served["recorded"]]),
        expected
    );
    let text = recording_text("web-closed", &recording, 20, Page::of(Some(10_000)));
    assert!(text.contains("/testload served 591 requests (inferred from who woke whom)"), "{text}");
}
