//! One line: thread, CPU and time, then the event.

use super::head::parse_head;
use super::{content, latency};
use crate::event::{Event, Kind, Note};
use crate::tracepoint::Tracepoint;

pub(super) enum Line<'a> {
    /// `# key : value` before the events.
    Header(&'a str, &'a str),
    Event(Event<'a>),
    Note(Note<'a>),
    /// The kernel's own head: events that were overwritten, and CPUs online.
    Ring {
        overwritten: u64,
        cpus: Option<u32>,
    },
    /// Nothing, or a part of a call chain.
    Empty,
    Unreadable,
}

/// State kept from line to line.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub has_switch: bool,
    /// Whether perf recorded switches as records of its own.
    pub has_switch_records: bool,
    /// Whether a switch stands for several.
    pub is_sampled: bool,
    /// `sched_waking` comes before `sched_wakeup`, which is not needed then.
    has_waking: bool,
}

impl Lines {
    /// Reads a line: a header, an event, a note of perf or of lost events, nothing, or unreadable.
    /// Switches and wakeups are remembered, for what later lines mean and for what is known of the
    /// file.
    pub fn read<'a>(&mut self, text: &'a str) -> Line<'a> {
        let logged = latency::logged(text.trim_end());
        let trimmed = logged.unwrap_or(text.trim_end());
        if let Some(header) = trimmed.strip_prefix('#') {
            if let Some(ring) = parse_ring(header) {
                return ring;
            }
            return match header.split_once(" : ") {
                Some((key, value)) => Line::Header(key.trim(), value.trim()),
                None => Line::Empty,
            };
        }
        if trimmed.is_empty() || is_frame(trimmed) || is_of_a_tool(trimmed) {
            return Line::Empty;
        }
        if let Some(cpus) = trimmed.strip_prefix("cpus=") {
            return Line::Header("nrcpus online", cpus);
        }
        if let Some(note) = parse_lost_on(trimmed) {
            return Line::Note(note);
        }
        let record = trimmed.find("PERF_RECORD_").map(|at| &trimmed[at + "PERF_RECORD_".len()..]);
        if let Some(record) = record {
            self.has_switch_records |= record.starts_with("SWITCH");
            return content::parse_note(record).map_or(Line::Empty, Line::Note);
        }
        match self.event(trimmed) {
            Some(event) => Line::Event(event),
            // The kernel's log has other lines.
            None if logged.is_some() && !trimmed.contains("us : ") => Line::Empty,
            None => Line::Unreadable,
        }
    }

    /// Reads an event, and notes switches, samples of them and wakeups; `None` if a column is
    /// missing. A wakeup after `sched_waking` counts for nothing.
    fn event<'a>(&mut self, text: &'a str) -> Option<Event<'a>> {
        let (head, rest) = parse_head(text).or_else(|| latency::parse_head(text))?;
        let (period, name, content) = parse_name_and_content(rest)?;
        let mut tracepoint = match name {
            None => Tracepoint::Other,
            Some((Some(system), name)) => Tracepoint::from_system(system, name),
            Some((None, name)) => Tracepoint::from_name(name),
        };
        let kind = match content::parse_kind(tracepoint, content.trim()) {
            Some(_) if tracepoint == Tracepoint::Wakeup && self.has_waking => Kind::Other,
            Some(kind) => kind,
            // A probe with the name of the tracepoint: its content begins with its place.
            None if content.trim_start().starts_with('(') => {
                tracepoint = Tracepoint::Other;
                Kind::Other
            }
            None => return None,
        };
        self.has_switch |= tracepoint == Tracepoint::Switch;
        self.is_sampled |= tracepoint == Tracepoint::Switch && period > 1;
        self.has_waking |= tracepoint == Tracepoint::Waking;
        Some(Event {
            time_ns: head.time_ns,
            cpu: head.cpu,
            tid: head.tid,
            pid: head.pid,
            // perf writes `:123` for a thread whose name it does not know, the kernel `<...>`.
            comm: Some(head.comm).filter(|c| !c.is_empty() && !c.starts_with(':') && *c != "<...>"),
            cgroup: None,
            context: head.context,
            kind,
        })
    }
}

