//! A task that finds a kernel lock taken spins while the holder runs, and sleeps otherwise.

use super::support::recorded;
use cpumax_outcome::trace::{Recorded, What};

/// One task has the lock for the first millisecond on CPU 0, another asks for it on CPU 1, 0.4 ms
/// after the start; a real-time task takes some CPU for 0.3 ms.
fn text(lock: &str, mode: &str, preempt: &str, disturbed: &str, more: &str) -> String {
    format!(
        r#"
        duration = "10ms"
        [machine]
        cpus = 2
        preempt = "{preempt}"
        [[lock]]
        name = "l"
        kind = "{lock}"
        [[task]]
        name = "holder"
        cpus = "0"
        program = [{{ syscall = [{{ lock = "l"{mode} }}, {{ kernel = "1ms" }},
          {{ unlock = "l" }}] }}]
        [[task]]
        name = "other"
        cpus = "1"
        start = "400us"
        program = [{{ syscall = [{{ lock = "l"{mode} }}, {{ kernel = "100us" }},
          {{ unlock = "l" }}] }}]
        [[task]]
        name = "disturber"
        class = "rt"
        cpus = "{disturbed}"
        start = "700us"
        program = [{{ user = "300us" }}]
        {more}
        "#
    )
}

/// When a task first had the lock, ns, and whether it slept for it.
fn lock_of(recorded: &Recorded, task: &str) -> (Option<u64>, bool) {
    let is = |number: u32| recorded.names.tasks[number as usize] == task;
    let of = |is_it: fn(&What) -> Option<u32>| {
        recorded.events.iter().find(|event| is_it(&event.what).is_some_and(is))
    };
    let taken = of(|what| match *what {
        What::LockTaken { task, .. } => Some(task),
        _ => None,
    });
    let waits = of(|what| match *what {
        What::LockWait { task, .. } => Some(task),
        _ => None,
    });
    (taken.map(|event| event.time_ns), waits.is_some())
}

const WRITE: &str = ", mode = \"write\"";

/// CPU time of the task that asked for the lock, us, and whether it slept for it.
fn used(text: &str, version: &str) -> (u64, bool) {
    let (outcome, recorded) = recorded(text, version);
    (outcome.tasks["other"].usage_usec, lock_of(&recorded, "other").1)
}

const VERSIONS: [&str; 4] = ["5.4", "6.1", "6.12", "7.3"];

#[test]
fn a_task_spins_until_the_release_while_the_holder_runs() {
    for version in VERSIONS {
        for (lock, mode) in [("mutex", ""), ("rwsem", WRITE)] {
            for preempt in ["none", "voluntary", "full"] {
                let text = text(lock, mode, preempt, "0-1", "").replace("700us", "5ms");
                assert_eq!(used(&text, version), (700, false), "{version} {lock} {preempt}");
            }
            // Locks of a real-time kernel and of user space are waited for asleep.
            let rt = text(lock, mode, "rt", "0-1", "").replace("700us", "5ms");
            assert_eq!(used(&rt, version), (100, true), "{version} {lock}");
            let user = rt.replace("\"rt\"\n        [[lock", "\"full\"\n        [[lock");
            let user =
                user.replace("{ syscall = [", "").replace("] }]", "]").replace("kernel", "user");
            assert_eq!(used(&user, version), (100, true), "{version} {lock}");
        }
        // Readers do not spin.
        let reader = text("rwsem", WRITE, "full", "0-1", "").replace("700us", "5ms");
        let at = reader.rfind("mode = \"write\"").unwrap();
        let reader = format!("{}mode = \"read\"{}", &reader[..at], &reader[at + 14..]);
        assert_eq!(used(&reader, version), (100, true), "{version}");
    }
}

#[test]
fn nobody_spins_for_who_does_not_run() {
    for version in VERSIONS {
        for (lock, mode) in [("mutex", ""), ("rwsem", WRITE)] {
            // The holder must leave its CPU at 0.7 ms.
            let (used_us, waits) = used(&text(lock, mode, "full", "0", ""), version);
            assert!((400..410).contains(&used_us) && waits, "{version} {lock}: {used_us}");
        }
    }
}

