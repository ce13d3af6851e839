//! When the kernel's own timers fire: the tick, and the edges of limited groups' periods.
//!
//! `/proc/timer_list` shows every armed timer with the name of its function and its expiry, ns of
//! `CLOCK_MONOTONIC`. A period timer keeps its phase while it sleeps, and moves on by the period that is
//! set when it fires: that is how it can be put where a scenario wants it.

use crate::sys;
use std::fs;
use std::io;

/// All armed timers that matter here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timers {
    /// Next tick of each CPU that has one, ns, in order of CPUs.
    pub ticks_ns: Vec<u64>,
    /// Next edge of each armed period timer, ns, ascending.
    pub edges_ns: Vec<u64>,
}

impl Timers {
    /// As they are now. The kernel counts through its timers anew for each line of the file, so one that fires meanwhile
    /// makes it leave out another; then the file is read again.
    ///
    /// # Errors
    /// `/proc/timer_list` cannot be read; only root may.
    pub fn read() -> io::Result<Timers> {
        const TIMES: u32 = 8;
        let mut timers = Timers::default();
        for _ in 0..TIMES {
            let first_ns;
            (timers, first_ns) = Timers::parse(&fs::read_to_string("/proc/timer_list")?);
            if first_ns.is_none_or(|first_ns| sys::monotonic_ns() < first_ns) {
                break;
            }
        }
        Ok(timers)
    }

    /// What the file says, and when the first timer of all fires.
    fn parse(text: &str) -> (Timers, Option<u64>) {
        let mut timers = Timers::default();
        let mut first_ns: Option<u64> = None;
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let line = line.trim_start();
            if !line.starts_with('#') {
                continue;
            }
            let function = line.split(',').nth(1).unwrap_or("").trim();
            let expiry: Option<u64> = lines.next().and_then(|line| {
                let (_, rest) = line.split_once("expires at ")?;
                rest.split(['-', ' ']).next()?.parse().ok()
            });
            first_ns = [first_ns, expiry].into_iter().flatten().min();
            match function {
                "sched_cfs_period_timer" => timers.edges_ns.extend(expiry),
                // From 6.9 on under the second name.
                "tick_sched_timer" | "tick_nohz_handler" => timers.ticks_ns.extend(expiry),
                _ => {}
            }
        }
        timers.edges_ns.sort_unstable();
        (timers, first_ns)
    }

    /// The one edge that is here and not in `before`. One that was there may have fired in between: it is a multiple of one
    /// of `periods_ns` further on now; or it is gone, if it is one of `last_ns`.
    pub fn new_edge(&self, before: &Timers, periods_ns: &[u64], last_ns: &[u64]) -> Option<u64> {
        let mut old = before.edges_ns.clone();
        let mut new = self.edges_ns.clone();
        new.retain(|edge| match old.iter().position(|o| o == edge) {
            Some(at) => {
                old.remove(at);
                false
            }
            None => true,
        });
        for last in last_ns {
            if let Some(at) = old.iter().position(|o| o == last) {
                old.remove(at);
            }
        }
        for fired in old {
            let moved = |edge: u64| {
                edge > fired
                    && periods_ns.iter().any(|&period| (edge - fired).is_multiple_of(period))
            };
            if let Some(at) = new.iter().position(|&edge| moved(edge)) {
                new.remove(at);
            }
        }
        new.first().copied()
    }
}

/// What a reader of `/proc/timer_list` sees of the clock: the first record alone, with the time it was
/// read at. A system call that reads it from within a list of requests learns the time in kernel mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes to read: the first record is longer, so that nothing else is put together for it.
    pub bytes: usize,
    digits_at: usize,
}

/// Longest number it can show.
const DIGITS: usize = 18;

impl Header {
    /// Finds the time in the text of the file.
    pub fn find(text: &str) -> Option<Header> {
        let digits_at = text.find("now at ")? + "now at ".len();
        let record_end = text.find("\n\n")? + 2;
        let bytes = (digits_at + DIGITS).min(record_end);
        Some(Header { bytes, digits_at })
    }

    /// The time in what was read, ns of `CLOCK_MONOTONIC`.
    pub fn time_ns(&self, read: &[u8]) -> u64 {
        let digits = read.get(self.digits_at..).unwrap_or(&[]);
        let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0u64, |ns, digit| ns.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
    }
}

