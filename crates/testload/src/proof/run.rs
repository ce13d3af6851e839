//! Runs one service once: creates a group with a limit, moves the server into it, runs its client
//! outside, and perf if requested.

use super::client::Client;
use super::client::ClientResults;
use super::server::{Running, ServerDir};
use super::services::{Kind, Server, Service};
use crate::cgroup::{Cgroup, Counters, PATH};
use crate::limit::Limit;
use crate::loads::Load;
use crate::loads::run::{self as own, Counted, Events, Setting};
use crate::machine::MachineUse;
use crate::measure::Summary;
use crate::process::Process;
use crate::stop::Stop;
use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time for perf to start; old versions cannot report it.
const PERF_START: Duration = Duration::from_millis(900);
/// Time that perf continues after the load.
const PERF_END: Duration = Duration::from_millis(300);
/// Largest share of all CPUs that others may use in a valid run.
const QUIET: f64 = 0.05;
/// Most repetitions of an invalid run.
const AGAIN: u32 = 2;

const FULL_EVENTS: &str = "sched:sched_switch,sched:sched_wakeup,sched:sched_wakeup_new,\
                           sched:sched_waking,sched:sched_process_fork,sched:sched_process_exit,\
                           sched:sched_stat_runtime";

/// Results of one run, as in results.json.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    pub workload: String,
    /// Quota/period in ms, `U` without a limit.
    pub setting: String,
    pub quota_us: i64,
    pub period_us: u64,
    pub burst_us: u64,
    /// Recorder: `none`, `plain`, `full` or `record`.
    pub perf: String,
    pub rep: u32,
    #[serde(default)]
    pub at: String,
    /// Time from the first request to the last, s.
    pub wall_s: f64,
    pub usage_s: f64,
    pub cpus_used: f64,
    pub nr_periods: u64,
    pub nr_throttled: u64,
    #[serde(default)]
    pub nr_bursts: u64,
    #[serde(default)]
    pub throttled_time_ns: u64,
    #[serde(default)]
    pub burst_time_ns: u64,
    #[serde(default)]
    pub machine_busy_s: f64,
    #[serde(default)]
    pub steal_s: f64,
    /// CPU time of everything but the server and its client, s.
    #[serde(default)]
    pub others_s: f64,
    pub metrics: BTreeMap<String, Value>,
}

impl Run {
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.get(name)?.as_f64()
    }

    /// A line for the user who waits.
    pub fn describe(&self) -> String {
        let metric = |name: &str| self.metric(name).unwrap_or(0.0);
        let rate = self.metric("req_per_s").or(self.metric("tps")).unwrap_or(0.0);
        format!(
            "{:.3} CPUs, {}/{} periods throttled, {rate:.0}/s, p50 {:.2} ms, p99 {:.2} ms; others \
             {:.2} s, steal {:.2} s",
            self.cpus_used,
            self.nr_throttled,
            self.nr_periods,
            metric("lat_p50_ms"),
            metric("lat_p99_ms"),
            self.others_s,
            self.steal_s
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Perf {
    Plain,
    /// perf with system calls and their arguments.
    Full,
    /// `cpumax record` with system calls.
    Record,
}

impl Perf {
    pub fn name(self) -> &'static str {
        match self {
            Perf::Plain => "plain",
            Perf::Full => "full",
            Perf::Record => "record",
        }
    }

    /// Name of the file of a service's recording.
    pub fn file(self, service: &str) -> String {
        format!("{service}.{}.data", self.name())
    }

    fn program(self, cpumax: &Path) -> &Path {
        if self == Perf::Record { cpumax } else { Path::new("perf") }
    }

    fn arguments(self, output: &str) -> Vec<&str> {
        let all = ["-m", "8M", "-B", "-N", "-o", output];
        match self {
            Perf::Plain => [&["sched", "record"][..], &all].concat(),
            // Without --exclude-perf, perf records its own writes.
            Perf::Full => {
                let (enter, exit) = ("raw_syscalls:sys_enter", "raw_syscalls:sys_exit");
                let last = ["-e", enter, "--exclude-perf", "-e", exit, "--exclude-perf", "-a"];
                [&["record"][..], &all, &["-e", FULL_EVENTS], &last].concat()
            }
            Perf::Record => vec!["record", "--cgroup", PATH, "--calls", "-o", output],
        }
    }
}

/// A running server, or a load of this program, which is started for each run.
pub struct Session<'a> {
    service: &'static Service,
    place: ServerDir,
    running: Option<(Running, Server, Client)>,
    seconds: u32,
    cpumax: &'a Path,
    stop: &'a Stop,
    /// CPUs that the service uses without a limit, once measured.
    demand: f64,
}

