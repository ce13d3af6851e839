//! `cpumax weigh`: what the rules of each kernel give and cost, scenario by scenario, and where the
//! last kernel of the list does worse than the one it is held against. The table of
//! docs/proposal.md.

use crate::args::WeighArgs;
use crate::builtin;
use crate::command::replay;
use crate::failure::Failure;
use crate::output::{self, BOLD};
use crate::runs::{self, Terminal};
use crate::scenario;
use anyhow::anyhow;
use cpumax_engine::{Job, Running};
use cpumax_machine::kernel::{self, Kernel};
use cpumax_outcome::Outcome;
use cpumax_report::{cpus, duration, percent};
use cpumax_workload::{Affinity, Class, GroupSpec, Op, Parts, Span, TaskSpec, Workload};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// Left to whoever names them: minutes instead of seconds.
const TOO_LARGE: [&str; 2] = ["profile-384", "profile-384-together"];
/// Differences up to this are none, ns: interrupts take that long to arrive.
const NOISE_NS: f64 = 100_000.0;
/// A thread that runs once takes less than any quota, and then this long nothing happens, ns.
const ONCE_NS: u64 = 500_000;
const IDLE_NS: u64 = 10_000_000_000;
/// Worse by more than this is told.
const TOLERATED: f64 = 1.05;
/// Names of the columns: of two to know a row by, what tasks get, and what that costs.
const HEADER: [&str; 12] = [
    "scenario", "kernel", "CPUs", "over", "stall", "p99", "even", "irqoff", "p99", "in all",
    "back", "idle",
];
/// What the columns are.
const LEGEND: &str = "CPUs: used by limited groups, of a recording until its work is done. over: most beyond the quota in a period. stall: longest wait of a \
     task. p99: of latencies. even: least use of alike tasks to the mean. irqoff: longest section that releases, its \
     p99, all of them in a second; back: tasks put back in a second. idle: timers that go off for a group after it was \
     last used, until it costs nothing. Means over seeds, but the longest.";

pub fn weigh(args: &WeighArgs) -> Result<(), Failure> {
    let kernels = kernel::parse_kernels(&args.kernel)?;
    let base = base(args, &kernels)?;
    let workloads = workloads(args)?;
    let seeds: Vec<u64> =
        args.seeds.map_or_else(|| (1..=3).collect(), |s| (s.first..=s.last).collect());
    let jobs: Vec<Job<'_>> = workloads
        .iter()
        .flat_map(|workload| kernels.iter().map(move |&kernel| (workload, kernel)))
        .flat_map(|(workload, kernel)| seeds.iter().map(move |&seed| job(workload, kernel, seed)))
        .collect();
    let running = Running { threads: args.jobs.map(usize::from), ..Running::default() };
    let outcomes = runs::all(&jobs, &running, &Terminal::new())?;
    let idle: Vec<Workload> = workloads.iter().map(idle).collect::<Result<_, _>>()?;
    let idle_jobs: Vec<Job<'_>> = idle
        .iter()
        .flat_map(|workload| kernels.iter().map(move |&kernel| job(workload, kernel, 1)))
        .collect();
    let idle_outcomes = runs::all(&idle_jobs, &running, &Terminal::new())?;
    let mut rows = Vec::new();
    let mut worse = Vec::new();
    let outcomes = outcomes.chunks(kernels.len() * seeds.len());
    let outcomes = outcomes.zip(idle_outcomes.chunks(kernels.len()));
    for (workload, (outcomes, idle)) in workloads.iter().zip(outcomes) {
        let weights: Vec<Weight> = (outcomes.chunks(seeds.len()).zip(idle))
            .map(|(runs, idle)| Weight { idle: timers(idle), ..Weight::of(workload, runs) })
            .collect();
        for (at, (kernel, weight)) in kernels.iter().zip(&weights).enumerate() {
            let name = if at == 0 { workload.name.clone() } else { String::new() };
            rows.push(weight.row(name, kernel));
        }
        if let Some(own) = weights.last() {
            worse.extend(
                own.worse_than(&weights[base]).map(|what| format!("{}: {what}", workload.name)),
            );
        }
    }
    let versions = [kernels.last(), kernels.get(base)].map(|k| k.map(|k| k.version.to_string()));
    write(&versions.map(Option::unwrap_or_default), &rows, &worse)
}

