//! `kubectl cpumax apply`: patches the object, and waits until its pods have the limit.

use crate::cluster::{Service, status_of};
use crate::{On, Study, duration, wait};
use anyhow::{Context, bail, ensure};
use clap::Args;
use cpumax_forecast::saved::Saved;
use cpumax_report::{Chosen, Patch, escape};
use cpumax_study::Try;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

#[derive(Debug, Args)]
pub struct Apply {
    #[command(flatten)]
    on: On,
    #[command(flatten)]
    study: Study,
    /// This limit instead of a study's, e.g. 500m
    #[arg(long, value_name = "LIMIT")]
    limit: Option<String>,
    /// Time for the pods to take it
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5m")]
    timeout: Duration,
    /// Have the API server check it, and change nothing
    #[arg(long)]
    dry_run: bool,
}

pub fn apply(args: &Apply) -> anyhow::Result<()> {
    let service = Service::find(&args.on)?;
    let limit = match &args.limit {
        Some(limit) => given(limit)?,
        None => limit_of(&args.study.study)?,
    };
    let patch = patch(&service, &limit)?;
    show(&service, &patch);
    let mut words: Vec<&str> = patch.words.split(' ').collect();
    let body = patch.body.to_string();
    words.extend(["-o", "json", "--patch", &body]);
    if args.dry_run {
        words.push("--dry-run=server");
    }
    let after = service.kubectl.run(&words, "")?;
    let container = service.chosen.container();
    let changed = Chosen::parse(&after, container, container.is_none())?.limit();
    ensure!(
        changed.as_ref() == Some(&patch.limit),
        "{} took the patch, and its limit is {}: something else keeps it, such as an admission \
         webhook",
        service.object,
        changed.as_deref().unwrap_or("none")
    );
    if args.dry_run {
        println!("The API server takes it. Nothing has changed: this is a dry run.");
        return Ok(());
    }
    in_force(&service, &patch, &words, args.timeout)
}

/// The limit that a user gives; below 10m kubelet sets 10m, the kernel's least quota of 1 ms.
fn given(limit: &str) -> anyhow::Result<Try> {
    let tried = Try::parse(limit).context("--limit")?;
    let is_least = tried.limit.millicpus() == Some(10);
    ensure!(!is_least || limit == "10m", "--limit {limit}: kubelet sets at least 10m: give that");
    Ok(tried)
}

/// The limit that a study recommends.
pub fn limit_of(study: &Path) -> anyhow::Result<Try> {
    let advice = Saved::read(study)?.advice;
    let recommended = advice.and_then(|advice| advice.recommended);
    let limit = recommended.with_context(|| {
        format!("{}: it recommends no limit; give --limit", escape::path(study))
    })?;
    Ok(Try::of(limit.limit))
}

/// The patch for this limit.
pub fn patch(service: &Service, limit: &Try) -> anyhow::Result<Patch> {
    ensure!(
        limit.is_alone() && limit.weight.is_none(),
        "a limit alone can be applied, such as 500m"
    );
    ensure!(limit.limit.burst_ns() == 0, "Kubernetes cannot set a burst");
    let milli = limit.limit.millicpus().context("there is no limit to apply")?;
    Ok(service.chosen.patch(milli)?)
}

pub fn show(service: &Service, patch: &Patch) {
    println!("A limit of {} for {}, by kubectl {}:", patch.limit, service.object, patch.words);
    println!("{}", patch.body);
    for note in &patch.notes {
        println!("{note}");
    }
}

/// Waits until the pods have the limit.
fn in_force(
    service: &Service,
    patch: &Patch,
    words: &[&str],
    timeout: Duration,
) -> anyhow::Result<()> {
    let object = format!("{}/{}", words[1], words[2]);
    let most = humantime::format_duration(timeout).to_string();
    if patch.rolls_out {
        let limit = format!("--timeout={}s", timeout.as_secs());
        let status = ["rollout", "status", &object, &limit, "-n", &service.namespace];
        let status = service.kubectl.command(&status).status()?;
        ensure!(status.success(), "{object}: the roll-out does not end within {most}");
    } else if words[1] == "pod" {
        let get = ["get", &object, "-n", &service.namespace];
        let resized = || resized(&service.kubectl.json(&get)?, service.chosen.container(), patch);
        let done = wait(timeout, Duration::from_secs(1), resized)?;
        done.with_context(|| format!("{object}: kubelet does not resize it within {most}"))?;
        println!("{object} has the limit {}.", patch.limit);
    }
    Ok(())
}

/// `None` until kubelet has resized the pod. An error where it never will.
fn resized(pod: &Value, container: Option<&str>, patch: &Patch) -> anyhow::Result<Option<()>> {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    for condition in conditions.filter(|condition| condition["type"] == "PodResizePending") {
        let of = |name: &str| condition[name].as_str().unwrap_or_default();
        if of("reason") == "Infeasible" {
            bail!("the node cannot resize the pod: {}", of("message"));
        }
    }
    let status = container.map_or(Some(&pod["status"]), |name| status_of(pod, name));
    let limit = status.and_then(|status| status.pointer("/resources/limits/cpu")?.as_str());
    Ok((limit == Some(&patch.limit)).then_some(()))
}
