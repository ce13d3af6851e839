//! One run of a workload: from the scenario's text to the report.
//!
//! The process that runs this, the *controller*, has a real-time class and stays in the root group,
//! so no task delays it. On one CPU it creates each task in its group just before the start; on
//! several CPUs it creates tasks beforehand and wakes them.

mod collect;
mod script;

use crate::cgroup::{Group, Hierarchy};
use crate::channel::Channel;
use crate::lock::Lock;
use crate::outside::Outside;
use crate::owner::Clock;
use crate::phases::{Edges, is_clear, postponed, write_limits};
use crate::plan::{Plan, RealLock, longest_hold_ns, make_plan};
use crate::pool::{refill_pool, runtime_after_refill_ns};
use crate::releases::Probes;
use crate::timers::{TimePosition, at_or_after, next_tick_ns};
use crate::trace::Tracing;
use crate::work::{self, Speed, WorkFiles, read_tsc};
use crate::world::attributes::{apply_attributes, move_task, pack_attributes};
use crate::world::task::rehearsal::{rehearse_again, rehearse_all};
use crate::world::task::{TaskBuffers, start_process};
use crate::world::{Cue, FREE, KindCounts, Log, STACK_BYTES, Slot, World};
use crate::{init, keepers, kernel, sys};
use cpumax_limit::Limit;
use cpumax_outcome::Conditions;
use cpumax_protocol::{Job, Report};
use cpumax_workload::{Class, Op, Workload, parse};
use script::Script;
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::os::fd::IntoRawFd;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64};

/// Why a run gave no report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The job needs something that this kernel or machine cannot do.
    Refused(String),
    /// Something went wrong.
    Failed(String),
}

impl From<String> for Error {
    /// A failure of the run for this reason.
    fn from(reason: String) -> Error {
        Error::Failed(reason)
    }
}

/// A start that takes longer than this gets a note in the report, ns.
const NOTE_LATE_NS: u64 = 1_000_000;

/// A run that ends later than this plus a tenth of its length is refused, ns.
const MAX_LATE_NS: u64 = 100_000_000;

/// State that all jobs of a guest share: groups, calibration, work files.
#[derive(Debug, Clone)]
pub struct Environment {
    /// Whether the guest is `/init` of a virtual machine.
    pub in_vm: bool,
    pub hierarchy: Hierarchy,
    /// The kernel's settings before the first job.
    pub settings: kernel::Settings,
    pub speed: Speed,
    pub files: WorkFiles,
    /// Buffer for kernel work, [`work::SCRATCH_BYTES`] long.
    pub scratch: *mut u8,
}

/// A run, from preparation to report.
pub(crate) struct Run {
    pub world: &'static World,
    pub groups: Vec<Group>,
    pub env: Environment,
    pub start_ns: u64,
    pub end_ns: u64,
    /// Each task is created at its start (one CPU); else tasks exist before and wait to be woken.
    pub creates_at_start: bool,
    pub edges: Edges,
    /// Runtime in the pool at the start, ns, by path of each group with a burst.
    pub pool_ns: BTreeMap<String, u64>,
    pub first_tick_ns: u64,
    pub notes: Vec<String>,
    pub sample_periods: bool,
    /// By group.
    pub samples: Vec<collect::Sample>,
    /// When the controller was on its CPU.
    pub outside: Outside,
}

/// Runs a job in this process, which must have no other threads: makes groups, tasks and locks,
/// performs the workload and reports. Kills all its tasks; the caller removes the groups.
///
/// # Errors
/// [`Error::Refused`] where this machine cannot run the scenario, [`Error::Failed`] otherwise.
pub fn run(job: &Job, env: &Environment) -> Result<Report, Error> {
    let workload = parse(&job.scenario, "scenario.toml")
        .map_err(|error| Error::Refused(format!("not a scenario: {error}")))?;
    let plan = make_plan(&workload, kernel::facts(env.in_vm)).map_err(Error::Refused)?;
    env.settings.apply(&workload.machine, env.in_vm).map_err(Error::Refused)?;
    let groups = env.hierarchy.make_groups(&workload, plan.inner)?;
    let notes = plan.notes.clone();
    let creates_at_start = env.hierarchy.version() == 2 && kernel::cpus() == 1;
    let keepers = if creates_at_start {
        keepers::start_keepers(&workload, &env.hierarchy, &groups, plan.inner)?
    } else {
        Vec::new()
    };
    let world = make_world(workload, plan, job, env, &groups, keepers)?.install();
    become_real_time(env)?;
    world.make_memory_map().map_err(Error::Refused)?;
    for log in [&world.log, &world.births, &world.locking] {
        log.open().map_err(|error| error.to_string())?;
    }
    let mut run = Run {
        world,
        samples: vec![collect::Sample::default(); groups.len()],
        groups,
        env: env.clone(),
        start_ns: 0,
        end_ns: 0,
        creates_at_start,
        edges: Edges::new(),
        pool_ns: BTreeMap::new(),
        first_tick_ns: 0,
        notes,
        sample_periods: job.sample_periods,
        outside: Outside::default(),
    };
    let report = run.run_to_end(job);
    collect::kill_all(world);
    report
}

