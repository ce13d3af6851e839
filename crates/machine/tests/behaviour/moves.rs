//! Tasks that move themselves to another group.

use super::support::{outcome, recorded};
use cpumax_outcome::trace::What;

#[test]
fn a_task_that_moves_itself_is_protected_by_its_lag_on_6_19() {
    // The task comes late, as it weighs little, and so has positive lag when it moves. Later
    // kernels protect it up to the end of its turn in the old queue; earlier ones anew.
    let text = r#"
        duration = "60ms"
        [machine]
        cpus = 1
        timer_phase = "0ms"
        hrtick = false
        [[group]]
        path = "/g"
        [[group]]
        path = "/g/h"
        [[task]]
        name = "hog"
        group = "/g"
        program = [{ user = "1s" }]
        [[task]]
        name = "inner"
        group = "/g/h"
        program = [{ user = "1s" }]
        [[task]]
        name = "moves"
        group = "/g/h"
        nice = 10
        program = [{ sleep = "21ms" }, { user = "10us" }, { move = "self", to = "/g" },
          { user = "1s" }]
    "#;
    let turn_us = |version: &str| {
        let (_, trace) = recorded(text, version);
        let mut turns =
            trace.events.iter().filter(|event| matches!(event.what, What::Switch { .. }));
        let name = |task: u32| trace.names.tasks[task as usize].as_str();
        let is_it =
            |what: &What| matches!(*what, What::Switch { next: Some(t) } if name(t) == "moves");
        let came = turns.find(|event| is_it(&event.what) && event.time_ns > 21_000_000).unwrap();
        (turns.next().unwrap().time_ns - came.time_ns) / 1000
    };
    assert_eq!(["6.18", "6.19", "7.0"].map(turn_us), [3000, 10, 3000]);
}

#[test]
fn a_parked_task_of_another_class_runs_where_its_group_got_runtime() {
    // CPU 1 learns of its runtime 3 ms after the refill; the class changes in between.
    let text = r#"
        duration = "200ms"
        [machine]
        cpus = 2
        timer_phase = "0ms"
        ipi = "3ms"
        [[group]]
        path = "/g"
        max = "10000 100000"
        [[task]]
        name = "hog"
        count = 2
        group = "/g"
        program = [{ user = "1s" }]
        [[at]]
        time = "101ms"
        task = "hog"
        class = "idle"
    "#;
    outcome(text, "pull");
}
