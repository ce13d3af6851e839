//! The events of a run.

use crate::release::{Call, Releaser};
use serde::{Deserialize, Serialize};

mod states;

pub use states::{Change, State, States};

/// Something that happened on a CPU at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEvent {
    /// ns since the start of the run.
    pub time_ns: u64,
    /// CPU on which it happened.
    pub cpu: u16,
    /// The kind of event.
    pub what: What,
}

/// The kinds of events. Tasks are numbered as created; [`Names`] has their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the text or the name of a variant tells its fields")]
pub enum What {
    /// `next` runs from now on; `None`: idle.
    Switch { next: Option<u32> },
    /// The running task went to sleep: it waits for time, a token or a child, not for a CPU.
    Sleep { task: u32 },
    /// A sleeping task became ready on this CPU.
    Wake { task: u32 },
    /// The running task passes a token that wakes another task; that task's [`What::Wake`] comes
    /// next.
    WokenBy { task: u32, by: u32 },
    /// A task completed a request.
    Done { task: u32, took_ns: u64 },
    /// The runtime left in a group's pool has changed.
    Runtime { group: u32, left_ns: u64 },
    /// A group ran out of runtime on this CPU.
    Throttle { group: u32 },
    /// A group was released on this CPU.
    Unthrottle { group: u32 },
    /// A call of a function that releases has ended on this CPU.
    Release {
        by: Releaser,
        took_ns: u64,
        /// (group, CPU) pairs left to an interrupt of their CPU.
        told: u32,
        /// (group, CPU) pairs released.
        rqs: u32,
        /// (group, CPU) pairs walked.
        cfs_rqs: u32,
        /// Tasks put back, or entities of groups.
        tasks: u32,
    },
    /// A task dequeued itself on its way to user mode.
    Park { task: u32 },
    /// A parked task was put back.
    Unpark { task: u32 },
    /// A group's period timer fired.
    Period { group: u32 },
    /// A task began to wait for a lock.
    LockWait { task: u32, lock: u32 },
    /// A task got a lock.
    LockTaken { task: u32, lock: u32 },
    /// A task exited.
    Exit { task: u32 },
    /// A task begins to send tokens into a channel. Only if the sink wants messages.
    SendBegins(Message),
    /// The task has sent them without waiting. Only if the sink wants messages.
    Sent(Message),
    /// A task has received tokens from a channel, perhaps while it slept. Only if the sink wants
    /// messages.
    Received(Message),
    /// A task forked another one, whose [`What::Wake`] comes next. Only if the sink wants messages.
    Forked { task: u32, child: u32 },
}

/// A message between tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The task that sends or receives.
    pub task: u32,
    /// The channel, by its place in the workload.
    pub channel: u32,
    /// The job that it carries, by its place in the workload; `None` for a plain token.
    pub job: Option<u32>,
}

impl What {
    /// The name of its kind, such as `switch` or `lock-wait`.
    pub fn kind(self) -> &'static str {
        match self {
            What::Switch { .. } => "switch",
            What::Sleep { .. } => "sleep",
            What::Wake { .. } => "wake",
            What::WokenBy { .. } => "woken-by",
            What::Done { .. } => "done",
            What::Runtime { .. } => "runtime",
            What::Throttle { .. } => "throttle",
            What::Unthrottle { .. } => "unthrottle",
            What::Release { by: Releaser::Distribute, .. } => "distribute",
            What::Release { by: Releaser::Handler, .. } => "handler",
            What::Park { .. } => "park",
            What::Unpark { .. } => "unpark",
            What::Period { .. } => "period",
            What::LockWait { .. } => "lock-wait",
            What::LockTaken { .. } => "lock-taken",
            What::Exit { .. } => "exit",
            What::SendBegins(_) => "send",
            What::Sent(_) => "sent",
            What::Received(_) => "received",
            What::Forked { .. } => "forked",
        }
    }

    /// The event at the end of a call of `by`; counts beyond 32 bits are cut to the largest.
    pub fn release(by: Releaser, call: Call) -> What {
        let [told, rqs, cfs_rqs, tasks] =
            call.did.numbers().map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        What::Release { by, took_ns: call.ns, told, rqs, cfs_rqs, tasks }
    }
}

/// Kinds of things that events number, each from 0 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the text or the name of a variant tells its fields")]
pub enum Numbered {
    Task,
    Group,
    Lock,
}

/// Names of the tasks, groups and locks that events number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Task names, by number.
    pub tasks: Vec<String>,
    /// Group paths, by number.
    pub groups: Vec<String>,
    /// Lock names, by number.
    pub locks: Vec<String>,
}

