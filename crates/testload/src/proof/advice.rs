//! Checks advice: whether a limit that `cpumax advise` names meets its target in a real run, and
//! whether one a fifth smaller does not.

use super::files::{Advice, Folder};
use super::run::{Perf, Run, Session};
use crate::limit::Limit;
use anyhow::{Context as _, Result, bail};

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;

/// A target for a limit.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// Largest p99, ms.
    P99(f64),
    /// Largest increase of p99 over that without a limit, per cent.
    SlowerThan(f64),
    /// Largest share of throttled periods, per cent.
    Throttled(f64),
}

impl Target {
    fn arguments(&self) -> [String; 2] {
        match self {
            Target::P99(ms) => ["--p99".to_owned(), format!("{ms}ms")],
            Target::SlowerThan(percent) => ["--slower-than".to_owned(), format!("{percent}%")],
            Target::Throttled(percent) => ["--throttled".to_owned(), format!("{percent}%")],
        }
    }

    /// The number of a run, and its bound.
    fn of(&self, run: &Run, without: &Run) -> Result<(f64, f64)> {
        let p99_ms = |run: &Run| run.metric("lat_p99_ms").context("no p99 was measured");
        Ok(match self {
            Target::P99(ms) => (p99_ms(run)?, *ms),
            Target::SlowerThan(percent) => {
                (p99_ms(run)?, p99_ms(without)? * (1.0 + percent / 100.0))
            }
            Target::Throttled(percent) => {
                (100.0 * run.nr_throttled as f64 / run.nr_periods.max(1) as f64, *percent)
            }
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::P99(ms) => write!(f, "p99={ms}ms"),
            Target::SlowerThan(percent) => write!(f, "slower-than={percent}%"),
            Target::Throttled(percent) => write!(f, "throttled={percent}%"),
        }
    }
}

impl FromStr for Target {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Target> {
        let number = |text: &str| text.parse::<f64>().ok().filter(|number| *number > 0.0);
        let target = match text.split_once('=') {
            Some(("p99", ms)) => ms.strip_suffix("ms").and_then(number).map(Target::P99),
            Some((name, percent)) => {
                let percent = percent.strip_suffix('%').and_then(number);
                match name {
                    "slower-than" => percent.map(Target::SlowerThan),
                    "throttled" => percent.map(Target::Throttled),
                    _ => None,
                }
            }
            None => None,
        };
        match target {
            Some(target) => Ok(target),
            None => bail!("`{text}`: expected `p99=50ms`, `slower-than=20%` or `throttled=5%`"),
        }
    }
}

/// The advised quota, and whether it and a smaller one kept the target.
fn describe(advice: &Advice) -> String {
    let Some(limit) = &advice.limit else { return "none".to_owned() };
    let quota = |limit: &str| limit.split('/').next().unwrap_or_default().to_owned();
    let came = |kept: Option<bool>| if kept == Some(true) { "kept" } else { "broken" };
    let advised = format!("{} {}", quota(limit), came(advice.kept));
    match &advice.smaller {
        None => advised,
        Some(smaller) => format!("{advised}, {} {}", quota(smaller), came(advice.smaller_kept)),
    }
}

/// The command, kernel and recording to ask about.
pub struct AdviseCommand<'a> {
    pub cpumax: &'a Path,
    pub kernel: &'a str,
    pub from: Perf,
}

impl AdviseCommand<'_> {
    /// The advised limit, or why there is none.
    fn advise(
        &self,
        data: &Path,
        arguments: &[String],
        target: &Target,
    ) -> Result<Result<Limit, String>> {
        let mut command = Command::new(self.cpumax);
        command.arg("advise").arg(data).args(arguments).args(target.arguments());
        command.args(["--kernel", self.kernel, "--json", "-"]);
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        let answers: Value = match serde_json::from_slice(&output.stdout) {
            Ok(answer) => answer,
            Err(_) => bail!("{}", said.trim().lines().last().unwrap_or("no word why")),
        };
        let answer = &answers[0];
        let advised = &answer["recommended"];
        let Some(max) = advised["cpu_max"].as_str() else {
            let lacks = answer["lacks"].as_array().map_or(&[][..], Vec::as_slice);
            let lacks: Vec<&str> = lacks.iter().filter_map(|lack| lack["why"].as_str()).collect();
            return Ok(Err(lacks.join("; ")));
        };
        let us = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
        let mut words = max.split(' ');
        let (quota_us, period_us) = (us(words.next()), us(words.next()));
        let period_us = period_us.with_context(|| format!("no period in `{max}`"))?;
        Ok(Ok(Limit { quota_us, period_us, burst_us: 0 }))
    }
}

