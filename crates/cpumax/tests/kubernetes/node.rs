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
    /// Its parts are missing.
    fn start(cluster: &Cluster) -> Result<Node, String> {
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
        command: [testload, burst, --period, 100ms, --work, 20ms, --count, '1000000']
        resources: {requests: {cpu: 100m}, limits: {cpu: 1}}
";

#[test]
fn the_whole_way_on_a_node() {
    let Some(cluster) = cluster() else { return };
    let Some(_node) = found(Need::Node, Node::start(cluster)) else { return };
    let folder = tempfile::tempdir().unwrap();
    let namespace = cluster.namespace();
    let plugin = folder.path().join("kubectl-cpumax");
    symlink(env!("CARGO_BIN_EXE_cpumax"), &plugin).unwrap();
    let run = |words: &str| {
        let mut command = Command::new(&plugin);
        command.args(words.split(' ')).args(["-n", &namespace]).current_dir(folder.path());
        command.env("KUBECONFIG", &cluster.config).env("KUBECTL_PATH", program("kubectl"));
        let Output { status, stdout, stderr } = command.env("NO_COLOR", "1").output().unwrap();
        let told = [stdout, stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        eprintln!("$ kubectl cpumax {words}\n{told}");
        assert_eq!(status.code(), Some(0));
        told
    };
    cluster.kubectl(&namespace, &["create", "-f", "-"], SHOP).unwrap();
}
