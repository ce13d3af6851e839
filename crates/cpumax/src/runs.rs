//! What the terminal has to do with runs of the model: progress is drawn, Ctrl-C stops them, their
//! events go into files.

use crate::failure::Failure;
use crate::interrupt;
use crate::output;
use crate::result_file::ResultFile;
use anyhow::Context;
use cpumax_engine::{Job, OtherError, Running, Watch, runs};
use cpumax_outcome::Outcome;
use cpumax_outcome::trace::{Names, TraceEvent, TraceSink};
use cpumax_report::ChromeTrace;
use indicatif::{ProgressBar, ProgressDrawTarget};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Shorter waits are not worth a progress bar.
const SHOWN_AFTER: Duration = Duration::from_secs(2);

/// Does all jobs; the results are in their order.
pub fn all(jobs: &[Job<'_>], running: &Running, watch: &Terminal) -> Result<Vec<Outcome>, Failure> {
    runs::all(jobs, running, watch).map_err(Failure::of)
}

/// A trace and the file it will be in.
pub struct Trace {
    /// Takes the events.
    pub events: ChromeTrace,
    file: ResultFile,
}

impl Trace {
    /// Sees that the file can be written.
    ///
    /// # Errors
    /// It cannot.
    pub fn create(path: &Path) -> anyhow::Result<Trace> {
        let file = ResultFile::create(path)?;
        let events = ChromeTrace::new().context("cannot make a temporary file for the trace")?;
        Ok(Trace { events, file })
    }

    /// Writes what it took.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(self) -> anyhow::Result<()> {
        let Trace { events, file } = self;
        file.write(|out| events.write(BufWriter::new(out)).map(drop).map_err(Into::into))
    }
}

impl TraceSink for Trace {
    fn event(&mut self, event: TraceEvent) {
        self.events.event(event);
    }

    fn names(&mut self, names: Names) {
        self.events.names(names);
    }
}

impl cpumax_engine::Trace for Trace {
    fn done(self: Box<Self>) -> Result<(), OtherError> {
        Ok(self.write()?)
    }
}

/// Watches runs: how far all together have come is drawn, by simulated time, as long as it lives.
pub struct Terminal {
    bar: ProgressBar,
    started: Instant,
    shown: AtomicBool,
    /// Where the events of each run go.
    traces: Vec<Option<PathBuf>>,
    _watched: interrupt::Watched,
}

impl Terminal {
    /// Of runs whose events go nowhere.
    pub fn new() -> Terminal {
        Terminal::tracing(Vec::new())
    }

    /// Of runs whose events go into these files.
    pub fn tracing(traces: Vec<Option<PathBuf>>) -> Terminal {
        Terminal {
            bar: ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()),
            started: Instant::now(),
            shown: AtomicBool::new(false),
            traces,
            _watched: interrupt::Watched::begin(),
        }
    }
}

impl Watch for Terminal {
    fn stopped(&self) -> bool {
        interrupt::requested()
    }

    fn planned(&self, runs: usize, total_ns: u64) {
        let of = if runs == 1 { "run" } else { "runs" };
        let template = format!("{{bar:40}} {{percent:>3}}% of {runs} {of}{{left}}");
        self.bar.set_style(output::bar_style(&template));
        self.bar.set_length(total_ns);
        self.bar.set_position(0);
    }

    fn advanced(&self, by_ns: u64) {
        let late = self.started.elapsed() >= SHOWN_AFTER;
        if late && !self.shown.swap(true, Ordering::Relaxed) {
            // Draws nothing when standard error is not a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(by_ns);
    }

    fn trace(&self, job: usize) -> Result<Option<Box<dyn cpumax_engine::Trace>>, OtherError> {
        let Some(path) = self.traces.get(job).and_then(Option::as_deref) else { return Ok(None) };
        Ok(Some(Box::new(Trace::create(path)?)))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
