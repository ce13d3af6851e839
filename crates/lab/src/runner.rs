//! Runs scenarios on real kernels: one job in one machine, or many jobs in several machines at a
//! time.
//!
//! ```no_run
//! use cpumax_lab::{Job, Lab, Mode, Quiet};
//! let lab = Lab::open()?;
//! let scenario = std::fs::read_to_string("scenario.toml").unwrap();
//! let job = Job::new("6.18", Mode::Exact, scenario, 1, 5_000_000_000);
//! let report = lab.run(&job, &Quiet)?;
//! println!("{:?} under {:?}", report.outcome.groups, report.conditions);
//! # Ok::<(), cpumax_lab::Error>(())
//! ```

use crate::Error;
use crate::cache::{Cache, Kernel};
use crate::guest::Guest;
use crate::kept::Kept;
use crate::kvm;
use crate::qemu::{self, Accelerator, Mode};
use crate::snapshot::{Boot, Snapshot};
use crate::vm::{Patience, Vm};
use cpumax_protocol::{self as protocol, FromGuest, Ready, Report, ToGuest};
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// One scenario on one kernel with one seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Name of the kernel in `kernels.toml`, e.g. `6.12-rt`. Ignored on the host.
    pub kernel: String,
    /// How time passes. Ignored on the host.
    pub mode: Mode,
    /// Text of the scenario; [`cpumax_workload::print`] writes one.
    pub scenario: String,
    /// Seed of every random stream.
    pub seed: u64,
    /// Number of the repetition, from 0. Each begins some microseconds after the one before it, as
    /// the guest has more bytes to read; otherwise emulated machines would repeat the same run.
    pub run: u16,
    /// As in [`protocol::Job`].
    pub sample_periods: bool,
    /// As in [`protocol::Job`].
    pub trace: bool,
    /// As in [`protocol::Job`].
    pub releases: bool,
    /// More arguments for the kernel command line, e.g. `preempt=full`. Each text needs a boot.
    pub kernel_arguments: String,
    /// Time limit for the result, from the start of the machine.
    pub patience: Duration,
}

impl Job {
    /// A job for a scenario of `duration_ns`, with the patience that it needs.
    pub fn new(kernel: &str, mode: Mode, scenario: String, seed: u64, duration_ns: u64) -> Job {
        Job {
            kernel: kernel.to_owned(),
            mode,
            scenario,
            seed,
            run: 0,
            sample_periods: false,
            trace: false,
            releases: false,
            kernel_arguments: String::new(),
            patience: patience(mode, duration_ns),
        }
    }

    /// The message for the guest.
    pub(crate) fn message(&self, exact: bool) -> ToGuest {
        ToGuest::Job(protocol::Job {
            scenario: self.scenario.clone(),
            seed: self.seed,
            exact,
            sample_periods: self.sample_periods,
            trace: self.trace,
            releases: self.releases,
        })
    }
}

/// Time limit for a result. An emulated machine is slower the more CPUs it has.
fn patience(mode: Mode, duration_ns: u64) -> Duration {
    Duration::from_secs(60) + Duration::from_nanos(duration_ns) * 30 * u32::from(mode.cpus())
}

/// Prefix of notes about the machine in a report.
pub const MACHINE_NOTE: &str = "the machine";

/// Progress of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The machine boots, as no state of it is kept.
    Boots,
    /// The scenario runs.
    Runs {
        /// Time since the start of the run, ns.
        now_ns: u64,
        /// Length of the run, ns.
        duration_ns: u64,
    },
    /// The job has ended, with a result or an error.
    Done,
}

/// Follows jobs, and can stop them.
pub trait Watch: Sync {
    /// Whether to stop all jobs; asked ten times a second.
    fn stopped(&self) -> bool {
        false
    }
    /// Called at each step of a job, with the job's index.
    fn step(&self, _job: usize, _step: Step) {}
}

/// A [`Watch`] that ignores everything.
#[derive(Debug, Clone, Copy)]
pub struct Quiet;

impl Watch for Quiet {}

/// Blanks by which the job grows with each repetition.
const RUNS_APART_BYTES: usize = 256;
/// Kernel function of a crash that QEMU causes: an interrupt right after `cmpxchg16b` corrupts the
/// flags of an emulated CPU, the trap flag among them. Seen once in 500 runs.
const TRAPPED: &str = "exc_debug_kernel";
/// Other flags crash elsewhere; the console then shows flags beyond those that exist.
const FLAGS: &str = "EFLAGS: ";
const ALL_FLAGS: u32 = (1 << 22) - 1;

