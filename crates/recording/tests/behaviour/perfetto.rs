//! Perfetto traces, made from the text of a recording as `traced_probes` writes them: with a
//! message for each event, or with columns of switches and wakeups. Their bundles, each of one CPU,
//! are not in order of time. They are the same recording as the text.

use super::forms::{path, ping_and_pong, workload};
use crate::support::perfetto::{
    Line, Message, about, bundles, compact, lines, message, plain, trace,
};
use cpumax_recording::{Error, EventCost, Options, Recording, Summary};
use std::io::{Read, Write};

/// Events cost nothing: new names are events here, but not for perf.
const FREE: Options = Options { event_cost: Some(EventCost { syscall_ns: 0, other_ns: 0 }) };

pub(super) fn printed() -> String {
    let mut text = String::new();
    let packed = std::fs::File::open(path("pipe.txt.gz")).unwrap();
    flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    text
}

/// A trace that traced writes with `compression_type: COMPRESSION_TYPE_DEFLATE`.
fn compressed(packets: &[Message]) -> Vec<u8> {
    let some = packets.chunks(3).map(|packets| {
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        zlib.write_all(&trace(packets)).unwrap();
        message().bytes(50, &zlib.finish().unwrap())
    });
    trace(&some.collect::<Vec<_>>())
}

fn read(trace: &[u8]) -> Result<Recording, Error> {
    Recording::read_bytes("trace", trace, FREE)
}

fn of_text() -> Recording {
    Recording::read(&path("pipe.txt.gz"), FREE).unwrap()
}

#[test]
fn a_message_for_each_event() {
    let text = of_text();
    for events in [7, 100, 100_000] {
        let packets = [about(&printed()), bundles(&lines(&printed()), events, plain)].concat();
        let whole = trace(&packets);
        let trace = read(&whole).unwrap();
        assert_eq!(trace.summary().kernel.as_deref(), Some("6.18.44"));
        assert_eq!(trace.summary().defects, text.summary().defects);
        assert_eq!(trace.summary().threads, text.summary().threads);
        assert_eq!(workload(&trace), workload(&text), "{events} events in a bundle");
        for packed in [compressed(&packets), zstd::encode_all(&whole[..], 1).unwrap()] {
            assert_eq!(read(&packed).unwrap().summary(), trace.summary());
        }
    }
}

#[test]
fn switches_and_wakeups_as_columns() {
    let text = of_text();
    for events in [7, 100_000] {
        let trace = read(&trace(
            &[about(&printed()), bundles(&lines(&printed()), events, compact)].concat(),
        ))
        .unwrap();
        assert_eq!(ping_and_pong(&trace.summary()), ping_and_pong(&text.summary()));
        assert_eq!(workload(&trace), workload(&text), "{events} events in a bundle");
    }
}

/// From version 50 on `traced_probes` can describe unknown events once, instead of spelling out the
/// names of their fields in each.
#[test]
fn events_that_the_trace_describes() {
    const ID: u32 = 65_537;
    let field = |number: u64, name: &[u8]| message().bytes(1, name).number(3, number).number(5, 4);
    let descriptor = message()
        .bytes(1, b"sched_stat_runtime")
        .message(2, &field(3, b"pid"))
        .message(2, &field(4, b"runtime"));
    let described = message().number(1, u64::from(ID)).message(2, &descriptor);
    let make = |cpu: u64, lines: &[&Line]| {
        let bundle = message().number(1, cpu).message(11, &described);
        lines.iter().fold(bundle, |bundle, line| {
            if line.name != "sched_stat_runtime" {
                return bundle.message(2, &line.event());
            }
            let runtime =
                message().number(3, line.number(" pid=")).number(4, line.number("runtime="));
            let event = message().number(1, line.time_ns).number(2, line.tid);
            bundle.message(2, &event.message(ID, &runtime))
        })
    };
    let described =
        read(&trace(&[about(&printed()), bundles(&lines(&printed()), 50, make)].concat())).unwrap();
    assert_eq!(workload(&described), workload(&of_text()));
}

