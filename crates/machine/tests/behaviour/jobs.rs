//! Requests as jobs: which task executes them and when, tiers, and the time from which a request
//! counts.

use super::support::{self, checked, outcome_of, plain, workload};
use cpumax_machine::{Error, run};
use cpumax_outcome::Outcome;

fn outcome(text: &str) -> Outcome {
    support::outcome(text, "6.12")
}

/// One thread that needs 25 ms for a request, with one every 10 ms.
fn late(source: &str) -> Outcome {
    outcome(&format!(
        r#"
        duration = "1s"
        [[channel]]
        name = "timer"
        [[job]]
        name = "round"
        program = [{{ user = "25ms" }}, {{ done = true }}]
        [[task]]
        name = "worker"
        program = [{{ forever = [{{ serve = "timer" }}] }}]
        [[source]]
        name = "timer"
        channel = "timer"
        every = "10ms"
        jobs = ["round"]
        {source}
        "#
    ))
}

#[test]
fn a_program_that_skips_is_late_only_by_its_own_work() {
    let skips = &late("lossy = true").tasks["worker"];
    // At 10, 40, 70 ... 970 ms.
    assert_eq!((skips.completions, skips.latency_ns.max), (33, 25_000_000));
    let queues = &late("").tasks["worker"];
    // The 39th is due at 390 ms and done at 985 ms.
    assert_eq!((queues.completions, queues.latency_ns.p99), (39, 595_000_000));
    // The 40th is due at 400 ms and under way to the end.
    assert_eq!(queues.latency_ns.max, 600_000_000);
}

/// A request that arrives at 10 ms goes through a tier of 1 ms and one of 2 ms.
fn tiers(front: &str, version: &str) -> Outcome {
    let text = format!(
        r#"
        duration = "100ms"
        [[channel]]
        name = "front"
        [[channel]]
        name = "back"
        [[job]]
        name = "question"
        program = [{front}, {{ post = "answer", to = "back" }}]
        [[job]]
        name = "answer"
        program = [{{ user = "2ms" }}, {{ done = true }}]
        [[task]]
        name = "front"
        program = [{{ forever = [{{ serve = "front" }}] }}]
        [[task]]
        name = "back"
        program = [{{ forever = [{{ serve = "back" }}] }}]
        [[source]]
        name = "client"
        channel = "front"
        at = ["10ms"]
        jobs = ["question"]
        "#
    );
    support::outcome(&text, version)
}

#[test]
fn a_request_counts_from_its_first_beginning_through_all_tiers() {
    for version in ["4.19", "5.4", "6.12", "7.1"] {
        for (front, latency_ns) in [
            ("{ user = \"1ms\" }", 3_000_000),
            // Sleep in between counts.
            ("{ user = \"1ms\" }, { sleep = \"5ms\" }", 8_000_000),
            ("{ user = \"1ms\" }, { begin = true }, { user = \"1ms\" }", 3_000_000),
        ] {
            let outcome = tiers(front, version);
            let back = &outcome.tasks["back"];
            assert_eq!((back.completions, back.latency_ns.max), (1, latency_ns), "{front}");
            assert_eq!(outcome.tasks["front"].completions, 0);
        }
    }
}

/// A channel `c`, these jobs, and one task `t` with this program.
fn scene(jobs: &str, program: &str) -> String {
    format!(
        "duration = \"1s\"\n[[channel]]\nname = \"c\"\n[[channel]]\nname = \"d\"\n{jobs}\n\
         [[task]]\nname = \"t\"\nprogram = [{program}]\n"
    )
}

#[test]
fn a_server_continues_its_own_program_after_a_job() {
    let jobs = "[[job]]\nname = \"j\"\nprogram = [{ loop = 2, do = [{ user = \"1ms\" }] }]\n\
                [[job]]\nname = \"nothing\"\n";
    let program = "{ post = \"j\", to = \"c\" }, { send = \"c\" }, \
                   { post = \"nothing\", to = \"c\" }, { post = \"j\", to = \"c\" }, \
                   { loop = 2, do = [{ serve = \"c\" }, { user = \"10ms\" }, { done = true }] }, \
                   { serve = \"c\" }, { recv = \"c\" }, { user = \"100ms\" }";
    let outcome = outcome(&scene(jobs, program));
    let task = &outcome.tasks["t"];
    // The fourth token is received, so its job is not executed.
    assert_eq!((task.exited, task.finished_ns), (1, 122_000_000));
    assert_eq!((task.completions, task.latency_ns.max), (2, 22_000_000));
}

#[test]
fn a_scheduled_token_is_a_new_request_or_continues_one() {
    let jobs = "[[job]]\nname = \"answer\"\nprogram = [{ user = \"1ms\" }, { done = true }]";
    let latency_ns = |begin: &str, keep: bool| {
        let program = format!(
            "{begin}{{ user = \"2ms\" }}, {{ after = \"10ms\", post = \"answer\", to = \"c\", \
             keep = {keep} }}, {{ begin = true }}, {{ serve = \"c\" }}"
        );
        outcome(&scene(jobs, &program)).tasks["t"].latency_ns.max
    };
    assert_eq!(latency_ns("", false), 1_000_000);
    assert_eq!(latency_ns("", true), 13_000_000);
    assert_eq!(latency_ns("{ user = \"3ms\" }, { begin = true }, ", true), 13_000_000);
}

