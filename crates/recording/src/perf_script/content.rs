//! The content of an event, behind its name.

use crate::event::{Irq, Kind, MSG_PEEK, Named, Note, ThreadRef};
use crate::tracepoint::{self, Tracepoint};

/// Reads the content of a tracepoint, in the kernel's own format, as raw fields, or that of perf's
/// plug-ins. `None` if it cannot be read.
pub(super) fn parse_kind(tracepoint: Tracepoint, text: &str) -> Option<Kind<'_>> {
    Some(match tracepoint {
        Tracepoint::Switch => parse_switch(text)?,
        Tracepoint::Waking => Kind::Waking(parse_woken(text)?, woken_to(text).map(Named::Last)),
        Tracepoint::Wakeup => Kind::Waking(parse_woken(text)?, woken_to(text).map(Named::Next)),
        Tracepoint::WakeupNew => Kind::WakeupNew(parse_woken(text)?, woken_to(text)),
        Tracepoint::Migrate => Kind::Migrate { to: cpu_after(text, " dest_cpu=")? },
        Tracepoint::Fork => parse_fork(text)?,
        Tracepoint::Runtime => parse_runtime(text)?,
        Tracepoint::SysEnter => parse_sys_enter(text)?,
        Tracepoint::SysExit => Kind::SysExit { result: parse_sys_exit(text) },
        Tracepoint::IrqEnter => Kind::IrqEnter(Irq::Handler),
        Tracepoint::IrqExit => Kind::IrqExit(Irq::Handler),
        Tracepoint::TimerEnter => Kind::IrqEnter(Irq::Timer),
        Tracepoint::TimerExit => Kind::IrqExit(Irq::Timer),
        Tracepoint::SoftirqEnter => {
            Kind::SoftirqEnter { vector: parse_number(text.trim_start().strip_prefix("vec=")?)? }
        }
        Tracepoint::SoftirqExit => Kind::SoftirqExit,
        Tracepoint::SocketSent | Tracepoint::SocketReceived => parse_socket(tracepoint, text)?,
        // Only raw fields have the socket.
        Tracepoint::DataReady => match parse_raw_field(text, "skaddr") {
            Some(socket) => Kind::DataReady { socket: socket as u64 },
            None => Kind::Other,
        },
        Tracepoint::SocketState => match parse_raw_field(text, "skaddr") {
            Some(socket) => Kind::SocketState {
                socket: socket as u64,
                from: parse_raw_field(text, "oldstate")? as u32,
                to: parse_raw_field(text, "newstate")? as u32,
            },
            None => Kind::Other,
        },
        Tracepoint::Other => Kind::Other,
    })
}

/// The number at the beginning of a text: `120`, or `0x78` where fields are printed raw. `None` if
/// there is none, or it does not fit.
fn parse_number<T: TryFrom<i64>>(text: &str) -> Option<T> {
    let number = if let Some(hex) = text.strip_prefix("0x") {
        let digits = hex.bytes().take_while(u8::is_ascii_hexdigit).count();
        u64::from_str_radix(&hex[..digits], 16).ok()? as i64
    } else {
        let digits = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'-').count();
        text[..digits].parse().ok()?
    };
    T::try_from(number).ok()
}

/// A switch: `prev_comm=a prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=b next_pid=2
/// next_prio=120`, or `a:1 [120] S ==> b:2 [120]`; `None` for any other text.
///
/// Raw fields (`trace-cmd report -R`, ftrace's `fields`) have a number as state, and no arrow.
fn parse_switch(text: &str) -> Option<Kind<'_>> {
    let Some((prev, next)) = text.split_once(" ==> ") else {
        return parse_raw_switch(text);
    };
    if let Some(prev) = prev.strip_prefix("prev_comm=") {
        let (comm, rest) = prev.split_once(" prev_pid=")?;
        let (_, prio) = rest.split_once(" prev_prio=")?;
        let (_, state) = prio.split_once(" prev_state=")?;
        let next = next.strip_prefix("next_comm=")?;
        let (next_comm, next_rest) = next.split_once(" next_pid=")?;
        let (_, next_prio) = next_rest.split_once(" next_prio=")?;
        return Some(Kind::Switch {
            prev: ThreadRef { comm, tid: parse_number(rest)?, prio: parse_number(prio)? },
            left: tracepoint::prev_state(state.trim()),
            next: ThreadRef {
                comm: next_comm,
                tid: parse_number(next_rest)?,
                prio: parse_number(next_prio)?,
            },
        });
    }
    let (prev, state) = parse_plugin_named(prev)?;
    let (next, _) = parse_plugin_named(next)?;
    Some(Kind::Switch { prev, left: tracepoint::prev_state(state.trim()), next })
}

