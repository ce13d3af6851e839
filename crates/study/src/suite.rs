//! Runs scenarios on kernels and checks their expectations: `cpumax run`.

use crate::answer::Document;
use crate::change;
use crate::error::Error;
use crate::expect::{self, Done, Verdict};
use crate::job::{Job, NamedKernel};
use crate::report::{Report, ReportDocument};
use crate::study::Study;
use crate::watch::Watch;
use crate::world::World;
use cpumax_limit::Setting;
use cpumax_machine::kernel::{self, Kernel};
use cpumax_outcome::{Outcome, Tolerances, compare, stands_for};
use cpumax_workload::{Expectation, Workload};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;

/// Name of a setting outside of scenarios: the seed of a run's random microseconds.
pub const NOISE: &str = "noise";
/// Before the name of a rule of the model, to make a setting of it.
const RULE: &str = "rule.";

/// A scenario with the changes under which it will run.
#[derive(Debug, Clone)]
pub struct Plan {
    workload: Arc<Workload>,
    /// Whether its expectations no longer apply.
    changed: bool,
    /// Translations of limits that are not in the kernel's form.
    understood: Vec<String>,
    settings: Vec<(String, String)>,
    noise: Option<u64>,
    /// Whether its expectations are numbers to show.
    shown: bool,
}

impl Plan {
    /// The scenario without changes.
    pub fn new(workload: Workload) -> Plan {
        Plan {
            workload: Arc::new(workload),
            changed: false,
            understood: Vec::new(),
            settings: Vec::new(),
            noise: None,
            shown: false,
        }
    }

    /// Changes limits of its groups by a setting such as `/web:500m`. Its expectations no longer
    /// apply. Limits that are not in the kernel's form are added to the translations.
    ///
    /// # Errors
    /// The limit is not understood, or there is no such group.
    pub fn with_limit(mut self, set: &str) -> Result<Plan, Error> {
        let workload = Arc::unwrap_or_clone(self.workload);
        self.workload = Arc::new(change::apply(workload, set)?);
        self.understood.extend(set.parse::<Setting>()?.understood());
        self.changed = true;
        Ok(self)
    }

    /// Changes a setting: a field of its `[machine]`; `noise`; the limit of a group (`/web`) or a
    /// file of it (`/web:cpu.weight`), of several groups with commas between; a rule of the model
    /// on all kernels (`rule.release`). After a change other than of `noise` or `timer_phase`,
    /// expectations no longer apply.
    ///
    /// ```
    /// use cpumax_study::suite::{Plan, Suite};
    /// use cpumax_study::{Model, kernels, scenario};
    ///
    /// let plan = Plan::new(scenario::load("fibtest-8")?);
    /// let plans = vec![plan.clone(), plan.with_setting("rule.expiry", "Never")?];
    /// let kernels = kernels::modelled("4.19")?;
    /// let suite = Suite::new(plans, kernels, 1..=1, Box::new(Model::default()))?;
    /// let ended = suite.run(&suite.jobs(), &())?;
    /// let used = [0, 1].map(|at| ended[at].reports[0].outcome.groups["/limited"].usage_usec);
    /// assert!(used[1] > used[0], "slices that expire are lost: {used:?}");
    /// # Ok::<(), cpumax_study::Error>(())
    /// ```
    ///
    /// # Errors
    /// There is no such setting, or it does not take that value.
    pub fn with_setting(mut self, name: &str, value: &str) -> Result<Plan, Error> {
        if name == NOISE {
            let seed = value.parse();
            self.noise = Some(seed.map_err(|_| {
                let given = cpumax_limit::one_line(value);
                Error::Change(format!("noise cannot be '{given}': give a seed, a whole number"))
            })?);
        } else if name.starts_with('/') {
            for group in name.split(',') {
                let between = if group.contains(':') { '=' } else { ':' };
                self = self.with_limit(&format!("{group}{between}{value}"))?;
            }
        } else if let Some(rule) = name.strip_prefix(RULE) {
            let known = Kernel::newest().with_rule(rule, value);
            known.map_err(|error| Error::Change(error.to_string()))?;
            self.changed = true;
        } else {
            self.workload = Arc::new(self.workload.with_machine(name, value)?);
            self.changed |= name != "timer_phase";
        }
        self.settings.push((name.to_owned(), value.to_owned()));
        Ok(self)
    }

    /// Replaces its expectations by numbers to show, which are computed even where the plan is
    /// changed.
    ///
    /// # Errors
    /// One of them is not a metric.
    pub fn showing(mut self, numbers: &[Expectation]) -> Result<Plan, Error> {
        let mut parts = Arc::unwrap_or_clone(self.workload).into_parts();
        parts.expectations = numbers.to_vec();
        self.workload = Arc::new(parts.try_into()?);
        self.shown = true;
        Ok(self)
    }

