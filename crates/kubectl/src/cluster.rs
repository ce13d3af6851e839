//! The cluster, as the user's kubectl shows it: an object and its pods.

use crate::On;
use anyhow::{Context, bail};
use cpumax_report::Chosen;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::process::{Command, Stdio};

/// The user's kubectl, with the options that choose a cluster.
pub struct Kubectl {
    program: OsString,
    options: Vec<OsString>,
}

/// An object whose container is to get a limit.
pub struct Service {
    pub kubectl: Kubectl,
    pub namespace: String,
    pub chosen: Chosen,
    /// As words name it, such as `deploy/web`.
    pub object: String,
    uid: String,
}

/// A pod that runs.
pub struct Pod {
    pub name: String,
    pub node: String,
    /// Its UID, or the id of the chosen container: `cpumax record --pod` takes either.
    pub id: String,
}

impl Kubectl {
    fn of(on: &On) -> Kubectl {
        let program = std::env::var_os("KUBECTL_PATH").filter(|path| !path.is_empty());
        let context = on.context.as_ref().map(|name| format!("--context={name}").into());
        let config = on.kubeconfig.as_ref().map(|path| {
            let mut option = OsString::from("--kubeconfig=");
            option.push(path);
            option
        });
        let options = context.into_iter().chain(config).collect();
        Kubectl { program: program.unwrap_or_else(|| "kubectl".into()), options }
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.options).args(words).stdin(Stdio::null());
        command
    }

    /// Standard output of kubectl, which reads `input`.
    ///
    /// # Errors
    /// It cannot be started or fails; the message is its own.
    pub fn run(&self, words: &[&str], input: &str) -> anyhow::Result<String> {
        let mut command = self.command(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| self.unstarted())?;
        if let Some(mut stdin) = child.stdin.take() {
            // A reader that fails says why itself.
            let _ = stdin.write_all(input.as_bytes());
        }
        let output = child.wait_with_output().with_context(|| self.unstarted())?;
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr);
            bail!("kubectl {}: {}", words[0], told.trim().trim_start_matches("Error from server "));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    pub fn json(&self, words: &[&str]) -> anyhow::Result<Value> {
        let words = [words, &["-o", "json"]].concat();
        serde_json::from_str(&self.run(&words, "")?).context("kubectl prints no JSON")
    }

    fn unstarted(&self) -> String {
        format!("{} cannot be started: set KUBECTL_PATH", self.program.to_string_lossy())
    }
}

impl Service {
    pub fn find(on: &On) -> anyhow::Result<Service> {
        let kubectl = Kubectl::of(on);
        let mut words = vec!["get", &on.object, "-o", "json"];
        if let Some(namespace) = &on.namespace {
            words.extend(["-n", namespace]);
        }
        let text = kubectl.run(&words, "")?;
        let chosen = Chosen::parse(&text, on.container.as_deref(), on.whole_pod)?;
        let object: Value = serde_json::from_str(&text).context("kubectl prints no JSON")?;
        let of = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        let (namespace, uid) = (of("namespace"), of("uid"));
        Ok(Service { kubectl, namespace, chosen, object: on.object.clone(), uid })
    }

    /// The pods that the object makes and that run, the newest first.
    ///
    /// # Errors
    /// There is none.
    pub fn pods(&self) -> anyhow::Result<Vec<Pod>> {
        let kinds = "pods,replicasets.apps,jobs.batch";
        let all = self.kubectl.json(&["get", kinds, "-n", &self.namespace])?;
        let found = pods(&all, &self.uid, self.chosen.container());
        if found.is_empty() {
            bail!("{}: none of its pods runs in namespace {}", self.object, self.namespace);
        }
        Ok(found)
    }
}

/// The running pods in a list of objects that belong to the object `uid`, perhaps through others.
fn pods(list: &Value, uid: &str, container: Option<&str>) -> Vec<Pod> {
    let items = || list["items"].as_array().into_iter().flatten();
    let uid_of = |item: &Value| item["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let mut mine = BTreeSet::from([uid.to_owned()]);
    // From a CronJob over a Job to a pod are two steps.
    for _ in 0..2 {
        let belongs = |item: &&Value| {
            let owners = item["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            owners.filter_map(|owner| owner["uid"].as_str()).any(|owner| mine.contains(owner))
        };
        let more: Vec<String> = items().filter(belongs).map(uid_of).collect();
        mine.extend(more);
    }
    let mut found: Vec<(&str, Pod)> = items()
        .filter(|item| item["kind"] == "Pod" && mine.contains(&uid_of(item)))
        .filter(|item| item["metadata"]["deletionTimestamp"].is_null())
        .filter_map(|item| {
            let text = |path: &str| item.pointer(path).and_then(Value::as_str);
            let id = match container {
                Some(name) => running(item, name)?.to_owned(),
                None => (text("/status/phase")? == "Running").then(|| uid_of(item))?,
            };
            let [name, node] = ["/metadata/name", "/spec/nodeName"].map(text);
            let pod = Pod { name: name?.to_owned(), node: node?.to_owned(), id };
            Some((text("/metadata/creationTimestamp")?, pod))
        })
        .collect();
    found.sort_by(|(a, _), (b, _)| b.cmp(a));
    found.into_iter().map(|(_, pod)| pod).collect()
}

/// The id of a container that runs, without its scheme.
fn running<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    let container = status_of(pod, name)?;
    container["state"]["running"].as_object()?;
    container["containerID"].as_str()?.rsplit_once("://").map(|(_, id)| id)
}

/// The status of a container or sidecar.
pub fn status_of<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    let lists = ["containerStatuses", "initContainerStatuses"].map(|list| &pod["status"][list]);
    let mut all = lists.into_iter().filter_map(Value::as_array).flatten();
    all.find(|status| status["name"] == name)
}