/// Makes what tasks share: locks, channels, slots with stacks, and logs. Starts no task.
///
/// # Errors
/// A lock would be held too long, or the kernel refuses a file, a pipe or memory.
fn make_world(
    workload: Workload,
    plan: Plan,
    job: &Job,
    env: &Environment,
    groups: &[Group],
    keepers: Vec<i32>,
) -> Result<World, String> {
    let io = |error: std::io::Error| error.to_string();
    let clock = std::fs::File::open("/proc/timer_list").map_err(io)?;
    let text = std::fs::read_to_string("/proc/timer_list").map_err(io)?;
    let header = TimePosition::find(&text).ok_or("/proc/timer_list does not tell the time")?;
    let mut locks = Vec::new();
    for (ix, &made) in plan.locks.iter().enumerate() {
        let bytes = match made {
            RealLock::Inode => longest_write(&workload, ix as u32, &env.speed)?,
            _ => 0,
        };
        locks.push(Lock::new(made, bytes, env.scratch)?);
    }
    let channels = (0..workload.channels.len() as u32).map(|ix| Channel::new(&workload, ix));
    let channels = channels.collect::<Result<_, _>>()?;
    let stacks = work::map_memory(plan.tasks.max(1) * STACK_BYTES).map_err(io)?;
    let mut slots = Vec::new();
    for ix in 0..plan.tasks {
        // SAFETY: the end of each part is within, or one beyond, the memory.
        let stack = unsafe { stacks.add((ix + 1) * STACK_BYTES) };
        slots.push(make_slot(ix, stack, env));
    }
    let kind_counts =
        workload.tasks.iter().map(|task| KindCounts::new(task.count, job.exact)).collect();
    let has_owner = plan.locks.contains(&RealLock::Owner);
    let procs_fds = groups.iter().map(|group| [group.procs_fd, group.usage_procs_fd]).collect();
    Ok(World {
        seed: job.seed,
        is_exact: job.exact,
        lateness: crate::lateness::Lateness::default(),
        speed: env.speed,
        files: env.files,
        scratch: env.scratch,
        pid: std::process::id() as usize,
        clock_device: has_owner.then(Clock::open).transpose()?,
        locks,
        memory_map: OnceLock::new(),
        channels,
        procs_fds,
        keepers,
        slots,
        kind_counts,
        log: Log::new(Log::MAX_REQUESTS).map_err(io)?,
        births: Log::new(Log::MAX_OTHERS).map_err(io)?,
        locking: Log::new(Log::MAX_OTHERS).map_err(io)?,
        traced: AtomicBool::new(false),
        next_number: AtomicU64::new(0),
        clock_fd: clock.into_raw_fd(),
        clock: header,
        start_ns: AtomicU64::new(0),
        start_stamp: AtomicU64::new(u64::MAX),
        failure: [AtomicU64::new(0), AtomicU64::new(0)],
        die_with_parent: !env.in_vm,
        workload,
        plan,
    })
}

/// Bytes of the longest write under this lock, at most what a call takes; an error above 2^30.
fn longest_write(workload: &Workload, lock: u32, speed: &Speed) -> Result<usize, String> {
    const MAX_BYTES: usize = 1 << 30;
    let longest = speed.write_bytes(longest_hold_ns(workload, lock), true);
    if longest > MAX_BYTES {
        let name = &workload.locks[lock as usize].name;
        return Err(format!("lock {name:?} would be held through a write of {longest} bytes"));
    }
    Ok(longest.min(work::MAX_CALL_BYTES))
}

