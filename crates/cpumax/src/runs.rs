//! Many runs on many threads: results in the order of the jobs, progress on a terminal, Ctrl-C.

use crate::args::Running;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{self, ResultFile};
use anyhow::{Context, anyhow};
use cpumax_limit::Limit;
use cpumax_machine::kernel::Kernel;
use cpumax_machine::{Error, Options};
use cpumax_outcome::Outcome;
use cpumax_outcome::trace::TraceSink;
use cpumax_report::ChromeTrace;
use cpumax_workload::{GroupIx, Workload};
use indicatif::{ProgressBar, ProgressDrawTarget};
use rayon::prelude::*;
use std::borrow::Cow;
use std::cell::RefCell;
use std::io::BufWriter;
use std::ops::ControlFlow;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Shorter waits are not worth a progress bar.
const SHOWN_AFTER: Duration = Duration::from_secs(2);

/// One run to be done.
#[derive(Debug, Clone)]
pub struct Job<'a> {
    pub workload: &'a Workload,
    /// A limit that a group of the workload has in this run only, and how long it takes.
    pub what_if: Option<WhatIf>,
    pub kernel: Kernel,
    pub seed: u64,
    /// Where its events go.
    pub trace: Option<PathBuf>,
}

/// What is different in one run.
#[derive(Debug, Clone, Copy)]
pub struct WhatIf {
    pub group: GroupIx,
    pub limit: Limit,
    pub duration_ns: u64,
}

impl Job<'_> {
    fn name(&self) -> String {
        format!("{} on {} with seed {}", self.workload.name, self.kernel.version, self.seed)
    }

    fn duration_ns(&self) -> u64 {
        self.what_if.map_or(self.workload.duration_ns, |what_if| what_if.duration_ns)
    }

    /// Copied only while it runs: recordings are large.
    fn workload(&self) -> Cow<'_, Workload> {
        let Some(what_if) = self.what_if else { return Cow::Borrowed(self.workload) };
        let mut workload = self.workload.clone();
        workload.groups[what_if.group as usize].limit = what_if.limit;
        workload.duration_ns = what_if.duration_ns;
        Cow::Owned(workload)
    }
}

/// Does all jobs; the results are in their order. Of several errors the first job's is told.
pub fn all(jobs: &[Job<'_>], running: &Running) -> Result<Vec<Outcome>, Failure> {
    let _watched = interrupt::Watched::begin();
    let threads = running.jobs.map_or(0, usize::from);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    let progress = Progress::new(jobs);
    let results: Vec<Result<Outcome, Failure>> =
        pool.install(|| jobs.par_iter().map(|job| one(job, running, &progress)).collect());
    progress.bar.finish_and_clear();
    results.into_iter().collect()
}

fn one(job: &Job<'_>, running: &Running, progress: &Progress) -> Result<Outcome, Failure> {
    let options = Options {
        check: running.check,
        step_every_tick: running.every_tick,
        noise: running.noise,
        ..Options::new(job.kernel, job.seed)
    };
    let mut trace = job.trace.as_deref().map(Trace::create).transpose()?;
    let mut done_ns = 0;
    let mut report = |now_ns: u64| {
        progress.advance(now_ns.saturating_sub(done_ns));
        done_ns = done_ns.max(now_ns);
        if interrupt::requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let sink = trace.as_mut().map(|trace| &mut trace.events as &mut dyn TraceSink);
    let workload = job.workload();
    let outcome = guarded(|| cpumax_machine::run(&workload, &options, sink, Some(&mut report)));
    let outcome = outcome.map_err(|what| Failure::ModelFault(anyhow!(what).context(job.name())))?;
    progress.advance(job.duration_ns().saturating_sub(done_ns));
    let outcome = outcome.map_err(|error| failure(job, error))?;
    if let Some(trace) = trace {
        trace.write()?;
    }
    Ok(outcome)
}

fn failure(job: &Job<'_>, error: Error) -> Failure {
    if matches!(error, Error::Interrupted(_)) {
        return Failure::Interrupted;
    }
    let fault = matches!(error, Error::Invariant { .. });
    let error = anyhow::Error::new(error).context(job.name());
    if fault { Failure::ModelFault(error) } else { Failure::Input(error) }
}

thread_local! {
    /// What the panic on this thread says; `None` while a panic is none of our business.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Turns a panic of the model, whose assertions are always on, into a text with its place.
fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let kept = PANIC.with_borrow_mut(|slot| {
                slot.as_mut().map(|text| *text = info.to_string().replace('\n', " ")).is_some()
            });
            if !kept {
                before(info);
            }
        }));
    });
    PANIC.set(Some(String::new()));
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    let text = PANIC.take().unwrap_or_default();
    result.map_err(|_| text)
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

/// How far all runs together have come, by simulated time.
struct Progress {
    bar: ProgressBar,
    started: Instant,
    shown: AtomicBool,
}

impl Progress {
    fn new(jobs: &[Job<'_>]) -> Progress {
        let total_ns = jobs.iter().map(Job::duration_ns).fold(0, u64::saturating_add);
        let bar = ProgressBar::with_draw_target(Some(total_ns), ProgressDrawTarget::hidden());
        let runs = if jobs.len() == 1 { "run" } else { "runs" };
        let template = format!("{{bar:40}} {{percent:>3}}% of {} {runs}{{left}}", jobs.len());
        bar.set_style(output::bar_style(&template));
        Progress { bar, started: Instant::now(), shown: AtomicBool::new(false) }
    }

    fn advance(&self, by_ns: u64) {
        let late = self.started.elapsed() >= SHOWN_AFTER;
        if late && !self.shown.swap(true, Ordering::Relaxed) {
            // Draws nothing when standard error is not a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(by_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_model_becomes_a_text_with_its_place() {
        assert_eq!(guarded(|| 3), Ok(3));
        let text =
            guarded(|| assert!(std::hint::black_box(false), "the pool is negative")).unwrap_err();
        assert!(text.contains("the pool is negative") && text.contains("runs.rs"), "{text}");
        assert_eq!(guarded(|| 3), Ok(3));
    }
}
