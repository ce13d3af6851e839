//! `cpumax run --on vm` and `--on host`: scenarios on real kernels. They are held to what the
//! scenario expects, as far as it can be measured there; `cpumax compare` holds them against the
//! model.

use crate::args::{DEFAULT_KERNELS, RunArgs, RunOn, Seeds, VmMode, WorldName};
use crate::builtin;
use crate::command::run::{Names, check_paths, quotas, workload, write_failures, write_verdicts};
use crate::expect::{self, Done, Verdict};
use crate::failure::Failure;
use crate::interrupt;
use crate::json::JsonArray;
use crate::output::{self, BAD, BOLD, DIM};
use crate::runs::Trace;
use crate::worlds::{self, Asked};
use anyhow::{anyhow, bail};
use cpumax_compare::cell::names;
use cpumax_lab::{Error, Host, Job, Lab, Mode, Step, Watch};
use cpumax_machine::kernel::{Kernel, Version};
use cpumax_outcome::Outcome;
use cpumax_outcome::{Tolerances, compare};
use cpumax_protocol::Report;
use cpumax_workload::{Expectation, Workload, print};
use indicatif::{MultiProgress, ProgressBar};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;

/// Of the kernels that are run by default, those that can be had.
const DEFAULT_REAL_KERNELS: &str = "6.1,6.12,6.18,7.2,7.3";

pub fn run(args: &RunArgs) -> Result<(), Failure> {
    check_options(args)?;
    let built_in = builtin::ALL.iter().map(|built_in| built_in.name).filter(|_| args.all);
    let names = args.scenarios.iter().map(String::as_str).chain(built_in);
    let workloads = names.map(|name| workload(name, args)).collect::<anyhow::Result<Vec<_>>>()?;
    let kernels = kernels(args)?;
    let jobs = jobs(&workloads, &kernels, args)?;
    let json = args.running.json.as_deref().map(JsonArray::create).transpose()?;
    let traces = jobs.iter().map(|planned| planned.trace.as_deref().map(Trace::create).transpose());
    let traces = traces.collect::<anyhow::Result<Vec<_>>>()?;
    let reports = reports(&jobs, args)?;
    let mut done: Vec<Ended<'_>> = jobs.iter().zip(reports).collect();
    if done.iter().any(|(_, report)| matches!(report, Err(Error::Interrupted))) {
        return Err(Failure::Interrupted);
    }
    for ((planned, report), trace) in done.iter_mut().zip(traces) {
        if let Ok(Report { outcome, trace: recorded, .. }) = report {
            outcome.kernel.clone_from(&planned.kernel.name);
            outcome.generation = planned.kernel.kernel.generation.to_string();
            if let (Some(recorded), Some(mut trace)) = (recorded.take(), trace) {
                recorded.replay(&mut trace.events);
                trace.write()?;
            }
        }
    }
    let tables = json.as_ref().is_none_or(|json| !json.is_stdout());
    let releases = releases(&kernels, args)?;
    if let Some(json) = json {
        let reports = done.iter().filter_map(|(planned, report)| {
            Some(JsonRun::of(report.as_ref().ok()?, releases.get(&planned.kernel.name)?))
        });
        json.write(reports)?;
    }
    let verdicts = verdicts(&workloads, &kernels, &done, args)?;
    if tables {
        write(&workloads, &done, &verdicts, is_changed(args))?;
        let of = |(name, release): (&String, &String)| format!("{name} is {release}");
        let list: Vec<String> = releases.iter().map(of).collect();
        let list = output::wrapped(&format!("Kernels: {}", list.join(", ")));
        writeln!(output::stdout(), "{}", output::styled(DIM, list)).map_err(anyhow::Error::from)?;
    } else {
        let names = workloads.iter().map(|workload| workload.name.as_str());
        write_failures(names.zip(&verdicts))?;
    }
    failures(&done)?;
    let passed = verdicts.iter().flatten().all(Verdict::passed);
    if passed { Ok(()) } else { Err(Failure::Unexpected) }
}

/// A run on a real kernel as docs/json.md describes it.
#[derive(Serialize)]
struct JsonRun<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    kernel_release: &'a str,
    not_measured: &'a [String],
    notes: &'a [String],
}

