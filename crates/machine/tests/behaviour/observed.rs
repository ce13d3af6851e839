//! Conditions observed on a real kernel take precedence over the workload and the rules.

use super::support::{checked, outcome_of, plain, recorded_of, workload};
use cpumax_limit::Limit;
use cpumax_machine::{Delaying, Options};
use cpumax_noise::Microseconds;
use cpumax_outcome::trace::{Recorded, TraceEvent, What};
use cpumax_outcome::{Conditions, GroupOutcome, Outcome};
use cpumax_workload::build::{Table, table};
use cpumax_workload::{Signal, Workload};
use std::collections::BTreeMap;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn write_limit(table: Table, limit: Limit) -> Table {
    table.with("max", limit.to_string()).with("burst", limit.burst_ns() / 1000)
}

/// A kind of task that does this again and again.
fn repeated(name: &str, step: Table) -> Table {
    table("name", name).with("program", [table("forever", [step])])
}

/// Outcome of a busy thread's group of 6/100 on 6.18 after this time.
fn hog(duration_ms: u64, observed: Option<&Conditions>) -> GroupOutcome {
    hog_on("6.18", duration_ms, observed)
}

fn hog_on(kernel: &str, duration_ms: u64, observed: Option<&Conditions>) -> GroupOutcome {
    hog_with_burst(kernel, 0, duration_ms, observed)
}

fn hog_with_burst(
    kernel: &str,
    burst_ns: u64,
    duration_ms: u64,
    observed: Option<&Conditions>,
) -> GroupOutcome {
    let limit = Limit::new(Some(6_000_000), 100_000_000, burst_ns).expect("is a limit");
    let workload = Workload::builder("hog")
        .with("duration", Duration::from_millis(duration_ms))
        .part("group", write_limit(table("path", "/limited"), limit))
        .part("task", repeated("hog", table("user", SECOND)).with("group", "/limited"))
        .build()
        .expect("is a workload");
    let options = Options { observed, ..checked(kernel) };
    outcome_of(&workload, &options).groups.remove("/limited").expect("is there")
}

/// Outcome and events of a run on that kernel.
fn traced(workload: &Workload, kernel: &str, observed: Option<&Conditions>) -> (Outcome, Recorded) {
    recorded_of(workload, &Options { observed, ..checked(kernel) })
}

#[test]
fn the_limit_is_enforced_at_the_ticks_that_were_observed() {
    let edge = BTreeMap::from([("/limited".to_owned(), 80_000_000)]);
    // The quota and the 1 ns that the limit write left, up to the next tick.
    for (hz, first_tick_ns, used_usec) in
        [(250, 0, 8_000), (250, 1_000_000, 9_000), (1000, 0, 7_000), (1000, 500_000, 6_500)]
    {
        let observed = Conditions {
            hz: Some(hz),
            first_tick_ns: Some(first_tick_ns),
            first_edge_ns: edge.clone(),
            ..Conditions::default()
        };
        assert_eq!(hog(50, Some(&observed)).usage_usec, used_usec, "{hz} {first_tick_ns}");
    }
}

#[test]
fn periods_end_at_the_edges_that_were_observed() {
    // An edge at the very start comes after the tasks of the start.
    for (first_edge_ms, periods) in [(0, 5), (30, 5), (60, 4), (99, 4)] {
        let first_edge_ns = BTreeMap::from([("/limited".to_owned(), first_edge_ms * 1_000_000)]);
        let observed = Conditions { first_edge_ns, ..Conditions::default() };
        let hog = hog(450, Some(&observed));
        assert_eq!(hog.nr_periods, periods, "{first_edge_ms} ms");
    }
}

#[test]
fn the_outside_task_takes_its_time() {
    let observed = Conditions { outside_ns: vec![(0, 5_000_000)], ..Conditions::default() };
    let (alone, after) = (hog(6, Some(&Conditions::default())), hog(6, Some(&observed)));
    assert_eq!((alone.usage_usec, after.usage_usec), (6_000, 1_000));
}