/// A free slot whose stack ends at `stack`; its first pages are touched.
fn make_slot(ix: usize, stack: *mut u8, env: &Environment) -> Slot {
    let buffers = TaskBuffers::new(env.scratch);
    // Touch the first pages of the stack, so that the run has no page faults there.
    for page in 1..=4 {
        // SAFETY: the pages are part of the stack, which is not in use yet.
        unsafe { stack.sub(page * 4096).write_volatile(0) };
    }
    Slot {
        ix,
        state: AtomicU32::new(FREE),
        pid: AtomicI32::new(0),
        kind: AtomicU32::new(0),
        instance: AtomicU32::new(0),
        number: AtomicU64::new(0),
        group: AtomicU32::new(0),
        start_at_ns: AtomicU64::new(0),
        cue: AtomicU32::new(Cue::Wait as u32),
        used_before_us: AtomicU64::new(0),
        attributes: AtomicU32::new(0),
        phase: AtomicU32::new(0),
        last_stamp: AtomicU64::new(0),
        needs_ns: AtomicU64::new(0),
        stall_ns: AtomicU64::new(0),
        wait_ns: AtomicU64::new(0),
        task: AtomicPtr::new(std::ptr::null_mut()),
        stack,
        buffers: UnsafeCell::new(buffers),
    }
}

/// Gives the calling controller real-time priority, makes it reap orphans, and locks its memory. An
/// error if it gets no priority in a virtual machine; a host goes without.
fn become_real_time(env: &Environment) -> Result<(), String> {
    sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
    sys::prctl(libc::PR_SET_TIMERSLACK, 1);
    if !make_real_time_while_asleep() && env.in_vm {
        return Err("the guest gets no real-time priority".to_owned());
    }
    // The controller spins just before the start: a page fault there would be late work.
    // SAFETY: the call takes numbers.
    unsafe { libc::mlockall(libc::MCL_CURRENT) };
    Ok(())
}

/// Has a child give the caller `SCHED_FIFO` while the caller sleeps (20 ms); returns whether it
/// did. A task that is queued when its class changes keeps the rest of its slice, and some kernels
/// (6.18) pass that on to its children, which then are not placed like new tasks.
fn make_real_time_while_asleep() -> bool {
    /// Long enough for the parent to sleep and to leave delayed dequeue.
    const ASLEEP_NS: u64 = 20_000_000;
    let me = std::process::id() as i32;
    // SAFETY: this process has no other threads.
    match unsafe { libc::fork() } {
        0 => {
            sys::sleep_for(ASLEEP_NS);
            sys::exit(i32::from(sys::set_sched(me, sys::SchedAttr::real_time(50, true)) < 0))
        }
        child if child > 0 => {
            let mut status = 0;
            // SAFETY: the status has room.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            waited == child && status == 0
        }
        _ => false,
    }
}

