//! Each kind of gap in a recording is found, and judged doubtful where it is large.

use super::traces::{IDLE, MS, Trace, runtime_ns};
use cpumax_recording::{GapKind, Options, Recording, Selection};
use cpumax_workload::Op;

/// Two threads on two CPUs, each working 3 ms of every 10 ms, for `ms` ms.
fn service(ms: u64) -> Trace {
    let mut trace = Trace::perf(2);
    for at in 0..ms / 10 {
        trace.burst(at * 10 * MS, 0, "svc/101", 3 * MS);
        trace.burst((at * 10 + 5) * MS, 1, "svc/102", 3 * MS);
    }
    trace
}

fn doubted(trace: &Trace) -> Vec<GapKind> {
    let gaps = trace.read().gaps();
    gaps.iter().filter(|gap| gap.doubtful).map(|gap| gap.kind).collect()
}

fn kinds(recording: &Recording) -> Vec<GapKind> {
    recording.gaps().iter().map(|gap| gap.kind).collect()
}

/// The sentence about a gap.
fn told(recording: &Recording, kind: GapKind) -> String {
    let gaps = recording.gaps();
    let gap = gaps.iter().find(|gap| gap.kind == kind);
    gap.unwrap_or_else(|| panic!("{kind:?} is not among {gaps:?}")).told.clone()
}

#[test]
fn a_whole_recording_lacks_nothing_that_matters() {
    assert_eq!(doubted(&service(2_000)), []);
    assert_eq!(kinds(&service(2_000).read()), [GapKind::Context]);
}

#[test]
fn cpus_of_which_nothing_was_recorded() {
    let mut trace = service(2_000);
    trace.wake(10 * MS, 0, IDLE, "mover/103");
    let trace = trace.only_cpus(&[0]);
    assert_eq!(doubted(&trace), [GapKind::Cpus]);
    let short = service(100).only_cpus(&[0]);
    assert_eq!(doubted(&short), [], "a CPU may be idle");
    assert!(told(&short.read(), GapKind::Cpus).contains("1 of 2 CPUs have events"));
    let chosen = short.command("perf sched record -C 0 -- sleep 2");
    assert_eq!(doubted(&chosen), [GapKind::Cpus]);
    assert!(told(&chosen.read(), GapKind::Cpus).contains("`-C 0`"));
    let together = short.command("perf sched record -aC0 -- sleep 2");
    assert!(told(&together.read(), GapKind::Cpus).contains("`-aC0`"));
    assert_eq!(doubted(&together), [GapKind::Cpus]);
    let event = short.command("perf record -a -eC0 -- sleep 2");
    assert_eq!(doubted(&event), [], "the value of another option");
    let of_the_program = short.command("perf sched record -a -- taskset -C 0");
    assert_eq!(doubted(&of_the_program), []);
}

#[test]
fn threads_that_ran_where_nothing_was_recorded() {
    // No head tells the number of CPUs. A thread is woken here and runs on a CPU without events.
    let mut trace = service(2_000).only_cpus(&[0]).headless();
    for at in 0..100 {
        trace.wake((at * 20 + 7) * MS, 0, IDLE, "far/104");
    }
    assert_eq!(doubted(&trace), [GapKind::Runs]);
}

#[test]
fn wakeups_that_name_another_cpu_than_a_thread_left() {
    let mut trace = Trace::perf(2);
    for at in 0..200 {
        trace.burst(at * 10 * MS, at as u32 % 2, "svc/101", 3 * MS);
    }
    let lacks_some = trace.without(|ns, _| ns / (10 * MS) % 4 == 3);
    assert_eq!((doubted(&trace), doubted(&lacks_some)), (vec![], vec![GapKind::Runs]));
    // Another event, which names the next CPU; and a number that means something else.
    let wakeup = lacks_some.map(|line| vec![line.replace("sched_waking", "sched_wakeup")]);
    let swapped = |line: &str| {
        let (head, cpu) = line.split_once("target_cpu=00").unwrap_or((line, ""));
        let other = if cpu == "1" { "0" } else { "1" };
        vec![if cpu.is_empty() { line.to_owned() } else { format!("{head}target_cpu=00{other}") }]
    };
    assert_eq!((doubted(&wakeup), doubted(&trace.map(swapped))), (vec![], vec![]));
}