    /// Changes its duration, ns. Its expectations no longer apply.
    ///
    /// # Errors
    /// The duration is out of range.
    pub fn with_duration(mut self, duration_ns: u64) -> Result<Plan, Error> {
        let workload = Arc::unwrap_or_clone(self.workload);
        self.workload = Arc::new(workload.with_duration(duration_ns)?);
        self.changed = true;
        Ok(self)
    }

    /// The changed workload.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Whether its expectations no longer apply and are not checked; false where they are numbers
    /// to show.
    pub fn is_changed(&self) -> bool {
        self.changed && !self.shown
    }

    /// Settings given in place of its own: names and values, in the order given.
    pub fn settings(&self) -> impl Iterator<Item = (&str, &str)> {
        self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The kernel with the rules that were given.
    fn ruled(&self, mut named: NamedKernel) -> NamedKernel {
        for (name, value) in self.settings() {
            if let Some(rule) = name.strip_prefix(RULE) {
                named.kernel = named.kernel.with_rule(rule, value).expect("it was looked up");
            }
        }
        named
    }

    /// Translations of limits that are not in the kernel's form: `500m = 50000 100000`.
    pub fn understood(&self) -> &[String] {
        &self.understood
    }
}

/// Scenarios, each on the same kernels with the same seeds.
///
/// ```
/// use cpumax_study::suite::{Plan, Suite};
/// use cpumax_study::{Model, kernels, scenario};
///
/// let plans = vec![Plan::new(scenario::load("lock-holder")?)];
/// let kernels = kernels::modelled("6.12,6.18")?;
/// let suite = Suite::new(plans, kernels, 1..=1, Box::new(Model::default()))?;
/// let results = suite.run(&suite.jobs(), &())?;
/// assert_eq!(results[0].reports.len(), 2);
/// assert!(results[0].passed());
/// # Ok::<(), cpumax_study::Error>(())
/// ```
pub struct Suite {
    plans: Vec<Plan>,
    /// For each plan, kernels that run only as references of ratios.
    references: Vec<Vec<Kernel>>,
    asked: Vec<NamedKernel>,
    seeds: RangeInclusive<u64>,
    world: Box<dyn World>,
}

/// A run that did not complete.
#[derive(Debug)]
pub struct Failed {
    /// Scenario, kernel and seed.
    pub run: String,
    /// Why not.
    pub error: Error,
}

/// The results of one scenario.
#[derive(Debug)]
pub struct Ended<'a> {
    /// The scenario.
    pub plan: &'a Plan,
    /// Its runs on the kernels that were asked for.
    pub reports: Vec<Report>,
    /// The kernel of each of these runs.
    pub kernels: Vec<Kernel>,
    /// Its expectations, as far as they can be checked.
    pub verdicts: Vec<Verdict<'a>>,
    /// Runs that did not complete; on real kernels only.
    pub failed: Vec<Failed>,
    /// Number of runs that completed, with those of reference kernels.
    pub done: usize,
}

impl Ended<'_> {
    /// Whether all its checked expectations hold; runs that failed do not count.
    pub fn passed(&self) -> bool {
        self.verdicts.iter().all(Verdict::passed)
    }

    /// Its runs as they are written as JSON.
    pub fn documents(&self) -> impl Iterator<Item = Document<ReportDocument<'_>>> {
        let runs = self.reports.iter().zip(&self.kernels);
        runs.map(|(report, kernel)| {
            let given = (self.plan.understood(), self.plan.settings().collect());
            report.document_of(given, &self.verdicts, Some(kernel.version))
        })
    }

    /// One sentence for each kernel that lacks a part of the workload.
    pub fn lacks(&self) -> Vec<String> {
        let names: BTreeSet<&str> =
            self.reports.iter().map(|report| report.outcome.kernel.as_str()).collect();
        // A real kernel that is not modelled lacks nothing.
        let modelled = names.into_iter().filter_map(|name| kernel::parse_kernels(name).ok());
        let told = |kernel: Kernel| {
            let missing = change::lacks(self.plan.workload(), kernel)?;
            Some(format!("{}: {missing}, and is left out here.", kernel.version))
        };
        modelled.flatten().filter_map(told).collect()
    }

    /// Paths of numbers that were not measured; with the kernels, where others measured them.
    pub fn not_measured(&self) -> Vec<String> {
        not_measured(&self.reports)
    }

    /// Deviations of the runs from the scenario, each once.
    pub fn notes(&self) -> BTreeSet<&str> {
        self.reports.iter().flat_map(|report| &report.notes).map(String::as_str).collect()
    }
}

