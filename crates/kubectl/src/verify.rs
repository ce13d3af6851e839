//! `kubectl cpumax verify`: two scrapes of kubelet on each pod's node, through the API server.

use crate::cluster::Service;
use crate::{On, Study, cpumax, duration, wait};
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
    scrape("before")?;
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
