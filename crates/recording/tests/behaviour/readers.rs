//! Variants of forms that are read: packed by atrace, dumped by the kernel, or with probes named
//! like tracepoints. They are read like the plain form, or refused by name.

use super::traces::{IDLE, MS, Trace, runtime_ns};
use cpumax_recording::{Options, Recording};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use proptest::prelude::*;
use std::io::{BufReader, Write};

const SWITCH: &str = "sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> \
                      next_comm=alpha next_pid=101 next_prio=120";
const BACK: &str = "sched_switch: prev_comm=alpha prev_pid=101 prev_prio=120 prev_state=S ==> \
                    next_comm=swapper/0 next_pid=0 next_prio=120";
const WAKE: &str = "sched_waking: comm=alpha pid=101 prio=120 target_cpu=000";

/// A thread runs 5 ms of every 20 ms, six times. `line` gets thread, time in us, and the event.
fn events(line: impl Fn(&str, u64, &str) -> String) -> String {
    let burst = |at: u64| {
        let us = 1_000_000 + at * 20_000;
        let idle = "<idle>-0";
        [line(idle, us, WAKE), line(idle, us + 2, SWITCH), line("alpha-101", us + 5_002, BACK)]
            .concat()
    };
    (0..6).map(burst).collect()
}

fn ftrace() -> String {
    let line = |thread: &str, us: u64, event: &str| {
        format!("{thread:>16} [000] d..2. {}.{:06}: {event}\n", us / 1_000_000, us % 1_000_000)
    };
    "# tracer: nop\n#\n# entries-in-buffer/entries-written: 18/18   #P:1\n".to_owned()
        + &events(line)
}

fn atrace() -> Vec<u8> {
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
    packed.write_all(ftrace().as_bytes()).unwrap();
    let mut data = b"capturing trace... done\nTRACE:\n".to_vec();
    data.extend(packed.finish().unwrap());
    data
}

/// The log that `ftrace_dump` prints.
fn dump() -> String {
    let line = |thread: &str, us: u64, event: &str| {
        format!("[   12.000010] {thread:>10}         0d..2. {us}us : {event}\n")
    };
    format!(
        "[   12.000001] Kernel panic - not syncing: sysrq triggered crash\n\
         [   12.000002] Dumping ftrace buffer:\n[   12.000003] {0}\n{1}[   12.000099] {0}\n\
         [   12.000100] ---[ end Kernel panic ]---\n",
        "-".repeat(33),
        events(line)
    )
}

fn is_alpha(recording: &Recording) {
    let summary = recording.summary();
    let alpha = summary.threads.iter().find(|thread| thread.comm == "alpha").unwrap();
    assert_eq!((alpha.runtime_ns, alpha.waits), (30 * MS, 6));
    assert_eq!(recording.defects().to_string(), "");
    assert!(summary.has_context);
}

fn read(data: &[u8]) -> Recording {
    Recording::read_bytes("x", data, Options::default()).unwrap()
}

#[test]
fn output_of_atrace_is_unpacked() {
    is_alpha(&read(ftrace().as_bytes()));
    is_alpha(&read(&atrace()));
    // Through a pipe that gives little at a time.
    let data = atrace();
    let pipe = BufReader::with_capacity(7, &data[..]);
    is_alpha(&Recording::read_pipe("x", pipe, Options::default()).unwrap());
    let mut cut = atrace();
    cut.truncate(cut.len() - 30);
    let error = Recording::read_bytes("x", &cut, Options::default()).unwrap_err();
    assert!(error.to_string().starts_with("x: "), "{error}");
}

#[test]
fn dumps_of_the_kernel_are_read() {
    is_alpha(&read(dump().as_bytes()));
    let late = dump().replace("us : sched_waking", "us+: sched_waking");
    is_alpha(&read(late.as_bytes()));
    let damaged = dump().replacen("next_pid=101", "next_", 1);
    assert_eq!(read(damaged.as_bytes()).defects().unreadable_lines, 1);
    let seconds = events(|thread, us, event| {
        format!("{thread:>16}   0d..2. {}.{:06}: {event}\n", us / 1_000_000, us % 1_000_000)
    });
    is_alpha(&read(seconds.as_bytes()));
}

#[test]
fn a_probe_that_is_called_as_a_tracepoint_is_another_event() {
    let probe = "(__probestub_sched_switch+0x4/0x10) preempt=0x0 prev=0xffff888100220000";
    let beside: String = ftrace()
        .lines()
        .flat_map(|line| {
            let switch = line.split_once("sched_switch: ").map(|(head, _)| head);
            let more = switch.map(|head| format!("{head}sched_switch: {probe}\n"));
            [Some(format!("{line}\n")), more].into_iter().flatten()
        })
        .collect();
    is_alpha(&read(beside.as_bytes()));
    let mut trace = Trace::perf(1);
    for at in 0..6 {
        let ns = at * 20 * MS;
        trace.burst(ns, 0, "alpha/101", 5 * MS);
        let other = "tracepoints:sched_switch: (ffffffff811c2e44) prev_comm=b prev_pid=9 \
                     prev_prio=120 prev_state=S ==> next_comm=c next_pid=8 next_prio=120";
        trace.event(ns + 2_000, 0, IDLE, other);
    }
    let recording = trace.read();
    assert_eq!(runtime_ns(&recording, 101), 30 * MS);
    assert_eq!(recording.summary().threads.len(), 1);
}

#[test]
fn switches_that_perf_tells_by_itself_are_named() {
    let text = " a 7 [000] 1.5: PERF_RECORD_SWITCH_CPU_WIDE OUT          next pid/tid:     8/8\n \
                b 8 [000] 1.5: PERF_RECORD_SWITCH_CPU_WIDE IN           prev pid/tid:     7/7\n";
    let error = Recording::read_bytes("x", text.as_bytes(), Options::default()).unwrap_err();
    assert!(error.to_string().contains("--switch-events"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn damage_is_told(
        packed in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut data = if packed { atrace() } else { dump().into_bytes() };
        for (at, byte) in changes {
            let at = at.index(data.len());
            data[at] = byte;
        }
        for data in [&data[..], &data[..cut.index(data.len())]] {
            match Recording::read_bytes("damaged", data, Options::default()) {
                Ok(recording) => drop(recording.summary()),
                Err(error) => prop_assert!(error.to_string().starts_with("damaged: "), "{}", error),
            }
        }
    }
}
