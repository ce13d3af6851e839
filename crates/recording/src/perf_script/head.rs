//! The head of a line: thread, CPU, context and time.

use crate::event::Context;

pub(super) struct Head<'a> {
    pub comm: &'a str,
    pub pid: Option<i32>,
    pub tid: i32,
    pub cpu: u32,
    pub context: Option<Context>,
    pub time_ns: u64,
}

/// Thread, CPU, context and time of `comm pid/tid [cpu] time:`, and the rest. A name may hold
/// spaces and brackets, so the first `[cpu]` counts that has a thread before it and a time behind
/// it; `None` without one.
pub(super) fn parse_head(text: &str) -> Option<(Head<'_>, &str)> {
    text.match_indices('[').find_map(|(at, _)| {
        let (cpu, behind) = text[at + 1..].split_once(']')?;
        let cpu = cpu.parse().ok()?;
        let (comm, pid, tid) = parse_thread(text[..at].trim_end())?;
        let (context, time_ns, rest) = parse_flags_and_time(behind)?;
        let head = Head { comm, pid, tid, cpu, context, time_ns };
        Some((head, rest))
    })
}

/// Name, process and thread id: `comm tid`, `comm pid/tid`, or the kernel's `comm-tid`, with or
/// without its column of processes: `comm-tid (  pid)`.
pub(super) fn parse_thread(text: &str) -> Option<(&str, Option<i32>, i32)> {
    if let Some((thread, pid)) = text.strip_suffix(')').and_then(|text| text.rsplit_once('('))
        && (pid.trim().bytes().all(|b| b.is_ascii_digit()) || pid.bytes().all(|b| b == b'-'))
        && thread.ends_with(' ')
    {
        let (comm, _, tid) = parse_thread_only(thread.trim_end())?;
        return Some((comm, pid.trim().parse().ok().filter(|pid| *pid > 0), tid));
    }
    parse_thread_only(text)
}

/// Name, process and thread id of `comm tid`, `comm pid/tid` or `comm-tid`; the kernel's `<idle>`
/// becomes `swapper`. `None` without a thread id.
fn parse_thread_only(text: &str) -> Option<(&str, Option<i32>, i32)> {
    let (comm, last) = text.rsplit_once([' ', '\t']).unwrap_or(("", text));
    if let Ok(tid) = last.parse() {
        return Some((comm.trim(), None, tid));
    }
    if let Some((pid, tid)) = last.split_once('/')
        && let (Ok(pid), Ok(tid)) = (pid.parse(), tid.parse())
    {
        return Some((comm.trim(), Some(pid).filter(|pid| *pid > 0), tid));
    }
    let (comm, tid) = text.rsplit_once('-')?;
    let tid = tid.parse().ok()?;
    let comm = comm.trim();
    // The kernel's name of the idle task.
    Some((if comm == "<idle>" { "swapper" } else { comm }, None, tid))
}

/// Context, time (ns) and the rest of `d.h2. 12.345678:`, or only the time; `None` without a time.
/// In the place of the flags perf may print its column `misc`, capital letters only, which tells no
/// context.
fn parse_flags_and_time(text: &str) -> Option<(Option<Context>, u64, &str)> {
    let text = text.trim_start();
    let (first, rest) = text.split_once([' ', '\t'])?;
    if let Some(time_ns) = parse_time(first) {
        return Some((None, time_ns, rest));
    }
    if first.len() > 8 || first.ends_with(':') {
        return None;
    }
    let (second, rest) = rest.trim_start().split_once([' ', '\t'])?;
    let context = parse_context(first).filter(|_| !first.bytes().all(|b| b.is_ascii_uppercase()));
    Some((context, parse_time(second)?, rest))
}

/// The interrupt context by the third flag: h hard, s soft, H hard within soft, z and Z
/// non-maskable. `None` for fewer flags.
pub(super) fn parse_context(flags: &str) -> Option<Context> {
    let letter = flags.chars().nth(2)?;
    Some(Context { hardirq: "hHzZ".contains(letter), softirq: "sH".contains(letter) })
}

/// Seconds with one to nine decimals, and a colon; returns ns. `None` for any other word.
pub(super) fn parse_time(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.strip_suffix(':')?.split_once('.')?;
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let seconds: u64 = seconds.parse().ok()?;
    let scale = 10_u64.pow(9 - fraction.len() as u32);
    let fraction_ns = fraction.parse::<u64>().ok()? * scale;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction_ns)
}

#[cfg(test)]
mod tests {
    use super::{parse_head, parse_time};

    #[test]
    fn reads_times() {
        assert_eq!(parse_time("837.425788:"), Some(837_425_788_000));
        assert_eq!(parse_time("1.000000001:"), Some(1_000_000_001));
        assert_eq!(parse_time("1.5:"), Some(1_500_000_000));
        for bad in ["1.5", "1:", ".5:", "1.:", "1.1234567890:", "99999999999999999999.0:", "1.+5:"]
        {
            assert_eq!(parse_time(bad), None, "{bad}");
        }
    }

    #[test]
    fn reads_heads_with_odd_names() {
        for (text, comm, pid, tid) in [
            ("     perf  6079 [001]  8.5: x", "perf", None, 6079),
            ("     perf  12/13 [001]  8.5: x", "perf", Some(12), 13),
            ("  a b [0] c  12/13 [001]  8.5: x", "a b [0] c", Some(12), 13),
            ("  :-1    -1 [001]  8.5: x", ":-1", None, -1),
            ("  my-prog-77  [001] d.h2.  8.5: x", "my-prog", None, 77),
            ("  <idle>-0  [001] d.s2.  8.5: x", "swapper", None, 0),
            ("  my-prog-77  (   12) [001] d.h2.  8.5: x", "my-prog", Some(12), 77),
            ("  my-prog-77  (-----) [001]  8.5: x", "my-prog", None, 77),
            ("  perf 13 [001] K      8.5: x", "perf", None, 13),
            ("  perf 13 [001] UKS    8.5: x", "perf", None, 13),
        ] {
            let (head, rest) = parse_head(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((head.comm, head.pid, head.tid), (comm, pid, tid));
            assert_eq!((head.cpu, head.time_ns, rest), (1, 8_500_000_000, "x"));
        }
        let (flags, _) = parse_head("  my-prog-77  [001] d.h2.  8.5: x").unwrap();
        assert!(flags.context.is_some_and(|c| c.hardirq && !c.softirq));
        let (misc, _) = parse_head("  perf 13 [001] KSH    8.5: x").unwrap();
        assert!(misc.context.is_none());
    }
}