#[test]
fn counters_are_read_when_whoever_reads_them_comes_to_it() {
    // 60 ms are used up 40 us before the period ends; it counts in counters that are read 90 us
    // later.
    let first_edge_ns = BTreeMap::from([("/limited".to_owned(), 60_040_000)]);
    let of = |outside_ns| Conditions {
        outside_ns,
        first_edge_ns: first_edge_ns.clone(),
        ..Conditions::default()
    };
    let hogs =
        [vec![], vec![(60_000_000, 90_000)]].map(|outside_ns| hog(60, Some(&of(outside_ns))));
    assert_eq!(hogs.each_ref().map(|hog| hog.nr_periods), [0, 1]);
    assert_eq!(hogs[0].usage_usec, hogs[1].usage_usec, "nobody runs beside who reads");
}

#[test]
fn a_limit_written_just_before_leaves_no_slice_for_the_first_enqueue() {
    // The edge right after the start refills the pool. Runtime taken before adds to that, to 6.17;
    // later a CPU begins with 1 ns, takes nothing when the thread is queued, and has one quota in
    // all.
    let first_edge_ns = BTreeMap::from([("/limited".to_owned(), 1_000)]);
    let observed = Conditions { hz: Some(1000), first_edge_ns, ..Conditions::default() };
    let used = |kernel| hog_on(kernel, 50, Some(&observed)).usage_usec;
    assert_eq!(used("6.12"), 11_000, "5 ms at once, 6 ms after the edge");
    assert_eq!(used("6.18"), 7_000, "6 ms and 1 ns, and the tick at which that is noticed");
}

#[test]
fn which_tick_of_a_second_is_a_remote_one_is_up_to_noise() {
    let file = "../../scenarios/nohz-full.toml";
    let text = std::fs::read_to_string(file).unwrap();
    let workload = workload(&text).with_duration(1_500_000_000).unwrap();
    let used_ms = |delays: Option<&dyn Delaying>| {
        let outcome = outcome_of(&workload, &Options { delays, ..plain("6.1") });
        outcome.groups["/limited"].usage_usec / 1000
    };
    assert_eq!(used_ms(None), 1_000);
    let used: Vec<u64> = (0..20).map(|seed| used_ms(Some(&Microseconds::of(seed)))).collect();
    assert!(used.iter().all(|ms| *ms <= 1_000), "{used:?}");
    assert!(used.iter().any(|ms| *ms < 300) && used.iter().any(|ms| *ms > 700), "{used:?}");
}

#[test]
fn noise_is_drawn_by_its_seed_alone() {
    let workload = two_hogs("0");
    let used = |seed| {
        let delays = Microseconds::of(seed);
        outcome_of(&workload, &Options { delays: Some(&delays), ..checked("7.3") })
    };
    assert_eq!(used(1), used(1));
    let runs: Vec<_> = (1..=8).map(used).collect();
    assert!(runs.iter().any(|run| run != &runs[0]), "no number ever moves");
    for run in &runs {
        let usage = run.tasks.values().map(|task| task.usage_usec).sum::<u64>();
        assert!(usage.abs_diff(1_000_000) < 2_000, "{usage} us of a second are used");
    }
}

/// How often the CPU switches between two busy threads within a second.
fn switches(kernel: &str, nice: &str) -> usize {
    let (_, trace) = traced(&two_hogs(nice), kernel, None);
    trace.events.iter().filter(|event| matches!(event.what, What::Switch { .. })).count()
}

#[test]
fn a_slice_timer_is_not_set_again_for_who_is_picked_again() {
    // Two equal threads take turns, whatever the kernel.
    for kernel in ["6.6", "6.12", "7.0", "7.1", "7.3"] {
        assert!(switches(kernel, "0") > 1_200, "{kernel}");
    }
    // The heavier of two unequal threads is often picked again. Its slice does not begin anew, so
    // no timer is set for it: it runs up to the next tick, and slices that should be 0.7 ms are 4
    // ms.
    for kernel in ["6.6", "6.12", "7.3"] {
        assert!((100..400).contains(&switches(kernel, "5")), "{kernel}");
    }
}

fn two_hogs(nice: &str) -> Workload {
    let text = format!(
        r#"name = "two"
        duration = "1s"
        [machine]
        hz = 250
        hrtick = true
        [[task]]
        name = "one"
        program = [{{ forever = [{{ user = "1s" }}] }}]
        [[task]]
        name = "two"
        nice = {nice}
        program = [{{ forever = [{{ user = "1s" }}] }}]"#
    );
    workload(&text)
}