#[test]
fn cpus_that_events_name() {
    let to = |cpu: u32| move |line: &str| vec![line.replace("=000", &format!("={cpu:03}"))];
    let named = service(2_000).only_cpus(&[0]).headless().map(to(1));
    assert_eq!(doubted(&named), [GapKind::Cpus]);
    let told = told(&named.read(), GapKind::Cpus);
    assert!(told.starts_with("1 of 2 CPUs have events; the others are not recorded;"), "{told}");
    let mut once = service(100).only_cpus(&[0]).headless();
    assert_eq!(kinds(&once.read()), [GapKind::Context]);
    once.wake(95 * MS, 0, IDLE, "far/104");
    let once =
        once.map(|line| if line.contains("pid=104") { to(1)(line) } else { vec![line.to_owned()] });
    assert_eq!(kinds(&once.read()), [GapKind::Cpus, GapKind::Context]);
    assert_eq!(doubted(&once), [], "it may have been there before");
    let mut moved = service(100).only_cpus(&[0]).headless();
    let migration = "sched:sched_migrate_task: comm=svc pid=101 prio=120 orig_cpu=0 dest_cpu=3";
    moved.event(50 * MS, 0, IDLE, migration);
    assert_eq!(doubted(&moved), [GapKind::Cpus]);
}

#[test]
fn cpus_whose_begin_or_end_is_missing() {
    let gone = |from_ms: u64, to_ms: u64| {
        service(3_000).headless().without(move |ns, line| {
            line.contains(" [001] ") && (from_ms * MS..to_ms * MS).contains(&ns)
        })
    };
    for part in [gone(0, 700), gone(2_250, 3_000)] {
        assert_eq!(doubted(&part), [GapKind::Cpus]);
        let told = told(&part.read(), GapKind::Cpus);
        assert!(told.starts_with("CPU 1 has no event for 0.7 s"), "{told}");
    }
    assert_eq!(doubted(&gone(0, 20)), []);
    // The other CPU pauses before.
    let pause = |ns: u64| (100 * MS..700 * MS).contains(&ns);
    let paused = gone(2_000, 3_000).without(|ns, line| pause(ns) && line.contains(" [000] "));
    assert!(told(&paused.read(), GapKind::Cpus).starts_with("CPU 1 has no event for 0.9 s"));
    let within_a_burst = gone(1_506, 3_000);
    assert_eq!(runtime_ns(&within_a_burst.read(), 102), 150 * 3 * MS, "not to the end");
    assert_eq!(doubted(&within_a_burst), [GapKind::Cpus]);
    // A thread that begins or ends within the recording leaves its CPU idle.
    let born = gone(0, 700).map(|line| vec![line.replace("102", "103")]);
    let mut forked = born.clone();
    let fork = "sched:sched_process_fork: comm=svc pid=101 child_comm=svc child_pid=103";
    forked.event(699 * MS, 0, "svc/101", fork);
    assert_eq!((doubted(&born), doubted(&forked)), (vec![GapKind::Cpus], vec![]));
}

#[test]
fn a_short_stop_while_a_thread_is_on_a_cpu() {
    let stopped = |later_ms: u64| {
        let at_ns = 1_001 * MS;
        let mut trace = service(2_000).without(|ns, _| ns >= at_ns);
        trace.append(service(2_000).without(|ns, _| ns < at_ns), later_ms * MS);
        trace
    };
    let recording = stopped(400).read();
    assert!(told(&recording, GapKind::Silence).contains("1 interval, 0.4 s together"));
    let (span_ms, used_ms) = (recording.span_ns() / MS, runtime_ns(&recording, 101) / MS);
    assert!((1_990..=2_010).contains(&span_ms) && (597..=600).contains(&used_ms), "{used_ms}");
    assert_eq!(kinds(&stopped(50).read()), [GapKind::Context]);
    // An idle machine may be silent.
    let mut idle = service(1_000);
    idle.append(service(1_000), 1_400 * MS);
    assert_eq!(kinds(&idle.read()), [GapKind::Context]);
}

