//! Numbers of runs in a table: a row for each number and each varied value, a column for each
//! kernel. Runs that differ only in seed or noise are one cell with their mean.

use crate::escape;
use crate::page::Page;
use crate::run::histograms;
use crate::style::{BOLD, DIM, styled};
use crate::table::{new_table, text};
use crate::units::duration;
use crate::verdict::number;
use cpumax_study::{
    expect::Verdict,
    kernel::Version,
    suite::{Ended, NOISE},
};
use cpumax_workload::Expectation;
use std::fmt::Write;

/// The selected numbers of each scenario.
pub fn numbers_table(ended: &[Ended<'_>], page: Page, with_histogram: bool) -> String {
    let mut out = String::new();
    let name = |one: &Ended<'_>| one.plan.workload().name.clone();
    for of_one in ended.chunk_by(|a, b| name(a) == name(b)) {
        let name = name(&of_one[0]);
        let _ = writeln!(out, "{}\n\n{}", styled(BOLD, escape::line(&name)), table(of_one, page));
        if with_histogram {
            out.extend(of_one.iter().map(histograms));
        }
    }
    let measured = ended.iter().flat_map(|one| &one.verdicts).map(Verdict::measured);
    let most = measured.map(<[_]>::len).max().unwrap_or(0);
    if ended.iter().any(is_noisy) || most > kernels(ended).len() {
        let note = "Of several seeds and noises: the mean, with the interval that has the mean of \
                    many in 95 of 100 cases, and the least and the most.";
        let _ = writeln!(out, "{}", styled(DIM, page.wrapped(note)));
    }
    out
}

fn is_noisy(one: &Ended<'_>) -> bool {
    one.plan.settings().any(|(name, _)| name == NOISE)
}

/// The varied settings, without noise.
fn settings<'a>(one: &Ended<'a>) -> Vec<(&'a str, &'a str)> {
    one.plan.settings().filter(|(name, _)| *name != NOISE).collect()
}