#[test]
fn a_pool_with_a_burst_begins_with_what_was_found_in_it() {
    let used_usec = |pool_ms: u64, burst_ms: u64| {
        let pool_ns = BTreeMap::from([("/limited".to_owned(), pool_ms * 1_000_000)]);
        let first_edge_ns = BTreeMap::from([("/limited".to_owned(), 80_000_000)]);
        let observed =
            Conditions { hz: Some(1000), pool_ns, first_edge_ns, ..Conditions::default() };
        hog_with_burst("6.18", burst_ms * 1_000_000, 50, Some(&observed)).usage_usec
    };
    // The quota and the 1 ns that the limit write left, up to the next tick.
    assert_eq!((used_usec(6, 3), used_usec(8, 3)), (7_000, 9_000));
    // No more than fits.
    assert_eq!(used_usec(20, 3), 10_000);
}

/// CPU time that a thread with this step in a group of 12/100 uses in 90 ms on 6.18, us, with an
/// intervention after 50 ms.
fn used_with(step: Table, act: Table) -> u64 {
    let limit = Limit::new(Some(12_000_000), 100_000_000, 0).expect("is a limit");
    let workload = Workload::builder("changed")
        .with("duration", Duration::from_millis(90))
        .part("group", write_limit(table("path", "/limited"), limit))
        .part("task", repeated("task", step).with("group", "/limited"))
        .part("at", act.with("time", Duration::from_millis(50)))
        .build()
        .expect("is a workload");
    let observed = Conditions {
        hz: Some(1000),
        first_edge_ns: BTreeMap::from([("/limited".to_owned(), 95_000_000)]),
        ..Conditions::default()
    };
    let options = Options { observed: Some(&observed), ..checked("6.18") };
    outcome_of(&workload, &options).groups["/limited"].usage_usec
}

#[test]
fn a_quota_and_a_burst_are_two_writes_and_each_fills_the_pool() {
    let write = |quota_ns, burst_ns| {
        let limit = Limit::new(Some(quota_ns), 100_000_000, burst_ns).expect("is a limit");
        used_with(table("user", SECOND), write_limit(table("group", "/limited"), limit))
    };
    // 12 ms and the rest of a tick; a write forgives a debt.
    assert_eq!(write(10_000_000, 0), 13_000 + 11_000);
    assert_eq!(
        write(12_000_000, 6_000_000),
        13_000 + 13_000,
        "one write: nothing was left to save"
    );
    assert_eq!(write(10_000_000, 6_000_000), 13_000 + 17_000);
}

#[test]
fn a_task_killed_in_the_kernel_does_not_finish_its_work() {
    let kill = table("task", "task").with("signal", Signal::Kill);
    assert_eq!(used_with(table("kernel", SECOND), kill.clone()), 50_000);
    // The task leaves a loop in a system call, which would never end.
    let works = || [table("kernel", Duration::from_millis(1))];
    let endless = table("forever", works());
    assert_eq!(used_with(table("syscall", [endless]), kill.clone()), 50_000);
    let long = table("loop", 1_000_000_000).with("do", works());
    assert_eq!(used_with(table("syscall", [long]), kill), 50_000);
}

#[test]
fn a_kernel_thread_takes_no_signal() {
    let works = || repeated("task", table("kernel", Duration::from_millis(1)));
    for signal in [Signal::Kill, Signal::Stop] {
        let act = table("task", "task").with("signal", signal);
        let workload = Workload::builder("signalled")
            .with("duration", Duration::from_millis(90))
            .part("task", works().with("class", "kthread"))
            .part("at", act.with("time", Duration::from_millis(50)))
            .build()
            .expect("is a workload");
        let task = &outcome_of(&workload, &checked("6.18")).tasks["task"];
        assert_eq!((task.usage_usec, task.exited), (90_000, 0), "{signal:?}");
    }
}