impl Run {
    /// Creates the tasks, writes limits, starts the run at its time, performs its actions, and
    /// makes the report. The caller kills the tasks. An error of any step ends the run.
    fn run_to_end(&mut self, job: &Job) -> Result<Report, Error> {
        let script = Script::new(self)?;
        let probes = self.begin_probes(job.releases)?;
        if !self.creates_at_start {
            self.create_all_tasks();
        }
        self.choose_start()?;
        let workload = &self.world.workload;
        let notes = &mut self.notes;
        let hierarchy = &self.env.hierarchy;
        self.edges = write_limits(hierarchy, &self.groups, workload, self.start_ns, notes)?;
        self.start_clear_of_edges();
        let tracing = self.begin_trace(job.trace)?;
        if !self.creates_at_start {
            let lead_ns = self.lead_ns();
            rehearse_again(self.world, &self.env.hierarchy, &self.groups, lead_ns)?;
            collect::read_counters(self)?;
        }
        let before = self.start_first_tasks()?;
        let performed = script.perform_all(self).and_then(|()| self.check_ended_in_time());
        let report = performed.and_then(|()| collect::report(self, job, &before));
        self.stop_interrupts()?;
        let mut report = report?;
        let outside = std::mem::take(&mut self.outside);
        let (mut asleep_ns, mut others_ns) = (Vec::new(), Vec::new());
        if tracing.is_some() || probes.is_some() {
            collect::kill_all(self.world);
        }
        if let Some(tracing) = tracing {
            let traced = tracing.end(self.world, &self.edges)?;
            if traced.lost > 0 {
                report.notes.push(format!("the trace lacks its first {} events", traced.lost));
                report.not_measured.push("tasks.*.longest_stall_ns".to_owned());
            } else if !kernel::stops_anywhere() {
                report.not_measured.extend(stalls_not_seen(&self.world.workload));
            }
            for (spec, ns) in self.world.workload.tasks.iter().zip(traced.stalls_ns) {
                if let Some(task) = report.outcome.tasks.get_mut(spec.label()) {
                    task.longest_stall_ns = task.longest_stall_ns.max(ns);
                }
            }
            asleep_ns = traced.asleep_ns;
            if self.env.in_vm && self.creates_at_start {
                others_ns = traced.others_ns;
            }
            report.trace = job.trace.then_some(traced.recorded);
        }
        if let Some(probes) = probes {
            probes.end(self.world)?.add_to_report(&mut report);
        }
        let Conditions { outside_ns, late_ns, .. } = &mut report.conditions;
        (*outside_ns, *late_ns) = outside.visits_and_late_actions(&asleep_ns, &others_ns);
        Ok(report)
    }

    /// Refuses a run that ended much too late: its counters cover more than its duration.
    fn check_ended_in_time(&self) -> Result<(), Error> {
        let duration_ns = self.world.workload.duration_ns;
        let late_ns = self.world.now_ns().saturating_sub(duration_ns);
        if late_ns <= MAX_LATE_NS + duration_ns / 10 {
            return Ok(());
        }
        let late_ms = late_ns / 1_000_000;
        Err(Error::Refused(format!(
            "the run ended {late_ms} ms late: the guest waited for a task that was throttled \
             while it moved, or for a CPU that goes offline or online"
        )))
    }

