//! Assembles threads from events: what each executed, what it waited for, and who ended the wait.
//!
//! Follows `sched_switch` on every CPU. Time in which a thread is preempted, throttled or queued is
//! dropped. CPU time is what `sched_stat_runtime` charged, without interrupts and stolen time,
//! spread over the wall time between two such events. A stay on a CPU without a charge counts its
//! wall time. `waker` decides whether the running thread or an interrupt woke a thread.

use crate::Defect;
use crate::cost::EventCost;
use crate::defects::Defects;
use crate::event::{CPUS_MAX, Event, Kind, Machine, Named, Note, PrevState, Sink, Stop, ThreadRef};
use crate::steps::push_one;
use crate::syscalls::{Abi, Hint, IoKind};
use crate::thread::{Cause, Edge, FdOrSocket, Io, LONG_QUEUED_NS, Ready, Step, Thread};
use std::collections::{BTreeMap, HashMap};

mod begin;
mod births;
mod calls;
mod charges;
mod on_cpu;
mod parts;
mod plausible;
mod signs;
mod size;
mod sockets;
mod wait;
mod waker;
mod watched;

use births::Announced;
use on_cpu::{OnCpu, Spent};
pub(crate) use signs::Signs;
use waker::Cpu;

/// Most threads that may do something. A replay takes up to 6 kB for each.
const THREADS_MAX: usize = 1 << 16;
/// The measured cost of an event is an average. Single events in a row may owe up to this much
/// more, ns.
const OWED_MOST_NS: u64 = 10_000;
/// Steps backwards in time that are accepted: this many, or one in so many events.
const BACKWARDS_FREE: u64 = 100;
const BACKWARDS_ONE_IN: u64 = 100;

#[derive(Debug, Default)]
pub(crate) struct Timeline {
    pub threads: Vec<Thread>,
    pub edges: Vec<Edge>,
    /// Operations of threads on descriptors.
    pub ios: Vec<Io>,
    /// Numbers of sockets by their addresses.
    pub sockets: BTreeMap<u64, u32>,
    /// Times at which data came in at sockets.
    pub ready: Vec<Ready>,
    /// Accepts (index into the transfers) whose sockets are not known yet, by process and new
    /// descriptor.
    accepts: BTreeMap<(i32, FdOrSocket), Vec<u32>>,
    pub groups: BTreeMap<u64, String>,
    pub machine: Machine,
    pub defects: Defects,
    pub events: u64,
    pub first_ns: u64,
    pub last_ns: u64,
    pub has_syscalls: bool,
    pub has_runtime: bool,
    pub has_context: bool,
    /// Switches of threads that go to sleep.
    sleeps: u64,
    /// Parent process of each process, if perf recorded it.
    pub parent_pids: BTreeMap<i32, i32>,
    /// Threads that perf announced and that have not done anything yet.
    announced: HashMap<i32, Announced>,
    live: HashMap<i32, Live>,
    cpus: Vec<Cpu>,
    abi: Abi,
    cost: EventCost,
    /// Most cost of recording that a thread may owe, ns.
    owed_most_ns: u64,
    /// Bytes that the reader holds to put events in order.
    reader_bytes: u64,
    /// Bytes of the file that are in memory.
    pub file_bytes: u64,
    /// Sums over all groups: bytes of their paths, and levels.
    path_bytes: usize,
    group_levels: u64,
    /// Switches that name another thread than the one in whose context they happened.
    other_ids: u64,
    is_overwritten: bool,
    pub signs: Signs,
    /// Why the recording cannot be used, if that was found while reading.
    refused: Option<String>,
}

/// The present state of a thread; what is settled stands in its [`Thread`].
#[derive(Debug)]
pub(crate) struct Live {
    thread: u32,
    state: State,
    /// A wakeup that came while it was running.
    early_wake: Option<Wake>,
    /// CPU time charged to it before it was seen to run, ns.
    early_charge_ns: u64,
    /// The system call it is in, if that was recorded.
    call: Option<Hint>,
    /// The unfinished transfer of that call; its result comes with the end of the call.
    transfer: Option<Io>,
    /// The unfinished write of that call (index into `ios`).
    sending: Option<u32>,
    /// Its control group, as of its last event.
    group: Option<u64>,
}