/// Which of the kernels the last one is held against.
fn base(args: &WeighArgs, kernels: &[Kernel]) -> anyhow::Result<usize> {
    let Some(name) = &args.against else { return Ok(kernels.len().saturating_sub(2)) };
    let asked = kernel::parse_kernels(name)?;
    let is_asked = |k: &Kernel| asked.len() == 1 && k.version == asked[0].version;
    kernels.iter().position(is_asked).ok_or_else(|| {
        anyhow!("--against {name} is not one of the kernels that are weighed: {}", args.kernel)
    })
}

fn write(
    [last, base]: &[String; 2],
    rows: &[Vec<String>],
    worse: &[String],
) -> Result<(), Failure> {
    let mut out = output::stdout();
    write!(out, "{}", table(rows, output::width()))?;
    writeln!(out, "\n{}", output::wrapped(LEGEND))?;
    let title = format!("Where {last} is worse than {base} by more than 5 %:");
    writeln!(out, "\n{}", output::styled(BOLD, &title))?;
    if worse.is_empty() {
        writeln!(out, "nowhere")?;
    }
    for what in worse {
        writeln!(out, "{}", output::wrapped(what))?;
    }
    Ok(out.flush()?)
}

/// One table; where there is no room for it, one of what tasks get and one of what that costs.
fn table(rows: &[Vec<String>], width: Option<u16>) -> String {
    let part = |columns: &[usize], width| {
        let of = |row: &Vec<String>| columns.iter().map(|&at| row[at].clone()).collect();
        let header: Vec<&str> = columns.iter().map(|&at| HEADER[at]).collect();
        cpumax_report::list(&header, rows.iter().map(of), width)
    };
    let all: Vec<usize> = (0..HEADER.len()).collect();
    let whole = part(&all, None);
    let is_wider = |width| whole.lines().any(|line| line.chars().count() > usize::from(width));
    if !width.is_some_and(is_wider) {
        return whole;
    }
    let get = part(&[0, 1, 2, 3, 4, 5, 6], width);
    let costs = part(&[0, 1, 7, 8, 9, 10, 11], width);
    format!("{get}\n{costs}")
}

fn workloads(args: &WeighArgs) -> Result<Vec<Workload>, Failure> {
    let built_in = || builtin::ALL.iter().map(|b| b.name).filter(|name| !TOO_LARGE.contains(name));
    let names: Vec<&str> = match args.scenarios.as_slice() {
        [] => built_in().collect(),
        named => named.iter().map(String::as_str).collect(),
    };
    let mut workloads = Vec::new();
    let is_recording = |name: &&str| scenario::is_recording(Path::new(name));
    if args.set.is_some() && !names.iter().any(is_recording) {
        return Err(anyhow!("--set is for recordings, and none is weighed").into());
    }
    for name in names {
        if is_recording(&name) {
            let Some(set) = &args.set else {
                let what = "give the limit that it is to have by --set";
                return Err(anyhow!("{name} is a recording: {what}").into());
            };
            if args.duration.is_some() {
                let what = format!("{name} lasts as long as was recorded");
                return Err(anyhow!("--for is for scenarios: {what}").into());
            }
            // The phase of its periods stays random: what it does comes at times of its own.
            workloads.push(replay::limited(Path::new(name), set)?);
            continue;
        }
        let mut parts = scenario::load(name)?.into_parts();
        // Periods are the windows in which use is counted.
        parts.machine.timer_phase_ns = Some(0);
        if let Some(duration) = args.duration {
            match u64::try_from(duration.as_nanos()) {
                Ok(ns @ 1..=cpumax_workload::bounds::MAX_DURATION_NS) => parts.duration_ns = ns,
                _ => return Err(anyhow!("--for takes more than nothing and at most a day").into()),
            }
        }
        workloads.push(parts.try_into()?);
    }
    Ok(workloads)
}

/// Whether a workload is a recording; of those periods begin at random, where use is not counted
/// from.
fn is_recorded(workload: &Workload) -> bool {
    workload.machine.timer_phase_ns.is_none()
}

/// How long a run was at work, s: all of its time, or until the limited threads of a recording were
/// done, if they were.
fn lasted_s(workload: &Workload, outcome: &Outcome) -> f64 {
    let limited =
        |task: &&TaskSpec| workload.groups[task.group as usize].limit.quota_ns().is_some();
    let finished = workload.tasks.iter().filter(limited);
    let finished = finished.filter_map(|task| outcome.tasks.get(task.label()));
    let finished: Vec<u64> =
        finished.filter(|task| task.count > 0).map(|task| task.finished_ns).collect();
    // Who never ends is at 0.
    let ended = is_recorded(workload) && !finished.contains(&0);
    let last_ns = finished.into_iter().max().filter(|_| ended).unwrap_or(workload.duration_ns);
    last_ns as f64 / 1e9
}

