//! `cpumax run`: scenarios on kernels, tables of what came of it, and whether it is what must come
//! of it.

use crate::args::{RunArgs, RunOn, Seeds};
use crate::builtin;
use crate::expect::{self, Done, Verdict};
use crate::failure::Failure;
use crate::json::JsonArray;
use crate::output::{self, BAD, BOLD, DIM, GOOD};
use crate::runs::{self, Terminal};
use crate::scenario;
use anyhow::{Context, anyhow, bail};
use cpumax_engine::Job;
use cpumax_machine::kernel::{self, Kernel};
use cpumax_outcome::Outcome;
use cpumax_report::Quota;
use cpumax_workload::bounds::MAX_DURATION_NS;
use cpumax_workload::{Action, GroupIx, Workload};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

pub fn run(args: &RunArgs) -> Result<(), Failure> {
    if args.on != RunOn::Model {
        return super::real::run(args);
    }
    if let Some(option) = args.about_machines() {
        return Err(anyhow!("{option} is about virtual machines: it goes with --on vm").into());
    }
    let asked = kernel::parse_kernels(&args.running.kernel)?;
    let built_in = builtin::ALL.iter().map(|built_in| built_in.name).filter(|_| args.all);
    let names = args.scenarios.iter().map(String::as_str).chain(built_in);
    let plans =
        names.map(|name| Plan::new(name, args, &asked)).collect::<anyhow::Result<Vec<_>>>()?;
    let json = args.running.json.as_deref().map(JsonArray::create).transpose()?;
    let (jobs, traces): (Vec<_>, Vec<_>) = jobs(&plans, args, &asked)?.into_iter().unzip();
    let outcomes = runs::all(&jobs, &args.running.how(), &Terminal::tracing(traces))?;
    let mut outcomes = outcomes.into_iter();
    let mut done: Vec<Vec<Done>> = Vec::new();
    for plan in &plans {
        let mut runs = Vec::new();
        for (kernel, seed) in plan.runs(args, &asked) {
            let Some(outcome) = outcomes.next() else { unreachable!("one outcome for each job") };
            runs.push(Done { kernel, seed, outcome });
        }
        done.push(runs);
    }
    let tables = json.as_ref().is_none_or(|json| !json.is_stdout());
    let verdicts = plans
        .iter()
        .zip(&done)
        .map(|(plan, runs)| plan.verdicts(&asked, runs))
        .collect::<anyhow::Result<Vec<_>>>()?;
    if let Some(json) = json {
        json.write(
            done.iter()
                .flatten()
                .filter(|run| is_asked(&asked, run.kernel))
                .map(|run| &run.outcome),
        )?;
    }
    if tables {
        write(&plans, &done, &verdicts, args, &asked)?;
    } else {
        let names = plans.iter().map(|plan| plan.workload.name.as_str());
        write_failures(names.zip(&verdicts))?;
    }
    let passed = verdicts.iter().flatten().all(Verdict::passed);
    if passed { Ok(()) } else { Err(Failure::Unexpected) }
}

/// The scenario of that name, changed as asked.
pub fn workload(name: &str, args: &RunArgs) -> anyhow::Result<Workload> {
    let mut workload = scenario::load(name)?;
    for set in &args.set {
        let name = workload.name.clone();
        workload = cpumax_engine::apply(workload, set)
            .with_context(|| format!("--set '{set}'"))
            .context(name)?;
    }
    match args.duration {
        Some(duration) => Ok(workload.with_duration(duration_ns(duration)?)?),
        None => Ok(workload),
    }
}

/// A scenario as it will be run.
struct Plan {
    workload: Workload,
    /// Kernels that run only because ratios are taken over them.
    references: Vec<Kernel>,
    /// Whether it is no longer what its expectations were written for.
    changed: bool,
}