#[test]
fn events_of_one_thread() {
    let mut trace = Trace::perf(2);
    let (mut now_ns, others) = (0, ["o0/400", "o1/401", "o2/402"]);
    for at in 0..40 {
        let (from, to) = (others[at % 3], others[(at + 1) % 3]);
        trace.wake(now_ns, 0, from, "web/301");
        trace.switch(now_ns + 2_000, 0, from, "R", "web/301");
        trace.switch(now_ns + 5 * MS, 0, "web/301", "S", to);
        now_ns += 20 * MS;
    }
    assert_eq!(doubted(&trace.headless()), [GapKind::Threads]);
    let told = told(&trace.headless().read(), GapKind::Threads);
    assert!(told.contains("web/301 is part of every thread switch"), "{told}");
    let whole = service(200).command("perf record -a -e sched:sched_switch --filter prev_pid==7");
    assert_eq!(doubted(&whole), [GapKind::Threads]);
    // A thread that takes all of a CPU is part of each of its switches, too.
    let mut busy = Trace::perf(1);
    for at in 0..40 {
        let (other, ns) = (others[at % 3], at as u64 * 10 * MS);
        busy.wake(ns, 0, "hog/7", other);
        busy.switch(ns + 1_000, 0, "hog/7", "R", other);
        busy.switch(ns + MS, 0, other, "S", "hog/7");
    }
    assert_eq!(doubted(&busy), []);
}

#[test]
fn a_stretch_without_events_is_no_time() {
    let mut trace = service(2_000);
    trace.append(service(2_000), 3_600_000 * MS);
    let recording = trace.read();
    let (span_ms, used_ns) = (recording.span_ns() / MS, runtime_ns(&recording, 101));
    assert!((3_990..=4_010).contains(&span_ms), "{span_ms} ms");
    assert_eq!(used_ns, 400 * 3 * MS);
    assert_eq!(doubted(&trace), []);
    assert!(told(&recording, GapKind::Silence).contains("1 interval, 3598.0 s together"));
    // Without charges a thread may have run meanwhile.
    let mut busy = service(2_000).uncharged();
    busy.wake(2_001 * MS, 0, IDLE, "svc/101");
    busy.switch(2_002 * MS, 0, IDLE, "R", "svc/101");
    let mut rest = Trace::perf(2);
    rest.switch(10_000 * MS, 0, "svc/101", "S", IDLE);
    busy.append(rest, 0);
    assert_eq!(doubted(&busy), [GapKind::Silence]);
    assert_eq!(runtime_ns(&busy.read(), 101), 200 * 3 * MS + 7_998 * MS);
}

#[test]
fn events_that_were_lost() {
    let lost = |events: u64| {
        let mut trace = service(2_000);
        trace.line(1_000 * MS, &format!("    svc 101 [000] 1.0: PERF_RECORD_LOST lost {events}"));
        trace
    };
    // 1600 events are there.
    assert_eq!((doubted(&lost(40)), doubted(&lost(100))), (vec![], vec![GapKind::Lost]));
    assert!(told(&lost(40).read(), GapKind::Lost).starts_with("40 of 1640 events were lost"));
    let gone = |ns: u64| (1_000 * MS..1_300 * MS).contains(&ns);
    let mut of_a_cpu = service(2_000).without(|ns, line| gone(ns) && line.contains(" [001] "));
    of_a_cpu.line(1_000 * MS, "CPU:1 [LOST 5 EVENTS]");
    assert_eq!(doubted(&of_a_cpu), [GapKind::Lost], "a seventh of the time of a CPU");
}

