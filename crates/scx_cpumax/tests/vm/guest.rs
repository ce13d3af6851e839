// SPDX-License-Identifier: GPL-2.0-only
//! The first process of the virtual machine: sets the machine up, carries out the checks that the
//! kernel's command line names, and powers off.
//!
//! The module also has the parts of which checks consist: groups, loads in them, the scheduler, and
//! what they report.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::checks::CHECKS;

pub const CGROUPS: &str = "/sys/fs/cgroup";
const END_TIME_MAX_S: u64 = 30;
const LOG: &str = "/tmp/scx.log";
const SOCKET: &str = "/run/scx_cpumax.sock";
/// Quotas of debt above which a group gets no runtime: `CBW_DARK_QUOTAS`.
const DARK_QUOTAS: f64 = 4.0;
/// The file in which loads count, if they are asked to.
pub const COUNT: &str = "/tmp/count";

/// Result of a check: nothing, or what is wrong.
pub type Checked = Result<String, String>;

/// Never returns: the machine is off afterwards.
pub fn main() -> ! {
    for (kind, at) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/tmp"),
        ("tmpfs", "/run"),
        ("cgroup2", CGROUPS),
        ("tracefs", "/sys/kernel/tracing"),
        ("debugfs", "/sys/kernel/debug"),
    ] {
        mount(kind, at);
    }
    let _ = fs::write(format!("{CGROUPS}/cgroup.subtree_control"), "+cpu");
    // An initramfs without device nodes leaves the first process without a console.
    if let Ok(console) = File::options().read(true).write(true).open("/dev/ttyS0") {
        for descriptor in 0..3 {
            // SAFETY: copies an open descriptor over the standard ones.
            unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&console), descriptor) };
        }
    }
    // The console's thread would use up to a tenth of the only CPU.
    let _ = fs::write("/sys/module/damon_stat/parameters/enabled", "N");
    let mut port = File::options().write(true).open("/dev/ttyS1").expect("the second serial port");
    let names = argument("cpumax.checks").unwrap_or_default();
    for name in names.split(',') {
        let Some(check) = CHECKS.iter().find(|check| check.name == name) else {
            let _ = writeln!(port, "FAIL {name}: no such check");
            continue;
        };
        let before = kernel_complaints().len();
        let outcome = panic::catch_unwind(check.run).unwrap_or_else(|_| {
            // The kernel's report of a scheduler that it removed meanwhile.
            eprintln!("{}", fs::read_to_string(LOG).unwrap_or_default());
            Err("panicked, see the console".to_owned())
        });
        kill_all();
        let complaints = kernel_complaints();
        let outcome = match outcome {
            Ok(_) if complaints.len() > before && !check.ends_badly => {
                Err(format!("the kernel complained: {}", complaints[before..].join(" / ")))
            }
            Err(wrong) if complaints.len() > before => {
                Err(format!("{wrong}; the kernel complained: {}", complaints[before..].join(" / ")))
            }
            other => other,
        };
        let _ = match outcome {
            Ok(said) if said.starts_with("skipped") => writeln!(port, "SKIP {name}: {said}"),
            Ok(said) if said.is_empty() => writeln!(port, "PASS {name}"),
            Ok(said) => writeln!(port, "PASS {name} ({said})"),
            // Debian's 7.1 hides a function that every scheduler with its own queues needs.
            Err(wrong) if wrong.contains("to BPF, which is needed") => {
                writeln!(port, "SKIP {name}: {wrong}")
            }
            Err(wrong) => writeln!(port, "FAIL {name}: {wrong}"),
        };
    }
    // SAFETY: flushes, and takes the machine down.
    unsafe {
        libc::tcdrain(std::os::fd::AsRawFd::as_raw_fd(&port));
        libc::sync();
        libc::reboot(libc::LINUX_REBOOT_CMD_POWER_OFF);
    }
    loop {
        sleep(Duration::from_secs(1));
    }
}

