//! Checks the expectations of a scenario on its runs.
//!
//! An expectation has the kernels on which it holds, a metric, perhaps a divisor (another metric of
//! the same run, or the same metric on another kernel), and bounds; see
//! docs/reference/scenarios.md.

use crate::error::Error;
use cpumax_machine::kernel::{self, Kernel, Version};
use cpumax_outcome::{MetricError, Outcome};
use cpumax_workload::{Expectation, Parts};
use std::fmt::Display;

/// A completed run.
#[derive(Debug)]
pub struct Done {
    /// Its kernel.
    pub kernel: Kernel,
    /// Its seed.
    pub seed: u64,
    /// Its outcome.
    pub outcome: Outcome,
}

/// The result of one expectation.
///
/// ```
/// use cpumax_study::expect::{Done, check};
/// use cpumax_study::{Model, Study, kernel, scenario, world};
///
/// let study = Study::new(scenario::load("lock-holder")?).on(kernel::parse_kernels("6.18")?);
/// let jobs = study.jobs();
/// let reports = world::all(&Model::default(), &jobs, &())?;
/// let done = jobs.iter().zip(reports).map(|(job, report)| Done {
///     kernel: job.kernel.kernel,
///     seed: job.seed,
///     outcome: report.outcome,
/// });
/// let done: Vec<Done> = done.collect();
/// let verdicts = check(study.workload(), &[done[0].kernel], &done)?;
/// assert!(verdicts.iter().any(|verdict| verdict.applies()));
/// assert!(verdicts.iter().all(|verdict| verdict.passed()));
/// # Ok::<(), cpumax_study::Error>(())
/// ```
#[derive(Debug)]
pub struct Verdict<'a> {
    expectation: &'a Expectation,
    measured: Vec<Measured>,
}

/// The measured number of one run.
#[derive(Debug)]
pub struct Measured {
    /// Its kernel.
    pub kernel: Version,
    /// Its seed.
    pub seed: u64,
    /// The number.
    pub value: f64,
    /// Whether it lies within the bounds.
    pub passed: bool,
}

/// Kernels that were not asked for but must run, because an expectation that holds on an asked
/// kernel divides by their number (`over`).
///
/// # Errors
/// A list of kernels cannot be read.
pub fn references(workload: &Parts, asked: &[Kernel]) -> Result<Vec<Kernel>, Error> {
    let mut more: Vec<Kernel> = Vec::new();
    for (index, expectation) in workload.expectations.iter().enumerate() {
        let Some(over) = &expectation.over else { continue };
        let over = reference(over).map_err(|error| wrong(workload, index, &error))?;
        let mut needed = false;
        for kernel in asked {
            let covers = kernel::covers(&expectation.kernels, kernel);
            needed |= covers.map_err(|error| wrong(workload, index, &error))?;
        }
        let known = asked.iter().chain(&more).any(|kernel| kernel.version == over.version);
        if needed && !known {
            more.push(over);
        }
    }
    Ok(more)
}

/// The one kernel that `over` of an expectation names; an error if it names several or none.
fn reference(over: &str) -> Result<Kernel, String> {
    match kernel::parse_kernels(over).map_err(|error| error.to_string())?.as_slice() {
        [kernel] => Ok(*kernel),
        _ => Err(format!("over = \"{over}\" names several kernels: give one")),
    }
}

/// The error of one expectation, with its place.
fn wrong(workload: &Parts, index: usize, what: &dyn Display) -> Error {
    let metric = &workload.expectations[index].metric;
    let place = format!("{}: expectation {} ({metric})", workload.name, index + 1);
    Error::Expectation { place, what: what.to_string() }
}

/// Checks every expectation on the runs of the kernels that were asked for and that it covers.
/// `runs` also holds those of the reference kernels. A missed bound is no error: the [`Verdict`]
/// tells it.
///
/// # Errors
/// A metric names nothing, or a list of kernels cannot be read.
pub fn check<'a>(
    workload: &'a Parts,
    asked: &[Kernel],
    runs: &[Done],
) -> Result<Vec<Verdict<'a>>, Error> {
    check_some(workload, asked, runs, |_| true, &|_, _, _| 0.0)
}

/// Tolerance beyond the bounds of a number. Takes the outcome, the path of the number (empty for a
/// ratio), and the number.
pub type Slack<'a> = &'a dyn Fn(&Outcome, &str, f64) -> f64;

