//! A running virtual machine: its console, the messages of its guest, its monitor, and its end.
//!
//! QEMU dies with the thread that started it, so a `Vm` stays on its thread. Other threads read its
//! output; they end when QEMU does.

use crate::Error;
use crate::qemu::{self, Accelerator, Mode};
use crate::qmp::{self, Monitor, Said};
use crate::seat::Seat;
use crate::turns::Turns;
use cpumax_protocol::{FromGuest, MAX_LINE_BYTES};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The end of a console that is kept, bytes.
const CONSOLE_BYTES: usize = 64 << 10;
/// The largest pipe that an unprivileged user may ask for.
const PIPE_BYTES: usize = 1 << 20;
/// Lines of the console in an error.
const TOLD_LINES: usize = 15;
/// Text of a kernel panic on the console.
const PANIC: &str = "Kernel panic - not syncing";
/// Time between two checks of `Patience::stop`.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time limit for an answer of the monitor, which answers at once unless QEMU hangs.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// Configuration of a machine.
#[derive(Debug, Clone)]
pub struct Machine<'a> {
    /// How time passes.
    pub mode: Mode,
    /// Emulation or KVM.
    pub accelerator: Accelerator,
    /// The kernel's image.
    pub image: &'a Path,
    /// The initramfs, as [`crate::initramfs::build`] makes it.
    pub initramfs: &'a [u8],
    /// More arguments for the kernel command line. Those that the kernel does not know become
    /// environment variables of `/init`.
    pub kernel_arguments: &'a str,
    /// Memory, MiB; `None`: the default of [`qemu::machine_arguments`].
    pub memory_mib: Option<u32>,
    /// Messages for the guest, in the firmware configuration device.
    pub jobs: &'a str,
}

/// State in which a machine begins.
#[derive(Debug)]
pub enum Begin {
    /// It boots.
    Boot,
    /// It continues a saved state, read from this pipe.
    Restore(io::PipeReader),
}

/// Limits of a wait.
#[derive(Clone, Copy)]
pub struct Patience<'a> {
    /// When to give up.
    pub deadline: Instant,
    /// Returns true when everything is to stop.
    pub stop: &'a dyn Fn() -> bool,
}

/// A line from QEMU: from the guest's serial port or from the monitor.
#[derive(Debug)]
enum FromQemu {
    Guest(String),
    Monitor(String),
}

/// A running or stopped machine; dropping it kills QEMU.
#[derive(Debug)]
pub struct Vm {
    child: Child,
    heard: Receiver<FromQemu>,
    /// Guest messages received while waiting for something else.
    pending: VecDeque<FromGuest>,
    monitor: Monitor,
    console: Arc<Mutex<Tail>>,
    complaints: Arc<Mutex<Tail>>,
    events: Vec<String>,
    started: Instant,
    /// The deadline of the current wait, and how long the machine had waited for a CPU before.
    waited: (Option<Instant>, Duration),
    /// Not `Send`: QEMU dies with the thread that started it.
    on_this_thread: PhantomData<*const ()>,
    _seat: Option<Seat>,
}

