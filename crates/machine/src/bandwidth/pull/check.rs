//! Invariants of the pull rules, for `--check` and the property tests. docs/lab/proposal.md has
//! the reasons.

use super::MIN_GRANT_NS;
use crate::cpu::{Resched, SoftirqWork};
use crate::events::{NEVER, Slot};
use crate::ids::{CfsRqId, GroupId, Id, TaskId};
use crate::machine::Machine;
use crate::se::Owner;
use crate::task::Mode;

impl Machine<'_> {
    /// Checks a run queue under the pull rules: runtime within bounds, the waiting list and links
    /// are consistent, and something is due that brings its parked tasks back.
    ///
    /// # Errors
    /// The violated invariant, in words.
    pub(crate) fn check_parked(&self, q: CfsRqId) -> Result<(), String> {
        let (rq, parked) = (&self.cfs_rqs[q], &self.parked[q.ix()]);
        let bw = &rq.bandwidth;
        let left_ns = bw.runtime_remaining_ns;
        if bw.enabled && !(0..=self.slice_ns().max(1)).contains(&left_ns) {
            return Err(format!("holds {left_ns} ns"));
        }
        if bw.throttled && (left_ns != 0 || parked.linked || !bw.enabled) {
            return Err(format!("is throttled and open: {left_ns} ns, {parked:?}"));
        }
        self.check_parked_load(q)?;
        let listed = self.groups[rq.group].pool.throttled.iter().filter(|&&x| x == q).count();
        if listed != usize::from(parked.waiting) || parked.waiting && !bw.throttled {
            return Err(format!("waits {listed} times, throttled {}", bw.throttled));
        }
        if parked.mail_ns > 0 && !bw.csd_pending {
            return Err("has mail that nobody brings".to_owned());
        }
        let parent = rq.parent;
        let hangs = parent.is_some() && self.parked[parent.ix()].children.contains(&q);
        if hangs != parked.linked {
            return Err(format!("linked {} but hangs {hangs}", parked.linked));
        }
        if !parked.children.iter().is_sorted_by_key(|child| self.parked[child.ix()].turn_ns) {
            return Err("children that wait are not in the order of their turns".to_owned());
        }
        if !self.holds_parked(q) || parked.linked {
            return Ok(());
        }
        // Tasks parked here are not linked to the root, so something must be due to bring them
        // back.
        let comes = if parent.is_none() {
            self.cpus[rq.cpu].resched != Resched::No
        } else if bw.throttled {
            parked.waiting || bw.csd_pending
        } else {
            bw.enabled && parked.feed_ns <= 0 && rq.h_nr > 0
        };
        if comes { Ok(()) } else { Err(format!("parked tasks are forgotten: {parked:?}")) }
    }

    /// Checks that parked tasks weigh at every level as much as they would queued.
    ///
    /// # Errors
    /// The level's counted weight, and the sum of those that are there.
    fn check_parked_load(&self, q: CfsRqId) -> Result<(), String> {
        let mut load = 0;
        for (_, se) in self.ses.iter().filter(|(_, se)| se.q == q) {
            match se.owner() {
                Owner::Task(task) if self.tasks[task].throttle.parked => {
                    load += self.nominal_weight(task);
                }
                Owner::Task(_) => {}
                Owner::Group(child) => {
                    let child = &self.cfs_rqs[child];
                    let weighs = child.load_parked > 0 && !se.on_rq;
                    if weighs != child.bandwidth.counts_as_parked {
                        return Err(format!("a group below weighs {weighs} as parked"));
                    }
                    load += if weighs { se.weight } else { 0 };
                }
            }
        }
        let counted = self.cfs_rqs[q].load_parked;
        if load == counted { Ok(()) } else { Err(format!("{load} is parked, counted {counted}")) }
    }

    /// Checks that a group's run queues that wait for runtime are being served while the pool has
    /// any, and that its period timer runs.
    ///
    /// # Errors
    /// How many wait, or how much runtime lies idle.
    pub(crate) fn check_waiting(&self, group: GroupId) -> Result<(), String> {
        let pool = &self.groups[group].pool;
        if pool.throttled.is_empty() {
            return Ok(());
        }
        if !pool.timer.active {
            return Err(format!("{} wait and no timer runs", pool.throttled.len()));
        }
        let served = pool.runtime_ns < MIN_GRANT_NS
            || self.events.expiry_ns(Slot::Slack(group)) != NEVER
            || self.cpus.iter().any(|(_, c)| c.rt.softirqs.contains(&SoftirqWork::Slack(group)))
            || self.groups[group]
                .cfs_rqs
                .iter()
                .any(|&q| q.is_some() && self.cfs_rqs[q].bandwidth.csd_pending);
        if served {
            Ok(())
        } else {
            Err(format!("{} ns lie idle while some wait", pool.runtime_ns))
        }
    }

    /// Checks that a running task in user mode is denied by no level above it, unless it has been
    /// told to park.
    ///
    /// # Errors
    /// The task's name.
    pub(crate) fn check_admitted(&self, curr: TaskId) -> Result<(), String> {
        let task = &self.tasks[curr];
        let told = task.throttle.work || task.mode == Mode::Kernel || !task.is_fair();
        if told || !task.has_user_mode() || !self.path_is_denied(self.ses[task.se].q) {
            return Ok(());
        }
        Err(format!("{} runs where a level above has been turned down", self.task_name(curr)))
    }

    /// Runtime that is neither in the pool nor in a run queue, ns: mailed and not opened yet, less
    /// debt. 0 without the pull rules.
    pub(crate) fn mail_less_debt_ns(&self, group: GroupId) -> i128 {
        if !self.rules.pull {
            return 0;
        }
        let cfs_rqs = self.groups[group].cfs_rqs.iter().filter(|q| q.is_some());
        let mail_ns: i128 = cfs_rqs.map(|q| i128::from(self.parked[q.ix()].mail_ns)).sum();
        mail_ns - i128::from(self.groups[group].pool.pull.debt_ns)
    }
}
