//! `kubectl cpumax verify`: scrapes of kubelet on each pod's node, through the API server.

use crate::cluster::Service;
use crate::{On, Study, cpumax, duration, wait};
use anyhow::Context;
use clap::Args;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub struct Verify {
    #[command(flatten)]
    on: On,
    #[command(flatten)]
    study: Study,
    /// Time between the scrapes
    #[arg(long = "for", value_name = "TIME", value_parser = duration, default_value = "60s")]
    time: Duration,
}

/// Kubelet reads counters every 10 to 20 s.
const SAMPLES: Duration = Duration::from_secs(60);

/// The largest exit status of `cpumax verify` over the pods.
pub fn verify(args: &Verify) -> anyhow::Result<u8> {
    let service = Service::find(&args.on)?;
    let pods = service.pods()?;
    let nodes: BTreeSet<&str> = pods.iter().map(|pod| pod.node.as_str()).collect();
    let folder = tempfile::tempdir()?;
    let file = |node: &str, at: &str| -> PathBuf { folder.path().join(format!("{node}.{at}")) };
    let scrape = |at: &str| -> anyhow::Result<()> {
        for node in &nodes {
            let path = format!("/api/v1/nodes/{node}/proxy/metrics/cadvisor");
            fs::write(file(node, at), service.kubectl.run(&["get", "--raw", &path], "")?)?;
        }
        Ok(())
    };
    scrape("old")?;
    let is_newer = || {
        scrape("before")?;
        let mut all = true;
        for pod in &pods {
            let read = |at: &str| -> anyhow::Result<String> {
                Ok(fs::read_to_string(file(&pod.node, at))?)
            };
            all &= newer(&read("old")?, &read("before")?, &service.namespace, &pod.name);
        }
        Ok(all.then_some(()))
    };
    let found = wait(SAMPLES, Duration::from_secs(1), is_newer)?;
    found.context("kubelet has read no counters of the pods for a minute")?;
    wait(args.time, Duration::from_millis(200), || Ok(None::<()>))?;
    scrape("after")?;
    let time = humantime::format_duration(args.time).to_string().replace(' ', "");
    let mut worst = 0;
    for pod in &pods {
        println!("{}", pod.name);
        let mut words: Vec<OsString> = vec![(&args.study.study).into(), "--openmetrics".into()];
        words.extend(["before", "after"].map(|at| file(&pod.node, at).into()));
        let container = service.chosen.container().unwrap_or_default();
        for (name, value) in
            [("namespace", &*service.namespace), ("pod", &pod.name), ("container", container)]
        {
            words.extend(["--label".into(), format!("{name}={value}").into()]);
        }
        words.extend(["--for".into(), OsString::from(&time)]);
        worst = worst.max(cpumax("verify", words.iter().map(OsString::as_os_str))?);
    }
    Ok(worst)
}

/// Whether all of a pod's counters are there and were read after the scrape `old`. Those in it may
/// be from before a limit that it tells of.
fn newer(old: &str, new: &str, namespace: &str, pod: &str) -> bool {
    let labels = [format!("namespace=\"{namespace}\""), format!("pod=\"{pod}\"")];
    let times = |scrape: &str| -> BTreeSet<Option<String>> {
        let usage = scrape.lines().filter(|line| line.starts_with("container_cpu_usage_"));
        let of_pod = usage.filter(|line| labels.iter().all(|label| line.contains(label)));
        let values = of_pod.filter_map(|line| line.rsplit_once('}'));
        values.map(|(_, value)| value.split_whitespace().nth(1).map(str::to_owned)).collect()
    };
    let (old, new) = (times(old), times(new));
    !new.is_empty() && !new.iter().any(|time| time.is_some() && old.contains(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_newer_once_each_was_read_again() {
        let scrape = |times: [u32; 2]| {
            let series = "container_cpu_usage_seconds_total{namespace=\"shop\",pod=\"web-1\"";
            let [of_pod, app] = times;
            format!("{series}}} 9.5 {of_pod}\n{series},container=\"app\"}} 8 {app}\n")
        };
        let old = scrape([100, 103]);
        let is_newer = |new: &str| newer(&old, new, "shop", "web-1");
        assert!(!is_newer(&old) && !is_newer(&scrape([110, 103])) && !is_newer(""));
        assert!(is_newer(&scrape([110, 113])) && newer("", &old, "shop", "web-1"));
        assert!(!newer("", &old, "shop", "web-2") && !newer("", &old, "other", "web-1"));
        let without = "container_cpu_usage_seconds_total{namespace=\"shop\",pod=\"web-1\"} 9\n";
        assert!(newer(without, without, "shop", "web-1"));
    }
}
