//! Runs one load once: creates the group, starts the load in it, its client outside, and perf if
//! requested.

use super::Load;
use crate::cgroup::{Cgroup, Counters};
use crate::limit::Limit;
use crate::machine::MachineUse;
use crate::measure::{Report, Summary};
use crate::process::Process;
use crate::stop::Stop;
use anyhow::{Context as _, Result};
use std::fmt;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Time for perf to start; old versions cannot report it.
const PERF_START: Duration = Duration::from_millis(700);

/// Events of the scheduler; docs/reference/recordings.md explains each.
const SCHED_EVENTS: &str = "sched:sched_switch,sched:sched_waking,sched:sched_wakeup_new,\
                            sched:sched_process_fork,sched:sched_process_exit,\
                            sched:sched_process_exec,sched:sched_migrate_task,\
                            sched:sched_stat_runtime";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Events {
    Sched,
    /// Scheduler events and system calls.
    Syscalls,
}

impl Events {
    pub fn arguments(self) -> Vec<&'static str> {
        let mut arguments = vec!["--event", SCHED_EVENTS];
        if self == Events::Syscalls {
            // Otherwise perf records its own writes.
            arguments.extend(["--event", "raw_syscalls:sys_*", "--exclude-perf"]);
        }
        arguments
    }
}

pub struct Setting {
    pub seed: u64,
    /// Amount of work, per cent of the load's usual amount.
    pub scale: u64,
    pub limit: Limit,
    pub recording: Option<(Events, PathBuf)>,
    /// Whether to match the model: idle CPUs keep polling, and periods are counted until the period
    /// timer stops, not only until the load ends.
    pub as_modelled: bool,
    pub stop: Stop,
}

#[derive(Debug, Clone)]
pub struct Measured {
    /// Time from the first request to the last, ns.
    pub duration_ns: u64,
    pub counted: Counted,
    /// Latency at the working threads: from when work was due to its end, ns.
    pub latency_ns: Summary,
    /// Latency at the client, ns; equal to `latency_ns` without a client.
    pub client_latency_ns: Summary,
}

/// Counters over a run.
#[derive(Debug, Clone)]
pub struct Counted {
    pub group: Counters,
    pub machine: MachineUse,
    /// CPU time of everything else on the machine, us.
    pub others_us: u64,
}

impl Counted {
    /// Computes `others_us`; `client_us` is the CPU time of the client.
    pub fn new(group: Counters, machine: MachineUse, client_us: u64) -> Counted {
        let others_us = machine.busy_us.saturating_sub(group.usage_us + client_us);
        Counted { group, machine, others_us }
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counted { group, machine, others_us } = &self.counted;
        write!(
            f,
            "{:.2} s, {} ms CPU, {}/{} periods throttled, p50 {:.2} ms, p99 {:.2} ms; others {} \
             ms, steal {} ms",
            self.duration_ns as f64 / 1e9,
            group.usage_us / 1000,
            group.nr_throttled,
            group.nr_periods,
            self.latency_ns.p50 as f64 / 1e6,
            self.latency_ns.p99 as f64 / 1e6,
            others_us / 1000,
            machine.steal_us / 1000,
        )
    }
}

pub fn run(load: &Load, setting: &Setting) -> Result<Measured> {
    let _awake = setting.as_modelled.then(Awake::hold);
    let group = Cgroup::make()?;
    let Limit { quota_us, period_us, burst_us } = setting.limit;
    if quota_us.is_some() {
        group.limit(quota_us, period_us, burst_us)?;
    }
    let mut inside = Process::testload(&inside_arguments(setting, load))?;
    let first_line = inside.line(&setting.stop)?;
    group.add(inside.id())?;
    let mut outside = match load.outside {
        None => None,
        Some(arguments) => {
            let port = first_line
                .strip_prefix("listening ")
                .with_context(|| format!("`{first_line}`: expected `listening PORT`"))?;
            let client = Process::testload(&outside_arguments(setting, load, arguments, port))?;
            client.line(&setting.stop)?;
            Some(client)
        }
    };
    let perf = match &setting.recording {
        None => None,
        Some((events, path)) => Some(start_perf(*events, path)?),
    };
    let before = (group.counters()?, MachineUse::now()?);
    outside.as_mut().unwrap_or(&mut inside).go()?;
    let client = match &outside {
        None => None,
        Some(client) => Some(report(client, &setting.stop)?),
    };
    let inside = report(&inside, &setting.stop)?;
    let at_end = MachineUse::now()?;
    // The model counts periods until the period timer stops, two periods after the last use.
    if setting.as_modelled && quota_us.is_some() {
        thread::sleep(Duration::from_micros(3 * period_us));
    }
    let counters = group.counters()?.since(&before.0);
    if let Some(perf) = perf {
        perf.interrupt()?;
    }
    let client_us = client.as_ref().map_or(0, |client| client.cpu_ns / 1000);
    let seen = client.as_ref().unwrap_or(&inside);
    Ok(Measured {
        duration_ns: seen.duration_ns,
        counted: Counted::new(counters, at_end.since(&before.1), client_us),
        latency_ns: inside.latency_ns,
        client_latency_ns: seen.latency_ns,
    })
}

fn inside_arguments(setting: &Setting, load: &Load) -> Vec<String> {
    let mut arguments = strings(load.inside);
    if load.outside.is_none() {
        arguments.extend(amounts(setting, load));
    }
    arguments
}

fn outside_arguments(setting: &Setting, load: &Load, own: &[&str], port: &str) -> Vec<String> {
    let mut arguments = strings(own);
    arguments.extend(strings(&["--port", port]));
    arguments.extend(amounts(setting, load));
    arguments
}

fn amounts(setting: &Setting, load: &Load) -> Vec<String> {
    let amount = (load.amount.1 * setting.scale / 100).max(1).to_string();
    let seed = setting.seed.to_string();
    strings(&[load.amount.0, &amount, "--seed", &seed, "--wait"])
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn report(process: &Process, stop: &Stop) -> Result<Report> {
    let line = process.line(stop)?;
    serde_json::from_str(&line).with_context(|| format!("`{line}`: expected a report"))
}

fn start_perf(events: Events, path: &std::path::Path) -> Result<Process> {
    let mut command = Command::new("perf");
    command
        .args(["record", "--quiet", "--all-cpus", "--all-cgroups"])
        .args(["--mmap-pages", "4M"])
        .args(events.arguments())
        .arg("--output")
        .arg(path);
    let perf = Process::start("perf", command)?;
    thread::sleep(PERF_START);
    Ok(perf)
}

/// Keeps idle CPUs polling while it lives. A virtual CPU that halts may come back late and with
/// stolen time; bare metal saves only a little latency.
struct Awake {
    _file: Option<fs::File>,
}

impl Awake {
    fn hold() -> Awake {
        let file = fs::OpenOptions::new()
            .write(true)
            .open("/dev/cpu_dma_latency")
            .and_then(|mut file| file.write_all(&0_u32.to_ne_bytes()).map(|()| file));
        if let Err(error) = &file {
            eprintln!("testload: idle CPUs may halt: /dev/cpu_dma_latency: {error}");
        }
        Awake { _file: file.ok() }
    }
}
