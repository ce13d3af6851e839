//! Closed and open loops compared with queueing theory, and scheduled tokens.

use super::*;
use crate::MAX_TOKENS_DUE;
use crate::Options;
use crate::Simulation;
use crate::channel::Due;
use crate::kernel::parse_kernels;
use cpumax_workload::parse;

/// Completions per second and mean response time, ms.
fn rates(text: &str) -> (f64, f64) {
    let workload = parse(text, "queue.toml").unwrap_or_else(|error| panic!("{error}"));
    let kernel = parse_kernels("6.12").unwrap()[0];
    let machine = Simulation::ended(&workload, &Options::new(kernel, 1));
    let latencies = &machine.births.kinds[0].latencies;
    let seconds = workload.duration_ns as f64 / 1e9;
    (latencies.count as f64 / seconds, latencies.mean_ns() / 1e6)
}

fn near(found: f64, expected: f64, percent: f64) -> bool {
    (found - expected).abs() <= expected * percent / 100.0
}

/// `clients` ask a pool of threads for exponential work of 5 ms, and again 20 ms after the answer.
fn closed(clients: u32, threads: u32, cpus: u32, seconds: u32) -> (f64, f64) {
    rates(&format!(
        r#"
        duration = "{seconds}s"
        [machine]
        cpus = {cpus}
        [[channel]]
        name = "requests"
        [[job]]
        name = "request"
        program = [
          {{ user = {{ exponential = "5ms" }} }},
          {{ done = true }},
          {{ after = {{ exponential = "20ms" }}, post = "request", to = "requests" }},
        ]
        [[task]]
        name = "pool"
        count = {threads}
        program = [{{ forever = [{{ serve = "requests" }}] }}]
        [[source]]
        name = "clients"
        channel = "requests"
        every = "1us"
        count = {clients}
        jobs = ["request"]
        "#
    ))
}

/// Mean value analysis of one server of 5 ms and a delay of 20 ms: completions per second and
/// response time, ms.
fn mean_values(clients: u32) -> (f64, f64) {
    let (mut queue, mut rate, mut response) = (0.0, 0.0, 0.0);
    for n in 1..=clients {
        response = 5.0 * (1.0 + queue);
        rate = f64::from(n) / (response + 20.0);
        queue = rate * response;
    }
    (rate * 1000.0, response)
}

#[test]
fn a_closed_loop_keeps_the_interactive_response_time_law() {
    for (clients, threads, cpus) in [(1, 1, 1), (5, 1, 1), (16, 4, 1), (16, 4, 4), (40, 3, 2)] {
        let (rate, response) = closed(clients, threads, cpus, 60);
        let law = rate / 1000.0 * (response + 20.0);
        assert!(near(law, clients.into(), 2.0), "{clients} clients, {threads} threads: {law}");
    }
}

#[test]
fn a_closed_loop_on_one_cpu_is_as_fast_as_mean_value_analysis_says() {
    // Work is exponential, so the number of threads on the CPU does not matter.
    for (clients, threads) in [(2, 1), (5, 1), (5, 3), (12, 4)] {
        let (rate, response) = closed(clients, threads, 1, 200);
        let (expected_rate, expected) = mean_values(clients);
        assert!(near(rate, expected_rate, 2.0), "{clients}: {rate} instead of {expected_rate}");
        assert!(near(response, expected, 4.0), "{clients}: {response} instead of {expected}");
    }
}

/// Requests of 7 ms come every 10 ms, at random times.
const OPEN: &str = r#"
    duration = "1000s"
    [[channel]]
    name = "requests"
    [[job]]
    name = "request"
    program = [{ user = "7ms" }, { done = true }]
    [[task]]
    name = "server"
    program = [{ forever = [{ serve = "requests" }] }]
    [[source]]
    name = "plan"
    channel = "requests"
    every = { exponential = "10ms" }
    jobs = ["request"]
    "#;

