//! A token goes to the first receiver that takes it, as from a pipe: a task woken for one may find
//! it gone.

use super::support::{self, plain, workload};
use cpumax_machine::{Error, run};
use cpumax_outcome::Outcome;

/// A frozen receiver in a group without quota, one outside that is busy when the token comes, and
/// one token every 100 ms.
fn outcome(version: &str, wanted: u32) -> Outcome {
    let text = format!(
        r#"
        duration = "1s"
        [machine]
        cpus = 2
        timer_phase = "1.5ms"
        [[group]]
        path = "/limited"
        max = "10000 100000"
        [[channel]]
        name = "pipe"
        [[source]]
        name = "source"
        channel = "pipe"
        start = "50ms"
        every = "100ms"
        [[task]]
        name = "hog"
        group = "/limited"
        cpus = "0"
        program = [{{ forever = [{{ user = "10s" }}] }}]
        [[task]]
        name = "frozen"
        group = "/limited"
        cpus = "0"
        program = [{{ forever = [{{ recv = "pipe" }}, {{ kernel = "100us" }}, {{ done = true }}] }}]
        [[task]]
        name = "late"
        cpus = "1"
        start = "20ms"
        program = [{{ forever = [{{ recv = "pipe", n = {wanted} }}, {{ user = "100us" }},
          {{ done = true }}, {{ user = "130ms" }}] }}]
        "#
    );
    support::outcome(&text, version)
}

#[test]
fn a_running_receiver_takes_the_token_of_a_frozen_one() {
    // To 6.17 the first waiter is woken at 350 ms and does not reach the pipe before its group has
    // runtime again; the other takes the token at 380 ms. From 6.18 on the first takes the token
    // at once, and parks after it.
    for (version, after_ns) in [("6.17", 30_200_000), ("6.18", 100_000)] {
        let outcome = outcome(version, 1);
        let [frozen, late] = ["frozen", "late"].map(|name| &outcome.tasks[name]);
        assert_eq!((late.latency_ns.p99, late.completions), (after_ns, 4), "{version}");
        assert!(frozen.completions >= 4);
    }
}

#[test]
fn receivers_of_several_tokens_are_served_in_order() {
    let outcome = outcome("6.18", 2);
    assert!(outcome.tasks["late"].completions >= 1 && outcome.tasks["frozen"].completions >= 1);
}

#[test]
fn a_request_that_was_begun_lasts_until_it_is_done_whatever_comes_in_between() {
    let text = r#"
        duration = "400ms"
        [machine]
        cpus = 2
        [[channel]]
        name = "ask"
        [[channel]]
        name = "answer"
        [[task]]
        name = "server"
        program = [{ forever = [{ recv = "ask" }, { user = "5ms" }, { send = "answer" }] }]
        [[task]]
        name = "client"
        program = [{ loop = 10, do = [
          { begin = true }, { send = "ask" }, { sleep = "1ms" }, { recv = "answer" },
          { user = "1ms" }, { done = true },
        ] }]
        [[task]]
        name = "implicit"
        start = "200ms"
        program = [{ loop = 10, do = [{ send = "ask" }, { recv = "answer" }, { user = "1ms" },
          { done = true }] }]
    "#;
    for version in ["4.19", "6.12", "7.3"] {
        let outcome = support::outcome(text, version);
        let [client, implicit] = ["client", "implicit"].map(|name| &outcome.tasks[name]);
        assert_eq!((client.completions, implicit.completions), (10, 10), "{version}");
        // Each of them, including the first at the start of the run.
        assert!((6_000_000..6_100_000).contains(&client.latency_ns.p50), "{version}: {client:?}");
        assert!(client.latency_ns.max < 6_100_000, "{version}: {client:?}");
        assert!((1_000_000..1_100_000).contains(&implicit.latency_ns.max), "{implicit:?}");
    }
}

#[test]
fn tokens_that_nobody_takes_end_the_run_before_they_fill_the_memory() {
    let text = r#"
        duration = "60s"
        [[channel]]
        name = "c"
        [[source]]
        name = "s"
        channel = "c"
        every = "1us"
        [[task]]
        name = "t"
        program = [{ forever = [{ recv = "c" }, { user = "1s" }] }]
    "#;
    let refused = run(&workload(text), &plain("6.12"), None, None).unwrap_err();
    assert!(matches!(refused, Error::TooManyWaiting { at_ns: 4_000_000_000.. }), "{refused}");
    assert!(refused.to_string().contains("give the channel a `capacity`"), "{refused}");
}