impl<'a> Session<'a> {
    pub fn start(
        service: &'static Service,
        seconds: u32,
        cpumax: &'a Path,
        stop: &'a Stop,
    ) -> Result<Session<'a>> {
        let place = ServerDir::make()?;
        let running = match service.kind {
            Kind::Own(_) => None,
            Kind::Real { server, client } => {
                let running = server.start(&place, stop)?;
                client.run(&place, server.warm_up_s(), 1.0, stop)?;
                Some((running, server, client))
            }
        };
        Ok(Session { service, place, running, seconds, cpumax, stop, demand: 1.0 })
    }

    pub fn name(&self) -> &'static str {
        self.service.name
    }

    /// Name of the limited group for `cpumax replay`.
    pub fn group(&self) -> String {
        match &self.running {
            None => PATH.to_owned(),
            Some((running, server, _)) => server.group(running),
        }
    }

    /// Runs without a recording; repeats the run if other processes used the machine.
    pub fn measure(&mut self, limit: &Limit, rep: u32) -> Result<Run> {
        let mut run = self.run(limit, rep, None)?;
        for _ in 0..AGAIN {
            let cpus = thread::available_parallelism().map_or(1, std::num::NonZero::get);
            if run.others_s <= QUIET * run.wall_s * cpus as f64 {
                break;
            }
            eprintln!("{}: others used {:.1} s; again", self.service.name, run.others_s);
            run = self.run(limit, rep, None)?;
        }
        if limit.quota_us.is_none() {
            self.demand = run.cpus_used;
        }
        Ok(run)
    }

    /// Runs without a limit, and records into the directory; the file is [`Perf::file`].
    pub fn record(&mut self, perf: Perf, folder: &Path) -> Result<Run> {
        let run = self.run(&Limit::NONE, 0, Some((perf, folder)))?;
        let path = folder.join(perf.file(self.service.name));
        std::fs::metadata(&path).with_context(|| format!("no {}", path.display()))?;
        Ok(run)
    }

    fn run(&self, limit: &Limit, rep: u32, recording: Option<(Perf, &Path)>) -> Result<Run> {
        self.stop.check()?;
        let head =
            RunLabel { service: self.service, limit, rep, perf: recording.map(|(perf, _)| perf) };
        match (&self.running, self.service.kind) {
            (Some((running, _, client)), _) => self.run_real(running, client, &head, recording),
            (None, Kind::Own(load)) => self.run_own(load, &head, recording),
            (None, Kind::Real { .. }) => bail!("{} does not run", self.service.name),
        }
    }

    fn run_real(
        &self,
        running: &Running,
        client: &Client,
        head: &RunLabel,
        recording: Option<(Perf, &Path)>,
    ) -> Result<Run> {
        let limit = head.limit;
        let group = Cgroup::make()?;
        group.limit(limit.quota_us, limit.period_us, limit.burst_us)?;
        group.add_all(&running.processes())?;
        let perf = match recording {
            None => None,
            Some((perf, folder)) => {
                let mut command = Command::new(perf.program(self.cpumax));
                command.args(perf.arguments(&perf.file(self.service.name))).current_dir(folder);
                command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
                let process = Process::start("perf", command)?;
                thread::sleep(PERF_START);
                Some(process)
            }
        };
        let share = limit.quota_us.map_or(1.0, |quota_us| {
            quota_us as f64 / limit.period_us as f64 / self.demand.max(0.01)
        });
        let before = CounterSnapshot::now(&group)?;
        let seen = client.run(&self.place, self.seconds, share, self.stop)?;
        let counted = CounterSnapshot::now(&group)?.since(&before);
        if let Some(perf) = perf {
            thread::sleep(PERF_END);
            perf.interrupt()?;
        }
        let pgbench = matches!(client, Client::Pgbench { .. });
        Ok(head.run(&counted, seen.wall_s, metrics_of(&seen, pgbench)))
    }

    /// Runs a load of this program, which does a fixed amount of work.
    fn run_own(
        &self,
        name: &str,
        head: &RunLabel,
        recording: Option<(Perf, &Path)>,
    ) -> Result<Run> {
        let load = Load::find(name)?;
        let recording = recording.map(|(perf, folder)| {
            let events = if perf == Perf::Plain { Events::Sched } else { Events::Syscalls };
            (events, folder.join(perf.file(self.service.name)))
        });
        let setting = Setting {
            seed: u64::from(head.rep) + 1,
            scale: u64::from(self.seconds) * 25,
            limit: *head.limit,
            recording,
            as_modelled: false,
            stop: self.stop.clone(),
        };
        let measured = own::run(load, &setting)?;
        let wall_s = measured.duration_ns as f64 / 1e9;
        let metrics = metrics_of_load(&measured.client_latency_ns, wall_s, load.outside.is_none());
        Ok(head.run(&measured.counted, wall_s, metrics))
    }
}

