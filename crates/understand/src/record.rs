//! Writes a run of the model as the recording that `perf script` would print.
//!
//! Each depth has switches, wakeups, forks and interrupts. With system calls, threads also poll,
//! read, write, accept, close, sleep and wait for locks, with plausible descriptors. Calls have no
//! duration: their time counts as user time. Softirqs of the network beyond wakeups, times in
//! microseconds, and lost events are left out.

use crate::plan::{Plan, Server};
use clap::ValueEnum;
use cpumax_outcome::trace::{Message, Recorded, What};
use cpumax_workload::Workload;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

mod calls;
mod threads;

use calls::Call;
use threads::{Role, Thread};

/// Events that a recording has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Depth {
    /// Scheduler events and interrupts.
    Sched,
    /// System calls, too.
    Calls,
}

/// Uptime of the machine at the start of the recording, ns.
const BOOTED_NS: u64 = 1_000_000_000_000;
const IDLE: &str = "swapper";

/// Why a thread leaves its CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Sleeps,
    Exits,
}

/// The last act of a thread, which decides what it waits for next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastAct {
    Nothing,
    Sent(Message),
    Received(Message),
}

struct State {
    left: Option<Left>,
    /// The system call that it is in.
    call: Option<Call>,
    /// Descriptors whose data arrived while it slept.
    given: Vec<u64>,
    /// Whether a poll returned ready descriptors that the thread has not read yet.
    knows_ready: bool,
    /// Whether a timer woke it.
    is_timed: bool,
    waits_for_lock: bool,
    is_sending: bool,
    is_born: bool,
    last: LastAct,
}

struct Recorder<'a> {
    plan: &'a Plan,
    depth: Depth,
    threads: Vec<Thread>,
    states: Vec<State>,
    /// Names of channels and jobs, by their index in the workload.
    channels: Vec<&'a str>,
    jobs: Vec<&'a str>,
    running: BTreeMap<u16, u32>,
    /// The thread that makes the next wakeup.
    waker: Option<u32>,
    parent: Option<u32>,
    out: String,
}

/// The text of a recording of this run.
pub fn record(plan: &Plan, workload: &Workload, run: &Recorded, depth: Depth) -> String {
    let (kernel, cpus) = (plan.kernel, plan.cpus);
    let out = format!(
        "# hostname : judge\n# os release : {kernel}.0\n# arch : x86_64\n\
         # nrcpus online : {cpus}\n# nrcpus avail : {cpus}\n"
    );
    let name = |(task, name): (usize, &String)| Thread::of(plan, task, name);
    let threads: Vec<Thread> = run.names.tasks.iter().enumerate().map(name).collect();
    let mut recorder = Recorder {
        plan,
        depth,
        states: threads.iter().map(|_| State::new()).collect(),
        threads,
        channels: workload.channels.iter().map(|channel| channel.name.as_str()).collect(),
        jobs: workload.jobs.iter().map(|job| job.name.as_str()).collect(),
        running: BTreeMap::new(),
        waker: None,
        parent: None,
        out,
    };
    for event in &run.events {
        recorder.write_event(BOOTED_NS + event.time_ns, event.cpu, event.what);
    }
    recorder.out
}

impl State {
    fn new() -> State {
        State {
            left: None,
            call: None,
            given: Vec::new(),
            knows_ready: false,
            is_timed: false,
            waits_for_lock: false,
            is_sending: false,
            is_born: false,
            last: LastAct::Nothing,
        }
    }
}