/// The value of a name on the kernel's command line.
pub fn argument(name: &str) -> Option<String> {
    let command_line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let value = |word: &str| Some(word.strip_prefix(name)?.strip_prefix('=')?.to_owned());
    command_line.split_whitespace().find_map(value)
}

pub fn mount(kind: &str, at: &str) {
    let _ = fs::create_dir_all(at);
    let text = |text: &str| std::ffi::CString::new(text).expect("no zero in it");
    let (kind, at) = (text(kind), text(at));
    // SAFETY: three C strings that live through the call.
    unsafe { libc::mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
}

/// Warnings and worse messages of the kernel's log.
fn kernel_complaints() -> Vec<String> {
    let mut buffer = vec![0_u8; 1 << 20];
    // SAFETY: reads the whole log (action 3) into a buffer of the length given.
    let length = unsafe { libc::klogctl(3, buffer.as_mut_ptr().cast(), buffer.len() as i32) };
    buffer.truncate(length.max(0) as usize);
    let text = String::from_utf8_lossy(&buffer).into_owned();
    let bad = [
        "WARNING:",
        "BUG:",
        "Oops",
        "RCU stall",
        "rcu_preempt detected",
        "soft lockup",
        "runnable task stall",
        "blocked for more",
    ];
    let bad = |line: &&str| {
        bad.iter().any(|word| line.contains(word))
            || (line.contains("sched_ext:")
                && line.contains("disabled (")
                && !line.contains("unregistered from user"))
    };
    text.lines().filter(bad).map(str::to_owned).collect()
}

/// Ends all processes that a check left running, and removes its groups.
fn kill_all() {
    for _ in 0..100 {
        // SAFETY: signals all processes but this first one, which a signal cannot kill.
        unsafe { libc::kill(-1, libc::SIGCONT) };
        // SAFETY: as above.
        let none = unsafe { libc::kill(-1, libc::SIGKILL) } != 0;
        let mut status = 0;
        // SAFETY: reaps children that have ended.
        while unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } > 0 {}
        if none {
            break;
        }
        sleep(Duration::from_millis(50));
    }
    for _ in 0..20 {
        if remove_groups(Path::new(CGROUPS)) {
            break;
        }
        sleep(Duration::from_millis(100));
    }
}

fn remove_groups(dir: &Path) -> bool {
    let children: Vec<PathBuf> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    children.iter().all(|child| remove_groups(child) && fs::remove_dir(child).is_ok())
}

/// A running scheduler.
pub struct Scheduler {
    child: Child,
}

impl Scheduler {
    /// Starts the scheduler and waits until it is in charge.
    pub fn start(args: &[&str]) -> Result<Self, String> {
        Self::start_beside(args, || ())
    }

    /// Starts the scheduler and runs a closure while it loads.
    pub fn start_beside(args: &[&str], meanwhile: impl FnOnce()) -> Result<Self, String> {
        let log = File::create(LOG).expect("a log");
        let child = Command::new("/scx_cpumax")
            .args(args)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("it starts");
        let mut this = Self { child };
        meanwhile();
        let patience = Instant::now();
        while !state().starts_with("enabled") || UnixStream::connect(SOCKET).is_err() {
            if let Ok(Some(status)) = this.child.try_wait() {
                // The whole output: the lines of the verifier have no prefix.
                eprintln!("{}", fs::read_to_string(LOG).unwrap_or_default());
                return Err(format!("it ended with {status}: {}", Self::log()));
            }
            if patience.elapsed() > Duration::from_secs(90) {
                return Err(format!("it is not in charge after 90 s: {}", Self::log()));
            }
            sleep(Duration::from_millis(100));
        }
        Ok(this)
    }

