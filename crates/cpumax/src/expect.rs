//! What a scenario expects of its runs, checked and told.
//!
//! An expectation names the kernels it holds on, a metric, perhaps what it is divided by (another
//! metric of the same run, or the same on another kernel), and the bounds. Docs: docs/scenarios.md.

use crate::output::{self, BAD, DIM, GOOD};
use anyhow::{Context, anyhow};
use cpumax_machine::kernel::{self, Kernel, Version};
use cpumax_outcome::Outcome;
use cpumax_workload::{Expectation, Parts};
use std::io::{self, Write};

/// A run that is over.
#[derive(Debug)]
pub struct Done {
    pub kernel: Kernel,
    pub seed: u64,
    pub outcome: Outcome,
}

/// What came of one expectation.
#[derive(Debug)]
pub struct Verdict<'a> {
    expectation: &'a Expectation,
    measured: Vec<Measured>,
}

#[derive(Debug)]
struct Measured {
    kernel: Version,
    seed: u64,
    value: f64,
    passed: bool,
}

/// The kernels other than those asked for that must run too, because a ratio is taken over them.
pub fn references(workload: &Parts, asked: &[Kernel]) -> anyhow::Result<Vec<Kernel>> {
    let mut more: Vec<Kernel> = Vec::new();
    for (index, expectation) in workload.expectations.iter().enumerate() {
        let context = || place(workload, index);
        let Some(over) = &expectation.over else { continue };
        let over = reference(over).with_context(context)?;
        let mut needed = false;
        for kernel in asked {
            needed |= kernel::covers(&expectation.kernels, kernel).with_context(context)?;
        }
        let known = asked.iter().chain(&more).any(|kernel| kernel.version == over.version);
        if needed && !known {
            more.push(over);
        }
    }
    Ok(more)
}

fn reference(over: &str) -> anyhow::Result<Kernel> {
    match kernel::parse_kernels(over)?.as_slice() {
        [kernel] => Ok(*kernel),
        _ => Err(anyhow!("over = \"{over}\" names several kernels; give one")),
    }
}

fn place(workload: &Parts, index: usize) -> String {
    format!(
        "{}: expectation {} ({})",
        workload.name,
        index + 1,
        workload.expectations[index].metric
    )
}

/// Checks every expectation on the runs of the kernels that were asked for. `runs` holds those of
/// the reference kernels too.
///
/// # Errors
/// When a metric names nothing, or a list of kernels cannot be read.
pub fn check<'a>(
    workload: &'a Parts,
    asked: &[Kernel],
    runs: &[Done],
) -> anyhow::Result<Vec<Verdict<'a>>> {
    check_some(workload, asked, runs, |_| true, &|_, _, _| 0.0)
}

/// How far beyond its bounds a number of a run may be: takes the run, the path of the number (empty
/// when it is divided by another), and the number.
pub type Slack<'a> = &'a dyn Fn(&Outcome, &str, f64) -> f64;

/// As [`check`], of those expectations only that are wanted, and with slack.
pub fn check_some<'a>(
    workload: &'a Parts,
    asked: &[Kernel],
    runs: &[Done],
    wanted: impl Fn(&Expectation) -> bool,
    slack: Slack<'_>,
) -> anyhow::Result<Vec<Verdict<'a>>> {
    let verdict = |(index, expectation): (usize, &'a Expectation)| {
        let context = || place(workload, index);
        let mut measured = Vec::new();
        for run in runs {
            let is_asked = asked.iter().any(|kernel| kernel.version == run.kernel.version);
            if is_asked
                && kernel::covers(&expectation.kernels, &run.kernel).with_context(context)?
            {
                measured.push(measure(expectation, run, runs, slack).with_context(context)?);
            }
        }
        Ok(Verdict { expectation, measured })
    };
    let all = workload.expectations.iter().enumerate();
    all.filter(|(_, expectation)| wanted(expectation)).map(verdict).collect()
}

/// Whether a run can be held to this that does not measure some numbers, where only the kernels
/// asked for can be run: each of its numbers is measured, and what it is divided by is there.
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