/// Whether a console shows a crash by corrupted flags.
fn has_corrupt_flags(console: &str) -> bool {
    let are_nonsense = |told: &str| {
        let digits = told.split(|c: char| !c.is_ascii_hexdigit()).next().unwrap_or("");
        u32::from_str_radix(digits, 16).is_ok_and(|flags| flags > ALL_FLAGS)
    };
    console.contains(TRAPPED) || console.split(FLAGS).skip(1).any(are_nonsense)
}
/// Attempts at a job that crashes by corrupted flags, and blanks by which the job grows each time.
/// A few bytes may lead to the same crash.
const TRIES: usize = 4;
const RETRIES_APART_BYTES: usize = 61;

/// Runs jobs: has the kernels, the guest program and QEMU.
#[derive(Debug)]
pub struct Lab {
    pub(crate) cache: Cache,
    pub(crate) guest: Guest,
    qemu_version: String,
    kept: Option<Kept>,
}

impl Lab {
    /// A lab with the user's cache and the guest beside this program.
    ///
    /// # Errors
    /// QEMU or the guest is missing.
    pub fn open() -> Result<Lab, Error> {
        Lab::with_cache(Cache::of_user()?)
    }

    /// A lab with another cache.
    ///
    /// # Errors
    /// As [`Lab::open`].
    pub fn with_cache(cache: Cache) -> Result<Lab, Error> {
        Ok(Lab { cache, guest: Guest::find()?, qemu_version: qemu::version()?, kept: None })
    }