    /// Starts a scheduler that should end by itself, and returns its status and output.
    pub fn start_alone(args: &[&str]) -> String {
        let output = Command::new("/scx_cpumax").args(args).output().expect("it starts");
        format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())
    }

    /// Last output of the scheduler, one line each.
    pub fn log() -> String {
        let log = fs::read_to_string(LOG).unwrap_or_default();
        let lines = log.lines().filter(|line| line.starts_with("scx_cpumax: "));
        lines.collect::<Vec<_>>().join(" / ")
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: the child has not been waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Ends the scheduler as ctrl-C does; an error if it had ended before.
    pub fn stop(mut self) -> Result<(), String> {
        self.still_in_charge()?;
        self.signal(libc::SIGINT);
        let mut ended = None;
        let waited = wait_until(END_TIME_MAX_S, || {
            ended = self.child.try_wait().ok().flatten();
            ended.is_some()
        });
        let Some(status) = ended.filter(|_| waited.is_ok()) else {
            // Prints to the console what each CPU runs and which tasks are blocked.
            for what in ["l", "w"] {
                let _ = fs::write("/proc/sysrq-trigger", what);
                sleep(Duration::from_secs(1));
            }
            return Err(format!(
                "it has not ended after {END_TIME_MAX_S} s, waits in {}; at work: {}",
                stacks(self.child.id()),
                at_work()
            ));
        };
        wait_until(5, || state().starts_with("disabled"))
            .map_err(|()| format!("still {} after its end", state()))?;
        if status.success() { Ok(()) } else { Err(format!("{status}: {}", Self::log())) }
    }

    pub fn still_in_charge(&mut self) -> Result<(), String> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Err(format!("it ended with {status}: {}", Self::log()));
        }
        if state().starts_with("enabled") {
            return Ok(());
        }
        let state = state();
        let _ = wait_until(60, || matches!(self.child.try_wait(), Ok(Some(_))));
        // Prints to the console the whole report of the kernel about the scheduler.
        eprintln!("{}", fs::read_to_string(LOG).unwrap_or_default());
        Err(format!("{}: {}", state.trim(), Self::log()))
    }

    /// Waits until the scheduler ends.
    pub fn wait(mut self) -> String {
        let status =
            self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        format!("{status}: {}", Self::log())
    }
}

/// Kernel stacks of the threads of a process.
fn stacks(pid: u32) -> String {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let stacks = threads.map(|thread| fs::read_to_string(thread.path().join("stack")));
    stacks.flatten().map(|stack| stack.trim().replace('\n', " ")).collect::<Vec<_>>().join(" | ")
}

/// Names of the tasks that run or are runnable.
fn at_work() -> String {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats =
        processes.filter_map(|process| fs::read_to_string(process.path().join("stat")).ok());
    let running = stats.filter(|stat| stat.contains(") R ") || stat.contains(") D "));
    running.map(|stat| stat.chars().take(40).collect::<String>()).collect::<Vec<_>>().join(" | ")
}

