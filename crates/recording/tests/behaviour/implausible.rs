//! Recordings that lack something, or contradict any machine: repaired, or refused with the reason.

use cpumax_recording::{Error, Options, Recording, Selection};
use cpumax_workload::{Arrivals, Class, Op, Span};
use std::fmt::Write as _;

fn read(text: &str) -> Result<Recording, Error> {
    Recording::read_bytes("test", text.as_bytes(), Options::default())
}

fn refused(text: &str, says: &str) {
    let error = read(text).unwrap_err().to_string();
    assert!(error.starts_with("test: ") && error.contains(says), "{error}");
    assert!(error.len() < 400, "{error}");
}

/// `from` and `to` are `name/id`.
fn switch(us: u64, cpu: u32, from: &str, state: &str, to: &str) -> String {
    headed(us, cpu, from, from, state, to)
}

/// A switch whose line is headed by `head`, the thread that perf tells.
fn headed(us: u64, cpu: u32, head: &str, from: &str, state: &str, to: &str) -> String {
    let ((comm, tid), (prev, prev_pid), (next, next_pid)) = (
        head.rsplit_once('/').unwrap(),
        from.rsplit_once('/').unwrap(),
        to.rsplit_once('/').unwrap(),
    );
    format!(
        "{comm:>16} {tid:>5} [{cpu:03}] {}.{:06}: sched:sched_switch: prev_comm={prev} \
         prev_pid={prev_pid} prev_prio=120 prev_state={state} ==> \
         next_comm={next} next_pid={next_pid} next_prio=120\n",
        us / 1_000_000,
        us % 1_000_000
    )
}

fn wake(us: u64, cpu: u32, by: &str, tid: u32) -> String {
    let (comm, by) = by.split_once('/').unwrap();
    format!(
        "{comm:>16} {by:>5} [{cpu:03}] {}.{:06}: sched:sched_waking: comm=a pid={tid} prio=120 \
         target_cpu={cpu:03}\n",
        us / 1_000_000,
        us % 1_000_000
    )
}

fn runtime_ns(recording: &Recording, tid: i32) -> u64 {
    let summary = recording.summary();
    summary.threads.iter().find(|thread| thread.tid == tid).map_or(0, |thread| thread.runtime_ns)
}

const IDLE: &str = "swapper/0";
const MS: u64 = 1_000_000;

#[test]
fn a_cpu_whose_thread_is_not_known_runs_nobody() {
    let text = switch(1_000_000, 0, "a/11", "S", IDLE)
        + &wake(8_990_000, 0, IDLE, 11)
        + &switch(8_990_001, 0, IDLE, "R", "a/11")
        + &switch(9_000_000, 0, "a/11", "R", "b/12")
        + &switch(9_010_000, 1, IDLE, "R", "b/12")
        + &switch(9_011_000, 1, "b/12", "S", IDLE)
        + &switch(9_020_000, 0, "a/11", "S", IDLE);
    let recording = read(&text).unwrap();
    let ran_ns = runtime_ns(&recording, 11);
    assert!((9 * MS..=40 * MS).contains(&ran_ns), "{ran_ns}");
    assert!(runtime_ns(&recording, 12) <= 11 * MS);
    assert_eq!(recording.defects().mismatched_switches, 1);
}

#[test]
fn a_stay_ends_with_the_last_event_of_its_cpu() {
    let text = switch(1_000_000, 0, IDLE, "R", "a/11")
        + &switch(1_001_000, 0, "a/11", "S", IDLE)
        + &switch(1_010_000, 0, IDLE, "R", "a/11")
        + &switch(2_000_000, 1, IDLE, "R", "a/11")
        + &switch(2_001_000, 1, "a/11", "S", IDLE)
        + &switch(2_500_000, 0, IDLE, "R", "b/12")
        + &switch(2_501_000, 0, "b/12", "S", IDLE);
    assert_eq!(runtime_ns(&read(&text).unwrap(), 11), 2 * MS);
}

