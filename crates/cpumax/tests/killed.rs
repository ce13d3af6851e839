//! Nothing is left of `cpumax` however it ends: no machine, guest, group or file. One test needs
//! virtual machines, the other control groups.

use cpumax_require::{Need, found, missing};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const KERNEL: &str = "6.12";
/// A scenario that takes long in every world.
const SCENARIO: &str = "duration = \"600s\"\n[[group]]\npath = \"/a\"\nmax = \"50000 100000\"\n\
                        [[task]]\n\
                        name = \"t\"\ngroup = \"/a\"\n\
                        program = [{ forever = [{ user = \"1s\" }] }]\n";

/// The folder of kernels; `None` where no kernel can be run.
fn cache() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("CPUMAX_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|folder| folder.join("cpumax")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/cpumax")))?;
    let has_qemu = Command::new("qemu-system-x86_64").arg("--version").output().is_ok();
    let is_here =
        has_qemu && has_guest() && folder.join("kernels").join(KERNEL).join("kernel.json").exists();
    is_here.then_some(folder)
}

fn has_guest() -> bool {
    let built = Path::new(env!("CARGO_BIN_EXE_cpumax")).ancestors().nth(2);
    built.is_some_and(|built| built.join("guest/release/cpumax-guest").exists())
}

/// Descendants of a process whose names begin with `name`.
fn below(parent: u32, name: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((head, rest)) = stat.rsplit_once(") ") else { continue };
        let their_name = head.split_once('(').map_or("", |(_, name)| name);
        let their_parent = rest.split(' ').nth(1).and_then(|text| text.parse().ok());
        let is_zombie = rest.starts_with('Z');
        if their_parent == Some(parent) && their_name.starts_with(name) && !is_zombie {
            found.push(pid);
        }
    }
    found
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} for two minutes");
        thread::sleep(Duration::from_millis(20));
    }
}

fn is_gone(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.append(&mut files(&path));
        }
        all.insert(path);
    }
    all
}

fn start(arguments: &[&str], folder: &Path) -> Child {
    cpumax_require::children_end_by_signals();
    Command::new(env!("CARGO_BIN_EXE_cpumax"))
        .args(arguments)
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Starts a command, waits for its child process, sends a signal, and waits until both are gone.
/// Returns the output if the command ended before.
fn ended_by(name: &str, arguments: &[&str], child_name: &str, folder: &Path) -> Option<Output> {
    let child = start(arguments, folder);
    let found = wait_for("nothing was started", || {
        let found = below(child.id(), child_name);
        (is_gone(child.id()) || !found.is_empty()).then_some(found)
    });
    if found.is_empty() {
        let output = child.wait_with_output().unwrap();
        missing(Need::Vm, String::from_utf8_lossy(&output.stderr));
        return None;
    }
    // Lets the child complete its start.
    thread::sleep(Duration::from_millis(300));
    signal(&child, name);
    let output = child.wait_with_output().unwrap();
    for pid in found {
        wait_for("what was started is there", || is_gone(pid).then_some(()));
    }
    Some(output)
}

#[test]
fn machines_end_with_whoever_started_them() {
    let cache = cache().ok_or_else(|| format!("QEMU, the guest or the kernel {KERNEL}"));
    let Some(cache) = found(Need::Vm, cache) else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("long.toml"), SCENARIO).unwrap();
    let trace = folder.path().join("trace.json");
    fs::write(&trace, "of before").unwrap();
    let one = tempfile::tempdir().unwrap();
    let keep = one.path().join("found");
    let commands: [&[&str]; 4] = [
        &["run", "long.toml", "--on", "vm", "--kernel", KERNEL, "--trace", "trace.json"],
        &["compare", "long.toml", "--kernel", KERNEL],
        &["search", "--kernel", KERNEL, "--cases", "1000", "--keep", keep.to_str().unwrap()],
        &["lab", "run", KERNEL, "--", env!("CARGO_BIN_EXE_cpumax")],
    ];
    for arguments in &commands[..3] {
        for name in ["-INT", "-KILL"] {
            let ended = ended_by(name, arguments, "qemu-system", folder.path());
            let Some(output) = ended else { return };
            if name == "-INT" {
                assert_eq!(output.status.code(), Some(130), "{arguments:?} {output:?}");
            }
        }
    }
    // A dynamic program is refused before anything starts.
    let output = start(commands[3], folder.path()).wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && told.contains("link it statically"), "{told}");
    let left = files(&cache.join("snapshots"));
    let of_ours = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "copy");
    assert_eq!(left.iter().find(of_ours), None);
    let left: Vec<PathBuf> = files(folder.path()).into_iter().collect();
    assert_eq!(left, [folder.path().join("long.toml"), trace.clone()]);
    assert_eq!(fs::read_to_string(trace).unwrap(), "of before");
}

#[test]
fn on_the_host_tasks_and_groups_go_with_whoever_started_them() {
    let is_root = fs::read_to_string("/proc/self/status").unwrap().contains("\nUid:\t0\t");
    if !has_guest() || !is_root {
        missing(Need::Cgroup, "root, or the guest (`make guest`)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("long.toml"), SCENARIO).unwrap();
    let before = groups();
    for (name, is_guest) in [("-INT", false), ("-KILL", false), ("-KILL", true)] {
        let arguments = ["run", "long.toml", "--on", "host"];
        let child = start(&arguments, folder.path());
        let found = wait_for("no group was made", || {
            let more: Vec<PathBuf> = groups().difference(&before).cloned().collect();
            let ended = is_gone(child.id());
            (ended || !more.is_empty()).then_some(more)
        });
        if found.is_empty() {
            let output = child.wait_with_output().unwrap();
            missing(Need::Cgroup, String::from_utf8_lossy(&output.stderr));
            return;
        }
        if is_guest {
            let guest = below(child.id(), "cpumax-guest")[0].to_string();
            Command::new("kill").args([name, &guest]).status().unwrap();
        } else {
            signal(&child, name);
        }
        let output = child.wait_with_output().unwrap();
        assert!(!is_guest || !found.iter().any(|group| group.exists()), "{output:?}");
        assert!(name == "-KILL" || output.status.code() == Some(130), "{output:?}");
        let left = || found.iter().any(|group| group.exists());
        wait_for("groups are there", || (!left()).then_some(()));
    }
}

/// Control groups with names of cpumax.
fn groups() -> BTreeSet<PathBuf> {
    let is_ours = |path: &PathBuf| path.is_dir() && path.to_string_lossy().contains("cpumax");
    files(Path::new("/sys/fs/cgroup")).into_iter().filter(is_ours).collect()
}
