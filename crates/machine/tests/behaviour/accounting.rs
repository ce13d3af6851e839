//! Charging: who is charged and from when on. Reschedules that go by the clock of their wakeup,
//! weights written while a group is throttled, moves, and the order in which groups are throttled
//! or picked.

use super::support::{outcome, plain, recorded, recorded_of, under_noise, workload};
use cpumax_machine::Options;
use cpumax_noise::Microseconds;
use cpumax_outcome::trace::What;

#[test]
fn a_task_that_cannot_be_preempted_is_charged_up_to_the_last_tick() {
    // A real-time task wakes 49 times, each 2 ms into a call of 10 ms. Until the end of the call
    // the clock is read at the ticks, 4 and 8 ms into it; the last 2 ms count as usage of the
    // woken task. Where the call is preempted at once, nothing is lost.
    let text = |preempt: &str| {
        format!(
            r#"
            duration = "1s"
            [machine]
            cpus = 1
            preempt = "{preempt}"
            [[group]]
            path = "/calls"
            [[group]]
            path = "/visits"
            [[task]]
            name = "call"
            group = "/calls"
            program = [{{ forever = [{{ every = "20ms" }}, {{ kernel = "10ms" }}] }}]
            [[task]]
            name = "visit"
            group = "/visits"
            class = "rt"
            start = "2ms"
            program = [{{ forever = [{{ every = "20ms" }}, {{ user = "1ms" }}] }}]
            "#
        )
    };
    for (preempt, calls, visits) in [("none", 392_000, 147_000), ("full", 490_000, 49_000)] {
        for version in ["6.1", "6.12"] {
            let outcome = outcome(&text(preempt), version);
            let used = ["/calls", "/visits"].map(|group| outcome.groups[group].usage_usec);
            assert_eq!(used, [calls, visits], "{preempt} {version}");
        }
    }
}

#[test]
fn a_weight_written_while_the_group_is_throttled_counts_from_a_tick_below_it() {
    // Both groups have had 12 ms when the limit stops them. From then on `b` weighs ten times as
    // much, and would come first for that reason.
    let text = r#"
        duration = "200ms"
        [machine]
        cpus = 1
        timer_phase = "0ms"
        [[group]]
        path = "/g"
        max = "24000 100000"
        [[group]]
        path = "/g/a"
        [[group]]
        path = "/g/b"
        [[task]]
        name = "a"
        group = "/g/a"
        program = [{ forever = [{ user = "10s" }] }]
        [[task]]
        name = "b"
        group = "/g/b"
        program = [{ forever = [{ user = "10s" }] }]
        [[at]]
        time = "50ms"
        group = "/g/b"
        weight = 1000
    "#;
    let first_after_release = |version| {
        let (_, recorded) = recorded(text, version);
        let after = |event: &&cpumax_outcome::trace::TraceEvent| event.time_ns >= 100_000_000;
        let next = recorded.events.iter().filter(after).find_map(|event| match event.what {
            What::Switch { next } => next,
            _ => None,
        });
        recorded.names.tasks[next.unwrap() as usize].clone()
    };
    assert_eq!(["6.12", "6.17", "6.18"].map(first_after_release), ["a", "a", "b"]);
}

#[test]
fn uncharged_time_before_a_move_counts_as_usage_of_the_new_group() {
    // The clock is read at the ticks at 4 and 8 ms; the last of the 5 ms before the move counts in
    // the new group.
    let text = r#"
        duration = "100ms"
        [machine]
        cpus = 1
        hz = 250
        hrtick = false
        [[group]]
        path = "/old"
        [[group]]
        path = "/new"
        [[task]]
        name = "mover"
        group = "/old"
        program = [{ user = "5ms" }, { move = "self", to = "/new" }, { user = "5ms" }]
    "#;
    for version in ["5.4", "6.1", "6.12", "6.18", "7.0"] {
        let outcome = outcome(text, version);
        let used = ["/old", "/new"].map(|group| outcome.groups[group].usage_usec);
        assert_eq!(used, [4_000, 6_000], "{version}");
    }
}