#[test]
fn a_recording_begins_where_every_cpu_has_events() {
    let mut text = "# tracer: nop\n# entries-in-buffer/entries-written: 7/407   #P:2\n".to_owned();
    text += &switch(0, 0, "long/3", "R", "a/11");
    text += &switch(300_000, 0, "a/11", "S", IDLE);
    text += &switch(500_000, 1, "b/12", "S", "c/13");
    text += &switch(500_100, 0, IDLE, "R", "a/11");
    text += &switch(510_100, 0, "a/11", "S", IDLE);
    text += &switch(520_000, 1, "c/13", "S", IDLE);
    let recording = read(&text).unwrap();
    assert_eq!(recording.span_ns(), 20 * MS);
    assert_eq!(runtime_ns(&recording, 11), 10 * MS);
    assert_eq!((runtime_ns(&recording, 3), runtime_ns(&recording, 12)), (0, 0));
    assert_eq!(runtime_ns(&recording, 13), 20 * MS);
    let defects = recording.defects();
    assert_eq!((defects.overwritten_events, defects.left_out_ns), (400, 500 * MS));
    assert!(defects.to_string().starts_with("400 events of the beginning overwritten"));
    // Nothing was overwritten: all of it counts.
    let whole = text.replace("7/407", "7/7");
    assert_eq!(runtime_ns(&read(&whole).unwrap(), 11), 310 * MS);
}

#[test]
fn events_that_one_cpu_lost() {
    for (line, lost) in [("CPU:0 [LOST 141 EVENTS]\n", 141), ("CPU:0 [EVENTS DROPPED]\n", 1)] {
        let text = switch(0, 0, IDLE, "R", "a/11")
            + &switch(1_000, 0, "a/11", "R", "b/12")
            + line
            + &switch(900_000, 0, "c/13", "S", "a/11")
            + &switch(901_000, 0, "a/11", "S", IDLE);
        let recording = read(&text).unwrap();
        assert_eq!(recording.defects().lost_events, lost);
        assert_eq!(recording.defects().unreadable_lines, 0);
        assert_eq!(recording.defects().mismatched_switches, 0);
        assert_eq!(runtime_ns(&recording, 11), 2 * MS);
        assert_eq!((runtime_ns(&recording, 12), runtime_ns(&recording, 13)), (0, 0));
    }
}

#[test]
fn without_wakeups_a_switch_in_a_sleeping_state_is_a_wait() {
    // Two threads take turns; each sleeps 10 ms.
    let mut text = String::new();
    for i in 0..20 {
        let us = 10_000 * i;
        text += &switch(us, 0, IDLE, "R", "a/11");
        text += &switch(us + 1_000, 0, "a/11", "S", "b/12");
        text += &switch(us + 2_000, 0, "b/12", "S", "a/11");
        text += &switch(us + 3_000, 0, "a/11", "S", IDLE);
    }
    let waits = |text: &str| {
        let recording = read(text).unwrap();
        let summary = recording.summary();
        let a = summary.threads.iter().find(|thread| thread.tid == 11).unwrap();
        let workload = recording.workload(&Selection::default()).unwrap();
        let task = workload.tasks.iter().find(|task| task.name == "a/11").unwrap();
        let longest = task.program.iter().map(|op| match *op {
            Op::User(Span::Fixed(ns)) => ns,
            _ => 0,
        });
        (a.waits, a.guessed_waits, a.merged_waits, longest.max().unwrap())
    };
    assert_eq!(waits(&text), (39, 39, 0, MS));
    // With wakeups elsewhere, the thread ran on.
    let woken = text + &wake(199_000, 0, IDLE, 99);
    assert_eq!(waits(&woken), (19, 19, 20, 2 * MS));
}

#[test]
fn threads_that_begin_later_do_not_begin_before() {
    let text = switch(0, 0, "a/11", "S", "b/12")
        + &switch(5_000, 0, "b/12", "S", IDLE)
        + &switch(50_000, 0, IDLE, "R", "c/13")
        + &switch(51_000, 0, "c/13", "S", IDLE);
    let workload = read(&text).unwrap().workload(&Selection::default()).unwrap();
    let Arrivals::At(times) = &workload.sources[0].arrivals else { panic!("no times") };
    assert_eq!((workload.sources[0].name.as_str(), &times[..]), ("clock of c/13", &[50 * MS][..]));
}