impl Names {
    /// Adds the name of the next number.
    pub fn add(&mut self, of: Numbered, name: String) {
        match of {
            Numbered::Task => self.tasks.push(name),
            Numbered::Group => self.groups.push(name),
            Numbered::Lock => self.locks.push(name),
        }
    }
}

/// A sink for the events of a run.
pub trait TraceSink {
    /// Takes an event; called in order of time.
    fn event(&mut self, event: TraceEvent);
    /// Takes the name of the next number, before any event that has it.
    fn name(&mut self, of: Numbered, name: String);
    /// Whether to emit messages, forks, and the task that passes a lock on. Asked once, before the
    /// run.
    fn wants_messages(&self) -> bool {
        false
    }
}

/// A sink that keeps all events of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// The events, in order of time.
    pub events: Vec<TraceEvent>,
    /// The names.
    pub names: Names,
}

impl Recorded {
    /// Feeds all names and events to another sink.
    pub fn replay(self, sink: &mut dyn TraceSink) {
        let Names { tasks, groups, locks } = self.names;
        let all = [(Numbered::Task, tasks), (Numbered::Group, groups), (Numbered::Lock, locks)];
        for (of, names) in all {
            for name in names {
                sink.name(of, name);
            }
        }
        self.events.into_iter().for_each(|event| sink.event(event));
    }

    /// One line for each event, in order: seconds, CPU, kind, object.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.events.iter().map(|event| {
            let TraceEvent { time_ns, cpu, what } = *event;
            let (name, whom) = (what.kind(), self.object(what));
            let (s, ns) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
            format!("{s:4}.{ns:09} {cpu:3} {name:10} {whom}")
        })
    }

    /// The object of an event in words; one without a name is `#` and its number.
    fn object(&self, what: What) -> String {
        let of = |names: &[String], ix: u32| {
            names.get(ix as usize).cloned().unwrap_or_else(|| format!("#{ix}"))
        };
        let task = |ix| of(&self.names.tasks, ix);
        let group = |ix| of(&self.names.groups, ix);
        let lock = |ix, lock| format!("{} {}", task(ix), of(&self.names.locks, lock));
        let message = |one: Message| {
            let job = one.job.map(|job| format!(" job #{job}")).unwrap_or_default();
            format!("{} channel #{}{job}", task(one.task), one.channel)
        };
        match what {
            What::Switch { next } => next.map_or_else(|| "idle".to_owned(), task),
            What::WokenBy { task: ix, by } => format!("{} {}", task(ix), task(by)),
            What::Done { task: ix, took_ns } => format!("{} {took_ns} ns", task(ix)),
            What::Runtime { group: ix, left_ns } => format!("{} {left_ns} ns", group(ix)),
            What::Throttle { group: ix }
            | What::Unthrottle { group: ix }
            | What::Period { group: ix } => group(ix),
            What::Release { took_ns, told, rqs, cfs_rqs, tasks, .. } => {
                format!("{took_ns} ns, told {told}, rqs {rqs}, cfs_rqs {cfs_rqs}, tasks {tasks}")
            }
            What::LockWait { task: ix, lock: l } | What::LockTaken { task: ix, lock: l } => {
                lock(ix, l)
            }
            What::Sleep { task: ix }
            | What::Wake { task: ix }
            | What::Park { task: ix }
            | What::Unpark { task: ix }
            | What::Exit { task: ix } => task(ix),
            What::SendBegins(one) | What::Sent(one) | What::Received(one) => message(one),
            What::Forked { task: ix, child } => format!("{} {}", task(ix), task(child)),
        }
    }
}

impl TraceSink for Recorded {
    fn event(&mut self, event: TraceEvent) {
        self.events.push(event);
    }

    fn name(&mut self, of: Numbered, name: String) {
        self.names.add(of, name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_events_print_as_lines_and_replay() {
        let mut first = Recorded::default();
        let event = |time_ns, what| TraceEvent { time_ns, cpu: 1, what };
        first.event(event(4_000_000, What::Switch { next: Some(0) }));
        first.event(event(5_000_000_001, What::Throttle { group: 7 }));
        first.name(Numbered::Task, "hog".to_owned());
        let lines: Vec<String> = first.lines().collect();
        assert_eq!(
            lines,
            ["   0.004000000   1 switch     hog", "   5.000000001   1 throttle   #7"]
        );
        let mut second = Recorded::default();
        first.clone().replay(&mut second);
        assert_eq!(first, second);
    }
}