fn job(workload: &Workload, kernel: Kernel, seed: u64) -> Job<'_> {
    Job { workload, what_if: None, kernel, seed }
}

/// What a kernel did with one workload, over all seeds.
#[derive(Debug, Default)]
struct Weight {
    /// CPUs used by limited groups.
    used: f64,
    over_ns: f64,
    stall_ns: f64,
    p99_ns: f64,
    completions: f64,
    /// Least over mean use of task kinds that are alike; `None` where none are.
    even: Option<f64>,
    irqoff_max_ns: u64,
    irqoff_p99_ns: f64,
    /// Time in sections that release, ns, and tasks put back, in a second.
    spent_ns: f64,
    tasks: f64,
    /// Period timers that go off for a limited group that was used once.
    idle: f64,
}

impl Weight {
    fn of(workload: &Workload, runs: &[Outcome]) -> Weight {
        let n = runs.len().max(1) as f64;
        let mean = |of: &dyn Fn(&Outcome) -> f64| runs.iter().map(of).sum::<f64>() / n;
        let limited: Vec<(&str, u64)> = workload
            .groups
            .iter()
            .filter_map(|g| Some((g.path.as_str(), g.limit.quota_ns()? + g.limit.burst_ns())))
            .collect();
        let groups = |o: &Outcome, of: &dyn Fn(&cpumax_outcome::GroupOutcome, u64) -> f64| {
            limited
                .iter()
                .filter_map(|(path, quota)| Some(of(o.groups.get(*path)?, *quota)))
                .collect::<Vec<_>>()
        };
        let over = |o: &Outcome| {
            let over = groups(o, &|g, quota| g.max_period_usage_usec as f64 * 1e3 - quota as f64);
            if is_recorded(workload) { 0.0 } else { over.into_iter().fold(0.0, f64::max) }
        };
        let seconds = |o: &Outcome| lasted_s(workload, o);
        Weight {
            used: mean(&|o| {
                groups(o, &|g, _| g.usage_usec as f64).iter().sum::<f64>() / 1e6 / seconds(o)
            }),
            over_ns: runs.iter().map(over).fold(0.0, f64::max),
            stall_ns: mean(&|o| most(o.tasks.values().map(|t| t.longest_stall_ns))),
            p99_ns: mean(&|o| {
                if is_recorded(workload) {
                    groups(o, &|g, _| g.latency_ns.p99 as f64).into_iter().fold(0.0, f64::max)
                } else {
                    most(o.tasks.values().map(|t| t.latency_ns.p99))
                }
            }),
            completions: mean(&|o| o.tasks.values().map(|t| t.completions as f64).sum()),
            even: even(workload, runs),
            irqoff_max_ns: runs.iter().map(|o| o.release.irqoff_ns.max).max().unwrap_or(0),
            irqoff_p99_ns: mean(&|o| o.release.irqoff_ns.p99 as f64),
            spent_ns: mean(&|o| o.release.spent_ns as f64 / seconds(o)),
            tasks: mean(&|o| o.release.tasks as f64 / seconds(o)),
            idle: 0.0,
        }
    }

    fn row(&self, name: String, kernel: &Kernel) -> Vec<String> {
        let ns = |ns: f64| if ns < 1.0 { "-".to_owned() } else { duration(ns as u64) };
        vec![
            name,
            kernel.version.to_string(),
            cpus(self.used.max(0.0)),
            ns(self.over_ns),
            ns(self.stall_ns),
            ns(self.p99_ns),
            self.even.map_or_else(|| "-".to_owned(), percent),
            ns(self.irqoff_max_ns as f64),
            ns(self.irqoff_p99_ns),
            ns(self.spent_ns),
            format!("{:.0}", self.tasks),
            format!("{:.1}", self.idle),
        ]
    }