/// The switch `prev_comm=a prev_pid=1 prev_prio=120 prev_state=1 next_comm=b next_pid=2
/// next_prio=120`, each number perhaps as `0x1 (1)`. `None` if a field is missing.
fn parse_raw_switch(text: &str) -> Option<Kind<'_>> {
    let (prev, next) = text.split_once(" next_comm=")?;
    let (prev_comm, rest) = prev.strip_prefix("prev_comm=")?.split_once(" prev_pid=")?;
    let (prev_pid, rest) = rest.split_once(" prev_prio=")?;
    let (prev_prio, state) = rest.split_once(" prev_state=")?;
    let (next_comm, rest) = next.split_once(" next_pid=")?;
    let (next_pid, next_prio) = rest.split_once(" next_prio=")?;
    let named = |comm, tid, prio| {
        Some(ThreadRef { comm, tid: parse_number(tid)?, prio: parse_number(prio)? })
    };
    Some(Kind::Switch {
        prev: named(prev_comm, prev_pid, prev_prio)?,
        left: tracepoint::prev_state_by_number(parse_number::<i64>(state)? as u64),
        next: named(next_comm, next_pid, next_prio)?,
    })
}

/// A message that was sent or received, in bytes or a negative error; peeks are [`Kind::Other`]. It
/// reads `sk address = 000000009ce0a5a5, ... length = 5, error = 0, flags = 0x0`, or the raw fields
/// `sk=0xffff8881035d0000 ... ret=5 flags=0`; `None` without socket or length.
fn parse_socket(tracepoint: Tracepoint, text: &str) -> Option<Kind<'_>> {
    let named = |name: &str| text.split_once(name).map(|(_, rest)| rest);
    let hex = |text: &str| {
        let digits = text.trim_start_matches("0x");
        let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
        u64::from_str_radix(&digits[..end], 16).ok()
    };
    let (socket, result, flags) = if let Some(address) = named("sk address = ") {
        let length: i64 = parse_number(named("length = ")?)?;
        let error: i64 = parse_number(named("error = ")?)?;
        let flags = named("flags = ").and_then(hex).unwrap_or(0);
        (hex(address)?, if error < 0 { error } else { length }, flags as i64)
    } else {
        let flags = parse_raw_field(text, "flags").unwrap_or(0);
        (parse_raw_field(text, "sk")? as u64, parse_raw_field(text, "ret")?, flags)
    };
    Some(match tracepoint {
        Tracepoint::SocketSent => Kind::SocketSent { socket, result },
        _ if flags & MSG_PEEK != 0 => Kind::Other,
        _ => Kind::SocketReceived { socket, result },
    })
}

/// The number of a raw field: `name=120` or `name=0x78`; `None` if there is no such field.
fn parse_raw_field(text: &str, name: &str) -> Option<i64> {
    let is_it = |word: &&str| word.split_once('=').is_some_and(|(key, _)| key == name);
    let word = text.split_whitespace().find(is_it)?;
    parse_number(word.split_once('=')?.1)
}

/// The woken thread: `comm=a pid=1 prio=120 target_cpu=001`, or `a:1 [120] success=1 CPU:001`;
/// `None` for other texts.
fn parse_woken(text: &str) -> Option<ThreadRef<'_>> {
    let Some(named) = text.strip_prefix("comm=") else {
        return parse_plugin_named(text).map(|(named, _)| named);
    };
    let (comm, rest) = named.split_once(" pid=")?;
    let (_, prio) = rest.split_once(" prio=")?;
    Some(ThreadRef { comm, tid: parse_number(rest)?, prio: parse_number(prio)? })
}

/// The CPU that a wakeup names.
fn woken_to(text: &str) -> Option<u32> {
    cpu_after(text, " target_cpu=").or_else(|| cpu_after(text, " CPU:"))
}

fn cpu_after(text: &str, name: &str) -> Option<u32> {
    parse_number(text.rsplit_once(name)?.1)
}

/// The thread of `comm:tid [prio]` and the text behind it; `None` for other texts.
fn parse_plugin_named(text: &str) -> Option<(ThreadRef<'_>, &str)> {
    let (thread, rest) = text.rsplit_once(" [")?;
    let (prio, rest) = rest.split_once(']')?;
    let (comm, tid) = thread.rsplit_once(':')?;
    let named =
        ThreadRef { comm: comm.trim_start(), tid: tid.parse().ok()?, prio: prio.parse().ok()? };
    Some((named, rest))
}

/// The child of a fork: `comm=a pid=1 child_comm=b child_pid=2`; `None` for other texts, as `comm a
/// pid 1 …` of old plug-ins.
fn parse_fork(text: &str) -> Option<Kind<'_>> {
    let (_, child) = text.split_once(" child_comm=")?;
    let (child_comm, pid) = child.split_once(" child_pid=")?;
    Some(Kind::Fork { child_comm, child: parse_number(pid)? })
}

