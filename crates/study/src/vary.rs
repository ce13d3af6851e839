//! Varied settings, and numbers to show of each run: `cpumax run --vary` and `--show`.
//!
//! ```
//! use cpumax_study::suite::{Plan, Suite};
//! use cpumax_study::vary::{grid, number, vary};
//! use cpumax_study::{Model, kernels, scenario};
//!
//! let varied = [vary("timer_phase=0ms,98ms")?, vary("noise=1..3")?];
//! let numbers = [number("groups./limited.usage_usec over 4.19")?];
//! let plan = Plan::new(scenario::load("fibtest-8")?).showing(&numbers)?;
//! let plans = grid(plan, &varied)?;
//! assert_eq!(plans.len(), 6);
//! let suite = Suite::new(plans, kernels::modelled("5.4")?, 1..=1, Box::new(Model::default()))?;
//! let ended = suite.run(&suite.jobs(), &())?;
//! assert!(ended.iter().all(|one| one.verdicts[0].measured()[0].value > 1.2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::Error;
use crate::given::{Seeds, seeds};
use crate::suite::{NOISE, Plan};
use cpumax_workload::Expectation;

const MOST: usize = 1000;

/// A setting, and the values that it takes in turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vary {
    /// Its name, as [`Plan::with_setting`] takes it.
    pub setting: String,
    /// Its values.
    pub values: Vec<String>,
}

/// Parses `SETTING=VALUE,VALUE`; for noise also `noise=A..B`, both included; at most 1000 values.
/// Whether there is such a setting is not checked.
///
/// # Errors
/// The fault, and what would be accepted.
pub fn vary(text: &str) -> Result<Vary, String> {
    let takes = "give a setting and its values, such as timer_phase=0ms,98ms, noise=1..10 or \
                 '/web:cpu.max=20000 100000,50000 100000'";
    let (setting, values) = text.split_once('=').ok_or(takes)?;
    let setting = setting.trim().to_owned();
    let values: Vec<String> = match seeds(values) {
        Ok(Seeds { first, last }) if setting == NOISE => {
            (first..=last).take(MOST + 1).map(|seed| seed.to_string()).collect()
        }
        _ => values.split(',').map(|value| value.trim().to_owned()).collect(),
    };
    if setting.is_empty() || values.iter().any(String::is_empty) {
        return Err(takes.to_owned());
    }
    if values.len() > MOST {
        return Err(format!("give at most {MOST} values"));
    }
    Ok(Vary { setting, values })
}

/// Parses a number of a run as an expectation that always holds: `METRIC`, `METRIC per METRIC`,
/// `METRIC over KERNEL` or `METRIC per METRIC over KERNEL`, as `[[expect]]` in
/// docs/reference/scenarios.md has them.
///
/// # Errors
/// The metric is empty; neither it nor the kernel is looked up.
pub fn number(text: &str) -> Result<Expectation, String> {
    let (rest, over) = match text.rsplit_once(" over ") {
        Some((rest, kernel)) => (rest, Some(kernel.trim().to_owned())),
        None => (text, None),
    };
    let (metric, per) = match rest.rsplit_once(" per ") {
        Some((metric, per)) => (metric, Some(per.trim().to_owned())),
        None => (rest, None),
    };
    let metric = metric.trim().to_owned();
    if metric.is_empty() {
        return Err("give the path of a number, such as groups./web.usage_usec".to_owned());
    }
    let (kernels, why) = (String::new(), String::new());
    Ok(Expectation { kernels, metric, over, per, min: Some(f64::MIN), max: None, why })
}

/// Copies of the plan with every combination of these settings, at most 1000; the last setting
/// changes fastest.
///
/// # Errors
/// A setting or a value is not accepted, or there are too many.
pub fn grid(plan: Plan, varied: &[Vary]) -> Result<Vec<Plan>, Error> {
    let points = varied.iter().map(|vary| vary.values.len()).fold(1_usize, usize::saturating_mul);
    if points > MOST {
        let told = format!("{points} combinations of settings are too many: at most {MOST}");
        return Err(Error::Change(told));
    }
    let mut plans = vec![plan];
    for Vary { setting, values } in varied {
        let each = plans.iter().flat_map(|plan| values.iter().map(move |value| (plan, value)));
        let changed = each.map(|(plan, value)| plan.clone().with_setting(setting, value));
        plans = changed.collect::<Result<_, Error>>()?;
    }
    Ok(plans)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario;

    #[test]
    fn a_setting_is_split_into_name_and_values() {
        let of = |text: &str| vary(text).map(|vary| (vary.setting, vary.values.join("|")));
        let told = |setting: &str, values: &str| Ok((setting.to_owned(), values.to_owned()));
        assert_eq!(of("timer_phase=0ms, 98ms"), told("timer_phase", "0ms|98ms"));
        assert_eq!(of("noise=3..5"), told("noise", "3|4|5"));
        let written = "/a:cpu.max=20000 100000,max";
        assert_eq!(of(written), told("/a:cpu.max", "20000 100000|max"));
        for text in ["", "hz", "=1", "hz=", "hz=100,,250", "noise=0..99999"] {
            assert!(vary(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_number_may_be_divided_by_another_and_by_that_of_another_kernel() {
        let one = number("release.cfs_rqs per release.rqs over 6.1").unwrap();
        assert_eq!(one.metric, "release.cfs_rqs");
        assert_eq!((one.per.as_deref(), one.over.as_deref()), (Some("release.rqs"), Some("6.1")));
        assert!(number("").is_err() && number(" per x").is_err());
    }

    #[test]
    fn every_combination_is_a_plan_and_what_cannot_be_is_refused() {
        let plan = Plan::new(scenario::load("fibtest-8").unwrap());
        let of = |texts: &[&str]| {
            let varied: Vec<Vary> = texts.iter().map(|text| vary(text).unwrap()).collect();
            grid(plan.clone(), &varied)
        };
        let plans = of(&["timer_phase=0ms,98ms", "/limited=100m,200m,1"]).unwrap();
        assert_eq!(plans.len(), 6);
        let settings: Vec<_> = plans[1].settings().collect();
        assert_eq!(settings, [("timer_phase", "0ms"), ("/limited", "200m")]);
        assert_eq!(plans[5].workload().groups[1].limit.millicpus(), Some(1000));
        assert!(
            plans[5].is_changed() && !of(&["noise=1", "timer_phase=0ms"]).unwrap()[0].is_changed()
        );
        for refused in [
            "noise=x",
            "hz=251",
            "rule.realease=Csd",
            "rule.release=Now",
            "colour=red",
            "/limitd=1",
            "/limited=none",
        ] {
            assert!(of(&[refused]).is_err(), "{refused}");
        }
        let many = of(&["noise=1..1000", "timer_phase=0ms,1ms"]).unwrap_err().to_string();
        assert!(many.contains("2000 combinations"), "{many}");
    }
}