#[test]
fn a_spinner_makes_way_and_then_sleeps_for_an_rwsem() {
    for version in VERSIONS {
        // At 0.7 ms, for 0.3 ms: the lock is free then. At a mutex the spinner first lets others
        // run.
        let (used_us, waits) = used(&text("rwsem", WRITE, "full", "1", ""), version);
        assert!((400..410).contains(&used_us) && waits, "{version}: {used_us}");
        let (used_us, waits) = used(&text("mutex", "", "full", "1", ""), version);
        assert!((400..410).contains(&used_us) && !waits, "{version}: {used_us}");
    }
}

/// A third task takes the lock again and again, and is off its CPU when the other asks for it,
/// which then has to sleep. Woken at a release, it finds the lock taken again.
fn contended(lock: &str, mode: &str, more: &str) -> String {
    let again = format!(
        r#"
        [[task]]
        name = "again"
        cpus = "0"
        start = "10us"
        program = [{{ forever = [
            {{ syscall = [{{ lock = "l"{mode} }}, {{ kernel = "250us" }}, {{ unlock = "l" }}] }},
              {{ user = "1us" }},
        ] }}]
        {more}
        "#
    );
    text(lock, mode, "full", "0", &again)
        .replace("start = \"700us\"", "start = \"300us\"")
        .replace("{ kernel = \"1ms\" }", "{ kernel = \"1us\" }")
}

#[test]
fn how_long_the_first_to_wait_lets_others_come_first_is_counted_in_ticks() {
    for version in VERSIONS {
        for (hz, least_us, most_us) in
            [(250, 8_000, 8_600), (1000, 5_000, 5_600), (100, 20_000, 20_600)]
        {
            let text = contended("rwsem", WRITE, "")
                .replace("cpus = 2", &format!("cpus = 2\nhz = {hz}"))
                .replace("duration = \"10ms\"", "duration = \"40ms\"");
            let (outcome, recorded) = recorded(&text, version);
            assert_eq!(outcome.tasks["other"].exited, 1, "{version} {hz}");
            let (taken_ns, _) = lock_of(&recorded, "other");
            let at_us = taken_ns.unwrap() / 1000;
            assert!((least_us..most_us).contains(&at_us), "{version} {hz}: {at_us}");
        }
    }
}

#[test]
fn a_mutex_handed_to_a_spinner_that_makes_way_is_taken() {
    // The waiter is woken too late, becomes the next owner, and spins; before that it makes way
    // for a real-time task.
    let second = r#"
        [[task]]
        name = "second"
        class = "rt"
        cpus = "1"
        start = "SHIFTED"
        program = [{ user = "1ms" }]
    "#;
    for version in VERSIONS {
        for shift_us in (0..400).step_by(20) {
            let text =
                contended("mutex", "", second).replace("SHIFTED", &format!("{}us", 800 + shift_us));
            let (outcome, _) = recorded(&text, version);
            assert_eq!(outcome.tasks["other"].exited, 1, "{version} {shift_us}");
        }
    }
}

#[test]
fn a_task_spins_at_a_free_rwsem_that_is_kept_for_another() {
    // The other task is the next owner, and a real-time task keeps it from its CPU for a
    // millisecond.
    let second = r#"
        [[task]]
        name = "second"
        class = "rt"
        cpus = "1"
        start = "SHIFTED"
        program = [{ user = "1ms" }]
    "#;
    for version in VERSIONS {
        let kept = (8_000..8_600).step_by(20).filter(|start_us| {
            let start = format!("{start_us}us");
            let text = contended("rwsem", WRITE, &second.replace("SHIFTED", &start))
                .replace("duration = \"10ms\"", "duration = \"12ms\"");
            let (_, recorded) = recorded(&text, version);
            // For most of that time the lock has no owner, and the repeating task continues.
            let taken = recorded.events.iter().filter_map(|event| match event.what {
                What::LockTaken { .. } => Some(event.time_ns),
                _ => None,
            });
            let taken: Vec<u64> = taken.collect();
            let is_idle = taken.windows(2).any(|pair| pair[1] - pair[0] > 700_000);
            is_idle && !lock_of(&recorded, "again").1
        });
        assert!(kept.count() > 0, "{version}");
    }
}