#[derive(Debug)]
enum State {
    /// No event of it was seen yet.
    Unknown,
    /// Preempted, woken, or just forked.
    Ready {
        since_ns: u64,
    },
    Running(OnCpu),
    /// Left this CPU at some time after, for an unknown reason.
    Gone {
        after_ns: u64,
        cpu: u32,
    },
    Asleep(Asleep),
    Dead,
}

/// How a thread got on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// By a recorded switch.
    Seen { from_idle: bool },
    /// The CPU was idle and recorded nothing since `earliest_ns`. The first charge of CPU time
    /// tells when the stay began.
    FromIdle { earliest_ns: u64 },
    /// The switch was lost; the CPU was last seen at `since_ns`.
    Before { since_ns: u64 },
}

impl Entry {
    fn is_seen(self) -> bool {
        matches!(self, Entry::Seen { .. })
    }
}

#[derive(Debug, Clone, Copy)]
struct Asleep {
    since_ns: u64,
    left: PrevState,
    cpu: u32,
    wake: Option<Wake>,
}

#[derive(Debug, Clone, Copy)]
struct Wake {
    at_ns: u64,
    cause: Cause,
}

impl Timeline {
    /// An empty timeline; `cost` is subtracted from CPU times.
    pub fn new(cost: EventCost) -> Self {
        Timeline { cost, ..Timeline::default() }
    }

    /// Ends the stays under way, settles all waits, and drops the state needed only while reading.
    ///
    /// # Errors
    ///
    /// A text that says what cannot be true of any machine.
    pub fn finish(&mut self) -> Result<(), String> {
        let end_ns = self.last_ns;
        self.gather_final_signs();
        for cpu in 0..self.cpus.len() {
            if let Some(tid) = self.cpus[cpu].current {
                self.leave_cpu(cpu, tid, self.end_of(cpu), None);
            }
        }
        let mut tids: Vec<i32> = self.live.keys().copied().collect();
        tids.sort_unstable();
        for tid in tids {
            self.settle_wait(tid, end_ns, None);
            let live = &self.live[&tid];
            let is_asleep = matches!(live.state, State::Asleep(_));
            self.threads[live.thread as usize].asleep = is_asleep;
        }
        self.live = HashMap::new();
        self.settle_doubtful();
        self.drop_forgotten_wakeups();
        for thread in &mut self.threads {
            thread.steps.shrink_to_fit();
            thread.waits.shrink_to_fit();
            thread.queued.shrink_to_fit();
        }
        self.refusal().map_or(Ok(()), Err)
    }

    /// Numbers of the CPUs that have events, ascending.
    pub fn cpus_seen(&self) -> Vec<u16> {
        let cpus = self.cpus.iter().zip(0..);
        cpus.filter(|(cpu, _)| cpu.last_ns.is_some()).map(|(_, number)| number).collect()
    }

    /// The live thread of this id; creates it if it is new.
    fn live(&mut self, tid: i32) -> &mut Live {
        let threads = &mut self.threads;
        self.live.entry(tid).or_insert_with(|| {
            let mut thread = self.announced.remove(&tid).unwrap_or_default().into_thread(tid);
            thread.owed_most_ns = self.owed_most_ns;
            threads.push(thread);
            Live {
                thread: threads.len() as u32 - 1,
                state: State::Unknown,
                early_wake: None,
                early_charge_ns: 0,
                call: None,
                transfer: None,
                sending: None,
                group: None,
            }
        })
    }

    /// The thread of this id; creates it if it is new.
    fn thread_of(&mut self, tid: i32) -> &mut Thread {
        let ix = self.live(tid).thread as usize;
        &mut self.threads[ix]
    }