impl JsonRun<'_> {
    fn of<'a>(report: &'a Report, kernel_release: &'a str) -> JsonRun<'a> {
        let Report { outcome, not_measured, notes, .. } = report;
        JsonRun { outcome, kernel_release, not_measured, notes }
    }
}

/// Which kernel exactly each of these is, as it calls itself (`uname -r`), by name.
fn releases(kernels: &[Asked], args: &RunArgs) -> Result<BTreeMap<String, String>, Failure> {
    let lab = (args.on == RunOn::Vm).then(Lab::open).transpose()?;
    let of = |asked: &Asked| {
        let release = match &lab {
            Some(lab) => lab.kernel(&asked.name)?.origin.release,
            None => own_release()?,
        };
        Ok((asked.name.clone(), release))
    };
    kernels.iter().map(of).collect()
}

fn own_release() -> anyhow::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned())
}

/// Whether a scenario is no longer what its expectations were written for.
fn is_changed(args: &RunArgs) -> bool {
    !args.set.is_empty() || args.duration.is_some()
}

/// What each scenario expects, as far as it can be measured.
fn verdicts<'a>(
    workloads: &'a [Workload],
    kernels: &[Asked],
    done: &[Ended<'_>],
    args: &RunArgs,
) -> anyhow::Result<Vec<Vec<Verdict<'a>>>> {
    let asked: Vec<Kernel> = kernels.iter().map(|kernel| kernel.kernel).collect();
    let of = |workload: &'a Workload| {
        let reports: Vec<(&Planned<'_>, &Report)> = done
            .iter()
            .filter(|(planned, _)| std::ptr::eq(planned.workload, workload))
            .filter_map(|(planned, report)| Some((*planned, report.as_ref().ok()?)))
            .collect();
        let is_measured = |path: &str| {
            let not = reports.iter().flat_map(|(_, report)| &report.not_measured);
            !not.into_iter().any(|name| names(name, path))
        };
        let wanted = |expectation: &Expectation| {
            !is_changed(args) && expect::can_be_checked(expectation, &asked, is_measured)
        };
        let run = |(planned, report): &(&Planned<'_>, &Report)| Done {
            kernel: planned.kernel.kernel,
            seed: planned.job.seed,
            outcome: report.outcome.clone(),
        };
        let runs: Vec<Done> = reports.iter().map(run).collect();
        let tolerances = tolerances(workload, &reports);
        expect::check_some(workload, &asked, &runs, wanted, &|outcome, path, value| {
            slack(outcome, path, value, tolerances)
        })
    };
    workloads.iter().map(of).collect()
}

/// What only the model can do is not passed over in silence.
fn check_options(args: &RunArgs) -> anyhow::Result<()> {
    let running = &args.running;
    let only_model = [("--histogram", args.histogram), ("--check", running.check)];
    if let Some((option, _)) = only_model.iter().find(|(_, given)| *given) {
        bail!("{option} looks into the model: it goes with --on model");
    }
    if running.noise.is_some() {
        bail!("--noise is for the model, real kernels have their own: it goes with --on model");
    }
    match args.about_machines() {
        Some(option) if args.on == RunOn::Host => {
            bail!("{option} is about virtual machines: it goes with --on vm")
        }
        _ => Ok(()),
    }
}

