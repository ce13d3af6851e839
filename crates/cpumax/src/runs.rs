//! Progress of runs on the terminal, and their end by Ctrl-C.

use crate::interrupt;
use crate::output;
use cpumax_report::TraceFiles;
use cpumax_study::{Job, Step, Traced, Watch};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Shorter waits get no progress bar.
const SHOWN_AFTER: Duration = Duration::from_secs(2);

/// Follows runs until dropped. Model runs share one bar, by simulated time; each run of a real
/// kernel has its own.
pub struct Terminal {
    started: Instant,
    shown: AtomicBool,
    bar: ProgressBar,
    machines: MultiProgress,
    /// By run of a real kernel: its name, and its bar while it runs.
    each: Mutex<Vec<(String, Option<ProgressBar>)>>,
    /// Whether real kernels run.
    real: bool,
    /// Files for the events of each run.
    traces: TraceFiles,
    _watched: interrupt::Watched,
}

impl Terminal {
    /// Follows runs of the model, without traces.
    pub fn new() -> Terminal {
        Terminal::tracing(TraceFiles::default(), false)
    }

    /// Follows a wait of this length.
    pub fn waiting(length: Duration) -> Terminal {
        Terminal::following(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX), "the time")
    }

    /// Follows something of this length.
    pub fn following(length: u64, of: &str) -> Terminal {
        let terminal = Terminal::new();
        let template = format!("{{bar:40}} {{percent:>3}}% of {of}{{left}}");
        terminal.bar.set_style(output::bar_style(&template));
        terminal.bar.set_length(length);
        terminal
    }

    /// Follows runs whose events are written to these files.
    pub fn tracing(traces: TraceFiles, real: bool) -> Terminal {
        Terminal {
            started: Instant::now(),
            shown: AtomicBool::new(false),
            bar: ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()),
            machines: MultiProgress::new(),
            each: Mutex::default(),
            real,
            traces,
            _watched: interrupt::Watched::begin(),
        }
    }
}

impl Watch for Terminal {
    fn stopped(&self) -> bool {
        interrupt::requested()
    }

    fn planned(&self, jobs: &[Job]) {
        let runs = jobs.len();
        if self.real {
            *self.each.lock().unwrap_or_else(PoisonError::into_inner) =
                jobs.iter().map(|job| (job.name(), None)).collect();
            self.machines.add(self.bar.clone());
            self.bar.set_style(output::bar_style("{bar:40} {pos} of {len} runs{left}"));
            self.bar.set_length(runs as u64);
            return;
        }
        let of = if runs == 1 { "run" } else { "runs" };
        let template = format!("{{bar:40}} {{percent:>3}}% of {runs} {of}{{left}}");
        self.bar.set_style(output::bar_style(&template));
        self.bar.set_length(jobs.iter().map(Job::duration_ns).fold(0, u64::saturating_add));
        self.bar.set_position(0);
    }

    fn advanced(&self, by_ns: u64) {
        let late = self.started.elapsed() >= SHOWN_AFTER;
        if late && !self.shown.swap(true, Ordering::Relaxed) {
            // Draws nothing if standard error is not a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(by_ns);
    }

    fn step(&self, job: usize, step: Step) {
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((name, slot)) = each.get_mut(job) else { return };
        let bar = slot.get_or_insert_with(|| {
            let style = output::bar_style("{bar:40} {prefix} {msg}");
            self.machines.add(ProgressBar::new(100).with_style(style)).with_prefix(name.clone())
        });
        match step {
            Step::Boots => bar.set_message("boots; later runs skip this"),
            Step::Runs { now_ns, duration_ns } => {
                bar.set_message("");
                bar.set_length(duration_ns);
                bar.set_position(now_ns);
            }
            Step::Done => {
                bar.finish_and_clear();
                *slot = None;
                self.bar.inc(1);
            }
        }
    }

    fn trace(&self, job: usize) -> Traced {
        self.traces.open(job)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