/// Checks those expectations that are `wanted`, as [`check`] does, with tolerances beyond their
/// bounds.
///
/// # Errors
/// A metric names nothing, a list of kernels cannot be read, or a run to divide by is missing.
pub fn check_some<'a>(
    workload: &'a Parts,
    asked: &[Kernel],
    runs: &[Done],
    wanted: impl Fn(&Expectation) -> bool,
    slack: Slack<'_>,
) -> Result<Vec<Verdict<'a>>, Error> {
    let verdict = |(index, expectation): (usize, &'a Expectation)| {
        let mut measured = Vec::new();
        for run in runs {
            let is_asked = asked.iter().any(|kernel| kernel.version == run.kernel.version);
            let covers = kernel::covers(&expectation.kernels, &run.kernel);
            if is_asked && covers.map_err(|error| wrong(workload, index, &error))? {
                let number = measure(expectation, run, runs, slack);
                measured.push(number.map_err(|error| wrong(workload, index, &error))?);
            }
        }
        Ok(Verdict { expectation, measured })
    };
    let all = workload.expectations.iter().enumerate();
    all.filter(|(_, expectation)| wanted(expectation)).map(verdict).collect()
}

/// Whether the expectation's numbers are all measured, as `is_measured` tells by their paths, and
/// the kernel of its divisor (`over`) is among those asked for.
pub fn can_be_checked(
    expectation: &Expectation,
    asked: &[Kernel],
    is_measured: impl Fn(&str) -> bool,
) -> bool {
    let numbers = std::iter::once(&expectation.metric).chain(&expectation.per);
    let over = expectation.over.as_deref().map(reference);
    numbers.into_iter().all(|path| is_measured(path))
        && over.is_none_or(|over| {
            over.is_ok_and(|over| asked.iter().any(|kernel| kernel.version == over.version))
        })
}

/// The number of a run, divided by that of `over` with the same seed, and whether it lies within
/// the bounds and their slack. An error for an unknown metric or a missing run of `over`.
fn measure(
    expectation: &Expectation,
    run: &Done,
    runs: &[Done],
    slack: Slack<'_>,
) -> Result<Measured, String> {
    let rate = |run: &Done| rate(expectation, &run.outcome).map_err(|error| error.to_string());
    let mut value = rate(run)?;
    if let Some(over) = &expectation.over {
        let version = reference(over)?.version;
        let base =
            runs.iter().find(|other| other.kernel.version == version && other.seed == run.seed);
        let base = base.ok_or_else(|| format!("there is no run on {version} to compare with"))?;
        value /= rate(base)?;
    }
    let is_divided = expectation.per.is_some() || expectation.over.is_some();
    let path = if is_divided { "" } else { expectation.metric.as_str() };
    let slack = slack(&run.outcome, path, value);
    // NaN lies within no bounds.
    let passed = !value.is_nan()
        && expectation.min.is_none_or(|min| value >= min - slack)
        && expectation.max.is_none_or(|max| value <= max + slack);
    Ok(Measured { kernel: run.kernel.version, seed: run.seed, value, passed })
}

/// The metric of an outcome, divided by `per` where that is given; an error where one of them names
/// nothing.
fn rate(expectation: &Expectation, outcome: &Outcome) -> Result<f64, MetricError> {
    let value = outcome.metric(&expectation.metric)?;
    Ok(match &expectation.per {
        Some(per) => value / outcome.metric(per)?,
        None => value,
    })
}

