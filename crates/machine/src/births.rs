//! Storage of tasks. An exited task is forgotten: its place and its entity are given to a later
//! task, so that a run needs memory only for the tasks alive at once.

use crate::ids::{CfsRqId, Id, SeId, TaskId};
use crate::machine::Machine;
use crate::program::name_of;
use crate::se::{NICE_0_WEIGHT, Owner, Se, Turn};
use crate::step::Told;
use crate::task::{State, Task};
use crate::{Error, MAX_LIVING};
use cpumax_outcome::trace::{Message, Numbered, What};

impl Machine<'_> {
    /// Adds a task and its entity to the machine, in the place of an exited one if possible, and
    /// numbers it; returns its id. It is not queued.
    pub(crate) fn add_task(&mut self, mut task: Task, slice_ns: u64) -> TaskId {
        task.birth.number = self.births.count;
        self.births.count = self.births.count.wrapping_add(1);
        if let Some(sink) = self.probes.trace.as_mut() {
            let name = name_of(self.workload, task.kind, task.birth.instance);
            sink.name(Numbered::Task, name);
        }
        // A task that exits right now may still be the one that its CPU switches from.
        let id = match self.births.ended.front() {
            Some(&(ended_ns, place)) if ended_ns < self.now => {
                self.births.ended.pop_front();
                self.reuse_place(place, task, slice_ns);
                place
            }
            _ => {
                let id = TaskId::from_ix(self.tasks.len());
                task.se = self.add_entity(Owner::Task(id), slice_ns);
                self.add_task_util();
                self.tasks.push(task)
            }
        };
        self.tell(id, Told::New);
        id
    }

    /// Puts a task in the place of an exited one: resets its entity and statistics, and keeps the
    /// old one's CPU time for its kind.
    fn reuse_place(&mut self, place: TaskId, mut task: Task, slice_ns: u64) {
        let old = &self.tasks[place];
        debug_assert_eq!(old.state, State::Exited);
        let (se, kind) = (old.se, old.kind as usize);
        self.births.kinds[kind].forgotten_ns += old.times.usage_ns;
        task.se = se;
        // A timer of the previous task may still fire.
        task.at.sleeps = old.at.sleeps;
        self.tasks[place] = task;
        self.ses[se] = Se::new(Owner::Task(place), CfsRqId::NONE, NICE_0_WEIGHT, slice_ns);
        if self.settings.counts_turns {
            self.extras.turns[se] = Turn::default();
        }
        self.reset_queued(se);
        self.reset_task_util(place);
    }

    /// Whether fewer than [`MAX_LIVING`] tasks live, so that another may be forked. If not, the run
    /// fails.
    pub(crate) fn may_fork(&mut self, kind: u32) -> bool {
        let living = self.tasks.len() - self.births.ended.len();
        if living < MAX_LIVING {
            return true;
        }
        let task = self.workload.tasks[kind as usize].name.clone();
        self.events.failed.get_or_insert(Error::TooManyLive { task, at_ns: self.now });
        false
    }

    /// Adds a scheduling entity of nice-0 weight that is on no queue, with its statistics; returns
    /// its id.
    pub(crate) fn add_entity(&mut self, owner: Owner, slice_ns: u64) -> SeId {
        if self.settings.counts_turns {
            self.extras.turns.push(Turn::default());
        }
        self.add_queued(owner);
        self.ses.push(Se::new(owner, CfsRqId::NONE, NICE_0_WEIGHT, slice_ns))
    }

    /// All tasks that have not exited, new ones included, in order of creation.
    pub(crate) fn all_living(&self) -> Vec<TaskId> {
        let lives = |task: &TaskId| self.tasks[*task].state != State::Exited;
        let mut living: Vec<TaskId> = self.tasks.ids().filter(lives).collect();
        living.sort_unstable_by_key(|&task| self.tasks[task].birth.number);
        living
    }

    /// The event with the numbers of tasks in a trace instead of their places in memory.
    pub(crate) fn with_trace_numbers(&self, what: What) -> What {
        let number = |place: u32| self.tasks[TaskId(place)].birth.number;
        let message = |one: Message| Message { task: number(one.task), ..one };
        match what {
            What::Switch { next } => What::Switch { next: next.map(number) },
            What::Sleep { task } => What::Sleep { task: number(task) },
            What::Wake { task } => What::Wake { task: number(task) },
            What::WokenBy { task, by } => What::WokenBy { task: number(task), by: number(by) },
            What::Done { task, took_ns } => What::Done { task: number(task), took_ns },
            What::Park { task } => What::Park { task: number(task) },
            What::Unpark { task } => What::Unpark { task: number(task) },
            What::LockWait { task, lock } => What::LockWait { task: number(task), lock },
            What::LockTaken { task, lock } => What::LockTaken { task: number(task), lock },
            What::Exit { task } => What::Exit { task: number(task) },
            What::SendBegins(one) => What::SendBegins(message(one)),
            What::Sent(one) => What::Sent(message(one)),
            What::Received(one) => What::Received(message(one)),
            What::Forked { task, child } => {
                What::Forked { task: number(task), child: number(child) }
            }
            What::Throttle { .. }
            | What::Unthrottle { .. }
            | What::Period { .. }
            | What::Runtime { .. }
            | What::Release { .. } => what,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Simulation, kernel, run};
    use cpumax_outcome::trace::Recorded;

    fn options(version: &str) -> Options<'static> {
        Options { check: true, ..Options::new(kernel::parse_kernels(version).unwrap()[0], 1) }
    }

    const VERSIONS: [&str; 4] = ["6.1", "6.12", "6.18", "7.3"];

    #[test]
    fn exited_tasks_are_forgotten_and_counted() {
        let text = r#"
            duration = "1s"
            [machine]
            cpus = 2
            [[group]]
            path = "/g"
            max = "50000 100000"
            [[task]]
            name = "parent"
            program = [{ forever = [{ user = "50us" }, { fork = "child" }] }]
            [[task]]
            name = "child"
            group = "/g"
            count = 0
            program = [{ user = "20us" }, { sleep = "100us" }, { user = "10us" }]
        "#;
        let workload = cpumax_workload::parse(text, "births.toml").unwrap();
        for version in VERSIONS {
            let options = Options { check: false, ..options(version) };
            let mut machine = Simulation::ended(&workload, &options);
            let places = machine.tasks.len();
            let child = &machine.outcome(&options.kernel).tasks["child"];
            assert!(child.exited > 8_000, "{version}: {child:?}");
            assert!(places < 40, "{version}: {places} places for {child:?}");
            let used_usec = 30 * child.exited;
            assert!((used_usec..used_usec + 500).contains(&child.usage_usec), "{version}");
        }
    }

    /// `first` leaves a child behind, and a timer, as it is killed in a sleep. `second` takes its
    /// place.
    #[test]
    fn children_and_timers_of_who_has_ended_are_not_those_of_who_comes_after() {
        let text = r#"
            duration = "1s"
            [machine]
            cpus = 1
            [[task]]
            name = "first"
            program = [{ fork = "orphan" }, { user = "1ms" }, { sleep = "100ms" }]
            [[task]]
            name = "orphan"
            count = 0
            program = [{ sleep = "200ms" }]
            [[task]]
            name = "second"
            start = "20ms"
            program = [{ fork = "child" }, { sleep = "150ms" }, { wait = "children" }]
            [[task]]
            name = "child"
            count = 0
            program = [{ sleep = "300ms" }]
            [[at]]
            time = "10ms"
            task = "first"
            signal = "kill"
        "#;
        let workload = cpumax_workload::parse(text, "births.toml").unwrap();
        for version in VERSIONS {
            let options = options(version);
            let mut recorded = Recorded::default();
            let outcome = run(&workload, &options, Some(&mut recorded), None).unwrap();
            let ended_cs = |task: &str| outcome.tasks[task].finished_ns / 10_000_000;
            assert_eq!((ended_cs("first"), ended_cs("orphan")), (1, 20), "{version}");
            assert_eq!((ended_cs("second"), ended_cs("child")), (32, 32), "{version}");
            let woken_cs = |number: u32| -> Vec<u64> {
                let wake = What::Wake { task: number };
                let wakes = recorded.events.iter().filter(|event| event.what == wake);
                wakes.map(|event| event.time_ns / 10_000_000).collect()
            };
            let names = ["first", "orphan", "second", "child"];
            assert_eq!(recorded.names.tasks, names, "{version}");
            assert_eq!(woken_cs(0), [0, 1], "{version}");
            assert_eq!(woken_cs(2), [2, 17, 32], "{version}");
            let machine = Simulation::ended(&workload, &options);
            assert_eq!(machine.tasks.len(), 3, "{version}: nobody came in a place");
        }
    }

    #[test]
    fn more_than_may_live_at_once_end_the_run() {
        let text = r#"
            duration = "60s"
            [[task]]
            name = "parent"
            program = [{ forever = [{ user = "1us" }, { fork = "child" }] }]
            [[task]]
            name = "child"
            count = 0
            program = [{ sleep = "1h" }]
        "#;
        let workload = cpumax_workload::parse(text, "births.toml").unwrap();
        let options = Options { check: false, ..options("6.18") };
        let failed = run(&workload, &options, None, None).unwrap_err();
        let Error::TooManyLive { task, at_ns } = failed else { panic!("{failed}") };
        assert_eq!(task, "child");
        assert!((1_000_000_000..1_100_000_000).contains(&at_ns), "{at_ns}");
    }
}