    /// Begins to record: the whole trace where asked for, else in a virtual machine what stalls are
    /// computed from; `None` without (with a note). An error only if the whole trace cannot be had.
    fn begin_trace(&mut self, whole: bool) -> Result<Option<Tracing>, String> {
        let in_vm = self.env.in_vm;
        if !whole && !in_vm {
            return Ok(None);
        }
        match Tracing::begin(self.env.hierarchy.own_name(), whole) {
            Ok(tracing) => {
                self.world.traced.store(true, Relaxed);
                Ok(Some(tracing))
            }
            Err(error) if !whole => {
                self.notes.push(format!(
                    "a stall may include other waits of the same system call: {error}"
                ));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Begins to time releases, if asked for, before the start is chosen; an error on a host.
    fn begin_probes(&self, asked: bool) -> Result<Option<Probes>, Error> {
        if !asked {
            return Ok(None);
        }
        if !self.env.in_vm {
            let reason = "what releases is timed in virtual machines only";
            return Err(Error::Refused(reason.to_owned()));
        }
        init::mount("tracefs", "/sys/kernel/tracing", "tracefs", "")?;
        Ok(Some(Probes::begin(!kernel::stops_anywhere())?))
    }

    /// Sets start and end of the run, ns of `CLOCK_MONOTONIC`: the start is at a tick, late enough
    /// for all preparations; a note if no tick is found. An error if `/proc/timer_list` cannot be
    /// read.
    fn choose_start(&mut self) -> Result<(), String> {
        const REST_NS: u64 = 300_000_000;
        /// In an emulated machine: for 8 MiB of trace buffer 24 ms, for a rehearsal 5 ms.
        const REST_OF_EACH_NS: u64 = 35_000_000;
        /// Up to so many CPUs `REST_NS` is enough.
        const FEW_CPUS: u16 = 16;
        let next_tick_ns = next_tick_ns()?;
        let tick_ns = 1_000_000_000 / u64::from(kernel::hz());
        let workload = &self.world.workload;
        let period_ns = workload.groups.iter().map(|g| g.limit.period_ns()).max().unwrap_or(0);
        let cpus = workload.machine.cpus;
        let has_many = self.env.in_vm && cpus > FEW_CPUS;
        let rest_ns = REST_NS + if has_many { u64::from(cpus) * REST_OF_EACH_NS } else { 0 };
        let earliest_ns = sys::monotonic_ns() + 3 * period_ns + rest_ns;
        if next_tick_ns.is_none() {
            self.notes.push("the time of the tick was not found".to_owned());
        }
        // Whole ticks on from a known tick, so that all runs begin alike.
        let a_tick_ns = next_tick_ns.unwrap_or(earliest_ns);
        self.start_ns = at_or_after(earliest_ns, a_tick_ns, tick_ns);
        self.end_ns = self.start_ns + workload.duration_ns;
        self.world.start_ns.store(self.start_ns, Relaxed);
        Ok(())
    }

    /// Postpones the start by some ticks, so that no period ends shortly before it: that would
    /// refill the slice that a queued task has taken. A phase that the scenario asks for stays.
    fn start_clear_of_edges(&mut self) {
        const MAX_TICKS: u64 = 64;
        let workload = &self.world.workload;
        if workload.machine.timer_phase_ns.is_some() {
            return;
        }
        let tick_ns = 1_000_000_000 / u64::from(kernel::hz());
        let lead_ns = self.lead_ns();
        let found = (0..MAX_TICKS).map(|ticks| ticks * tick_ns).find_map(|by_ns| {
            let edges = postponed(&self.edges, workload, by_ns);
            is_clear(&edges, workload, lead_ns).then_some((by_ns, edges))
        });
        let Some((by_ns, edges)) = found else { return };
        self.edges = edges;
        self.start_ns += by_ns;
        self.end_ns += by_ns;
        self.world.start_ns.store(self.start_ns, Relaxed);
    }

    /// How long before the start the last preparations begin, ns; more with many groups and tasks.
    fn lead_ns(&self) -> u64 {
        const EACH_NS: u64 = 150_000;
        const FIXED_NS: u64 = 1_000_000;
        let born = if self.creates_at_start { starting(&self.world.workload).count() } else { 0 };
        FIXED_NS + EACH_NS * (2 * self.groups.len() + born) as u64
    }

    /// Sleeps until shortly before the start, reads the counters, refills the pools, waits for the
    /// start by spinning, and starts the tasks that begin then. Returns these counters, or an error
    /// of the kernel.
    fn start_first_tasks(&mut self) -> Result<collect::Counters, String> {
        let world = self.world;
        let now: Vec<_> = starting(&world.workload).collect();
        sys::sleep_until(self.start_ns - self.lead_ns());
        let before = collect::read_counters(self)?;
        let groups = self.groups.iter().zip(&world.workload.groups);
        for (group, spec) in groups.filter(|(_, spec)| spec.limit.quota_ns().is_some()) {
            refill_pool(&self.env.hierarchy, group, spec.limit)?;
            if let (true, Some(edge_ns)) = (spec.limit.burst_ns() > 0, self.edges.get(&spec.path)) {
                let last_edge_ns = self.start_ns + edge_ns - spec.limit.period_ns();
                let again = last_edge_ns > sys::monotonic_ns();
                self.pool_ns.insert(spec.path.clone(), runtime_after_refill_ns(spec.limit, again));
            }
        }
        world
            .start_stamp
            .store(world.speed.stamp_at(self.start_ns, work::monotonic_and_tsc()), Relaxed);
        if self.creates_at_start {
            for start in &now {
                self.start_task(start);
            }
        }
        // On one CPU no task runs as long as this process does not sleep.
        while read_tsc() < world.start_stamp.load(Relaxed) {
            std::hint::spin_loop();
        }
        self.start_interrupts()?;
        if !self.creates_at_start {
            for start in &now {
                self.start_task(start);
            }
        }
        let late_ns = world.now_ns();
        self.outside.note_active(0, late_ns);
        if late_ns > NOTE_LATE_NS {
            self.notes.push(format!("the last task started {} us after the start", late_ns / 1000));
        }
        Ok(before)
    }

    /// Starts the periodic interrupts of `/dev/rtc0`, if the scenario has a softirq section.
    fn start_interrupts(&self) -> Result<(), String> {
        match (&self.world.clock_device, self.world.plan.interrupts_hz) {
            (Some(clock), Some(hz)) => clock.start(hz),
            _ => Ok(()),
        }
    }

    /// Stops the interrupts of `/dev/rtc0`, if the run has them. Before, it lifts all limits: the
    /// timer thread may wait for a lock that a throttled task holds.
    fn stop_interrupts(&self) -> Result<(), String> {
        const REST_NS: u64 = 50_000_000;
        let Some(clock) = &self.world.clock_device else { return Ok(()) };
        for (group, spec) in self.groups.iter().zip(&self.world.workload.groups).skip(1) {
            self.env.hierarchy.write_limit(group, spec.limit, Limit::UNLIMITED)?;
        }
        sys::sleep_for(REST_NS);
        clock.stop();
        Ok(())
    }

    /// Creates all tasks of the workload, has them rehearse, and leaves them waiting to be woken.
    fn create_all_tasks(&mut self) {
        for start in initial(&self.world.workload) {
            self.create_task(&start, Cue::Wait);
        }
        self.notes.extend(rehearse_all(self.world));
    }

    /// Starts one task at its time: creates its process (one CPU), or wakes the one that waits.
    pub fn start_task(&self, start: &Start) {
        if self.creates_at_start {
            return self.create_task(start, Cue::Begin);
        }
        let is_it = |slot: &&Slot| {
            slot.kind.load(Relaxed) == start.kind
                && slot.instance.load(Relaxed) == start.instance
                && slot.pid.load(Relaxed) != 0
        };
        if let Some(slot) = self.world.slots.iter().find(is_it) {
            let from = self.world.speed.stamps(start.at_ns);
            let start_stamp = self.world.start_stamp.load(Relaxed);
            slot.last_stamp.store(start_stamp + from, Relaxed);
            slot.set_cue(Cue::Begin);
        }
    }

    /// Creates the process of a task in its group, with its attributes; `go`: whether it begins at
    /// once or waits. Nothing without a free slot. A refusal of the kernel is noted as a fault.
    fn create_task(&self, start: &Start, go: Cue) {
        let world = self.world;
        let spec = &world.workload.tasks[start.kind as usize];
        let Some(slot) = world.take_slot(start.kind, spec.group) else { return };
        slot.attributes.store(pack_attributes(0, Class::Fair, 0), Relaxed);
        if world.plan.lists && spec.program.contains(&Op::EnterKernel) {
            // SAFETY: the task has not begun. It repeats and notes an error.
            unsafe { &mut (*slot.buffers.get()).call }.prepare();
        }
        slot.start_at_ns.store(start.at_ns, Relaxed);
        slot.cue.store(go as u32, Relaxed);
        let v2 = self.env.hierarchy.version() == 2;
        let group = &self.groups[spec.group as usize];
        let pid = start_process(world, slot, v2.then_some(group.dir_fd));
        if pid < 0 {
            world.note_fault(crate::world::Fault::Start, pid);
            return;
        }
        if !v2 {
            move_task(world, slot, spec.group);
        }
        apply_attributes(world, slot, spec);
    }
}

/// A task to be started from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start {
    pub at_ns: u64,
    pub kind: u32,
    pub instance: u32,
}

/// Paths in the outcome of the longest stalls that the trace does not show where tasks park at
/// their return to user mode: those of kinds that yield.
fn stalls_not_seen(workload: &Workload) -> impl Iterator<Item = String> {
    let yields = workload.tasks.iter().filter(|kind| kind.program.contains(&Op::Yield));
    yields.map(|kind| format!("tasks.{}.longest_stall_ns", kind.label()))
}

/// Tasks that start at time 0.
fn starting(workload: &Workload) -> impl Iterator<Item = Start> + use<> {
    initial(workload).take_while(|start| start.at_ns == 0)
}

/// All tasks that the workload starts, by start time, then in its order; forked ones are not.
pub(crate) fn initial(workload: &Workload) -> impl Iterator<Item = Start> + use<> {
    let mut starts = Vec::new();
    for (kind, spec) in workload.tasks.iter().enumerate() {
        for instance in 0..spec.count {
            let at_ns = spec.start_ns + spec.stagger_ns * u64::from(instance);
            starts.push(Start { at_ns, kind: kind as u32, instance });
        }
    }
    starts.sort_by_key(|start| start.at_ns);
    starts.into_iter()
}