impl Verdict<'_> {
    /// The expectation.
    pub fn expectation(&self) -> &Expectation {
        self.expectation
    }

    /// The number of each run.
    pub fn measured(&self) -> &[Measured] {
        &self.measured
    }

    /// Whether the number of every run lies within the bounds; true without any run.
    pub fn passed(&self) -> bool {
        self.measured.iter().all(|measured| measured.passed)
    }

    /// Whether the expectation was checked on any run.
    pub fn applies(&self) -> bool {
        !self.measured.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpumax_outcome::{GroupOutcome, ReleaseOutcome};
    use std::collections::BTreeMap;

    fn kernel(text: &str) -> Kernel {
        kernel::parse_kernels(text).unwrap()[0]
    }

    fn done(version: &str, seed: u64, usage_usec: u64) -> Done {
        let kernel = kernel(version);
        let group = GroupOutcome { usage_usec, ..GroupOutcome::default() };
        let outcome = Outcome {
            scenario: "s".to_owned(),
            world: "model".to_owned(),
            kernel: kernel.version.to_string(),
            generation: kernel.generation.to_string(),
            seed,
            simulated_ns: 1000,
            groups: BTreeMap::from([("/g".to_owned(), group)]),
            tasks: BTreeMap::new(),
            release: ReleaseOutcome::default(),
            events: 0,
        };
        Done { kernel, seed, outcome }
    }

    fn expectation(
        kernels: &str,
        over: Option<&str>,
        min: Option<f64>,
        max: Option<f64>,
    ) -> Expectation {
        Expectation {
            kernels: kernels.to_owned(),
            metric: "groups./g.usage_usec".to_owned(),
            over: over.map(str::to_owned),
            per: None,
            min,
            max,
            why: "because".to_owned(),
        }
    }

    fn workload(expectations: Vec<Expectation>) -> Parts {
        Parts { expectations, ..Parts::empty("s", "", 1000) }
    }

    fn values(verdict: &Verdict<'_>) -> Vec<(String, u64, f64, bool)> {
        let of = |m: &Measured| (m.kernel.to_string(), m.seed, m.value, m.passed);
        verdict.measured().iter().map(of).collect()
    }

    #[test]
    fn bounds_are_checked_on_the_kernels_named() {
        let workload = workload(vec![expectation("6.18..7.1", None, Some(10.0), Some(20.0))]);
        let asked = [kernel("6.12"), kernel("6.18"), kernel("6.19"), kernel("7.0")];
        let runs =
            [done("6.12", 1, 99), done("6.18", 1, 10), done("6.19", 1, 10), done("7.0", 1, 21)];
        let verdicts = check(&workload, &asked, &runs).unwrap();
        assert!(!verdicts[0].passed());
        let of = |kernel: &str, value, passed| (kernel.to_owned(), 1, value, passed);
        let expected = [of("6.18", 10.0, true), of("6.19", 10.0, true), of("7.0", 21.0, false)];
        assert_eq!(values(&verdicts[0]), expected);
        let verdicts = check(&workload, &asked[..2], &runs[..2]).unwrap();
        assert!(verdicts[0].passed() && verdicts[0].applies());
        let verdicts = check(&workload, &asked[..1], &runs[..1]).unwrap();
        assert!(verdicts[0].passed() && !verdicts[0].applies());
    }

    #[test]
    fn a_ratio_is_taken_over_a_run_with_the_same_seed_that_is_not_judged_itself() {
        let workload = workload(vec![expectation("", Some("4.19"), Some(20.0), None)]);
        let asked = [kernel("5.4")];
        let more: Vec<Version> =
            references(&workload, &asked).unwrap().iter().map(|kernel| kernel.version).collect();
        assert_eq!(more, [kernel("4.19").version]);
        let runs =
            [done("5.4", 1, 100), done("4.19", 1, 4), done("5.4", 2, 100), done("4.19", 2, 8)];
        let verdicts = check(&workload, &asked, &runs).unwrap();
        let of = |seed, value, passed| ("5.4".to_owned(), seed, value, passed);
        assert_eq!(values(&verdicts[0]), [of(1, 25.0, true), of(2, 12.5, false)]);
    }

    #[test]
    fn no_other_kernel_runs_for_an_expectation_that_does_not_apply() {
        let workload = workload(vec![expectation("7.2", Some("4.19"), None, None)]);
        assert!(references(&workload, &[kernel("5.4")]).unwrap().is_empty());
        assert_eq!(references(&workload, &[kernel("7.2"), kernel("4.19")]).unwrap().len(), 0);
    }

    #[test]
    fn numbers_that_were_not_measured_are_not_checked() {
        let asked = [kernel("6.12"), kernel("6.18")];
        let all = |_: &str| true;
        assert!(can_be_checked(&expectation("", None, None, None), &asked, all));
        assert!(!can_be_checked(&expectation("", None, None, None), &asked, |_| false));
        assert!(can_be_checked(&expectation("", Some("6.12"), None, None), &asked, all));
        assert!(!can_be_checked(&expectation("", Some("4.19"), None, None), &asked, all));
        let workload = workload(vec![expectation("", None, Some(1.0), None)]);
        let runs = [done("6.12", 1, 0)];
        let verdicts = check_some(&workload, &asked, &runs, |_| false, &|_, _, _| 0.0).unwrap();
        assert!(verdicts.is_empty());
        let slack: Slack<'_> = &|_, path, _| if path == "groups./g.usage_usec" { 1.0 } else { 0.0 };
        let verdicts = check_some(&workload, &asked, &runs, |_| true, slack).unwrap();
        assert!(verdicts[0].passed());
        assert!(!check(&workload, &asked, &runs).unwrap()[0].passed());
    }

    #[test]
    fn zero_divided_by_zero_fails() {
        let workload = workload(vec![expectation("", Some("4.19"), None, None)]);
        let runs = [done("5.4", 1, 0), done("4.19", 1, 0)];
        assert!(!check(&workload, &[kernel("5.4")], &runs).unwrap()[0].passed());
    }

    #[test]
    fn errors_name_the_expectation() {
        let mut bad_metric = expectation("", None, None, None);
        bad_metric.metric = "groups./h.usage_usec".to_owned();
        let workload_bad_metric = workload(vec![bad_metric]);
        let error =
            check(&workload_bad_metric, &[kernel("5.4")], &[done("5.4", 1, 1)]).unwrap_err();
        assert!(
            error.to_string().starts_with("s: expectation 1 (groups./h.usage_usec): metric"),
            "{error}"
        );
        let bad_kernel = workload(vec![expectation("soon", None, None, None)]);
        let error = check(&bad_kernel, &[kernel("5.4")], &[done("5.4", 1, 1)]).unwrap_err();
        assert!(error.to_string().contains("kernel 'soon'"), "{error}");
        let several = workload(vec![expectation("", Some("5.4,6.1"), None, None)]);
        let error = references(&several, &[kernel("7.3")]).unwrap_err();
        assert!(error.to_string().contains("names several kernels"), "{error}");
    }
}