/// Asks for a limit for each target, and runs the service under it and under a smaller one.
pub fn advise(
    folder: &Folder,
    asked: &AdviseCommand,
    targets: &[Target],
    session: &mut Session<'_>,
) -> Result<()> {
    let name = session.name();
    let recording = format!("{name}.{}", asked.from.name());
    let groups = folder.groups()?;
    let arguments = groups.get(&recording).with_context(|| format!("no recording {recording}"))?;
    let unpacked = tempfile::tempdir()?;
    let data = folder.unpack(&recording, unpacked.path())?;
    let without = session.measure(&Limit::NONE, 1)?;
    eprintln!("{name} without a limit: {}", without.describe());
    folder.add_run(without.clone())?;
    for target in targets {
        let mut advice = Advice {
            workload: name.to_owned(),
            target: target.to_string(),
            bound: None,
            limit: None,
            found: None,
            kept: None,
            smaller: None,
            smaller_found: None,
            smaller_kept: None,
            why_not: None,
        };
        match asked.advise(&data, arguments, target)? {
            Err(why_not) => {
                eprintln!("{name}, {target}: none, {why_not}");
                advice.why_not = Some(why_not);
            }
            Ok(limit) => {
                let smaller = limit
                    .quota_us
                    .map(|quota_us| Limit { quota_us: Some(quota_us * 4 / 5), ..limit });
                let mut measure = |limit: &Limit| -> Result<(f64, f64)> {
                    let run = session.measure(limit, 1)?;
                    eprintln!("{name}, {target}, under {limit}: {}", run.describe());
                    let found = target.of(&run, &without)?;
                    folder.add_run(run)?;
                    Ok(found)
                };
                let (found, bound) = measure(&limit)?;
                advice.limit = Some(limit.to_string());
                (advice.found, advice.bound) = (Some(found), Some(bound));
                advice.kept = Some(found <= bound);
                if let Some(smaller) = smaller {
                    let (found, bound) = measure(&smaller)?;
                    advice.smaller = Some(smaller.to_string());
                    advice.smaller_found = Some(found);
                    advice.smaller_kept = Some(found <= bound);
                }
            }
        }
        folder.add_advice(advice)?;
    }
    Ok(())
}

/// A table with a row for each service and a column for each target: advised and smaller quota, in
/// ms, and whether they kept the target; then totals.
pub fn markdown(all: &[Advice]) -> String {
    let mut targets: Vec<&str> = Vec::new();
    let mut rows: BTreeMap<&str, Vec<&Advice>> = BTreeMap::new();
    for one in all {
        if !targets.contains(&one.target.as_str()) {
            targets.push(&one.target);
        }
        rows.entry(&one.workload).or_default().push(one);
    }
    let mut table = comfy_table::Table::new();
    let header = std::iter::once("load").chain(targets.iter().copied());
    table.load_preset(comfy_table::presets::ASCII_MARKDOWN).set_header(header);
    for (workload, of) in rows {
        let cell = |target: &&str| {
            let one = of.iter().find(|one| one.target == **target);
            one.map_or("-".to_owned(), |one| describe(one))
        };
        table.add_row(std::iter::once(workload.to_owned()).chain(targets.iter().map(cell)));
    }
    let named = || all.iter().filter(|one| one.limit.is_some());
    let smaller = || all.iter().filter(|one| one.smaller.is_some());
    format!(
        "{table}\n\n{} of {} advised limits kept what was asked; {} of {} a fifth smaller broke \
         it; for {} none was named.\n",
        named().filter(|one| one.kept == Some(true)).count(),
        named().count(),
        smaller().filter(|one| one.smaller_kept == Some(false)).count(),
        smaller().count(),
        all.iter().filter(|one| one.limit.is_none()).count()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_read_as_it_is_written() {
        for text in ["p99=50ms", "slower-than=20%", "throttled=5%"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        for text in ["", "p99", "p99=50", "p99=-1ms", "throttled=5", "faster-than=5%"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_was_kept_and_broken_is_counted() {
        let advice = |limit: Option<&str>, kept, smaller_kept| Advice {
            workload: "web".to_owned(),
            target: "p99=50ms".to_owned(),
            bound: Some(50.0),
            limit: limit.map(str::to_owned),
            found: Some(41.0),
            kept,
            smaller: limit.map(str::to_owned),
            smaller_found: Some(71.0),
            smaller_kept,
            why_not: None,
        };
        let all = [
            advice(Some("50/100"), Some(true), Some(false)),
            advice(Some("60/100"), Some(true), Some(true)),
            advice(None, None, None),
        ];
        let text = markdown(&all[..1]);
        assert!(text.contains("| web  | 50 kept, 50 broken |"), "{text}");
        let text = markdown(&all);
        assert!(text.contains("2 of 2 advised limits kept"), "{text}");
        assert!(text.contains("1 of 2 a fifth smaller broke it; for 1 none"), "{text}");
    }
}