impl Vm {
    /// Starts a machine.
    ///
    /// # Errors
    /// The host is not x86-64; QEMU is missing or cannot be started.
    pub fn start(machine: &Machine<'_>, begin: Begin) -> Result<Vm, Error> {
        if cfg!(not(target_arch = "x86_64")) {
            return Err(Error::Architecture);
        }
        let [(console, its_console), (guest, its_guest)] = [pipe()?, pipe()?];
        let (monitor, its_monitor) =
            UnixStream::pair().map_err(Error::file("make", "a socket".as_ref()))?;
        let mut arguments = qemu::machine_arguments(machine.mode, machine.accelerator);
        let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        if let Some(mib) = machine.memory_mib {
            add("-m", mib.to_string());
        }
        for (name, pipe) in [("console", &its_console), ("guest", &its_guest)] {
            add("-chardev", format!("file,id={name},path={}", qemu::path_of(pipe)));
            add("-serial", format!("chardev:{name}"));
        }
        add("-chardev", format!("socket,id=monitor,fd={}", its_monitor.as_raw_fd()));
        add("-mon", "chardev=monitor,mode=control".to_owned());
        let jobs = qemu::memory_file("jobs", machine.jobs.as_bytes())?;
        add(
            "-fw_cfg",
            format!("name={},file={}", cpumax_protocol::hypervisor::JOBS, qemu::path_of(&jobs)),
        );
        let initramfs = qemu::memory_file("initramfs", machine.initramfs)?;
        add("-kernel", machine.image.display().to_string());
        add("-initrd", qemu::path_of(&initramfs));
        let kernel = qemu::kernel_arguments(machine.mode, machine.accelerator);
        add("-append", format!("{kernel} {}", machine.kernel_arguments));
        let mut passed =
            vec![its_console.into(), its_guest.into(), its_monitor.into(), jobs, initramfs];
        if let Begin::Restore(pipe) = begin {
            arguments.extend(["-S".to_owned(), "-incoming".to_owned()]);
            arguments.push(format!("fd:{}", pipe.as_raw_fd()));
            passed.push(OwnedFd::from(pipe));
        }
        let is_emulated = machine.accelerator == Accelerator::Emulated;
        let mut environment = None;
        if is_emulated && machine.mode != Mode::Exact {
            let turns = Turns::new()?;
            arguments.extend(turns.arguments);
            passed.push(turns.library);
            environment = Some(turns.environment);
        }
        let seat = if is_emulated { Seat::take() } else { None };
        let mut child = qemu::start(&arguments, environment.as_ref(), passed, seat.as_ref())?;
        let console = Tail::follow(console);
        let complaints = child.stderr.take().map(Tail::follow).unwrap_or_default();
        let (sender, heard) = sync_channel(64);
        read_lines(guest, sender.clone(), FromQemu::Guest);
        let reader = monitor.try_clone().map_err(Error::file("open", "monitor".as_ref()))?;
        read_lines(reader, sender, FromQemu::Monitor);
        let mut vm = Vm {
            child,
            heard,
            pending: VecDeque::new(),
            monitor: Monitor { socket: monitor },
            console,
            complaints,
            events: Vec::new(),
            started: Instant::now(),
            waited: (None, Duration::ZERO),
            on_this_thread: PhantomData,
            _seat: seat,
        };
        vm.ask("qmp_capabilities", &Value::Null, &|| false)?;
        // Its CPU threads exist by now, and do not inherit the short slice.
        if !is_emulated {
            qemu::shorten_timer_thread_slice(vm.child.id());
        }
        Ok(vm)
    }

    /// Waits for the next message of the guest.
    ///
    /// # Errors
    /// A panic, the end of QEMU, no message before the deadline, or a wish to stop.
    pub fn next_message(&mut self, patience: Patience<'_>) -> Result<FromGuest, Error> {
        loop {
            if let Some(message) = self.pending.pop_front() {
                return Ok(message);
            }
            self.receive(patience)?;
        }
    }

    /// Waits until the guest has paused the machine.
    ///
    /// # Errors
    /// As [`Vm::next_message`].
    pub fn wait_until_stopped(&mut self, patience: Patience<'_>) -> Result<(), Error> {
        while !self.events.iter().any(|event| event == "STOP") {
            self.receive(patience)?;
            if let Some(FromGuest::Failed { reason }) = self.pending.front() {
                return Err(Error::Guest { reason: reason.clone() });
            }
        }
        Ok(())
    }