/// A charge of CPU time, ns: `comm=a pid=1 runtime=29158 [ns]`, in older kernels with `vruntime=`
/// behind. `None` if a field is missing.
fn parse_runtime(text: &str) -> Option<Kind<'_>> {
    let (_, pid) = text.split_once(" pid=")?;
    let (_, ns) = pid.split_once(" runtime=")?;
    Some(Kind::Runtime { tid: parse_number(pid)?, ns: parse_number(ns)? })
}

/// An entry into a system call: `NR 16 (13, 2400, 0, 7fa6bf82b5e0, 1, 0)` with hexadecimal
/// arguments, or the raw fields. Missing arguments are 0; `None` if the number is missing, or an
/// argument is no number.
fn parse_sys_enter(text: &str) -> Option<Kind<'_>> {
    let Some(text) = text.strip_prefix("NR ") else {
        return Some(Kind::SysEnter {
            number: parse_raw_field(text, "id")?,
            args: parse_raw_args(text)?,
        });
    };
    let mut args = [0; 6];
    if let Some((_, list)) = text.split_once('(') {
        let list = list.split(')').next()?.split(',');
        for (arg, text) in args.iter_mut().zip(list) {
            *arg = u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()?;
        }
    }
    Some(Kind::SysEnter { number: parse_number(text)?, args })
}

/// The arguments `args=ARRAY[01, 00, …]`, the bytes in the memory of a little-endian machine; 0
/// where they are not printed (`args=<INVALID-SIZE>`).
fn parse_raw_args(text: &str) -> Option<[u64; 6]> {
    let mut args = [0; 6];
    if let Some((_, list)) = text.split_once("args=ARRAY[") {
        for (i, byte) in list.split(']').next()?.split(',').enumerate().take(48) {
            args[i / 8] |= u64::from_str_radix(byte.trim(), 16).ok()? << (i % 8 * 8);
        }
    }
    Some(args)
}

/// The result of a system call: `NR 0 = 8192`, or `id=0 ret=0x2000 (8192)`; 0 in any other format.
fn parse_sys_exit(text: &str) -> i64 {
    match text.split_once(" = ") {
        Some((_, result)) => parse_number(result),
        None => parse_raw_field(text, "ret"),
    }
    .unwrap_or(0)
}

/// Reads what follows `PERF_RECORD_`: a name, a new thread, a group, or lost events. `None` for
/// other records.
pub(super) fn parse_note(text: &str) -> Option<Note<'_>> {
    if let Some(comm) = text.strip_prefix("COMM") {
        let (_, thread) = comm.split_once(": ")?;
        let (comm, ids) = thread.rsplit_once(':')?;
        let (pid, tid) = ids.split_once('/')?;
        return Some(Note::Comm { pid: pid.parse().ok()?, tid: tid.parse().ok()?, comm });
    }
    if let Some(ids) = text.strip_prefix("FORK(") {
        let (child, parent) = ids.split_once("):(")?;
        let (pid, tid) = child.split_once(':')?;
        return Some(Note::Task {
            pid: pid.parse().ok()?,
            tid: tid.parse().ok()?,
            parent_pid: parse_number(parent)?,
        });
    }
    if let Some(group) = text.strip_prefix("CGROUP cgroup: ") {
        let (id, path) = group.split_once(' ')?;
        return Some(Note::Cgroup { id: id.parse().ok()?, path });
    }
    let lost = text.strip_prefix("LOST")?;
    let (_, events) = lost.rsplit_once("lost ")?;
    Some(Note::Lost {
        events: parse_number(events.trim_start())?,
        by_the_kernel: lost.starts_with("_SAMPLES"),
    })
}

#[cfg(test)]
mod tests {
    use super::{parse_kind, parse_note};
    use crate::event::{Kind, Named, Note, PrevState};
    use crate::tracepoint::Tracepoint;

    #[test]
    fn reads_both_forms_of_a_switch() {
        let text = "my prog:7 [120] D|K ==> swapper/0:0 [120]";
        let Some(Kind::Switch { prev, left, next }) = parse_kind(Tracepoint::Switch, text) else {
            panic!("no switch")
        };
        assert_eq!((prev.comm, prev.tid, prev.prio), ("my prog", 7, 120));
        assert_eq!((left, next.comm, next.tid), (PrevState::Blocked, "swapper/0", 0));
        assert!(parse_kind(Tracepoint::Switch, "prev_comm=a prev_pid=7 ==> next_comm=").is_none());
    }

