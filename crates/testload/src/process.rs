//! A child process: its lines of output with a timeout; killed when dropped.

use crate::stop::Stop;
use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(180);
const POLL: Duration = Duration::from_millis(100);

pub struct Process {
    name: String,
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    /// Starts this program with other arguments.
    pub fn testload(arguments: &[String]) -> Result<Process> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments);
        Process::start(&arguments[0], command)
    }

    pub fn start(name: &str, mut command: Command) -> Result<Process> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let stdout = child.stdout.take().context("no output of a child")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Process { name: name.to_owned(), child, lines })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line of its output, within [`PATIENCE`].
    pub fn line(&self, stop: &Stop) -> Result<String> {
        let begin = Instant::now();
        loop {
            stop.check()?;
            match self.lines.recv_timeout(POLL) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Disconnected) => bail!("{} ended early", self.name),
                Err(RecvTimeoutError::Timeout) if begin.elapsed() > PATIENCE => {
                    bail!("{} says nothing for {} s", self.name, PATIENCE.as_secs())
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Waits for the end of the process; returns the rest of its output.
    pub fn output(mut self, stop: &Stop) -> Result<String> {
        let mut text = String::new();
        loop {
            stop.check()?;
            match self.lines.recv_timeout(POLL) {
                Ok(line) => {
                    text.push_str(&line);
                    text.push('\n');
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        let status = self.child.wait()?;
        ensure!(status.success(), "{}: {status}", self.name);
        Ok(text)
    }

    /// Tells a load that waits to start.
    pub fn go(&mut self) -> Result<()> {
        let stdin = self.child.stdin.as_mut().context("no input of a child")?;
        stdin.write_all(b"go\n")?;
        stdin.flush()?;
        Ok(())
    }

    /// Sends SIGINT and waits for the end.
    pub fn interrupt(mut self) -> Result<()> {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGINT)
            .with_context(|| format!("cannot interrupt {}", self.name))?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