#[test]
fn a_task_that_moves_itself_competes_in_the_new_group() {
    // The new group is placed with zero lag: as soon as one task has run there it is the other's
    // turn. So the first task must leave the CPU at 7 ms, before it releases the lock of moves,
    // and the other, 0.3 ms later, has to wait for that.
    let text = r#"
        duration = "50ms"
        [machine]
        cpus = 1
        hz = 250
        preempt = "lazy"
        hrtick = false
        [[group]]
        path = "/old"
        [[group]]
        path = "/new"
        [[task]]
        name = "other"
        group = "/old"
        program = [{ user = "4300us" }, { move = "self", to = "/new" }]
        [[task]]
        name = "first"
        group = "/old"
        program = [{ user = "3037us" }, { move = "self", to = "/new" }, { user = "20ms" }]
    "#;
    for version in ["6.17", "6.18", "6.19", "7.0"] {
        for seed in 0..9 {
            let (_, recorded) = under_noise(text, version, seed);
            let waits = |what: &What| matches!(what, What::LockWait { .. });
            let at = recorded.events.iter().find(|event| waits(&event.what));
            let at_ns = at.map_or(0, |event| event.time_ns);
            assert!((7_300_000..7_600_000).contains(&at_ns), "{version} seed {seed}: {at_ns}");
        }
    }
}

#[test]
fn a_group_of_twice_the_weight_comes_before_new_tasks() {
    // Its first deadline is after a slice at twice the speed, theirs after half a slice: equal,
    // except for the reciprocal that a kernel multiplies by.
    let text = r#"
        duration = "10ms"
        [machine]
        cpus = 1
        [[group]]
        path = "/heavy"
        weight = 200
        [[task]]
        name = "new"
        count = 3
        program = [{ user = "1s" }]
        [[task]]
        name = "heavy"
        group = "/heavy"
        program = [{ user = "1s" }]
    "#;
    for version in ["6.12", "6.17", "6.18", "7.0"] {
        let (_, recorded) = under_noise(text, version, 1);
        let first = recorded.events.iter().find_map(|event| match event.what {
            What::Switch { next: Some(task) } => Some(recorded.names.tasks[task as usize].as_str()),
            _ => None,
        });
        assert_eq!(first, Some("heavy"), "{version}");
    }
}

#[test]
fn a_call_is_left_at_a_point_of_preemption_or_where_it_ends() {
    let text = |call: &str| {
        format!(
            r#"
            duration = "500ms"
            [machine]
            cpus = 1
            preempt = "voluntary"
            [[group]]
            path = "/visits"
            [[task]]
            name = "call"
            program = [{{ forever = [{{ kernel = "{call}" }}, {{ user = "1us" }}] }}]
            [[task]]
            name = "visit"
            group = "/visits"
            class = "rt"
            program = [{{ forever = [{{ every = "5037us" }}, {{ user = "100us" }}] }}]
            "#
        )
    };
    // The longest time from a wakeup to the switch it requests, and how much more than its work
    // `visit` used.
    let longest_and_more = |call: &str| {
        let (mut longest_ns, mut more_usec) = (0, 0);
        for seed in 0..12 {
            let (outcome, recorded) = under_noise(&text(call), "6.12", seed);
            let visit =
                recorded.names.tasks.iter().position(|name| name == "visit").unwrap() as u32;
            let mut woken_ns = 0;
            for event in &recorded.events {
                match event.what {
                    What::Wake { task } if task == visit => woken_ns = event.time_ns,
                    What::Switch { next: Some(task) } if task == visit => {
                        longest_ns = longest_ns.max(event.time_ns - woken_ns);
                    }
                    _ => {}
                }
            }
            more_usec = more_usec.max(outcome.groups["/visits"].usage_usec.saturating_sub(9_900));
        }
        (longest_ns, more_usec)
    };
    let (longest_ns, more_usec) = longest_and_more("50ms");
    assert!((150_000..230_000).contains(&longest_ns), "{longest_ns}");
    // 99 visits, each a tenth of a millisecond late on average.
    assert!((6_000..14_000).contains(&more_usec), "{more_usec}");
    let (longest_ns, more_usec) = longest_and_more("30us");
    assert!(longest_ns < 60_000, "{longest_ns}");
    assert!(more_usec < 4_000, "{more_usec}");
}