/// Service, limit, number and recorder of a run.
struct RunLabel<'a> {
    service: &'static Service,
    limit: &'a Limit,
    rep: u32,
    perf: Option<Perf>,
}

struct CounterSnapshot {
    group: Counters,
    machine: MachineUse,
    /// CPU time of all children that have ended, among them the client after its run.
    children_us: u64,
}

impl CounterSnapshot {
    fn now(group: &Cgroup) -> Result<CounterSnapshot> {
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
        let us = [usage.user_time(), usage.system_time()]
            .map(|time| time.tv_sec() as u64 * 1_000_000 + time.tv_usec() as u64);
        Ok(CounterSnapshot {
            group: group.counters()?,
            machine: MachineUse::now()?,
            children_us: us[0] + us[1],
        })
    }

    fn since(&self, before: &CounterSnapshot) -> Counted {
        let client_us = self.children_us - before.children_us;
        let group = self.group.since(&before.group);
        Counted::new(group, self.machine.since(&before.machine), client_us)
    }
}

impl RunLabel<'_> {
    fn run(&self, counted: &Counted, wall_s: f64, metrics: BTreeMap<String, Value>) -> Run {
        let group = &counted.group;
        let s = |us: u64| us as f64 / 1e6;
        Run {
            workload: self.service.name.to_owned(),
            setting: self.limit.to_string(),
            quota_us: self.limit.quota_us.map_or(-1, |us| us as i64),
            period_us: self.limit.period_us,
            burst_us: self.limit.burst_us,
            perf: self.perf.map_or("none", Perf::name).to_owned(),
            rep: self.rep,
            at: time_of_day(),
            wall_s: rounded(wall_s, 4),
            usage_s: s(group.usage_us),
            cpus_used: rounded(s(group.usage_us) / wall_s, 4),
            nr_periods: group.nr_periods,
            nr_throttled: group.nr_throttled,
            nr_bursts: group.nr_bursts,
            throttled_time_ns: group.throttled_us * 1000,
            burst_time_ns: group.burst_us * 1000,
            machine_busy_s: s(counted.machine.busy_us),
            steal_s: s(counted.machine.steal_us),
            others_s: s(counted.others_us),
            metrics,
        }
    }
}

fn metrics_of(seen: &ClientResults, pgbench: bool) -> BTreeMap<String, Value> {
    let (unit, rate) = if pgbench { ("transactions", "tps") } else { ("requests", "req_per_s") };
    let mut metrics = BTreeMap::new();
    let mut put = |name: &str, value: Value| metrics.insert(name.to_owned(), value);
    put(unit, json!(seen.completions));
    put(rate, json!(rounded(seen.completions as f64 / seen.wall_s, 2)));
    put("lat_p50_ms", json!(rounded(seen.p50_ms, 3)));
    if let Some(p90_ms) = seen.p90_ms {
        put("lat_p90_ms", json!(rounded(p90_ms, 3)));
    }
    put("lat_p99_ms", json!(rounded(seen.p99_ms, 3)));
    put("errors", json!(seen.errors));
    metrics
}

fn metrics_of_load(latency: &Summary, wall_s: f64, bursts: bool) -> BTreeMap<String, Value> {
    let ms = |ns: u64| ns as f64 / 1e6;
    let seen = ClientResults {
        wall_s,
        completions: latency.count,
        p50_ms: ms(latency.p50),
        p90_ms: Some(ms(latency.p90)),
        p99_ms: ms(latency.p99),
        errors: 0,
    };
    let mut metrics = metrics_of(&seen, false);
    if bursts {
        metrics.remove("req_per_s");
        if let Some(count) = metrics.remove("requests") {
            metrics.insert("bursts".to_owned(), count);
        }
    }
    metrics
}

fn rounded(value: f64, places: i32) -> f64 {
    let unit = 10_f64.powi(places);
    (value * unit).round() / unit
}

/// Time of day in UTC.
fn time_of_day() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let s = now.as_secs() % 86_400;
    format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
}
