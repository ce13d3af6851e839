//! One API server for all tests of a program.

use cpumax_require::{Need, found};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// An API server, which ends with its handle or with this process.
pub struct Cluster {
    /// Its end is that of its standard input.
    _process: Child,
    pub config: String,
    namespaces: AtomicU32,
}

/// The API server; `None` where `make kube` has built none.
pub fn cluster() -> Option<&'static Cluster> {
    static ONE: OnceLock<Option<Cluster>> = OnceLock::new();
    ONE.get_or_init(|| found(Need::Kube, Cluster::start())).as_ref()
}

/// The path of this program in the cache.
pub fn program(name: &str) -> PathBuf {
    programs().join(name)
}

fn programs() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("CPUMAX_CACHE")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("cpumax")))
        .or_else(|| Some(set("HOME")?.join(".cache/cpumax")));
    cache.unwrap_or_default().join("kube/bin")
}

impl Cluster {
    /// # Errors
    /// There is none in the cache.
    pub fn start() -> Result<Cluster, String> {
        let program = program("kube-apiserver");
        if !program.exists() {
            return Err(format!("there is no {}: make kube", program.display()));
        }
        let ports = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = ports.map(|port| port.local_addr().unwrap().port().to_string());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubernetes/api-server");
        let mut process = Command::new(script)
            .args(ports)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut config = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut config).unwrap();
        assert!(config.ends_with("config\n"), "the API server does not start");
        config.truncate(config.len() - 1);
        Ok(Cluster { _process: process, config, namespaces: AtomicU32::new(0) })
    }

    /// A new namespace.
    pub fn namespace(&self) -> String {
        let name = format!("n{}", self.namespaces.fetch_add(1, Ordering::Relaxed));
        self.kubectl("default", &["create", "namespace", &name], "").unwrap();
        name
    }

    /// Standard output of kubectl, or its standard error where it fails or warns.
    pub fn kubectl(&self, namespace: &str, words: &[&str], input: &str) -> Result<String, String> {
        let mut command = Command::new(program("kubectl"));
        command.args(words).args(["-n", namespace]).env("KUBECONFIG", &self.config);
        told(command, input)
    }

    /// Runs a line of a shell with kubectl in a folder, on a namespace.
    pub fn sh(&self, namespace: &str, folder: &Path, line: &str) -> Result<String, String> {
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", programs().display());
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{line} -n {namespace}")]).current_dir(folder);
        command.env("KUBECONFIG", &self.config).env("PATH", path);
        told(command, "")
    }
}

fn told(mut command: Command, input: &str) -> Result<String, String> {
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    if output.status.success() && error.is_empty() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(error)
    }
}
