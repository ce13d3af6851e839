//! wprof's JSON, made from the text of a recording as `wprof -J` writes it, is the same recording,
//! as far as the JSON carries it.

use super::forms::path;
use super::perfetto::printed;
use crate::support::perfetto::{Line, lines};
use cpumax_recording::{Error, EventCost, Options, Recording, Summary};

const FREE: Options = Options { event_cost: Some(EventCost { syscall_ns: 0, other_ns: 0 }) };

fn task(tid: u64, comm: &str) -> String {
    match tid {
        0 => format!(r#"{{"pid":0,"comm":"{comm}"}}"#),
        _ => format!(r#"{{"tid":{tid},"pid":{tid},"comm":"{comm}"}}"#),
    }
}

fn word<'a>(line: &'a Line, key: &str, next: &str) -> &'a str {
    std::str::from_utf8(line.text(key, next)).unwrap()
}

/// A line of JSON, if wprof records such an event.
fn json(line: &Line, first_ns: u64, in_interrupt: bool) -> Option<String> {
    let at_ns = line.time_ns - first_ns;
    let (seconds, nanos) = (at_ns / 1_000_000_000, at_ns % 1_000_000_000);
    let who = |id: &str, comm: &str| {
        task(line.number(&format!("{id}=")), word(line, &format!("{comm}="), &format!(" {id}=")))
    };
    let (kind, rest) = match line.name.as_str() {
        "sched_switch" => {
            let state = match line.state() {
                0 => "runnable",
                0x100 => "preempted",
                1 => "interruptible_sleep",
                2 => "uninterruptible_sleep",
                0x80 => "idle",
                0x20 => "exit_zombie",
                _ => "task_dead",
            };
            let rest = format!(
                r#""prev":{},"next":{},"prev_state":"{state}","prev_prio":{},"next_prio":{}"#,
                who("prev_pid", "prev_comm"),
                who("next_pid", "next_comm"),
                line.number("prev_prio="),
                line.number("next_prio=")
            );
            ("switch", rest)
        }
        "sched_waking" | "sched_wakeup_new" => {
            let waker = if in_interrupt { task(0, "swapper") } else { task(line.tid, "x") };
            let kind = line.name.trim_start_matches("sched_");
            (kind, format!(r#""waker":{waker},"wakee":{}"#, who("pid", "comm")))
        }
        "sched_process_fork" => {
            let parent = task(line.tid, word(line, "comm=", " pid="));
            let child = task(line.number("child_pid="), word(line, "child_comm=", " child_pid="));
            ("fork", format!(r#""task":{parent},"child":{child}"#))
        }
        "task_rename" => {
            let comm = line.content.rsplit_once(':').unwrap().0;
            ("task_rename", format!(r#""task":{}"#, task(line.tid, comm)))
        }
        _ => return None,
    };
    Some(format!(r#"{{"ts":{seconds}.{nanos:09},"t":"{kind}","cpu":{},{rest}}}"#, line.cpu))
}

const HEAD: &str = r#"{"version":"3.1","dur":1.0,"timer_freq_hz":0,"stacks":[],"stack_cnt":1}
{"id":1,"frames":["[U] main+0x1a"]}
"#;

fn whole() -> String {
    let lines = lines(&printed());
    let first_ns = lines[0].time_ns;
    let mut inside = [false; 2];
    let mut json_lines = HEAD.to_owned();
    for line in &lines {
        let inside = &mut inside[line.cpu as usize];
        match line.name.as_str() {
            "softirq_entry" | "irq_handler_entry" | "hrtimer_expire_entry" => *inside = true,
            "softirq_exit" | "irq_handler_exit" | "hrtimer_expire_exit" => *inside = false,
            _ => {}
        }
        if let Some(json) = json(line, first_ns, *inside) {
            json_lines += &json;
            json_lines.push('\n');
        }
    }
    json_lines
}

fn read(text: &str) -> Result<Recording, Error> {
    Recording::read_bytes("wprof", text.as_bytes(), FREE)
}

/// Threads of the load: names, waits and time on a CPU, ns.
fn load(summary: &Summary) -> Vec<(String, u64, u64)> {
    let mut load: Vec<_> = summary
        .threads
        .iter()
        .filter(|thread| thread.comm == "ping" || thread.comm == "pong")
        .map(|thread| (thread.name.clone(), thread.waits, thread.runtime_ns))
        .collect();
    load.sort();
    load
}

#[test]
fn the_same_load() {
    let json = read(&whole()).unwrap().summary();
    let text = Recording::read(&path("pipe.txt.gz"), FREE).unwrap().summary();
    let (json_load, text_load) = (load(&json), load(&text));
    assert_eq!(json_load.len(), 2);
    for (json, text) in json_load.iter().zip(&text_load) {
        assert_eq!((&json.0, json.1), (&text.0, text.1));
        // Only the text has charges, and the first charge of a new program is partly of the old
        // one.
        assert!(json.2.abs_diff(text.2) * 10 < text.2, "{json:?} {text:?}");
    }
    assert!(json.has_context && json.has_processes && !json.has_runtime && !json.has_syscalls);
    let packed = zstd::encode_all(whole().as_bytes(), 1).unwrap();
    assert_eq!(Recording::read_bytes("packed", &packed, FREE).unwrap().summary(), json);
}

#[test]
fn faults_are_named() {
    let whole = whole();
    let other = whole.replacen("3.1", "4.0", 1);
    assert!(read(&other).unwrap_err().to_string().contains("version 4.0"));
    let cut = &whole[..whole.len() - 7];
    assert_eq!(read(cut).unwrap().summary().defects.cut_at_the_end, 1);
    let bad = whole.replace(r#""t":"switch""#, r#""t":"switch","cpu":"x""#);
    let error = read(&bad).unwrap_err().to_string();
    assert!(error.contains("lines are no events of wprof, the first is 4"), "{error}");
    let one_bad = whole.replacen(r#""wakee":"#, r#""sleeper":"#, 1);
    assert_eq!(read(&one_bad).unwrap().summary().defects.unreadable_lines, 1);
}
