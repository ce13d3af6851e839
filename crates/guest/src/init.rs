//! Start and end of the guest, and its connection to the program that gives it jobs.
//!
//! As `/init` of a virtual machine the guest mounts file systems, stops background work of the
//! kernel and powers off at the end. On a host it does none of that.

use crate::{hypervisor, kernel, sys};
use std::ffi::CString;
use std::fs;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Jobs in the initramfs, one a line. Jobs that come with the machine make a run independent of
/// input timing.
const JOBS: &str = "/jobs";
/// Serial port that a virtual machine uses for the connection.
const PORT: &str = "/dev/ttyS1";

/// Settings that stop background work of the kernel.
const QUIET: [(&str, &str); 13] = [
    ("/proc/sys/kernel/sched_autogroup_enabled", "0"),
    ("/proc/sys/kernel/sched_rt_runtime_us", "-1"),
    ("/proc/sys/kernel/watchdog", "0"),
    ("/proc/sys/kernel/printk", "4"),
    ("/proc/sys/vm/stat_interval", "3600"),
    // The kernel scans network neighbours every 5 and 15 s.
    ("/proc/sys/net/ipv4/neigh/default/base_reachable_time_ms", "1000000000"),
    ("/proc/sys/net/ipv4/neigh/default/interval_probe_time_ms", "1000000000"),
    ("/proc/sys/net/ipv6/neigh/default/base_reachable_time_ms", "1000000000"),
    ("/proc/sys/net/ipv6/neigh/default/interval_probe_time_ms", "1000000000"),
    ("/proc/sys/vm/compaction_proactiveness", "0"),
    ("/proc/sys/vm/dirty_writeback_centisecs", "0"),
    ("/sys/module/damon_stat/parameters/enabled", "N"),
    ("/sys/kernel/mm/transparent_hugepage/khugepaged/defrag", "0"),
];

/// Set by SIGTERM: the guest ends after it has removed its groups.
static TERMINATED: AtomicBool = AtomicBool::new(false);

/// Handler of SIGTERM: sets a flag that reads of the connection look at.
extern "C" fn on_terminate(_: libc::c_int) {
    TERMINATED.store(true, Relaxed);
}

/// Sets signal handling on a host: ignores SIGINT, SIGHUP and SIGQUIT, which are for the program
/// that gives the jobs, and has SIGTERM set a flag.
pub fn set_signal_handlers() {
    // SAFETY: the handler only stores to an atomic, and without a flag system calls return when it
    // has run.
    unsafe {
        for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
            libc::signal(signal, libc::SIG_IGN);
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_terminate as *const () as usize;
        libc::sigaction(libc::SIGTERM, &raw const action, std::ptr::null_mut());
    }
}

/// The connection to the program that gives jobs: one message a line.
pub struct Connection {
    input: i32,
    output: i32,
    /// Bytes read and not yet returned.
    pending: Vec<u8>,
    /// The input has ended.
    ended: bool,
}

impl Connection {
    /// A connection over standard input and output.
    pub fn standard() -> Connection {
        Connection { input: 0, output: 1, pending: Vec::new(), ended: false }
    }

    /// Takes the jobs that came with a virtual machine, from the hypervisor's firmware device or
    /// else from the file `/jobs`. They replace the input, which ends after them; without any, the
    /// input stays. Before that, the machine may be saved, to be restored at this point.
    ///
    /// # Errors
    /// The firmware device does not answer as it should.
    pub fn take_jobs(&mut self) -> Result<(), String> {
        let given =
            hypervisor::read_jobs().map_err(|error| format!("the firmware device: {error}"))?;
        let jobs = given.map(String::into_bytes).or_else(|| fs::read(JOBS).ok());
        if let Some(jobs) = jobs {
            self.pending = jobs;
            self.ended = true;
        }
        Ok(())
    }

    /// Writes the text and a newline, and waits until a serial port has sent all of it. Errors are
    /// ignored.
    pub fn send(&self, text: &str) {
        write_all(self.output, format!("{text}\n").as_bytes());
        // A serial port is slow, and unsent bytes are lost at power-off.
        // SAFETY: takes a number; anything but a terminal is refused, and has nothing to wait for.
        unsafe { libc::tcdrain(self.output) };
    }