#[test]
fn an_open_loop_of_equal_work_waits_as_in_an_m_d_1_queue() {
    let (rate, response) = rates(OPEN);
    assert!(near(rate, 100.0, 2.0), "{rate} requests a second");
    // Pollaczek and Khinchine: a wait of rho * work / (2 * (1 - rho)), and then the work.
    let expected = 7.0 + 0.7 * 7.0 / (2.0 * 0.3);
    assert!(near(response, expected, 4.0), "{response} ms instead of {expected}");
}

/// Requests of 5 ms on average, for two threads on two CPUs that are half busy.
fn two_threads(shared: bool) -> f64 {
    let text = format!(
        r#"
        duration = "1000s"
        [machine]
        cpus = 2
        [[service]]
        name = "web"
        threads = 2
        shared = {shared}
        work = {{ exponential = "5ms" }}
        rate = "200/s"
        "#
    );
    let workload = parse(&text, "service.toml").unwrap_or_else(|error| panic!("{error}"));
    let kernel = parse_kernels("6.12").unwrap()[0];
    let machine = Simulation::ended(&workload, &Options::new(kernel, 1));
    let sum: f64 = (machine.births.kinds.iter())
        .map(|kind| kind.latencies.mean_ns() * kind.latencies.count as f64)
        .sum();
    sum / machine.births.kinds.iter().map(|kind| kind.latencies.count).sum::<u64>() as f64 / 1e6
}

#[test]
fn threads_that_share_their_connections_are_one_queue_and_else_each_has_its_own() {
    // M/M/2 and twice M/M/1, each half busy.
    let [shared, own] = [true, false].map(two_threads);
    assert!(near(shared, 5.0 / (1.0 - 0.25), 3.0), "{shared}");
    assert!(near(own, 5.0 / (1.0 - 0.5), 3.0), "{own}");
}

#[test]
fn places_are_given_out_again_and_are_not_more_than_so_many() {
    let coming = |job| DueToken { channel: ChannelId(0), job, since_ns: None };
    let mut due = Due::default();
    assert_eq!((due.put(coming(1)), due.put(coming(2))), (Some(0), Some(1)));
    assert_eq!(due.take(0).job, 1);
    assert_eq!(due.put(coming(3)), Some(0));
    assert_eq!((due.take(0).job, due.take(1).job), (3, 2));
    for job in 0..MAX_TOKENS_DUE as u32 {
        assert!(due.put(coming(job)).is_some(), "{job}");
    }
    assert_eq!(due.put(coming(0)), None);
    due.take(7);
    assert_eq!(due.put(coming(0)), Some(7));
}

/// Requests of two parts come twice as fast as they are served: how many were answered with this
/// `order` of the channel, and the longest latency, ms.
fn in_two_parts(order: &str) -> (u64, u64) {
    let workload = parse(
        &format!(
            r#"
            duration = "100ms"
            [machine]
            cpus = 1
            [[channel]]
            name = "requests"
            {order}
            [[job]]
            name = "first"
            program = [{{ user = "1ms" }}, {{ post = "second", to = "requests" }}]
            [[job]]
            name = "second"
            program = [{{ user = "1ms" }}, {{ done = true }}]
            [[task]]
            name = "loop"
            program = [{{ forever = [{{ serve = "requests" }}] }}]
            [[source]]
            name = "clients"
            channel = "requests"
            every = "1ms"
            jobs = ["first"]
            "#
        ),
        "parts.toml",
    )
    .unwrap_or_else(|error| panic!("{error}"));
    let kernel = parse_kernels("6.12").unwrap()[0];
    let mut machine = Simulation::ended(&workload, &Options::new(kernel, 1));
    let latencies = &mut machine.births.kinds[0].latencies;
    (latencies.count, latencies.percentiles().max / 1_000_000)
}

#[test]
fn the_oldest_request_is_ended_before_others_begin() {
    let (answered, longest_ms) = in_two_parts("oldest_first = true");
    // One every 2 ms, and the last answered one came when half of the time was over.
    assert!((48..=50).contains(&answered), "{answered}");
    assert!((48..=50).contains(&longest_ms), "{longest_ms}");
    // In order of arrival, second parts stand behind all tokens that came meanwhile.
    assert!(in_two_parts("").0 < 45, "{:?}", in_two_parts(""));
}
