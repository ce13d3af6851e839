//! Goals, held against the rows of a sweep.

use crate::errors;
use cpumax::Advising;
use cpumax_forecast::advise::{Goal, Held};
use cpumax_forecast::predict::{Latency, Prediction};
use cpumax_study::Ranged;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ffi::OsString;

/// The goals of a question for advice.
#[pyclass(frozen, module = "cpumax", name = "_Goals")]
pub struct Goals(Vec<Goal>);

#[pymethods]
impl Goals {
    /// The goals that the words of `cpumax advise` give.
    #[new]
    fn new(words: Vec<OsString>) -> PyResult<Goals> {
        Ok(Goals(Advising::parse(&words).map_err(errors::of)?.question.goals))
    }

    /// How far the worst of the goals is from its bound, as [`Held::excess`] has it, in the row of
    /// a limit and that of no limit. `None` where the prediction is not reliable.
    fn excess(
        &self,
        limited: &Bound<'_, PyDict>,
        unlimited: &Bound<'_, PyDict>,
    ) -> PyResult<Option<f64>> {
        let (limited, unlimited) = (prediction(limited)?, prediction(unlimited)?);
        let all = self.0.iter().map(|goal| goal.held(&limited, &unlimited));
        let worst = all.map(|held| Held::excess(&held)).fold(0.0, f64::max);
        Ok(limited.predictable.then_some(worst))
    }
}

/// The numbers of a row; those that it does not have are unknown.
fn prediction(row: &Bound<'_, PyDict>) -> PyResult<Prediction> {
    let time = |name| -> PyResult<Option<Ranged<u64>>> {
        let whole = |Ranged { value, low, high }| Ranged {
            value: value as u64,
            low: low as u64,
            high: high as u64,
        };
        Ok(ranged(row, name)?.map(whole))
    };
    let [p50, p90, p95, p99, p999] = ["p50_ns", "p90_ns", "p95_ns", "p99_ns", "p999_ns"].map(time);
    let request_latency_ns = match (p50?, p90?, p95?, p99?, p999?) {
        (Some(p50), Some(p90), Some(p95), Some(p99), Some(p999)) => {
            Some(Latency { p50, p90, p95, p99, p999 })
        }
        _ => None,
    };
    let predictable = row.get_item("predictable")?.map(|is| is.extract::<Option<bool>>());
    Ok(Prediction {
        cpus: ranged(row, "cpus")?,
        throttled_percent: ranged(row, "throttled_percent")?,
        requests_per_second: ranged(row, "requests_per_second")?,
        request_latency_ns,
        work_takes_ns: time("work_takes_ns")?,
        predictable: predictable.transpose()?.flatten().unwrap_or(false),
        ..Prediction::default()
    })
}

fn ranged(row: &Bound<'_, PyDict>, name: &str) -> PyResult<Option<Ranged<f64>>> {
    let part = |end| -> PyResult<Option<f64>> {
        row.get_item(format!("{name}{end}"))?.map_or(Ok(None), |number| number.extract())
    };
    Ok(match (part("")?, part("_low")?, part("_high")?) {
        (Some(value), Some(low), Some(high)) => Some(Ranged { value, low, high }),
        _ => None,
    })
}