    /// Keeps the result of each run in a folder, and returns results that are in it.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn keeping(self, folder: &Path) -> Result<Lab, Error> {
        Ok(Lab { kept: Some(Kept::open(folder)?), ..self })
    }

    /// A fetched kernel.
    ///
    /// # Errors
    /// As [`Cache::kernel`].
    pub fn kernel(&self, name: &str) -> Result<Kernel, Error> {
        self.cache.kernel(name)
    }

    /// Properties of a machine, from its guest. Boots it if no state of it is kept.
    ///
    /// # Errors
    /// The machine does not boot.
    pub fn ready(&self, kernel: &str, mode: Mode, watch: &dyn Watch) -> Result<Ready, Error> {
        let kernel = self.kernel(kernel)?;
        let mut boot = self.boot(&kernel, mode, "");
        Ok(self.snapshot(&mut boot, 0, watch)?.ready)
    }

    /// Runs one job. On an emulated machine the same job gives the same report, to the byte.
    ///
    /// The outcome's `kernel` is the job's; its `generation` is empty.
    ///
    /// # Errors
    /// [`Error::Refused`] where the machine cannot run the scenario; a kernel not fetched; a panic
    /// or a guest that hangs, as in some scenarios; an interruption.
    pub fn run(&self, job: &Job, watch: &dyn Watch) -> Result<Report, Error> {
        self.run_indexed(0, job, watch)
    }

    /// Runs jobs, `side_by_side` at a time (at least one). Results are in the order of the jobs and
    /// do not depend on other jobs.
    pub fn run_all(
        &self,
        jobs: &[Job],
        side_by_side: usize,
        watch: &dyn Watch,
    ) -> Vec<Result<Report, Error>> {
        run_each(jobs, side_by_side, watch, |index, job| self.run_indexed(index, job, watch))
    }

    /// Boots kernels, `side_by_side` at a time, and keeps their states. Skips those with a kept
    /// state, and modes with more CPUs than a machine can have.
    ///
    /// # Errors
    /// The first boot that fails.
    pub fn boot_all(
        &self,
        kernels: &[(String, Mode)],
        side_by_side: usize,
        watch: &dyn Watch,
    ) -> Result<(), Error> {
        let ready = |_, (name, mode): &(String, Mode)| match refuse_too_many(*mode) {
            Ok(()) => self.ready(name, *mode, watch).map(drop),
            Err(_) => Ok(()),
        };
        run_each(kernels, side_by_side, watch, ready).into_iter().collect()
    }

    fn run_indexed(&self, index: usize, job: &Job, watch: &dyn Watch) -> Result<Report, Error> {
        let kernel = self.kernel(&job.kernel)?;
        refuse_too_many(job.mode)?;
        let mut boot = self.boot(&kernel, job.mode, &job.kernel_arguments);
        let message = job.message(job.mode == Mode::Exact);
        let mut line = serde_json::to_string(&message)
            .map_err(|error| Error::Guest { reason: error.to_string() })?;
        line.push_str(&" ".repeat(usize::from(job.run) * RUNS_APART_BYTES));
        line.push('\n');
        let answer = match &self.kept {
            Some(kept) => {
                if boot.accelerator == Accelerator::Kvm {
                    // The fallback from KVM decides the digest of the kept result.
                    self.snapshot(&mut boot, index, watch)?;
                }
                let run = || self.run_to_answer(&mut { boot }, &line, index, job, watch);
                kept.answer_or_run(&boot, message, &line, run)?
            }
            None => self.run_to_answer(&mut boot, &line, index, job, watch)?,
        };
        match answer {
            FromGuest::Result(mut report) => {
                report.outcome.kernel.clone_from(&job.kernel);
                report.notes.extend(match boot.accelerator {
                    Accelerator::Kvm => Some(format!(
                        "{MACHINE_NOTE} was run by the host's CPUs (KVM), not emulated"
                    )),
                    Accelerator::Emulated => None,
                });
                Ok(*report)
            }
            FromGuest::Refused { reason } => Err(Error::Refused { reason }),
            other => Err(Error::Guest { reason: format!("its last word is {other:?}") }),
        }
    }

    /// Runs a job in a machine; returns a result or a refusal.
    fn run_to_answer(
        &self,
        boot: &mut Boot<'_>,
        line: &str,
        index: usize,
        job: &Job,
        watch: &dyn Watch,
    ) -> Result<FromGuest, Error> {
        let stop = || watch.stopped();
        let mut tries = 0;
        let mut is_new = false;
        loop {
            let later = " ".repeat(tries * RETRIES_APART_BYTES);
            let snapshot = self.snapshot(boot, index, watch)?;
            let mut vm = match snapshot.start(boot, &format!("{later}{line}"), &stop) {
                // The kept state cannot be restored: make a new one, once.
                Err(Error::Vm { .. }) if !is_new => {
                    is_new = true;
                    Snapshot::discard(boot, &self.cache);
                    continue;
                }
                started => started?,
            };
            tries += 1;
            let patience = Patience { deadline: Instant::now() + job.patience, stop: &stop };
            let answer = match wait_for_report(&mut vm, patience, index, watch) {
                Ok(report) => Ok(FromGuest::Result(Box::new(report))),
                Err(Error::Refused { reason }) => Ok(FromGuest::Refused { reason }),
                Err(Error::Panic { .. }) if tries < TRIES && has_corrupt_flags(&vm.console()) => {
                    continue;
                }
                Err(error) => Err(error),
            };
            let name = format!("{}-{}", job.kernel, job.mode.name());
            return self.cache.with_console(answer, &vm.console(), &name);
        }
    }

    /// Number of host CPUs that a machine keeps busy.
    pub fn host_cpus(&self, mode: Mode) -> u16 {
        match self.accelerator(mode) {
            Accelerator::Emulated => 1,
            Accelerator::Kvm => mode.cpus(),
        }
    }

    fn accelerator(&self, mode: Mode) -> Accelerator {
        match mode {
            Mode::Parallel { .. } if kvm::may_work(&self.cache) => Accelerator::Kvm,
            _ => Accelerator::Emulated,
        }
    }

    fn boot<'a>(&'a self, kernel: &'a Kernel, mode: Mode, kernel_arguments: &'a str) -> Boot<'a> {
        Boot {
            kernel,
            mode,
            accelerator: self.accelerator(mode),
            guest: &self.guest.bytes,
            kernel_arguments,
            qemu_version: &self.qemu_version,
        }
    }

    /// The state to begin in. If a boot with KVM fails, `boot` becomes an emulated machine.
    fn snapshot(
        &self,
        boot: &mut Boot<'_>,
        index: usize,
        watch: &dyn Watch,
    ) -> Result<Snapshot, Error> {
        let told = || watch.step(index, Step::Boots);
        let of =
            |boot: &Boot<'_>| Snapshot::load_or_boot(boot, &self.cache, &|| watch.stopped(), &told);
        let snapshot = match of(boot) {
            Err(why @ (Error::Vm { .. } | Error::Hung { .. } | Error::Panic { .. }))
                if boot.accelerator == Accelerator::Kvm =>
            {
                kvm::note_failed_boot(&self.cache, &why)?;
                boot.accelerator = Accelerator::Emulated;
                of(boot)?
            }
            snapshot => snapshot?,
        };
        let theirs = snapshot.ready.protocol;
        if theirs != protocol::VERSION {
            let path = self.guest.path.clone();
            return Err(Error::OtherProtocol { path, theirs, ours: protocol::VERSION });
        }
        Ok(snapshot)
    }
}

