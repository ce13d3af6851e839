//! Running scenarios on real kernels: one job in one machine, or many jobs in several machines at a
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
    /// Name of the kernel in `kernels.toml`, e.g. `6.12-rt`. Not looked at on the host.
    pub kernel: String,
    /// How time passes. Not looked at on the host.
    pub mode: Mode,
    /// Text of the scenario; [`cpumax_workload::print`] writes one.
    pub scenario: String,
    /// Seed of every random choice.
    pub seed: u64,
    /// Of several runs of the same, which one: 0 and following. Each begins some microseconds after
    /// the one before it, as the guest has more to read; otherwise emulated machines would do the
    /// same in all of them.
    pub run: u16,
    /// As in [`protocol::Job`].
    pub sample_periods: bool,
    /// As in [`protocol::Job`].
    pub trace: bool,
    /// As in [`protocol::Job`].
    pub releases: bool,
    /// More for the kernel's command line, e.g. `preempt=full`. Each needs a boot of its own.
    pub kernel_arguments: String,
    /// How long to wait for the result, once the machine runs.
    pub patience: Duration,
}

impl Job {
    /// A job whose scenario takes `duration_ns`, with patience for that.
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

    /// As the guest is told it.
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

/// How long to wait for a result. Emulated, each CPU that works takes several times as long as it
/// would alone.
fn patience(mode: Mode, duration_ns: u64) -> Duration {
    Duration::from_secs(60) + Duration::from_nanos(duration_ns) * 30 * u32::from(mode.cpus())
}

/// How those notes of a report begin that tell of its machine.
pub const OF_MACHINE: &str = "the machine";

/// What a job is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Its machine boots for the first time.
    Boots,
    /// It runs.
    Runs {
        /// Time since the start of the run, ns.
        now_ns: u64,
        /// Length of the run, ns.
        duration_ns: u64,
    },
    /// It is over, well or not.
    Done,
}

/// Somebody who follows the jobs, and can stop them.
pub trait Watch: Sync {
    /// Whether to stop everything; asked ten times a second.
    fn stopped(&self) -> bool {
        false
    }
    /// A job, by its index, takes a step.
    fn step(&self, _job: usize, _step: Step) {}
}

/// Nobody.
#[derive(Debug, Clone, Copy)]
pub struct Quiet;

impl Watch for Quiet {}

/// How much more the guest has to read in the next run of the same.
const RUNS_APART_BYTES: usize = 256;
/// Where a kernel dies whose emulated CPU was interrupted right after a `cmpxchg16b` and got
/// nonsense for its flags back, the trap flag among it, which was seen once in 500 runs. It is
/// nothing that the scenario has brought about.
const TRAPPED: &str = "exc_debug_kernel";
/// Or it dies of what others among them bring about, and tells them: there are none but these.
const FLAGS: &str = "EFLAGS: ";
const ALL_FLAGS: u32 = (1 << 22) - 1;

/// Whether a kernel died like that, by the end of its console.
fn lost_its_flags(console: &str) -> bool {
    let are_nonsense = |told: &str| {
        let digits = told.split(|c: char| !c.is_ascii_hexdigit()).next().unwrap_or("");
        u32::from_str_radix(digits, 16).is_ok_and(|flags| flags > ALL_FLAGS)
    };
    console.contains(TRAPPED) || console.split(FLAGS).skip(1).any(are_nonsense)
}
/// How often a job is run that ends like that, and how much more the guest has to read each time:
/// the next few bytes may end in the same place.
const TRIES: usize = 4;
const RETRIES_APART_BYTES: usize = 61;

/// Everything needed to run jobs: kernels, guest, QEMU.
#[derive(Debug)]
pub struct Lab {
    pub(crate) cache: Cache,
    pub(crate) guest: Guest,
    qemu_version: String,
    kept: Option<Kept>,
}

