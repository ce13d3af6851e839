//! The outcome of a run that has come to its end.

use crate::ids::Id;
use crate::machine::Machine;
use crate::task::{KindStat, State};
use crate::threadgroup::THREADGROUP;
use crate::watch::UnderWay;
use cpumax_outcome::trace::Numbered;
use cpumax_outcome::{GroupOutcome, Outcome, TaskOutcome};
use std::collections::BTreeMap;

impl Machine<'_> {
    /// The outcome so far: counters of groups and tasks, latencies, cost of releases. Takes the
    /// statistics of kinds out of the machine.
    pub(crate) fn outcome(&mut self, kernel: &crate::kernel::Kernel) -> Outcome {
        let workload = self.workload;
        debug_assert!(self.tasks.iter().all(|(_, t)| t.state != State::New || t.kind == u32::MAX));
        self.gather_under_way();
        let mut groups = BTreeMap::new();
        for group in self.groups.ids().skip(1) {
            let g = &mut self.groups[group];
            let outcome = GroupOutcome {
                usage_usec: g.usage_ns / 1000,
                nr_periods: g.stat.nr_periods,
                nr_throttled: g.stat.nr_throttled,
                throttled_usec: g.stat.throttled_ns / 1000,
                nr_bursts: g.stat.nr_bursts,
                burst_usec: g.stat.burst_ns / 1000,
                local_throttled_usec: g.throttled_self_ns / 1000,
                max_period_usage_usec: g.windows.max_ns() / 1000,
                completions: g.latencies.count,
                latency_ns: g.latencies.percentiles(),
                latency_histogram_ns: g.latencies.buckets(),
                under_way: g.latencies.under_way,
                longest_under_way_ns: g.latencies.longest_under_way_ns,
            };
            groups.insert(workload.groups[group.ix()].path.clone(), outcome);
        }
        let tasks = self.task_outcomes();
        Outcome {
            scenario: workload.name.clone(),
            world: "model".to_owned(),
            kernel: kernel.version.to_string(),
            generation: kernel.generation.to_string(),
            seed: self.settings.seed,
            simulated_ns: workload.duration_ns.min(self.now),
            groups,
            tasks,
            release: self.unthrottle_cost.outcome(),
            events: self.events.count,
        }
    }

    /// Adds requests that are under way now to the statistics of their kinds and groups; to be
    /// called once.
    fn gather_under_way(&mut self) {
        for UnderWay { kind, mut group, since_ns, n } in
            self.under_way(&vec![true; self.births.kinds.len()])
        {
            let ns = self.now - since_ns;
            self.births.kinds[kind as usize].latencies.add_under_way(n, ns);
            while group.ix() != 0 {
                self.groups[group].latencies.add_under_way(n, ns);
                group = self.groups[group].parent;
            }
        }
    }

    /// Outcomes of tasks by label: kinds with one label are summed, so that a recording with a kind
    /// for each thread is reported by kinds of thread. Takes the statistics of kinds.
    fn task_outcomes(&mut self) -> BTreeMap<String, TaskOutcome> {
        let mut usage_ns: Vec<u64> =
            self.births.kinds.iter().map(|kind| kind.forgotten_ns).collect();
        for (_, task) in self.tasks.iter() {
            if let Some(usage) = usage_ns.get_mut(task.kind as usize) {
                *usage += task.times.usage_ns;
            }
        }
        let mut named: BTreeMap<&str, (KindStat, u64)> = BTreeMap::new();
        for (kind, stat) in std::mem::take(&mut self.births.kinds).into_iter().enumerate() {
            let (sum, sum_usage_ns) = named.entry(self.workload.tasks[kind].label()).or_default();
            sum.merge(stat);
            *sum_usage_ns += usage_ns[kind];
        }
        let outcome = |(name, (mut stat, usage_ns)): (&str, (KindStat, u64))| {
            let outcome = TaskOutcome {
                count: stat.count,
                usage_usec: usage_ns / 1000,
                completions: stat.latencies.count,
                latency_ns: stat.latencies.percentiles(),
                latency_histogram_ns: stat.latencies.buckets(),
                under_way: stat.latencies.under_way,
                longest_under_way_ns: stat.latencies.longest_under_way_ns,
                hung_reports: stat.hung_reports,
                wait_ns: stat.wait_ns,
                longest_stall_ns: stat.longest_stall_ns,
                exited: stat.exited,
                finished_ns: if stat.exited == stat.count { stat.last_exit_ns } else { 0 },
            };
            (name.to_owned(), outcome)
        };
        named.into_iter().map(outcome).collect()
    }

    /// Names of all locks, in order of their ids: the workload's, and those that the model adds.
    pub(crate) fn lock_names(&self) -> Vec<String> {
        let own = self.workload.locks.iter().map(|lock| lock.name.clone());
        // Under noise, moves hold a lock that is not the workload's.
        let moves = self.lab.delays.as_ref().map(|_| "(move)".to_owned());
        own.chain(moves).chain(self.locks.threadgroup.map(|_| THREADGROUP.to_owned())).collect()
    }

    /// Gives the trace, if there is one, the names of groups and locks.
    pub(crate) fn name_groups_and_locks(&mut self) {
        let locks = self.lock_names();
        if let Some(sink) = self.probes.trace.as_mut() {
            for group in &self.workload.groups {
                sink.name(Numbered::Group, group.path.clone());
            }
            for lock in locks {
                sink.name(Numbered::Lock, lock);
            }
        }
    }
}

impl KindStat {
    /// Adds another kind's counts and latencies to these.
    fn merge(&mut self, other: KindStat) {
        self.count += other.count;
        self.exited += other.exited;
        self.last_exit_ns = self.last_exit_ns.max(other.last_exit_ns);
        if self.latencies.is_empty() {
            self.latencies = other.latencies;
        } else {
            self.latencies.merge(&other.latencies);
        }
        self.hung_reports += other.hung_reports;
        self.wait_ns += other.wait_ns;
        self.longest_stall_ns = self.longest_stall_ns.max(other.longest_stall_ns);
    }
}
