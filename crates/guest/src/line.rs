//! Lines of a `trace` file of tracefs.

/// `comm-pid [cpu] flags stamp: event: fields`.
pub(crate) struct TraceLine<'a> {
    /// `comm-pid`
    pub who: &'a str,
    pub cpu: u16,
    pub flags: &'a str,
    /// In units of the clock that the file uses.
    pub at: u64,
    pub event: &'a str,
    pub fields: &'a str,
}

impl<'a> TraceLine<'a> {
    /// Takes apart a line of tracefs' `trace`: task, CPU, flags, stamp (read by `clock`), event and
    /// fields. `None` for other lines.
    pub fn parse(line: &'a str, clock: fn(&str) -> Option<u64>) -> Option<TraceLine<'a>> {
        let (who, rest) = line.split_once(" [")?;
        let (cpu, rest) = rest.split_once("] ")?;
        let mut parts = rest.splitn(3, ": ");
        let (stamp, event, fields) = (parts.next()?, parts.next()?, parts.next()?);
        let mut words = stamp.split_ascii_whitespace();
        let (flags, stamp) = (words.next().unwrap_or(""), words.next_back().unwrap_or(""));
        Some(TraceLine { who, cpu: cpu.parse().ok()?, flags, at: clock(stamp)?, event, fields })
    }

    /// Value of the field that begins with `name`, such as `prev_pid=`, up to the next blank;
    /// `None` without such a field.
    pub fn field(&self, name: &str) -> Option<&'a str> {
        field(self.fields, name)
    }

    /// Number in the field `pid=` with a prefix: `prev_`, `next_` or nothing; `None` without one.
    pub fn pid(&self, side: &str) -> Option<u32> {
        self.field(&format!("{side}pid="))?.parse().ok()
    }

    /// The third flag of the line: in which interrupt the CPU was (`h`, `s`, `H`), or `.`; `None`
    /// for a line with fewer.
    pub fn interrupt_flag(&self) -> Option<u8> {
        self.flags.as_bytes().get(2).copied()
    }
}

/// Reads a stamp of the trace clock `mono`, seconds and microseconds, as ns; `None` for other text.
pub(crate) fn monotonic_ns(stamp: &str) -> Option<u64> {
    let (seconds, micros) = stamp.split_once('.')?;
    let (seconds, micros): (u64, u64) = (seconds.parse().ok()?, micros.parse().ok()?);
    Some((seconds * 1_000_000 + micros) * 1000)
}

/// Reads a stamp of the trace clock `x86-tsc`: a value of the time-stamp counter; `None` for other
/// text.
pub(crate) fn tsc(stamp: &str) -> Option<u64> {
    stamp.parse().ok()
}

/// Number of events that the ring buffer has overwritten, from the line of the trace's head that
/// tells entries kept and written; `None` for other lines.
pub(crate) fn lost_events(line: &str) -> Option<u64> {
    let (_, counts) = line.split_once("entries-in-buffer/entries-written: ")?;
    let (kept, written) = counts.split_ascii_whitespace().next()?.split_once('/')?;
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    Some(number(written).saturating_sub(number(kept)))
}

/// Value of the field that begins with `name` in `fields`, up to the next blank; `None` without
/// such a field.
fn field<'a>(fields: &'a str, name: &str) -> Option<&'a str> {
    let is_start = |at: usize| at == 0 || fields.as_bytes()[at - 1] == b' ';
    let (at, _) = fields.match_indices(name).find(|(at, _)| is_start(*at))?;
    fields[at + name.len()..].split_ascii_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let fields = "prev_comm=a b prev_pid=7 pid=9";
        assert_eq!(field(fields, "pid="), Some("9"));
        assert_eq!(field(fields, "prev_pid="), Some("7"));
        assert_eq!(field(fields, "comm="), None);
    }

    #[test]
    fn stamps_are_read_by_their_clock() {
        let line = |stamp: &str| format!("  <idle>-0  [003] d.h2.  {stamp}: walk: (f+0x0/0x1)");
        let at =
            |stamp, clock| TraceLine::parse(&line(stamp), clock).map(|line| (line.cpu, line.at));
        assert_eq!(at("26.000020", monotonic_ns), Some((3, 26_000_020_000)));
        assert_eq!(at("26000020123", tsc), Some((3, 26_000_020_123)));
        assert_eq!(at("26000020123", monotonic_ns), None);
        assert_eq!(lost_events("# entries-in-buffer/entries-written: 5/7   #P:1"), Some(2));
        assert_eq!(lost_events("# tracer: nop"), None);
    }
}
