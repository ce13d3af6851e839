//! One run of one load: the group, the load in it, its client outside, perf if asked for.

use super::Context;
use super::plan::{Load, NamedLimit};
use crate::cgroup::{Cgroup, Counters};
use crate::machine::MachineUse;
use crate::measure::{Report, Summary};
use crate::process::Process;
use anyhow::{Context as _, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// How long perf may take to begin. It has no word for it that old versions know.
const PERF_START: Duration = Duration::from_millis(700);

/// Events of the scheduler. docs/recordings.md says what each is for.
const SCHED_EVENTS: &str = "sched:sched_switch,sched:sched_waking,sched:sched_wakeup_new,\
                            sched:sched_process_fork,sched:sched_process_exit,\
                            sched:sched_process_exec,sched:sched_migrate_task,\
                            sched:sched_stat_runtime";

/// Which events a recording has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Events {
    /// Those of the scheduler.
    Sched,
    /// System calls too.
    Syscalls,
}

impl Events {
    /// As arguments of `perf record`.
    pub fn arguments(self) -> Vec<&'static str> {
        let mut arguments = vec!["--event", SCHED_EVENTS];
        if self == Events::Syscalls {
            // Else perf records how it writes what it records.
            arguments.extend(["--event", "raw_syscalls:sys_*", "--exclude-perf"]);
        }
        arguments
    }
}

impl fmt::Display for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Events::Sched => "sched",
            Events::Syscalls => "syscalls",
        })
    }
}

/// Under which limit, and whether it is recorded, and where to.
pub struct Setting {
    pub limit: Option<NamedLimit>,
    pub recording: Option<(Events, PathBuf)>,
    /// Whether idle CPUs are kept polling.
    pub awake: bool,
    /// Whether periods are counted until the period timer rests, or only until the load ends.
    pub until_rest: bool,
}

impl Setting {
    /// As the model has it: CPUs that lose nothing by halting, and a timer that comes to rest.
    pub fn of_model(limit: Option<NamedLimit>, recording: Option<(Events, PathBuf)>) -> Setting {
        Setting { limit, recording, awake: true, until_rest: true }
    }
}

/// What one run showed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    /// From the first request to the last, ns.
    pub duration_ns: u64,
    /// CPU time of the group in that time, us.
    pub usage_us: u64,
    pub nr_periods: u64,
    pub nr_throttled: u64,
    pub throttled_us: u64,
    #[serde(default)]
    pub nr_bursts: u64,
    #[serde(default)]
    pub burst_us: u64,
    /// At the threads that do the work, from when it was due until it was done, ns.
    pub latency_ns: Summary,
    /// As the client sees it; the same where there is none.
    pub client_latency_ns: Summary,
    /// CPU time used by anything else on the machine, us: how far it was quiet.
    pub others_us: u64,
    /// Time in which the machine's own CPUs were given to other machines, us.
    pub steal_us: u64,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.2} s, {} ms CPU, {}/{} periods throttled, p50 {:.2} ms, p99 {:.2} ms; others {} \
             ms, steal {} ms",
            self.duration_ns as f64 / 1e9,
            self.usage_us / 1000,
            self.nr_throttled,
            self.nr_periods,
            self.latency_ns.p50 as f64 / 1e6,
            self.latency_ns.p99 as f64 / 1e6,
            self.others_us / 1000,
            self.steal_us / 1000,
        )
    }
}

pub fn run(context: &Context, load: &Load, setting: &Setting) -> Result<Measured> {
    let _awake = setting.awake.then(Awake::hold);
    let group = Cgroup::make()?;
    if let Some(limit) = &setting.limit {
        group.limit(Some(limit.quota_us), limit.period_us, limit.burst_us)?;
    }
    let mut inside = Process::testload(&inside_arguments(context, load))?;
    let first_line = inside.line(&context.stop)?;
    group.add(inside.id())?;
    let mut outside = match load.outside {
        None => None,
        Some(arguments) => {
            let port = first_line
                .strip_prefix("listening ")
                .with_context(|| format!("`{first_line}`: expected `listening PORT`"))?;
            let client = Process::testload(&outside_arguments(context, load, arguments, port))?;
            client.line(&context.stop)?;
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
        Some(client) => Some(report(client, context)?),
    };
    let inside = report(&inside, context)?;
    let at_end = MachineUse::now()?;
    // The model counts periods until the period timer rests: twice more after the last use.
    if setting.until_rest {
        let period_us = setting.limit.map_or(0, |limit| limit.period_us);
        thread::sleep(Duration::from_micros(3 * period_us));
    }
    let after = (group.counters()?, at_end);
    if let Some(perf) = perf {
        perf.interrupt()?;
    }
    Ok(measured(&before, &after, &inside, client.as_ref()))
}

fn measured(
    before: &(Counters, MachineUse),
    after: &(Counters, MachineUse),
    inside: &Report,
    client: Option<&Report>,
) -> Measured {
    let group = after.0.since(&before.0);
    let machine = after.1.since(&before.1);
    let client_us = client.map_or(0, |client| client.cpu_ns / 1000);
    Measured {
        duration_ns: client.map_or(inside.duration_ns, |client| client.duration_ns),
        usage_us: group.usage_us,
        nr_periods: group.nr_periods,
        nr_throttled: group.nr_throttled,
        throttled_us: group.throttled_us,
        nr_bursts: group.nr_bursts,
        burst_us: group.burst_us,
        latency_ns: inside.latency_ns,
        client_latency_ns: client.map_or(inside.latency_ns, |client| client.latency_ns),
        others_us: machine.busy_us.saturating_sub(group.usage_us + client_us),
        steal_us: machine.steal_us,
    }
}

fn inside_arguments(context: &Context, load: &Load) -> Vec<String> {
    let mut arguments = strings(load.inside);
    if load.outside.is_none() {
        arguments.extend(amounts(context, load));
    }
    arguments
}

fn outside_arguments(context: &Context, load: &Load, own: &[&str], port: &str) -> Vec<String> {
    let mut arguments = strings(own);
    arguments.extend(strings(&["--port", port]));
    arguments.extend(amounts(context, load));
    arguments
}

fn amounts(context: &Context, load: &Load) -> Vec<String> {
    let amount = (load.amount.1 * context.scale / 100).max(1).to_string();
    let seed = context.seed.to_string();
    strings(&[load.amount.0, &amount, "--seed", &seed, "--wait"])
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn report(process: &Process, context: &Context) -> Result<Report> {
    let line = process.line(&context.stop)?;
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

/// Keeps idle CPUs polling for as long as it lives. A virtual CPU that halts is given away, and
/// comes back late and with stolen time; bare metal only loses a little latency.
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
