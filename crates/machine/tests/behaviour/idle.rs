//! `SCHED_IDLE` tasks: which tasks they preempt under CFS (to 6.5), and the weight of their group
//! when it has run empty (to 6.11).

use super::support::{outcome, recorded};
use cpumax_outcome::trace::What;

#[test]
fn a_group_that_ran_empty_starves_after_a_throttle_of_its_parent() {
    let text = include_str!("../../../../scenarios/found/emptied-weight.toml");
    let stall_ms = |version| outcome(text, version).tasks["idle"].longest_stall_ns / 1_000_000;
    assert!(stall_ms("6.1") > 500, "{} ms", stall_ms("6.1"));
    assert!(stall_ms("6.12") < 100, "{} ms", stall_ms("6.12"));
}

/// The waking task is in a group that is not of class idle, which does not matter.
#[test]
fn an_idle_task_preempts_no_other() {
    let text = r#"
        duration = "30ms"
        [machine]
        cpus = 1
        hz = 250
        [[group]]
        path = "/g"
        [[task]]
        name = "sleeper"
        group = "/g"
        class = "idle"
        program = [{ forever = [{ sleep = "2500us" }, { user = "100us" }] }]
        [[task]]
        name = "hog"
        class = "idle"
        program = [{ forever = [{ user = "1s" }] }]
    "#;
    let after_a_tick_ns = |version| {
        let (_, trace) = recorded(text, version);
        let sleeper = trace.names.tasks.iter().position(|name| name == "sleeper").unwrap() as u32;
        let came = trace.events.iter().filter(|event| {
            event.time_ns > 0 && event.what == What::Switch { next: Some(sleeper) }
        });
        came.map(|event| event.time_ns % 4_000_000).collect::<Vec<_>>()
    };
    let came = after_a_tick_ns("6.1");
    assert!(!came.is_empty() && came.iter().all(|ns| *ns == 0), "{came:?}");
    assert!(after_a_tick_ns("6.12").iter().any(|ns| *ns != 0));
}
