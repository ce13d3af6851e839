//! The host as a world: the guest runs as a subprocess that talks over standard input and output.
//!
//! At the end of its input the guest kills its tasks and removes its groups. So nothing is left
//! however this process ends, and the guest is killed only after it has had time for that. The next
//! guest removes what a killed one has left.

use crate::Error;
use crate::guest::Guest;
use crate::others::MachineUse;
use crate::runner::{Job, Watch, report_of};
use cpumax_protocol::{self as protocol, FromGuest, MAX_LINE_BYTES, Report};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// More than the guest needs to kill tasks and remove groups.
const CLEANING_TIME: Duration = Duration::from_secs(20);

/// The host, with the guest program.
#[derive(Debug)]
pub struct Host {
    guest: Guest,
}

impl Host {
    /// Finds the guest program.
    ///
    /// # Errors
    /// [`Error::NoGuest`].
    pub fn open() -> Result<Host, Error> {
        Ok(Host { guest: Guest::find()? })
    }

    /// Runs a job on the host, as root; it disturbs everything else there. `index` is for `watch`.
    ///
    /// # Errors
    /// [`Error::Refused`] where this machine cannot run the scenario, [`Error::Guest`] for missing
    /// rights or a guest that hangs, [`Error::Interrupted`].
    pub fn run(&self, job: &Job, index: usize, watch: &dyn Watch) -> Result<Report, Error> {
        let before = MachineUse::now();
        let mut report = self.run_guest(job, index, watch)?;
        let note = before.and_then(|before| MachineUse::now()?.note_since(before));
        report.notes.extend(note);
        Ok(report)
    }

    /// Runs a job and waits for the guest's end, so its CPU time counts as this process's
    /// children's.
    fn run_guest(&self, job: &Job, index: usize, watch: &dyn Watch) -> Result<Report, Error> {
        let mut process = Process::start(&self.guest)?;
        process.send(job)?;
        let deadline = Instant::now() + job.patience;
        loop {
            if watch.stopped() {
                return Err(Error::Interrupted);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match process.said.recv_timeout(left.min(LOOK_EVERY)) {
                Ok(FromGuest::Ready(ready)) if ready.protocol != protocol::VERSION => {
                    let path = self.guest.path.clone();
                    let (theirs, ours) = (ready.protocol, protocol::VERSION);
                    return Err(Error::OtherProtocol { path, theirs, ours });
                }
                Ok(message) => {
                    if let Some(report) = report_of(message, index, watch)? {
                        return Ok(report);
                    }
                }
                Err(RecvTimeoutError::Timeout) if !left.is_zero() => {}
                Err(RecvTimeoutError::Timeout) => {
                    let seconds = job.patience.as_secs();
                    return Err(Error::Guest { reason: format!("no answer for {seconds} s") });
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let reason = "it ended without an answer".to_owned();
                    return Err(Error::Guest { reason });
                }
            }
        }
    }
}

/// A running guest; dropping it closes its input and waits for it to clean up.
struct Process {
    program: PathBuf,
    child: Child,
    input: Option<ChildStdin>,
    said: Receiver<FromGuest>,
}

impl Process {
    fn start(guest: &Guest) -> Result<Process, Error> {
        let start = || Error::file("run", &guest.path);
        let mut command = Command::new(&guest.path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C is for us: it would end the guest before it has cleaned up.
        let mut child = command.process_group(0).spawn().map_err(start())?;
        let input = child.stdin.take();
        let (sender, said) = sync_channel(64);
        if let Some(output) = child.stdout.take() {
            thread::spawn(move || {
                let mut reader = BufReader::new(output);
                while let Some(line) = line(&mut reader) {
                    let message = serde_json::from_slice(&line);
                    if message.is_ok_and(|message| sender.send(message).is_err()) {
                        return;
                    }
                }
            });
        }
        Ok(Process { program: guest.path.clone(), child, input, said })
    }

    fn send(&mut self, job: &Job) -> Result<(), Error> {
        let text = serde_json::to_string(&job.message(false)).map_err(io::Error::other);
        let sent = match (&mut self.input, text) {
            (Some(input), Ok(text)) => writeln!(input, "{text}"),
            (_, text) => text.map(drop),
        };
        // A guest that has ended gives the reason on its output.
        sent.or_else(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Ok(()),
            _ => Err(Error::Guest { reason: error.to_string() }),
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.input.take());
        let ended = end(&mut self.child, || while self.said.try_recv().is_ok() {});
        if ended.is_none_or(|status| status.code().is_none()) {
            // It was killed before it had cleaned up; a new guest cleans up after it.
            let mut command = Command::new(&self.program);
            command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
            if let Ok(mut next) = command.spawn() {
                end(&mut next, || {});
            }
        }
    }
}

/// Waits for a guest whose input is closed, and kills it after [`CLEANING_TIME`]. `read` takes its
/// output meanwhile, so that the guest never waits for a reader.
fn end(child: &mut Child, mut read: impl FnMut()) -> Option<ExitStatus> {
    let deadline = Instant::now() + CLEANING_TIME;
    while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
        read();
        thread::sleep(Duration::from_millis(10));
    }
    // Fails only if it has ended.
    let _ = child.kill();
    child.wait().ok()
}

fn line(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    match reader.take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
        Ok(1..) => Some(line),
        _ => None,
    }
}