impl Lab {
    /// With the user's kernels and the guest beside this program.
    ///
    /// # Errors
    /// When QEMU or the guest is missing.
    pub fn open() -> Result<Lab, Error> {
        Lab::with(Cache::of_user()?)
    }

    /// With kernels that are kept elsewhere.
    ///
    /// # Errors
    /// As [`Lab::open`].
    pub fn with(cache: Cache) -> Result<Lab, Error> {
        Ok(Lab { cache, guest: Guest::find()?, qemu_version: qemu::version()?, kept: None })
    }

    /// Keeps the answer of each run in this folder, and takes from there what was run before.
    ///
    /// # Errors
    /// When there can be no such folder.
    pub fn keeping(self, folder: &Path) -> Result<Lab, Error> {
        Ok(Lab { kept: Some(Kept::at(folder)?), ..self })
    }

    /// A kernel that is here.
    ///
    /// # Errors
    /// As [`Cache::kernel`].
    pub fn kernel(&self, name: &str) -> Result<Kernel, Error> {
        self.cache.kernel(name)
    }

    /// What the guest says of itself and its world; boots if that has not been done yet.
    ///
    /// # Errors
    /// What keeps it from booting.
    pub fn ready(&self, kernel: &str, mode: Mode, watch: &dyn Watch) -> Result<Ready, Error> {
        let kernel = self.kernel(kernel)?;
        let mut boot = self.boot(&kernel, mode, "");
        Ok(self.snapshot(&mut boot, 0, watch)?.ready)
    }

    /// Runs one job. Where the machine is emulated the same job gives the same report, to the byte.
    ///
    /// The outcome's `kernel` is the job's; its `generation` is empty.
    ///
    /// # Errors
    /// [`Error::Refused`] when the scenario asks for what this world does not have; a kernel that
    /// is not here; a panic, a guest that hangs (which some scenarios bring about), an
    /// interruption.
    pub fn run(&self, job: &Job, watch: &dyn Watch) -> Result<Report, Error> {
        self.run_as(0, job, watch)
    }

    /// Runs jobs, `side_by_side` at a time (at least one). The results are in the order of the
    /// jobs; that of one does not depend on the others.
    pub fn run_all(
        &self,
        jobs: &[Job],
        side_by_side: usize,
        watch: &dyn Watch,
    ) -> Vec<Result<Report, Error>> {
        all(jobs, side_by_side, watch, |index, job| self.run_as(index, job, watch))
    }

