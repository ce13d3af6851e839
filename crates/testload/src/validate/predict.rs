//! What `cpumax replay` says of a recording under the same limits, from its JSON (docs/json.md).

use super::Context;
use super::plan::{LIMITS, Load, NamedLimit};
use crate::cgroup::PATH;
use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The kernel whose rules the machine at hand follows.
const KERNEL: &str = "6.18";

/// Seeds of the model: each is another phase of the period timer, as each new group on a real
/// kernel.
pub const SEEDS: std::ops::RangeInclusive<u64> = 1..=5;

/// What the model says of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Predicted {
    /// CPU time of the group, us.
    pub usage_us: u64,
    pub nr_periods: u64,
    pub nr_throttled: u64,
    pub throttled_us: u64,
    /// Requests or bursts of the group's threads.
    pub completions: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    /// When the last thread of the group ended, from the start of the recording, ns.
    pub finished_ns: u64,
}

/// Predicts none and all limits with every seed, and keeps what was said.
pub fn predict(context: &Context, load: &Load, cpumax: &Path) -> Result<()> {
    for seed in SEEDS {
        context.stop.check()?;
        let outcomes = replay(cpumax, &context.recording(load, context.from), seed)
            .with_context(|| load.name.to_owned())?;
        let names = std::iter::once("none").chain(LIMITS.iter().map(|limit| limit.name));
        ensure!(outcomes.len() == LIMITS.len() + 1, "{} runs in the answer", outcomes.len());
        for (name, outcome) in names.zip(&outcomes) {
            let predicted =
                predicted(outcome).with_context(|| format!("{} under {name}", load.name))?;
            let path = context.prediction(load, name, seed);
            fs::write(&path, serde_json::to_string_pretty(&predicted)?)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

/// As `--set` takes it.
fn assignment(limit: &NamedLimit) -> String {
    let max = format!("{PATH}:cpu.max={} {}", limit.quota_us, limit.period_us);
    match limit.burst_us {
        0 => max,
        burst_us => format!("{max},cpu.max.burst={burst_us}"),
    }
}

/// The runs, without a limit first.
fn replay(cpumax: &Path, recording: &Path, seed: u64) -> Result<Vec<Value>> {
    let mut command = Command::new(cpumax);
    command.arg("replay").arg(recording).args(["--kernel", KERNEL, "--json", "-"]);
    command.args(["--seed", &seed.to_string()]);
    for limit in LIMITS {
        command.args(["--set", &assignment(limit)]);
    }
    let output = command.output().with_context(|| format!("cannot start {}", cpumax.display()))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let answer: Vec<Value> =
        serde_json::from_slice(&output.stdout).context("cpumax does not answer in JSON")?;
    Ok(answer.into_iter().filter(|run| run["world"] != "recording").collect())
}

fn predicted(outcome: &Value) -> Result<Predicted> {
    let number = |value: &Value, name: &str| {
        value.as_u64().with_context(|| format!("no {name} in {outcome}"))
    };
    let group = &outcome["groups"][PATH];
    let of_group = |field: &str| number(&group[field], &format!("groups.{PATH}.{field}"));
    let latency = |field: &str| {
        number(&group["latency_ns"][field], &format!("groups.{PATH}.latency_ns.{field}"))
    };
    Ok(Predicted {
        usage_us: of_group("usage_usec")?,
        nr_periods: of_group("nr_periods")?,
        nr_throttled: of_group("nr_throttled")?,
        throttled_us: of_group("throttled_usec")?,
        completions: of_group("completions")?,
        p50_ns: latency("p50")?,
        p99_ns: latency("p99")?,
        finished_ns: number(&outcome["finished_ns"], "finished_ns")?,
    })
}
