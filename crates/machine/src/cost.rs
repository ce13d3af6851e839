//! Cost of unthrottling, by a model of the kernel's work (docs/reference/model.md). Work is always
//! counted; it takes time only if the workload asks for it.

use crate::ids::CpuId;
use cpumax_outcome::{Call, IrqOff, ReleaseOutcome, Releaser};
use hdrhistogram::Histogram;

/// Visiting one (group, CPU) pair of a subtree, ns.
const VISIT_NS: u64 = 135;
/// Putting one task back, and each level above its own, ns.
const ENQUEUE_NS: u64 = 850;
const ENQUEUE_LEVEL_NS: u64 = 150;
/// Granting to a run queue of another CPU and sending the interrupt, ns.
pub(crate) const REMOTE_NS: u64 = 3_600;
/// Taking another CPU's lock, ns (unthrottling inside the timer interrupt).
const REMOTE_LOCK_NS: u64 = 200;

/// Counts of the current section, and totals.
#[derive(Debug)]
pub(crate) struct UnthrottleCost {
    /// Totals of everything unthrottled, and of the sections.
    all: ReleaseOutcome,
    section: Section,
    lengths: Histogram<u64>,
}

/// An irq-off section under way: a call of a function that unthrottles.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Section {
    /// None: no section.
    by: Option<Releaser>,
    /// Something was unthrottled, or is being sent for it.
    acted: bool,
    call: Call,
}

impl Section {
    /// A section that begins now on the CPU, for unthrottling `by` distribution or handler.
    pub fn begun(by: Releaser, cpu: CpuId, now_ns: u64) -> Section {
        let cpu = u16::try_from(cpu.0).unwrap_or(0);
        let call = Call { at_ns: now_ns, cpu, ..Call::default() };
        Section { by: Some(by), acted: false, call }
    }

    /// Length so far by the cost model, ns.
    pub fn ns(&self) -> u64 {
        self.call.ns
    }
}

impl Default for UnthrottleCost {
    /// No section under way and zero totals.
    fn default() -> Self {
        UnthrottleCost {
            all: ReleaseOutcome::default(),
            section: Section::default(),
            lengths: Histogram::new_with_max(1 << 40, 3).expect("three digits up to 2^40 fit"),
        }
    }
}

impl UnthrottleCost {
    /// Takes the section out while other events happen; `resume()` continues it.
    pub fn suspend(&mut self) -> Section {
        std::mem::take(&mut self.section)
    }

    /// Continues a suspended section, or begins a new one.
    pub fn resume(&mut self, section: Section) {
        self.section = section;
    }

    /// Lengthens the section under way by a wait of `ns` for a lock.
    pub fn add_wait(&mut self, ns: u64) {
        self.lengthen_section(ns);
    }

    /// Length of the section under way so far, ns.
    pub fn section_ns(&self) -> u64 {
        self.section.ns()
    }

    /// Ends the section and adds it to totals and histogram; `None` if it unthrottled nothing.
    pub fn finish_section(&mut self) -> Option<(Releaser, Call)> {
        let Section { by, acted, call } = self.suspend();
        let by = by.filter(|_| acted)?;
        self.all.of(by).add(call);
        self.lengths.saturating_record(call.ns);
        Some((by, call))
    }

    /// Length of all ended sections that unthrottled anything, ns.
    pub fn spent_ns(&self) -> u64 {
        self.all.distribute.ns + self.all.handler.ns
    }

    /// Lengthens the section under way by `ns`; without one does nothing.
    fn lengthen_section(&mut self, ns: u64) {
        if self.section.by.is_some() {
            self.section.call.ns += ns;
        }
    }

    /// Counts an unthrottled run queue and the visit of its subtree of `groups` groups, whose cost
    /// lengthens the section.
    pub fn count_unthrottled(&mut self, groups: u64) {
        self.all.rqs += 1;
        self.section.call.did.rqs += 1;
        self.section.acted = true;
        self.count_visited(groups);
    }

    /// Counts a task (or a group's entity) put back on this many levels, whose cost lengthens the
    /// section.
    pub fn count_enqueued(&mut self, levels: u64) {
        self.all.tasks += 1;
        self.section.call.did.tasks += 1;
        self.section.acted = true;
        self.lengthen_section(ENQUEUE_NS + levels * ENQUEUE_LEVEL_NS);
    }

    /// Counts visits of run queues, whose cost lengthens the section.
    pub fn count_visited(&mut self, cfs_rqs: u64) {
        self.all.cfs_rqs += cfs_rqs;
        self.section.call.did.cfs_rqs += cfs_rqs;
        self.lengthen_section(cfs_rqs * VISIT_NS);
    }

    /// Counts a run queue that got its grant and is unthrottled by an interrupt of its CPU, or
    /// right after if that is the current CPU (`local`); lengthens the section by the cost of
    /// sending.
    pub fn count_remote(&mut self, local: bool) {
        self.section.call.did.told += u64::from(!local);
        self.section.acted = true;
        self.lengthen_section(REMOTE_NS);
    }

    /// Lengthens the section by the cost of taking another CPU's lock.
    pub fn count_remote_lock(&mut self) {
        self.lengthen_section(REMOTE_LOCK_NS);
    }

    /// Totals of everything unthrottled, and percentiles and histogram of the sections' lengths,
    /// ns.
    pub fn outcome(&self) -> ReleaseOutcome {
        let at =
            |of: f64| if self.lengths.is_empty() { 0 } else { self.lengths.value_at_quantile(of) };
        ReleaseOutcome {
            calls: self.all.distribute.calls + self.all.handler.calls,
            spent_ns: self.spent_ns(),
            irqoff_ns: IrqOff {
                p50: at(0.50),
                p99: at(0.99),
                max: if self.lengths.is_empty() { 0 } else { self.lengths.max() },
                histogram: self.all.by_length(),
            },
            ..self.all.clone()
        }
    }
}