    #[test]
    fn reads_wakeups_forks_and_runtimes() {
        let named = |text| match parse_kind(Tracepoint::Waking, text) {
            Some(Kind::Waking(named, cpu)) => (named.comm.to_owned(), named.tid, named.prio, cpu),
            other => panic!("{other:?}"),
        };
        let read = ("a b".to_owned(), 1, 98, Some(Named::Last(1)));
        assert_eq!(named("comm=a b pid=1 prio=98 target_cpu=001"), read);
        assert_eq!(named("a b:1 [98] success=1 CPU:001"), read);
        assert_eq!(named("comm=a b pid=0x1 (1) prio=98 target_cpu=0x1 (1)"), read);
        assert_eq!(named("comm=a b pid=1 prio=98").3, None);
        assert!(matches!(
            parse_kind(Tracepoint::Migrate, "comm=a pid=1 prio=120 orig_cpu=1 dest_cpu=0"),
            Some(Kind::Migrate { to: 0 })
        ));
        assert!(matches!(
            parse_kind(Tracepoint::Fork, "comm=sh pid=1 child_comm=sh child_pid=2"),
            Some(Kind::Fork { child: 2, child_comm: "sh" })
        ));
        assert!(matches!(
            parse_kind(Tracepoint::Runtime, "comm=a pid=6079 runtime=29158 [ns] vruntime=1 [ns]"),
            Some(Kind::Runtime { tid: 6079, ns: 29158 })
        ));
    }

    #[test]
    fn reads_system_calls() {
        let text = "NR 230 (1, 1, 7ffd0, 0, 0, 0)";
        let Some(Kind::SysEnter { number, args }) = parse_kind(Tracepoint::SysEnter, text) else {
            panic!("no call")
        };
        assert_eq!((number, args), (230, [1, 1, 0x7_ffd0, 0, 0, 0]));
        assert!(parse_kind(Tracepoint::SysEnter, "NR x").is_none());
        assert!(parse_kind(Tracepoint::SysEnter, "NR 1 (1, 2) ffffffff81 [unknown]").is_some());
    }

    #[test]
    fn reads_fields_printed_raw() {
        let enter = |text| match parse_kind(Tracepoint::SysEnter, text) {
            Some(Kind::SysEnter { number, args }) => (number, args[0], args[1]),
            other => panic!("{other:?}"),
        };
        assert_eq!(enter("id=0x21 (33) args=<INVALID-SIZE>"), (33, 0, 0));
        let bytes = "id=12 args=ARRAY[01, 02, 00, 00, 00, 00, 00, 00, 3c]";
        assert_eq!(enter(bytes), (12, 0x201, 0x3c));
        for (text, want) in [
            ("id=0x1 (1) ret=0xfffffffffffffff5 (-11)", -11),
            ("id=1 ret=94027792629760", 94_027_792_629_760),
            ("NR 1 = -2", -2),
        ] {
            let Some(Kind::SysExit { result }) = parse_kind(Tracepoint::SysExit, text) else {
                panic!()
            };
            assert_eq!(result, want, "{text}");
        }
        assert!(matches!(
            parse_kind(
                Tracepoint::Runtime,
                "comm=bash pid=0x4a70 (19056) runtime=0x9791e (620830)"
            ),
            Some(Kind::Runtime { tid: 19056, ns: 620_830 })
        ));
        assert!(matches!(
            parse_kind(
                Tracepoint::Fork,
                "parent_comm=a parent_pid=0x1 (1) child_comm=b child_pid=0x2 (2)"
            ),
            Some(Kind::Fork { child: 2, child_comm: "b" })
        ));
        let switch = "prev_comm=a prev_pid=0x4a70 (19056) prev_prio=0x78 (120) prev_state=0x1 (1) \
                      next_comm=b next_pid=0x2f57 (12119) next_prio=0x78 (120)";
        let Some(Kind::Switch { prev, left, next }) = parse_kind(Tracepoint::Switch, switch) else {
            panic!("no switch")
        };
        assert_eq!((prev.tid, left, next.tid), (19056, PrevState::Sleeping, 12119));
    }

    #[test]
    fn reads_notes() {
        assert!(matches!(
            parse_note("COMM exec: a:b:12/13"),
            Some(Note::Comm { pid: 12, tid: 13, comm: "a:b" })
        ));
        assert!(matches!(
            parse_note("FORK(3:4):(2:2)"),
            Some(Note::Task { pid: 3, tid: 4, parent_pid: 2 })
        ));
        assert!(matches!(
            parse_note("CGROUP cgroup: 41 /a/b"),
            Some(Note::Cgroup { id: 41, path: "/a/b" })
        ));
        assert!(matches!(
            parse_note("LOST lost 12"),
            Some(Note::Lost { events: 12, by_the_kernel: false })
        ));
        assert!(matches!(
            parse_note("LOST_SAMPLES lost 12"),
            Some(Note::Lost { events: 12, by_the_kernel: true })
        ));
        assert!(parse_note("MMAP2 1/1: [0]").is_none());
    }
}
