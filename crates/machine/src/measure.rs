//! Measuring one group over part of a run: its usage, throttling and request latencies from some
//! time on, optionally with its work scaled. Replays report a recorded service over the time in
//! which its load was there.

use crate::ids::{GroupId, TaskId};
use crate::machine::Machine;
use crate::watch::{COST_AS_IT_SAYS, UnderWay, Watch, Watched, Watching};
use cpumax_workload::{GroupIx, Op, completes};

impl Machine<'_> {
    /// Begins to measure a group: usage, periods, requests, exits of the tasks in it and below.
    pub(crate) fn start_watching(&mut self, watch: Watch) {
        let within = |mut group: GroupIx| {
            while group != watch.group && group != 0 {
                group = self.workload.groups[group as usize].parent.unwrap_or(0);
            }
            group == watch.group
        };
        let kinds = &self.workload.tasks;
        let inside: Vec<bool> = kinds.iter().map(|kind| within(kind.group)).collect();
        let of_kind = kinds.iter().zip(&inside).filter(|(_, inside)| **inside);
        // A kind that is only forked counts as one task.
        let left = of_kind.map(|(kind, _)| u64::from(kind.count.max(1))).sum();
        let seen = Watched::default();
        self.probes.watching = Some(Box::new(Watching { watch, seen, inside, left }));
    }

    /// Adds CPU time since `from_ns` to the measurements, if this is the watched group, from the
    /// watch's start on.
    pub(crate) fn watch_usage(&mut self, group: GroupId, from_ns: u64) {
        let now = self.now;
        if let Some(watching) = self.probes.watching.as_mut().filter(|w| w.watch.group == group.0) {
            watching.seen.usage_ns += now - from_ns.max(watching.watch.from_ns).min(now);
        }
    }

    /// The measurements of this group, if it is the watched one and its watch has begun.
    pub(crate) fn watched_now(&mut self, group: GroupId) -> Option<&mut Watched> {
        let now = self.now;
        let is_seen = |watch: &Watch| watch.group == group.0 && now >= watch.from_ns;
        let watching = self.probes.watching.as_mut().filter(|w| is_seen(&w.watch))?;
        Some(&mut watching.seen)
    }

    /// Counts the exit of a task of this kind, if the kind is in the watched group: one less is
    /// waited for.
    pub(crate) fn watch_exit(&mut self, kind: usize) {
        if let Some(watching) = self.probes.watching.as_mut()
            && watching.inside.get(kind).copied().unwrap_or(false)
        {
            watching.left = watching.left.saturating_sub(1);
        }
    }

    /// CPU time, ns, of work that is written as `ns`: scaled by the watch's cost for tasks of the
    /// watched group.
    pub(crate) fn cost_ns(&self, task: TaskId, ns: u64) -> u64 {
        let Some(watching) = self.probes.watching.as_ref() else { return ns };
        let kind = self.tasks[task].kind as usize;
        if watching.watch.cost_ppm == COST_AS_IT_SAYS
            || !watching.inside.get(kind).copied().unwrap_or(false)
        {
            return ns;
        }
        let cost = u128::from(ns) * u128::from(watching.watch.cost_ppm);
        u64::try_from(cost / u128::from(COST_AS_IT_SAYS)).unwrap_or(u64::MAX)
    }

    /// The measurements at the end of the run, with requests under way; ends the watch. `None`
    /// without one.
    pub(crate) fn watched(&mut self) -> Option<Watched> {
        let watching = self.probes.watching.take()?;
        let mut seen = watching.seen;
        seen.until_ns = self.now;
        seen.done = watching.left == 0;
        let under_way = self.under_way(&watching.inside);
        for UnderWay { n, since_ns, .. } in under_way {
            let room = MOST_UNDER_WAY.saturating_sub(seen.under_way_ns.len());
            let n = usize::try_from(n).unwrap_or(usize::MAX).min(room);
            seen.under_way_ns.extend(std::iter::repeat_n(self.now - since_ns, n));
        }
        Some(seen)
    }

    /// Requests that tasks of these kinds have not completed: those they work on, and those whose
    /// tokens still wait, which count for the first kind that would take them. Changes nothing.
    pub(crate) fn under_way(&self, inside: &[bool]) -> Vec<UnderWay> {
        let now = self.now;
        let is_inside = |kind: u32| inside.get(kind as usize).copied().unwrap_or(false);
        let mut under_way = Vec::new();
        for id in self.all_living() {
            let task = &self.tasks[id];
            if !is_inside(task.kind) {
                continue;
            }
            let (program, pc) = (self.program_of(id), task.at.pc as usize);
            let counts = if task.does_job() {
                answers(program.get(pc..).unwrap_or_default())
            } else {
                completes(program, pc)
            };
            if counts {
                let (kind, group, since_ns) = (task.kind, task.group, task.at.request_since_ns());
                under_way.push(UnderWay { kind, group, since_ns, n: 1 });
            }
        }
        // By channel: the kind that receives tokens as requests there, and the one that serves
        // jobs.
        let mut begins = vec![None; self.channels.all.len()];
        let mut serves = vec![None; self.channels.all.len()];
        let kinds = (0..).zip(&self.workload.tasks);
        for (kind, spec) in kinds.filter(|(kind, _)| is_inside(*kind)) {
            for (at, op) in spec.program.iter().enumerate() {
                match *op {
                    Op::Recv { channel, .. } if completes(&spec.program, at + 1) => {
                        begins[channel as usize].get_or_insert(kind);
                    }
                    Op::Serve { channel } => {
                        serves[channel as usize].get_or_insert(kind);
                    }
                    _ => {}
                }
            }
        }
        for ((_, channel), (begins, serves)) in
            self.channels.all.iter().zip(begins.iter().zip(serves))
        {
            for arrived in &channel.arrivals {
                let reader = match self.workload.jobs.get(arrived.token.job as usize) {
                    Some(job) => serves.filter(|_| answers(&job.program)),
                    None => *begins,
                };
                if let Some(kind) = reader {
                    let group = GroupId(self.workload.tasks[kind as usize].group);
                    let (since_ns, n) = (arrived.token.since_ns, arrived.n);
                    under_way.push(UnderWay { kind, group, since_ns, n });
                }
            }
        }
        under_way.retain(|request| request.since_ns < now);
        under_way
    }
}