#[test]
fn cpus_that_the_head_does_not_have() {
    let moved = |from_ms: u64, to_ms: u64| {
        let mut trace = service(2_000).without(|ns, line| {
            (from_ms * MS..to_ms * MS).contains(&ns) && line.contains(" [001] ")
        });
        for at in from_ms / 10..to_ms / 10 {
            trace.burst((at * 10 + 5) * MS, 7, "svc/102", 3 * MS);
        }
        trace
    };
    // A burst has 4 events, of 1600.
    assert_eq!(doubted(&moved(1_000, 1_100)), [], "2.5 %");
    let few = told(&moved(1_000, 1_100).read(), GapKind::Lost);
    assert!(few.starts_with("40 of 1600 events were lost or cannot be read (2 %)"), "{few}");
    assert_eq!(doubted(&moved(1_000, 1_160)), [GapKind::Lost], "4 %");
    let many = moved(0, 2_000);
    assert_eq!(doubted(&many), [GapKind::Cpus]);
    assert!(told(&many.read(), GapKind::Cpus).contains("its number of CPUs is not right"));
    // The time of the first event that counts is the beginning.
    let late = service(2_000).map(|line| vec![line.replace(" [000] ", " [009] ")]);
    assert_eq!(late.read().span_ns(), 1_993 * MS + 2_000);
}

#[test]
fn a_recording_that_was_cut_off() {
    let text = service(500).text();
    let cut = Recording::read_bytes("cut", &text.as_bytes()[..text.len() - 9], Options::default());
    assert!(kinds(&cut.unwrap()).contains(&GapKind::Cut));
}

#[test]
fn charges_that_cannot_be() {
    let twice = service(500).map(|line| {
        let charge = line.contains("sched_stat_runtime").then(|| line.to_owned());
        [Some(line.to_owned()), charge].into_iter().flatten().collect()
    });
    let recording = twice.read();
    assert_eq!(recording.defects().doubled_events, 100);
    assert_eq!(runtime_ns(&recording, 101), 50 * 3 * MS, "the second is passed over");
    assert_eq!(doubted(&twice), []);
    let more = service(500).map(|line| vec![line.replace("runtime=3000000", "runtime=6000000")]);
    assert_eq!(doubted(&more), [GapKind::ImpossibleCharges]);
    let switches = service(500)
        .map(|line| vec![line.to_owned(); if line.contains("sched_switch") { 2 } else { 1 }]);
    assert_eq!(runtime_ns(&switches.read(), 101), 50 * 3 * MS);
}

#[test]
fn time_that_others_took() {
    let mut nr = 0;
    let stolen = service(500).map(|line| {
        nr += usize::from(line.contains("runtime="));
        let left = ["runtime=500000", "runtime=2500000"][nr % 2];
        vec![line.replace("runtime=3000000", left)]
    });
    let recording = stolen.read();
    let used_ns = runtime_ns(&recording, 101) + runtime_ns(&recording, 102);
    assert_eq!(used_ns, 100 * 3 * MS / 2);
    assert!(told(&recording, GapKind::Stolen).starts_with("50 % of the time"));
    assert_eq!(doubted(&stolen), [GapKind::Stolen]);
    let uncharged = service(500).uncharged().read();
    assert!(told(&uncharged, GapKind::Charges).contains("time taken by the host"));
}

#[test]
fn threads_that_no_limit_holds() {
    let real_time = |bursts: std::ops::Range<u64>| {
        let mut trace = Trace::perf(2);
        for at in 0..100 {
            trace.prio = if bursts.contains(&at) { 49 } else { 120 };
            trace.burst(at * 10 * MS, 0, "work/301", 3 * MS);
        }
        trace
    };
    assert_eq!(doubted(&real_time(0..100)), [GapKind::RealTime]);
    assert!(
        told(&real_time(0..100).read(), GapKind::RealTime).contains("(work): cpu.max does not")
    );
    // A boost lasts for the stay in which it is seen.
    let class = |trace: &Trace| {
        let workload = trace.read().workload(&Selection::default()).unwrap();
        workload.tasks.iter().find(|task| task.name == "work/301").unwrap().class
    };
    assert_eq!(doubted(&real_time(99..100)), []);
    assert_eq!(class(&real_time(99..100)), cpumax_workload::Class::Fair);
    assert_eq!(class(&real_time(40..100)), cpumax_workload::Class::Rt);
    // A part of a thread's work is enough, whichever class has most of it.
    for part in [48..100, 60..100, 90..100] {
        assert_eq!(doubted(&real_time(part)), [GapKind::RealTime]);
    }
    let half = told(&real_time(48..100).read(), GapKind::RealTime);
    assert!(half.starts_with("52 % of the CPU time is of a real-time class (work)"), "{half}");
}

