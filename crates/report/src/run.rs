//! Prints runs of scenarios: tables, and whether each expectation holds.

use crate::escape;
use crate::histogram::histogram;
use crate::page::Page;
use crate::style::{BAD, BOLD, DIM, GOOD, styled};
use crate::table::{Quota, groups, tasks};
use crate::verdict::verdict;
use cpumax_outcome::Outcome;
use cpumax_study::{expect::Verdict, suite::Ended};
use cpumax_workload::{Action, GroupIx, GroupSpec, Workload};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// All scenarios: tables of each, the number of expectations that hold if there are several, and
/// the exact kernels.
pub fn runs_text(ended: &[Ended<'_>], page: Page, with_histogram: bool) -> String {
    let mut out = String::new();
    for one in ended.iter().filter(|one| !one.reports.is_empty()) {
        out.push_str(&scenario(one, page, with_histogram));
    }
    if ended.len() > 1 {
        out.push_str(&summary(ended));
    }
    let reports = ended.iter().flat_map(|one| &one.reports);
    let releases: BTreeSet<String> = reports
        .filter_map(|report| {
            Some(format!("{} is {}", report.outcome.kernel, report.kernel_release.as_deref()?))
        })
        .collect();
    if !releases.is_empty() {
        let list: Vec<String> = releases.into_iter().collect();
        let list = page.wrapped(&format!("Kernels: {}", list.join(", ")));
        let _ = writeln!(out, "{}", styled(DIM, list));
    }
    out
}

/// Only the expectations that fail.
pub fn failed_expectations(ended: &[Ended<'_>], page: Page) -> String {
    let mut out = String::new();
    for one in ended {
        for failed in one.verdicts.iter().filter(|verdict| !verdict.passed()) {
            let name = escape::line(&one.plan.workload().name);
            let _ = write!(out, "{name}: {}", verdict(failed, page));
        }
    }
    out
}

fn scenario(ended: &Ended<'_>, page: Page, with_histogram: bool) -> String {
    let workload = ended.plan.workload();
    let outcomes: Vec<Outcome> = ended.reports.iter().map(|r| r.outcome.clone()).collect();
    let mut out = heading(ended, page);
    if !ended.plan.understood().is_empty() {
        let _ = writeln!(out, "{}\n", ended.plan.understood().join("\n"));
    }
    let tables = groups(&outcomes, &quotas(workload), page.width());
    for table in tables.into_iter().chain(tasks(&outcomes, page.width())) {
        let _ = writeln!(out, "{table}");
    }
    for missing in ended.lacks() {
        let _ = writeln!(out, "{missing}");
    }
    if with_histogram {
        out.push_str(&histograms(ended));
    }
    if outcomes.iter().any(|run| run.world != "model") {
        out.push_str(&doubts(ended, page));
    }
    out + &verdicts(ended, page)
}

/// Name, varied settings, and purpose of a scenario.
fn heading(ended: &Ended<'_>, page: Page) -> String {
    let workload = ended.plan.workload();
    let (name, with) = (escape::line(&workload.name), with_settings(ended));
    let shows = page.wrapped(&format!("{name}{with}: {}", workload.shows));
    let rest = shows.strip_prefix(&*name).unwrap_or_default();
    format!("{}{rest}\n\n", styled(BOLD, &name))
}

fn with_settings(ended: &Ended<'_>) -> String {
    let mut with = String::new();
    for (name, value) in ended.plan.settings() {
        let _ = write!(with, ", {name}={}", escape::line(value));
    }
    with
}

/// Histograms of calls that release tasks, for each run.
pub(crate) fn histograms(ended: &Ended<'_>) -> String {
    let with = with_settings(ended);
    ended.reports.iter().map(|report| releases(&report.outcome, &with)).collect()
}

/// Histograms of calls that release tasks in one run.
fn releases(run: &Outcome, with: &str) -> String {
    let Outcome { kernel, generation, release, .. } = run;
    let functions = [
        ("distribute_cfs_runtime()", &release.distribute),
        ("__cfsb_csd_unthrottle()", &release.handler),
    ];
    let mut out = String::new();
    for (name, calls) in functions.iter().filter(|(_, calls)| calls.calls > 0) {
        let _ = writeln!(out, "{name}, ns, {kernel} {generation}{with}:\n{}", histogram(calls));
    }
    if out.is_empty() {
        let _ = writeln!(out, "No call released anything, {kernel} {generation}{with}.\n");
    }
    out
}

/// Numbers that were not measured, and deviations of the run from the scenario.
fn doubts(ended: &Ended<'_>, page: Page) -> String {
    let mut out = String::new();
    let not_measured = ended.not_measured();
    if !not_measured.is_empty() {
        let list = format!("Not measured: {}", not_measured.join(", "));
        let _ = writeln!(out, "{}", styled(DIM, page.wrapped(&list)));
    }
    for note in ended.notes() {
        let _ = writeln!(out, "{}", styled(DIM, page.wrapped(note)));
    }
    out + "\n"
}

fn verdicts(ended: &Ended<'_>, page: Page) -> String {
    let applying = ended.verdicts.iter().filter(|verdict| verdict.applies());
    let mut out: String = applying.map(|one| verdict(one, page)).collect();
    let changed = ended.plan.is_changed();
    if changed && !ended.plan.workload().expectations.is_empty() {
        let note = "What the scenario expects is not checked: --set, --vary or --for changed it.";
        let _ = writeln!(out, "{}", styled(DIM, note));
    }
    if changed || !out.is_empty() {
        out.push('\n');
    }
    out
}

fn summary(ended: &[Ended<'_>]) -> String {
    let all = || ended.iter().flat_map(|one| &one.verdicts);
    let checked = all().filter(|verdict| verdict.applies()).count();
    let failed = |verdicts: &[Verdict<'_>]| verdicts.iter().filter(|v| !v.passed()).count();
    let all_failed: usize = ended.iter().map(|one| failed(&one.verdicts)).sum();
    let (style, count) = match all_failed {
        0 => (GOOD, "all hold".to_owned()),
        failed => (BAD, format!("{failed} do not hold")),
    };
    let (count, scenarios) = (styled(style, count), ended.len());
    let mut out = format!("{scenarios} scenarios, {checked} expectations: {count}\n");
    for one in ended {
        let failed = failed(&one.verdicts);
        if failed > 0 {
            let _ = writeln!(out, "  {}: {failed}", escape::line(&one.plan.workload().name));
        }
    }
    out
}

/// Groups that have a limit at some time; `None` for a quota that changes during the run.
fn quotas(workload: &Workload) -> BTreeMap<String, Option<Quota>> {
    let rewritten = |index: usize| {
        workload.interventions.iter().any(|intervention| {
            let group = index as GroupIx;
            matches!(intervention.action, Action::WriteLimit { group: of, .. } if of == group)
        })
    };
    let quota = |(index, group): (usize, &GroupSpec)| {
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
    use cpumax_study::{
        Model, kernels, scenario,
        suite::{Plan, Suite},
    };

    fn told(plans: Vec<Plan>) -> String {
        let kernels = kernels::modelled("5.4,6.18").unwrap();
        let suite_of = Suite::new(plans, kernels, 1..=1, Box::new(Model::default())).unwrap();
        let ended = suite_of.run(&suite_of.jobs(), &()).unwrap();
        let page = Page::of(Some(90));
        assert!(failed_expectations(&ended, page).is_empty());
        anstream::adapter::strip_str(&runs_text(&ended, page, false)).to_string()
    }

    #[test]
    fn a_scenario_is_told_with_its_tables_and_what_it_must_show() {
        let text = told(vec![Plan::new(scenario::load("fibtest").unwrap())]);
        assert!(text.starts_with("fibtest: "), "{text}");
        assert!(text.contains("\n/limited  5.4 ") && text.contains("\npass  "), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 90), "{text}");
    }

    #[test]
    fn a_changed_one_says_that_nothing_is_checked_and_several_are_summed_up() {
        let plan = Plan::new(scenario::load("fibtest").unwrap());
        let changed = plan.clone().with_limit("/limited:cpu.max.burst=10000").unwrap();
        let text = told(vec![plan, changed]);
        assert!(text.contains("is not checked: --set, --vary or --for changed it."), "{text}");
        assert!(text.contains("5.4: ") && text.contains("left out here."), "{text}");
        assert!(text.trim_end().ends_with("expectations: all hold"), "{text}");
    }

    #[test]
    fn a_group_whose_limit_changes_has_no_quota_to_compare_with() {
        let quotas = |name| quotas(&scenario::load(name).unwrap());
        assert!(quotas("fibtest").values().all(Option::is_some), "{:?}", quotas("fibtest"));
        let rewritten = quotas("limit-rewrite");
        assert!(rewritten.values().any(Option::is_none), "{rewritten:?}");
    }
}