    /// Makes `tid` current on this CPU; a thread that was there leaves, as a switch is missing.
    fn set_current(&mut self, cpu: usize, tid: i32, now_ns: u64) {
        if tid < 0 || self.cpus[cpu].current == Some(tid) {
            return;
        }
        self.note_broken_chain(cpu, now_ns);
        let Cpu { current, last_ns, has_lost, .. } = self.cpus[cpu];
        let entry = match current {
            None if has_lost => Entry::FromIdle { earliest_ns: last_ns.unwrap_or(now_ns) },
            None => Entry::Before { since_ns: last_ns.unwrap_or(self.first_ns) },
            Some(0) => {
                self.defects.missing_idle_switches += 1;
                self.cpus[cpu].left_idle_ns = Some(now_ns);
                Entry::FromIdle { earliest_ns: last_ns.unwrap_or(now_ns) }
            }
            Some(other) => {
                let last_ns = last_ns.unwrap_or(now_ns);
                self.leave_cpu(cpu, other, last_ns, None);
                Entry::Before { since_ns: last_ns }
            }
        };
        self.enter_cpu(cpu, tid, now_ns, entry);
    }

    /// Puts a thread (0: idle) on a CPU: ends its wait or its other stay, counts its time on the
    /// run queue, and makes it running. A stay that `entry` does not show begins at an estimated
    /// time, never before the thread was woken.
    fn enter_cpu(&mut self, cpu: usize, tid: i32, now_ns: u64, entry: Entry) {
        let (mut since_ns, mut earliest_ns) = match entry {
            Entry::Seen { .. } => (now_ns, None),
            Entry::FromIdle { earliest_ns } => (now_ns, Some(earliest_ns)),
            Entry::Before { since_ns } => (since_ns.min(now_ns), Some(since_ns)),
        };
        self.cpus[cpu].current = Some(tid);
        if tid == 0 {
            self.cpus[cpu].idle_ns = Some(since_ns);
            return;
        }
        // A thread cannot have run before it was born or could run.
        if let State::Ready { since_ns: ready_ns } = self.live(tid).state {
            since_ns = since_ns.max(ready_ns.min(now_ns));
            earliest_ns = earliest_ns.map(|ns| ns.max(ready_ns));
        }
        let settled = self.settle_wait(tid, since_ns, Some((cpu, entry)));
        if let State::Running(on) = &self.live(tid).state {
            // A thread cannot run on two CPUs: the end of its other stay was lost.
            let other = on.cpu as usize;
            self.defects.mismatched_switches += 1;
            let mut end_ns = since_ns;
            if other != cpu && self.cpus[other].current == Some(tid) {
                self.cpus[other].current = None;
                end_ns = self.cpus[other].last_ns.map_or(end_ns, |last_ns| last_ns.min(end_ns));
            }
            self.leave_cpu(other, tid, end_ns, None);
        }
        let debt_ns = self.cost.other_ns;
        let live = self.live(tid);
        let early_ns = std::mem::take(&mut live.early_charge_ns);
        let ready_ns = if let State::Ready { since_ns } = live.state { since_ns } else { since_ns };
        let thread = self.thread_of(tid);
        thread.add_cpu(cpu);
        if entry.is_seen() {
            thread.add_queued(ready_ns, since_ns);
        }
        if since_ns.saturating_sub(ready_ns) > LONG_QUEUED_NS {
            let kept = self.waits_beside_idle_cpu(cpu, since_ns - LONG_QUEUED_NS, entry);
            self.thread_of(tid).add_long_wait(kept);
        }
        let thread = self.thread_of(tid);
        let before = Spent::of(thread);
        thread.run(early_ns, 0);
        // A thread cannot have run before it was woken, nor before it slept.
        let woken_ns = settled.map_or(0, |settled| {
            let wait = &thread.waits[settled.wait];
            if settled.missing.is_none() { wait.end_ns } else { wait.start_ns }
        });
        let unseen = settled.filter(|settled| settled.missing.is_some() && !entry.is_seen());
        let earliest_ns = earliest_ns.map(|ns| ns.max(woken_ns));
        let mut on = OnCpu::new(cpu as u32, since_ns.max(woken_ns), earliest_ns, debt_ns, unseen);
        on.set_start(thread.prio, before);
        self.live(tid).state = State::Running(on);
    }