impl Plan {
    fn new(name: &str, args: &RunArgs, asked: &[Kernel]) -> anyhow::Result<Plan> {
        let workload = workload(name, args)?;
        let changed = !args.set.is_empty() || args.duration.is_some();
        let references = if changed { Vec::new() } else { expect::references(&workload, asked)? };
        Ok(Plan { workload, references, changed })
    }

    /// What is run, in order: kernels as asked, then those for ratios; seeds of each in order.
    fn runs(&self, args: &RunArgs, asked: &[Kernel]) -> Vec<(Kernel, u64)> {
        let seeds =
            args.seeds.unwrap_or(Seeds { first: args.running.seed, last: args.running.seed });
        let kernels = asked.iter().chain(&self.references);
        kernels
            .flat_map(|&kernel| (seeds.first..=seeds.last).map(move |seed| (kernel, seed)))
            .collect()
    }

    fn verdicts(&self, asked: &[Kernel], runs: &[Done]) -> anyhow::Result<Vec<Verdict<'_>>> {
        if self.changed { Ok(Vec::new()) } else { expect::check(&self.workload, asked, runs) }
    }
}

fn duration_ns(duration: std::time::Duration) -> anyhow::Result<u64> {
    match u64::try_from(duration.as_nanos()) {
        Ok(ns @ 1..=MAX_DURATION_NS) => Ok(ns),
        _ => bail!("--for takes more than nothing and at most a day"),
    }
}

fn is_asked(asked: &[Kernel], kernel: Kernel) -> bool {
    asked.iter().any(|asked| asked.version == kernel.version)
}

/// A job and the file that its events go to.
type Traced<'a> = (Job<'a>, Option<PathBuf>);

fn jobs<'a>(
    plans: &'a [Plan],
    args: &RunArgs,
    asked: &[Kernel],
) -> anyhow::Result<Vec<Traced<'a>>> {
    let runs: Vec<_> = plans
        .iter()
        .flat_map(|plan| {
            plan.runs(args, asked).into_iter().map(move |(kernel, seed)| (plan, kernel, seed))
        })
        .collect();
    let traced = runs.iter().filter(|(_, kernel, _)| is_asked(asked, *kernel)).count();
    let job = |(plan, kernel, seed): (&'a Plan, Kernel, u64)| {
        let wanted = args.trace.as_deref().filter(|_| is_asked(asked, kernel));
        let names =
            Names { alone: traced == 1, scenario: plans.len() > 1, seed: args.seeds.is_some() };
        let (name, version) = (plan.workload.name.as_str(), kernel.version.to_string());
        let trace = wanted.map(|path| names.path(path, name, &version, seed));
        (Job { workload: &plan.workload, what_if: None, kernel, seed }, trace)
    };
    let jobs: Vec<Traced<'_>> = runs.into_iter().map(job).collect();
    check_paths(jobs.iter().filter_map(|(_, trace)| trace.as_deref()))?;
    Ok(jobs)
}

/// What the traces of several runs differ by.
pub struct Names {
    /// There is but one.
    pub alone: bool,
    /// Scenarios differ.
    pub scenario: bool,
    /// Seeds differ.
    pub seed: bool,
}

impl Names {
    /// The file of one run.
    pub fn path(&self, path: &Path, scenario: &str, kernel: &str, seed: u64) -> PathBuf {
        if self.alone {
            return path.to_owned();
        }
        let mut parts = vec![kernel.to_owned()];
        if self.scenario {
            parts.insert(0, scenario.to_owned());
        }
        if self.seed {
            parts.push(format!("seed{seed}"));
        }
        with_parts(path, &parts)
    }
}

/// No file may be written twice.
///
/// # Errors
/// One would be.
pub fn check_paths<'a>(paths: impl Iterator<Item = &'a Path>) -> anyhow::Result<()> {
    let mut paths: Vec<&Path> = paths.collect();
    paths.sort();
    if let Some(pair) = paths.windows(2).find(|pair| pair[0] == pair[1]) {
        bail!(
            "two runs would write their trace to {}: give scenarios of different names",
            pair[0].display()
        );
    }
    Ok(())
}

