//! Snapshots of a group, a CPU or a task while a run is under way.

use crate::fair::weight;
use crate::ids::{CpuId, GroupId, Id, TaskId};
use crate::machine::Machine;
use crate::task::{State, Wait};

/// A group at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupState {
    /// Its quota, ns; `None`: it has no limit of its own.
    pub quota_ns: Option<u64>,
    /// Its period, ns.
    pub period_ns: u64,
    /// Unused quota it may save, ns.
    pub burst_ns: u64,
    /// Its weight, 1 to 10000.
    pub weight: u32,
    /// Runtime left in its pool, ns; 0 without a limit.
    pub pool_ns: u64,
    /// CPUs on which its own limit throttles it, ascending.
    pub throttled_cpus: Vec<u16>,
    /// CPU time used by it and its descendants, ns.
    pub usage_ns: u64,
    /// Periods that passed while its period timer was armed.
    pub nr_periods: u64,
    /// How many of these ended with it throttled on some CPU.
    pub nr_throttled: u64,
    /// Requests completed by tasks in it or below it at the time.
    pub completions: u64,
}

/// A CPU at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuState {
    /// Whether it is on line.
    pub online: bool,
    /// Name of the task that runs on it; `None`: it is idle.
    pub running: Option<String>,
    /// Fair tasks that can run there, the running one included; throttled ones are not.
    pub nr_running: u32,
}

/// A task at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskState {
    /// Path of the group that it is in.
    pub group: String,
    /// The CPU that it is on, or was on last.
    pub cpu: u16,
    /// Whether it runs, waits, sleeps or is parked.
    pub doing: Doing,
    /// CPU time used, ns.
    pub usage_ns: u64,
}

/// A task's activity.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doing {
    /// It runs; it may be spinning for a lock.
    Running,
    /// It waits for its CPU.
    Ready,
    /// It is runnable, and a limit stops it.
    Throttled,
    /// It sleeps until some time.
    Sleeping,
    /// It waits for tokens on this channel.
    Receiving(String),
    /// It waits for room on this channel.
    Sending(String),
    /// It waits for this lock.
    Locking(String),
    /// It waits until its children have exited.
    WaitingForChildren,
    /// A signal has stopped it.
    Stopped,
    /// It has exited.
    Exited,
}

impl Machine<'_> {
    /// Snapshot of the group with this path, uncharged usage included; `None` if there is none.
    pub(crate) fn group_state(&self, path: &str) -> Option<GroupState> {
        let id = GroupId(self.workload.group(path)?);
        let (group, pool) = (&self.groups[id], &self.groups[id].pool);
        let throttled = |cpu: &CpuId| {
            let q = group.cfs_rqs.get(cpu.ix()).filter(|q| q.is_some());
            q.is_some_and(|&q| self.cfs_rqs[q].bandwidth.throttled)
        };
        Some(GroupState {
            quota_ns: pool.quota_ns,
            period_ns: pool.period_ns,
            burst_ns: pool.burst_ns,
            weight: weight::to_group(group.weight),
            pool_ns: pool.quota_ns.map_or(0, |_| pool.runtime_ns),
            throttled_cpus: self.cpus.ids().filter(throttled).map(|cpu| cpu.0 as u16).collect(),
            usage_ns: group.usage_ns
                + self.running().map(|task| self.uncharged_ns(task, id)).sum::<u64>(),
            nr_periods: group.stat.nr_periods,
            nr_throttled: group.stat.nr_throttled,
            completions: group.latencies.count,
        })
    }

    /// Snapshot of a CPU; `None` if the machine has fewer.
    pub(crate) fn cpu_state(&self, cpu: u16) -> Option<CpuState> {
        let cpu = CpuId(u32::from(cpu));
        let c = self.cpus.iter().nth(cpu.ix()).map(|(_, c)| c)?;
        let running = c.curr.is_some().then(|| self.task_name(c.curr));
        Some(CpuState { online: c.online, running, nr_running: c.nr_running })
    }

    /// Snapshot of the task with this name, a living one first; `None` if there is none yet.
    pub(crate) fn task_state(&self, name: &str) -> Option<TaskState> {
        let named = self.tasks.iter().filter(|(id, _)| self.task_name(*id) == name);
        let id = named.min_by_key(|(_, task)| (task.state == State::Exited, task.birth.number))?.0;
        let task = &self.tasks[id];
        let runs = self.running().any(|running| running == id);
        Some(TaskState {
            group: self.workload.groups[task.group.ix()].path.clone(),
            cpu: task.cpu.0 as u16,
            doing: self.doing(id, runs),
            usage_ns: task.times.usage_ns
                + if runs { self.uncharged_ns(id, GroupId(0)) } else { 0 },
        })
    }

    /// The activity of a task for a snapshot; `runs`: it is its CPU's current one.
    fn doing(&self, id: TaskId, runs: bool) -> Doing {
        let task = &self.tasks[id];
        let channel =
            |ix: usize| self.workload.channels.get(ix).map(|channel| channel.name.clone());
        match task.state {
            State::Runnable if runs => Doing::Running,
            State::Runnable if self.is_stopped_by_limit(id) => Doing::Throttled,
            State::New | State::Runnable => Doing::Ready,
            State::Asleep(Wait::Timer | Wait::Softirq) => Doing::Sleeping,
            State::Asleep(Wait::Receive(on)) => {
                Doing::Receiving(channel(on.ix()).unwrap_or_default())
            }
            State::Asleep(Wait::Send(on)) => Doing::Sending(channel(on.ix()).unwrap_or_default()),
            State::Asleep(Wait::Lock(lock, _)) => {
                Doing::Locking(self.lock_names().swap_remove(lock.ix()))
            }
            State::Asleep(Wait::Children) => Doing::WaitingForChildren,
            State::Stopped => Doing::Stopped,
            State::Exited => Doing::Exited,
        }
    }

    /// Whether a runnable task is parked or, to 6.17, queued below a throttled group.
    fn is_stopped_by_limit(&self, task: TaskId) -> bool {
        let task = &self.tasks[task];
        let is_queued = task.is_fair() && self.ses[task.se].q.is_some();
        let in_throttled =
            || is_queued && self.cfs_rqs[self.ses[task.se].q].bandwidth.throttle_count > 0;
        task.throttle.parked || self.rules.unit.is_entity() && in_throttled()
    }

    /// Tasks that run now.
    fn running(&self) -> impl Iterator<Item = TaskId> {
        self.cpus.iter().map(|(_, cpu)| cpu.curr).filter(|curr| curr.is_some())
    }

    /// CPU time of a running task since a group (0, the root: the task itself) was last charged for
    /// it, ns; 0 if it is not in the group.
    fn uncharged_ns(&self, task: TaskId, group: GroupId) -> u64 {
        let of = &self.tasks[task];
        if !of.is_fair() {
            let is_within = || self.workload.is_within(of.group.0, group.0);
            let since_ns = self.cpus[of.cpu].accounted_ns;
            return if is_within() { self.now.saturating_sub(since_ns) } else { 0 };
        }
        let mut q = self.ses[of.se].q;
        while q.is_some() {
            let rq = &self.cfs_rqs[q];
            if rq.group == group {
                return self.now.saturating_sub(rq.exec_start_ns);
            }
            q = rq.parent;
        }
        0
    }
}
