//! An excerpt of a run in the trace format.

use super::{Args, ChromeTrace, Entry, LIMITS, TASKS, entry};
use cpumax_forecast::stretch::{Does, Stretch};
use std::io::{self, Write};

/// Writes an excerpt to `out`; `group` is the limited group.
pub(crate) fn write_stretch<W: Write>(stretch: &Stretch, group: &str, out: W) -> io::Result<W> {
    let mut writer = ChromeTrace::new(out)?;
    let length_ns = stretch.until_ns.saturating_sub(stretch.from_ns);
    for (thread, at) in stretch.threads.iter().zip(0..) {
        writer.write_name("thread_name", TASKS, at, Args::Name(&thread.name))?;
        writer.write_name("thread_sort_index", TASKS, at, Args::SortIndex(at))?;
        for (from_ns, until_ns, does) in thread.pieces(length_ns) {
            writer.write_slice(TASKS, at, state_name(does), from_ns, until_ns, None)?;
        }
    }
    let track = stretch.threads.len() as u32;
    writer.write_name("thread_name", TASKS, track, Args::Name("the request"))?;
    let done_ns = stretch.done_ns.saturating_sub(stretch.from_ns);
    let begun_ns = done_ns.saturating_sub(stretch.took_ns);
    writer.write_slice(TASKS, track, "request", begun_ns, done_ns, None)?;
    writer.write_name("thread_name", LIMITS, 0, Args::Name(&format!("{group} periods")))?;
    for at_ns in &stretch.periods_ns {
        writer.write_entry(&Entry { s: Some("t"), ..entry("i", "period", LIMITS, 0, *at_ns) })?;
    }
    for [at_ns, left_usec] in &stretch.runtime {
        let args = Some(Args::Ms(*left_usec as f64 / 1e3));
        let name = format!("{group} runtime left");
        writer.write_entry(&Entry { args, ..entry("C", &name, LIMITS, 0, *at_ns) })?;
    }
    writer.finish()
}

/// The name of a thread's state.
pub(crate) fn state_name(does: Does) -> &'static str {
    match does {
        Does::Sleeps => "asleep",
        Does::Runs => "running",
        Does::Ready => "ready",
        Does::Stopped => "stopped by the limit",
        Does::WaitsForLock => "waiting for a lock",
    }
}