    /// Writes the state of the paused machine into a pipe.
    ///
    /// # Errors
    /// QEMU cannot write the state.
    pub fn save(&mut self, pipe: io::PipeWriter, stop: &dyn Fn() -> bool) -> Result<(), Error> {
        let passed = self.monitor.pass(&pipe, "state");
        passed.map_err(|error| self.qemu_error(&format!("its monitor takes no file: {error}")))?;
        drop(pipe);
        self.answer_to("getfd", stop)?;
        // There is no disk, only memory; the default bandwidth would take minutes.
        self.ask("migrate-set-parameters", &json!({ "max-bandwidth": 1_u64 << 40 }), stop)?;
        self.ask("migrate", &json!({ "uri": "fd:state" }), stop)?;
        loop {
            let state = self.ask("query-migrate", &Value::Null, stop)?;
            match state.pointer("/status").and_then(Value::as_str) {
                Some("completed") => return Ok(()),
                Some("failed" | "cancelled") => {
                    let why = state.pointer("/error-desc").and_then(Value::as_str).unwrap_or("");
                    return Err(self.qemu_error(&format!("its state cannot be saved: {why}")));
                }
                _ => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Waits until the machine has read its saved state, and lets it continue.
    ///
    /// # Errors
    /// The state does not fit this machine, or is not complete before the deadline.
    pub fn resume(&mut self, patience: Patience<'_>) -> Result<(), Error> {
        let stop = patience.stop;
        loop {
            let state = self.ask("query-status", &Value::Null, stop)?;
            if state.pointer("/status").and_then(Value::as_str) != Some("inmigrate") {
                break;
            }
            if Instant::now() >= patience.deadline {
                return Err(self.qemu_error("it waits for more of its state"));
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.ask("cont", &Value::Null, stop).map(drop)
    }

    /// The end of the console so far.
    pub fn console(&self) -> String {
        self.console.lock().unwrap_or_else(PoisonError::into_inner).text()
    }

    fn send(&mut self, command: &str, arguments: &Value) -> Result<(), Error> {
        self.monitor.send(command, arguments).map_err(|error| {
            // If QEMU has ended, its own reason is better.
            if self.has_ended(LOOK_EVERY) {
                self.ended_error()
            } else {
                self.qemu_error(&format!("its monitor does not listen: {error}"))
            }
        })
    }

    /// Whether QEMU ends within that time.
    fn has_ended(&mut self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// Sends a command to the monitor and waits for the answer.
    fn ask(
        &mut self,
        command: &str,
        value: &Value,
        stop: &dyn Fn() -> bool,
    ) -> Result<Value, Error> {
        self.send(command, value)?;
        self.answer_to(command, stop)
    }

    fn answer_to(&mut self, command: &str, stop: &dyn Fn() -> bool) -> Result<Value, Error> {
        let patience = Patience { deadline: Instant::now() + ANSWER_WITHIN, stop };
        loop {
            match self.receive(patience)? {
                Some(Said::Done(value)) => return Ok(value),
                Some(Said::Refused(why)) => {
                    return Err(self.qemu_error(&format!("it refuses to {command}: {why}")));
                }
                _ => {}
            }
        }
    }

    /// Receives the next line. Guest messages and events are stored; an answer of the monitor is
    /// returned.
    fn receive(&mut self, patience: Patience<'_>) -> Result<Option<Said>, Error> {
        loop {
            if (patience.stop)() {
                return Err(Error::Interrupted);
            }
            let left = self.left_until(patience.deadline);
            let heard = self.heard.recv_timeout(left.min(LOOK_EVERY));
            match heard {
                Err(RecvTimeoutError::Timeout) if !left.is_zero() => self.check_panic()?,
                Err(RecvTimeoutError::Timeout) => return Err(self.hung_error()),
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended_error()),
                Ok(FromQemu::Guest(line)) => {
                    // Other text on the serial port is no message.
                    if let Ok(message) = serde_json::from_str(&line) {
                        self.pending.push_back(message);
                    }
                    return Ok(None);
                }
                Ok(FromQemu::Monitor(line)) => match qmp::read(&line) {
                    Said::Event(event) => {
                        self.events.push(event);
                        self.check_panic()?;
                        return Ok(None);
                    }
                    said => return Ok(Some(said)),
                },
            }
        }
    }

    /// Time left until the deadline. The time for which the machine waited for a CPU of a busy host
    /// is added to it.
    fn left_until(&mut self, deadline: Instant) -> Duration {
        if self.waited.0 != Some(deadline) {
            self.waited = (Some(deadline), cpu_wait(self.child.id()));
        }
        let now = Instant::now();
        if now < deadline {
            return deadline.saturating_duration_since(now);
        }
        let waited = cpu_wait(self.child.id()).saturating_sub(self.waited.1);
        (deadline + waited).saturating_duration_since(now)
    }

    fn check_panic(&self) -> Result<(), Error> {
        let console = self.console();
        if console.contains(PANIC) {
            // The rest of the panic is still on its way.
            thread::sleep(LOOK_EVERY);
            return Err(Error::Panic { console: panic_lines(&self.console()) });
        }
        Ok(())
    }

    fn hung_error(&self) -> Error {
        Error::Hung {
            seconds: self.started.elapsed().as_secs(),
            console: last_lines(&self.console()),
        }
    }

    fn ended_error(&mut self) -> Error {
        let status = self.child.wait();
        Tail::wait_for_all(&self.console);
        Tail::wait_for_all(&self.complaints);
        if let Err(panic) = self.check_panic() {
            return panic;
        }
        let said = self.complaints.lock().unwrap_or_else(PoisonError::into_inner).text();
        let said = said.lines().next_back().map_or_else(
            || {
                status
                    .map_or("it has ended".to_owned(), |status| format!("QEMU has ended, {status}"))
            },
            str::to_owned,
        );
        Error::Vm { said, console: last_lines(&self.console()) }
    }

    pub(crate) fn qemu_error(&self, said: &str) -> Error {
        Error::Vm { said: said.to_owned(), console: last_lines(&self.console()) }
    }
}

/// How long the living threads of a process have waited for a CPU: the longest of them. Zero where
/// the kernel does not tell (`/proc/PID/task/TID/schedstat`).
fn cpu_wait(process: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let waited = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').nth(1)?.parse().ok()
    });
    waited.max().map_or(Duration::ZERO, Duration::from_nanos)
}

impl Drop for Vm {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A pipe large enough for all output of a guest. A serial port that waited for its reader would
/// wait for host time, and no two runs would be equal. (A socket takes only a few hundred single
/// bytes.)
fn pipe() -> Result<(io::PipeReader, io::PipeWriter), Error> {
    let (reader, writer) = io::pipe().map_err(Error::file("make", "a pipe".as_ref()))?;
    // Without that it takes 64 KiB.
    let _ = rustix::pipe::fcntl_setpipe_size(&writer, PIPE_BYTES);
    Ok((reader, writer))
}

/// Sends each line, without its end, until the input ends or the receiver is gone.
fn read_lines(
    from: impl Read + Send + 'static,
    sender: SyncSender<FromQemu>,
    wrap: fn(String) -> FromQemu,
) {
    thread::spawn(move || {
        let mut reader = BufReader::new(from);
        loop {
            let mut line = Vec::new();
            let read = reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
            if !matches!(read, Ok(1..)) {
                return;
            }
            let text = String::from_utf8_lossy(&line).trim().to_owned();
            if sender.send(wrap(text)).is_err() {
                return;
            }
        }
    });
}

/// The last bytes of a text.
#[derive(Debug, Default)]
struct Tail {
    bytes: VecDeque<u8>,
    /// The text has ended.
    is_whole: bool,
}

impl Tail {
    /// Reads a text to its end, on a thread of its own.
    fn follow(mut from: impl Read + Send + 'static) -> Arc<Mutex<Tail>> {
        let tail = Arc::new(Mutex::new(Tail::default()));
        let shared = Arc::clone(&tail);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                shared.lock().unwrap_or_else(PoisonError::into_inner).add(&buffer[..count]);
            }
            shared.lock().unwrap_or_else(PoisonError::into_inner).is_whole = true;
        });
        tail
    }

    /// Waits until the text of a machine that has ended is read; for at most five seconds on a busy
    /// host.
    fn wait_for_all(tail: &Mutex<Tail>) {
        const TIMEOUT: Duration = Duration::from_secs(5);
        let since = Instant::now();
        while !tail.lock().unwrap_or_else(PoisonError::into_inner).is_whole {
            if since.elapsed() > TIMEOUT {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        let surplus = self.bytes.len().saturating_sub(CONSOLE_BYTES);
        self.bytes.drain(..surplus);
    }

    fn text(&self) -> String {
        let bytes: Vec<u8> = self.bytes.iter().copied().collect();
        String::from_utf8_lossy(&bytes).replace('\r', "")
    }
}

/// The last lines, with the line of the panic first if it is not among them.
fn panic_lines(text: &str) -> String {
    let told = last_lines(text);
    match text.lines().find(|line| line.contains(PANIC)) {
        Some(why) if !told.contains(PANIC) => format!("{why}\n...\n{told}"),
        _ => told,
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return "(it shows nothing)".to_owned();
    }
    lines[lines.len().saturating_sub(TOLD_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_console_that_shows_nothing_is_said_so() {
        assert_eq!(last_lines("\r\n \n"), "(it shows nothing)");
        assert_eq!(last_lines("a\n\nb\n"), "a\nb");
    }

    #[test]
    fn only_the_end_of_a_long_console_is_kept() {
        let mut tail = Tail::default();
        for _ in 0..CONSOLE_BYTES {
            tail.add(b"ab\r\n");
        }
        assert_eq!(tail.bytes.len(), CONSOLE_BYTES);
        assert!(tail.text().ends_with("ab\n"));
        let told = last_lines(&format!("{}\n\n", tail.text()));
        assert_eq!(told.lines().count(), TOLD_LINES);
    }

    #[test]
    fn the_reason_of_a_panic_is_told_however_long_its_trace() {
        let trace = "at\n".repeat(TOLD_LINES);
        let told = panic_lines(&format!("[ 1.0] {PANIC}: sysrq\n{trace}"));
        assert!(told.starts_with("[ 1.0] Kernel panic - not syncing: sysrq\n...\nat"), "{told}");
        let told = panic_lines(&format!("[ 1.0] {PANIC}: sysrq\nat\n"));
        assert_eq!(told, format!("[ 1.0] {PANIC}: sysrq\nat"));
    }

    #[test]
    fn a_command_to_an_ended_machine_fails_with_its_last_words() {
        let mut child = Command::new("sh")
            .args(["-c", "echo no memory >&2"])
            .stderr(Stdio::piped())
            .spawn()
            .expect("a shell");
        let complaints = child.stderr.take().map(Tail::follow).unwrap_or_default();
        let (socket, _) = UnixStream::pair().expect("a socket");
        let mut vm = Vm {
            child,
            heard: sync_channel(1).1,
            pending: VecDeque::new(),
            monitor: Monitor { socket },
            console: Tail::follow(io::empty()),
            complaints,
            events: Vec::new(),
            started: Instant::now(),
            waited: (None, Duration::ZERO),
            on_this_thread: PhantomData,
            _seat: None,
        };
        let told = vm.send("cont", &Value::Null).unwrap_err().to_string();
        assert!(told.contains("no memory"), "{told}");
    }

    #[test]
    fn a_busy_host_is_told_from_a_machine_that_sleeps() {
        let start = |program: &str| {
            let shell = Command::new("sh").args(["-c", program]).stdin(Stdio::null()).spawn();
            shell.expect("a shell")
        };
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let busy = (0..2 * cpus).map(|_| start("while :; do :; done"));
        let mut all: Vec<Child> = std::iter::once(start("exec sleep 60")).chain(busy).collect();
        thread::sleep(Duration::from_secs(1));
        let waited: Vec<Duration> = all.iter().map(|child| cpu_wait(child.id())).collect();
        for child in &mut all {
            child.kill().and_then(|()| child.wait()).expect("it to end");
        }
        let longest = waited[1..].iter().max();
        assert!(longest > Some(&(2 * waited[0] + Duration::from_millis(200))), "{waited:?}");
        assert_eq!(cpu_wait(u32::MAX), Duration::ZERO);
    }
}