#[test]
fn flags_tell_the_context_of_a_wakeup() {
    let bundle = |flags: Option<u64>, of: u64| {
        let mut event = message().number(1, 20_000).number(2, of);
        if let Some(flags) = flags {
            event = event.number(5, flags);
        }
        let woken = message().bytes(1, b"b").number(2, 8).number(3, 120);
        let switch = |ns: u64, from: (&[u8], u64), state: u64, to: (&[u8], u64)| {
            let switch = message().bytes(1, from.0).number(2, from.1).number(3, 120);
            let switch = switch.number(4, state).bytes(5, to.0).number(6, to.1).number(7, 120);
            message().number(1, ns).number(2, from.1).message(4, &switch)
        };
        let bundle = message()
            .number(1, 0)
            .message(2, &switch(1000, (b"b", 8), 1, (b"a", 7)))
            .message(2, &event.message(20, &woken))
            .message(2, &message().number(1, 25_000).number(2, of).message(24, &message()))
            .message(2, &switch(30_000, (b"a", 7), 1, (b"b", 8)))
            .message(2, &switch(40_000, (b"b", 8), 1, (b"swapper", 0)));
        read(&trace(&[message().message(1, &bundle)])).unwrap()
    };
    assert!(!bundle(None, 7).summary().has_context);
    let interrupt = bundle(Some(0x08), 7);
    assert!(interrupt.summary().has_context);
    let sends = |recording: &Recording| {
        let workload = recording.workload(&cpumax_recording::Selection::default()).unwrap();
        let ops = workload.tasks.iter().flat_map(|task| task.program.clone());
        ops.filter(|op| matches!(op, cpumax_workload::Op::Send { .. })).count()
    };
    assert_eq!((sends(&bundle(Some(0), 7)), sends(&interrupt)), (1, 0));
    // scxtop writes the woken thread as the thread of an event, not the running one.
    let of_wakee = bundle(Some(0), 8);
    assert_eq!(sends(&of_wakee), 1);
    assert_eq!(of_wakee.summary().defects.mismatched_switches, 0);
}

fn summary_with(packet: &Message) -> Summary {
    let packets =
        [about(&printed()), bundles(&lines(&printed()), 50, plain), vec![packet.clone()]].concat();
    read(&trace(&packets)).unwrap().summary()
}

#[test]
fn losses_are_counted() {
    let stats = |phase: u64, overrun: u64| {
        let cpu = message().number(1, 1).number(3, overrun).number(8, 2);
        message().message(34, &message().number(1, phase).message(2, &cpu))
    };
    let mut both = stats(1, 100);
    both.0.extend(stats(2, 141).0);
    assert_eq!(summary_with(&both).defects.lost_events, 41);
    let lost = message().number(1, 1).number(3, 1);
    let switch = message().number(2, 7).number(6, 8).number(3, 120).number(7, 120);
    let last_ns = lines(&printed()).last().unwrap().time_ns;
    let event = message().number(1, last_ns + 1000).number(2, 7).message(4, &switch);
    let lost = message().message(1, &lost.message(2, &event));
    assert_eq!(summary_with(&lost).defects.lost_events, 1);
    let dropped = message().number(42, 1).message(1, &plain(0, &[]));
    assert_eq!(summary_with(&dropped).defects.lost_events, 1);
}

#[test]
fn a_guest_of_the_machine_is_left_out() {
    let guest = message()
        .number(98, 7)
        .message(1, &plain(1, &lines(&printed()).iter().collect::<Vec<_>>()));
    let text = of_text().summary();
    assert_eq!(summary_with(&guest).threads, text.threads);
}

#[test]
fn a_trace_may_end_anywhere() {
    let whole = trace(&[about(&printed()), bundles(&lines(&printed()), 50, compact)].concat());
    let events = read(&whole).unwrap().summary().events;
    let mut cut = 0;
    for len in (1..whole.len()).step_by(997) {
        match read(&whole[..len]) {
            Ok(recording) => {
                let summary = recording.summary();
                assert!(summary.events < events && summary.defects.cut_at_the_end <= 1, "{len}");
                cut += summary.defects.cut_at_the_end;
            }
            Err(error) => assert!(error.to_string().starts_with("trace: "), "{len}: {error}"),
        }
    }
    assert!(cut > 10);
}

/// systing writes the states of all switches as 0, and all wakeups on CPU 0.
#[test]
fn threads_that_are_woken_and_never_sleep() {
    let make = |cpu: u64, lines: &[&Line]| {
        let awake = lines.iter().map(|line| {
            let content = line.content.replace("prev_state=S", "prev_state=R");
            let content = content.replace("prev_state=D", "prev_state=R");
            Line { content: content.replace("prev_state=I", "prev_state=R"), ..(*line).clone() }
        });
        let awake: Vec<Line> = awake.collect();
        compact(cpu, &awake.iter().collect::<Vec<_>>())
    };
    let error = read(&trace(&bundles(&lines(&printed()), 50, make))).unwrap_err().to_string();
    assert!(error.contains("lacks the reasons of switches"), "{error}");
}

#[test]
fn a_trace_without_a_scheduler() {
    let error = read(&trace(&about(&printed()))).unwrap_err().to_string();
    assert!(error.contains("no thread switches") && error.contains("linux.ftrace"), "{error}");
}