#[test]
fn a_thread_counts_where_and_as_it_was() {
    let mut trace = Trace::perf(2);
    for at in 0..50 {
        trace.burst(at * 10 * MS, 0, "first/7", 3 * MS);
    }
    trace.line(500 * MS, "   first     7 [000] 0.499: PERF_RECORD_COMM: second:7/7");
    for at in 51..100 {
        trace.burst(at * 10 * MS, 0, "second/7", 3 * MS);
    }
    let summary = trace.read().summary();
    let used = |name: &str| {
        let thread = summary.threads.iter().find(|thread| thread.name == name);
        thread.unwrap_or_else(|| panic!("{:?}", summary.threads)).runtime_ns
    };
    assert_eq!((used("first/7"), used("second/7")), (150 * MS, 147 * MS));
    let selection =
        Selection { limited: vec!["comm:second".parse().unwrap()], ..Selection::default() };
    let workload = trace.read().workload(&selection).unwrap();
    assert_eq!(workload.tasks.iter().filter(|task| task.group > 0).count(), 1);
}

#[test]
fn an_id_that_is_used_again_is_another_thread() {
    let mut trace = Trace::perf(2);
    trace.switch(0, 0, IDLE, "R", "old/77");
    trace.switch(1_000, 1, IDLE, "R", "other/50");
    trace.switch(500 * MS, 0, "old/77", "X", IDLE);
    trace.wake(500 * MS + 1_000, 1, "other/50", "third/60");
    trace.switch(500 * MS + 10_000, 0, IDLE, "R", "third/60");
    trace.event(1_400 * MS, 0, "third/60", "sched:sched_wakeup_new: comm=new pid=77 prio=120");
    trace.switch(1_400 * MS + 10_000, 0, "third/60", "S", IDLE);
    // Its switch in is lost.
    trace.switch(1_500 * MS, 1, "new/77", "S", IDLE);
    let threads = trace.read().summary().threads;
    let ns = |name: &str| threads.iter().find(|thread| thread.comm == name).unwrap().runtime_ns;
    assert_eq!(ns("old"), 500 * MS);
    assert!((90 * MS..=100 * MS).contains(&ns("new")), "{}", ns("new"));
}

#[test]
fn a_burst_is_whole_where_its_thread_sleeps_to_the_end() {
    let mut trace = Trace::perf(2);
    for at in 0..100 {
        trace.burst(at * 10 * MS, 0, &format!("once/{}", 100 + at), 3 * MS);
    }
    let recording = trace.read();
    let limited = vec!["comm:once".parse().unwrap()];
    let selection = Selection { limited, ..Selection::default() };
    let load = recording.load(&selection);
    assert_eq!(load.within(load.window()).bursts_ns, vec![3 * MS + 2_000; 100]);
    let workload = recording.workload(&selection).unwrap();
    let ends = |task: &cpumax_workload::TaskSpec| task.program.last() == Some(&Op::Done);
    assert!(workload.tasks.iter().all(ends));
}

/// Whether a time is in every second interval of so many ms.
fn is_second(ns: u64, ms: u64) -> bool {
    !(ns / (ms * MS)).is_multiple_of(2)
}

#[test]
fn periodic_threads_that_skip_their_times() {
    let mut trace = service(2_000);
    for at in 0..100 {
        trace.burst((at * 20 + 9) * MS, 0, "timer/103", MS / 2);
    }
    assert_eq!(doubted(&trace), []);
    let cut = trace.without(|ns, _| is_second(ns, 100));
    assert_eq!(doubted(&cut), [GapKind::Skipped]);
    let told = told(&cut.read(), GapKind::Skipped);
    assert!(told.starts_with("3 of 3 periodic threads skip 2"), "{told}");
    let little = trace.without(|ns, _| (700 * MS..760 * MS).contains(&ns));
    assert_eq!(doubted(&little), [], "3 % of the times");
    // Four threads take turns at random at what comes every 10 ms.
    let mut pool = Trace::perf(2);
    let mut random = 1_u64;
    for at in 0..400 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        pool.burst(at * 10 * MS, 0, &format!("svc/{}", 101 + (random >> 33) % 4), 3 * MS);
    }
    assert_eq!(doubted(&pool), []);
}

