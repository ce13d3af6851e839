//! One run, from the scenario's text to the report: makes groups and tasks, starts them at a tick,
//! does what is done from outside at its times, and collects.
//!
//! Whoever does this is a real-time process in the root group, so that nothing keeps it from being
//! on time. On one CPU its tasks are born in their groups just before the start, as they cannot run
//! before it lets them; on several they are made beforehand and woken.

use crate::attributes::{apply_attributes, attributes, move_task};
use crate::cgroup::{Group, Hierarchy};
use crate::channel::Channel;
use crate::lock::Lock;
use crate::outside::Outside;
use crate::owner::Clock;
use crate::phases::{Edges, is_clear, put_off, write_limits};
use crate::plan::{LockMade, Plan, longest_hold_ns, plan};
use crate::pool::{fill_pool, filled_ns};
use crate::rehearsal::{rehearse_again, rehearse_all};
use crate::releases::Probes;
use crate::script::Script;
use crate::task::{Own, VECTOR};
use crate::timers::{Header, at_or_after, next_tick_ns};
use crate::trace::Tracing;
use crate::work::{self, SCRATCH_BYTES, Speed, WorkFiles, stamp};
use crate::world::{Cue, FREE, Log, STACK_BYTES, Slot, Tally, World};
use crate::{call::Call, collect, init, keepers, kernel, memory_map, sys};
use cpumax_limit::Limit;
use cpumax_outcome::Conditions;
use cpumax_protocol::{Job, Report};
use cpumax_workload::{Class, Op, Workload, parse};
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::os::fd::IntoRawFd;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64};

/// Why there is no report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The job asks for what this world cannot do.
    Refused(String),
    /// Something went wrong.
    Failed(String),
}

impl From<String> for Error {
    fn from(reason: String) -> Error {
        Error::Failed(reason)
    }
}

/// A start that takes longer than this is worth a note, ns.
const LATE_NS: u64 = 1_000_000;

/// A run that ends so much later is none, ns; and a tenth of its length.
const MUCH_TOO_LATE_NS: u64 = 100_000_000;

/// What a run needs beside its job.
#[derive(Debug, Clone)]
pub struct Place {
    /// Whether this is a virtual machine of our own.
    pub in_vm: bool,
    /// Where groups are made.
    pub hierarchy: Hierarchy,
    /// How its knobs stood at first.
    pub knobs: kernel::Knobs,
    /// How fast this world works.
    pub speed: Speed,
    /// Files that work is done on.
    pub files: WorkFiles,
    /// Buffer that work is done with.
    pub scratch: *mut u8,
}

/// A run that is about to start.
pub(crate) struct Run {
    pub world: &'static World,
    pub groups: Vec<Group>,
    pub place: Place,
    pub start_ns: u64,
    pub end_ns: u64,
    /// Tasks are born when they start; else they wait to be woken.
    pub born: bool,
    pub edges: Edges,
    /// By path of a group with a burst: what its pool begins with.
    pub pool_ns: BTreeMap<String, u64>,
    pub first_tick_ns: u64,
    pub notes: Vec<String>,
    pub sample_periods: bool,
    /// By group.
    pub samples: Vec<collect::Sample>,
    /// When this process was there.
    pub outside: Outside,
}

/// Runs a job in this process, which must have no other threads. What it starts is gone when it
/// returns; its groups are left to the caller.
///
/// # Errors
/// See [`Error`].
pub fn run(job: &Job, place: &Place) -> Result<Report, Error> {
    let workload = parse(&job.scenario, "scenario.toml")
        .map_err(|error| Error::Refused(format!("not a scenario: {error}")))?;
    let plan = plan(&workload, kernel::facts(place.in_vm)).map_err(Error::Refused)?;
    place.knobs.set(&workload.machine, place.in_vm).map_err(Error::Refused)?;
    let groups = place.hierarchy.make(&workload, plan.inner)?;
    let notes = plan.notes.clone();
    let born = place.hierarchy.version() == 2 && kernel::cpus() == 1;
    let keepers = if born {
        keepers::make(&workload, &place.hierarchy, &groups, plan.inner)?
    } else {
        Vec::new()
    };
    let world = make_world(workload, plan, job, place, &groups, keepers)?.install();
    become_real_time(place)?;
    memory_map::make(world).map_err(Error::Refused)?;
    for log in [&world.log, &world.births, &world.locking] {
        log.open().map_err(|error| error.to_string())?;
    }
    let mut run = Run {
        world,
        samples: vec![collect::Sample::default(); groups.len()],
        groups,
        place: place.clone(),
        start_ns: 0,
        end_ns: 0,
        born,
        edges: Edges::new(),
        pool_ns: BTreeMap::new(),
        first_tick_ns: 0,
        notes,
        sample_periods: job.sample_periods,
        outside: Outside::default(),
    };
    let report = run.all(job);
    collect::kill_all(world);
    report
}