impl Suite {
    /// A suite of these plans on these kernels, in this world. Finds the kernels that ratios of
    /// expectations need besides, for the model only. Runs nothing.
    ///
    /// # Errors
    /// An expectation names a kernel that does not exist.
    pub fn new(
        plans: Vec<Plan>,
        asked: Vec<NamedKernel>,
        seeds: RangeInclusive<u64>,
        world: Box<dyn World>,
    ) -> Result<Suite, Error> {
        let kernels = models(&asked);
        let references = |plan: &Plan| {
            // Real kernels run only where they were asked for.
            let none = plan.is_changed() || world.is_real();
            if none { Ok(Vec::new()) } else { expect::references(&plan.workload, &kernels) }
        };
        let references = plans.iter().map(references).collect::<Result<_, Error>>()?;
        Ok(Suite { plans, references, asked, seeds, world })
    }

    /// All runs: for each plan the kernels that were asked for and those for ratios, and for each
    /// of these the seeds.
    pub fn jobs(&self) -> Vec<Job> {
        self.studies().flat_map(|study| study.jobs()).collect()
    }

    /// The study of each plan, on the kernels that were asked for and then on those that its
    /// expectations compare with; with all seeds, and the noise of the plan.
    fn studies(&self) -> impl Iterator<Item = Study> {
        self.plans.iter().zip(&self.references).map(|(plan, references)| {
            let references = references.iter().copied().map(NamedKernel::from);
            let kernels = self.asked.iter().cloned().chain(references);
            let kernels = kernels.map(|kernel| plan.ruled(kernel));
            let study = Study::new(Arc::clone(&plan.workload)).on(kernels);
            study.with_seeds(self.seeds.clone()).with_noise(plan.noise)
        })
    }

    /// Whether the job is on a kernel that was asked for, not only for ratios.
    pub fn is_asked(&self, job: &Job) -> bool {
        self.asked.iter().any(|kernel| kernel.name == job.kernel.name)
    }

    /// Runs the jobs of [`Suite::jobs`], and checks the expectations of each plan. On real kernels
    /// a failed run is listed, and the others go on.
    ///
    /// # Errors
    /// Nothing can be run, the caller asked to stop, or a run of the model fails (then the scenario
    /// is at fault).
    pub fn run(&self, jobs: &[Job], watch: &dyn Watch) -> Result<Vec<Ended<'_>>, Error> {
        let is_real = self.world.is_real();
        let mut ended = Vec::new();
        self.world.run(jobs, watch, &mut |_, report| {
            let is_end = report.is_err() && !is_real;
            let is_end = is_end || matches!(report, Err(Error::Interrupted));
            ended.push(report);
            if is_end { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if (ended.len() < jobs.len() || !is_real) && ended.last().is_some_and(Result::is_err) {
            return Err(ended.pop().and_then(Result::err).unwrap_or(Error::Interrupted));
        }
        let mut ended = jobs.iter().zip(ended);
        let lengths: Vec<usize> = self.studies().map(|study| study.jobs().len()).collect();
        let of_each = self.plans.iter().zip(lengths);
        of_each.map(|(plan, runs)| self.ended(plan, ended.by_ref().take(runs))).collect()
    }

    /// Sorts the results of one plan into reports and failures, and checks its expectations.
    /// Reports of reference kernels count only for ratios.
    fn ended<'a, 'j>(
        &self,
        plan: &'a Plan,
        runs: impl Iterator<Item = (&'j Job, Result<Report, Error>)>,
    ) -> Result<Ended<'a>, Error> {
        let mut told: Vec<(&Job, Report)> = Vec::new();
        let mut failed = Vec::new();
        for (job, report) in runs {
            match report {
                Ok(report) => told.push((job, report)),
                Err(error) => failed.push(Failed { run: job.name(), error }),
            }
        }
        let verdicts = self.verdicts(plan, &told)?;
        let done = told.len();
        let asked = told.into_iter().filter(|(job, _)| self.is_asked(job));
        let (kernels, reports) = asked.map(|(job, report)| (job.kernel.kernel, report)).unzip();
        Ok(Ended { plan, reports, kernels, verdicts, failed, done })
    }

    /// Checks the plan's expectations by these runs; none if it is changed. On real kernels only
    /// those whose numbers were measured, with tolerances. An error where a metric names nothing.
    fn verdicts<'a>(
        &self,
        plan: &'a Plan,
        runs: &[(&Job, Report)],
    ) -> Result<Vec<Verdict<'a>>, Error> {
        let asked = models(&self.asked);
        let reports: Vec<&Report> = runs.iter().map(|(_, report)| report).collect();
        let is_measured = |path: &str| {
            let not = reports.iter().flat_map(|report| &report.not_measured);
            !not.into_iter().any(|name| stands_for(name, path))
        };
        let is_real = self.world.is_real();
        let wanted = |expectation: &Expectation| {
            let can_be = !is_real || expect::can_be_checked(expectation, &asked, is_measured);
            can_be && !plan.is_changed()
        };
        let done = |(job, report): &(&Job, Report)| Done {
            kernel: job.kernel.kernel,
            seed: job.seed,
            outcome: report.outcome.clone(),
        };
        let done: Vec<Done> = runs.iter().map(done).collect();
        let tolerances = tolerances(&plan.workload, &reports);
        expect::check_some(&plan.workload, &asked, &done, wanted, &|outcome, path, value| {
            if is_real { slack(outcome, path, value, tolerances) } else { 0.0 }
        })
    }
}

