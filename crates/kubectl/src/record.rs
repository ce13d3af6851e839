//! `kubectl cpumax record`: a pod of cpumax on each node records, and goes with its namespace.
//!
//! It may load BPF programs and read counters of the processor, nothing else. The node's control
//! groups are mounted for reading, which Pod Security admits at the level `privileged` only: hence
//! a namespace of its own.

use crate::cluster::{Kubectl, Pod, Service};
use crate::{On, duration, is_interrupted, wait};
use anyhow::{Context, bail, ensure};
use clap::{Args, ValueHint};
use cpumax_report::escape;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Debug, Args)]
pub struct Recording {
    #[command(flatten)]
    on: On,
    /// Time to record
    #[arg(long = "for", value_name = "TIME", value_parser = duration, default_value = "30s")]
    time: Duration,
    /// Image with the program /usr/bin/cpumax
    #[arg(long, value_name = "IMAGE")]
    image: String,
    /// When nodes pull the image
    #[arg(long, value_name = "POLICY", default_value = "IfNotPresent")]
    #[arg(value_parser = ["IfNotPresent", "Always", "Never"])]
    pull_policy: String,
    /// Secret of the object's namespace for the image's registry; a copy goes with the recorder
    #[arg(long, value_name = "NAME")]
    image_pull_secret: Option<String>,
    /// Most pods to record at the same time, the newest ones
    #[arg(long, value_name = "N", default_value_t = 3)]
    pods: usize,
    /// Record system calls too
    #[arg(long)]
    calls: bool,
    /// Folder for the files
    #[arg(short, long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    #[arg(default_value = ".")]
    output: PathBuf,
    /// Time for the recorders to start
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "2m")]
    timeout: Duration,
    /// Print the objects that it would create, and stop
    #[arg(long)]
    dry_run: bool,
}

/// Time that a recorder outlives its recording, if nobody removes it.
const OUTLIVES: Duration = Duration::from_secs(300);
/// Reasons for which a container waits in vain.
const IN_VAIN: [&str; 7] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
];

pub fn record(args: &Recording) -> anyhow::Result<()> {
    let service = Service::find(&args.on)?;
    let mut pods = service.pods()?;
    pods.truncate(args.pods.max(1));
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let namespace = format!("cpumax-{:x}", since.as_nanos());
    let mut objects = vec![json!({ "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": namespace, "labels": {
            "app.kubernetes.io/name": "cpumax",
            "pod-security.kubernetes.io/enforce": "privileged" } } })];
    if let Some(name) = &args.image_pull_secret {
        objects.push(secret(&service, name, &namespace)?);
    }
    objects.extend(pods.iter().enumerate().map(|(at, pod)| recorder(args, &namespace, at, pod)));
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    if args.dry_run {
        println!("{}", escape::pretty_json(&list)?);
        return Ok(());
    }
    fs::create_dir_all(&args.output).with_context(|| escape::path(&args.output))?;
    let made = Made { kubectl: &service.kubectl, namespace: &namespace };
    service.kubectl.run(&["create", "-f", "-"], &list.to_string()).context(
        "the recorder cannot be created; it needs a namespace of its own that admits pods at the \
         level privileged of Pod Security, for the node's /sys/fs/cgroup",
    )?;
    let ready = || made.ready(pods.len());
    if wait(args.timeout, Duration::from_secs(1), ready)?.is_none() {
        bail!("the recorder does not start within {}", humantime::format_duration(args.timeout));
    }
    made.record(args, &pods, service.chosen.container())
}

/// A copy of a secret for another namespace.
fn secret(service: &Service, name: &str, namespace: &str) -> anyhow::Result<Value> {
    let found = service.kubectl.json(&["get", "secret", name, "-n", &service.namespace])?;
    Ok(json!({ "apiVersion": "v1", "kind": "Secret", "type": found["type"], "data": found["data"],
        "metadata": { "name": name, "namespace": namespace } }))
}

/// A pod that waits on the node of `pod` to be told to record it.
fn recorder(args: &Recording, namespace: &str, at: usize, pod: &Pod) -> Value {
    let secrets: Vec<Value> =
        args.image_pull_secret.iter().map(|name| json!({ "name": name })).collect();
    let lives = args.timeout + args.time + OUTLIVES;
    json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": format!("record-{at}"), "namespace": namespace,
            "labels": { "app.kubernetes.io/name": "cpumax" } },
        "spec": {
            "nodeName": pod.node,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": lives.as_secs(),
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            // Without it threads that end early have no names.
            "hostPID": true,
            "tolerations": [{ "operator": "Exists" }],
            "imagePullSecrets": secrets,
            "containers": [{
                "name": "record",
                "image": args.image,
                "imagePullPolicy": args.pull_policy,
                // It waits for a recording on its standard input, which never comes.
                "command": ["/usr/bin/cpumax", "inspect", "-"],
                "stdin": true,
                "securityContext": {
                    "runAsUser": 0,
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": { "drop": ["ALL"], "add": ["BPF", "PERFMON"] } },
                "volumeMounts": [
                    { "name": "groups", "mountPath": "/host/sys/fs/cgroup", "readOnly": true }] }],
            "volumes": [{ "name": "groups", "hostPath": { "path": "/sys/fs/cgroup" } }] } })
}