#[test]
fn switches_that_do_not_chain() {
    let mut trace = Trace::perf(1);
    for at in 0..200 {
        let ns = at * 10 * MS;
        let before = if at == 0 { IDLE } else { "busy/50" };
        trace.wake(ns, 0, before, "svc/101");
        if at > 0 {
            trace.charge(ns + 2_000, 0, "busy/50", 7_002_000);
        }
        trace.switch(ns + 2_000, 0, before, "R", "svc/101");
        trace.charge(ns + 3 * MS, 0, "svc/101", 3 * MS - 2_000);
        trace.switch(ns + 3 * MS, 0, "svc/101", "S", "busy/50");
    }
    assert_eq!(doubted(&trace), []);
    let cut = trace.without(|ns, _| is_second(ns, 97));
    assert!(doubted(&cut).contains(&GapKind::Switches), "{:?}", cut.read().gaps());
    let told = told(&cut.read(), GapKind::Switches);
    assert!(told.contains("Which threads ran is not known for 30 %"), "{told}");
}

#[test]
fn a_thread_that_is_woken_while_it_could_run() {
    let mut trace = service(2_000);
    for at in 0..50 {
        let ns = (at * 40 + 9) * MS;
        trace.burst(ns, 0, "early/104", MS / 2);
        trace.switch(ns + 600_000, 0, IDLE, "R", "late/105");
        trace.charge(ns + 610_000, 0, "late/105", 10_000);
        trace.switch(ns + 610_000, 0, "late/105", "R", IDLE);
        trace.wake(ns + 800_000, 0, IDLE, "late/105");
    }
    assert_eq!(doubted(&trace), [GapKind::Runs]);
}

#[test]
fn clocks_that_are_coarse() {
    let by = |step_ns: u64| service(2_000).at(|ns| ns / step_ns * step_ns);
    assert_eq!(doubted(&by(1_000)), []);
    assert!(doubted(&by(4 * MS)).contains(&GapKind::Clock));
    assert!(told(&by(MS).read(), GapKind::Clock).contains("differ by 2.0 ms or more"));
}

#[test]
fn charges_that_are_a_part_of_the_time_or_missing() {
    let of = |per_mille: u64| {
        let ns = format!("runtime={}", 3_000 * per_mille);
        service(2_000).map(|line| vec![line.replace("runtime=3000000", &ns)])
    };
    assert_eq!(doubted(&of(940)), []);
    assert_eq!(doubted(&of(880)), [GapKind::ImpossibleCharges]);
    let told = told(&of(500).read(), GapKind::ImpossibleCharges);
    assert!(
        told.starts_with("Threads were charged 50 % of their time on a CPU, in most"),
        "{told}"
    );
    let every = |many: u64| {
        let is_gone = move |ns: u64, line: &str| {
            line.contains("sched_stat") && (ns / (10 * MS)).is_multiple_of(many)
        };
        service(2_000).without(is_gone)
    };
    assert_eq!(doubted(&every(2)), [GapKind::ImpossibleCharges]);
    assert_eq!(doubted(&every(10)), []);
}

#[test]
fn a_stop_that_is_shorter_than_the_usual_interval_counts() {
    let mut trace = Trace::perf(1);
    trace.burst(0, 0, "svc/101", MS);
    let later = 3_600_000 * MS;
    trace.wake(later, 0, IDLE, "svc/101");
    trace.switch(later, 0, IDLE, "R", "svc/101");
    for tick in (1..=30).chain([70]) {
        trace.charge(later + tick * 4 * MS, 0, "svc/101", 4 * MS);
    }
    let recording = trace.read();
    assert_eq!(recording.span_ns(), later + 280 * MS);
    assert!(told(&recording, GapKind::Silence).starts_with("No CPU has an event in 1 interval"));
}
