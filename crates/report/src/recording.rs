//! Prints the contents of a recording.

use crate::escape;
use crate::itself::recorder_notes;
use crate::page::Page;
use crate::style::{BAD, styled};
use crate::table::list;
use crate::units::{cpus, duration, percent};
use cpumax_forecast::recorded;
use cpumax_outcome::percentile;
use cpumax_recording::{EventCost, Gap, Loop, Recording, Request, Service, Summary};
use std::fmt::Write;

/// Form and size of a recording, in some lines; `name` is its name.
pub fn recording_heading(name: &str, summary: &Summary, page: Page) -> String {
    let mut text = format!(
        "{}: {} on {} CPUs, {} events, {} threads",
        escape::line(name),
        duration(summary.span_ns),
        summary.cpus,
        summary.events,
        summary.threads.len()
    );
    if let Some(kernel) = &summary.kernel {
        let _ = write!(text, ", Linux {}", escape::line(kernel));
    }
    let EventCost { syscall_ns, other_ns } = summary.event_cost;
    if syscall_ns > 0 || other_ns > 0 {
        let calls = if summary.has_syscalls {
            format!(", {syscall_ns} ns each entry into and exit from a system call")
        } else {
            String::new()
        };
        let _ =
            write!(text, "\nRecording an event cost {other_ns} ns{calls}: taken off CPU times.");
    }
    if !summary.has_syscalls {
        text.push_str(
            "\nNo system calls were recorded: all CPU time of threads counts as user mode.",
        );
    }
    text.lines().map(|line| page.wrapped(line)).collect::<Vec<_>>().join("\n")
}

/// Gaps of a recording, a paragraph each; those that make all numbers doubtful are highlighted.
pub(crate) fn missing(gaps: &[Gap], page: Page) -> String {
    let paragraph = |gap: &Gap| {
        let text = page.wrapped(&escape::line(&gap.told));
        if gap.doubtful { format!("{}\n", styled(BAD, text)) } else { text + "\n" }
    };
    gaps.iter().map(paragraph).collect()
}

pub(crate) fn mark(doubtful: bool) -> &'static str {
    if doubtful { "?" } else { "" }
}

/// Contents of a recording: CPUs in use, groups, threads and requests, at most `top` of each, and
/// its defects.
pub fn recording_text(name: &str, recording: &Recording, top: usize, page: Page) -> String {
    let summary = recording.summary();
    let mut out = recording_heading(name, &summary, page) + "\n";
    if let Some(command) = &summary.command {
        let _ = writeln!(out, "Recorded by: {}", escape::line(command));
    }
    out.push_str(&recorder_notes(&summary, page));
    let doubt = mark(summary.is_doubtful());
    let busy = |ns: u64| cpus(ns as f64 / summary.span_ns.max(1) as f64) + doubt;
    let uses = format!(
        "CPUs in use: {} by threads, {} by the recording itself, {} by interrupts or taken by \
         others",
        busy(summary.runtime_ns),
        busy(summary.recorder_ns),
        busy(summary.uncharged_ns)
    );
    let _ = writeln!(out, "{}\n", page.wrapped(&uses));
    if !summary.gaps.is_empty() {
        let _ = writeln!(out, "{}", missing(&summary.gaps, page));
    }
    if !summary.has_processes {
        let _ = writeln!(out, "{}\n", page.wrapped(NO_PROCESSES));
    }
    out.push_str(&groups(&summary, top, page));
    out.push_str(&threads(&summary, top, page));
    for (name, service) in recorded::services(recording, &summary) {
        let _ = writeln!(out, "{}", page.wrapped(&served(&name, &service)));
    }
    let _ = if summary.defects.is_empty() && !summary.is_doubtful() {
        writeln!(out, "Nothing was lost or out of order.")
    } else if summary.defects.is_empty() {
        Ok(())
    } else {
        writeln!(out, "{}\n{}", styled(BAD, "What was wrong:"), summary.defects)
    };
    out
}

const NO_PROCESSES: &str = "Processes of threads are not told: pid:N chooses a thread and those \
that it started, names and groups choose others.";

