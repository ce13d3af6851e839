//! `cpumax inspect`: what is in a recording, before anything is asked of it.

use crate::args::InspectArgs;
use crate::failure::Failure;
use crate::output::{self, BAD};
use crate::reading;
use cpumax_engine::recorded;
use cpumax_recording::{Loop, Request, Service, Summary, Waits};
use cpumax_report::{cpus, duration, escape, percent};
use std::io::Write;

pub fn inspect(args: &InspectArgs) -> Result<(), Failure> {
    let recording = reading::read(&args.reading)?;
    let summary = recording.summary();
    let mut out = output::stdout();
    writeln!(out, "{}", reading::describe(&args.reading, &summary))?;
    if let Some(command) = &summary.command {
        writeln!(out, "Recorded by: {}", escape::line(command))?;
    }
    let busy = |ns: u64| cpus(ns as f64 / summary.span_ns.max(1) as f64);
    let uses = format!(
        "CPUs in use: {} by threads, {} by the recording itself, {} by interrupts or taken by others",
        busy(summary.runtime_ns),
        busy(summary.recorder_ns),
        busy(summary.uncharged_ns)
    );
    writeln!(out, "{}\n", output::wrapped(&uses))?;
    write!(out, "{}", groups(&summary, args.top))?;
    write!(out, "{}", threads(&summary, args.top))?;
    for (name, service) in recording.services() {
        writeln!(out, "{}", output::wrapped(&served(&name, &service)))?;
    }
    let waits = Waits::of(&summary.threads);
    if !waits.are_known() {
        let unknown = format!(
            "Of {} of {} waits it is not known when they ended: no latency can be told from this \
             recording.",
            waits.unknown, waits.all
        );
        writeln!(out, "{}", output::styled(BAD, &output::wrapped(&unknown)))?;
    }
    if summary.defects.is_empty() {
        writeln!(out, "Nothing was lost or out of order.")?;
    } else {
        writeln!(out, "{}\n{}", output::styled(BAD, "What was wrong:"), summary.defects)?;
    }
    Ok(())
}

/// What requests the threads of this name served, and how those who asked ask.
fn served(name: &str, service: &Service) -> String {
    let mut took_ns: Vec<u64> = service.requests.iter().map(Request::took_ns).collect();
    took_ns.sort_unstable();
    let point = |percent: usize| duration(took_ns[(took_ns.len() - 1) * percent / 100]);
    let evidence = &service.evidence;
    let clients = match service.clients {
        Loop::Open => "by plan (open loop)",
        _ => "a while after each answer (closed loop)",
    };
    let sure = if service.sure { "" } else { "probably " };
    format!(
        "{} served {} requests on {} connections, p50 {}, p99 {}. Its clients ask {sure}{clients}: \
         for each ms that an answer takes longer the next request comes {:.2} ms (+-{:.2}) later \
         after it.\n",
        escape::line(name),
        service.requests.len(),
        service.connections,
        point(50),
        point(99),
        evidence.slope,
        evidence.error,
    )
}

fn groups(summary: &Summary, top: usize) -> String {
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
            duration(*runtime_ns),
            share(*runtime_ns, summary),
            (**path).to_owned(),
        ]
    });
    let header = ["threads", "CPU time", "CPUs", "group and those below it"];
    let table = cpumax_report::list(&header, rows, output::width());
    format!("{table}{}\n", more(groups.len(), top, "groups"))
}

fn threads(summary: &Summary, top: usize) -> String {
    let rows = summary.threads.iter().take(top).map(|thread| {
        let of_all = thread.runtime_ns as f64 / summary.runtime_ns.max(1) as f64;
        let group = if thread.kernel { "(kernel)" } else { thread.group.as_deref().unwrap_or("") };
        vec![
            thread.name.clone(),
            duration(thread.runtime_ns),
            percent(of_all),
            thread.waits.to_string(),
            group.to_owned(),
        ]
    });
    let header = ["thread", "CPU time", "of all", "waits", "group"];
    let table = cpumax_report::list(&header, rows, output::width());
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
