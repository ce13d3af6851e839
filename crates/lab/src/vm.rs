//! A running virtual machine: its console, the lines its guest says, and its end, by whatever
//! cause.
//!
//! It dies with the thread that started it, so it stays on that thread. What it says is read by
//! threads of its own, which end when it does.

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

/// What is kept of a console: its end.
const CONSOLE_BYTES: usize = 64 << 10;
/// The most that a user without rights may ask for.
const PIPE_BYTES: usize = 1 << 20;
/// Lines of the console that an error tells.
const TOLD_LINES: usize = 15;
/// What every kernel says then.
const PANIC: &str = "Kernel panic - not syncing";
/// How often somebody who waits looks whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A monitor answers at once unless the program hangs.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// What a machine is made of.
#[derive(Debug, Clone)]
pub struct Machine<'a> {
    /// How time passes in it.
    pub mode: Mode,
    /// Who executes it.
    pub accelerator: Accelerator,
    /// The kernel.
    pub image: &'a Path,
    /// Its first file system, as [`crate::initramfs::build`] makes it.
    pub initramfs: &'a [u8],
    /// More for the kernel's command line; what the kernel does not know becomes environment of
    /// `/init`.
    pub kernel_arguments: &'a str,
    /// Memory, MiB, where the usual is not enough.
    pub memory_mib: Option<u32>,
    /// What the guest finds instead of messages on its serial line.
    pub jobs: &'a str,
}

/// Where a machine begins.
#[derive(Debug)]
pub enum Begin {
    /// By booting.
    Boot,
    /// In the state that comes from this reader of a pipe.
    Restore(io::PipeReader),
}

/// How long to wait, and whether to go on at all.
#[derive(Clone, Copy)]
pub struct Patience<'a> {
    /// When to give up.
    pub deadline: Instant,
    /// Whether somebody wants everything to stop.
    pub stop: &'a dyn Fn() -> bool,
}

/// What came from a machine.
#[derive(Debug)]
enum Heard {
    Guest(String),
    Monitor(String),
}

/// A machine that runs, or is stopped.
#[derive(Debug)]
pub struct Vm {
    child: Child,
    heard: Receiver<Heard>,
    /// What was heard while something else was waited for.
    kept: VecDeque<FromGuest>,
    monitor: Monitor,
    console: Arc<Mutex<Tail>>,
    complaints: Arc<Mutex<Tail>>,
    events: Vec<String>,
    started: Instant,
    /// For which deadline something is waited for, and how long it had waited for a CPU before
    /// that.
    waited: (Option<Instant>, Duration),
    /// A machine dies with the thread that started it.
    on_this_thread: PhantomData<*const ()>,
    _seat: Option<Seat>,
}