/// The kernel's head of a CPU's ring buffer. ` entries-in-buffer/entries-written: 197/402   #P:2`,
/// or `#### CPU 1 buffer started ####`, which the kernel prints only where something was
/// overwritten.
fn parse_ring(header: &str) -> Option<Line<'static>> {
    if header.ends_with(" buffer started ####") {
        return Some(Line::Ring { overwritten: 0, cpus: None });
    }
    let (_, counts) = header.split_once("entries-in-buffer/entries-written:")?;
    let (counts, cpus) = counts.split_once("#P:").unwrap_or((counts, ""));
    let (kept, written) = counts.trim().split_once('/')?;
    let (kept, written): (u64, u64) = (kept.parse().ok()?, written.parse().ok()?);
    let overwritten = written.saturating_sub(kept);
    let cpus = cpus.trim().parse().ok();
    Some(Line::Ring { overwritten, cpus })
}

/// `CPU:1 [LOST 141 EVENTS]`, or `CPU:1 [141 EVENTS DROPPED]`; without the number it counts as 1.
fn parse_lost_on(text: &str) -> Option<Note<'static>> {
    let (cpu, what) = text.strip_prefix("CPU:")?.split_once(" [")?;
    let what = what.strip_suffix(']')?;
    if !what.contains("EVENTS") {
        return None;
    }
    let events = what.split(' ').find_map(|word| word.parse().ok());
    Some(Note::LostOn { cpu: cpu.parse().ok()?, events: events.unwrap_or(1) })
}

/// Whether it is a line that `trace-cmd report`, `atrace` or `traceconv systrace` prints before the
/// events.
fn is_of_a_tool(text: &str) -> bool {
    text.starts_with("version = ")
        || (text.starts_with("CPU ") && text.ends_with(" is empty"))
        || text.starts_with("capturing trace...")
        || text == "TRACE:"
}

/// Whether it is a line of a call chain: indented, with an address first, and no event.
fn is_frame(text: &str) -> bool {
    if !text.starts_with([' ', '\t']) {
        return false;
    }
    let address = text.split_whitespace().next().unwrap_or_default();
    address.bytes().all(|b| b.is_ascii_hexdigit()) && parse_head(text).is_none()
}

/// Period, name and content of `sched:sched_switch: content`. A number before the name is the
/// period (else 1); the time since the event before, `(+12)`, is skipped. The name is `None` for an
/// event that is not a tracepoint; all is `None` if no colon ends it.
fn parse_name_and_content(text: &str) -> Option<(u64, Option<Name<'_>>, &str)> {
    let mut rest = text.trim_start();
    if let Some((_, behind)) = rest.strip_prefix("(+").and_then(|rest| rest.split_once(')')) {
        rest = behind.trim_start();
    }
    let mut period = 1;
    if let Some((first, behind)) = rest.split_once([' ', '\t'])
        && first.bytes().all(|b| b.is_ascii_digit())
    {
        period = first.parse().unwrap_or(u64::MAX);
        rest = behind.trim_start();
    }
    let (name, content) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
    let name = name.strip_suffix(':')?;
    // `cycles:`, `cpu-clock:ppp:` and others have no content of use.
    let (system, name) =
        name.rsplit_once(':').map_or((None, name), |(system, name)| (Some(system), name));
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    Some((period, Some((system, name)).filter(|_| plain), content))
}

/// Name of an event, with its system if that is printed.
type Name<'a> = (Option<&'a str>, &'a str);

#[cfg(test)]
mod tests {
    use super::{Line, Lines};
    use crate::event::{Kind, PrevState};

    #[test]
    fn tells_lines_apart() {
        let mut lines = Lines::default();
        let switch = "  a b 7 [001] 8.5: sched:sched_switch: prev_comm=a b prev_pid=7 \
                      prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120";
        let Line::Event(event) = lines.read(switch) else { panic!("no event") };
        let Kind::Switch { prev, left, next } = event.kind else { panic!("no switch") };
        assert_eq!((prev.comm, prev.tid, left, next.tid), ("a b", 7, PrevState::Sleeping, 0));
        assert!(lines.has_switch);
        assert!(matches!(lines.read("# arch : x86_64"), Line::Header("arch", "x86_64")));
        let since = "  <...>-7 [001] 8.500000011: (+3656)  sched_wakeup: comm=a pid=7 prio=120";
        assert!(matches!(
            lines.read(since),
            Line::Event(event) if event.comm.is_none() && matches!(event.kind, Kind::Waking(..))
        ));
        assert!(matches!(lines.read("  ffffffff81234567 schedule+0x12"), Line::Empty));
        assert!(matches!(lines.read("\t       0 [unknown] ([unknown])"), Line::Empty));
        assert!(matches!(lines.read("GET / HTTP/1.1"), Line::Unreadable));
        assert!(matches!(
            lines.read("  a 7 [001] 8.5: 1 cycles:  ffffffff81 schedule"),
            Line::Event(event) if matches!(event.kind, Kind::Other)
        ));
    }
}
