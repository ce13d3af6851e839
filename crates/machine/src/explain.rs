//! Explains a scheduling decision: how close another task came to being picked.

use crate::choice::{Choice, Other};
use crate::ids::{CpuId, SeId, TaskId};
use crate::machine::Machine;
use crate::se::NICE_0_WEIGHT;
use crate::task::State;

impl Machine<'_> {
    /// Stores the answer when `next` is about to run on the CPU, if this is the first decision that
    /// the run's question asks about; else changes nothing.
    pub(crate) fn answer_question(&mut self, cpu: CpuId, next: TaskId) {
        let Some((question, None)) = &self.probes.question else { return };
        if self.now < question.from_ns || cpu != CpuId(0) {
            return;
        }
        let named = |task: &TaskId| self.task_name(*task) == question.instead;
        let other = self.all_living().into_iter().find(|task| *task != next && named(task));
        let other = other.map_or(Other::Absent, |other| self.why_not_picked(next, other));
        let choice = Choice { next: self.task_name(next), other };
        if let Some((_, answer)) = &mut self.probes.question {
            *answer = Some(choice);
        }
    }

    /// State of the other task when `next` is about to run: asleep, throttled, on another CPU, or
    /// queued, with the CPU time by which it missed the pick.
    fn why_not_picked(&self, next: TaskId, other: TaskId) -> Other {
        let task = &self.tasks[other];
        if task.throttle.parked {
            return Other::Throttled;
        }
        if task.state != State::Runnable {
            return Other::Asleep;
        }
        if task.cpu != self.tasks[next].cpu {
            return Other::Elsewhere;
        }
        let (a, b) = (self.tasks[next].se, self.tasks[other].se);
        let mut up = b;
        while up.is_some() && self.ses[up].on_rq {
            let q = self.ses[up].q;
            if self.cfs_rqs[q].bandwidth.throttled && self.rules.unit.is_entity() {
                return Other::Throttled;
            }
            up = self.cfs_rqs[q].se;
        }
        if up.is_some() {
            return Other::Throttled;
        }
        let (a, b) = if self.is_flat() {
            (a, b)
        } else {
            let (_, a, b) = self.matching_entities(a, b);
            (a, b)
        };
        Other::Queued(self.missed_by_ns(a, b))
    }

    /// CPU time by which entity `b` missed the pick of entity `a`, ns: how much less it, or how
    /// much more `a` would have to have used, whichever is less.
    fn missed_by_ns(&self, a: SeId, b: SeId) -> u64 {
        let time = |se: SeId, virtual_ns: i64| {
            let weight = i128::from(self.ses[se].weight);
            let ns = i128::from(virtual_ns) * weight / i128::from(NICE_0_WEIGHT);
            u64::try_from(ns).unwrap_or(0)
        };
        let (first, second) = (&self.ses[a], &self.ses[b]);
        if self.rules.queue.is_cfs() {
            let apart = second.vruntime - first.vruntime;
            return time(a, apart).min(time(b, apart));
        }
        let average = self.average_vruntime(self.timeline_of(first.q));
        let later = second.deadline - first.deadline;
        let sooner_ns = time(b, second.vruntime - average).max(time(a, later).min(time(b, later)));
        // Or the picked task is not eligible.
        sooner_ns.min(time(a, average - first.vruntime))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::Question;
    use crate::{Options, explain, kernel};

    /// Two equal tasks: `b` starts 3 ms before `a` and so is first where vruntime decides; `c`
    /// sleeps, `d` is throttled.
    const TEXT: &str = r#"
        duration = "100ms"
        [machine]
        cpus = 1
        hrtick = false
        timer_phase = "0ms"
        [[group]]
        path = "/g"
        max = "1000 100000"
        [[task]]
        name = "b"
        program = [{ user = "1s" }]
        [[task]]
        name = "a"
        start = "3ms"
        program = [{ user = "1s" }]
        [[task]]
        name = "c"
        program = [{ sleep = "1s" }]
        [[task]]
        name = "d"
        group = "/g"
        program = [{ user = "1s" }]
    "#;

    fn other(version: &str, instead: &str) -> (String, Other) {
        other_in(TEXT, version, instead)
    }

    fn other_in(text: &str, version: &str, instead: &str) -> (String, Other) {
        let workload = cpumax_workload::parse(text, "choice.toml").unwrap();
        let kernel = kernel::parse_kernels(version).unwrap()[0];
        let question = Question { from_ns: 50_000_000, instead: instead.to_owned() };
        let choice = explain(&workload, &Options::new(kernel, 1), question, None).unwrap().unwrap();
        (choice.next, choice.other)
    }

    #[test]
    fn a_task_on_another_cpu_is_not_compared() {
        let text = r#"
            duration = "100ms"
            [machine]
            cpus = 2
            [[task]]
            name = "here"
            cpus = "0"
            program = [{ forever = [{ user = "1ms" }, { sleep = "1ms" }] }]
            [[task]]
            name = "there"
            cpus = "1"
            program = [{ user = "1s" }]
        "#;
        for version in ["6.1", "6.12", "6.18", "7.3"] {
            let found = other_in(text, version, "there");
            assert_eq!(found, ("here".to_owned(), Other::Elsewhere), "{version}");
        }
    }

    #[test]
    fn a_choice_is_explained() {
        for version in ["6.1", "6.12", "6.18", "7.3"] {
            assert_eq!(other(version, "c").1, Other::Asleep, "{version}");
            assert_eq!(other(version, "d").1, Other::Throttled, "{version}");
            assert_eq!(other(version, "e").1, Other::Absent, "{version}");
            let (next, _) = other(version, "c");
            let second = if next == "a" { "b" } else { "a" };
            let (_, found) = other(version, second);
            // They take turns; each is behind by less than a turn of both.
            assert!(matches!(found, Other::Queued(ns) if ns <= 8_000_000), "{version} {found:?}");
        }
    }
}