/// At most this many requests under way are listed.
const MOST_UNDER_WAY: usize = 1_000_000;

/// Whether this part of a job's program completes a request.
fn answers(program: &[Op]) -> bool {
    program.contains(&Op::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::parse_kernels;
    use crate::{Options, run, watch};
    use cpumax_workload::{Workload, parse};

    /// Ten times 6 ms of sleep and 4 ms of work, under a limit of a fifth of a CPU.
    fn workload() -> Workload {
        let text = r#"
duration = "2s"
[machine]
cpus = 1
timer_phase = "0ms"
[[group]]
path = "/limited"
max = "2000 10000"
[[task]]
name = "worker"
group = "/limited"
program = [{ loop = 10, do = [{ sleep = "6ms" }, { user = "4ms" }, { done = true }] }]
"#;
        parse(text, "watch.toml").unwrap()
    }

    fn watched(with: Watch) -> (cpumax_outcome::Outcome, Watched) {
        let kernel = parse_kernels("6.18").unwrap()[0];
        watch(&workload(), &Options::new(kernel, 1), with, None, None).unwrap()
    }

    const ALL: Watch = Watch { group: 1, from_ns: 0, until_done: false, cost_ppm: COST_AS_IT_SAYS };

    #[test]
    fn a_group_that_is_watched_all_the_time_is_what_the_outcome_tells() {
        let (outcome, seen) = watched(ALL);
        let kernel = parse_kernels("6.18").unwrap()[0];
        assert_eq!(outcome, run(&workload(), &Options::new(kernel, 1), None, None).unwrap());
        let group = &outcome.groups["/limited"];
        assert_eq!(seen.usage_ns / 1000, group.usage_usec);
        assert_eq!(seen.nr_periods, group.nr_periods);
        assert_eq!(seen.nr_throttled, group.nr_throttled);
        assert_eq!(seen.latencies_ns.len() as u64, group.completions);
        assert_eq!(seen.latencies_ns.iter().max(), Some(&group.latency_ns.max));
        assert_eq!((seen.until_ns, seen.done), (2_000_000_000, true));
        assert!(seen.under_way_ns.is_empty(), "{seen:?}");
        assert!(group.nr_throttled > 0);
    }

    #[test]
    fn a_run_ends_with_the_work_of_the_group() {
        let (outcome, seen) = watched(Watch { until_done: true, ..ALL });
        assert!(seen.done);
        assert_eq!(seen.until_ns, outcome.tasks["worker"].finished_ns);
        assert_eq!(seen.until_ns, outcome.simulated_ns);
        assert_eq!(seen.usage_ns, 40_000_000);
    }

    #[test]
    fn events_before_the_start_do_not_count() {
        let (_, all) = watched(ALL);
        let (_, late) = watched(Watch { from_ns: 50_000_000, ..ALL });
        assert!(late.usage_ns < all.usage_ns && late.usage_ns > 0);
        assert!(late.nr_periods < all.nr_periods && late.nr_throttled < all.nr_throttled);
        assert!(late.latencies_ns.len() < all.latencies_ns.len());
    }

    #[test]
    fn work_costs_what_it_is_told_to() {
        let (outcome, seen) =
            watched(Watch { until_done: true, cost_ppm: COST_AS_IT_SAYS / 2 * 3, ..ALL });
        assert_eq!(seen.usage_ns, 60_000_000);
        assert_eq!(outcome.tasks["worker"].usage_usec, 60_000);
    }

    #[test]
    fn a_request_that_is_not_answered_by_the_end_is_seen() {
        let kernel = parse_kernels("6.18").unwrap()[0];
        let cut = workload().with_duration(8_000_000).unwrap();
        let (outcome, seen) = watch(&cut, &Options::new(kernel, 1), ALL, None, None).unwrap();
        assert_eq!(seen.under_way_ns, [2_000_000], "woken at 6 ms, at work for 4");
        assert!(!seen.done && seen.latencies_ns.is_empty());
        let (task, group) = (&outcome.tasks["worker"], &outcome.groups["/limited"]);
        assert_eq!((task.completions, group.completions), (0, 0));
        assert_eq!((task.under_way, group.under_way), (1, 1));
        let longest = [task.longest_under_way_ns, group.longest_under_way_ns];
        assert_eq!(longest, [2_000_000; 2]);
        assert_eq!([task.latency_ns.max, group.latency_ns.max], longest, "it takes no less");
    }

    #[test]
    fn waiting_tokens_that_are_no_requests_are_not_under_way() {
        let text = r#"
duration = "100ms"
[machine]
cpus = 1
timer_phase = "0ms"
[[group]]
path = "/limited"
max = "1000 100000"
[[channel]]
name = "requests"
[[channel]]
name = "ticks"
[[job]]
name = "answered"
program = [{ user = "1ms" }, { done = true }]
[[job]]
name = "silent"
program = [{ user = "1ms" }]
[[source]]
name = "clients"
channel = "requests"
at = ["50ms", "60ms", "70ms"]
jobs = ["answered", "silent", "answered"]
[[source]]
name = "clock"
channel = "ticks"
every = "1ms"
[[task]]
name = "ticker"
group = "/limited"
program = [{ forever = [{ recv = "ticks" }, { user = "1ms" }] }]
[[task]]
name = "server"
group = "/limited"
program = [{ forever = [{ serve = "requests" }] }]
"#;
        let kernel = parse_kernels("6.18").unwrap()[0];
        let workload = parse(text, "watch.toml").unwrap();
        let (outcome, seen) = watch(&workload, &Options::new(kernel, 1), ALL, None, None).unwrap();
        assert_eq!(seen.under_way_ns, [50_000_000, 30_000_000]);
        assert_eq!(outcome.tasks["server"].under_way, 2);
        assert_eq!(outcome.tasks["ticker"].under_way, 0);
    }
}
