//! The contents of a recording, for people.

use crate::about::{About, Ended};
use crate::cost::EventCost;
use crate::defects::Defects;
use crate::gaps::Gap;
use crate::input::Form;
use crate::recording::Recording;
use crate::thread::Thread;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A recording at a glance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Summary {
    /// Kind of file.
    pub form: Form,
    /// First event to last, ns.
    pub span_ns: u64,
    /// Number of events.
    pub events: u64,
    /// Version of the kernel, if the file tells.
    pub kernel: Option<String>,
    /// The command that made it, if the file tells.
    pub command: Option<String>,
    /// CPUs of the machine.
    pub cpus: u16,
    /// The machine and the recorded groups, as the file describes them, if `cpumax record` made it.
    pub about: Option<About>,
    /// The end of the recording, as the file describes it, if `cpumax record` made it.
    pub ended: Option<Ended>,
    /// Whether system calls were recorded, so that user and kernel mode are told apart.
    pub has_syscalls: bool,
    /// Whether the kernel told the CPU time it charged (`sched_stat_runtime`).
    pub has_runtime: bool,
    /// Whether the file tells wakeups by interrupts from those by threads.
    pub has_context: bool,
    /// Cost of recording an event, as subtracted from the CPU time of its thread.
    pub event_cost: EventCost,
    /// CPU time of all threads that are in the workload, ns.
    pub runtime_ns: u64,
    /// Wall time on a CPU that was not charged to the thread on it: interrupts, stolen time, ns.
    pub uncharged_ns: u64,
    /// CPU time of the recording tool's own threads, which are left out, ns.
    pub recorder_ns: u64,
    /// The threads that ran, most CPU time first.
    pub threads: Vec<ThreadSummary>,
    /// Whether the file tells the processes of threads.
    pub has_processes: bool,
    /// Whether the file tells the control groups of threads, be it only the root group.
    pub has_groups: bool,
    /// Faults that were repaired.
    pub defects: Defects,
    /// Things that the recording lacks.
    pub gaps: Vec<Gap>,
}

impl Summary {
    /// Whether so much is missing that its numbers are not to be relied on.
    pub fn is_doubtful(&self) -> bool {
        self.gaps.iter().any(|gap| gap.doubtful)
    }
}

/// How many of the waits of some threads are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Waits {
    /// Times they slept, or were about to.
    pub all: u64,
    /// Of these, those whose end, or existence, is not known.
    pub unknown: u64,
}

impl Waits {
    /// The waits of these threads together.
    pub fn of<'a>(threads: impl IntoIterator<Item = &'a ThreadSummary>) -> Waits {
        threads.into_iter().fold(Waits::default(), |sum, thread| Waits {
            all: sum.all + thread.waits + thread.merged_waits,
            unknown: sum.unknown + thread.guessed_waits + thread.merged_waits,
        })
    }

    /// The sum with the waits of one more thread.
    pub(crate) fn with(self, thread: &Thread) -> Waits {
        Waits {
            all: self.all + thread.waits.len() as u64 + thread.merged_waits,
            unknown: self.unknown + thread.guessed_waits + thread.merged_waits,
        }
    }

    /// Whether latencies and the effect of a limit can be told from them: at most a tenth is
    /// unknown.
    pub fn are_known(self) -> bool {
        self.unknown * 10 <= self.all
    }
}

/// A thread at a glance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ThreadSummary {
    /// Name of its task in the workload: name and id.
    pub name: String,
    /// Its name, as the kernel has it.
    pub comm: String,
    /// Thread id.
    pub tid: i32,
    /// Process id, if the file tells.
    pub pid: Option<i32>,
    /// Path of its control group, if the file tells.
    pub group: Option<String>,
    /// A kernel thread.
    pub kernel: bool,
    /// CPU time, ns.
    pub runtime_ns: u64,
    /// CPU time used at a real-time priority, part of `runtime_ns`, ns.
    pub real_time_ns: u64,
    /// Times it slept and was woken.
    pub waits: u64,
    /// Of these, those whose wakeup is missing but must have come when a CPU ended its idle time:
    /// known within 0.1 ms.
    pub placed_waits: u64,
    /// Of these, those whose wakeup is missing and may have come any time before the thread ran.
    pub guessed_waits: u64,
    /// Further times it was about to sleep and was taken to have run on, as no wakeup was recorded.
    pub merged_waits: u64,
}

impl Recording {
    /// The contents of the recording: threads, defects and gaps. Threads that used no CPU time, and
    /// perf's own, are left out.
    pub fn summary(&self) -> Summary {
        let names = self.names();
        let mut threads: Vec<ThreadSummary> = (0..self.threads.len())
            .filter(|ix| self.is_included(*ix))
            .map(|ix| {
                let thread = &self.threads[ix];
                ThreadSummary {
                    name: names[ix].clone(),
                    comm: thread.comm.clone(),
                    tid: thread.tid,
                    pid: thread.pid,
                    group: self.group_path(thread).map(str::to_owned),
                    kernel: self.is_kernel(thread),
                    runtime_ns: thread.runtime_ns,
                    real_time_ns: thread.real_time_ns().min(thread.runtime_ns),
                    waits: thread.waits.len() as u64,
                    placed_waits: thread.placed_waits,
                    guessed_waits: thread.guessed_waits,
                    merged_waits: thread.merged_waits,
                }
            })
            .collect();
        threads.sort_by(|a, b| b.runtime_ns.cmp(&a.runtime_ns).then(a.name.cmp(&b.name)));
        let perf = self.threads.iter().filter(|thread| thread.is_perf());
        let wall_ns = sum(self.threads.iter().map(|thread| thread.wall_ns));
        let charged_ns = sum(self.threads.iter().map(|thread| thread.runtime_ns));
        Summary {
            form: self.form,
            span_ns: self.span_ns(),
            events: self.events,
            kernel: self.machine.kernel.clone(),
            command: self.machine.command.clone(),
            cpus: self.cpus(),
            about: self.machine.about.as_deref().cloned(),
            ended: self.machine.ended.as_deref().cloned(),
            has_syscalls: self.has_syscalls,
            has_runtime: self.has_runtime,
            has_context: self.has_context,
            event_cost: self.cost,
            runtime_ns: sum(threads.iter().map(|thread| thread.runtime_ns)),
            uncharged_ns: wall_ns.saturating_sub(charged_ns),
            recorder_ns: sum(perf.map(|thread| thread.runtime_ns)),
            has_processes: threads.iter().any(|thread| thread.pid.is_some()),
            threads,
            has_groups: !self.groups.is_empty(),
            defects: self.defects.clone(),
            gaps: self.gaps(),
        }
    }
}

/// The sum of the values, which saturates: damaged files may hold any number.
pub(crate) fn sum(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}
