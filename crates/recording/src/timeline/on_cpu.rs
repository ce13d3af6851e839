//! One stay of a thread on a CPU: turns wall time into CPU time.

use super::wait::{Missing, Settled};
use crate::steps::{Packed, push_one};
use crate::thread::{Step, Thread};

/// More than this above the wall time cannot have been charged.
const CLOCKS_DIFFER_NS: u64 = 1_000_000;

/// A stay that has not ended yet.
#[derive(Debug)]
pub(crate) struct OnCpu {
    pub cpu: u32,
    /// What the thread did since `charged_until_ns`, in order.
    points: Vec<Point>,
    charged_until_ns: u64,
    /// Whether `sched_stat_runtime` told of any part of it: then it tells of all.
    charged: bool,
    /// Where it began before it was noticed: when at the earliest. The first charge tells more.
    earliest_ns: Option<u64>,
    /// Cost of recording that is still to be taken off.
    debt_ns: u32,
    /// The wait that ended when this began, if only the first charge will tell when that was.
    unseen_wait: Option<Settled>,
    /// The thread's priority when it began, and what it had run until then, ns.
    prio: i32,
    ran_ns: u64,
}

/// Something done at a point of wall time.
#[derive(Debug, Clone, Copy)]
struct Point {
    time_ns: u64,
    /// To be taken off the work before it.
    debt_ns: u32,
    step: Packed,
}

impl OnCpu {
    /// How much it did that is still to be settled.
    pub fn points(&self) -> usize {
        self.points.len()
    }

    /// Bytes that that takes.
    pub fn bytes(&self) -> usize {
        self.points.capacity() * size_of::<Point>()
    }
}

/// When a stay began that was noticed later.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Began {
    pub at_ns: u64,
    /// It cannot have been before.
    pub earliest_ns: u64,
    /// The wait that ended then.
    wait: Option<Settled>,
}

impl Began {
    /// The thread was woken when its CPU ended its idle time (`was_idle`); if that was not idle,
    /// the wakeup may be known better.
    pub fn woken(&self, was_idle: bool, thread: &mut Thread) {
        if let Some(Settled { wait, missing }) = self.wait
            && (was_idle || missing != Some(Missing::Placed))
        {
            thread.waits[wait].end_ns = self.at_ns;
        }
    }
}

impl OnCpu {
    pub fn new(
        cpu: u32,
        now_ns: u64,
        earliest_ns: Option<u64>,
        debt_ns: u32,
        unseen_wait: Option<Settled>,
    ) -> Self {
        OnCpu {
            cpu,
            points: Vec::new(),
            charged_until_ns: now_ns,
            charged: false,
            earliest_ns,
            debt_ns,
            unseen_wait,
            prio: i32::MAX,
            ran_ns: 0,
        }
    }

    /// What goes on here of a stay, as one of another thread that has done nothing so far.
    pub fn after(before: &OnCpu, now_ns: u64) -> Self {
        let on = OnCpu::new(before.cpu, now_ns, None, 0, None);
        OnCpu { prio: before.prio, ..on }
    }

    /// With this priority, after so much CPU time.
    pub fn begins_at(&mut self, prio: i32, ran_ns: u64) {
        (self.prio, self.ran_ns) = (prio, ran_ns);
    }

    /// Forgets what was before.
    pub fn restart(&mut self, now_ns: u64) {
        self.points.clear();
        self.charged_until_ns = now_ns;
        self.earliest_ns = Some(now_ns);
        self.debt_ns = 0;
        self.unseen_wait = None;
    }

    pub fn owe(&mut self, cost_ns: u32) {
        self.debt_ns = self.debt_ns.saturating_add(cost_ns);
    }

    /// The thread does something that is no mere passing of time.
    pub fn note(&mut self, now_ns: u64, step: Step) {
        let debt_ns = std::mem::take(&mut self.debt_ns);
        push_one(&mut self.points, Point { time_ns: now_ns, debt_ns, step: step.into() });
    }

    /// `ns` of CPU time were charged for the time since the last charge: the points in between lie
    /// at the same share of it as of the wall time. Where this tells when the stay began, that is
    /// returned.
    pub fn charge(&mut self, ns: u64, now_ns: u64, thread: &mut Thread) -> Option<Began> {
        let partial = self.earliest_ns.take();
        if let Some(earliest_ns) = partial {
            self.charged_until_ns = earliest_ns.max(now_ns.saturating_sub(ns));
        }
        let began_ns = self.charged_until_ns;
        let wall_ns = now_ns.saturating_sub(self.charged_until_ns);
        thread.wall_ns = thread.wall_ns.saturating_add(wall_ns);
        // The scheduler's clock and that of the recording may differ a little, no more.
        let most_ns =
            if partial.is_some() { wall_ns } else { wall_ns.saturating_add(CLOCKS_DIFFER_NS) };
        if partial.is_none() {
            thread.charged_ns = thread.charged_ns.saturating_add(ns);
        }
        let ns = ns.min(most_ns);
        let mut done_ns = 0;
        for point in self.points.drain(..) {
            let at_ns = point.time_ns.saturating_sub(self.charged_until_ns).min(wall_ns);
            let share_ns = share(ns, at_ns, wall_ns);
            thread.run(share_ns.saturating_sub(done_ns), point.debt_ns);
            done_ns = done_ns.max(share_ns);
            thread.steps.push(point.step.into());
        }
        let debt_ns = std::mem::take(&mut self.debt_ns);
        thread.run(ns - done_ns, debt_ns);
        self.charged_until_ns = now_ns;
        self.charged = true;
        let wait = self.unseen_wait.take();
        partial.map(|earliest_ns| Began { at_ns: began_ns, earliest_ns, wait })
    }

    /// The stay ends. Time after the last charge is not the thread's: the scheduler took it.
    pub fn end(mut self, now_ns: u64, thread: &mut Thread) {
        let (prio, ran_ns) = (self.prio, self.ran_ns);
        if self.charged {
            let wall_ns = now_ns.saturating_sub(self.charged_until_ns);
            thread.wall_ns = thread.wall_ns.saturating_add(wall_ns);
            for point in self.points {
                thread.steps.push(point.step.into());
            }
        } else {
            let wall_ns = now_ns.saturating_sub(self.charged_until_ns);
            self.charge(wall_ns, now_ns, thread);
        }
        // A priority that was lent lasts for the stay in which it is seen.
        thread.used_at(prio.min(thread.prio), thread.runtime_ns.saturating_sub(ran_ns));
    }
}

/// `ns * part / whole`, and all of it where there is no whole.
fn share(ns: u64, part: u64, whole: u64) -> u64 {
    if whole == 0 {
        return ns;
    }
    (u128::from(ns) * u128::from(part) / u128::from(whole)) as u64
}