fn make_world(
    workload: Workload,
    plan: Plan,
    job: &Job,
    place: &Place,
    groups: &[Group],
    keepers: Vec<i32>,
) -> Result<World, String> {
    let io = |error: std::io::Error| error.to_string();
    let clock = std::fs::File::open("/proc/timer_list").map_err(io)?;
    let text = std::fs::read_to_string("/proc/timer_list").map_err(io)?;
    let header = Header::find(&text).ok_or("/proc/timer_list does not tell the time")?;
    let mut locks = Vec::new();
    for (ix, &made) in plan.locks.iter().enumerate() {
        let bytes = match made {
            LockMade::Inode => longest_write(&workload, ix as u32, &place.speed)?,
            _ => 0,
        };
        locks.push(Lock::new(made, bytes, place.scratch)?);
    }
    let channels = (0..workload.channels.len() as u32).map(|ix| Channel::new(&workload, ix));
    let channels = channels.collect::<Result<_, _>>()?;
    let stacks = work::memory(plan.tasks.max(1) * STACK_BYTES).map_err(io)?;
    let mut slots = Vec::new();
    for ix in 0..plan.tasks {
        // SAFETY: the end of each part is within, or one beyond, the memory.
        let stack = unsafe { stacks.add((ix + 1) * STACK_BYTES) };
        slots.push(make_slot(ix, stack, place));
    }
    let tallies = workload.tasks.iter().map(|task| Tally::new(task.count, job.exact)).collect();
    let has_owner = plan.locks.contains(&LockMade::Owner);
    let procs_fds = groups.iter().map(|group| [group.procs_fd, group.usage_procs_fd]).collect();
    Ok(World {
        seed: job.seed,
        is_exact: job.exact,
        lateness: crate::lateness::Lateness::default(),
        speed: place.speed,
        files: place.files,
        scratch: place.scratch,
        pid: std::process::id() as usize,
        clock_device: has_owner.then(Clock::open).transpose()?,
        locks,
        memory_map: OnceLock::new(),
        channels,
        procs_fds,
        keepers,
        slots,
        tallies,
        log: Log::new(Log::REQUESTS).map_err(io)?,
        births: Log::new(Log::OTHERS).map_err(io)?,
        locking: Log::new(Log::OTHERS).map_err(io)?,
        traced: AtomicBool::new(false),
        next_number: AtomicU64::new(0),
        clock_fd: clock.into_raw_fd(),
        clock: header,
        start_ns: AtomicU64::new(0),
        start_stamp: AtomicU64::new(u64::MAX),
        failure: [AtomicU64::new(0), AtomicU64::new(0)],
        die_with_parent: !place.in_vm,
        workload,
        plan,
    })
}

/// Bytes of the longest write under a lock.
fn longest_write(workload: &Workload, lock: u32, speed: &Speed) -> Result<usize, String> {
    const MOST: usize = 1 << 30;
    let longest = speed.write_bytes(longest_hold_ns(workload, lock), true);
    if longest > MOST {
        let name = &workload.locks[lock as usize].name;
        return Err(format!("lock {name:?} would be held through a write of {longest} bytes"));
    }
    Ok(longest.min(work::MAX_CALL_BYTES))
}