    /// Boots kernels, `side_by_side` at a time, so that their first jobs need not; those that have
    /// been booted take no time, nor do those that cannot be, as no machine has so many CPUs.
    ///
    /// # Errors
    /// What keeps the first of them from booting.
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
        all(kernels, side_by_side, watch, ready).into_iter().collect()
    }

    fn run_as(&self, index: usize, job: &Job, watch: &dyn Watch) -> Result<Report, Error> {
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
                    // What KVM cannot run is kept as what it is.
                    self.snapshot(&mut boot, index, watch)?;
                }
                let run = || self.answer(&mut { boot }, &line, index, job, watch);
                kept.answer(&boot, message, &line, run)?
            }
            None => self.answer(&mut boot, &line, index, job, watch)?,
        };
        match answer {
            FromGuest::Result(mut report) => {
                report.outcome.kernel.clone_from(&job.kernel);
                report.notes.extend(match boot.accelerator {
                    Accelerator::Kvm => {
                        Some(format!("{OF_MACHINE} was run by the host's CPUs (KVM), not emulated"))
                    }
                    Accelerator::Emulated => None,
                });
                Ok(*report)
            }
            FromGuest::Refused { reason } => Err(Error::Refused { reason }),
            other => Err(Error::Guest { reason: format!("its last word is {other:?}") }),
        }
    }

    /// Runs a job in a machine of its own; the answer is a result or a refusal.
    fn answer(
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
                // A state that was good when it was made; what is made in its place is.
                Err(Error::Vm { .. }) if !is_new => {
                    is_new = true;
                    Snapshot::discard(boot, &self.cache);
                    continue;
                }
                started => started?,
            };
            tries += 1;
            let patience = Patience { deadline: Instant::now() + job.patience, stop: &stop };
            let answer = match result(&mut vm, patience, index, watch) {
                Ok(report) => Ok(FromGuest::Result(Box::new(report))),
                Err(Error::Refused { reason }) => Ok(FromGuest::Refused { reason }),
                Err(Error::Panic { .. }) if tries < TRIES && lost_its_flags(&vm.console()) => {
                    continue;
                }
                Err(error) => Err(error),
            };
            let name = format!("{}-{}", job.kernel, job.mode.name());
            return self.cache.with_console(answer, &vm.console(), &name);
        }
    }

    /// How many of the host's CPUs a machine keeps busy.
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

    /// The state to begin in. Where it cannot be reached by KVM the machine is an emulated one from
    /// there on.
    fn snapshot(
        &self,
        boot: &mut Boot<'_>,
        index: usize,
        watch: &dyn Watch,
    ) -> Result<Snapshot, Error> {
        let told = || watch.step(index, Step::Boots);
        let of = |boot: &Boot<'_>| Snapshot::of(boot, &self.cache, &|| watch.stopped(), &told);
        let snapshot = match of(boot) {
            Err(why @ (Error::Vm { .. } | Error::Hung { .. } | Error::Panic { .. }))
                if boot.accelerator == Accelerator::Kvm =>
            {
                kvm::refuse(&self.cache, &why)?;
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
    let (cpus, most) = (mode.cpus(), qemu::MOST_CPUS);
    if cpus <= most {
        return Ok(());
    }
    Err(Error::Refused {
        reason: format!("needs {cpus} CPUs, a virtual machine has at most {most}"),
    })
}

/// Does all of something, some at a time, unless it is to stop.
fn all<T: Sync, R: Send>(
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
    // Each machine dies with its thread, and these end only when all is done.
    thread::scope(|scope| {
        for _ in 1..side_by_side.min(list.len()) {
            scope.spawn(work);
        }
        work();
    });
    let result = |slot: Mutex<Option<_>>| slot.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().map(|slot| result(slot).unwrap_or(Err(Error::Interrupted))).collect()
}

/// Waits for the result of the only job.
fn result(
    vm: &mut Vm,
    patience: Patience<'_>,
    index: usize,
    watch: &dyn Watch,
) -> Result<Report, Error> {
    loop {
        if let Some(report) = answer(vm.next(patience)?, index, watch)? {
            return Ok(report);
        }
    }
}

/// What a message of the guest means for the job it is at.
pub(crate) fn answer(
    message: FromGuest,
    index: usize,
    watch: &dyn Watch,
) -> Result<Option<Report>, Error> {
    match message {
        // The latter belong to commands.
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
    use super::{lost_its_flags, refuse_too_many};
    use crate::qemu::Mode;

    #[test]
    fn more_cpus_than_a_machine_can_have_are_refused() {
        assert!(refuse_too_many(Mode::Parallel { cpus: 255 }).is_ok());
        let told = refuse_too_many(Mode::Parallel { cpus: 384 }).unwrap_err().to_string();
        assert_eq!(told, "needs 384 CPUs, a virtual machine has at most 255");
    }

    #[test]
    fn who_has_flags_that_there_are_not_has_lost_its_own() {
        let died = |flags: &str| {
            lost_its_flags(&format!(
                "PANIC: double fault\nRSP: 0018:ffa0 EFLAGS: {flags}\nRAX: 1\n"
            ))
        };
        assert!(died("056f93c2") && died("05eaf2c2"));
        assert!(!died("00000246 ORIG_RAX: 00000000000000d1") && !died("00210286") && !died(""));
        assert!(lost_its_flags("exc_debug_kernel+0x1/0x2"));
    }
}