fn measure(
    expectation: &Expectation,
    run: &Done,
    runs: &[Done],
    slack: Slack<'_>,
) -> anyhow::Result<Measured> {
    let mut value = rate(expectation, &run.outcome)?;
    if let Some(over) = &expectation.over {
        let version = reference(over)?.version;
        let base =
            runs.iter().find(|other| other.kernel.version == version && other.seed == run.seed);
        let base = base.ok_or_else(|| anyhow!("there is no run on {version} to compare with"))?;
        value /= rate(expectation, &base.outcome)?;
    }
    let is_divided = expectation.per.is_some() || expectation.over.is_some();
    let path = if is_divided { "" } else { expectation.metric.as_str() };
    let slack = slack(&run.outcome, path, value);
    // What is not a number lies within no bounds.
    let passed = !value.is_nan()
        && expectation.min.is_none_or(|min| value >= min - slack)
        && expectation.max.is_none_or(|max| value <= max + slack);
    Ok(Measured { kernel: run.kernel.version, seed: run.seed, value, passed })
}

fn rate(expectation: &Expectation, outcome: &Outcome) -> anyhow::Result<f64> {
    let value = outcome.metric(&expectation.metric)?;
    Ok(match &expectation.per {
        Some(per) => value / outcome.metric(per)?,
        None => value,
    })
}

/// Columns before what is told of a claim.
const INDENT: usize = 6;

impl Verdict<'_> {
    /// Whether every run shows what it must. Holds also when there is no run to look at.
    pub fn passed(&self) -> bool {
        self.measured.iter().all(|measured| measured.passed)
    }

    /// Whether there was any run to look at.
    pub fn applies(&self) -> bool {
        !self.measured.is_empty()
    }

    /// Two or three lines: the claim, what was measured, and why it must be so.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let (style, word) = if self.passed() { (GOOD, "pass") } else { (BAD, "FAIL") };
        let claim = output::hanging(&claim(self.expectation), INDENT);
        writeln!(out, "{}  {claim}", output::styled(style, word))?;
        let seeds = self.measured.windows(2).any(|pair| pair[0].seed != pair[1].seed);
        let mut values = if seeds { vec![self.range()] } else { Vec::new() };
        let told = self.measured.iter().filter(|measured| !seeds || !measured.passed);
        let told: Vec<&Measured> = told.collect();
        // Neighbouring kernels that agree are told together.
        for alike in told.chunk_by(|a, b| !seeds && a.value.total_cmp(&b.value).is_eq()) {
            let (first, last) = (alike[0], alike[alike.len() - 1]);
            let kernels = if alike.len() == 1 {
                first.kernel.to_string()
            } else {
                format!("{}..{}", first.kernel, last.kernel)
            };
            let seed = if seeds { format!(" seed {}", first.seed) } else { String::new() };
            let mark = if first.passed { "" } else { " (!)" };
            values.push(format!("{kernels}{seed}: {}{mark}", number(first.value)));
        }
        writeln!(out, "{:INDENT$}{}", "", output::hanging(&values.join(", "), INDENT))?;
        if !self.expectation.why.is_empty() {
            let why = output::hanging(&self.expectation.why, INDENT);
            writeln!(out, "{:INDENT$}{}", "", output::styled(DIM, &why))?;
        }
        Ok(())
    }

    /// Of many seeds only the extremes, and those that failed, are told.
    fn range(&self) -> String {
        let values = || self.measured.iter().map(|measured| measured.value);
        let low = values().fold(f64::INFINITY, f64::min);
        let high = values().fold(f64::NEG_INFINITY, f64::max);
        format!("{} to {} in {} runs", number(low), number(high), self.measured.len())
    }
}

