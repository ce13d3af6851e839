//! `cpumax run`: scenarios on kernels, in the model or real ones; tables of what came of it, and
//! whether it is what must come of it. Real kernels are held to what a scenario expects as far as it
//! can be measured there; `cpumax compare` holds them against the model.

mod traces;

use crate::args::{RunArgs, RunOn, VmMode};
use crate::failure::Failure;
use crate::interrupt;
use crate::json::JsonArray;
use crate::output::{self, BAD, BOLD, DIM, GOOD};
use crate::runs::Terminal;
use crate::verdicts;
use anyhow::{Context, anyhow, bail};
use cpumax_compare::cell::names;
use cpumax_engine::expect::{self, Done, Verdict};
use cpumax_engine::{
    Error, Job, Machines, Model, NamedKernel, Report, Study, ThisHost, World, builtin, kernels,
    scenario,
};
use cpumax_limit::Setting;
use cpumax_machine::kernel::{self, Kernel};
use cpumax_outcome::{Outcome, Tolerances, compare};
use cpumax_report::{Quota, escape};
use cpumax_workload::bounds::MAX_DURATION_NS;
use cpumax_workload::{Action, Expectation, GroupIx, Workload};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;

/// The real kernels that are run when none is asked for.
const DEFAULT_REAL_KERNELS: &str = "6.1,6.12,6.18,7.2,7.3";

