//! One stay of a thread on a CPU: turns wall time into CPU time.

use super::charges::Stay;
use super::wait::{Missing, Settled};
use crate::steps::{Packed, push_one};
use crate::thread::{REAL_TIME_BELOW, Step, Thread};

/// Charges that exceed the wall time by more are impossible, ns.
const CLOCKS_DIFFER_NS: u64 = 1_000_000;

/// A stay that has not ended yet.
#[derive(Debug)]
pub(crate) struct OnCpu {
    pub cpu: u32,
    /// Steps of the thread since `charged_until_ns`, in order.
    points: Vec<Point>,
    charged_until_ns: u64,
    /// Whether `sched_stat_runtime` charged any part of it; charges then cover all of it.
    charged: bool,
    /// Earliest beginning of a stay that was noticed late. The first charge shows when it began.
    earliest_ns: Option<u64>,
    /// Cost of recording that is still to be subtracted, ns.
    debt_ns: u32,
    /// The wait that ended when the stay began, if only the first charge shows when that was.
    unseen_wait: Option<Settled>,
    /// Priority, and times so far, of the thread when the stay began.
    prio: i32,
    before: Spent,
    /// Whether the switch at its beginning was recorded.
    is_seen: bool,
}

/// Times of a thread so far.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_field_names, reason = "units stand last in names")]
pub(crate) struct Spent {
    runtime_ns: u64,
    wall_ns: u64,
    charged_ns: u64,
}

impl Spent {
    pub fn of(thread: &Thread) -> Self {
        let Thread { runtime_ns, wall_ns, charged_ns, .. } = *thread;
        Spent { runtime_ns, wall_ns, charged_ns }
    }
}

#[derive(Debug, Clone, Copy)]
struct Point {
    time_ns: u64,
    /// Cost of recording, to be subtracted from the work before it, ns.
    debt_ns: u32,
    step: Packed,
}

impl OnCpu {
    /// Number of steps that are still to be settled.
    pub fn points(&self) -> usize {
        self.points.len()
    }

    /// Bytes of memory reserved for these steps.
    pub fn bytes(&self) -> usize {
        self.points.capacity() * size_of::<Point>()
    }
}

/// The beginning of a stay that was noticed later.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Began {
    pub at_ns: u64,
    /// A lower bound of `at_ns`.
    pub earliest_ns: u64,
    /// The wait that ended then.
    wait: Option<Settled>,
}

impl Began {
    /// Moves the end of the wait to the beginning of the stay if the CPU ended its idle time then
    /// (`was_idle`), or if the wakeup is not known better.
    pub fn set_wakeup(&self, was_idle: bool, thread: &mut Thread) {
        if let Some(Settled { wait, missing }) = self.wait
            && (was_idle || missing != Some(Missing::Placed))
        {
            thread.waits[wait].end_ns = self.at_ns;
        }
    }
}

impl OnCpu {
    /// A stay from `now_ns` on. `earliest_ns`: it may have begun as early, as the first charge will
    /// tell. `debt_ns`: cost of recording to subtract. `unseen_wait`: the wait that ended when it
    /// began.
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
            before: Spent::default(),
            is_seen: earliest_ns.is_none(),
        }
    }

    /// The rest of a stay, as the stay of another thread that has done nothing so far.
    pub fn after(before: &OnCpu, now_ns: u64) -> Self {
        let on = OnCpu::new(before.cpu, now_ns, None, 0, None);
        OnCpu { prio: before.prio, is_seen: false, ..on }
    }

    /// Sets the priority, and the times so far, of the thread when the stay began.
    pub fn set_start(&mut self, prio: i32, before: Spent) {
        (self.prio, self.before) = (prio, before);
    }

    /// Forgets the steps and charges before `now_ns`, as if the stay began there.
    pub fn restart(&mut self, now_ns: u64) {
        self.points.clear();
        self.charged_until_ns = now_ns;
        self.earliest_ns = Some(now_ns);
        self.debt_ns = 0;
        self.unseen_wait = None;
        self.is_seen = false;
    }

    /// Adds cost of recording, to be subtracted from the work before the next step.
    pub fn add_cost(&mut self, cost_ns: u32) {
        self.debt_ns = self.debt_ns.saturating_add(cost_ns);
    }

    /// Adds a step of the thread at this time, to be settled by the next charge.
    pub fn add_point(&mut self, now_ns: u64, step: Step) {
        let debt_ns = std::mem::take(&mut self.debt_ns);
        push_one(&mut self.points, Point { time_ns: now_ns, debt_ns, step: step.into() });
    }

    /// Settles the steps since the last charge: `ns` of CPU time were charged for that time. A step
    /// lies at the same share of the CPU time as of the wall time. Returns the beginning of the
    /// stay if the charge shows it.
    pub fn charge(&mut self, ns: u64, now_ns: u64, thread: &mut Thread) -> Option<Began> {
        let partial = self.earliest_ns.take();
        if let Some(earliest_ns) = partial {
            self.charged_until_ns = earliest_ns.max(now_ns.saturating_sub(ns));
        }
        let began_ns = self.charged_until_ns;
        let wall_ns = now_ns.saturating_sub(self.charged_until_ns);
        thread.wall_ns = thread.wall_ns.saturating_add(wall_ns);
        // The clocks of the scheduler and the recording differ only a little.
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

    /// Ends the stay and settles its steps; without any charge all of its wall time counts. The
    /// scheduler took the time after the last charge. Returns how the stay was charged.
    pub fn end(mut self, now_ns: u64, thread: &mut Thread) -> Stay {
        let wall_ns = now_ns.saturating_sub(self.charged_until_ns);
        let (prio, before, is_seen, charged) =
            (self.prio.min(thread.prio), self.before, self.is_seen, self.charged);
        if charged {
            thread.wall_ns = thread.wall_ns.saturating_add(wall_ns);
            for point in self.points {
                thread.steps.push(point.step.into());
            }
        } else {
            self.charge(wall_ns, now_ns, thread);
        }
        // A priority lent by inheritance lasts for the stay in which it is seen.
        thread.add_runtime_at(prio, thread.runtime_ns.saturating_sub(before.runtime_ns));
        Stay {
            is_known: is_seen && prio >= REAL_TIME_BELOW,
            wall_ns: thread.wall_ns.saturating_sub(before.wall_ns),
            charged_ns: thread.charged_ns.saturating_sub(before.charged_ns),
            uncharged_ns: wall_ns,
        }
    }
}

/// `ns * part / whole`; all of `ns` if `whole` is 0.
fn share(ns: u64, part: u64, whole: u64) -> u64 {
    if whole == 0 {
        return ns;
    }
    (u128::from(ns) * u128::from(part) / u128::from(whole)) as u64
}