fn make_slot(ix: usize, stack: *mut u8, place: &Place) -> Slot {
    let buffer = libc::iovec { iov_base: place.scratch.cast(), iov_len: SCRATCH_BYTES };
    let own = Own { vector: [buffer; VECTOR], call: Call::new() };
    // The stack's first pages, so that they need not be found during the run.
    for page in 1..=4 {
        // SAFETY: the pages are part of the stack, on which nobody is yet.
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
        go: AtomicU32::new(Cue::Wait as u32),
        used_before_us: AtomicU64::new(0),
        attributes: AtomicU32::new(0),
        phase: AtomicU32::new(0),
        last_stamp: AtomicU64::new(0),
        needs_ns: AtomicU64::new(0),
        stall_ns: AtomicU64::new(0),
        wait_ns: AtomicU64::new(0),
        task: AtomicPtr::new(std::ptr::null_mut()),
        stack,
        own: UnsafeCell::new(own),
    }
}

/// From here on nobody keeps the caller waiting, and orphans come to it.
fn become_real_time(place: &Place) -> Result<(), String> {
    sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
    sys::prctl(libc::PR_SET_TIMERSLACK, 1);
    if !made_real_time_asleep() && place.in_vm {
        return Err("no real-time priority".to_owned());
    }
    // The work it is to wait for must not be paged in while it runs.
    // SAFETY: the call takes numbers.
    unsafe { libc::mlockall(libc::MCL_CURRENT) };
    Ok(())
}

