//! Real-time kernels: preemption in system calls, and the thread that wakes sleeping tasks.

use super::support::{outcome, under_noise};
use cpumax_outcome::trace::What;

/// One task is in a call nearly all the time; another, with precedence, wakes in the middle of it,
/// 3 ms before a tick at the worst.
fn visited(class: &str, preempt: &str) -> String {
    format!(
        r#"
        duration = "90ms"
        [machine]
        cpus = 1
        preempt = "{preempt}"
        [[task]]
        name = "call"
        class = "idle"
        program = [{{ forever = [{{ kernel = "18ms" }}, {{ user = "1us" }}] }}]
        [[task]]
        name = "visit"
        class = "{class}"
        program = [{{ forever = [{{ recv = "calls" }}, {{ user = "10us" }}] }}]
        [[channel]]
        name = "calls"
        [[source]]
        name = "outside"
        channel = "calls"
        every = "25ms"
        "#
    )
}

#[test]
fn fair_tasks_make_way_for_each_other_at_ticks_where_a_real_time_kernel_is_lazy_too() {
    for version in ["6.12", "6.17"] {
        // The timer thread wakes sleeping tasks, after which the CPU reschedules anyway: so a
        // channel wakes here.
        let waited = |class: &str, preempt: &str| {
            outcome(&visited(class, preempt), version).tasks["visit"].longest_stall_ns
        };
        assert_eq!(waited("fair", "rt"), 0, "{version}");
        assert_eq!(waited("fair", "rt-lazy"), 3_000_000, "{version}");
        assert_eq!(waited("fair", "rt-lazy"), waited("fair", "lazy"), "{version}");
        // Real-time tasks, such as the timer thread, get the CPU at once on each.
        for preempt in ["rt", "rt-lazy", "lazy", "full"] {
            assert_eq!(waited("rt", preempt), 0, "{version} {preempt}");
        }
    }
}

#[test]
fn under_noise_the_timer_thread_needs_its_time_for_each_it_wakes() {
    // Two tasks sleep until the same time; a third works in user mode.
    let text = r#"
        duration = "40ms"
        [machine]
        cpus = 1
        preempt = "rt"
        [[task]]
        name = "hog"
        program = [{ user = "1s" }]
        [[task]]
        name = "sleeper"
        count = 2
        program = [{ sleep = "10ms" }, { user = "1ms" }]
    "#;
    for seed in 0..9 {
        let (_, recorded) = under_noise(text, "7.3", seed);
        let name = |task: u32| recorded.names.tasks[task as usize].as_str();
        let woken = |event: &&cpumax_outcome::trace::TraceEvent| {
            matches!(event.what, What::Wake { .. }) && event.time_ns > 1_000_000
        };
        let told: Vec<(&str, u64)> = recorded
            .events
            .iter()
            .filter(woken)
            .filter_map(|event| match event.what {
                What::Wake { task } => Some((name(task), event.time_ns)),
                _ => None,
            })
            .collect();
        let [("ktimers/0", thread_ns), (_, first_ns), (_, second_ns)] = told[..3] else {
            panic!("seed {seed}: {told:?}");
        };
        assert!((8_000..33_000).contains(&(first_ns - thread_ns)), "seed {seed}: {told:?}");
        assert!((4_500..9_000).contains(&(second_ns - first_ns)), "seed {seed}: {told:?}");
        let sleeps = recorded.events.iter().find(|event| {
            matches!(event.what, What::Sleep { task } if name(task) == "ktimers/0")
                && event.time_ns > second_ns
        });
        let goes_ns = sleeps.unwrap().time_ns - second_ns;
        assert!((6_000..13_000).contains(&goes_ns), "seed {seed}: {goes_ns}");
    }
}
