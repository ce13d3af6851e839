//! Expiry times of the kernel's own timers: the tick, and the period timers of limited groups.
//!
//! `/proc/timer_list` shows every armed timer with its function and its expiry, ns of
//! `CLOCK_MONOTONIC`. A period timer keeps its phase while it is inactive, and moves on by the
//! period that is set when it fires. `phases` uses that to set the phase.

use crate::sys;
use std::fs::File;
use std::io::{self, Read};

const FILE: &str = "/proc/timer_list";
/// Text behind the timers of the last CPU.
const END: &str = "\nTick Device:";

/// Pins the caller to its current CPU until dropped. A period timer that it starts by writing a
/// limit belongs to that CPU.
pub struct PinnedCpu {
    cpu: u32,
    before: sys::Cpus,
}

impl PinnedCpu {
    /// Pins the caller to the CPU that it is on, until this is dropped.
    pub fn pin() -> PinnedCpu {
        let before = sys::affinity();
        let cpu = sys::cpu();
        let mut only = sys::Cpus::default();
        let (word, bit) = (cpu as usize / 64, 1 << (cpu % 64));
        // A CPU that is not in the old mask could not be left again.
        if before.0.get(word).is_some_and(|bits| bits & bit != 0) {
            only.0[word] = bit;
            sys::set_affinity(0, &only.0);
        }
        PinnedCpu { cpu, before }
    }

    /// The expiries of CFS period timers on this CPU. The kernel walks its timers anew for each
    /// line of the file, so a timer that fires meanwhile hides another one; then the file is read
    /// again. After eight such reads the last one counts.
    ///
    /// # Errors
    /// `/proc/timer_list` cannot be read; only root may.
    pub fn timers(&self) -> Result<Timers, String> {
        const TIMES: u32 = 8;
        let mut timers = Timers::default();
        let end = format!("\ncpu: {}\n", self.cpu + 1);
        for _ in 0..TIMES {
            let text = text_up_to(&end)?;
            let first_ns;
            (timers, first_ns) = Timers::parse(&text, self.cpu);
            if first_ns.is_none_or(|first_ns| sys::monotonic_ns() < first_ns) {
                break;
            }
        }
        Ok(timers)
    }
}

impl Drop for PinnedCpu {
    /// Gives the caller back the CPUs that it had.
    fn drop(&mut self) {
        sys::set_affinity(0, &self.before.0);
    }
}

/// Reads `/proc/timer_list` up to the text `end`, or whole. With many CPUs a whole read takes so
/// long that timers fire meanwhile.
///
/// # Errors
/// It cannot be read.
fn text_up_to(end: &str) -> Result<String, String> {
    const CHUNK_BYTES: usize = 4096;
    let read = || -> io::Result<String> {
        let mut file = File::open(FILE)?;
        let (mut bytes, mut buffer) = (Vec::new(), [0; CHUNK_BYTES]);
        loop {
            let n = file.read(&mut buffer)?;
            let seen = bytes.len().saturating_sub(end.len());
            bytes.extend_from_slice(&buffer[..n]);
            if n == 0 || bytes[seen..].windows(end.len()).any(|part| part == end.as_bytes()) {
                return Ok(String::from_utf8_lossy(&bytes).into_owned());
            }
        }
    };
    read().map_err(|error| format!("{FILE}: {error}"))
}

/// Time of the next tick, ns, of the first CPU that has one; all CPUs tick at the same time. A
/// `nohz_full` CPU with one task has no tick.
///
/// # Errors
/// `/proc/timer_list` cannot be read; only root may.
pub fn next_tick_ns() -> Result<Option<u64>, String> {
    if let Some(tick_ns) = tick_in(&text_up_to("\ncpu: 1\n")?) {
        return Ok(Some(tick_ns));
    }
    Ok(tick_in(&text_up_to(END)?))
}

/// Expiry of the first armed tick timer in a text of `/proc/timer_list`, ns; `None` if there is
/// none.
fn tick_in(text: &str) -> Option<u64> {
    // The second name is from 6.9 on.
    const TICKS: [&str; 2] = ["tick_sched_timer", "tick_nohz_handler"];
    records(text).find_map(|(function, expiry_ns)| expiry_ns.filter(|_| TICKS.contains(&function)))
}

/// Function and expiry (ns; `None`: not armed) of all timers in a text of `/proc/timer_list`.
fn records(text: &str) -> impl Iterator<Item = (&str, Option<u64>)> {
    let lines = text.lines().map(str::trim_start);
    let pairs = lines.clone().zip(lines.skip(1));
    pairs.filter(|(line, _)| line.starts_with('#') && line.contains(',')).map(|(line, next)| {
        let function = line.split(',').nth(1).unwrap_or("").trim();
        let expiry_ns = next
            .split_once("expires at ")
            .and_then(|(_, rest)| rest.split(['-', ' ']).next()?.parse().ok());
        (function, expiry_ns)
    })
}

/// The armed period timers of a CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timers {
    /// Their next edges, ns, ascending.
    pub edges_ns: Vec<u64>,
}

impl Timers {
    /// Reads from the text of `/proc/timer_list` a CPU's period timers, and the earliest expiry of
    /// all its timers, ns.
    fn parse(text: &str, cpu: u32) -> (Timers, Option<u64>) {
        let of_it = text.split("\ncpu: ").skip(1).find_map(|part| {
            let (number, of_it) = part.split_once('\n')?;
            (number.parse() == Ok(cpu)).then_some(of_it)
        });
        let set = || records(of_it.unwrap_or("")).filter_map(|(name, ns)| Some((name, ns?)));
        let edges = set().filter(|(function, _)| *function == "sched_cfs_period_timer");
        let mut edges_ns: Vec<u64> = edges.map(|(_, ns)| ns).collect();
        edges_ns.sort_unstable();
        (Timers { edges_ns }, set().map(|(_, ns)| ns).min())
    }