/// A real thread is born with nice 0 and gets its own right after. While it is off its queue for
/// that, its group is too. The queue above moves on to the first entity left there, so the group
/// comes later.
#[test]
fn a_queue_moves_on_when_a_group_leaves_it_for_a_moment() {
    let text = r#"
        duration = "6ms"
        [machine]
        cpus = 1
        hz = 250
        [[group]]
        path = "/g"
        [[task]]
        name = "outer"
        count = 4
        program = [{ user = "10s" }]
        [[task]]
        name = "inner"
        group = "/g"
        nice = 10
        program = [{ user = "10s" }]
    "#;
    let used_usec = |text: &str| {
        let options = Options { observed: Some(&Conditions::default()), ..checked("6.1") };
        outcome_of(&workload(text), &options).tasks["inner"].usage_usec
    };
    assert_eq!(used_usec(text), 4_000, "up to the first tick");
    assert_eq!(used_usec(&text.replace("nice = 10", "nice = 0")), 6_000);
}

#[test]
fn tasks_are_born_one_after_the_other_in_the_visit_that_starts_them() {
    let text = r#"
        duration = "45ms"
        [machine]
        cpus = 1
        [[task]]
        name = "hog"
        program = [{ forever = [{ user = "10s" }] }]
        [[task]]
        name = "a"
        count = 2
        start = "10ms"
        program = [{ forever = [{ every = "20ms" }, { user = "1us" }] }]
        [[task]]
        name = "b"
        count = 2
        start = "10ms"
        program = [{ user = "10s" }]
        [[at]]
        time = "10ms"
        task = "b"
        signal = "kill"
    "#;
    // 400 us for four births, and 12 us back to sleep.
    let observed =
        Conditions { outside_ns: vec![(0, 5_000), (10_000_000, 412_000)], ..Conditions::default() };
    let (outcome, recorded) = traced(&workload(text), "6.18", Some(&observed));
    let name = |task: u32| recorded.names.tasks[task as usize].as_str();
    let woken = recorded.events.iter().filter_map(|event| match event.what {
        What::Wake { task } => Some((event.time_ns / 1000, name(task))),
        _ => None,
    });
    let woken: Vec<_> = woken.filter(|(_, name)| name.starts_with(['a', 'b'])).collect();
    let births = [(10_100, "a/0"), (10_200, "a/1"), (10_300, "b/0"), (10_400, "b/1")];
    assert_eq!(woken[..4], births);
    // Time counts from a task's planned start, and interventions come after the births.
    assert_eq!(woken[4..], [(30_000, "a/0"), (30_000, "a/1")]);
    assert_eq!(outcome.tasks["b"].exited, 2);
}

#[test]
fn a_start_during_another_start_follows_it() {
    let text = r#"
        name = "births"
        duration = "20ms"
        [machine]
        cpus = 1
        [[task]]
        name = "a"
        start = "10050us"
        count = 2
        program = [{ sleep = "1s" }]
        [[task]]
        name = "b"
        count = 2
        stagger = "10ms"
        program = [{ sleep = "1s" }]
    "#;
    // 300 us for three births, and 12 us back to sleep.
    let observed =
        Conditions { outside_ns: vec![(0, 5_000), (10_000_000, 312_000)], ..Conditions::default() };
    let (_, recorded) = traced(&workload(text), "6.18", Some(&observed));
    let name = |task: u32| recorded.names.tasks[task as usize].as_str();
    let woken = recorded.events.iter().filter_map(|event| match event.what {
        What::Wake { task } => Some((event.time_ns / 1000, name(task))),
        _ => None,
    });
    let woken: Vec<_> = woken.filter(|(us, _)| *us > 10_000).collect();
    assert_eq!(woken, [(10_100, "b/1"), (10_200, "a/0"), (10_300, "a/1")]);
}

