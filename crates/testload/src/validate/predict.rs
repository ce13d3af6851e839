//! What `cpumax replay` says of a recording under the same limits, from its JSON (docs/json.md).

use super::Context;
use super::plan::{LIMITS, Load, NamedLimit};
use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::cgroup::PATH;

/// The kernel whose rules the machine at hand follows.
const KERNEL: &str = "6.18";

/// What the model says of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Predicted {
    /// CPU time of the group, us.
    pub usage_us: u64,
    pub nr_periods: u64,
    pub nr_throttled: u64,
    pub throttled_us: u64,
    /// Requests or bursts of the threads that are compared.
    pub completions: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    /// When the last thread of the load ended, from the start of the recording, ns.
    pub finished_ns: u64,
}

/// Predicts all limits, and none, and keeps what was said.
pub fn predict(context: &Context, load: &Load, cpumax: &Path) -> Result<()> {
    let recording = context.recording(load, context.from);
    for limit in LIMITS.iter().map(Some).chain([None]) {
        context.check_stopped()?;
        let name = limit.map_or("none", |limit| limit.name);
        let outcomes = replay(cpumax, &recording, limit)
            .with_context(|| format!("{} under {name}", load.name))?;
        let outcome = match limit {
            None => outcomes.first(),
            Some(_) => outcomes.last(),
        };
        let predicted = predicted(outcome.context("no run in the answer")?, load)
            .with_context(|| format!("{} under {name}", load.name))?;
        let path = context.prediction(load, name);
        fs::write(&path, serde_json::to_string_pretty(&predicted)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The command that predicts, as a person would type it.
pub fn command_line(recording: &Path, limit: Option<&NamedLimit>) -> Vec<String> {
    let limit = limit.map_or_else(
        || "cpu.max=max 100000".to_owned(),
        |limit| {
            let max = format!("cpu.max={} {}", limit.quota_us, limit.period_us);
            match limit.burst_us {
                0 => max,
                burst_us => format!("{max},cpu.max.burst={burst_us}"),
            }
        },
    );
    let recording = recording.display().to_string();
    ["replay", &recording, "--group", PATH, "--kernel", KERNEL, "--set", &limit, "--json", "-"]
        .map(str::to_owned)
        .to_vec()
}

fn replay(cpumax: &Path, recording: &Path, limit: Option<&NamedLimit>) -> Result<Vec<Value>> {
    let output = Command::new(cpumax)
        .args(command_line(recording, limit))
        .output()
        .with_context(|| format!("cannot start {}", cpumax.display()))?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("cpumax does not answer in JSON")
}

fn predicted(outcome: &Value, load: &Load) -> Result<Predicted> {
    let group = &outcome["groups"][PATH];
    let of_group =
        |field: &str| group[field].as_u64().with_context(|| format!("no groups.{PATH}.{field}"));
    let tasks = outcome["tasks"].as_object().context("no tasks")?;
    let kind = tasks.get(load.threads).with_context(|| {
        let names: Vec<_> = tasks.keys().map(String::as_str).collect();
        format!("no tasks.{}; there are {}", load.threads, names.join(", "))
    })?;
    let of_kind = |value: &Value, field: &str| {
        value.as_u64().with_context(|| format!("no tasks.{}.{field}", load.threads))
    };
    Ok(Predicted {
        usage_us: of_group("usage_usec")?,
        nr_periods: of_group("nr_periods")?,
        nr_throttled: of_group("nr_throttled")?,
        throttled_us: of_group("throttled_usec")?,
        completions: of_kind(&kind["completions"], "completions")?,
        p50_ns: of_kind(&kind["latency_ns"]["p50"], "latency_ns.p50")?,
        p99_ns: of_kind(&kind["latency_ns"]["p99"], "latency_ns.p99")?,
        finished_ns: of_kind(&kind["finished_ns"], "finished_ns")?,
    })
}
