//! The report of a run, and how it is written as JSON.

use crate::answer::{Answer, Document};
use crate::expect::{Measured, Verdict};
use cpumax_limit::Missing;
use cpumax_machine::Watched;
use cpumax_machine::kernel::Version;
use cpumax_outcome::{Conditions, Outcome};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// The report of a run, in any world.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Its outcome.
    pub outcome: Outcome,
    /// Observations of the watched group, if one was watched.
    pub watched: Option<Watched>,
    /// Release of the kernel (`uname -r`); `None` in the model.
    pub kernel_release: Option<String>,
    /// Conditions that a real kernel reports, or that the job gives to the model.
    pub conditions: Option<Conditions>,
    /// Numbers of the outcome that were not measured and mean nothing: paths, or their last parts.
    pub not_measured: Vec<String>,
    /// Deviations from the workload.
    pub notes: Vec<String>,
    /// Whether its time is that of instructions, not of a clock.
    pub exact: bool,
}

/// A run as docs/reference/json.md describes it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ReportDocument<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    /// Release of the kernel; absent for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel_release: Option<&'a str>,
    /// Requests completed in a second, by path of the group; only of groups that complete any.
    requests_per_second: BTreeMap<&'a str, f64>,
    /// Fields that were not measured in that world and mean nothing.
    not_measured: &'a [String],
    /// Deviations of the run from the scenario, in words.
    notes: &'a [String],
    /// Translations of limits that are not in the kernel's form: `500m = 50000 100000`.
    understood: &'a [String],
    /// Values of the settings that are varied.
    settings: BTreeMap<&'a str, &'a str>,
    /// Expectations of the scenario that could be checked.
    expectations: Vec<Expected<'a>>,
}

impl Answer for ReportDocument<'_> {
    const KIND: &'static str = "run";
}

/// An expectation, and the number of the run.
#[derive(Debug, Serialize, JsonSchema)]
struct Expected<'a> {
    /// Path of the number.
    metric: &'a str,
    /// The number of the same run that it is divided by.
    per: Option<&'a str>,
    /// The kernel whose number it is divided by.
    over: Option<&'a str>,
    /// The least that is expected.
    min: Option<f64>,
    /// The most that is expected.
    max: Option<f64>,
    /// The reason.
    why: &'a str,
    /// The number of the run; null if it is not finite, such as 0 divided by 0.
    value: Option<f64>,
    /// Whether it lies within the bounds, with the tolerance of this world.
    passed: bool,
}

impl Report {
    /// The report as it is written as JSON, without expectations.
    pub fn document(&self) -> Document<ReportDocument<'_>> {
        self.document_of((&[], BTreeMap::new()), &[], None)
    }

    /// The report as it is written as JSON, with translations of limits, values of settings, and
    /// the results of those expectations that were checked on this run: on `kernel` with the
    /// outcome's seed.
    pub(crate) fn document_of<'a>(
        &'a self,
        (understood, settings): (&'a [String], BTreeMap<&'a str, &'a str>),
        verdicts: &'a [Verdict<'a>],
        kernel: Option<Version>,
    ) -> Document<ReportDocument<'a>> {
        let expected = |verdict: &'a Verdict<'a>| {
            let is_of_run = |measured: &&Measured| {
                Some(measured.kernel) == kernel && measured.seed == self.outcome.seed
            };
            let Measured { value, passed, .. } = verdict.measured().iter().find(is_of_run)?;
            let expectation = verdict.expectation();
            Some(Expected {
                metric: &expectation.metric,
                per: expectation.per.as_deref(),
                over: expectation.over.as_deref(),
                // A number that is only shown has `f64::MIN` as its bound.
                min: expectation.min.filter(|min| *min > f64::MIN),
                max: expectation.max,
                why: &expectation.why,
                value: value.is_finite().then_some(*value),
                passed: *passed,
            })
        };
        let document = ReportDocument {
            outcome: &self.outcome,
            kernel_release: self.kernel_release.as_deref(),
            requests_per_second: requests_per_second(&self.outcome),
            not_measured: &self.not_measured,
            notes: &self.notes,
            understood,
            settings,
            expectations: verdicts.iter().filter_map(expected).collect(),
        };
        document.into()
    }

    /// The report of a run of the model, which measures everything. `lacks`: a part of the workload
    /// that the kernel does not have and left out.
    pub(crate) fn of_model(
        outcome: Outcome,
        watched: Option<Watched>,
        (conditions, lacks): (Option<Conditions>, Option<Missing>),
    ) -> Report {
        Report {
            outcome,
            watched,
            kernel_release: None,
            conditions,
            not_measured: Vec::new(),
            notes: lacks
                .map(|missing| format!("{missing}, and is left out here"))
                .into_iter()
                .collect(),
            exact: true,
        }
    }
}

/// Requests completed in a simulated second, by path of the group; only of groups that completed
/// any.
fn requests_per_second(outcome: &Outcome) -> BTreeMap<&str, f64> {
    let seconds = outcome.simulated_ns.max(1) as f64 / 1e9;
    let served = outcome.groups.iter().filter(|(_, group)| group.completions > 0);
    served.map(|(path, group)| (path.as_str(), group.completions as f64 / seconds)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, Study, scenario, world};
    use std::collections::BTreeSet;

    #[test]
    fn json_tells_what_was_not_measured_and_what_is_to_be_noted() {
        let jobs = Study::new(scenario::load("nested").unwrap()).jobs();
        let mut report = world::all(&Model::default(), &jobs, &()).unwrap().remove(0);
        report.kernel_release = Some("6.18.15+deb13-cloud-amd64".to_owned());
        report.not_measured.push("events".to_owned());
        report.notes.push("the machine was slow".to_owned());
        let own = serde_json::to_value(&report.outcome).unwrap();
        let json = serde_json::to_value(report.document()).unwrap();
        let is_added = |name: &&String| {
            own.get(*name).is_none() && !["kind", "version"].contains(&name.as_str())
        };
        let added = json.as_object().unwrap().keys().filter(is_added);
        let document = include_str!("../../../docs/reference/json.md");
        let section = document.split("\n## Runs").nth(1).unwrap();
        let rows = section.split("\n## ").next().unwrap().lines();
        let rows = rows.filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        assert_eq!(rows.collect::<BTreeSet<_>>(), added.map(String::as_str).collect());
        assert_eq!(json["not_measured"][0], "events");
        assert!(json["requests_per_second"].as_object().unwrap().is_empty(), "it answers nobody");
        assert_eq!(json["notes"][0], "the machine was slow");
        assert_eq!(serde_json::from_value::<Outcome>(json).unwrap(), report.outcome);
    }
}