/// `trace.json` with `6.18` becomes `trace-6.18.json`.
fn with_parts(path: &Path, parts: &[String]) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut name = format!("{stem}-{}", parts.join("-").replace(['/', '\\'], "_"));
    if let Some(extension) = path.extension() {
        name = format!("{name}.{}", extension.to_string_lossy());
    }
    path.with_file_name(name)
}

fn write(
    plans: &[Plan],
    done: &[Vec<Done>],
    verdicts: &[Vec<Verdict<'_>>],
    args: &RunArgs,
    asked: &[Kernel],
) -> anyhow::Result<()> {
    let mut out = output::stdout();
    for ((plan, runs), verdicts) in plans.iter().zip(done).zip(verdicts) {
        let shown: Vec<Outcome> = runs
            .iter()
            .filter(|run| is_asked(asked, run.kernel))
            .map(|run| run.outcome.clone())
            .collect();
        write_scenario(&mut out, plan, &shown, verdicts, args)?;
    }
    if plans.len() > 1 {
        summary(&mut out, plans, verdicts)?;
    }
    Ok(out.flush()?)
}

fn write_scenario(
    out: &mut impl Write,
    plan: &Plan,
    runs: &[Outcome],
    verdicts: &[Verdict<'_>],
    args: &RunArgs,
) -> anyhow::Result<()> {
    let Plan { workload, changed, .. } = plan;
    let shows = output::wrapped(&format!("{}: {}", workload.name, workload.shows));
    let rest = shows.strip_prefix(&workload.name).unwrap_or_default();
    writeln!(out, "{}{rest}\n", output::styled(BOLD, &workload.name))?;
    let width = output::width();
    if let Some(table) = cpumax_report::groups(runs, &quotas(workload), width) {
        writeln!(out, "{table}")?;
    }
    if let Some(table) = cpumax_report::tasks(runs, width) {
        writeln!(out, "{table}")?;
    }
    if args.histogram {
        for run in runs {
            let sections = cpumax_report::histogram(&run.release.irqoff_ns.histogram);
            let none = if sections.is_empty() { "none\n" } else { "" };
            writeln!(
                out,
                "interrupts off while releasing, ns, {} {}:\n{sections}{none}",
                run.kernel, run.generation
            )?;
        }
    }
    write_verdicts(out, workload, verdicts, *changed)
}

/// What the scenario expects, and whether it came of it.
pub fn write_verdicts(
    out: &mut impl Write,
    workload: &Workload,
    verdicts: &[Verdict<'_>],
    changed: bool,
) -> anyhow::Result<()> {
    for verdict in verdicts.iter().filter(|verdict| verdict.applies()) {
        verdict.write(out)?;
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
            writeln!(out, "  {}: {failed}", plan.workload.name)?;
        }
    }
    Ok(())
}

/// With JSON on standard output, what failed is told beside it.
pub fn write_failures<'a>(
    verdicts: impl Iterator<Item = (&'a str, &'a Vec<Verdict<'a>>)>,
) -> anyhow::Result<()> {
    let mut err = output::stderr();
    for (name, verdicts) in verdicts {
        for verdict in verdicts.iter().filter(|verdict| !verdict.passed()) {
            write!(err, "{name}: ")?;
            verdict.write(&mut err)?;
        }
    }
    Ok(())
}

/// The groups that have a limit, or are given one on the way, and what share of a CPU it is.
pub fn quotas(workload: &Workload) -> BTreeMap<String, Option<Quota>> {
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

    #[test]
    fn several_traces_are_named_by_what_tells_them_apart() {
        let parts = ["a/b".to_owned(), "6.18".to_owned()];
        assert_eq!(
            with_parts(Path::new("/tmp/x.y/trace.json"), &parts),
            Path::new("/tmp/x.y/trace-a_b-6.18.json")
        );
        assert_eq!(with_parts(Path::new("trace"), &parts[1..]), Path::new("trace-6.18"));
    }
}
