//! Files of `cpumax record`, made from the text of a trace: groups and machine.

use super::perfetto::{Line, Message, compact, lines, message, trace};
use super::traces::Trace;
use cpumax_recording::{Options, Recording};
use serde_json::{Value, json};

/// Number of the field that other programs skip (docs/guide/record.md).
const FIELD: u32 = 5210;

/// A recording with threads by name and their groups, by index.
pub fn recording(text: &Trace, about: &Value, groups: &[(&str, &str)]) -> Recording {
    let with_processes = text.map(|line| {
        let (head, rest) = line.split_once(" [").unwrap();
        let (comm, tid) = head.rsplit_once(' ').unwrap();
        vec![format!("{} {tid}/{tid} [{rest}", comm.trim())]
    });
    let lines = lines(&with_processes.headless().text());
    let paths = (1..).zip(groups).map(|(id, (_, path))| {
        let told = message().number(1, id).bytes(2, path.as_bytes());
        message().message(FIELD, &message().message(2, &told))
    });
    let told = message().bytes(1, about.to_string().as_bytes());
    let ended = message().bytes(3, json!({ "why": "asked" }).to_string().as_bytes());
    let mut packets = vec![message().message(FIELD, &told)];
    packets.extend(paths);
    packets.extend((0..2).filter_map(|cpu| bundle(&lines, cpu, groups)));
    packets.push(message().message(FIELD, &ended));
    Recording::read_bytes("made.cpumax", &trace(&packets), Options::default()).unwrap()
}

/// Events of a CPU; a switch carries the group of the next thread.
fn bundle(lines: &[Line], cpu: u64, groups: &[(&str, &str)]) -> Option<Message> {
    let of_it: Vec<&Line> = lines.iter().filter(|line| line.cpu == cpu).collect();
    let group = |line: &&Line| {
        let next = line.text("next_comm=", " next_pid=");
        let at = groups.iter().position(|(comm, _)| comm.as_bytes() == next);
        at.map_or(0, |at| at as u64 + 1)
    };
    let switches = of_it.iter().filter(|line| line.name == "sched_switch");
    let column: Vec<u64> = switches.map(group).collect();
    let ours = message().packed(3, &column);
    let events = compact(cpu, &of_it).number(1, cpu).message(FIELD, &ours);
    (!of_it.is_empty()).then(|| message().message(1, &events))
}