/// Requests that threads of this name served, and how their clients ask.
fn served(name: &str, service: &Service) -> String {
    let mut took_ns: Vec<u64> = service.requests.iter().map(Request::took_ns).collect();
    took_ns.sort_unstable();
    let point = |percent| duration(percentile(&took_ns, percent).copied().unwrap_or(0));
    let evidence = &service.evidence;
    let clients = match service.clients {
        Loop::Open => "by plan (open loop)",
        _ => "a while after each answer (closed loop)",
    };
    let sure = if service.sure { "" } else { "probably " };
    let how = if service.recorded { "" } else { " (inferred from who woke whom)" };
    let asleep = match evidence.asleep {
        closed if closed >= 1.0 => {
            " The more answers they wait for, the less often timers end their sleep."
        }
        open if open <= -1.0 => " Timers end their sleep as often whatever they wait for.",
        _ => "",
    };
    format!(
        "{} served {} requests{how} on {} connections, p50 {}, p99 {}. Its clients ask \
         {sure}{clients}: for each ms that an answer takes longer the next request comes {:.2} ms \
         (+-{:.2}) later after it.{asleep}\n",
        escape::line(name),
        service.requests.len(),
        service.connections,
        point(50),
        point(99),
        evidence.slope,
        evidence.error,
    )
}

fn groups(summary: &Summary, top: usize, page: Page) -> String {
    let groups = recorded::runtime_by_group(&summary.threads);
    if groups.is_empty() && summary.has_groups {
        return "All threads are in the root group.\n\n".to_owned();
    }
    if groups.is_empty() {
        return "Control groups were not recorded (perf record --all-cgroups would).\n\n"
            .to_owned();
    }
    let mut busiest: Vec<_> = groups.iter().collect();
    busiest.sort_by(|a, b| b.1.0.cmp(&a.1.0).then(a.0.cmp(b.0)));
    let rows = busiest.iter().take(top).map(|(path, (runtime_ns, threads))| {
        vec![
            threads.to_string(),
            duration(*runtime_ns) + mark(summary.is_doubtful()),
            share(*runtime_ns, summary) + mark(summary.is_doubtful()),
            (**path).to_owned(),
        ]
    });
    let header = ["threads", "CPU time", "CPUs", "group and those below it"];
    let table = list(&header, rows, page.width());
    format!("{table}{}\n", more(groups.len(), top, "groups"))
}

fn threads(summary: &Summary, top: usize, page: Page) -> String {
    let rows = summary.threads.iter().take(top).map(|thread| {
        let of_all = thread.runtime_ns as f64 / summary.runtime_ns.max(1) as f64;
        let group = if thread.kernel { "(kernel)" } else { thread.group.as_deref().unwrap_or("") };
        vec![
            thread.name.clone(),
            duration(thread.runtime_ns) + mark(summary.is_doubtful()),
            percent(of_all) + mark(summary.is_doubtful()),
            thread.waits.to_string(),
            group.to_owned(),
        ]
    });
    let header = ["thread", "CPU time", "of all", "waits", "group"];
    let table = list(&header, rows, page.width());
    format!("{table}{}\n", more(summary.threads.len(), top, "threads"))
}

fn share(runtime_ns: u64, summary: &Summary) -> String {
    cpus(runtime_ns as f64 / summary.span_ns.max(1) as f64)
}

fn more(all: usize, shown: usize, what: &str) -> String {
    match all.saturating_sub(shown) {
        0 => String::new(),
        more => format!("and {more} more {what}: see --top\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::recording_text;
    use crate::page::Page;
    use cpumax_recording::{GapKind, Options, Recording};

    #[test]
    fn what_a_form_does_not_tell_is_told() {
        let switch = "prev_comm=a prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=b \
                      next_pid=8 next_prio=120";
        let ran = "comm=b pid=8 runtime=100000000 [ns]";
        let (charges, context) = (GapKind::Charges, GapKind::Context);
        for (lines, want, processes) in [
            (
                format!(" a 7 [000] 1.5: sched:sched_switch: {switch}\n"),
                vec![charges, context],
                false,
            ),
            (
                format!(
                    " a 7/7 [000] 1.5: sched:sched_switch: {switch}\n \
                     b 7/8 [000] 1.6: sched:sched_stat_runtime: {ran}\n"
                ),
                vec![context],
                true,
            ),
            (
                format!(
                    " a-7 (  7) [000] d..2. 1.5: sched_switch: {switch}\n \
                     b-8 (  7) [000] d..2. 1.6: sched_stat_runtime: {ran}\n"
                ),
                vec![],
                true,
            ),
        ] {
            let options = Options::default();
            let recording = Recording::read_bytes("text", lines.as_bytes(), options).unwrap();
            let gaps = recording.gaps();
            assert_eq!(gaps.iter().map(|gap| gap.kind).collect::<Vec<_>>(), want, "{gaps:?}");
            let text = recording_text("text", &recording, 5, Page::of(Some(10_000)));
            assert!(gaps.iter().all(|gap| text.contains(&gap.told)), "{text}");
            assert_eq!(!text.contains("Processes of threads"), processes, "{text}");
        }
    }
}