/// The namespace with everything that was created; dropped, it is deleted.
struct Made<'a> {
    kubectl: &'a Kubectl,
    namespace: &'a str,
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        let words = ["delete", "namespace", self.namespace, "--wait=false", "--ignore-not-found"];
        // A second interrupt does not reach it.
        let mut command = self.kubectl.command(&words);
        let done = command.stdout(Stdio::null()).process_group(0).status();
        if !done.is_ok_and(|status| status.success()) {
            eprintln!("warning: give kubectl delete namespace {}", self.namespace);
        }
    }
}

impl Made<'_> {
    /// `None` until all recorders run. An error where one never will.
    fn ready(&self, wanted: usize) -> anyhow::Result<Option<()>> {
        let all = self.kubectl.json(&["get", "pods", "-n", self.namespace])?;
        let pods: Vec<&Value> = all["items"].as_array().into_iter().flatten().collect();
        for pod in &pods {
            let text = |path: &str| pod.pointer(path).and_then(Value::as_str).unwrap_or_default();
            let waits = "/status/containerStatuses/0/state/waiting";
            let reason = text(&format!("{waits}/reason"));
            if IN_VAIN.contains(&reason) {
                bail!(
                    "the recorder does not start: {reason}: {}",
                    text(&format!("{waits}/message"))
                );
            }
            if ["Failed", "Succeeded"].contains(&text("/status/phase")) {
                bail!(
                    "the recorder has ended: {} {}",
                    text("/status/reason"),
                    text("/status/message")
                );
            }
        }
        let runs =
            |pod: &&&Value| pod["status"]["containerStatuses"][0]["state"]["running"].is_object();
        Ok((pods.iter().filter(runs).count() == wanted).then_some(()))
    }

    fn record(
        &self,
        args: &Recording,
        pods: &[Pod],
        container: Option<&str>,
    ) -> anyhow::Result<()> {
        let container = container.map(|name| format!(".{name}")).unwrap_or_default();
        let mut all = Vec::new();
        for (at, pod) in pods.iter().enumerate() {
            let file = args.output.join(format!("{}{container}.cpumax", pod.name));
            all.push(Stream::begin(self, args, at, pod, file)?);
        }
        let is_done = || {
            let mut running = 0;
            for stream in &mut all {
                running += u32::from(stream.child.try_wait()?.is_none());
            }
            Ok((running == 0).then_some(()))
        };
        let ended = wait(args.time + OUTLIVES, Duration::from_millis(100), is_done);
        for stream in &mut all {
            // One that has ended is not there any more.
            let _ = stream.child.kill();
        }
        let done: Vec<anyhow::Result<()>> = all.into_iter().map(Stream::end).collect();
        ended?;
        done.into_iter().collect()
    }
}

/// A recording on its way into a file.
struct Stream {
    child: Child,
    part: PathBuf,
    file: PathBuf,
}

impl Stream {
    fn begin(
        made: &Made<'_>,
        args: &Recording,
        at: usize,
        pod: &Pod,
        file: PathBuf,
    ) -> anyhow::Result<Stream> {
        let part = file.with_extension("cpumax.part");
        let out = File::create(&part).with_context(|| escape::path(&part))?;
        let name = format!("record-{at}");
        let time = humantime::format_duration(args.time).to_string().replace(' ', "");
        let mut words = vec!["exec", "-n", made.namespace, &name, "--", "/usr/bin/cpumax"];
        words.extend(["record", "--pod", &pod.id, "--for", &time, "-o", "-"]);
        words.extend(args.calls.then_some("--calls"));
        let mut command = made.kubectl.command(&words);
        let child = command.stdout(out).stderr(Stdio::piped()).spawn()?;
        Ok(Stream { child, part, file })
    }

    /// Gives the file its name, and tells what the recorder said.
    fn end(self) -> anyhow::Result<()> {
        let output = self.child.wait_with_output()?;
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        let shown = escape::path(&self.file);
        if !output.status.success() {
            fs::remove_file(&self.part)?;
            ensure!(!is_interrupted(), "interrupted");
            bail!("{shown}: {}", told.trim());
        }
        fs::rename(&self.part, &self.file).with_context(|| shown.clone())?;
        let told = told.strip_prefix("-: ").unwrap_or(&told);
        eprintln!("{shown}: {}", escape::lines(told.trim_end()));
        Ok(())
    }
}