    /// Whether a thread that now enters `cpu` waited there although another CPU was idle: since
    /// `from_ns`, ns, this CPU ran other threads and some CPU was idle throughout. False unless the
    /// switch was recorded and did not come from idle.
    fn waits_beside_idle_cpu(&self, cpu: usize, from_ns: u64, entry: Entry) -> bool {
        let idle = |other: &Cpu| {
            other.current == Some(0) && other.idle_ns.is_some_and(|idle_ns| idle_ns <= from_ns)
        };
        let was_busy = self.cpus[cpu].busy_ns.is_none_or(|busy_ns| busy_ns <= from_ns);
        entry == Entry::Seen { from_idle: false } && was_busy && self.cpus.iter().any(idle)
    }

    /// Settles CPU time and state of a thread that leaves (`left`: why), still the CPU's `current`.
    fn leave_cpu(&mut self, cpu: usize, tid: i32, now_ns: u64, left: Option<PrevState>) {
        if tid <= 0 {
            return;
        }
        let state = match left {
            None => State::Gone { after_ns: now_ns, cpu: cpu as u32 },
            Some(PrevState::Runnable) => State::Ready { since_ns: now_ns },
            Some(PrevState::Dead) => State::Dead,
            Some(left) => {
                State::Asleep(Asleep { since_ns: now_ns, left, cpu: cpu as u32, wake: None })
            }
        };
        let live = self.live(tid);
        let ix = live.thread as usize;
        let before = std::mem::replace(&mut live.state, state);
        if let State::Running(on) = before {
            self.threads[ix].last_ns = now_ns;
            self.signs.stays.add(&on.end(now_ns, &mut self.threads[ix]), left);
        }
        if left == Some(PrevState::Dead) {
            self.threads[ix].exited = true;
        }
    }

    /// Applies a recorded switch: `prev` leaves the CPU as `left` says, `next` enters it. Names,
    /// priorities and groups are taken over.
    fn apply_switch(
        &mut self,
        event: &Event<'_>,
        prev: &ThreadRef<'_>,
        left: PrevState,
        next: &ThreadRef<'_>,
    ) {
        let cpu = event.cpu as usize;
        let now_ns = event.time_ns;
        self.other_ids += u64::from(event.tid >= 0 && event.tid != prev.tid);
        self.sleeps += u64::from(prev.tid > 0 && left.is_sleep());
        self.add_switch_sign(cpu, prev.tid, left, next.tid);
        self.set_current(cpu, prev.tid, now_ns);
        self.set_name_and_prio(prev, now_ns);
        if let Some(group) = event.cgroup
            && prev.tid > 0
        {
            self.thread_of(prev.tid).add_group(group);
        }
        self.leave_cpu(cpu, prev.tid, now_ns, Some(left));
        self.cpus[cpu].leave_interrupts();
        if prev.tid == 0 {
            self.cpus[cpu].left_idle_ns = None;
            self.cpus[cpu].busy_ns = Some(now_ns);
        }
        self.set_name_and_prio(next, now_ns);
        self.enter_cpu(cpu, next.tid, now_ns, Entry::Seen { from_idle: prev.tid == 0 });
    }

    /// Applies a wakeup: an edge from the waker, or an interrupt, will end the wait of `wakee`.
    /// Ignored for a thread that is ready or dead, or was woken already.
    fn apply_wakeup(&mut self, event: &Event<'_>, wakee: &ThreadRef<'_>, named: Option<Named>) {
        self.signs.wakeups += 1;
        if wakee.tid <= 0 {
            return;
        }
        self.name_cpu_of(wakee.tid, named);
        self.set_name_and_prio(wakee, event.time_ns);
        match self.live(wakee.tid).state {
            State::Dead => return,
            State::Ready { since_ns }
            | State::Asleep(Asleep { wake: Some(Wake { at_ns: since_ns, .. }), .. }) => {
                return self.count_unseen_run(since_ns, event.time_ns);
            }
            _ => {}
        }
        let cause = match self.waker(event, wakee.tid) {
            Ok(waker) => self.add_edge(waker, wakee.tid, event.time_ns),
            Err(interrupt) => Cause::Interrupt(interrupt),
        };
        let first_ns = self.first_ns;
        let wake = Wake { at_ns: event.time_ns, cause };
        let live = self.live(wakee.tid);
        match &mut live.state {
            State::Running(_) => live.early_wake = Some(wake),
            State::Asleep(asleep) => asleep.wake = Some(wake),
            State::Unknown => {
                let cpu = event.cpu;
                live.state = asleep(first_ns, cpu, wake);
            }
            State::Gone { after_ns, cpu } => live.state = asleep(*after_ns, *cpu, wake),
            State::Ready { .. } | State::Dead => {}
        }
    }