#[test]
fn a_wakeup_from_another_cpu_preempts_lazily_at_the_next_tick() {
    let text = |late: &str| {
        format!(
            r#"
            name = "late"
            duration = "14ms"
            [machine]
            cpus = 2
            hz = 250
            [[channel]]
            name = "channel"
            [[task]]
            name = "idle"
            class = "idle"
            cpus = "1"
            program = [{{ user = "1s" }}]
            [[task]]
            name = "late"
            cpus = "1"
            {late}
            "#
        )
    };
    let starts = text("start = \"10ms\"\nprogram = [{ user = \"1s\" }]");
    let receives = text(
        "program = [{ recv = \"channel\" }, { user = \"1s\" }]\n[[source]]\nname = \"source\"\n\
         channel = \"channel\"\n\
         at = [\"10ms\"]",
    );
    let outside_ns = vec![(0, 5_000), (10_000_000, 20_000)];
    let observed = Conditions { hz: Some(250), outside_ns, ..Conditions::default() };
    let came_us = |text: &str, kernel, observed: Option<&Conditions>| {
        let (_, recorded) = traced(&workload(text), kernel, observed);
        let late = recorded.names.tasks.iter().position(|name| name == "late");
        let to_late = What::Switch { next: late.map(|task| task as u32) };
        let mut events = recorded.events.iter().filter(|event| event.time_ns >= 10_000_000);
        events.find(|event| event.what == to_late).map(|event| event.time_ns / 1000)
    };
    // The outside task is on CPU 0, takes 8 us to start a task, and sends an interrupt that takes
    // 2 us, or none where preemption is lazy.
    for (text, takes_us) in [(starts, 8), (receives, 0)] {
        assert_eq!(came_us(&text, "6.12", Some(&observed)), Some(10_002 + takes_us));
        assert_eq!(came_us(&text, "6.18", Some(&observed)), Some(12_000));
        assert_eq!(came_us(&text, "6.18", None), Some(10_000), "nobody brings it who is on a CPU");
    }
}

#[test]
fn a_task_that_did_not_begin_on_the_machine_that_was_observed_waits_where_it_was_made() {
    let hog = |name: &str, count: u32| repeated(name, table("user", SECOND)).with("count", count);
    let hogs = Workload::builder("hogs")
        .with("duration", Duration::from_millis(3))
        .with("machine", table("cpus", 2))
        .part("task", hog("first", 3))
        .part("task", hog("last", 1))
        .build()
        .expect("is a workload");
    let woken_on = |last: &[Option<u32>]| {
        let first_cpus = [("first", &[Some(1), Some(1), Some(0)][..]), ("last", last)];
        let first_cpus = first_cpus.map(|(name, cpus)| (name.to_owned(), cpus.to_vec()));
        let observed = Conditions { first_cpus: first_cpus.into(), ..Conditions::default() };
        let (_, recorded) = traced(&hogs, "6.18", Some(&observed));
        let is_last = |task: u32| recorded.names.tasks[task as usize] == "last";
        let mut events = recorded.events.iter();
        let woken =
            |event: &&TraceEvent| matches!(event.what, What::Wake { task } if is_last(task));
        events.find(woken).map(|event| event.cpu)
    };
    // Tasks are created on CPUs in turn; a forked one goes where there are fewer.
    assert_eq!((woken_on(&[None]), woken_on(&[])), (Some(1), Some(0)));
}

#[test]
fn tasks_begin_where_they_began_on_the_machine_that_was_observed() {
    let hog = |name: &str, count: u32| repeated(name, table("user", SECOND)).with("count", count);
    let hogs = |cpus| {
        Workload::builder("hogs")
            .with("duration", Duration::from_millis(3))
            .with("machine", table("cpus", cpus))
            .part("task", hog("first", 1))
            .part("task", hog("second", 2))
            .build()
            .expect("is a workload")
    };
    let used_on = |cpus: u16, first_cpus: &[(&str, &[Option<u32>])]| {
        let first_cpus = first_cpus.iter().map(|(name, cpus)| ((*name).to_owned(), cpus.to_vec()));
        let observed = Conditions { first_cpus: first_cpus.collect(), ..Conditions::default() };
        let options = Options { observed: Some(&observed), ..checked("6.18") };
        let outcome = outcome_of(&hogs(cpus), &options);
        ["first", "second"].map(|name| outcome.tasks[name].usage_usec)
    };
    let used = |first_cpus: &[(&str, &[Option<u32>])]| used_on(2, first_cpus);
    // Up to the first tick no task makes way, and none is moved.
    let both = |second: [u32; 2]| used(&[("first", &[Some(1)]), ("second", &second.map(Some))]);
    assert_eq!(both([1, 1]), [3_000, 0]);
    assert_eq!(both([1, 0]), [3_000, 3_000]);
    // Impossible observations are ignored.
    assert_eq!(used(&[("first", &[Some(7)]), ("second", &[None])]), used(&[]));
    assert_eq!(used_on(1, &[("first", &[Some(0)])]), used_on(1, &[]));
}