/// A foreign scheduler from an object file; ended when it is dropped.
pub struct Foreign(#[allow(dead_code, reason = "killed when it is dropped")] Load);

impl Foreign {
    pub fn start(object: &str) -> Result<Self, String> {
        let child = Command::new("/init").args(["load", "scheduler", object]).spawn();
        let this = Self(Load { child: child.map_err(|error| error.to_string())? });
        wait_until(30, || state().starts_with("enabled"))
            .map_err(|()| format!("{object} is not in charge: {}", state()))?;
        Ok(this)
    }

    pub fn stop(self) -> Result<(), String> {
        drop(self);
        wait_until(30, || state().starts_with("disabled"))
            .map_err(|()| format!("a scheduler that was ended is {}", state()))
    }
}

/// The count that a load keeps at the beginning of a file.
pub fn counted(path: &str) -> u64 {
    let bytes = fs::read(path).unwrap_or_default();
    bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

/// First two numbers of the kernel's version.
pub fn kernel_version() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

pub fn state() -> String {
    fs::read_to_string("/sys/kernel/sched_ext/state").unwrap_or_else(|_| "absent".to_owned())
}

/// An error if the used CPUs differ from the expected ones by more than so many percent.
pub fn hold(what: &str, rate: f64, nominal: f64, percent: f64) -> Result<(), String> {
    if (rate / nominal - 1.0).abs() * 100.0 > percent {
        return Err(format!("{what}: {rate:.4} CPUs used of {nominal}"));
    }
    Ok(())
}

/// Runs a closure under the fair class and then under the scheduler, in one machine; returns both
/// results.
pub fn beside_fair<T>(run: impl Fn(bool) -> Result<T, String>) -> Result<(T, T), String> {
    let fair = run(false)?;
    let scheduler = Scheduler::start(&[])?;
    let ours = run(true)?;
    scheduler.stop()?;
    Ok((fair, ours))
}

/// Waits until a condition holds, at most so many seconds.
pub fn wait_until(seconds: u64, mut condition: impl FnMut() -> bool) -> Result<(), ()> {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > Duration::from_secs(seconds) {
            return Err(());
        }
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A cgroup, made with its parents.
#[derive(Clone)]
pub struct Group(pub String);

impl Group {
    pub fn new(path: &str, max: &str) -> Self {
        let mut at = PathBuf::from(CGROUPS);
        for part in path.split('/') {
            if at != Path::new(CGROUPS) {
                let _ = fs::write(at.join("cgroup.subtree_control"), "+cpu");
            }
            at.push(part);
            let _ = fs::create_dir(&at);
        }
        let group = Self(path.to_owned());
        group.set("cpu.max", max);
        group
    }

    pub fn file(&self, name: &str) -> PathBuf {
        Path::new(CGROUPS).join(&self.0).join(name)
    }

    pub fn set(&self, file: &str, value: &str) {
        fs::write(self.file(file), value)
            .unwrap_or_else(|error| panic!("{}/{file} <- {value}: {error}", self.0));
    }

    pub fn usage_us(&self) -> u64 {
        let text = fs::read_to_string(self.file("cpu.stat")).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse().ok()).unwrap_or(0)
    }

    /// CPUs that the group used over about this time; the real time is the divisor.
    pub fn rate(&self, time: Duration) -> f64 {
        let (start, before) = (Instant::now(), self.usage_us());
        sleep(time);
        (self.usage_us() - before) as f64 / start.elapsed().as_micros() as f64
    }

    /// CPUs that the group used over this time, and CPUs that refills have paid, by the kernel's
    /// own account. On the host's clock a CPU of the machine that waits for a CPU of the host seems
    /// to run its task, and the group owes that time. So the check counts usage less debt, and
    /// requires that the debt falls to where the group may go on.
    pub fn rate_paid(&self, time: Duration) -> Result<(f64, f64), String> {
        let number = |stat: &serde_json::Value, name: &str| stat[name].as_f64().unwrap_or(f64::NAN);
        let (before, start) = (self.settled_stat(), Instant::now());
        let (quota, period) = (number(&before, "quota_usec"), number(&before, "period_usec"));
        sleep(time / 2);
        let mut least_owed = f64::INFINITY;
        while start.elapsed() < time {
            sleep(time / 100);
            least_owed = least_owed.min(number(&self.stat(), "debt_usec"));
        }
        let (after, took) = (self.settled_stat(), start.elapsed().as_micros() as f64);
        let more = |name: &str| number(&after, name) - number(&before, name);
        let paid = more("usage_usec") - more("debt_usec") + more("pool_usec");
        let periods = more("nr_periods");
        if least_owed > DARK_QUOTAS * quota {
            return Err(format!("it owes ever more than {DARK_QUOTAS} quotas: {before} / {after}"));
        }
        // There are fewer where the host kept this process from reading the clock.
        if periods * period > took + 2.0 * period || periods * period < took * 0.8 {
            return Err(format!("{periods} refills in {took} us: {before} / {after}"));
        }
        Ok((more("usage_usec") / took, paid / (periods * period)))
    }

    /// Statistics of the scheduler while no task of the group runs, so that all values are of one
    /// moment.
    fn settled_stat(&self) -> serde_json::Value {
        let mut last = self.stat();
        let _ = wait_until(2, || {
            let before = std::mem::replace(&mut last, self.stat());
            ["usage_usec", "nr_periods", "pool_usec"].iter().all(|name| before[name] == last[name])
        });
        last
    }

    /// A load in the group: `/init load ARGS...`.
    pub fn load(&self, args: &[&str]) -> Load {
        self.spawn(args, None)
    }

    /// A load that starts on the given CPU and has never run on another.
    pub fn load_on(&self, cpu: usize, args: &[&str]) -> Load {
        self.spawn(args, Some(cpu))
    }

    fn spawn(&self, args: &[&str], cpu: Option<usize>) -> Load {
        let mut command = Command::new("/init");
        command.arg("load").args(args).stdin(Stdio::null());
        if let Some(cpu) = cpu {
            // SAFETY: the child only sets its affinity between fork and exec; this process has one
            // thread.
            unsafe {
                command.pre_exec(move || {
                    set_cpus(0, &[cpu]);
                    Ok(())
                });
            }
        }
        let child = command.spawn().unwrap_or_else(|error| panic!("load {args:?}: {error}"));
        // The load moves into the group only now: under a small limit starting a program takes
        // very long.
        self.set("cgroup.procs", &child.id().to_string());
        Load { child }
    }

    pub fn hogs(&self, count: usize) -> Vec<Load> {
        (0..count).map(|_| self.load(&["hog"])).collect()
    }

    /// Statistics of the scheduler about the group.
    pub fn stat(&self) -> serde_json::Value {
        let answer = ask(&format!("{{\"group\":\"/{}\",\"tasks\":true}}", self.0));
        answer["groups"][0].clone()
    }

    pub fn number(&self, field: &str) -> u64 {
        self.stat()[field].as_u64().unwrap_or_else(|| panic!("{}: no number {field}", self.0))
    }
}

pub fn ask(request: &str) -> serde_json::Value {
    let mut stream = UnixStream::connect(SOCKET).expect("the socket answers");
    writeln!(stream, "{request}").expect("it listens");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("it answers");
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
}

/// A running load.
pub struct Load {
    child: Child,
}

impl Load {
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: the child has not been waited for.
        unsafe { libc::kill(self.pid(), signal) };
    }

    /// Whether the load has stopped after SIGSTOP.
    pub fn stopped(&self) -> bool {
        fs::read_to_string(format!("/proc/{}/stat", self.pid()))
            .is_ok_and(|stat| stat.contains(") T "))
    }

    /// CPU time used so far, from its own accounting.
    pub fn cpu_us(&self) -> u64 {
        let text =
            fs::read_to_string(format!("/proc/{}/schedstat", self.pid())).unwrap_or_default();
        text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0) / 1000
    }

    /// Kills the load; returns how long it took to end.
    pub fn kill(self) -> Duration {
        let start = Instant::now();
        drop(self);
        start.elapsed()
    }

    /// Sets the CPUs that the load may use, if one of them is online.
    pub fn try_cpus(&self, cpus: &[usize]) {
        try_cpus(self.pid(), cpus);
    }

    /// Sets the CPUs that the load may use; returns how long that took.
    pub fn set_cpus(&self, cpus: &[usize]) -> Duration {
        let start = Instant::now();
        set_cpus(self.pid(), cpus);
        start.elapsed()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sets the CPUs on which the checks themselves run.
pub fn pin_myself(cpus: &[usize]) {
    set_cpus(0, cpus);
}

/// Sets the CPUs of a process, or of the caller for 0.
fn set_cpus(pid: i32, cpus: &[usize]) {
    assert!(try_cpus(pid, cpus), "affinity");
}

/// Sets the CPUs of a process and returns whether that succeeded.
fn try_cpus(pid: i32, cpus: &[usize]) -> bool {
    // SAFETY: a set of plain bits, filled by its own functions.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in cpus {
            libc::CPU_SET(cpu, &mut set);
        }
        libc::sched_setaffinity(pid, size_of::<libc::cpu_set_t>(), &raw const set) == 0
    }
}
