//! Prints the verdict on an expectation.

use crate::page::Page;
use crate::style::{BAD, DIM, GOOD, styled};
use cpumax_study::expect::{Measured, Verdict};
use cpumax_workload::Expectation;
use std::fmt::Write;

/// Indent of the lines below a claim, columns.
const INDENT: usize = 6;

/// Two or three lines: the claim, the measured values, and the reason for the expectation.
pub fn verdict(verdict: &Verdict<'_>, page: Page) -> String {
    let (style, word) = if verdict.passed() { (GOOD, "pass") } else { (BAD, "FAIL") };
    let claim = page.hanging(&claim(verdict.expectation()), INDENT);
    let measured = page.hanging(&values(verdict.measured()).join(", "), INDENT);
    let mut text = format!("{}  {claim}\n{:INDENT$}{measured}\n", styled(style, word), "");
    let why = &verdict.expectation().why;
    if !why.is_empty() {
        let why = styled(DIM, page.hanging(why, INDENT));
        let _ = writeln!(text, "{:INDENT$}{why}", "");
    }
    text
}

/// Measured values on each kernel. Neighbours with equal values are one entry; of many seeds only
/// the extremes and failures are listed.
fn values(measured: &[Measured]) -> Vec<String> {
    let seeds = measured.windows(2).any(|pair| pair[0].seed != pair[1].seed);
    let mut values = if seeds { vec![range(measured)] } else { Vec::new() };
    let told: Vec<&Measured> =
        measured.iter().filter(|measured| !seeds || !measured.passed).collect();
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
    values
}

fn range(measured: &[Measured]) -> String {
    let values = || measured.iter().map(|measured| measured.value);
    let low = values().fold(f64::INFINITY, f64::min);
    let high = values().fold(f64::NEG_INFINITY, f64::max);
    format!("{} to {} in {} runs", number(low), number(high), measured.len())
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

/// Whole numbers in full; others with up to four decimals, small ones in scientific notation.
pub(crate) fn number(value: f64) -> String {
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
    use cpumax_study::{
        Model, Study, World,
        expect::{Done, check},
        kernel::parse_kernels,
        scenario,
    };
    use std::ops::ControlFlow;

    /// A verdict of `nested` with other bounds.
    fn written(kernels: &str, seeds: u64, max: f64) -> String {
        let mut parts = scenario::load("nested").unwrap().into_parts();
        parts.expectations.truncate(1);
        parts.expectations[0] = Expectation {
            kernels: "6.12..".to_owned(),
            metric: "simulated_ns".to_owned(),
            over: None,
            per: None,
            min: Some(1.0),
            max: Some(max),
            why: "because".to_owned(),
        };
        let study = Study::new(cpumax_workload::Workload::try_from(parts.clone()).unwrap());
        let asked = parse_kernels(kernels).unwrap();
        let study = study.on(asked.clone()).with_seeds(1..=seeds);
        let jobs = study.jobs();
        let mut done = Vec::new();
        let run = Model::default().run(&jobs, &(), &mut |at, report| {
            let (kernel, seed) = (jobs[at].kernel.kernel, jobs[at].seed);
            done.push(Done { kernel, seed, outcome: report.unwrap().outcome });
            ControlFlow::Continue(())
        });
        run.unwrap();
        let verdicts = check(&parts, &asked, &done).unwrap();
        let text = verdict(&verdicts[0], Page::of(None));
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn neighbouring_kernels_that_agree_are_told_together() {
        let ns = scenario::load("nested").unwrap().duration_ns;
        let expected = format!(
            "FAIL  simulated_ns from 1 to 2, on 6.12..\n      6.18..7.0: {ns} (!)\n      because\n"
        );
        assert_eq!(written("6.1,6.18,6.19,7.0", 1, 2.0), expected);
        let text = written("6.18", 2, 2.0);
        let each = format!("6.18 seed 1: {ns} (!), 6.18 seed 2: {ns} (!)");
        let told = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains(&format!("{ns} to {ns} in 2 runs, {each}")), "{text}");
        assert!(written("7.3", 1, 1e18).starts_with("pass"));
    }
}