fn claim(expectation: &Expectation) -> String {
    let Expectation { kernels, metric, over, per, min, max, .. } = expectation;
    let per = per.as_ref().map(|per| format!(" per {per}")).unwrap_or_default();
    let over = over.as_ref().map(|over| format!(" over {over}")).unwrap_or_default();
    let bounds = match (min, max) {
        (Some(min), Some(max)) if min.total_cmp(max).is_eq() => format!("is {}", number(*min)),
        (Some(min), Some(max)) => format!("from {} to {}", number(*min), number(*max)),
        (Some(min), None) => format!("at least {}", number(*min)),
        (None, Some(max)) => format!("at most {}", number(*max)),
        (None, None) => "exists".to_owned(),
    };
    let on = if kernels.is_empty() { String::new() } else { format!(", on {kernels}") };
    format!("{metric}{per}{over} {bounds}{on}")
}

/// Whole numbers in full, others with up to four digits after the point or as many as a small one
/// needs.
fn number(value: f64) -> String {
    if value.fract() == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    if value.abs() < 0.001 {
        return format!("{value:.3e}");
    }
    format!("{value:.4}").trim_end_matches('0').to_owned()
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

    fn written(verdict: &Verdict<'_>) -> String {
        let mut text = Vec::new();
        verdict.write(&mut text).unwrap();
        anstream::adapter::strip_str(std::str::from_utf8(&text).unwrap()).to_string()
    }

    #[test]
    fn bounds_are_checked_on_the_kernels_named() {
        let workload = workload(vec![expectation("6.18..7.1", None, Some(10.0), Some(20.0))]);
        let asked = [kernel("6.12"), kernel("6.18"), kernel("6.19"), kernel("7.0")];
        let runs =
            [done("6.12", 1, 99), done("6.18", 1, 10), done("6.19", 1, 10), done("7.0", 1, 21)];
        let verdicts = check(&workload, &asked, &runs).unwrap();
        assert!(!verdicts[0].passed());
        let expected = "\
FAIL  groups./g.usage_usec from 10 to 20, on 6.18..7.1
      6.18..6.19: 10, 7.0: 21 (!)
      because
";
        assert_eq!(written(&verdicts[0]), expected);
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
        assert_eq!(
            written(&verdicts[0]),
            "FAIL  groups./g.usage_usec over 4.19 at least 20\n      12.5 to 25 in 2 runs, 5.4 seed 2: 12.5 (!)\n      because\n"
        );
    }

    #[test]
    fn no_other_kernel_runs_for_an_expectation_that_does_not_apply() {
        let workload = workload(vec![expectation("7.2", Some("4.19"), None, None)]);
        assert!(references(&workload, &[kernel("5.4")]).unwrap().is_empty());
        assert_eq!(references(&workload, &[kernel("7.2"), kernel("4.19")]).unwrap().len(), 0);
    }

    #[test]
    fn what_was_not_measured_is_not_checked() {
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
    fn nothing_divided_by_nothing_fails() {
        let workload = workload(vec![expectation("", Some("4.19"), None, None)]);
        let runs = [done("5.4", 1, 0), done("4.19", 1, 0)];
        assert!(!check(&workload, &[kernel("5.4")], &runs).unwrap()[0].passed());
    }

    #[test]
    fn what_names_nothing_is_told_with_its_place() {
        let mut bad_metric = expectation("", None, None, None);
        bad_metric.metric = "groups./h.usage_usec".to_owned();
        let workload_bad_metric = workload(vec![bad_metric]);
        let error =
            check(&workload_bad_metric, &[kernel("5.4")], &[done("5.4", 1, 1)]).unwrap_err();
        assert!(
            format!("{error:#}").starts_with("s: expectation 1 (groups./h.usage_usec): metric"),
            "{error:#}"
        );
        let bad_kernel = workload(vec![expectation("soon", None, None, None)]);
        let error = check(&bad_kernel, &[kernel("5.4")], &[done("5.4", 1, 1)]).unwrap_err();
        assert!(format!("{error:#}").contains("kernel 'soon'"), "{error:#}");
        let several = workload(vec![expectation("", Some("5.4,6.1"), None, None)]);
        let error = references(&several, &[kernel("7.3")]).unwrap_err();
        assert!(format!("{error:#}").contains("names several kernels"), "{error:#}");
    }
}
