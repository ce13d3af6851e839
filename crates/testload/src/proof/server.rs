//! Starts a server, and ends it with all its processes.

use crate::stop::Stop;
use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// Shipped files of the servers, by name.
const FILES: &[(&str, &str)] = &[
    ("threads.py", include_str!("../../servers/threads.py")),
    ("loop.py", include_str!("../../servers/loop.py")),
    ("forking.py", include_str!("../../servers/forking.py")),
    ("server.js", include_str!("../../servers/server.js")),
    ("server.go", include_str!("../../servers/server.go")),
    ("Server.java", include_str!("../../servers/Server.java")),
    ("wrk.lua", include_str!("../../servers/wrk.lua")),
    ("sum.sql", include_str!("../../servers/sum.sql")),
    ("think.sql", include_str!("../../servers/think.sql")),
    ("nginx.conf", include_str!("../../servers/nginx.conf")),
    ("tiers.conf", include_str!("../../servers/tiers.conf")),
];

pub struct ServerDir {
    pub dir: PathBuf,
    pub port: u16,
}

impl ServerDir {
    /// Creates a directory with the shipped files.
    pub fn make() -> Result<ServerDir> {
        let dir = std::env::temp_dir().join(format!("cpumax-proof-{}", std::process::id()));
        fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        // PostgreSQL runs as another user.
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))?;
        let place = ServerDir { dir, port: free_port()? };
        for (name, text) in FILES {
            let text = text
                .replace("@PORT@", &place.port.to_string())
                .replace("@BEHIND@", &place.behind().to_string())
                .replace("@DIR@", &place.dir.to_string_lossy());
            place.write(name, &text)?;
        }
        Ok(place)
    }

    /// Port of a server behind the first.
    pub fn behind(&self) -> u16 {
        self.port ^ 1
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.file(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    pub fn postgres(&self) -> [OsString; 6] {
        let port = self.port.to_string();
        let dir = self.file("postgres").into_os_string();
        ["-h".into(), dir, "-p".into(), port.into(), "-U".into(), "postgres".into()]
    }
}

impl Drop for ServerDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("testload: cannot remove {}: {error}", self.dir.display());
        }
    }
}

fn free_port() -> Result<u16> {
    let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    Ok(free().context("no free port on 127.0.0.1")?.local_addr()?.port())
}

/// A server that listens; ended when dropped.
#[derive(Debug)]
pub struct Running {
    name: &'static str,
    child: Child,
}

impl Running {
    /// Starts it as the leader of a process group, and waits until it listens.
    pub fn start(
        name: &'static str,
        mut command: Command,
        place: &ServerDir,
        stop: &Stop,
    ) -> Result<Running> {
        let log = place.file(&format!("{name}.log"));
        let output =
            File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
        command.stdout(output.try_clone()?).stderr(output).process_group(0);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let mut running = Running { name, child };
        let begin = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, place.port)).is_err() {
            stop.check()?;
            let ended = running.child.try_wait()?.is_some();
            if ended || begin.elapsed() > PATIENCE {
                let said = fs::read_to_string(&log).unwrap_or_default();
                bail!(
                    "{name} {}: {}",
                    if ended { "ended" } else { "does not listen" },
                    said.trim()
                );
            }
            thread::sleep(POLL);
        }
        Ok(running)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn processes(&self) -> Vec<u32> {
        let mut found = vec![self.id()];
        let mut next = 0;
        while let Some(&pid) = found.get(next) {
            found.extend(children(pid));
            next += 1;
        }
        found
    }

    fn signal(&self, signal: Signal) {
        // Fails only if all of them have ended.
        let _ = killpg(Pid::from_raw(self.child.id() as i32), signal);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let others = self.processes();
        // After SIGTERM PostgreSQL waits for its clients; after SIGINT it does not.
        self.signal(Signal::SIGINT);
        self.signal(Signal::SIGTERM);
        let begin = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begin.elapsed() < Duration::from_secs(5)
        {
            thread::sleep(POLL);
        }
        self.signal(Signal::SIGKILL);
        let _ = self.child.wait();
        let left = others.iter().filter(|pid| Path::new(&format!("/proc/{pid}/exe")).exists());
        if left.count() > 0 {
            eprintln!("testload: processes of {} are left", self.name);
        }
    }
}

fn children(pid: u32) -> Vec<u32> {
    let mut children = Vec::new();
    for tid in numbers_in(&Path::new("/proc").join(pid.to_string()).join("task")) {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children"));
        let text = text.unwrap_or_default();
        children.extend(text.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    children
}

/// Numeric entries of a directory of /proc; none if the process has ended.
fn numbers_in(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Path of a program: in the search path, or in Debian's directories of `PostgreSQL`.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    folders.extend(versions.map(|version| version.path().join("bin")));
    folders.into_iter().map(|folder| folder.join(program)).find(|path| path.is_file())
}

pub fn prepare(name: &str, mut command: Command, stop: &Stop) -> Result<()> {
    stop.check()?;
    let output = command.output().with_context(|| format!("cannot start {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {}: {}", output.status, said.trim());
    Ok(())
}

/// A command as user postgres, because `PostgreSQL` refuses to run as root.
pub fn as_postgres(program: &str) -> Result<Command> {
    let program_path = find(program).with_context(|| format!("no program {program}"))?;
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program_path);
    Ok(command)
}

/// Creates a directory that belongs to user postgres.
pub fn make_folder_of_postgres(path: &Path) -> Result<()> {
    let text = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
    let line = text.lines().find(|line| line.starts_with("postgres:"));
    let ids: Vec<u32> = line
        .context("no user postgres")?
        .split(':')
        .skip(2)
        .take(2)
        .filter_map(|id| id.parse().ok())
        .collect();
    ensure!(ids.len() == 2, "/etc/passwd: user postgres has no numbers");
    fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))?;
    std::os::unix::fs::chown(path, Some(ids[0]), Some(ids[1]))
        .with_context(|| format!("cannot give {} to postgres", path.display()))
}