    /// Waits for the next line that is not blank; returns it without its end. `None` at the end of
    /// the input, for a line longer than `max_bytes`, or one that is not UTF-8.
    pub fn read_message(&mut self, max_bytes: u64) -> Option<String> {
        loop {
            if let Some(end) = self.pending.iter().position(|&byte| byte == b'\n') {
                let rest = self.pending.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.pending, rest);
                line.pop();
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return String::from_utf8(line).ok();
            }
            if self.pending.len() as u64 > max_bytes {
                return None;
            }
            if self.ended {
                // The last line may lack its newline.
                let line = std::mem::take(&mut self.pending);
                return String::from_utf8(line).ok().filter(|line| !line.trim().is_empty());
            }
            self.fill();
        }
    }

    /// Appends what can be read to `pending`, waiting for it. Notes the end of the input, also
    /// after an error or SIGTERM.
    fn fill(&mut self) {
        let mut bytes = [0u8; 4096];
        let got = sys::read(self.input, bytes.as_mut_ptr(), bytes.len());
        match got {
            1.. => self.pending.extend_from_slice(&bytes[..got as usize]),
            _ if got == -(libc::EINTR as isize) && !TERMINATED.load(Relaxed) => {}
            _ => self.ended = true,
        }
    }

    /// Reads `fd` to its end, and meanwhile the connection's input into `pending`. `None` if the
    /// input ended or SIGTERM came first, because then no client waits for the answer.
    pub fn read_all_while_connected(&mut self, fd: i32) -> Option<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // An input that had ended before does not count: its jobs are still wanted.
            let input = if self.input == 0 && !self.ended { self.input } else { -1 };
            let mut polled = [poll(fd), poll(input)];
            // SAFETY: there are two elements.
            let found = unsafe { libc::poll(polled.as_mut_ptr(), 2, -1) };
            if TERMINATED.load(Relaxed) {
                self.ended = true;
                return None;
            }
            if found < 0 {
                continue;
            }
            if polled[0].revents != 0 {
                let mut bytes = [0u8; 4096];
                let got = sys::read(fd, bytes.as_mut_ptr(), bytes.len());
                match got {
                    1.. => all.extend_from_slice(&bytes[..got as usize]),
                    _ if got == -(libc::EINTR as isize) => {}
                    _ => return Some(all),
                }
            } else if polled[1].revents != 0 {
                self.fill();
                if self.ended {
                    return None;
                }
            }
        }
    }
}

/// Writes all bytes to a descriptor; gives up silently on an error.
pub fn write_all(fd: i32, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match sys::write(fd, bytes.as_ptr(), bytes.len()) {
            n @ 1.. => bytes = &bytes[n as usize..],
            n if n == -(libc::EINTR as isize) => {}
            _ => return,
        }
    }
}

/// Prepares a virtual machine, as its `/init`: mounts file systems, quiets the kernel, waits for
/// its start to finish, takes kernel threads out of the tasks' way. Opens the serial port as the
/// connection.
///
/// # Errors
/// A file system that could not be mounted, or the serial port.
pub fn set_up_vm() -> Result<Connection, String> {
    for dir in ["/proc", "/sys", "/dev"] {
        let _ = fs::create_dir(dir);
    }
    mount("proc", "/proc", "proc", "")?;
    mount("sysfs", "/sys", "sysfs", "")?;
    mount("devtmpfs", "/dev", "devtmpfs", "")?;
    mount_groups()?;
    // Its settings are optional.
    let _ = mount("debugfs", "/sys/kernel/debug", "debugfs", "");
    for (path, value) in QUIET {
        let _ = fs::write(path, value);
    }
    hypervisor::sleep_after_boot();
    deprioritize_kernel_threads();
    let port = open(PORT, libc::O_RDWR | libc::O_NOCTTY)?;
    make_raw(port);
    Ok(Connection { input: port, output: port, pending: Vec::new(), ended: false })
}