pub fn run(args: &RunArgs) -> Result<(), Failure> {
    check_options(args)?;
    let asked = asked(args)?;
    let built_in = builtin::ALL.iter().map(|built_in| built_in.name).filter(|_| args.all);
    let names = args.scenarios.iter().map(String::as_str).chain(built_in);
    let plans =
        names.map(|name| Plan::new(name, args, &asked)).collect::<anyhow::Result<Vec<_>>>()?;
    let world = world(args, &plans)?;
    let json = args.running.json.as_deref().map(JsonArray::create).transpose()?;
    let studies = plans.iter().map(|plan| plan.study(&asked, seeds(args)).jobs());
    let studies: Vec<Vec<Job>> = studies.collect();
    let jobs: Vec<Job> = studies.iter().flatten().cloned().collect();
    let is_shown = |job: &Job| asked.iter().any(|kernel| kernel.name == job.kernel.name);
    let watch = Terminal::tracing(traces::of(&jobs, plans.len(), args, is_shown)?, is_real(args));
    let mut ended = Vec::new();
    let run = world.run(&jobs, &watch, &mut |_, report| {
        // What the model cannot do is wrong with the scenario, not with this run.
        let is_end = report.is_err() && !is_real(args);
        let is_end = is_end || matches!(report, Err(Error::Interrupted));
        ended.push(report);
        if is_end { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    drop(watch);
    run.map_err(Failure::of)?;
    if let Some(Err(_)) = ended.last().filter(|_| ended.len() < jobs.len() || !is_real(args)) {
        return Err(ended.pop().and_then(Result::err).map_or(Failure::Unexpected, Failure::of));
    }
    let runs: Vec<Run<'_>> =
        jobs.iter().zip(ended).map(|(job, ended)| Run { job, ended }).collect();
    let mut rest = runs.as_slice();
    let mut of_each = Vec::new();
    for study in &studies {
        let (own, others) = rest.split_at(study.len());
        of_each.push(own);
        rest = others;
    }
    finish(&plans, &of_each, &asked, args, json)
}

/// Tells what came of all runs, those of each scenario by themselves.
fn finish(
    plans: &[Plan],
    of_each: &[&[Run<'_>]],
    asked: &[NamedKernel],
    args: &RunArgs,
    json: Option<JsonArray>,
) -> Result<(), Failure> {
    let shown = |runs: &[Run<'_>]| -> Vec<Report> {
        let is_asked = |run: &&Run<'_>| asked.iter().any(|k| k.name == run.job.kernel.name);
        runs.iter().filter(is_asked).filter_map(|run| run.ended.as_ref().ok().cloned()).collect()
    };
    let reports: Vec<Vec<Report>> = of_each.iter().map(|runs| shown(runs)).collect();
    let verdicts = plans.iter().zip(of_each).map(|(plan, runs)| plan.verdicts(asked, runs, args));
    let verdicts = verdicts.collect::<Result<Vec<_>, Error>>().map_err(Failure::of)?;
    let tables = json.as_ref().is_none_or(|json| !json.is_stdout());
    if let Some(json) = json {
        json.write(reports.iter().flatten().map(Report::document))?;
    }
    if tables {
        write(plans, &reports, &verdicts, args)?;
    } else {
        write_failures(plans, &verdicts)?;
    }
    if is_real(args) {
        failures(of_each)?;
    }
    let passed = verdicts.iter().flatten().all(Verdict::passed);
    if passed { Ok(()) } else { Err(Failure::Unexpected) }
}

fn is_real(args: &RunArgs) -> bool {
    args.on != RunOn::Model
}

/// What only some worlds can do is not passed over in silence.
fn check_options(args: &RunArgs) -> anyhow::Result<()> {
    let running = &args.running;
    if is_real(args) {
        let only_model = [("--histogram", args.histogram), ("--check", running.check)];
        if let Some((option, _)) = only_model.iter().find(|(_, given)| *given) {
            bail!("{option} looks into the model: it goes with --on model");
        }
        if running.noise.is_some() {
            bail!("--noise is for the model, real kernels have their own: it goes with --on model");
        }
    }
    match args.about_machines() {
        Some(option) if args.on != RunOn::Vm => {
            bail!("{option} is about virtual machines: it goes with --on vm")
        }
        _ => Ok(()),
    }
}

/// The kernels that are shown.
fn asked(args: &RunArgs) -> Result<Vec<NamedKernel>, Failure> {
    let list = args.running.kernels_asked();
    match args.on {
        RunOn::Model => kernels::modelled(args.running.kernels()).map_err(Failure::of),
        RunOn::Vm => crate::worlds::fetched(list.unwrap_or(DEFAULT_REAL_KERNELS)),
        RunOn::Host if list.is_some() => {
            Err(anyhow!("--on host runs on the kernel that is there: leave --kernel out").into())
        }
        RunOn::Host => Ok(vec![ThisHost::kernel().map_err(Failure::of)?]),
    }
}

fn seeds(args: &RunArgs) -> RangeInclusive<u64> {
    args.seeds.map_or(args.running.seed..=args.running.seed, |seeds| seeds.first..=seeds.last)
}

fn world(args: &RunArgs, plans: &[Plan]) -> Result<Box<dyn World>, Failure> {
    let exact = args.mode.map(|mode| mode == VmMode::Exact);
    Ok(match args.on {
        RunOn::Model => Box::new(Model { running: args.running.how() }),
        RunOn::Host => Box::new(ThisHost::open().map_err(Failure::of)?),
        RunOn::Vm => {
            let several = plans.iter().find(|plan| plan.workload.machine.cpus > 1);
            if let (Some(true), Some(Plan { workload, .. })) = (exact, several) {
                let (name, cpus) = (&workload.name, workload.machine.cpus);
                let what = format!("{name} has {cpus} CPUs, and --mode exact is for one");
                return Err(anyhow!("{what}: use --mode parallel").into());
            }
            let side_by_side = args.running.jobs.map(usize::from);
            Box::new(Machines::open(exact, side_by_side).map_err(Failure::of)?)
        }
    })
}

/// A scenario as it will be run.
struct Plan {
    workload: Arc<Workload>,
    /// Kernels that run only because ratios are taken over them.
    references: Vec<Kernel>,
    /// Whether it is no longer what its expectations were written for.
    changed: bool,
}

/// A run and what came of it.
struct Run<'a> {
    job: &'a Job,
    ended: Result<Report, Error>,
}

impl Plan {
    /// The scenario of that name, changed as asked.
    fn new(name: &str, args: &RunArgs, asked: &[NamedKernel]) -> anyhow::Result<Plan> {
        let mut workload = scenario::load(name)?;
        for set in &args.set {
            let name = workload.name.clone();
            workload = cpumax_engine::apply(workload, set)
                .with_context(|| format!("--set '{set}'"))
                .context(name)?;
        }
        if let Some(duration) = args.duration {
            workload = workload.with_duration(duration_ns(duration)?)?;
        }
        let changed = !args.set.is_empty() || args.duration.is_some();
        let references = if changed || is_real(args) {
            Vec::new()
        } else {
            expect::references(&workload, &models(asked))?
        };
        Ok(Plan { workload: Arc::new(workload), references, changed })
    }

    /// Kernels as asked, then those for ratios; seeds of each in order.
    fn study(&self, asked: &[NamedKernel], seeds: RangeInclusive<u64>) -> Study {
        let references = self.references.iter().copied().map(NamedKernel::from);
        let kernels = asked.iter().cloned().chain(references);
        Study::new(Arc::clone(&self.workload)).on(kernels).with_seeds(seeds)
    }

    /// What the scenario expects, as far as it can be measured.
    fn verdicts(
        &self,
        asked: &[NamedKernel],
        runs: &[Run<'_>],
        args: &RunArgs,
    ) -> Result<Vec<Verdict<'_>>, Error> {
        let asked = models(asked);
        let told = || runs.iter().filter_map(|run| Some((run.job, run.ended.as_ref().ok()?)));
        let reports: Vec<&Report> = told().map(|(_, report)| report).collect();
        let is_measured = |path: &str| {
            let not = reports.iter().flat_map(|report| &report.not_measured);
            !not.into_iter().any(|name| names(name, path))
        };
        let wanted = |expectation: &Expectation| {
            let can_be = !is_real(args) || expect::can_be_checked(expectation, &asked, is_measured);
            can_be && !self.changed
        };
        let done = told().map(|(job, report)| Done {
            kernel: job.kernel.kernel,
            seed: job.seed,
            outcome: report.outcome.clone(),
        });
        let done: Vec<Done> = done.collect();
        let tolerances = tolerances(&self.workload, &reports);
        expect::check_some(&self.workload, &asked, &done, wanted, &|outcome, path, value| {
            if is_real(args) { slack(outcome, path, value, tolerances) } else { 0.0 }
        })
    }
}

fn models(kernels: &[NamedKernel]) -> Vec<Kernel> {
    kernels.iter().map(|kernel| kernel.kernel).collect()
}

fn duration_ns(duration: std::time::Duration) -> anyhow::Result<u64> {
    match u64::try_from(duration.as_nanos()) {
        Ok(ns @ 1..=MAX_DURATION_NS) => Ok(ns),
        _ => bail!("--for takes more than nothing and at most a day"),
    }
}

/// What `compare` allows a real kernel, which is never to the nanosecond where the model is.
fn tolerances(workload: &Workload, reports: &[&Report]) -> Tolerances {
    let hz = reports.iter().find_map(|report| report.conditions.as_ref()?.hz);
    let tick_ns = 1_000_000_000 / u64::from(hz.unwrap_or(workload.machine.hz).max(1));
    if reports.iter().all(|report| report.exact) {
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

fn write(
    plans: &[Plan],
    reports: &[Vec<Report>],
    verdicts: &[Vec<Verdict<'_>>],
    args: &RunArgs,
) -> anyhow::Result<()> {
    let mut out = output::stdout();
    for ((plan, reports), verdicts) in plans.iter().zip(reports).zip(verdicts) {
        if !reports.is_empty() {
            write_scenario(&mut out, plan, reports, verdicts, args)?;
        }
    }
    if plans.len() > 1 {
        summary(&mut out, plans, verdicts)?;
    }
    let release = |report: &Report| {
        Some(format!("{} is {}", report.outcome.kernel, report.kernel_release.as_deref()?))
    };
    let releases: BTreeSet<String> = reports.iter().flatten().filter_map(release).collect();
    if !releases.is_empty() {
        let list: Vec<String> = releases.into_iter().collect();
        let list = output::wrapped(&format!("Kernels: {}", list.join(", ")));
        writeln!(out, "{}", output::styled(DIM, list))?;
    }
    Ok(out.flush()?)
}

fn write_scenario(
    out: &mut impl Write,
    plan: &Plan,
    reports: &[Report],
    verdicts: &[Verdict<'_>],
    args: &RunArgs,
) -> anyhow::Result<()> {
    let Plan { workload, changed, .. } = plan;
    let outcomes: Vec<Outcome> = reports.iter().map(|report| report.outcome.clone()).collect();
    let name = escape::line(&workload.name);
    let shows = output::wrapped(&format!("{}: {}", name, workload.shows));
    let rest = shows.strip_prefix(&*name).unwrap_or_default();
    writeln!(out, "{}{rest}\n", output::styled(BOLD, &name))?;
    let settings = args.set.iter().map(|set| set.parse::<Setting>());
    let settings = settings.collect::<Result<Vec<_>, _>>()?;
    let understood: Vec<String> = settings.iter().flat_map(Setting::understood).collect();
    if !understood.is_empty() {
        writeln!(out, "{}\n", understood.join("\n"))?;
    }
    let width = output::width();
    let groups = cpumax_report::groups(&outcomes, &quotas(workload), width);
    for table in groups.into_iter().chain(cpumax_report::tasks(&outcomes, width)) {
        writeln!(out, "{table}")?;
    }
    let kernels: BTreeSet<&str> = outcomes.iter().map(|run| run.kernel.as_str()).collect();
    // A real kernel that is none to the model has all there is.
    let modelled = kernels.into_iter().filter_map(|name| kernel::parse_kernels(name).ok());
    for kernel in modelled.flatten() {
        if let Some(missing) = cpumax_engine::lacks(workload, kernel) {
            writeln!(out, "{}: {missing}, and is left out here.", kernel.version)?;
        }
    }
    if args.histogram {
        for run in &outcomes {
            let sections = cpumax_report::histogram(&run.release.irqoff_ns.histogram);
            let none = if sections.is_empty() { "none\n" } else { "" };
            writeln!(
                out,
                "interrupts off while releasing, ns, {} {}:\n{sections}{none}",
                run.kernel, run.generation
            )?;
        }
    }
    if is_real(args) {
        write_doubts(out, reports)?;
    }
    write_verdicts(out, workload, verdicts, *changed)
}

/// What was not measured, and where a run is not quite what the scenario says.
fn write_doubts(out: &mut impl Write, reports: &[Report]) -> anyhow::Result<()> {
    let not_measured = not_measured(reports);
    if !not_measured.is_empty() {
        let list = format!("Not measured: {}", not_measured.join(", "));
        writeln!(out, "{}", output::styled(DIM, output::wrapped(&list)))?;
    }
    let notes: BTreeSet<&str> =
        reports.iter().flat_map(|report| &report.notes).map(String::as_str).collect();
    for note in notes {
        writeln!(out, "{}", output::styled(DIM, output::wrapped(note)))?;
    }
    Ok(writeln!(out)?)
}

/// What the scenario expects, and whether it came of it.
fn write_verdicts(
    out: &mut impl Write,
    workload: &Workload,
    verdicts: &[Verdict<'_>],
    changed: bool,
) -> anyhow::Result<()> {
    for verdict in verdicts.iter().filter(|verdict| verdict.applies()) {
        verdicts::write(verdict, out)?;
    }
    if changed && !workload.expectations.is_empty() {
        let note = "What the scenario expects is not checked: --set or --for changed it.";
        writeln!(out, "{}", output::styled(DIM, note))?;
    }
    if verdicts.iter().any(Verdict::applies) || changed {
        writeln!(out)?;
    }
    Ok(())
}

/// Numbers that were not measured, with the kernels on which they were not, where they were on
/// others.
fn not_measured(reports: &[Report]) -> Vec<String> {
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

fn summary(
    out: &mut impl Write,
    plans: &[Plan],
    verdicts: &[Vec<Verdict<'_>>],
) -> anyhow::Result<()> {
    let checked = verdicts.iter().flatten().filter(|verdict| verdict.applies()).count();
    let failed = verdicts.iter().flatten().filter(|verdict| !verdict.passed()).count();
    let (style, count) = if failed == 0 {
        (GOOD, "all hold".to_owned())
    } else {
        (BAD, format!("{failed} do not hold"))
    };
    writeln!(
        out,
        "{} scenarios, {checked} expectations: {}",
        plans.len(),
        output::styled(style, count)
    )?;
    for (plan, verdicts) in plans.iter().zip(verdicts) {
        let failed = verdicts.iter().filter(|verdict| !verdict.passed()).count();
        if failed > 0 {
            writeln!(out, "  {}: {failed}", escape::line(&plan.workload.name))?;
        }
    }
    Ok(())
}

/// With JSON on standard output, what failed is told beside it.
fn write_failures(plans: &[Plan], verdicts: &[Vec<Verdict<'_>>]) -> anyhow::Result<()> {
    let mut err = output::stderr();
    for (plan, verdicts) in plans.iter().zip(verdicts) {
        for verdict in verdicts.iter().filter(|verdict| !verdict.passed()) {
            write!(err, "{}: ", escape::line(&plan.workload.name))?;
            verdicts::write(verdict, &mut err)?;
        }
    }
    Ok(())
}

/// Tells what could not be run. A refusal is no failure unless there is nothing else.
fn failures(of_each: &[&[Run<'_>]]) -> Result<(), Failure> {
    let (mut failed, mut ran, mut all) = (0, 0, 0);
    for Run { job, ended } in of_each.iter().copied().flatten() {
        all += 1;
        let (label, style) = match ended {
            Ok(_) => {
                ran += 1;
                continue;
            }
            Err(Error::Refused(_)) => ("refused:", DIM),
            Err(_) => {
                failed += 1;
                ("error:", BAD)
            }
        };
        let error = ended.as_ref().err().map(ToString::to_string).unwrap_or_default();
        let label = output::styled(style, label);
        output::say(format_args!("{label} {}: {error}", job.name()));
    }
    if interrupt::requested() {
        return Err(Failure::Interrupted);
    }
    match (failed, ran) {
        (0, 1..) => Ok(()),
        (0, 0) => Err(anyhow!("none of the runs is possible there").into()),
        (failed, _) => Err(anyhow!("{failed} of {all} runs failed").into()),
    }
}

/// The groups that have a limit, or are given one on the way, and what share of a CPU it is.
fn quotas(workload: &Workload) -> BTreeMap<String, Option<Quota>> {
    let rewritten = |index: usize| {
        workload.interventions.iter().any(|intervention| {
            matches!(intervention.action, Action::WriteLimit { group, .. } if group == index as GroupIx)
        })
    };
    let quota = |(index, group): (usize, &cpumax_workload::GroupSpec)| {
        let period_ns = group.limit.period_ns();
        let quota = group.limit.quota_ns().map(|quota_ns| Quota { quota_ns, period_ns });
        match (quota, rewritten(index)) {
            (None, false) => None,
            (quota, rewritten) => Some((group.path.clone(), quota.filter(|_| !rewritten))),
        }
    };
    workload.groups.iter().enumerate().filter_map(quota).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpumax_engine::world;

    #[test]
    fn what_was_not_measured_on_some_kernels_is_told_with_them() {
        let report = |version: &str, not_measured: &[&str]| {
            let study = Study::new(scenario::load("nested").unwrap());
            let jobs = study.on(kernels::modelled(version).unwrap()).jobs();
            let mut report = world::all(&Model::default(), &jobs, &()).unwrap().remove(0);
            report.not_measured = not_measured.iter().map(|&path| path.to_owned()).collect();
            report
        };
        let old = report("6.1", &["events", "local"]);
        let new = report("6.18", &["events"]);
        assert_eq!(not_measured(&[old.clone(), new]), ["events", "local (on 6.1)"]);
        assert_eq!(not_measured(&[old]), ["events", "local"]);
    }
}