impl Vm {
    /// Starts a machine.
    ///
    /// # Errors
    /// When QEMU is missing or cannot be started.
    pub fn start(machine: &Machine<'_>, begin: Begin) -> Result<Vm, Error> {
        let [(console, its_console), (guest, its_guest)] = [pipe()?, pipe()?];
        let (monitor, its_monitor) =
            UnixStream::pair().map_err(Error::file("make", "a socket".as_ref()))?;
        let mut arguments = qemu::machine(machine.mode, machine.accelerator);
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
        read_lines(guest, sender.clone(), Heard::Guest);
        let reader = monitor.try_clone().map_err(Error::file("open", "monitor".as_ref()))?;
        read_lines(reader, sender, Heard::Monitor);
        let mut vm = Vm {
            child,
            heard,
            kept: VecDeque::new(),
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
        // Its CPUs are there by now, and do not wish for the same.
        if !is_emulated {
            qemu::serve_timers_promptly(vm.child.id());
        }
        Ok(vm)
    }

    /// The next thing the guest says.
    ///
    /// # Errors
    /// A panic, an end, a machine that says nothing for too long, or a wish to stop.
    pub fn next(&mut self, patience: Patience<'_>) -> Result<FromGuest, Error> {
        loop {
            if let Some(message) = self.kept.pop_front() {
                return Ok(message);
            }
            self.hear(patience)?;
        }
    }

    /// Waits until the guest has stopped the machine.
    ///
    /// # Errors
    /// As [`Vm::next`].
    pub fn wait_until_stopped(&mut self, patience: Patience<'_>) -> Result<(), Error> {
        while !self.events.iter().any(|event| event == "STOP") {
            self.hear(patience)?;
            if let Some(FromGuest::Failed { reason }) = self.kept.front() {
                return Err(Error::Guest { reason: reason.clone() });
            }
        }
        Ok(())
    }

    /// Writes the state of the stopped machine into a pipe.
    ///
    /// # Errors
    /// When the state cannot be written.
    pub fn save(&mut self, pipe: io::PipeWriter, stop: &dyn Fn() -> bool) -> Result<(), Error> {
        let passed = self.monitor.pass(&pipe, "state");
        passed.map_err(|error| self.fault(&format!("its monitor takes no file: {error}")))?;
        drop(pipe);
        self.answer_to("getfd", stop)?;
        // Memory is all there is to it; the default would take minutes on purpose.
        self.ask("migrate-set-parameters", &json!({ "max-bandwidth": 1_u64 << 40 }), stop)?;
        self.ask("migrate", &json!({ "uri": "fd:state" }), stop)?;
        loop {
            let state = self.ask("query-migrate", &Value::Null, stop)?;
            match state.pointer("/status").and_then(Value::as_str) {
                Some("completed") => return Ok(()),
                Some("failed" | "cancelled") => {
                    let why = state.pointer("/error-desc").and_then(Value::as_str).unwrap_or("");
                    return Err(self.fault(&format!("its state cannot be saved: {why}")));
                }
                _ => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Waits until the state it was given is there, and lets it go on.
    ///
    /// # Errors
    /// When the state is not one of such a machine, or is not read in time.
    pub fn resume(&mut self, patience: Patience<'_>) -> Result<(), Error> {
        let stop = patience.stop;
        loop {
            let state = self.ask("query-status", &Value::Null, stop)?;
            if state.pointer("/status").and_then(Value::as_str) != Some("inmigrate") {
                break;
            }
            if Instant::now() >= patience.deadline {
                return Err(self.fault("it waits for more of its state"));
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.ask("cont", &Value::Null, stop).map(drop)
    }

    /// The last that the console showed.
    pub fn console(&self) -> String {
        self.console.lock().unwrap_or_else(PoisonError::into_inner).text()
    }

    fn send(&mut self, command: &str, arguments: &Value) -> Result<(), Error> {
        self.monitor.send(command, arguments).map_err(|error| {
            // One that has ended says why.
            if self.has_ended(LOOK_EVERY) {
                self.ended()
            } else {
                self.fault(&format!("its monitor does not listen: {error}"))
            }
        })
    }

    /// Whether it ends within that time.
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

    /// Sends a command and waits for the answer.
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
            match self.hear(patience)? {
                Some(Said::Done(value)) => return Ok(value),
                Some(Said::Refused(why)) => {
                    return Err(self.fault(&format!("it refuses to {command}: {why}")));
                }
                _ => {}
            }
        }
    }

    /// Takes in the next thing it says, and gives back what the monitor answered.
    fn hear(&mut self, patience: Patience<'_>) -> Result<Option<Said>, Error> {
        loop {
            if (patience.stop)() {
                return Err(Error::Interrupted);
            }
            let left = self.left_until(patience.deadline);
            let heard = self.heard.recv_timeout(left.min(LOOK_EVERY));
            match heard {
                Err(RecvTimeoutError::Timeout) if !left.is_zero() => self.look_for_panic()?,
                Err(RecvTimeoutError::Timeout) => return Err(self.hung()),
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
                Ok(Heard::Guest(line)) => {
                    // Whatever else a serial line brings is not meant for us.
                    if let Ok(message) = serde_json::from_str(&line) {
                        self.kept.push_back(message);
                    }
                    return Ok(None);
                }
                Ok(Heard::Monitor(line)) => match qmp::read(&line) {
                    Said::Event(event) => {
                        self.events.push(event);
                        self.look_for_panic()?;
                        return Ok(None);
                    }
                    said => return Ok(Some(said)),
                },
            }
        }
    }

    /// How long is left until then. On a host that is busy with other things a machine gets the
    /// time back for which it waited for a CPU.
    fn left_until(&mut self, deadline: Instant) -> Duration {
        if self.waited.0 != Some(deadline) {
            self.waited = (Some(deadline), waited_for_cpu(self.child.id()));
        }
        let now = Instant::now();
        if now < deadline {
            return deadline.saturating_duration_since(now);
        }
        let waited = waited_for_cpu(self.child.id()).saturating_sub(self.waited.1);
        (deadline + waited).saturating_duration_since(now)
    }

    fn look_for_panic(&self) -> Result<(), Error> {
        let console = self.console();
        if console.contains(PANIC) {
            // The rest of what it has to say is on its way.
            thread::sleep(LOOK_EVERY);
            return Err(Error::Panic { console: panic_lines(&self.console()) });
        }
        Ok(())
    }

    fn hung(&self) -> Error {
        Error::Hung {
            seconds: self.started.elapsed().as_secs(),
            console: last_lines(&self.console()),
        }
    }

    fn ended(&mut self) -> Error {
        let status = self.child.wait();
        Tail::wait_for_all(&self.console);
        Tail::wait_for_all(&self.complaints);
        if let Err(panic) = self.look_for_panic() {
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

    pub(crate) fn fault(&self, said: &str) -> Error {
        Error::Vm { said: said.to_owned(), console: last_lines(&self.console()) }
    }
}

/// How long those threads of a process that still live waited for a CPU; of all, the one that
/// waited longest. None, if this kernel does not say.
fn waited_for_cpu(process: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let waited = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').nth(1)?.parse().ok()
    });
    waited.max().map_or(Duration::ZERO, Duration::from_nanos)
}

impl Drop for Vm {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A pipe that takes all a guest says even when nobody reads for a while: a serial line that has to
/// wait for its reader would wait as long as the host does, and no run would be like another. (A
/// socket takes no more than a few hundred bytes that come one by one.)
fn pipe() -> Result<(io::PipeReader, io::PipeWriter), Error> {
    let (reader, writer) = io::pipe().map_err(Error::file("make", "a pipe".as_ref()))?;
    // Without it, it takes 64 KiB.
    let _ = rustix::pipe::fcntl_setpipe_size(&writer, PIPE_BYTES);
    Ok((reader, writer))
}

/// Sends each line, without its end, until there is nothing more or nobody listens.
fn read_lines(
    from: impl Read + Send + 'static,
    sender: SyncSender<Heard>,
    wrap: fn(String) -> Heard,
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

/// The end of a text that may be long.
#[derive(Debug, Default)]
struct Tail {
    bytes: VecDeque<u8>,
    /// Nothing more comes.
    is_whole: bool,
}

impl Tail {
    /// Reads all there is, on a thread of its own.
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

    /// Waits until all of what a machine said that has ended is read, which takes no time unless
    /// this one is busy.
    fn wait_for_all(tail: &Mutex<Tail>) {
        const AT_MOST: Duration = Duration::from_secs(5);
        let since = Instant::now();
        while !tail.lock().unwrap_or_else(PoisonError::into_inner).is_whole {
            if since.elapsed() > AT_MOST {
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

/// The last lines, and before them the one that says why if it is not among them.
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
    fn a_console_that_shows_nothing_is_said_to() {
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
    fn a_machine_that_has_ended_says_why_where_it_is_told_something() {
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
            kept: VecDeque::new(),
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
        let waited: Vec<Duration> = all.iter().map(|child| waited_for_cpu(child.id())).collect();
        for child in &mut all {
            child.kill().and_then(|()| child.wait()).expect("it to end");
        }
        let longest = waited[1..].iter().max();
        assert!(longest > Some(&(2 * waited[0] + Duration::from_millis(200))), "{waited:?}");
        assert_eq!(waited_for_cpu(u32::MAX), Duration::ZERO);
    }
}