/// Mounts cgroup2 so that moves between groups are cheap, as in the model, where the kernel can
/// (`favordynmods`, 6.0): no move waits for an RCU grace period. From 6.18 on such a mount locks
/// one process instead of all forks (kernel: `cgroup_enable_per_threadgroup_rwsem`). Scenarios in
/// which forks meet moves need the plain mount; grace periods are made short for them.
///
/// # Errors
/// The mount fails.
fn mount_groups() -> Result<(), String> {
    let plain = || mount("cgroup2", "/sys/fs/cgroup", "cgroup2", "");
    if std::env::var_os(cpumax_protocol::hypervisor::FORKS_MEET_MOVES).is_some() {
        let _ = fs::write("/sys/kernel/rcu_expedited", "1");
        return plain();
    }
    mount("cgroup2", "/sys/fs/cgroup", "cgroup2", "favordynmods").or_else(|_| plain())
}

/// Changes the class of kernel threads of the fair class, so that they do not compete with tasks.
/// With one CPU they become real-time and run at once, and the trace shows when. With several CPUs
/// they become `SCHED_IDLE` and run only when a CPU is idle. Failures are ignored.
fn deprioritize_kernel_threads() {
    const KTHREADD: &str = "2";
    let Ok(processes) = fs::read_dir("/proc") else { return };
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        // A name may contain blanks.
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        if rest.split_ascii_whitespace().nth(1) != Some(KTHREADD) {
            continue;
        }
        let alone = kernel::cpus() == 1;
        let class = if alone { libc::SCHED_FIFO } else { libc::SCHED_IDLE };
        let param = libc::sched_param { sched_priority: i32::from(alone) };
        // SAFETY: the calls take a number and a value. A thread that has ended, or may not be
        // changed, stays as it is.
        unsafe {
            if libc::sched_getscheduler(pid) == libc::SCHED_OTHER {
                libc::sched_setscheduler(pid, class, &raw const param);
            }
        }
    }
}

/// Prints the reason of a failure, if any, and powers off a virtual machine. Returns the exit
/// status: 1 with a reason, else 0.
pub fn finish(in_vm: bool, reason: Option<&str>) -> i32 {
    if let Some(reason) = reason {
        eprintln!("cpumax-guest: {reason}");
    }
    if in_vm {
        // SAFETY: nothing is written to any disk; the call takes a number.
        unsafe {
            libc::sync();
            libc::reboot(libc::RB_POWER_OFF);
        }
    }
    i32::from(reason.is_some())
}

/// Mounts file system `kind` from `what` at the path `at`; one that is mounted already is no error.
///
/// # Errors
/// The mount fails; the text names kind and path.
pub fn mount(what: &str, at: &str, kind: &str, options: &str) -> Result<(), String> {
    let c = |text: &str| CString::new(text).unwrap_or_default();
    let (source, target, fs_kind, data) = (c(what), c(at), c(kind), c(options));
    // SAFETY: all of them are C strings.
    let result = unsafe {
        let data = data.as_ptr().cast();
        libc::mount(source.as_ptr(), target.as_ptr(), fs_kind.as_ptr(), 0, data)
    };
    let error = std::io::Error::last_os_error();
    // The kernel may have mounted devtmpfs itself.
    if result < 0 && error.raw_os_error() != Some(libc::EBUSY) {
        return Err(format!("mounting {kind} at {at}: {error}"));
    }
    Ok(())
}

/// Opens a file, to be closed on exec; returns its descriptor. The error names the path.
fn open(path: &str, flags: i32) -> Result<i32, String> {
    let name = CString::new(path).unwrap_or_default();
    // SAFETY: the path is a C string.
    let fd = unsafe { libc::open(name.as_ptr(), flags | libc::O_CLOEXEC) };
    if fd < 0 { Err(format!("{path}: {}", std::io::Error::last_os_error())) } else { Ok(fd) }
}

/// Makes a terminal pass bytes unchanged, without echo; any other file stays as it is.
fn make_raw(fd: i32) {
    // SAFETY: all zeroes is a value of it, and the calls have room to write to.
    unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        if libc::tcgetattr(fd, &raw mut settings) == 0 {
            libc::cfmakeraw(&raw mut settings);
            libc::tcsetattr(fd, libc::TCSANOW, &raw const settings);
        }
    }
}