    /// The one edge, ns, that these timers have and `before` lacks; `None` without one. An edge of
    /// `before` may have fired in between: then it has moved on by a multiple of one of
    /// `periods_ns`, or is gone if it is one of `last_ns`.
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

/// Position of the time in `/proc/timer_list`. A request that reads the file inside an AIO list
/// learns the time in kernel mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimePosition {
    /// Bytes to read: part of the first record, so that the kernel formats no other.
    pub bytes: usize,
    digits_at: usize,
}

/// Most digits of the time.
const DIGITS: usize = 18;

impl TimePosition {
    /// Finds where the text of `/proc/timer_list` has the current time; `None` if it has none.
    pub fn find(text: &str) -> Option<TimePosition> {
        let digits_at = text.find("now at ")? + "now at ".len();
        let record_end = text.find("\n\n")? + 2;
        let bytes = (digits_at + DIGITS).min(record_end);
        Some(TimePosition { bytes, digits_at })
    }

    /// The time, ns of `CLOCK_MONOTONIC`, in bytes that were read from the start of
    /// `/proc/timer_list`.
    pub fn time_ns(&self, read: &[u8]) -> u64 {
        let digits = read.get(self.digits_at..).unwrap_or(&[]);
        let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0u64, |ns, digit| ns.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
    }
}

/// The first moment not before `from_ns` of an event at `at_ns` that repeats every `every_ns`, in
/// both directions.
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
        let (timers, first_ns) = Timers::parse(TEXT, 0);
        assert_eq!(first_ns, Some(13_030_768_000_000));
        assert_eq!(timers.edges_ns, [13_030_790_000_001, 13_030_800_000_007]);
        assert_eq!(tick_in(TEXT), Some(13_030_768_000_000));
        let unset = "now at\n\ncpu: 0\n #0: <0>, tick_sched_timer\n";
        assert_eq!(Timers::parse(unset, 0), (Timers::default(), None));
        assert_eq!(tick_in(unset), None);
    }

    #[test]
    fn timers_of_other_cpus_do_not_count() {
        let (of_0, of_1) = TEXT.split_at(TEXT.find(" #2").unwrap());
        let text = format!("{of_0}\ncpu: 1\n{of_1}");
        assert_eq!(Timers::parse(&text, 0).0.edges_ns, [0; 0]);
        let (timers, first_ns) = Timers::parse(&text, 1);
        assert_eq!(first_ns, Some(13_030_790_000_001));
        assert_eq!(timers.edges_ns, [13_030_790_000_001, 13_030_800_000_007]);
    }

    #[test]
    fn the_tick_is_that_of_the_first_cpu_that_has_one() {
        let (head, timers) = TEXT.split_at(TEXT.find(" clock 0").unwrap());
        let text = format!("{head} clock 0:\n\ncpu: 1\n{timers}");
        assert_eq!(tick_in(&text), Some(13_030_768_000_000));
    }

    #[test]
    fn a_new_edge_is_told_from_old_ones_even_at_the_same_time() {
        let of = |edges: &[u64]| Timers { edges_ns: edges.to_vec() };
        assert_eq!(of(&[5, 7]).new_edge(&of(&[5]), &[], &[]), Some(7));
        assert_eq!(of(&[5, 5]).new_edge(&of(&[5]), &[], &[]), Some(5));
        assert_eq!(of(&[5]).new_edge(&of(&[5, 7]), &[], &[]), None);
    }

    #[test]
    fn an_edge_that_has_moved_on_is_not_new() {
        let of = |edges: &[u64]| Timers { edges_ns: edges.to_vec() };
        let before = of(&[1_007, 1_300]);
        assert_eq!(of(&[1_300, 2_007, 9_000]).new_edge(&before, &[1_000, 50], &[]), Some(9_000));
        assert_eq!(of(&[1_300, 1_500, 2_007]).new_edge(&before, &[1_000], &[]), Some(1_500));
        assert_eq!(of(&[1_300, 2_007]).new_edge(&before, &[1_000], &[]), None);
        // Of two with the same phase either will do. A timer that went to sleep is no longer
        // listed.
        assert_eq!(of(&[1_300, 2_007, 3_007]).new_edge(&before, &[1_000], &[]), Some(3_007));
        assert_eq!(of(&[1_300, 1_400]).new_edge(&before, &[1_000], &[]), Some(1_400));
        // One timer fired and stopped, beside a new one that is a period later.
        assert_eq!(of(&[2_300]).new_edge(&of(&[1_300]), &[1_000], &[]), None);
        assert_eq!(of(&[2_300]).new_edge(&of(&[1_300]), &[1_000], &[1_300]), Some(2_300));
    }

    #[test]
    fn the_clock_is_read_from_the_head_of_the_file() {
        let header = TimePosition::find(TEXT).unwrap();
        assert_eq!(header.time_ns(&TEXT.as_bytes()[..header.bytes]), 13_030_765_318_834);
        assert!(header.bytes <= TEXT.find("cpu: 0").unwrap());
        assert_eq!(header.time_ns(b"short"), 0);
        assert_eq!(TimePosition::find("nothing"), None);
    }

    #[test]
    fn what_repeats_is_found_from_any_moment() {
        assert_eq!(at_or_after(100, 7, 10), 107);
        assert_eq!(at_or_after(107, 7, 10), 107);
        assert_eq!(at_or_after(108, 1_000_007, 10), 117);
    }
}