    /// Adds a wakeup between two threads to both; returns it as the cause of a wait.
    fn add_edge(&mut self, waker: i32, wakee: i32, now_ns: u64) -> Cause {
        let wakee = self.live(wakee).thread;
        let waker_ix = self.live(waker).thread;
        let edge = self.edges.len() as u32;
        push_one(&mut self.edges, Edge::new(waker_ix, wakee, now_ns));
        self.add_step(waker, now_ns, Step::Wake(edge));
        Cause::Thread { edge }
    }

    /// Adds a step at this point of a thread's work.
    fn add_step(&mut self, tid: i32, now_ns: u64, step: Step) {
        let live = self.live(tid);
        if let State::Running(on) = &mut live.state {
            on.add_point(now_ns, step);
        } else {
            let ix = live.thread as usize;
            self.threads[ix].steps.push(step);
        }
    }

    /// Settles a running thread by a charge of `ns`; keeps a plausible one for another thread.
    fn apply_charge(&mut self, tid: i32, ns: u64, now_ns: u64) {
        if tid <= 0 {
            return;
        }
        self.has_runtime = true;
        let possible = ns <= now_ns - self.first_ns;
        let ix = self.live(tid).thread as usize;
        let Some(live) = self.live.get_mut(&tid) else { return };
        match &mut live.state {
            State::Running(on) => {
                if let Some(began) = on.charge(ns, now_ns, &mut self.threads[ix]) {
                    let was_idle = self.cpus[on.cpu as usize].note_began(&began);
                    began.set_wakeup(was_idle, &mut self.threads[ix]);
                }
            }
            // Another CPU may charge a thread before it does anything that is recorded.
            State::Ready { .. } | State::Gone { .. } | State::Asleep(_) if possible => {
                live.early_charge_ns = live.early_charge_ns.saturating_add(ns);
            }
            _ => self.defects.stray_runtimes += 1,
        }
    }

    /// Counts the event and returns its time, after silences were cut out and not before that of
    /// the last one. `None` if its CPU cannot be; an error if too many events went backwards.
    fn admit(&mut self, event: &Event<'_>) -> Result<Option<u64>, Stop> {
        self.events += 1;
        if event.cpu >= self.machine.cpus_possible.unwrap_or(CPUS_MAX).clamp(1, CPUS_MAX) {
            self.defects.impossible_cpus += 1;
            return Ok(None);
        }
        if self.cpus.is_empty() {
            self.first_ns = event.time_ns;
            self.last_ns = event.time_ns;
        }
        let time_ns = self.cut_silence(event.time_ns);
        let late_ns = self.last_ns.saturating_sub(time_ns);
        if late_ns > 0 {
            self.defects.backwards_events += 1;
            let most_ns = self.defects.backwards_most_ns.max(late_ns);
            self.defects.backwards_most_ns = most_ns;
            if self.defects.backwards_events > BACKWARDS_FREE.max(self.events / BACKWARDS_ONE_IN) {
                return Err(Stop::Misordered {
                    backwards: self.defects.backwards_events,
                    events: self.events,
                    by_at_most_ns: most_ns,
                });
            }
        }
        self.last_ns = self.last_ns.max(time_ns);
        let cpu = event.cpu as usize;
        if cpu >= self.cpus.len() {
            self.cpus.resize_with(cpu + 1, Cpu::default);
        }
        if self.is_overwritten && self.cpus[cpu].last_ns.is_none() {
            self.restart_at(self.last_ns);
        }
        Ok(Some(self.last_ns))
    }