/// The modelled kernels without their names.
fn models(kernels: &[NamedKernel]) -> Vec<Kernel> {
    kernels.iter().map(|kernel| kernel.kernel).collect()
}

/// Tolerances of a comparison with a real kernel, by the tick of its build, else of the workload.
/// They are smaller where all runs counted time by instructions.
fn tolerances(workload: &Workload, reports: &[&Report]) -> Tolerances {
    let hz = reports.iter().find_map(|report| report.conditions.as_ref()?.hz);
    let tick_ns = 1_000_000_000 / u64::from(hz.unwrap_or(workload.machine.hz).max(1));
    if reports.iter().all(|report| report.exact) {
        Tolerances::exact(tick_ns)
    } else {
        Tolerances::parallel(tick_ns)
    }
}

/// The tolerance of the number at `path`; of ratios and of numbers without a tolerance 3 % of the
/// value.
fn slack(outcome: &Outcome, path: &str, value: f64, tolerances: Tolerances) -> f64 {
    const SHARE: f64 = 0.03;
    let deviations = compare(outcome, outcome, &tolerances);
    let known = deviations.iter().find(|deviation| deviation.path == path);
    let tolerance = known.and_then(|deviation| deviation.tolerance);
    tolerance.map_or(value.abs() * SHARE, |tolerance| tolerance as f64)
}

/// Paths of the numbers that were not measured, sorted; `PATH (on KERNELS)` where other kernels
/// measured them.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, kernels, scenario, world};

    fn suite(plan: Plan) -> Suite {
        let kernels = kernels::modelled("5.4,6.18").unwrap();
        Suite::new(vec![plan], kernels, 1..=1, Box::new(Model::default())).unwrap()
    }

    #[test]
    fn missing_numbers_are_listed_with_their_kernels() {
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

    #[test]
    fn expectations_of_a_changed_scenario_are_not_checked() {
        let plan = Plan::new(scenario::load("nested").unwrap());
        let own = suite(plan.clone());
        let ended = own.run(&own.jobs(), &()).unwrap();
        assert!(ended[0].passed() && ended[0].verdicts.iter().any(Verdict::applies));
        let short = suite(plan.with_duration(1_000_000).unwrap());
        let ended = short.run(&short.jobs(), &()).unwrap();
        assert!(ended[0].plan.is_changed() && ended[0].verdicts.is_empty());
        assert_eq!(ended[0].reports.len(), 2);
        assert_eq!(ended[0].reports[0].outcome.simulated_ns, 1_000_000);
    }

    #[test]
    fn a_limit_that_a_kernel_lacks_is_noted() {
        let plan = Plan::new(scenario::load("fibtest").unwrap());
        let plan = plan.with_limit("/limited:cpu.max.burst=10000").unwrap();
        let plan = plan.with_limit("/limited:500m").unwrap();
        assert_eq!(plan.understood(), ["/limited:500m = 50000 100000"]);
        let suite = suite(plan);
        let ended = suite.run(&suite.jobs(), &()).unwrap();
        let lacks = ended[0].lacks();
        assert!(lacks.len() == 1 && lacks[0].starts_with("5.4: "), "{lacks:?}");
        let [old, new] = &ended[0].reports[..] else { panic!("two kernels") };
        assert_eq!(old.notes, ["cpu.max.burst exists from Linux 5.14 on, and is left out here"]);
        assert!(new.notes.is_empty(), "{:?}", new.notes);
    }
}
