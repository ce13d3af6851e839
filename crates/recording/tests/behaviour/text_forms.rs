//! Texts of perf, trace-cmd, ftrace and atrace of the same events are the same recording.

use super::forms::{ping_and_pong, workload};
use super::perfetto::printed;
use crate::support::perfetto::{Line, lines};
use cpumax_recording::{EventCost, Options, Recording};

const FREE: Options = Options { event_cost: Some(EventCost { syscall_ns: 0, other_ns: 0 }) };

/// Prints an event as a line; its time is given.
type Print = fn(&Line, &str) -> String;

/// The events as lines: the part before the time, the time, and the event.
fn text(form: Print) -> String {
    let events = lines(&printed());
    let first = events.iter().position(|line| line.name == "sched_switch").unwrap();
    events[first..]
        .iter()
        .filter(|line| line.name != "task_rename")
        .map(|line| {
            let (seconds, nanos) = (line.time_ns / 1_000_000_000, line.time_ns % 1_000_000_000);
            form(line, &format!("{seconds}.{nanos:09}"))
        })
        .collect()
}

fn read(text: &str) -> Recording {
    Recording::read_bytes("text", text.as_bytes(), FREE).unwrap()
}

fn tid(line: &Line) -> i64 {
    line.tid as i64
}

/// The system of an event.
fn system(line: &Line) -> &'static str {
    match line.name.as_str() {
        name if name.starts_with("sched_") => "sched",
        "sys_enter" | "sys_exit" => "raw_syscalls",
        name if name.starts_with("hrtimer_") => "timer",
        _ => "irq",
    }
}

/// Numbers as ftrace's option `fields` prints them.
fn hex(number: u64) -> String {
    format!("{:#x} ({})", number as i32, number as i32)
}

/// The fields of an event in the kernel's order, their numbers written by `number`.
fn raw(line: &Line, number: fn(u64) -> String) -> String {
    let of = |key: &str| number(line.number(key));
    let name = |key: &str, next: &str| std::str::from_utf8(line.text(key, next)).unwrap();
    match line.name.as_str() {
        "sched_switch" => format!(
            "prev_comm={} prev_pid={} prev_prio={} prev_state={} next_comm={} next_pid={} \
             next_prio={}",
            name("prev_comm=", " prev_pid="),
            of("prev_pid="),
            of("prev_prio="),
            number(line.state()),
            name("next_comm=", " next_pid="),
            of("next_pid="),
            of("next_prio=")
        ),
        "sched_waking" | "sched_wakeup_new" => {
            let comm = name("comm=", " pid=");
            format!("comm={comm} pid={} prio={} target_cpu=0x0 (0)", of("pid="), of("prio="))
        }
        "sched_process_fork" => {
            let child = name("child_comm=", " child_pid=");
            format!("parent_comm=x child_comm={child} child_pid={}", of("child_pid="))
        }
        "sched_stat_runtime" => {
            let comm = name("comm=", " pid=");
            format!("comm={comm} pid={} runtime={}", of(" pid="), of("runtime="))
        }
        "sys_enter" => format!("id={} args=<INVALID-SIZE>", of("NR ")),
        "sys_exit" => format!("id={} ret={:#x}", of("NR "), line.number("= ")),
        "softirq_entry" => format!("vec={}", of("vec=")),
        _ => String::new(),
    }
}

#[test]
fn every_tool_prints_the_same_recording() {
    let perf = read(&text(|line, time| {
        let (tid, cpu, name) = (tid(line), line.cpu, &line.name);
        format!(":{tid} {tid} [{cpu:03}] {time}: {}:{name}: {}\n", system(line), line.content)
    }));
    let want = perf.summary();
    assert_eq!(ping_and_pong(&want).len(), 2);
    assert!(want.defects.unreadable_lines == 0 && want.has_runtime && want.has_syscalls);
    let forms: [(&str, Print); 6] = [
        ("perf with period and misc", |line, time| {
            let (tid, cpu, name) = (tid(line), line.cpu, &line.name);
            format!(
                ":{tid} {tid} [{cpu:03}] KS {time}: 1 {}:{name}: {}\n",
                system(line),
                line.content
            )
        }),
        ("trace-cmd report --ts-diff", |line, time| {
            let (tid, cpu, name) = (tid(line), line.cpu, &line.name);
            format!("  <...>-{tid} [{cpu:03}] {time}: (+12)  {name}:   {}\n", line.content)
        }),
        ("ftrace without flags", |line, time| {
            let (tid, cpu, name) = (tid(line), line.cpu, &line.name);
            format!("  <...>-{tid} [{cpu:03}] {time}: {name}: {}\n", line.content)
        }),
        ("atrace", |line, time| {
            let (tid, cpu, name) = (tid(line), line.cpu, &line.name);
            format!("  <...>-{tid} (-----) [{cpu:03}] {time}: {name}: {}\n", line.content)
        }),
        ("ftrace's fields", |line, time| {
            let (tid, cpu, name) = (tid(line), line.cpu, &line.name);
            format!("  <...>-{tid} [{cpu:03}] {time}: {name}: {}\n", raw(line, hex))
        }),
        ("trace-cmd report -R", |line, time| {
            let (tid, cpu, name) = (tid(line), line.cpu, &line.name);
            let raw = raw(line, |number| (number as i32).to_string());
            format!("  <...>-{tid} [{cpu:03}] {time}: {name}:  {raw}\n")
        }),
    ];
    for (form, print) in forms {
        let recording = read(&text(print));
        let summary = recording.summary();
        assert_eq!(summary.defects, want.defects, "{form}");
        assert_eq!(summary.threads, want.threads, "{form}");
        let has_arguments = !form.contains("fields") && !form.contains("-R");
        if has_arguments {
            assert_eq!(workload(&recording), workload(&perf), "{form}");
        }
    }
}

#[test]
fn the_column_of_processes_and_flags_are_taken() {
    let text = text(|line, time| {
        let (tid, cpu, name) = (tid(line), line.cpu, &line.name);
        let flags = if name == "sched_waking" { "d.h2." } else { "....." };
        let head = format!("<...>-{tid} (     77) [{cpu:03}] {flags}");
        format!("  {head} {time}: {name}: {}\n", line.content)
    });
    let summary = read(&text).summary();
    assert!(summary.has_context && summary.has_processes);
    assert!(ping_and_pong(&summary).iter().all(|thread| thread.pid == Some(77)));
}