impl Recorder<'_> {
    fn write_event(&mut self, ns: u64, cpu: u16, what: What) {
        match what {
            What::Switch { next } => self.write_switch(ns, cpu, next),
            What::Sleep { task } => self.state_mut(task).left = Some(Left::Sleeps),
            What::Exit { task } => self.state_mut(task).left = Some(Left::Exits),
            What::LockWait { task, .. } => self.state_mut(task).waits_for_lock = true,
            What::WokenBy { by, .. } => self.waker = Some(by),
            What::Forked { task, .. } => self.parent = Some(task),
            What::Wake { task } => self.write_wakeup(ns, cpu, task),
            What::SendBegins(message) => self.begin_send(ns, cpu, message),
            What::Sent(message) => self.end_send(ns, cpu, message),
            What::Received(message) => self.write_received(ns, message),
            _ => {}
        }
    }

    fn state_mut(&mut self, task: u32) -> &mut State {
        &mut self.states[task as usize]
    }

    fn cpu_of(&self, task: u32) -> Option<u16> {
        self.running.iter().find(|(_, running)| **running == task).map(|(cpu, _)| *cpu)
    }

    /// Appends a line: thread, CPU, time and event.
    fn write_line(&mut self, ns: u64, cpu: u16, task: Option<u32>, what: &str) {
        let (s, ns) = (ns / 1_000_000_000, ns % 1_000_000_000);
        let _ = match task.map(|task| &self.threads[task as usize]) {
            Some(Thread { comm, pid, tid, .. }) => {
                write!(self.out, "{comm} {pid}/{tid} [{cpu:03}] {s}.{ns:09}: ")
            }
            None => write!(self.out, "{IDLE} 0/0 [{cpu:03}] {s}.{ns:09}: "),
        };
        self.out.push_str(what);
        self.out.push('\n');
    }

    fn write_switch(&mut self, ns: u64, cpu: u16, next: Option<u32>) {
        let previous = self.running.get(&cpu).copied();
        if previous == next {
            return;
        }
        let left = previous.and_then(|task| self.state_mut(task).left.take());
        let mut state = match left {
            None => "R",
            Some(Left::Exits) => "X",
            Some(Left::Sleeps) => "S",
        };
        if let Some(task) = previous.filter(|_| state == "S") {
            if self.waits_for_disk(task) {
                state = "D";
            }
            self.write_sleep(ns, cpu, task);
        }
        let named = |task: Option<u32>| match task.map(|task| &self.threads[task as usize]) {
            Some(thread) => (thread.comm.clone(), thread.tid),
            None => (format!("{IDLE}/{cpu}"), 0),
        };
        let ((comm, tid), (next_comm, next_tid)) = (named(previous), named(next));
        let what = format!(
            "sched:sched_switch: prev_comm={comm} prev_pid={tid} prev_prio=120 prev_state={state} \
             ==> next_comm={next_comm} next_pid={next_tid} next_prio=120"
        );
        self.write_line(ns, cpu, previous, &what);
        match next {
            Some(next) => self.running.insert(cpu, next),
            None => self.running.remove(&cpu),
        };
        if let Some(next) = next {
            self.write_resume(ns, cpu, next);
        }
    }

    fn waits_for_disk(&self, task: u32) -> bool {
        self.plan.server == Server::Disk
            && self.threads[task as usize].role == Role::Serves
            && matches!(self.states[task as usize].last, LastAct::Received(_))
    }

    fn write_wakeup(&mut self, ns: u64, cpu: u16, task: u32) {
        let waker = self.waker.take();
        let state = self.state_mut(task);
        state.left = None;
        state.waits_for_lock = false;
        if !std::mem::replace(&mut state.is_born, true) {
            if let Some(parent) = self.parent.take() {
                self.write_fork(ns, cpu, (parent, task));
            }
            return;
        }
        let Thread { comm, tid, .. } = &self.threads[task as usize];
        let what =
            format!("sched:sched_wakeup: comm={comm} pid={tid} prio=120 target_cpu={cpu:03}");
        match waker.and_then(|by| Some((by, self.cpu_of(by)?))) {
            Some((by, at)) => {
                // A thread that unlocks wakes the next one by a futex call.
                let unlocks = self.depth == Depth::Calls && !self.states[by as usize].is_sending;
                if unlocks {
                    self.write_enter(ns, at, by, Call::wake_futex(calls::LOCK));
                }
                self.write_line(ns, at, Some(by), &what);
                if unlocks {
                    self.write_exit(ns, at, by, 1);
                }
            }
            None => self.write_interrupt(ns, cpu, task, &what),
        }
        // The woken thread may not have left its CPU yet.
        if let Some(at) = self.cpu_of(task) {
            self.write_resume(ns, at, task);
        }
    }

    /// Writes a wakeup from an interrupt: a timer, or a device.
    fn write_interrupt(&mut self, ns: u64, cpu: u16, task: u32, what: &str) {
        let on = self.running.get(&cpu).copied();
        let from_disk = self.waits_for_disk(task);
        let thread = &self.threads[task as usize];
        let is_remote = self.plan.client.is_remote() && thread.is_served() && !from_disk;
        let (before, after): (&[&str], &[&str]) = if from_disk {
            (
                &["irq:irq_handler_entry: irq=31 name=nvme0q1"],
                &["irq:irq_handler_exit: irq=31 ret=handled"],
            )
        } else if is_remote {
            (
                &[
                    "irq:irq_handler_entry: irq=30 name=virtio0",
                    "irq:irq_handler_exit: irq=30 ret=handled",
                    "irq:softirq_entry: vec=3 [action=NET_RX]",
                ],
                &["irq:softirq_exit: vec=3 [action=NET_RX]"],
            )
        } else {
            self.state_mut(task).is_timed = true;
            (
                &["timer:hrtimer_expire_entry: hrtimer=0xffff function=hrtimer_wakeup now=1"],
                &["timer:hrtimer_expire_exit: hrtimer=0xffff"],
            )
        };
        for line in before.iter().chain([&what]).chain(after) {
            self.write_line(ns, cpu, on, line);
        }
    }

    fn write_fork(&mut self, ns: u64, cpu: u16, (parent, child): (u32, u32)) {
        let at = self.cpu_of(parent).unwrap_or(cpu);
        let comm = self.threads[parent as usize].comm.clone();
        let tid = self.threads[child as usize].tid;
        let pid = self.threads[parent as usize].tid;
        let what = format!(
            "sched:sched_process_fork: comm={comm} pid={pid} child_comm={comm} child_pid={tid}"
        );
        self.write_line(ns, at, Some(parent), &what);
        let what =
            format!("sched:sched_wakeup_new: comm={comm} pid={tid} prio=120 target_cpu={cpu:03}");
        self.write_line(ns, at, Some(parent), &what);
        self.write_call(ns, at, parent, (Call::close(threads::ACCEPTED), 0));
    }
}
