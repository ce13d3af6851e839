//! `kubectl cpumax` on the API server, with a kubectl that plays the nodes.

use crate::cluster::{Cluster, cluster, program};
use cpumax_require::{Need, missing};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

static ALONE: Mutex<()> = Mutex::new(());

/// A Deployment whose pod runs on a node, and a folder for files.
struct Shop {
    cluster: &'static Cluster,
    namespace: String,
    folder: tempfile::TempDir,
    /// Recorders of other tests would be seen.
    _alone: MutexGuard<'static, ()>,
}

const CONTAINER: &str = "4f1c0de2b7a94d4f8e5b6c7d8e9f00112233445566778899aabbccddeeff0011";

impl Shop {
    fn open() -> Option<Shop> {
        let cluster = cluster()?;
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let shop = Shop {
            cluster,
            namespace: cluster.namespace(),
            folder: tempfile::tempdir().unwrap(),
            _alone: alone,
        };
        symlink(env!("CARGO_BIN_EXE_cpumax"), shop.file("kubectl-cpumax")).unwrap();
        let spec = "containers: [{name: app, image: x, \
                    resources: {requests: {cpu: 200m}, limits: {cpu: 1}}}]";
        let object = crate::object;
        let uid = |kind: &str| {
            let get = ["get", kind, "web", "-o", "jsonpath={.metadata.uid}"];
            shop.kubectl(&get, "")
        };
        let owned = |kind: &str, owner: &str| {
            let owner = format!(
                "name: web, ownerReferences: [{{apiVersion: apps/v1, kind: {owner}, name: web, \
                 controller: true, uid: {}}}]",
                uid(owner)
            );
            object(kind, spec).replace("name: web}, spec", &format!("{owner}}}, spec"))
        };
        // The server resizes pods of nodes that it knows.
        let node = "{apiVersion: v1, kind: Node, metadata: {name: n1}, \
                    status: {allocatable: {cpu: 4, memory: 4Gi, pods: 9}}}";
        let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        shop.kubectl(&apply, node);
        shop.kubectl(&[&apply[..], &["--subresource", "status"]].concat(), node);
        shop.kubectl(&["create", "-f", "-"], &object("Deployment", spec));
        shop.kubectl(&["create", "-f", "-"], &owned("ReplicaSet", "Deployment"));
        let pod = owned("Pod", "ReplicaSet").replace("spec: {", "spec: {nodeName: n1, ");
        shop.kubectl(&["create", "-f", "-"], &pod);
        let status = format!(
            "status: {{phase: Running, containerStatuses: [{{name: app, image: x, imageID: x, \
             ready: true, restartCount: 0, containerID: 'containerd://{CONTAINER}', \
             state: {{running: {{}}}}, resources: {{limits: {{cpu: 1}}}}}}]}}"
        );
        shop.kubectl(&["patch", "pod", "web", "--subresource", "status", "-p", &status], "");
        Some(shop)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn kubectl(&self, words: &[&str], input: &str) -> String {
        self.cluster.kubectl(&self.namespace, words, input).unwrap()
    }

    fn plugin(&self, words: &str, recording: &str) -> Command {
        let mut words: Vec<&str> = words.split(' ').collect();
        words.insert(2, "-n");
        words.insert(3, &self.namespace);
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubernetes");
        let mut command = Command::new(self.file("kubectl-cpumax"));
        command
            .args(words)
            .current_dir(self.folder.path())
            .env("KUBECONFIG", &self.cluster.config)
            .env("KUBECTL_PATH", tests.join("kubectl"))
            .env("KUBECTL", program("kubectl"))
            .env("RECORDING", recording)
            .env("SCRAPE", self.file("scrape"))
            .env("LIMIT", "750m")
            .env("NO_COLOR", "1");
        command
    }

    fn run(&self, words: &str, recording: &str) -> (Option<i32>, String) {
        let Output { status, stdout, stderr } = self.plugin(words, recording).output().unwrap();
        let told = [stdout, stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        (status.code(), told)
    }

    /// Namespaces of recorders that are not being deleted.
    fn left(&self) -> String {
        let rows = "{range .items[*]}{.metadata.name} {.metadata.deletionTimestamp}{\"\\n\"}{end}";
        let all = self.kubectl(
            &[
                "get",
                "namespaces",
                "-l",
                "app.kubernetes.io/name=cpumax",
                "-o",
                &format!("jsonpath={rows}"),
            ],
            "",
        );
        all.lines().filter(|line| line.ends_with(' ')).collect()
    }
}

#[test]
fn four_commands_lead_to_a_limit_that_is_verified() {
    let Some(shop) = Shop::open() else { return };
    let recording =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings/web-closed.perf.data");
    let recording = recording.to_str().unwrap();
    let (status, told) = shop.run("record deploy/web -c app --image x --for 1s", recording);
    assert_eq!(status, Some(0), "{told}");
    assert!(told.contains("web.app.cpumax: 1.0 s"), "{told}");
    assert_eq!(fs::read(shop.file("web.app.cpumax")).unwrap(), fs::read(recording).unwrap());
    assert_eq!(shop.left(), "");
    let words = fs::read_to_string(shop.file("scrape.words")).unwrap();
    assert!(words.contains(&format!("record --pod {CONTAINER} --for 1s -o -")), "{words}");

    let (status, told) = shop.run("advise deploy/web -c app web.app.cpumax --p99 50ms", "");
    assert_eq!(status, Some(0), "{told}");
    assert!(told.contains("The request stays 200m."), "{told}");
    let limit = told.split_once("A limit of ").unwrap().1.split(' ').next().unwrap().to_owned();
    let now = || shop.kubectl(&["get", "deploy", "web", "-o", "jsonpath={..limits.cpu}"], "");
    let (status, told) = shop.run("apply deploy/web -c app --dry-run", "");
    assert!(status == Some(0) && told.contains("Nothing has changed") && now() == "1", "{told}");
    let (status, told) = shop.run("apply deploy/web -c app", "");
    assert!(status == Some(0) && told.contains("rolled out") && now() == limit, "{told}");

    let quota = limit.trim_end_matches('m').parse::<u64>().unwrap() * 100;
    // Kubelet read the first before the limit was in force.
    for (at, time, usage, periods) in [
        (1, 1_699_999_000_000_u64, 0.0, 1),
        (2, 1_700_000_000_000, 1.0, 100),
        (3, 1_700_000_060_000, 52.0, 700),
    ] {
        let labels = format!("{{container=\"app\",pod=\"web\",namespace=\"{}\"}}", shop.namespace);
        let text = format!(
            "container_cpu_usage_seconds_total{labels} {usage} {time}\n\
             container_cpu_cfs_periods_total{labels} {periods} {time}\n\
             container_cpu_cfs_throttled_periods_total{labels} 0 {time}\n\
             container_spec_cpu_quota{labels} {quota} {time}\n\
             container_spec_cpu_period{labels} 100000 {time}\n"
        );
        fs::write(shop.file(&format!("scrape.{at}")), text).unwrap();
    }
    let (status, told) = shop.run("verify deploy/web -c app --for 1s", "");
    assert!(status < Some(2) && told.contains(&format!("{quota} 100000")), "{status:?} {told}");
    assert!(told.contains("watched for 60s, 600 periods"), "{told}");
}

#[test]
fn a_pod_is_resized_or_refused() {
    let Some(shop) = Shop::open() else { return };
    let (status, told) = shop.run("apply pod/web --limit 750m", "");
    assert!(status == Some(0) && told.contains("pod/web has the limit 750m."), "{told}");
    let (status, told) = shop.run("apply pod/web --limit 800m --timeout 1s", "");
    assert!(status == Some(2) && told.contains("does not resize it within 1s"), "{told}");
    for (words, why) in [
        ("apply pod/web --limit 5m", "kubelet sets at least 10m"),
        ("apply pod/web --limit 1,cpu.max.burst=1000", "cannot set a burst"),
        ("apply pod/web --whole-pod --limit 1", "has no resources of the pod itself"),
        ("apply pod/web", "study.json"),
        ("apply pod/none --limit 1", "pods \"none\" not found"),
        ("record deploy/web -c log --image x", "has no container 'log': give --container app"),
    ] {
        let (status, told) = shop.run(words, "");
        assert!(status == Some(2) && told.contains(why), "{words}: {told}");
    }
}

#[test]
fn nothing_is_left_of_a_recorder_that_fails_or_is_interrupted() {
    let Some(shop) = Shop::open() else { return };
    let (status, told) = shop.run("record deploy/web --image x", "none");
    assert!(status == Some(2) && told.contains("web.app.cpumax: no rights"), "{told}");
    let mut child = shop.plugin("record deploy/web --image x", "sleep").spawn().unwrap();
    let began = Instant::now();
    while !shop.file("web.app.cpumax.part").exists() {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
    let kill = Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(kill.success() && child.wait().unwrap().code() == Some(130));
    assert!(!shop.file("web.app.cpumax.part").exists() && !shop.file("web.app.cpumax").exists());
    assert_eq!(shop.left(), "");
    let (status, told) = shop.run("record deploy/web --image x --dry-run", "");
    assert!(status == Some(0) && shop.left().is_empty(), "{told}");
    let objects: serde_json::Value = serde_json::from_str(&told).unwrap();
    let rights = "/items/1/spec/containers/0/securityContext/capabilities";
    let wanted = serde_json::json!({ "drop": ["ALL"], "add": ["BPF", "PERFMON"] });
    assert_eq!(objects.pointer(rights), Some(&wanted));
}

#[test]
fn a_recording_goes_to_standard_output_but_not_beside_a_command() {
    let record = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cpumax"));
        command.args(["record", "--for", "200ms", "-o", "-"]).args(words).output().unwrap()
    };
    let refused = String::from_utf8(record(&["--", "true"]).stderr).unwrap();
    assert!(refused.contains("nor to standard output beside that of a command"), "{refused}");
    let Output { status, stdout, stderr } = record(&["--pid", &std::process::id().to_string()]);
    let told = String::from_utf8(stderr).unwrap();
    if !status.success() {
        return missing(Need::Bpf, told);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.cpumax");
    fs::write(&file, stdout).unwrap();
    let inspect = Command::new(env!("CARGO_BIN_EXE_cpumax")).arg("inspect").arg(&file).output();
    let shown = String::from_utf8(inspect.unwrap().stdout).unwrap();
    assert!(told.starts_with("-: ") && shown.contains("Recorded: process"), "{told} {shown}");
}