#[test]
fn a_plain_token_that_is_served_begins_a_request_too() {
    let program = "{ begin = true }, { sleep = \"5ms\" }, { send = \"c\" }, { serve = \"c\" }, \
                   { user = \"1ms\" }, { done = true }";
    assert_eq!(outcome(&scene("", program)).tasks["t"].latency_ns.max, 1_000_000);
    let receives = program.replace("serve", "recv");
    assert_eq!(outcome(&scene("", &receives)).tasks["t"].latency_ns.max, 6_000_000);
}

#[test]
fn a_token_that_waits_for_room_keeps_its_request() {
    let text = r#"
        duration = "100ms"
        [[channel]]
        name = "c"
        capacity = 1
        [[job]]
        name = "j"
        program = [{ user = "10ms" }, { done = true }]
        [[task]]
        name = "poster"
        program = [{ loop = 3, do = [{ post = "j", to = "c" }] }]
        [[task]]
        name = "server"
        program = [{ forever = [{ serve = "c" }] }]
        "#;
    let server = &outcome(text).tasks["server"];
    assert_eq!((server.completions, server.latency_ns.max), (3, 30_000_000));
}

#[test]
fn a_receiver_of_several_tokens_ignores_their_jobs() {
    let jobs = "[[job]]\nname = \"j\"\nprogram = [{ user = \"500ms\" }]";
    let program = "{ loop = 3, do = [{ post = \"j\", to = \"c\" }, { user = \"1ms\" }] }, \
                   { recv = \"c\", n = 2 }, { user = \"1ms\" }, { serve = \"c\" }";
    let outcome = outcome(&scene(jobs, program));
    assert_eq!(outcome.tasks["t"].finished_ns, 504_000_000);
}

#[test]
fn tokens_of_one_instant_come_in_the_order_in_which_they_were_posted() {
    let jobs = "[[job]]\nname = \"short\"\nprogram = [{ user = \"1ms\" }]\n\
                [[job]]\nname = \"long\"\nprogram = [{ user = \"30ms\" }, { done = true }]";
    let posts = |first: &str, second: &str| {
        let post = |job: &str| format!("{{ after = \"5ms\", post = \"{job}\", to = \"c\" }}, ");
        let program = post(first) + &post(second) + "{ serve = \"c\" }, { serve = \"c\" }";
        outcome(&scene(jobs, &program)).tasks["t"].latency_ns.max
    };
    assert_eq!([posts("long", "short"), posts("short", "long")], [30_000_000, 31_000_000]);
}

#[test]
fn more_and_more_tokens_that_are_to_come_are_refused() {
    let jobs = "[[job]]\nname = \"j\"";
    let program =
        "{ forever = [{ user = \"1ns\" }, { after = \"1s\", post = \"j\", to = \"c\" }] }";
    let text = scene(jobs, program).replace("duration = \"1s\"", "duration = \"5s\"");
    let refused = run(&workload(&text), &plain("6.12"), None, None).unwrap_err();
    assert!(matches!(refused, Error::TooManyDue { at_ns: 1_000_000.. }), "{refused}");
    assert!(refused.to_string().contains("more than 1000000 tokens"), "{refused}");
}

#[test]
fn many_tasks_that_each_do_a_little_at_once_are_no_livelock() {
    let task = "[[task]]\nname = \"t\"\ncount = 20000\n\
                program = [{ loop = 60, do = [{ done = true }] }, { sleep = \"1h\" }]";
    let workload = workload(&format!("duration = \"1s\"\n{task}"));
    let outcome = outcome_of(&workload, &plain("6.18"));
    assert_eq!(outcome.tasks["t"].completions, 20_000 * 60);
}

#[test]
fn the_livelock_of_a_job_is_told_with_its_name() {
    // No loop has a million instructions, all together have.
    let jobs = "[[job]]\nname = \"busy\"\nprogram = [{ loop = 2000, do = [{ begin = true }] }]";
    let posts = "{ loop = 1000, do = [{ post = \"busy\", to = \"c\" }] }";
    let program = format!("{posts}, {{ forever = [{{ serve = \"c\" }}] }}");
    let workload = workload(&scene(jobs, &program));
    let refused = run(&workload, &checked("6.12"), None, None).unwrap_err();
    let Error::Livelock { task, at_ns: 0 } = refused else { panic!("{refused}") };
    assert_eq!(task, "t in job busy");
}

#[test]
fn the_job_of_a_killed_task_stays_undone() {
    let kill = "[[at]]\ntime = \"15ms\"\ntask = \"t\"\nsignal = \"kill\"\n\
                [[task]]\nname = \"u\"\nstart = \"20ms\"\n\
                program = [{ forever = [{ serve = \"c\" }] }]\n";
    let jobs = "[[job]]\nname = \"j\"\nprogram = [{ user = \"10ms\" }, { done = true }]";
    let posts = "{ loop = 3, do = [{ post = \"j\", to = \"c\" }] }";
    let program = format!("{posts}, {{ forever = [{{ serve = \"c\" }}] }}");
    let outcome = outcome(&(scene(jobs, &program) + kill));
    // One was done, one was broken off, one was still there.
    assert_eq!([&outcome.tasks["t"], &outcome.tasks["u"]].map(|t| t.completions), [1, 1]);
}