    fn worse_than(&self, base: &Weight) -> impl Iterator<Item = String> + use<> {
        let later = |what: &str, own: f64, other: f64| {
            (own > other * TOLERATED + NOISE_NS).then(|| {
                format!("{what} {} instead of {}", duration(own as u64), duration(other as u64))
            })
        };
        let less = |what: &str, own: f64, other: f64| {
            (own * TOLERATED < other)
                .then(|| format!("{what} {} instead of {}", cpus(own), cpus(other)))
        };
        [
            less("CPUs used", self.used, base.used),
            later("longest stall", self.stall_ns, base.stall_ns),
            later("latency p99", self.p99_ns, base.p99_ns),
            less("requests done", self.completions, base.completions),
            (self.idle > base.idle * TOLERATED).then(|| {
                format!("{:.1} timers of an idle group instead of {:.1}", self.idle, base.idle)
            }),
            less("evenness", self.even.unwrap_or(1.0), base.even.unwrap_or(1.0)),
        ]
        .into_iter()
        .flatten()
    }
}

/// The machine and the limited groups of a workload; in each a thread runs once, shortly, and is
/// gone.
fn idle(workload: &Workload) -> Result<Workload, cpumax_workload::Error> {
    let mut idle = Parts::empty(&workload.name, &workload.shows, IDLE_NS);
    idle.machine.cpus = workload.machine.cpus;
    idle.machine.timer_phase_ns = Some(0);
    idle.groups.clone_from(&workload.groups);
    let once = |(at, _): (usize, &GroupSpec)| TaskSpec {
        name: format!("once in group {at}"),
        label: None,
        count: 1,
        group: at as u32,
        class: Class::Fair,
        nice: 0,
        cpus: Affinity::All,
        start_ns: 0,
        stagger_ns: 0,
        slice_ns: None,
        program: vec![Op::User(Span::Fixed(ONCE_NS))],
    };
    let limited = workload.groups.iter().enumerate().filter(|(_, g)| g.limit.quota_ns().is_some());
    idle.tasks = limited.map(once).collect();
    idle.try_into()
}

/// Period timers that went off, for each group that has any.
fn timers(idle: &Outcome) -> f64 {
    let fired: Vec<u64> =
        idle.groups.values().map(|g| g.nr_periods).filter(|&periods| periods > 0).collect();
    fired.iter().sum::<u64>() as f64 / fired.len().max(1) as f64
}

fn most(values: impl Iterator<Item = u64>) -> f64 {
    values.max().unwrap_or(0) as f64
}

/// Among kinds of task with the same program, number and limits above: the least CPU time of one to
/// the mean.
fn even(workload: &Workload, runs: &[Outcome]) -> Option<f64> {
    let mut alike: BTreeMap<(String, u32, usize), Vec<f64>> = BTreeMap::new();
    for kind in &workload.tasks {
        let path = &workload.groups[kind.group as usize].path;
        let key = (format!("{:?}", kind.program), kind.count, path.matches('/').count());
        let used: f64 =
            runs.iter().filter_map(|o| Some(o.tasks.get(kind.label())?.usage_usec as f64)).sum();
        alike.entry(key).or_default().push(used);
    }
    let ratio = |used: &Vec<f64>| {
        let mean = used.iter().sum::<f64>() / used.len() as f64;
        let least = used.iter().copied().fold(f64::INFINITY, f64::min);
        (used.len() > 1 && mean > 0.0).then(|| least / mean)
    };
    alike.values().filter_map(ratio).reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two kernels of one scenario, with the widest of everything.
    fn rows() -> Vec<Vec<String>> {
        let name = ["profile-384-together", ""];
        let row = |name: &str| {
            let cells = [name, "7.3", "0.0947", "0.15ms", "99.5ms", "99.5ms", "100%", "1.14us"];
            let costs = ["1.14us", "57.5ms", "199954", "2.0"];
            cells.iter().chain(&costs).map(|&cell| cell.to_owned()).collect()
        };
        name.map(row).to_vec()
    }

    #[test]
    fn a_table_that_is_wider_than_the_terminal_is_two() {
        assert_eq!(table(&rows(), Some(104)).lines().count(), 2 + 2);
        assert_eq!(table(&rows(), None), table(&rows(), Some(104)), "there is room for it");
        let expected = "\
scenario              kernel  CPUs    over    stall   p99     even
------------------------------------------------------------------
profile-384-together  7.3     0.0947  0.15ms  99.5ms  99.5ms  100%
                      7.3     0.0947  0.15ms  99.5ms  99.5ms  100%

scenario              kernel  irqoff  p99     in all  back    idle
------------------------------------------------------------------
profile-384-together  7.3     1.14us  1.14us  57.5ms  199954  2.0
                      7.3     1.14us  1.14us  57.5ms  199954  2.0
";
        assert_eq!(table(&rows(), Some(80)), expected);
    }
}