#[test]
fn late_charges_arm_no_timer_in_the_past() {
    // The slice of 5 ms is used up between the wakeup at 6.3 ms and the end of the call; the
    // period's timer, which has stopped by then, is started again.
    let text = r#"
        duration = "100ms"
        [machine]
        cpus = 1
        hz = 250
        preempt = "none"
        timer_phase = "0ms"
        [[group]]
        path = "/g"
        max = "20000 1000"
        [[task]]
        name = "call"
        group = "/g"
        program = [{ forever = [{ kernel = "7700us" }, { user = "1us" }] }]
        [[task]]
        name = "visit"
        class = "rt"
        program = [{ forever = [{ every = "6300us" }, { user = "100us" }] }]
    "#;
    for version in ["4.14", "4.18", "6.1", "6.12", "6.18", "7.2", "7.3"] {
        let outcome = outcome(text, version);
        let used = outcome.groups["/g"].usage_usec;
        assert!((50_000..100_000).contains(&used), "{version}: {used}");
    }
}

#[test]
fn a_group_that_ends_with_its_child_is_throttled_before_it() {
    // Both are out of runtime at the tick at 20 ms. Time counts as throttled only while something
    // is queued, which the child no longer is once it is throttled itself.
    let text = r#"
        duration = "110ms"
        [machine]
        cpus = 1
        hz = 250
        timer_phase = "0ms"
        [[group]]
        path = "/p"
        max = "20000 100000"
        [[group]]
        path = "/p/c"
        max = "20000 100000"
        [[task]]
        name = "hog"
        group = "/p/c"
        program = [{ forever = [{ user = "10s" }] }]
    "#;
    for version in ["6.1", "6.12", "6.17"] {
        let outcome = outcome(text, version);
        let stat = |group: &str| {
            (outcome.groups[group].nr_throttled, outcome.groups[group].throttled_usec)
        };
        assert_eq!([stat("/p"), stat("/p/c")], [(1, 80_000), (1, 80_000)], "{version}");
    }
}

#[test]
fn where_a_task_goes_to_sleep_the_outer_group_is_throttled_before_the_inner() {
    // Both are out of runtime at 5.5 ms, which is found when one of two tasks goes to sleep at 6
    // ms. The other one is still in the outer group then, so its clock starts at once; both stay
    // throttled to the end of the period at 60 ms.
    let text = r#"
        duration = "70ms"
        [machine]
        cpus = 1
        timer_phase = "60ms"
        [[group]]
        path = "/outer"
        max = "5500 100000"
        [[group]]
        path = "/outer/inner"
        max = "5500 100000"
        [[task]]
        name = "sleeps"
        group = "/outer/inner"
        program = [{ user = "6ms" }, { sleep = "1s" }]
        [[task]]
        name = "stays"
        group = "/outer/inner"
        start = "4500us"
        program = [{ user = "1s" }]
        "#;
    for version in ["6.1", "6.12", "6.17"] {
        let outer = &outcome(text, version).groups["/outer"];
        assert_eq!((outer.nr_throttled, outer.throttled_usec), (1, 54_000), "{version}");
    }
}