#[test]
fn ids_of_a_container() {
    let mut text = String::new();
    for i in 0..30 {
        text += &headed(2000 * i, 0, "a/2", "a/4524", "S", "b/4525");
        text += &headed(2000 * i + 1000, 0, "b/3", "b/4525", "S", "a/4524");
    }
    refused(&text, "container");
}

#[test]
fn one_process_alone() {
    let mut text = String::new();
    for i in 0..40 {
        let (a, b) = (format!("a/{}", 11 + i % 3), format!("other/{}", 100 + i));
        text += &switch(2000 * i, (i % 2) as u32, &a, "S", &b);
    }
    refused(&text, "thread switches are missing");
}

#[test]
fn a_sample_of_the_switches() {
    let text = switch(0, 0, "a/11", "S", "b/12")
        + &switch(9, 0, "b/12", "S", "a/11").replace(" sched:", "     7 sched:");
    refused(&text, "line 2: it holds a sample of the thread switches");
    let each = switch(0, 0, "a/11", "S", "b/12").replace(" sched:", "     1 sched:");
    assert!(read(&each).is_ok());
}

#[test]
fn lines_without_the_thread() {
    let mut text = switch(0, 0, "worker/11", "S", "b/12");
    for i in 1..60 {
        let line = switch(i * 1000, 0, "worker/11", "S", "b/12");
        text += &line.replace("worker    11 [000]", "worker [000]");
    }
    refused(
        &text,
        "59 of 60 lines cannot be read: line 2 is an event without its thread's id: `worker [000] ",
    );
}

#[test]
fn more_cpu_time_than_there_was() {
    let ran = |us: u64, ns: u64| {
        format!(
            " a    11 [000] 0.{us:06}: sched:sched_stat_runtime: comm=a pid=11 \
             runtime={ns} [ns]\n"
        )
    };
    // Charged again and again while it is not on a CPU.
    let mut text = switch(0, 0, IDLE, "R", "a/11") + &switch(10, 0, "a/11", "R", "b/12");
    for i in 0..50 {
        text += &ran(100_000 + i, 90_000_000 + i).replace("a    11 [000]", "b    12 [000]");
    }
    text += &switch(200_000, 0, "b/12", "R", "a/11");
    text += &switch(200_010, 0, "a/11", "S", IDLE);
    refused(&text, "the thread a/11 used 4500");
}

#[test]
fn names_of_many_threads_before_the_first_event() {
    let mut text = String::new();
    for tid in 30_000..42_000 {
        writeln!(text, " swapper 0 [000] 0.000000: PERF_RECORD_COMM: java:{tid}/{tid}").unwrap();
    }
    text += &switch(1_000_000, 0, "java/30001", "S", "java/30002");
    text += &switch(1_001_000, 0, "java/30002", "S", IDLE);
    assert_eq!(runtime_ns(&read(&text).unwrap(), 30_002), MS);
}

#[test]
fn ftrace_with_its_column_of_processes() {
    let text = "# tracer: nop\n#           TASK-PID    TGID   CPU#  ||||    TIMESTAMP  FUNCTION\n\
        <idle>-0     (-----) [000] d..2  1.465062: sched_switch: prev_comm=swapper/0 \
         prev_pid=0 prev_prio=120 prev_state=R \
         ==> next_comm=my (1) x next_pid=501 next_prio=120\n\
        my (1) x-501   (  500) [000] d..2  1.475062: sched_switch: prev_comm=my (1) x \
         prev_pid=501 prev_prio=120 prev_state=S \
         ==> next_comm=swapper/0 next_pid=0 next_prio=120\n";
    let recording = read(text).unwrap();
    let thread = &recording.summary().threads[0];
    assert_eq!((thread.comm.as_str(), thread.tid, thread.pid), ("my (1) x", 501, Some(500)));
    assert_eq!(thread.runtime_ns, 10 * MS);
}