fn refuse_too_many(mode: Mode) -> Result<(), Error> {
    let (cpus, most) = (mode.cpus(), qemu::MAX_CPUS);
    if cpus <= most {
        return Ok(());
    }
    Err(Error::Refused {
        reason: format!("needs {cpus} CPUs, a virtual machine has at most {most}"),
    })
}

/// Calls `one` for each item, `side_by_side` at a time, unless `watch` stops it.
fn run_each<T: Sync, R: Send>(
    list: &[T],
    side_by_side: usize,
    watch: &dyn Watch,
    one: impl Fn(usize, &T) -> Result<R, Error> + Sync,
) -> Vec<Result<R, Error>> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<R, Error>>>> =
        list.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        while let index = next.fetch_add(1, Ordering::Relaxed)
            && let Some(item) = list.get(index)
        {
            let result = if watch.stopped() { Err(Error::Interrupted) } else { one(index, item) };
            watch.step(index, Step::Done);
            *results[index].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        }
    };
    // A machine dies with its thread, and these threads end when all jobs are done.
    thread::scope(|scope| {
        for _ in 1..side_by_side.min(list.len()) {
            scope.spawn(work);
        }
        work();
    });
    let result = |slot: Mutex<Option<_>>| slot.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().map(|slot| result(slot).unwrap_or(Err(Error::Interrupted))).collect()
}

/// Waits for the result of the job.
fn wait_for_report(
    vm: &mut Vm,
    patience: Patience<'_>,
    index: usize,
    watch: &dyn Watch,
) -> Result<Report, Error> {
    loop {
        if let Some(report) = report_of(vm.next_message(patience)?, index, watch)? {
            return Ok(report);
        }
    }
}

/// Interprets a message of the guest; returns the report if it is one.
pub(crate) fn report_of(
    message: FromGuest,
    index: usize,
    watch: &dyn Watch,
) -> Result<Option<Report>, Error> {
    match message {
        // The last two belong to commands.
        FromGuest::Ready(_) | FromGuest::Output { .. } | FromGuest::Exited { .. } => {}
        FromGuest::Progress(protocol::Progress { now_ns, duration_ns }) => {
            watch.step(index, Step::Runs { now_ns, duration_ns });
        }
        FromGuest::Result(report) => return Ok(Some(*report)),
        FromGuest::Refused { reason } => return Err(Error::Refused { reason }),
        FromGuest::Failed { reason } => return Err(Error::Guest { reason }),
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::{has_corrupt_flags, refuse_too_many};
    use crate::qemu::Mode;

    #[test]
    fn more_cpus_than_a_machine_can_have_are_refused() {
        assert!(refuse_too_many(Mode::Parallel { cpus: 255 }).is_ok());
        let told = refuse_too_many(Mode::Parallel { cpus: 384 }).unwrap_err().to_string();
        assert_eq!(told, "needs 384 CPUs, a virtual machine has at most 255");
    }

    #[test]
    fn impossible_flags_mean_that_qemu_corrupted_them() {
        let died = |flags: &str| {
            has_corrupt_flags(&format!(
                "PANIC: double fault\nRSP: 0018:ffa0 EFLAGS: {flags}\nRAX: 1\n"
            ))
        };
        assert!(died("056f93c2") && died("05eaf2c2"));
        assert!(!died("00000246 ORIG_RAX: 00000000000000d1") && !died("00210286") && !died(""));
        assert!(has_corrupt_flags("exc_debug_kernel+0x1/0x2"));
    }
}