/// First moment not before `from_ns` at which something happens that happens at `at_ns` and every
/// `every_ns` before and after.
pub fn at_or_after(from_ns: u64, at_ns: u64, every_ns: u64) -> u64 {
    let every_ns = every_ns.max(1);
    from_ns + (at_ns % every_ns + every_ns - from_ns % every_ns) % every_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Timer List Version: v0.10
HRTIMER_MAX_CLOCK_BASES: 8
now at 13030765318834 nsecs

cpu: 0
 clock 0:
  .base:       0000000009996db0a
active timers:
 #0: <000000009996db0a>, tick_nohz_handler, S:01
 # expires at 13030768000000-13030768000000 nsecs [in 2298435 to 2298435 nsecs]
 #1: <0000000000000000>, hrtimer_wakeup, S:01
 # expires at 13030768100000-13030768100000 nsecs [in 2298435 to 2298435 nsecs]
 #2: <0000000000000000>, sched_cfs_period_timer, S:01
 # expires at 13030800000007-13030800000007 nsecs [in 2298435 to 2298435 nsecs]
 #3: <0000000000000000>, sched_cfs_period_timer, S:01
 # expires at 13030790000001-13030790000001 nsecs [in 2298435 to 2298435 nsecs]
";

    #[test]
    fn ticks_and_edges_are_found_by_the_names_of_their_functions() {
        let (timers, first_ns) = Timers::parse(TEXT);
        assert_eq!(first_ns, Some(13_030_768_000_000));
        assert_eq!(timers.ticks_ns, [13_030_768_000_000]);
        assert_eq!(timers.edges_ns, [13_030_790_000_001, 13_030_800_000_007]);
        assert_eq!(
            Timers::parse("now at\n #0: <0>, tick_sched_timer\n"),
            (Timers::default(), None)
        );
    }

    #[test]
    fn a_new_edge_is_told_from_old_ones_even_at_the_same_time() {
        let of = |edges: &[u64]| Timers { edges_ns: edges.to_vec(), ..Timers::default() };
        assert_eq!(of(&[5, 7]).new_edge(&of(&[5]), &[], &[]), Some(7));
        assert_eq!(of(&[5, 5]).new_edge(&of(&[5]), &[], &[]), Some(5));
        assert_eq!(of(&[5]).new_edge(&of(&[5, 7]), &[], &[]), None);
    }

    #[test]
    fn an_edge_that_has_moved_on_is_not_new() {
        let of = |edges: &[u64]| Timers { edges_ns: edges.to_vec(), ..Timers::default() };
        let before = of(&[1_007, 1_300]);
        assert_eq!(of(&[1_300, 2_007, 9_000]).new_edge(&before, &[1_000, 50], &[]), Some(9_000));
        assert_eq!(of(&[1_300, 1_500, 2_007]).new_edge(&before, &[1_000], &[]), Some(1_500));
        assert_eq!(of(&[1_300, 2_007]).new_edge(&before, &[1_000], &[]), None);
        // Of two that have the same phase either will do; one that went to sleep is not there any more.
        assert_eq!(of(&[1_300, 2_007, 3_007]).new_edge(&before, &[1_000], &[]), Some(3_007));
        assert_eq!(of(&[1_300, 1_400]).new_edge(&before, &[1_000], &[]), Some(1_400));
        // One that fired and stopped, beside a new one a period later.
        assert_eq!(of(&[2_300]).new_edge(&of(&[1_300]), &[1_000], &[]), None);
        assert_eq!(of(&[2_300]).new_edge(&of(&[1_300]), &[1_000], &[1_300]), Some(2_300));
    }

    #[test]
    fn the_clock_is_read_from_the_head_of_the_file() {
        let header = Header::find(TEXT).unwrap();
        assert_eq!(header.time_ns(&TEXT.as_bytes()[..header.bytes]), 13_030_765_318_834);
        assert!(header.bytes <= TEXT.find("cpu: 0").unwrap());
        assert_eq!(header.time_ns(b"short"), 0);
        assert_eq!(Header::find("nothing"), None);
    }

    #[test]
    fn what_repeats_is_found_from_any_moment() {
        assert_eq!(at_or_after(100, 7, 10), 107);
        assert_eq!(at_or_after(107, 7, 10), 107);
        assert_eq!(at_or_after(108, 1_000_007, 10), 117);
    }
}