/// What `compare` allows a real kernel, which is never to the nanosecond where the model is.
fn tolerances(workload: &Workload, reports: &[(&Planned<'_>, &Report)]) -> Tolerances {
    let hz = reports.iter().find_map(|(_, report)| report.conditions.hz);
    let tick_ns = 1_000_000_000 / u64::from(hz.unwrap_or(workload.machine.hz).max(1));
    if reports.iter().all(|(planned, _)| planned.is_exact) {
        Tolerances::exact(tick_ns)
    } else {
        Tolerances::parallel(tick_ns)
    }
}

/// The tolerance of that number; of one that `compare` does not hold to anything, and of a ratio,
/// what it allows times.
fn slack(outcome: &Outcome, path: &str, value: f64, tolerances: Tolerances) -> f64 {
    const SHARE: f64 = 0.03;
    let deviations = compare(outcome, outcome, &tolerances);
    let known = deviations.iter().find(|deviation| deviation.path == path);
    let tolerance = known.and_then(|deviation| deviation.tolerance);
    tolerance.map_or(value.abs() * SHARE, |tolerance| tolerance as f64)
}

fn kernels(args: &RunArgs) -> anyhow::Result<Vec<Asked>> {
    let list = args.running.kernel.as_str();
    let chosen = list != DEFAULT_KERNELS;
    if args.on == RunOn::Vm {
        let list = if chosen { list } else { DEFAULT_REAL_KERNELS };
        return worlds::kernels(list, WorldName::Vm);
    }
    if chosen {
        bail!("--on host runs on the kernel that is there: leave --kernel out");
    }
    let version: Version = own_release()?.parse()?;
    Ok(vec![Asked { name: version.to_string(), kernel: Kernel::of(version)? }])
}

/// A job and what it is for.
struct Planned<'a> {
    workload: &'a Workload,
    kernel: &'a Asked,
    job: Job,
    /// In a virtual machine that counts time in instructions.
    is_exact: bool,
    /// Where to write who ran when.
    trace: Option<PathBuf>,
}

/// A job and what came of it.
type Ended<'a> = (&'a Planned<'a>, Result<Report, Error>);

impl Planned<'_> {
    fn name(&self) -> String {
        format!("{} on {} with seed {}", self.workload.name, self.kernel.name, self.job.seed)
    }
}

fn jobs<'a>(
    workloads: &'a [Workload],
    kernels: &'a [Asked],
    args: &RunArgs,
) -> anyhow::Result<Vec<Planned<'a>>> {
    let one = Seeds { first: args.running.seed, last: args.running.seed };
    let seeds = args.seeds.unwrap_or(one);
    let seeded = seeds.first < seeds.last;
    let alone = workloads.len() * kernels.len() == 1 && !seeded;
    let names = Names { alone, scenario: workloads.len() > 1, seed: seeded };
    let mut jobs = Vec::new();
    for workload in workloads {
        let mode = mode(workload, args.mode)?;
        let scenario = print(workload);
        for kernel in kernels {
            for seed in seeds.first..=seeds.last {
                let scenario = scenario.clone();
                let job = Job::new(&kernel.name, mode, scenario, seed, workload.duration_ns);
                let is_exact = args.on == RunOn::Vm && mode == Mode::Exact;
                let path = |path| names.path(path, &workload.name, &kernel.name, seed);
                let trace = args.trace.as_deref().map(path);
                let kernel_arguments = worlds::kernel_arguments(workload);
                let job = Job { trace: trace.is_some(), kernel_arguments, ..job };
                jobs.push(Planned { workload, kernel, job, is_exact, trace });
            }
        }
    }
    check_paths(jobs.iter().filter_map(|planned| planned.trace.as_deref()))?;
    Ok(jobs)
}

fn mode(workload: &Workload, asked: Option<VmMode>) -> anyhow::Result<Mode> {
    let cpus = workload.machine.cpus;
    match asked {
        Some(VmMode::Exact) if cpus > 1 => {
            let name = &workload.name;
            bail!("{name} has {cpus} CPUs, and --mode exact is for one: use --mode parallel")
        }
        Some(VmMode::Exact) => Ok(Mode::Exact),
        None if cpus == 1 => Ok(Mode::Exact),
        Some(VmMode::Parallel) | None => Ok(Mode::Parallel { cpus }),
    }
}