/// Kernels of the runs, in their order.
fn kernels(ended: &[Ended<'_>]) -> Vec<Version> {
    let mut kernels: Vec<Version> = Vec::new();
    for kernel in ended.iter().flat_map(|one| &one.kernels) {
        if !kernels.contains(&kernel.version) {
            kernels.push(kernel.version);
        }
    }
    kernels
}

fn table(ended: &[Ended<'_>], page: Page) -> String {
    let kernels = kernels(ended);
    let mut header = vec!["number".to_owned()];
    header.extend(settings(&ended[0]).iter().map(|(name, _)| escape::line(name).into_owned()));
    let labels = header.len();
    header.extend(kernels.iter().map(Version::to_string));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = new_table(&header, labels, 0, page.width());
    let mut points: Vec<Vec<(&str, &str)>> = Vec::new();
    for one in ended {
        if !points.contains(&settings(one)) {
            points.push(settings(one));
        }
    }
    for expectation in &ended[0].plan.workload().expectations {
        for (index, point) in points.iter().enumerate() {
            let name = if index == 0 { title(expectation) } else { String::new() };
            let values = point.iter().map(|(_, value)| escape::line(value).into_owned());
            let of_point: Vec<&Ended<'_>> =
                ended.iter().filter(|one| settings(one) == *point).collect();
            let cells =
                kernels.iter().map(|kernel| number_on_kernel(&of_point, expectation, *kernel));
            table.add_row([name].into_iter().chain(values).chain(cells));
        }
    }
    text(&table)
}

fn title(expectation: &Expectation) -> String {
    let Expectation { metric, per, over, .. } = expectation;
    let per = per.as_ref().map(|per| format!(" per {per}")).unwrap_or_default();
    let over = over.as_ref().map(|over| format!(" over {over}")).unwrap_or_default();
    escape::line(&format!("{metric}{per}{over}")).into_owned()
}

/// A number on that kernel, from runs that differ only in seed or noise; a dash if none has it.
pub fn number_on_kernel(
    ended: &[&Ended<'_>],
    expectation: &Expectation,
    kernel: Version,
) -> String {
    let verdicts = ended.iter().flat_map(|one| &one.verdicts);
    let of_it = verdicts.filter(|verdict| verdict.expectation() == expectation);
    let measured = of_it.flat_map(Verdict::measured);
    let values: Vec<f64> = measured
        .filter(|one| one.kernel == kernel && one.value.is_finite())
        .map(|one| one.value)
        .collect();
    let show = |value: f64| shown(expectation, value);
    match values[..] {
        [] => "-".to_owned(),
        [value] => show(value),
        _ => {
            let (mean, half) = mean(&values);
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            format!("{} ±{} ({}..{})", show(mean), show(half), show(least), show(most))
        }
    }
}

/// Times with their unit, other numbers as they are.
fn shown(expectation: &Expectation, value: f64) -> String {
    let divided = expectation.per.is_some() || expectation.over.is_some();
    let path = expectation.metric.as_str();
    let ns = if path.ends_with("_usec") {
        1000.0
    } else if path.ends_with("_ns") || path.contains("_ns.") {
        1.0
    } else {
        return number(value);
    };
    if divided { number(value) } else { duration((value * ns).round() as u64) }
}

/// The mean of two or more values, and half its 95 % confidence interval (Student's t).
fn mean(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = (squares / (count - 1.0)).sqrt();
    (mean, quantile(values.len() - 1) * deviation / count.sqrt())
}

/// The 97.5th percentile of Student's t for this many degrees of freedom, from 1; 2.0 above 30.
fn quantile(freedom: usize) -> f64 {
    const FIRST: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    FIRST.get(freedom.saturating_sub(1)).copied().unwrap_or(2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpumax_study::{
        Model, kernels, scenario,
        suite::{Plan, Suite},
        vary::{grid, number, vary},
    };

    fn told(varies: &[&str], numbers: &[&str]) -> String {
        let numbers: Vec<_> = numbers.iter().map(|text| number(text).unwrap()).collect();
        let plan = Plan::new(scenario::load("fibtest-8").unwrap()).with_duration(1_000_000_000);
        let varied: Vec<_> = varies.iter().map(|text| vary(text).unwrap()).collect();
        let plans = grid(plan.unwrap().showing(&numbers).unwrap(), &varied).unwrap();
        let kernels = kernels::modelled("4.19,5.4").unwrap();
        let suite = Suite::new(plans, kernels, 1..=1, Box::new(Model::default())).unwrap();
        let ended = suite.run(&suite.jobs(), &()).unwrap();
        anstream::adapter::strip_str(&super::numbers_table(&ended, Page::of(None), false))
            .to_string()
    }

    #[test]
    fn each_number_has_a_row_for_each_setting_and_a_column_for_each_kernel() {
        let numbers = ["groups./limited.nr_periods", "groups./limited.usage_usec over 4.19"];
        let text = told(&["timer_phase=98ms,99ms"], &numbers);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "fibtest-8");
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(lines[2]), ["number", "timer_phase", "4.19", "5.4"]);
        assert_eq!(words(lines[4]), ["groups./limited.nr_periods", "98ms", "10", "10"]);
        assert_eq!(words(lines[5]), ["99ms", "10", "10"]);
        assert!(lines[6].starts_with("groups./limited.usage_usec over 4.19  98ms"), "{text}");
        assert_eq!(words(lines[6])[4], "1", "{text}");
        assert!(!text.contains('±'), "{text}");
    }

    #[test]
    fn what_only_chance_makes_different_is_told_by_its_mean() {
        let text = told(&["noise=1..3"], &["groups./limited.usage_usec"]);
        let row = text.lines().find(|line| line.starts_with("groups.")).unwrap();
        assert!(row.matches('±').count() == 2 && row.contains("ms ("), "{text}");
        assert!(text.contains("95 of 100"), "{text}");
        let (mean, half) = mean(&[1.0, 2.0, 3.0]);
        assert!((mean - 2.0).abs() < 1e-12 && (half - 4.303 / 3f64.sqrt()).abs() < 1e-9);
        assert!((quantile(1000) - 2.0).abs() < 0.04);
    }
}