    /// Notes process, name and group of the running thread, and the cost of recording the event.
    fn note_running(&mut self, event: &Event<'_>) {
        if event.tid <= 0 {
            return;
        }
        if let Some(pid) = event.pid {
            self.thread_of(event.tid).pid = Some(pid);
        }
        if let Some(comm) = event.comm {
            self.rename(event.tid, comm, event.time_ns);
        }
        if let Some(group) = event.cgroup {
            self.set_group(event.tid, group, event.time_ns);
        }
        let cost_ns = match event.kind {
            Kind::SysEnter { .. } | Kind::SysExit { .. } => self.cost.syscall_ns,
            _ => self.cost.other_ns,
        };
        if let State::Running(on) = &mut self.live(event.tid).state {
            on.add_cost(cost_ns);
        }
    }
}

/// A sleeping thread of which only the wakeup was seen.
fn asleep(since_ns: u64, cpu: u32, wake: Wake) -> State {
    State::Asleep(Asleep { since_ns, left: PrevState::Sleeping, cpu, wake: Some(wake) })
}

impl Sink for Timeline {
    fn machine(&mut self, machine: Machine) {
        self.abi = Abi::of(machine.arch.as_deref());
        let is_measured = machine.about.as_ref().is_some_and(|about| about.is_cost_measured());
        self.owed_most_ns = if is_measured { OWED_MOST_NS } else { 0 };
        self.machine = machine;
    }

    fn reader_holds(&mut self, bytes: u64) {
        self.reader_bytes = bytes;
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), Stop> {
        let Some(time_ns) = self.admit(event)? else {
            return Ok(());
        };
        let event = &Event { time_ns, ..*event };
        let cpu = event.cpu as usize;
        if self.drop_repeated(cpu, &event.kind, time_ns) || self.is_part_of_switch(event) {
            return Ok(());
        }
        self.has_context |= event.context.is_some();
        self.cpus[cpu].note_interval(time_ns);
        if !matches!(event.kind, Kind::Switch { .. }) {
            self.set_current(cpu, event.tid, time_ns);
        }
        self.note_running(event);
        match &event.kind {
            Kind::Switch { prev, left, next } => self.apply_switch(event, prev, *left, next),
            Kind::Waking(wakee, named) => self.apply_wakeup(event, wakee, *named),
            Kind::WakeupNew(child, named) => self.begin_thread(child, *named, time_ns),
            Kind::Migrate { to } => self.name_cpu(Some(*to), true),
            Kind::Fork { child, child_comm } => self.apply_fork(event, *child, child_comm),
            Kind::Runtime { tid, ns } => self.apply_charge(*tid, *ns, time_ns),
            Kind::SysEnter { number, args } => self.enter_call(event, *number, args),
            Kind::SysExit { result } => self.leave_call(event, *result),
            Kind::SocketSent { socket, result } => {
                self.add_message(event, IoKind::Write, *socket, *result);
            }
            Kind::SocketReceived { socket, result } => {
                self.add_message(event, IoKind::Read, *socket, *result);
            }
            Kind::DataReady { socket } => self.add_data_ready(event, *socket),
            Kind::SocketState { socket, from, to } => {
                self.apply_socket_state(event, *socket, *from, *to);
            }
            Kind::IrqEnter(_)
            | Kind::IrqExit(_)
            | Kind::SoftirqEnter { .. }
            | Kind::SoftirqExit
            | Kind::Other => {}
        }
        if let Cpu { has_lost: true, last_ns: Some(last_ns), .. } = self.cpus[cpu] {
            self.signs.lost_ns = self.signs.lost_ns.saturating_add(time_ns - last_ns);
        }
        self.cpus[cpu].track(event);
        if self.threads.len() > THREADS_MAX {
            return Err(Stop::TooManyThreads { most: THREADS_MAX });
        }
        self.check_size()
    }

    fn note(&mut self, note: &Note<'_>) {
        self.apply_note(note);
    }

    fn defect(&mut self, defect: Defect) {
        self.defects.count(defect);
    }
}