/// Has a child make the caller real-time while it waits for that: one that is on a queue when its
/// class changes keeps the rest of its slice for when it comes back, and some kernels (6.18) hand
/// that on to all its children, who then are not placed like new tasks.
fn made_real_time_asleep() -> bool {
    /// Until it is asleep, and delayed no longer.
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
    fn all(&mut self, job: &Job) -> Result<Report, Error> {
        let script = Script::new(self)?;
        let probes = self.probe(job.releases)?;
        if !self.born {
            self.make_all();
        }
        self.choose_start()?;
        let workload = &self.world.workload;
        let notes = &mut self.notes;
        let hierarchy = &self.place.hierarchy;
        self.edges = write_limits(hierarchy, &self.groups, workload, self.start_ns, notes)?;
        self.start_clear_of_edges();
        let tracing = self.trace(job.trace)?;
        if !self.born {
            let lead_ns = self.lead_ns();
            rehearse_again(self.world, &self.place.hierarchy, &self.groups, lead_ns)?;
            collect::counters(self)?;
        }
        let before = self.start()?;
        let played = script.play(self).and_then(|()| self.ended_in_time());
        let report = played.and_then(|()| collect::report(self, job, &before));
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
            if self.place.in_vm && self.born {
                others_ns = traced.others_ns;
            }
            report.trace = job.trace.then_some(traced.recorded);
        }
        if let Some(probes) = probes {
            probes.end(self.world)?.tell(&mut report);
        }
        let Conditions { outside_ns, late_ns, .. } = &mut report.conditions;
        (*outside_ns, *late_ns) = outside.awake(&asleep_ns, &others_ns);
        Ok(report)
    }

    /// Counters that are read much too late tell of another run.
    fn ended_in_time(&self) -> Result<(), Error> {
        let duration_ns = self.world.workload.duration_ns;
        let late_ns = self.world.now_ns().saturating_sub(duration_ns);
        if late_ns <= MUCH_TOO_LATE_NS + duration_ns / 10 {
            return Ok(());
        }
        let late_ms = late_ns / 1_000_000;
        Err(Error::Refused(format!(
            "it ends {late_ms} ms late: who starts tasks and intervenes was kept that long, by a \
             task that was stopped while it moved or by CPUs that it takes off and on line"
        )))
    }

    /// Begins to record what was asked for, and in a machine of our own in any case what stalls are
    /// known from.
    fn trace(&mut self, whole: bool) -> Result<Option<Tracing>, String> {
        let in_vm = self.place.in_vm;
        if !whole && !in_vm {
            return Ok(None);
        }
        match Tracing::begin(self.place.hierarchy.own_name(), whole) {
            Ok(tracing) => {
                self.world.traced.store(true, Relaxed);
                Ok(Some(tracing))
            }
            Err(error) if !whole => {
                self.notes.push(format!("stalls within system calls are sums: {error}"));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Begins to time what releases, if that was asked for. What that takes is over before the
    /// start is chosen.
    fn probe(&self, asked: bool) -> Result<Option<Probes>, Error> {
        if !asked {
            return Ok(None);
        }
        if !self.place.in_vm {
            let reason = "what releases is timed in virtual machines only";
            return Err(Error::Refused(reason.to_owned()));
        }
        init::mount("tracefs", "/sys/kernel/tracing", "tracefs", "")?;
        Ok(Some(Probes::begin(!kernel::stops_anywhere())?))
    }

    /// The start is at a tick, after everything that has to be done before.
    fn choose_start(&mut self) -> Result<(), String> {
        const REST_NS: u64 = 300_000_000;
        /// The record of switches takes 24 ms for each CPU to get its 8 MiB, in an emulated
        /// machine, a rehearsal 5 ms.
        const REST_OF_EACH_NS: u64 = 35_000_000;
        /// For which there is rest enough.
        const FEW_CPUS: u16 = 16;
        let next_tick_ns = next_tick_ns()?;
        let tick_ns = 1_000_000_000 / u64::from(kernel::hz());
        let workload = &self.world.workload;
        let period_ns = workload.groups.iter().map(|g| g.limit.period_ns()).max().unwrap_or(0);
        let cpus = workload.machine.cpus;
        let has_many = self.place.in_vm && cpus > FEW_CPUS;
        let rest_ns = REST_NS + if has_many { u64::from(cpus) * REST_OF_EACH_NS } else { 0 };
        let earliest_ns = sys::monotonic_ns() + 3 * period_ns + rest_ns;
        if next_tick_ns.is_none() {
            self.notes.push("the tick was not found".to_owned());
        }
        // Whole seconds on from a tick, so that runs begin alike.
        let a_tick_ns = next_tick_ns.unwrap_or(earliest_ns);
        self.start_ns = at_or_after(earliest_ns, a_tick_ns, tick_ns);
        self.end_ns = self.start_ns + workload.duration_ns;
        self.world.start_ns.store(self.start_ns, Relaxed);
        Ok(())
    }

    /// Puts the start off by some ticks, so that no period ends between its preparations and the
    /// start: who is queued then has taken a slice from the pool, which such an edge would fill
    /// again. Where a phase is wanted, it stays.
    fn start_clear_of_edges(&mut self) {
        const MOST_TICKS: u64 = 64;
        let workload = &self.world.workload;
        if workload.machine.timer_phase_ns.is_some() {
            return;
        }
        let tick_ns = 1_000_000_000 / u64::from(kernel::hz());
        let lead_ns = self.lead_ns();
        let found = (0..MOST_TICKS).map(|ticks| ticks * tick_ns).find_map(|by_ns| {
            let edges = put_off(&self.edges, workload, by_ns);
            is_clear(&edges, workload, lead_ns).then_some((by_ns, edges))
        });
        let Some((by_ns, edges)) = found else { return };
        self.edges = edges;
        self.start_ns += by_ns;
        self.end_ns += by_ns;
        self.world.start_ns.store(self.start_ns, Relaxed);
    }

    /// How long before the start its preparations begin, ns.
    fn lead_ns(&self) -> u64 {
        const EACH_NS: u64 = 150_000;
        const FIXED_NS: u64 = 1_000_000;
        let born = if self.born { starting(&self.world.workload).count() } else { 0 };
        FIXED_NS + EACH_NS * (2 * self.groups.len() + born) as u64
    }

    /// Waits for the start and starts what begins with it: the counters just before.
    fn start(&mut self) -> Result<collect::Counters, String> {
        let world = self.world;
        let now: Vec<_> = starting(&world.workload).collect();
        sys::sleep_until(self.start_ns - self.lead_ns());
        let before = collect::counters(self)?;
        let groups = self.groups.iter().zip(&world.workload.groups);
        for (group, spec) in groups.filter(|(_, spec)| spec.limit.quota_ns().is_some()) {
            fill_pool(&self.place.hierarchy, group, spec.limit)?;
            if let (true, Some(edge_ns)) = (spec.limit.burst_ns() > 0, self.edges.get(&spec.path)) {
                let last_edge_ns = self.start_ns + edge_ns - spec.limit.period_ns();
                let again = last_edge_ns > sys::monotonic_ns();
                self.pool_ns.insert(spec.path.clone(), filled_ns(spec.limit, again));
            }
        }
        world.start_stamp.store(world.speed.stamp_at(self.start_ns, work::pair()), Relaxed);
        if self.born {
            for start in &now {
                self.start_task(start);
            }
        }
        // On one CPU nobody runs as long as we do not sleep.
        while stamp() < world.start_stamp.load(Relaxed) {
            std::hint::spin_loop();
        }
        self.start_interrupts()?;
        if !self.born {
            for start in &now {
                self.start_task(start);
            }
        }
        let late_ns = world.now_ns();
        self.outside.visited(0, late_ns);
        if late_ns > LATE_NS {
            self.notes.push(format!("all tasks had started {} us after the start", late_ns / 1000));
        }
        Ok(before)
    }

    /// From here on the timer thread takes the lock it is to take.
    fn start_interrupts(&self) -> Result<(), String> {
        match (&self.world.clock_device, self.world.plan.interrupts_hz) {
            (Some(clock), Some(hz)) => clock.start(hz),
            _ => Ok(()),
        }
    }

    /// Lets everybody go on who waits for a timer thread that waits for whom a limit has stopped:
    /// without limits, nobody is.
    fn stop_interrupts(&self) -> Result<(), String> {
        const REST_NS: u64 = 50_000_000;
        let Some(clock) = &self.world.clock_device else { return Ok(()) };
        for (group, spec) in self.groups.iter().zip(&self.world.workload.groups).skip(1) {
            self.place.hierarchy.write_limit(group, spec.limit, Limit::UNLIMITED)?;
        }
        sys::sleep_for(REST_NS);
        clock.stop();
        Ok(())
    }

    /// Makes all tasks that run from the start, to wait until they are woken.
    fn make_all(&mut self) {
        for start in initial(&self.world.workload) {
            self.make(&start, Cue::Wait);
        }
        self.notes.extend(rehearse_all(self.world));
    }

    /// Starts one.
    pub fn start_task(&self, start: &Start) {
        if self.born {
            return self.make(start, Cue::Begin);
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
            slot.set_go(Cue::Begin);
        }
    }

    fn make(&self, start: &Start, go: Cue) {
        let world = self.world;
        let spec = &world.workload.tasks[start.kind as usize];
        let Some(slot) = world.take_slot(start.kind, spec.group) else { return };
        slot.attributes.store(attributes(0, Class::Fair, 0), Relaxed);
        if world.plan.lists && spec.program.contains(&Op::EnterKernel) {
            // SAFETY: the task has not begun. What fails here will fail there, and be told.
            unsafe { &mut (*slot.own.get()).call }.prepare();
        }
        slot.start_at_ns.store(start.at_ns, Relaxed);
        slot.go.store(go as u32, Relaxed);
        let v2 = self.place.hierarchy.version() == 2;
        let group = &self.groups[spec.group as usize];
        let pid = world.start(slot, v2.then_some(group.dir_fd));
        if pid < 0 {
            world.fail(crate::world::Fault::Start, pid);
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

/// The stalls that a record of switches does not show where tasks park: of who yields as soon as it
/// has the CPU.
fn stalls_not_seen(workload: &Workload) -> impl Iterator<Item = String> {
    let yields = workload.tasks.iter().filter(|kind| kind.program.contains(&Op::Yield));
    yields.map(|kind| format!("tasks.{}.longest_stall_ns", kind.label()))
}

/// Those that are there from the start.
fn starting(workload: &Workload) -> impl Iterator<Item = Start> + use<> {
    initial(workload).take_while(|start| start.at_ns == 0)
}

/// All tasks that are there from the start or come by themselves, in order of time and then of the
/// workload.
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