#[test]
fn the_least_priority_there_can_be() {
    let line = |at: u32, prev: &str, next: &str| {
        format!(
            "  any 0 [000] 1.{at:06}: sched:sched_switch: {prev} prev_state=S ==> {next}\n",
            prev = prev.replace('_', "prev_"),
            next = next.replace('_', "next_"),
        )
    };
    let (idle, least) = ("_comm=swapper/0 _pid=0 _prio=120", "_comm=w _pid=501 _prio=-2147483648");
    let usual = "_comm=w _pid=501 _prio=120";
    let text = line(0, idle, least) + &line(30, least, idle) + &line(40, idle, usual);
    let recording = read(&(text + &line(50, usual, idle))).unwrap();
    let workload = recording.workload(&Selection::default()).unwrap();
    assert_eq!(workload.tasks[0].class, Class::Rt);
}

#[test]
fn fields_printed_raw() {
    let line = |at: &str, head: &str, prev: &str, state: &str, next: &str| {
        format!("{head} [000]  {at}: sched_switch: {prev} prev_state={state} {next}\n")
    };
    let text = "version = 6\ncpus=2\nCPU 1 is empty\n".to_owned()
        + &line(
            "1.465062",
            "<idle>-0",
            "prev_comm=swapper/0 prev_pid=0 prev_prio=120",
            "0",
            "next_comm=w next_pid=501 next_prio=120",
        )
        + &line(
            "1.475062",
            "w-501",
            "prev_comm=w prev_pid=0x1f5 (501) prev_prio=0x78 (120)",
            "0x1 (1)",
            "next_comm=swapper/0 next_pid=0x0 (0) next_prio=0x78 (120)",
        )
        + &line(
            "1.485062",
            "<idle>-0",
            "prev_comm=swapper/0 prev_pid=0 prev_prio=120",
            "0",
            "next_comm=w next_pid=501 next_prio=120",
        );
    let recording = read(&text).unwrap();
    assert_eq!(runtime_ns(&recording, 501), 10 * MS);
    assert_eq!((recording.cpus(), recording.summary().threads[0].waits), (2, 1));
    assert_eq!(recording.defects().unreadable_lines, 0);
}

#[test]
fn nobody_wakes_before_sleeping() {
    // It slept on CPU 0 at 100 us. On CPU 1, without events since 50 us, it is charged for more
    // than the time since it slept.
    let text = switch(50, 1, IDLE, "R", "b/12")
        + &switch(60, 0, IDLE, "R", "a/11")
        + &switch(100, 0, "a/11", "S", IDLE)
        + "a 11 [001] 0.000300: sched:sched_stat_runtime: comm=a pid=11 runtime=240000 [ns]\n";
    let recording = read(&text).unwrap();
    assert_eq!(runtime_ns(&recording, 11), 240_000);
    let workload = recording.workload(&Selection::default()).unwrap();
    let Arrivals::At(times) = &workload.sources[0].arrivals else { panic!("no times") };
    assert_eq!(times.last(), Some(&50_000), "not before 100 us: {times:?}");
}

#[test]
fn without_a_head_the_cpus_are_those_with_events() {
    let text = switch(0, 4095, IDLE, "R", "ksoftirqd/4095/30")
        + &switch(1_000, 2, IDLE, "R", "a/11")
        + &switch(2_000, 2, "a/11", "S", IDLE)
        + &switch(3_000, 4095, "ksoftirqd/4095/30", "S", IDLE);
    let recording = read(&text).unwrap();
    assert_eq!((recording.cpus(), runtime_ns(&recording, 30)), (2, 3 * MS));
    let workload = recording.workload(&Selection::default()).unwrap();
    let of_the_cpu = workload.tasks.iter().find(|task| task.name.starts_with("ksoftirqd")).unwrap();
    let cpumax_workload::Affinity::Set(set) = of_the_cpu.cpus else { panic!("bound to no CPU") };
    assert_eq!(workload.cpu_sets[set as usize].0, [1], "the second of two");
    let head = "# nrcpus online : 4096\n".to_owned();
    assert_eq!(read(&(head + &text)).unwrap().cpus(), 4096, "a head is believed");
}