#[test]
fn a_lone_task_that_yields_may_find_its_group_throttled() {
    // Without a yield the end of 5 ms is noticed at the tick at 8 ms.
    let used = |version: &str, program: &str| {
        let text = format!(
            "duration = \"50ms\"\n[machine]\ncpus = 1\ntimer_phase = \"60ms\"\n\
             [[group]]\npath = \"/g\"\nmax = \"5000 100000\"\n\
             [[task]]\nname = \"t\"\ngroup = \"/g\"\nprogram = [{{ forever = [{program}] }}]\n"
        );
        outcome(&text, version).groups["/g"].usage_usec
    };
    for version in ["6.1", "6.12", "6.18", "7.3"] {
        let used = [r#"{ user = "6ms" }, { yield = true }"#, r#"{ user = "6ms" }"#]
            .map(|program| used(version, program));
        assert_eq!(used, [6_000, 8_000], "{version}");
    }
}

#[test]
fn a_wakeup_in_a_running_group_charges_all_ancestors_to_6_5() {
    // At the tick at 8 ms 2 ms of the parent's 10 are left. A task that wakes at 11 ms in the
    // running child, too light to preempt, makes a kernel to 6.5 check the parent's runtime; later
    // kernels check it at the tick at 12 ms.
    let text = r#"
        duration = "100ms"
        [machine]
        cpus = 1
        timer_phase = "0ms"
        preempt = "full"
        [[group]]
        path = "/parent"
        max = "10000 100000"
        [[group]]
        path = "/parent/child"
        [[task]]
        name = "hog"
        group = "/parent/child"
        program = [{ forever = [{ user = "10s" }] }]
        [[task]]
        name = "weak"
        group = "/parent/child"
        class = "idle"
        start = "11ms"
        program = [{ user = "1ms" }]
    "#;
    for (version, usage_usec) in
        [("5.4", 11_000), ("6.1", 11_000), ("6.6", 12_000), ("6.17", 12_000)]
    {
        assert_eq!(outcome(text, version).groups["/parent"].usage_usec, usage_usec, "{version}");
    }
}

#[test]
fn a_tick_that_takes_the_cpu_away_is_no_work() {
    // Two equal hogs take turns of 4 ms each: usage beyond their work is a tick and a switch for
    // each turn.
    let text = r#"
        duration = "5s"
        [machine]
        cpus = 1
        [[group]]
        path = "/a"
        [[group]]
        path = "/b"
        [[task]]
        name = "a"
        group = "/a"
        program = [{ loop = 200, do = [{ user = "10ms" }] }]
        [[task]]
        name = "b"
        group = "/b"
        program = [{ loop = 200, do = [{ user = "10ms" }] }]
    "#;
    // Work is up to 5 us longer or shorter: the mean of several runs.
    let beyond_us = |seed: u64| {
        let (outcome, _) = under_noise(text, "6.17", seed);
        (outcome.tasks["a"].usage_usec + outcome.tasks["b"].usage_usec) as i64 - 4_000_000
    };
    let mean = (1..=24).map(beyond_us).sum::<i64>() / 24;
    assert!((12_000..25_000).contains(&mean), "{mean} us of 1000 turns");
}

#[test]
fn microseconds_drawn_anew_change_nothing_before() {
    let text = r#"
        duration = "400ms"
        [machine]
        cpus = 1
        [[group]]
        path = "/g"
        max = "20000 50000"
        [[task]]
        name = "t"
        count = 3
        group = "/g"
        program = [{ forever = [{ user = "3ms" }, { sleep = "1ms" }] }]
    "#;
    let recorded = |from: Vec<(u64, u64)>| {
        let delays = Microseconds { seed: 5, from };
        let options = Options { delays: Some(&delays), ..plain("7.3") };
        recorded_of(&workload(text), &options).1.events
    };
    let (plain, anew) = (recorded(vec![]), recorded(vec![(200_000_000, 8)]));
    let first = plain.iter().zip(&anew).find(|(a, b)| a != b).unwrap().0.time_ns;
    assert!((200_000_000..250_000_000).contains(&first), "{first}");
}

#[test]
fn an_enqueue_on_a_flat_queue_charges_the_running_group() {
    // A new task does not preempt. When it comes, the other one's group has used 2.5 ms of 1. 7.3
    // finds that at once; on 7.2 a slice must end first, half of one or a whole one later.
    let text = r#"
        duration = "50ms"
        [machine]
        cpus = 1
        timer_phase = "0ms"
        [[group]]
        path = "/first"
        max = "1000 100000"
        [[task]]
        name = "first"
        group = "/first"
        program = [{ user = "1s" }]
        [[task]]
        name = "second"
        start = "2500us"
        program = [{ user = "1s" }]
    "#;
    let used = ["7.2", "7.3"].map(|version| outcome(text, version).groups["/first"].usage_usec);
    assert!(used[0] == 2_850 && (2_500..2_510).contains(&used[1]), "{used:?} us");
}

#[test]
fn a_delayed_sleep_on_a_flat_queue_charges_the_tasks_own_group_only() {
    // The first task has used 6 ms of 5 when it goes to sleep, and the other one none, so the
    // sleep is delayed. If the limit is their own group's, that is found at once; if it is the
    // group above, at the tick, 4 ms later.
    let text = |own: &str, above: &str| {
        format!(
            r#"
            duration = "50ms"
            [machine]
            cpus = 1
            hz = 100
            hrtick = false
            timer_phase = "0ms"
            [[group]]
            path = "/above"
            {above}
            [[group]]
            path = "/above/own"
            {own}
            [[task]]
            name = "first"
            group = "/above/own"
            program = [{{ user = "6ms" }}, {{ sleep = "10ms" }}, {{ user = "1s" }}]
            [[task]]
            name = "second"
            group = "/above/own"
            start = "1us"
            program = [{{ user = "1s" }}]
            "#
        )
    };
    let limit = r#"max = "5000 100000""#;
    for (own, above, used) in [(limit, "", 6_000), ("", limit, 10_000)] {
        let outcome = outcome(&text(own, above), "7.3");
        assert_eq!(outcome.groups["/above"].usage_usec, used, "{own:?} {above:?}");
    }
}

#[test]
fn a_cpu_that_is_charged_late_has_used_its_time_when_it_ran() {
    // No task can be parked, so no tick matters: each CPU is charged for all three seconds at
    // once.
    let text = r#"
        duration = "3s"
        [machine]
        cpus = 2
        [[group]]
        path = "/g"
        max = "1000 1000"
        [[task]]
        name = "t"
        count = 2
        group = "/g"
        cpus = "each"
        class = "kthread"
        program = [{ forever = [{ kernel = "1h" }] }]
    "#;
    let outcome = outcome(text, "6.18");
    assert_eq!(outcome.groups["/g"].usage_usec, 6_000_000);
    assert_eq!(outcome.groups["/g"].max_period_usage_usec, 2_000);
}

#[test]
fn to_4_17_a_group_that_begins_anew_loses_its_slices() {
    // An idle group's timer rests. To 4.17, starting it again leaves both deadlines equal and in
    // the past, so each slice is lost at the next charge: forty pieces of 50 us use up 20 ms. The
    // slices of a group that keeps running do not expire.
    let text = |pause: &str| {
        format!(
            r#"
            duration = "10s"
            [machine]
            cpus = 1
            timer_phase = "0ms"
            [[group]]
            path = "/g"
            max = "20000 100000"
            [[task]]
            name = "burst"
            group = "/g"
            program = [{{ forever = [
              {{ sleep = "{pause}" }},
              {{ loop = 40, do = [{{ user = "50us" }}, {{ sleep = "200us" }}] }},
            ] }}]
            "#
        )
    };
    for version in ["3.16", "4.14", "4.17", "4.18", "5.3", "5.4"] {
        let throttled = |pause: &str| {
            let outcome = outcome(&text(pause), version);
            outcome.groups["/g"].nr_throttled
        };
        let (rested, went_on) = (throttled("350ms"), throttled("35ms"));
        let is_old = ["3.16", "4.14", "4.17"].contains(&version);
        assert!(if is_old { rested > 20 } else { rested == 0 }, "{version}: {rested}");
        assert_eq!(went_on, 0, "{version}");
    }
}
