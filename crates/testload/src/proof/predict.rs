//! Predicts by `cpumax replay` the runs under limits that were measured.

use super::files::{Folder, Prediction};
use super::run::Run;
use super::score::{self, Scaling};
use crate::limit::Limit;
use crate::stop::Stop;
use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The command to ask, and its options.
pub struct ReplayCommand<'a> {
    pub cpumax: &'a Path,
    /// Kernel whose rules the machine follows.
    pub kernel: &'a str,
    help: String,
}

impl<'a> ReplayCommand<'a> {
    pub fn new(cpumax: &'a Path, kernel: &'a str) -> Result<ReplayCommand<'a>> {
        let output = Command::new(cpumax).args(["replay", "--help"]).output();
        let output = output.with_context(|| format!("cannot start {}", cpumax.display()))?;
        let help = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(ReplayCommand { cpumax, kernel, help })
    }

    fn replay(
        &self,
        data: &Path,
        arguments: &[String],
        limit: &Limit,
        scale: Option<f64>,
    ) -> Result<Value> {
        let assignment = limit.assignment().context("no limit to predict")?;
        let mut command = Command::new(self.cpumax);
        command.arg("replay").arg(data).args(["--kernel", self.kernel, "--json", "-"]);
        command.args(["--set", &assignment]);
        for pair in arguments.chunks(2).filter(|pair| self.help.contains(&pair[0])) {
            command.args(pair);
        }
        if let Some(scale) = scale {
            command.args(["--scale-work", &format!("{scale:.4}")]);
        }
        let output = command.output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{}", said.trim().lines().last().unwrap_or("no word why"));
        }
        let runs: Vec<Value> = serde_json::from_slice(&output.stdout)
            .context("the answer of cpumax replay is not the JSON that it tells")?;
        let limited = runs
            .into_iter()
            .find(|run| run["cpu_max"].as_str().is_some_and(|max| !max.starts_with("max")));
        let mut limited = limited.context("no run under the limit in the answer")?;
        Ok(limited["prediction"].take())
    }
}

/// Predicts all recordings of the workloads, raw and normalised, under each measured limit, and
/// stores the predictions.
pub fn predict(folder: &Folder, asked: &ReplayCommand, only: &[String], stop: &Stop) -> Result<()> {
    let runs = folder.runs()?;
    let mut predictions = folder.predictions()?;
    let unpacked = std::env::temp_dir().join(format!("cpumax-proof-{}", std::process::id()));
    std::fs::create_dir(&unpacked)?;
    let done = (|| {
        for (recording, arguments) in folder.groups()? {
            let workload = score::workload(&recording);
            if !only.is_empty() && !only.iter().any(|name| name == workload) {
                continue;
            }
            let data = folder.unpack(&recording, &unpacked)?;
            let recorded = folder.recorded(&recording)?;
            predictions.retain(|prediction| prediction.recording != recording);
            for setting in score::settings(&runs, workload) {
                let limit: Limit = setting.parse()?;
                for way in Scaling::ALL {
                    stop.check()?;
                    let scale = (way == Scaling::Normalised)
                        .then(|| scale(&runs, &recorded, workload, &setting));
                    let answer = asked.replay(&data, &arguments, &limit, scale);
                    eprintln!("{recording} under {setting}, {}: {}", way.name(), said(&answer));
                    let failed = answer.as_ref().err().map(|error| format!("{error:#}"));
                    predictions.push(Prediction {
                        recording: recording.clone(),
                        setting: setting.clone(),
                        scale,
                        said: answer.ok().filter(|value| !value.is_null()),
                        failed,
                    });
                }
            }
            std::fs::remove_file(&data)?;
            folder.write_predictions(&predictions)?;
        }
        Ok(())
    })();
    std::fs::remove_dir_all(&unpacked)?;
    done
}

/// Cost of a unit of work in the measured runs, relative to the recorded one.
fn scale(runs: &[Run], recorded: &Run, workload: &str, setting: &str) -> f64 {
    let costs = runs
        .iter()
        .filter(|run| run.workload == workload && run.setting == setting && run.perf == "none")
        .map(score::cost)
        .collect();
    score::median(costs) / score::cost(recorded)
}

fn said(answer: &Result<Value>) -> String {
    match answer {
        Err(error) => format!("failed: {error:#}"),
        Ok(Value::Null) => "no prediction".to_owned(),
        Ok(prediction) => format!(
            "{} CPUs, p99 {} ns",
            prediction["cpus"]["value"], prediction["request_latency_ns"]["p99"]["value"]
        ),
    }
}
