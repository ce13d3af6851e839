//! Lines of ftrace's latency format: `comm-tid 0d..2. 1000000us : event: ...`. `trace-cmd report
//! -l` and the option `latency-format` print them, and the kernel does in its log when it dumps its
//! buffers (`ftrace_dump`, `ftrace_dump_on_oops`).

use super::head::{Head, parse_context, parse_thread, parse_time};

/// The line without what the kernel's log puts before it: `[   12.000010]`, perhaps `[    T1]`
/// behind it, and date, host and `kernel:` before it. `None` without a time stamp.
pub(super) fn logged(text: &str) -> Option<&str> {
    let text = text.split_once(" kernel: ").map_or(text, |(_, behind)| behind);
    let stamped =
        text.trim_start().trim_start_matches(|c: char| "<>".contains(c) || c.is_numeric());
    let (stamp, rest) = stamped.strip_prefix('[')?.split_once(']')?;
    let (seconds, fraction) = stamp.trim_start().split_once('.')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(seconds) || fraction.len() != 6 || !is_number(fraction) {
        return None;
    }
    let caller = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    Some(caller.map_or(rest, |(_, behind)| behind))
}

/// Reads thread, CPU, context and time, and returns the rest of the line too; `None` if one is
/// missing.
pub(super) fn parse_head(text: &str) -> Option<(Head<'_>, &str)> {
    let mut end = 0;
    for word in text.split_whitespace() {
        let at = end + text[end..].find(word)?;
        end = at + word.len();
        let Some((cpu, flags)) = parse_cpu_and_flags(word) else { continue };
        let Some((time_ns, rest)) = parse_time_and_rest(text[end..].trim_start()) else { continue };
        let Some((comm, pid, tid)) = parse_thread(text[..at].trim_end()) else { continue };
        return Some((Head { comm, pid, tid, cpu, context: parse_context(flags), time_ns }, rest));
    }
    None
}

/// CPU and flags in one word: `1d..2.`, `12d.h3`. `None` for any other word.
fn parse_cpu_and_flags(word: &str) -> Option<(u32, &str)> {
    let flags = word.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_flags = (4..=8).contains(&flags.len())
        && flags.starts_with(['.', 'd', 'D', 'X', 'b'])
        && flags.bytes().all(|b| b == b'.' || b == b'#' || b.is_ascii_alphanumeric());
    let cpu = word[..word.len() - flags.len()].parse().ok()?;
    is_flags.then_some((cpu, flags))
}

/// Time, ns, and the rest behind it: `1000000us : `, `12us+: ` where the next event is late, or
/// seconds.
fn parse_time_and_rest(text: &str) -> Option<(u64, &str)> {
    let (first, rest) = text.split_once([' ', '\t'])?;
    if let Some(time_ns) = parse_time(first) {
        return Some((time_ns, rest));
    }
    let (us, behind) = text.split_once("us")?;
    let behind = behind.trim_start_matches([' ', '+', '!', '#', '*', '@', '$']);
    let us: u64 = us.parse().ok()?;
    Some((us.checked_mul(1000)?, behind.strip_prefix(':')?))
}

#[cfg(test)]
mod tests {
    use super::{logged, parse_head};

    #[test]
    fn reads_lines_of_ftrace_dump() {
        let of = |text| {
            let (head, rest) = parse_head(text)?;
            Some((head.comm, head.tid, head.cpu, head.time_ns, rest.trim()))
        };
        let ns = 1_000_002_000;
        for (text, want) in [
            ("  <idle>-0   0d..2. 1000002us : x: y", ("swapper", 0, 0, ns, "x: y")),
            ("  a-b-7  12d.h3 1000002us+: x: y", ("a-b", 7, 12, ns, "x: y")),
            ("  a b-7   1dNh31 1000002us!: x: y", ("a b", 7, 1, ns, "x: y")),
            ("  a-7   1..... 1.000002: x: y", ("a", 7, 1, ns, "x: y")),
        ] {
            assert_eq!(of(text), Some(want), "{text}");
        }
        for text in ["a-7 1d..2. us : x", "a-7 1d..2. 99999999999999999999us : x", "a-7 1d..2. 5us"]
        {
            assert_eq!(of(text), None, "{text}");
        }
        let flags = |text| parse_head(text).unwrap().0.context.unwrap();
        assert!(flags(" a-7 0d.h2. 5us : x: y").hardirq && flags(" a-7 0d.s2. 5us : x: y").softirq);
    }

    #[test]
    fn strips_the_stamp_of_the_kernel_log() {
        for text in [
            "[   12.000010]  a-7",
            "<4>[   12.000010]  a-7",
            "[   12.000010][    T1]  a-7",
            "Nov 28 13:14:59 host kernel: [   12.000010]  a-7",
        ] {
            assert_eq!(logged(text), Some("  a-7"), "{text}");
        }
        for text in ["[kworker] 7 [000] 1.5: x: y", "a 7 [000] 1.5: x: y", "[12] a", ""] {
            assert_eq!(logged(text), None, "{text}");
        }
    }
}
