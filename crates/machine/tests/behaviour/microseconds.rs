//! Microseconds of a real kernel in runs under noise, compared with traces of emulated kernels.

use super::support::{checked, recorded_of, workload};
use cpumax_machine::Options;
use cpumax_noise::Microseconds;
use cpumax_outcome::trace::{Recorded, What};
use cpumax_outcome::{Conditions, Outcome};

const US: u64 = 1000;

/// Events of each task in order of time, ns: `wake`, `sleep` or `switch`.
type Events = Vec<(u64, &'static str, String)>;

/// Outcome and events of a whole scenario.
fn recorded(
    kernel: &str,
    noise: u64,
    observed: Option<&Conditions>,
    text: &str,
) -> (Outcome, Recorded) {
    let delays = Microseconds::of(noise);
    let options = Options { delays: Some(&delays), observed, ..checked(kernel) };
    recorded_of(&workload(text), &options)
}

fn outcome(kernel: &str, noise: u64, observed: Option<&Conditions>, text: &str) -> Outcome {
    recorded(kernel, noise, observed, text).0
}

fn events(kernel: &str, noise: u64, observed: Option<&Conditions>, tasks: &str) -> Events {
    let text = format!("name = \"s\"\nduration = \"60ms\"\n[machine]\ncpus = 1\n{tasks}");
    let (_, recorded) = recorded(kernel, noise, observed, &text);
    let name = |task: u32| recorded.names.tasks[task as usize].clone();
    let event = |event: &cpumax_outcome::trace::TraceEvent| match event.what {
        What::Wake { task } => Some((event.time_ns, "wake", name(task))),
        What::Sleep { task } => Some((event.time_ns, "sleep", name(task))),
        What::Switch { next: Some(task) } => Some((event.time_ns, "switch", name(task))),
        _ => None,
    };
    recorded.events.iter().filter_map(event).collect()
}

/// Conditions where time is the host's, and tasks read their CPU time.
fn asks() -> Conditions {
    Conditions { page_ns: Some([35_000, 8_000]), ..Conditions::default() }
}

/// A kind of task, `a`, this many groups deep.
fn in_groups(levels: usize, task: &str) -> String {
    let groups =
        (1..=levels).map(|depth| ["[[group]]\npath = \"", &"/g".repeat(depth), "\"\n"].concat());
    let groups: String = groups.collect();
    let group = if levels > 0 { "/g".repeat(levels) } else { "/".to_owned() };
    format!("{groups}[[task]]\nname = \"a\"\ngroup = \"{group}\"\n{task}")
}

fn times(events: &Events, what: &str, task: &str) -> Vec<u64> {
    let those = events.iter().filter(|(_, kind, name)| *kind == what && name.starts_with(task));
    those.map(|(time_ns, ..)| *time_ns).collect()
}

#[test]
fn a_call_gives_way_after_a_page() {
    // The task is woken in the middle of a page of the call that begins at once. Entering the call
    // and the interrupt of the wakeup add to the pages.
    for (kernel_us, page_us) in [(9_000, 202..=203), (20_000, 205..=206)] {
        let tasks = format!(
            "[[task]]\nname = \"a\"\n\
             program = [{{ kernel = \"{kernel_us}us\" }}, {{ user = \"1s\" }}]\n\
             [[task]]\nname = \"b\"\nclass = \"rt\"\nstart = \"3100us\"\n\
             program = [{{ sleep = \"1ms\" }}, {{ user = \"10us\" }}]\n"
        );
        for seed in 1..=20 {
            let events = events("6.12", seed, None, &tasks);
            let woken = times(&events, "wake", "b").last().copied().expect("is woken");
            let came = times(&events, "switch", "b").last().copied().expect("comes");
            assert!(came - woken < 215 * US, "{} us, seed {seed}", (came - woken) / US);
            let pages = page_us.clone().any(|page| came / US % page < 75);
            assert!(pages, "{} us, seed {seed}", came / US);
        }
    }
}

#[test]
fn a_write_under_a_lock_gives_way_after_a_page_of_it() {
    let longest_us = |observed: Option<&Conditions>, more: &str| {
        let tasks = format!(
            "[[lock]]\nname = \"l\"\nkind = \"rwsem\"\n\
             [[task]]\nname = \"a\"\n\
             program = [{{ syscall = [{{ lock = \"l\", mode = \"write\" }}, \
             {{ kernel = \"20ms\" }}, {{ unlock = \"l\" }}] }}]\n\
             [[task]]\nname = \"b\"\nclass = \"rt\"\nstart = \"3100us\"\n\
             program = [{{ sleep = \"1ms\" }}, {{ user = \"10us\" }}]\n{more}"
        );
        let waited = (1..=20).map(|seed| {
            let events = events("6.12", seed, observed, &tasks);
            let woken = times(&events, "wake", "b").last().copied().expect("is woken");
            times(&events, "switch", "b").last().copied().expect("comes") - woken
        });
        waited.max().expect("are some") / US
    };
    // The interrupt and the switch add to the page.
    let page_us = longest_us(None, "");
    assert!((8..32).contains(&page_us), "{page_us} us");
    let page_ns = |page_ns| Conditions { page_ns: Some(page_ns), ..Conditions::default() };
    let slow_us = longest_us(Some(&page_ns([205_000, 120_000])), "");
    assert!((80..140).contains(&slow_us), "{slow_us} us");
    // With more than one reader it is no write, but reads in a list of requests.
    let readers = "[[task]]\nname = \"c\"\ncount = 2\nstart = \"50ms\"\n\
                   program = [{ syscall = [{ lock = \"l\", mode = \"read\" }, \
                   { kernel = \"1us\" }, { unlock = \"l\" }] }]\n";
    let list_us = longest_us(None, readers);
    assert!((120..225).contains(&list_us), "{list_us} us");
    let fast_us = longest_us(Some(&page_ns([35_000, 8_000])), readers);
    assert!((20..55).contains(&fast_us), "{fast_us} us");
}

#[test]
fn reading_cpu_time_charges_a_task_and_ends_a_used_up_slice() {
    // A slice of 0.7 ms; a tick comes every 4 ms.
    let tasks = "[[task]]\nname = \"a\"\ncount = 2\n\
                 program = [{ forever = [{ kernel = \"100us\" }, { user = \"100us\" }] }]\n";
    let switches = |observed| times(&events("6.12", 1, observed, tasks), "switch", "a").len();
    let asks = asks();
    let [rarely, often] = [switches(None), switches(Some(&asks))];
    assert!(rarely < 20 && often > 60, "{rarely} {often}");
}

#[test]
fn a_task_that_reads_its_cpu_time_makes_way_before_it_sleeps() {
    // Its call takes longer than a slice of 0.7 ms, and mostly ends before the next tick.
    let tasks = "[[task]]\nname = \"a\"\n\
                 program = [{ forever = [{ kernel = \"900us\" }, { sleep = \"1300us\" }] }]\n\
                 [[task]]\nname = \"b\"\nprogram = [{ user = \"1s\" }]\n";
    let asks = asks();
    let returns = |observed| {
        let events = events("6.18", 1, observed, tasks);
        let (slept, begun) = (times(&events, "sleep", "a"), times(&events, "switch", "a"));
        let only_sleeps = |slept: &&u64| begun.iter().any(|ns| (*ns..ns + 50 * US).contains(slept));
        slept.iter().filter(only_sleeps).count()
    };
    let [never, often] = [returns(None), returns(Some(&asks))];
    assert!(never == 0 && often > 5, "{never} {often}");
}

#[test]
fn a_task_with_a_nanosecond_stops_when_it_first_reads_its_cpu_time() {
    let text = include_str!("../../../../scenarios/thundering-wakes.toml");
    let used_usec = |observed| outcome("6.12", 1, observed, text).groups["/limited"].usage_usec;
    let [in_time, at_once] = [used_usec(None), used_usec(Some(&asks()))];
    assert!(in_time > 18_000 && at_once < 13_000, "{in_time} {at_once} us");
}

#[test]
fn a_task_that_reads_its_cpu_time_uses_what_it_was_to_work() {
    // Time of switches and interrupts is made up for after each sleep.
    let text = "name = \"s\"\nduration = \"2s\"\n[machine]\ncpus = 1\n[[task]]\nname = \"a\"\n\
                count = 2\n\
                program = [{ loop = 100, do = [{ user = \"5ms\" }, { sleep = \"1ms\" }, \
                { user = \"500us\" }, { sleep = \"1ms\" }] }]\n";
    for (kernel, seed) in ["6.12", "7.3"].iter().flat_map(|k| (1..=6).map(move |s| (k, s))) {
        let used_usec = outcome(kernel, seed, Some(&asks()), text).tasks["a"].usage_usec;
        assert!(used_usec.abs_diff(1_100_000) < 500, "{used_usec} us, seed {seed}");
    }
}

#[test]
fn a_span_of_sleep_begins_where_the_timer_is_set() {
    let tasks = "[[task]]\nname = \"a\"\n\
                 program = [{ forever = [{ sleep = \"1ms\" }, { user = \"50us\" }] }]\n";
    for kernel in ["6.12", "7.3"] {
        let events = events(kernel, 4, None, tasks);
        let (slept, woken) = (times(&events, "sleep", "a"), times(&events, "wake", "a"));
        let spans: Vec<u64> = slept.iter().zip(&woken[1..]).map(|(from, to)| to - from).collect();
        assert!(spans.len() > 40 && spans.iter().all(|&ns| ns == 1000 * US), "{spans:?}");
    }
}

#[test]
fn timers_that_expire_together_wake_one_task_after_the_other() {
    let tasks = "[[task]]\nname = \"a\"\ncount = 4\n\
                 program = [{ forever = [{ every = \"17ms\" }, { user = \"50us\" }] }]\n";
    for seed in 1..=6 {
        let woken = times(&events("6.18", seed, None, tasks), "wake", "a");
        let woken: Vec<u64> = woken.into_iter().filter(|&ns| ns > 0).collect();
        assert_eq!(woken.len(), 12);
        for four in woken.chunks(4) {
            assert_eq!(four[0] % (17_000 * US), 0);
            let apart: Vec<u64> = four.windows(2).map(|two| two[1] - two[0]).collect();
            assert!(apart.iter().all(|ns| (4_500..=8_100).contains(ns)), "{apart:?}");
        }
    }
}

#[test]
fn admitted_readers_are_woken_one_after_the_other() {
    let tasks = "[[lock]]\nname = \"l\"\nkind = \"rwsem\"\n\
        [[task]]\nname = \"writes\"\n\
        program = [{ syscall = [{ lock = \"l\", mode = \"write\" }, { kernel = \"20ms\" }, \
        { unlock = \"l\" }] },\n\
        { user = \"1ms\" }]\n\
        [[task]]\nname = \"reads\"\ncount = 3\nstart = \"5ms\"\n\
        program = [{ syscall = [{ lock = \"l\", mode = \"read\" }, { kernel = \"100us\" }, \
        { unlock = \"l\" }] }]\n";
    for (kernel, seed) in ["6.1", "6.12", "6.18", "7.3"].into_iter().zip(1..) {
        let events = events(kernel, seed, None, tasks);
        let woken = times(&events, "wake", "reads");
        let [first, second, third] = woken[woken.len() - 3..] else { panic!("{events:?}") };
        let turn = 4_500..=8_000;
        assert!(turn.contains(&(second - first)) && turn.contains(&(third - second)), "{woken:?}");
        let others = times(&events, "switch", "reads");
        assert!(others.iter().all(|came| !(first..third).contains(came)), "{events:?}");
    }
}

#[test]
fn arrivals_come_with_the_outside_task() {
    let tasks = "[[channel]]\nname = \"c\"\n[[source]]\nname = \"s\"\nchannel = \"c\"\n\
                 every = \"10ms\"\n\
                 [[task]]\nname = \"a\"\n\
                 program = [{ forever = [{ recv = \"c\" }, { user = \"50us\" }] }]\n";
    let observed = Conditions {
        outside_ns: vec![(0, 5 * US), (10_150 * US, 20 * US), (20_000 * US, 20 * US)],
        late_ns: vec![(10_000 * US, 10_150 * US)],
        ..Conditions::default()
    };
    let woken = times(&events("6.12", 3, Some(&observed), tasks), "wake", "a");
    let woken: Vec<u64> = woken.into_iter().filter(|&ns| ns > 0).collect();
    assert!((10_150 * US..10_180 * US).contains(&woken[0]), "{woken:?}");
    assert!((20_000 * US..20_030 * US).contains(&woken[1]), "{woken:?}");
}

#[test]
fn a_tick_charges_before_a_period_that_ends_while_it_lasts() {
    // 5 of 6.5 ms are taken and used up by the tick at 8 ms, which takes the rest; then the pool
    // is refilled. In the other order the rest is lost, and the end of 11.5 ms is noticed at 12 ms
    // instead of the end of 13 ms at 16.
    let text = "name = \"s\"\nduration = \"26ms\"\n[machine]\ncpus = 1\n[[group]]\npath = \"/g\"\n\
                max = \"6500 20000\"\n\
                [[task]]\nname = \"a\"\ngroup = \"/g\"\nprogram = [{ user = \"1s\" }]\n";
    let observed = Conditions {
        hz: Some(250),
        first_tick_ns: Some(0),
        first_edge_ns: [("/g".to_owned(), 8_003 * US)].into(),
        ..Conditions::default()
    };
    for (kernel, seed) in ["6.12", "6.19"].iter().flat_map(|k| (1..=4).map(move |s| (k, s))) {
        let used_usec = outcome(kernel, seed, Some(&observed), text).groups["/g"].usage_usec;
        assert!((15_900..16_100).contains(&used_usec), "{used_usec} us, seed {seed}");
    }
}

#[test]
fn interrupt_time_after_the_charge_counts_in_the_next_slice() {
    // The first slice of a new task is half a slice, and whole. Later ones began where the timer
    // charged. Each level of groups adds to that.
    for (levels, over_ns) in [(0, 2_100..3_200), (4, 6_000..8_600)] {
        let tasks = in_groups(levels, "count = 5\nprogram = [{ user = \"1s\" }]\n");
        for kernel in ["7.1", "7.2", "7.3"] {
            for seed in [3, 6, 9, 12] {
                let switches = times(&events(kernel, seed, None, &tasks), "switch", "a");
                let turns: Vec<u64> = switches.windows(2).map(|two| two[1] - two[0]).collect();
                let (first, later) = (turns[2] - 350 * US, turns[7] - 700 * US);
                assert!(over_ns.contains(&(first - later)), "{turns:?}, {kernel}, seed {seed}");
            }
        }
    }
}

#[test]
fn ticks_take_longer_in_deep_groups_and_so_does_work_in_the_kernel() {
    let done_us = |levels, seed| {
        let tasks = in_groups(levels, "program = [{ kernel = \"40ms\" }, { sleep = \"1s\" }]\n");
        times(&events("6.18", seed, None, &tasks), "sleep", "a")[0] / US
    };
    for seed in 1..=10 {
        let longer_us = done_us(3, seed) - done_us(0, seed);
        assert!((45..72).contains(&longer_us), "{longer_us} us, seed {seed}");
    }
}

#[test]
fn a_tick_charges_before_the_switch() {
    // The group runs out of runtime in the first tick or the second, which requests parking; then
    // its task parks.
    let text = "name = \"s\"\nduration = \"20ms\"\n[machine]\ncpus = 1\n[[group]]\npath = \"/g\"\n\
                max = \"3000 100000\"\n\
                [[task]]\nname = \"a\"\ngroup = \"/g\"\nprogram = [{ user = \"1s\" }]\n";
    let observed = Conditions { hz: Some(250), first_tick_ns: Some(0), ..Conditions::default() };
    for seed in 1..=9 {
        let (_, recorded) = recorded("7.2", seed, Some(&observed), text);
        let after_tick_ns = |found: fn(&What) -> bool| {
            let event = recorded.events.iter().find(|event| found(&event.what)).expect("happens");
            event.time_ns % (4_000 * US)
        };
        let charged_ns = after_tick_ns(|what| matches!(what, What::Throttle { .. }));
        let parked_ns = after_tick_ns(|what| matches!(what, What::Park { .. }));
        assert!((3_000..=14_000).contains(&charged_ns), "{charged_ns}, seed {seed}");
        assert!(parked_ns > charged_ns + 3_500, "{charged_ns}, {parked_ns}, seed {seed}");
    }
}

#[test]
fn absences_below_50_us_count_as_work() {
    // Also in a call: its work stays, and the work after it is shorter.
    for work in ["{ user = \"10ms\" }", "{ kernel = \"5ms\" }, { user = \"5ms\" }"] {
        for seed in 1..=20 {
            let done_us = |visit_us: u64| {
                let tasks = format!(
                    "[[task]]\nname = \"a\"\nprogram = [{work}, {{ sleep = \"1s\" }}]\n\
                     [[task]]\nname = \"b\"\nclass = \"rt\"\n\
                     program = [{{ sleep = \"2ms\" }}, {{ user = \"{visit_us}us\" }}, \
                     {{ sleep = \"1s\" }}]\n"
                );
                times(&events("6.18", seed, None, &tasks), "sleep", "a")[0] / US
            };
            let [short_us, long_us] = [done_us(10), done_us(90)];
            assert!((9_990..10_060).contains(&short_us), "{short_us} us, {work}, seed {seed}");
            assert!(long_us > short_us + 60, "{short_us} {long_us} us, {work}, seed {seed}");
        }
    }
}

#[test]
fn a_call_that_makes_a_task_less_important_takes_its_time() {
    let tasks = "[[task]]\nname = \"a\"\n\
                 program = [{ loop = 10, do = [{ nice = 5 }, { nice = 0 }] }, \
                 { sleep = \"1s\" }]\n";
    for seed in 1..=20 {
        let slept_us = times(&events("7.0", seed, None, tasks), "sleep", "a")[0] / US;
        assert!((80..210).contains(&slept_us), "{slept_us} us, seed {seed}");
    }
}

#[test]
fn calls_below_50_us_count_as_work() {
    let done_us = |calls: &str, seed| {
        let tasks = format!(
            "[[task]]\nname = \"a\"\nprogram = [{{ kernel = \"3ms\" }}, {calls}, \
             {{ user = \"5ms\" }}, {{ sleep = \"1s\" }}]\n"
        );
        times(&events("7.0", seed, None, &tasks), "sleep", "a")[0] / US
    };
    for seed in 1..=20 {
        let few_us = done_us("{ nice = 5 }", seed);
        let many_us = done_us("{ loop = 10, do = [{ nice = 5 }, { nice = 0 }] }", seed);
        assert!((7_985..8_035).contains(&few_us), "{few_us} us, seed {seed}");
        assert!((8_060..8_230).contains(&many_us), "{many_us} us, seed {seed}");
    }
}

#[test]
fn a_cpu_needs_some_time_to_choose_anew_at_the_end_of_a_call() {
    // A tick in its second call asks each task to make way, which it does where that call ends: 5
    // ms after it came, plus the switches.
    let tasks =
        "[[task]]\nname = \"a\"\ncount = 2\nprogram = [{ forever = [{ kernel = \"2500us\" }] }]\n";
    for kernel in ["6.18", "7.0"] {
        let turns_of = |seed: u64| {
            let switches = times(&events(kernel, seed, None, tasks), "switch", "a");
            let turns: Vec<u64> = switches.windows(2).map(|two| two[1] - two[0]).collect();
            turns.into_iter().filter(|turn| turn.abs_diff(5_000 * US) < 100 * US)
        };
        let turns: Vec<u64> = (1..=60).flat_map(turns_of).collect();
        let mean_us = turns.iter().sum::<u64>() / turns.len() as u64 / US;
        assert!(turns.len() > 100 && (5_012..=5_019).contains(&mean_us), "{mean_us} us, {kernel}");
    }
}

#[test]
fn a_tick_finds_what_is_over_before_it_has_charged() {
    // The tick charges some 6 to 11 us after 4 ms; until then more is used than there is.
    let text = "name = \"s\"\nduration = \"20ms\"\n[machine]\ncpus = 1\n[[group]]\npath = \"/g\"\n\
                max = \"4003 100000\"\n\
                [[task]]\nname = \"a\"\ngroup = \"/g\"\nprogram = [{ user = \"1s\" }]\n";
    let observed = Conditions { hz: Some(250), first_tick_ns: Some(0), ..Conditions::default() };
    for (kernel, seed) in
        ["6.1", "6.12", "6.18", "7.3"].iter().flat_map(|k| (1..=6).map(move |s| (k, s)))
    {
        let (outcome, _) = recorded(kernel, seed, Some(&observed), text);
        let used_usec = outcome.groups["/g"].usage_usec;
        assert!((4_003..4_030).contains(&used_usec), "{used_usec} us, {kernel}, seed {seed}");
    }
}

#[test]
fn nobody_pays_from_the_queue_s_end_of_a_park_to_the_switch() {
    // The group that is left behaves alike, as do those above that it is left in.
    for (kernel, seed) in ["6.18", "7.3"].iter().flat_map(|k| (1..=6).map(move |s| (k, s))) {
        let text = "name = \"s\"\nduration = \"90ms\"\n[machine]\ncpus = 1\n\
                    [[group]]\npath = \"/g\"\nmax = \"10000 100000\"\n[[group]]\npath = \"/g/h\"\n\
                    [[task]]\nname = \"a\"\ngroup = \"/g\"\ncount = 20\n\
                    program = [{ user = \"1s\" }]\n\
                    [[task]]\nname = \"b\"\ngroup = \"/g/h\"\nprogram = [{ user = \"1s\" }]\n";
        let first_edge_ns = [("/g".to_owned(), 100_000 * US)].into();
        let observed = Conditions { first_edge_ns, ..Conditions::default() };
        let (outcome, recorded) = recorded(kernel, seed, Some(&observed), text);
        let idle = |what: &What| matches!(what, What::Switch { next: None });
        let busy = recorded.events.iter().rfind(|event| idle(&event.what)).expect("goes idle");
        let unpaid_us = busy.time_ns / US - outcome.groups["/g"].usage_usec;
        assert!((50..82).contains(&unpaid_us), "{unpaid_us} us, {kernel}, seed {seed}");
    }
}

#[test]
fn a_tick_is_in_the_length_of_work_in_the_kernel_whoever_has_the_cpu_then() {
    let tasks = "[[task]]\nname = \"a\"\ncount = 2\n\
                 program = [{ kernel = \"20ms\" }, { sleep = \"1s\" }]\n";
    for (kernel, seed) in ["6.12", "7.0"].iter().flat_map(|k| (1..=6).map(move |s| (k, s))) {
        let events = events(kernel, seed, None, tasks);
        let switches = times(&events, "switch", "a").len();
        let done_us = times(&events, "sleep", "a")[1] / US;
        assert!(
            switches > 4 && (39_990..40_115).contains(&done_us),
            "{done_us} us, {kernel}, seed {seed}"
        );
    }
}

#[test]
fn a_task_without_runtime_before_its_autogroup_move_exits_in_the_next_period() {
    // To 6.17; from 6.18 on an exiting task is not throttled.
    let text = "name = \"s\"\nduration = \"110ms\"\n[machine]\ncpus = 1\n[[group]]\npath = \"/g\"\n\
                max = \"1000 100000\"\n\
                [[task]]\nname = \"a\"\ngroup = \"/g\"\nprogram = [{ user = \"996us\" }]\n";
    let first_edge_ns = [("/g".to_owned(), 100_000 * US)].into();
    let observed = Conditions { first_tick_ns: Some(0), first_edge_ns, ..Conditions::default() };
    for (kernel, late) in
        [("6.1", true), ("6.12", true), ("6.17", true), ("6.18", false), ("7.3", false)]
    {
        for seed in 1..=6 {
            let (outcome, _) = recorded(kernel, seed, Some(&observed), text);
            let ended_us = outcome.tasks["a"].finished_ns / US;
            let expected = if late { 100_000..100_200 } else { 1_020..1_110 };
            assert!(expected.contains(&ended_us), "{ended_us} us, {kernel}, seed {seed}");
        }
    }
}
