//! The whole way on a node, a virtual machine with containerd and kubelet: nothing is played.

use crate::cluster::{Cluster, cluster, program};
use cpumax_require::{Need, found};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// The node of a cluster, which ends with its handle.
struct Node {
    /// Its end is that of its standard input.
    _process: Child,
}

impl Node {
    /// # Errors
    /// It is not demanded, as it takes minutes, or its parts are missing.
    fn start(cluster: &Cluster) -> Result<Node, String> {
        if !Need::Node.is_demanded() {
            return Err("it takes minutes: make node-test".to_owned());
        }
        let cpumax = Path::new(env!("CARGO_BIN_EXE_cpumax"));
        let testload = cpumax.with_file_name("testload");
        let root = program("../node/base.cpio");
        for (part, from) in [(&root, "make kube"), (&testload, "cargo build --bin testload")] {
            if !part.exists() {
                return Err(format!("there is no {}: {from}", part.display()));
            }
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/kube/node");
        let mut process = Command::new(script)
            .args([&cluster.config, &port.to_string()])
            .args([cpumax, &testload])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut told).unwrap();
        assert_eq!(told, "ready\n", "the node does not start");
        Ok(Node { _process: process })
    }
}

/// Bursts of 30 ms, five times a second.
const SHOP: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: app
        image: localhost/node:1
        command: [testload, burst, --period, 200ms, --work, 15ms, --count, '1000000']
        resources: {requests: {cpu: 100m}, limits: {cpu: 1}}
";

#[test]
fn a_recorded_pod_is_resized_and_keeps_what_was_predicted() {
    let Some(cluster) = cluster() else { return };
    let Some(_node) = found(Need::Node, Node::start(cluster)) else { return };
    let (folder, namespace) = (tempfile::tempdir().unwrap(), cluster.namespace());
    let plugin = folder.path().join("kubectl-cpumax");
    symlink(env!("CARGO_BIN_EXE_cpumax"), &plugin).unwrap();
    let run = |words: &str| {
        let mut command = Command::new(&plugin);
        command.args(words.split(' ').take(2)).args(["-c", "app", "-n", &namespace]);
        command.args(words.split(' ').skip(2)).current_dir(folder.path()).env("NO_COLOR", "1");
        command.env("KUBECONFIG", &cluster.config).env("KUBECTL_PATH", program("kubectl"));
        let Output { status, stdout, stderr } = command.output().unwrap();
        let told = [stdout, stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        assert_eq!(status.code(), Some(0), "{words}: {told}");
        eprintln!("$ kubectl cpumax {words}\n{told}");
        told
    };
    let kubectl = |words: &[&str]| cluster.kubectl(&namespace, words, SHOP).unwrap();
    kubectl(&["create", "-f", "-"]);
    kubectl(&["rollout", "status", "deploy/web", "--timeout=300s"]);
    let pod = kubectl(&["get", "pods", "-o", "jsonpath={.items[0].metadata.name}"]);

    run("record deploy/web --image localhost/node:1 --pull-policy Never --for 20s");
    let told = run(&format!("advise deploy/web {pod}.app.cpumax --p99 150ms"));
    let limit = told.split_once("A limit of ").unwrap().1.split(' ').next().unwrap().to_owned();
    // The load uses 150m, and 300m do not throttle it.
    let milli: u32 = limit.trim_end_matches('m').parse().unwrap();
    assert!((160..300).contains(&milli), "{limit}");
    let told = run(&format!("apply pod/{pod}"));
    assert!(told.ends_with(&format!("pod/{pod} has the limit {limit}.\n")), "{told}");
    let told = run("verify deploy/web --for 60s");
    assert!(told.contains(&format!("{}000 100000", milli / 10)), "{told}");
    run("apply deploy/web");
    let after = kubectl(&["get", "pods", "-o", "jsonpath={.items[*].metadata.name}"]);
    assert!(!after.contains(&pod), "the roll-out has replaced {pod}: {after}");
}