fn reports(planned: &[Planned<'_>], args: &RunArgs) -> Result<Vec<Result<Report, Error>>, Failure> {
    let _watched = interrupt::Watched::begin();
    let progress = Progress::new(planned);
    let jobs: Vec<Job> = planned.iter().map(|planned| planned.job.clone()).collect();
    if args.on == RunOn::Host {
        let host = Host::open()?;
        let run = |(index, job)| {
            let report = host.run(job, index, &progress);
            progress.step(index, Step::Done);
            report
        };
        return Ok(jobs.iter().enumerate().map(run).collect());
    }
    let lab = Lab::open()?;
    // Told before the first machine boots.
    for planned in planned {
        lab.kernel(&planned.kernel.name)?;
    }
    Ok(lab.run_all(&jobs, side_by_side(&lab, &jobs, args), &progress))
}

/// As many machines as the host has CPUs for.
fn side_by_side(lab: &Lab, jobs: &[Job], args: &RunArgs) -> usize {
    let most_cpus = jobs.iter().map(|job| lab.host_cpus(job.mode)).max().unwrap_or(1);
    worlds::side_by_side(args.running.jobs, most_cpus)
}

/// A bar for each machine that runs, and one for all of them; drawn on a terminal only.
struct Progress {
    all: MultiProgress,
    total: ProgressBar,
    names: Vec<String>,
    bars: Mutex<Vec<Option<ProgressBar>>>,
}

impl Progress {
    fn new(jobs: &[Planned<'_>]) -> Progress {
        let all = MultiProgress::new();
        let total = all.add(styled_bar(jobs.len() as u64, "{bar:40} {pos} of {len} runs{left}"));
        let names = jobs.iter().map(Planned::name).collect();
        Progress { all, total, names, bars: Mutex::new(vec![None; jobs.len()]) }
    }
}

impl Watch for Progress {
    fn stopped(&self) -> bool {
        interrupt::requested()
    }

    fn step(&self, job: usize, step: Step) {
        let mut bars = self.bars.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(slot) = bars.get_mut(job) else { return };
        let bar = slot.get_or_insert_with(|| {
            let bar = self.all.add(styled_bar(100, "{bar:40} {prefix} {msg}"));
            bar.with_prefix(self.names[job].clone())
        });
        match step {
            Step::Boots => bar.set_message("boots; this is kept for the next time"),
            Step::Runs { now_ns, duration_ns } => {
                bar.set_message("");
                bar.set_length(duration_ns);
                bar.set_position(now_ns);
            }
            Step::Done => {
                bar.finish_and_clear();
                *slot = None;
                self.total.inc(1);
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.total.finish_and_clear();
    }
}

fn styled_bar(length: u64, template: &str) -> ProgressBar {
    ProgressBar::new(length).with_style(output::bar_style(template))
}

fn write(
    workloads: &[Workload],
    done: &[Ended<'_>],
    verdicts: &[Vec<Verdict<'_>>],
    changed: bool,
) -> anyhow::Result<()> {
    let mut out = output::stdout();
    for (workload, verdicts) in workloads.iter().zip(verdicts) {
        let of_it = done.iter().filter(|(planned, _)| std::ptr::eq(planned.workload, workload));
        let reports: Vec<&Report> = of_it.filter_map(|(_, report)| report.as_ref().ok()).collect();
        if reports.is_empty() {
            continue;
        }
        let outcomes: Vec<Outcome> = reports.iter().map(|report| report.outcome.clone()).collect();
        let shows = output::wrapped(&format!("{}: {}", workload.name, workload.shows));
        let rest = shows.strip_prefix(&workload.name).unwrap_or_default();
        writeln!(out, "{}{rest}\n", output::styled(BOLD, &workload.name))?;
        let width = output::width();
        for table in [
            cpumax_report::groups(&outcomes, &quotas(workload), width),
            cpumax_report::tasks(&outcomes, width),
        ]
        .into_iter()
        .flatten()
        {
            writeln!(out, "{table}")?;
        }
        let not_measured = not_measured(&reports);
        let notes: BTreeSet<&str> =
            reports.iter().flat_map(|report| &report.notes).map(String::as_str).collect();
        if !not_measured.is_empty() {
            let list = format!("Not measured: {}", not_measured.join(", "));
            writeln!(out, "{}", output::styled(DIM, output::wrapped(&list)))?;
        }
        for note in notes {
            writeln!(out, "{}", output::styled(DIM, output::wrapped(note)))?;
        }
        writeln!(out)?;
        write_verdicts(&mut out, workload, verdicts, changed)?;
    }
    Ok(out.flush()?)
}

/// Numbers that were not measured, with the kernels on which they were not, where they were on
/// others.
fn not_measured(reports: &[&Report]) -> Vec<String> {
    let mut kernels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for report in reports {
        for path in &report.not_measured {
            kernels.entry(path).or_default().insert(&report.outcome.kernel);
        }
    }
    let all: BTreeSet<&str> = reports.iter().map(|report| report.outcome.kernel.as_str()).collect();
    let told = kernels.into_iter().map(|(path, on)| {
        let on: Vec<&str> = on.into_iter().collect();
        if on.len() == all.len() {
            path.to_owned()
        } else {
            format!("{path} (on {})", on.join(", "))
        }
    });
    told.collect()
}

/// Tells what could not be run. A refusal is no failure unless there is nothing else.
fn failures(done: &[Ended<'_>]) -> Result<(), Failure> {
    let mut failed = 0;
    for (planned, report) in done {
        let Err(error) = report else { continue };
        let (label, style) = match error {
            Error::Refused { .. } => ("refused:", DIM),
            _ => ("error:", BAD),
        };
        failed += usize::from(!matches!(error, Error::Refused { .. }));
        output::say(format_args!("{} {}: {error}", output::styled(style, label), planned.name()));
    }
    let run = done.iter().filter(|(_, report)| report.is_ok()).count();
    match (failed, run) {
        (0, 1..) => Ok(()),
        (0, 0) => Err(anyhow!("none of the runs is possible there").into()),
        (failed, _) => Err(anyhow!("{failed} of {} runs failed", done.len()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_on_some_kernels_is_told_with_them() {
        let report = |version: &str, not_measured: &[&str]| {
            let kernel = cpumax_machine::kernel::parse_kernels(version).unwrap()[0];
            let nested =
                cpumax_workload::parse(builtin::find("nested").unwrap().text, "a").unwrap();
            let options = cpumax_machine::Options::new(kernel, 1);
            Report {
                outcome: cpumax_machine::run(&nested, &options, None, None).unwrap(),
                conditions: cpumax_outcome::Conditions::default(),
                locks: std::collections::BTreeMap::new(),
                not_measured: not_measured.iter().map(|&path| path.to_owned()).collect(),
                notes: Vec::new(),
                trace: None,
            }
        };
        let old = report("6.1", &["events", "local"]);
        let new = report("6.18", &["events"]);
        assert_eq!(not_measured(&[&old, &new]), ["events", "local (on 6.1)"]);
        assert_eq!(not_measured(&[&old]), ["events", "local"]);
    }

    #[test]
    fn json_tells_what_was_not_measured_and_what_is_to_be_noted() {
        let kernel = cpumax_machine::kernel::parse_kernels("6.18").unwrap()[0];
        let nested = cpumax_workload::parse(builtin::find("nested").unwrap().text, "a").unwrap();
        let options = cpumax_machine::Options::new(kernel, 1);
        let report = Report {
            outcome: cpumax_machine::run(&nested, &options, None, None).unwrap(),
            conditions: cpumax_outcome::Conditions::default(),
            locks: std::collections::BTreeMap::new(),
            not_measured: vec!["events".to_owned()],
            notes: vec!["the machine was slow".to_owned()],
            trace: None,
        };
        let own = serde_json::to_value(&report.outcome).unwrap();
        let json = serde_json::to_value(JsonRun::of(&report, "6.18.15+deb13-cloud-amd64")).unwrap();
        let added = json.as_object().unwrap().keys().filter(|name| own.get(*name).is_none());
        let document = include_str!("../../../../docs/json.md");
        let section = document.split("\n## Real kernels").nth(1).unwrap();
        let rows = section.split("\n## ").next().unwrap().lines();
        let rows = rows.filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        assert_eq!(rows.collect::<BTreeSet<_>>(), added.map(String::as_str).collect());
        assert_eq!(json["not_measured"][0], "events");
        assert_eq!(json["notes"][0], "the machine was slow");
        assert_eq!(serde_json::from_value::<Outcome>(json).unwrap(), report.outcome);
    }

    #[test]
    fn one_cpu_is_exact_and_more_are_parallel_unless_asked_otherwise() {
        let with = |cpus| {
            let text = builtin::find("nested")
                .unwrap()
                .text
                .replace("[machine]\n", &format!("[machine]\ncpus = {cpus}\n"));
            cpumax_workload::parse(&text, "a").unwrap()
        };
        assert_eq!(mode(&with(1), None).unwrap(), Mode::Exact);
        assert_eq!(mode(&with(4), None).unwrap(), Mode::Parallel { cpus: 4 });
        let parallel = mode(&with(1), Some(VmMode::Parallel)).unwrap();
        assert_eq!(parallel, Mode::Parallel { cpus: 1 });
        let told = mode(&with(4), Some(VmMode::Exact)).unwrap_err().to_string();
        assert!(told.contains("4 CPUs") && told.contains("--mode parallel"), "{told}");
    }
}