#[test]
fn more_threads_than_a_machine_has() {
    // Threads that are announced and do nothing are not kept.
    let mut text = String::new();
    for tid in 1..100_000 {
        writeln!(text, "t {tid} [000] 0.000000: PERF_RECORD_COMM: t:{tid}/{tid}").unwrap();
    }
    text += &(switch(1_000, 0, IDLE, "R", "a/70000") + &switch(2_000, 0, "a/70000", "S", IDLE));
    let recording = read(&text).unwrap();
    assert_eq!(recording.summary().threads.len(), 1);
    assert_eq!(recording.summary().threads[0].pid, Some(70_000));
    // Each does something.
    let chain = |threads: u64| -> String {
        let each = |n| switch(n, 0, &format!("a/{n}"), "S", &format!("a/{}", n + 1));
        (1..threads).map(each).collect()
    };
    assert!(read(&chain(1 << 16)).is_ok());
    refused(&chain((1 << 16) + 1), "more than 65536 threads did something");
}

#[test]
fn cpus_that_the_head_does_not_know() {
    let head = "# nrcpus online : 2\n# nrcpus avail : 2\n";
    let text = switch(0, 0, IDLE, "R", "a/11")
        + &switch(1_000, 63, IDLE, "R", "a/11")
        + &switch(2_000, 0, "a/11", "S", IDLE);
    let recording = read(&(head.to_owned() + &text)).unwrap();
    assert_eq!((recording.cpus(), recording.defects().impossible_cpus), (2, 1));
    assert_eq!(runtime_ns(&recording, 11), 2 * MS);
}

#[test]
fn groups_too_deep_for_any_kernel() {
    for (path, refuse) in [
        ("/a".repeat(64), false),
        ("/a".repeat(65), true),
        ("/".to_owned() + &"a".repeat(4096), true),
    ] {
        let text = format!(" swapper 0 [000] 0.000000: PERF_RECORD_CGROUP cgroup: 41 {path}\n")
            + &switch(0, 0, "a/11", "S", "b/12");
        if refuse {
            refused(&text, "at most 4096 bytes and 64 groups");
        } else {
            read(&text).unwrap();
        }
    }
}

#[test]
fn a_parent_that_never_ran_is_known_by_its_children() {
    let note = |pid: u32, parent: u32| {
        format!(
            " swapper 0 [000] 0.000000: PERF_RECORD_COMM: nginx:{pid}/{pid}\n \
             swapper 0 [000] 0.000000: PERF_RECORD_FORK({pid}:{pid}):({parent}:{parent})\n"
        )
    };
    let text = note(70, 1)
        + &note(72, 71)
        + &note(71, 70)
        + &switch(0, 0, "a/11", "S", "nginx/72")
        + &switch(1_000, 0, "nginx/72", "S", "a/11")
        + &switch(2_000, 0, "a/11", "S", IDLE);
    // perf names a thread's own process as its parent.
    let thread = " swapper 0 [000] 0.000000: PERF_RECORD_COMM: nginx:71/74\n \
                  swapper 0 [000] 0.000000: PERF_RECORD_FORK(71:74):(71:71)\n";
    let text = thread.to_owned()
        + &text
        + &switch(3_000, 0, IDLE, "R", "nginx/74")
        + &switch(4_000, 0, "nginx/74", "S", IDLE);
    let recording = read(&text).unwrap();
    for (pattern, count) in
        [("pid:70", 2), ("pid:71", 2), ("pid:72", 1), ("pid:11", 1), ("pid:73", 0)]
    {
        let selection =
            Selection { limited: vec![pattern.parse().unwrap()], ..Selection::default() };
        let workload = recording.workload(&selection).unwrap();
        let chosen = workload.tasks.iter().filter(|task| task.group != 0).count();
        assert_eq!(chosen, count, "{pattern}");
    }
}
