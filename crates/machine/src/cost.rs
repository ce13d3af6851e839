//! What releasing costs, by a model of the kernel's work (see docs/model.md).
//!
//! Work is counted always; it takes time only when the workload asks for it.

use cpumax_outcome::{IrqOff, ReleaseOutcome};
use hdrhistogram::Histogram;

/// One visit of a (group, CPU) pair on the way up a subtree, ns.
const VISIT_NS: u64 = 135;
/// Putting one task back, and each level above its own, ns.
const ENQUEUE_NS: u64 = 850;
const ENQUEUE_LEVEL_NS: u64 = 150;
/// Granting to a silo of another CPU and telling it, ns.
pub(crate) const REMOTE_NS: u64 = 3_600;
/// Taking another CPU's lock, ns (release inside the timer interrupt).
const REMOTE_LOCK_NS: u64 = 200;

/// Counts of the section under way and totals of all.
#[derive(Debug)]
pub(crate) struct Release {
    calls: u64,
    rqs: u64,
    cfs_rqs: u64,
    tasks: u64,
    spent_ns: u64,
    section: Section,
    lengths: Histogram<u64>,
    buckets: [u64; 64],
}

/// An irq-off section under way.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Section {
    depth: u32,
    rqs: u64,
    ns: u64,
    remote: u64,
    tasks: u64,
}

impl Section {
    pub fn begun() -> Section {
        Section { depth: 1, ..Section::default() }
    }

    /// Its length so far, ns.
    pub fn ns(&self) -> u64 {
        self.ns
    }
}

impl Default for Release {
    fn default() -> Self {
        Release {
            calls: 0,
            rqs: 0,
            cfs_rqs: 0,
            tasks: 0,
            spent_ns: 0,
            section: Section::default(),
            lengths: Histogram::new_with_max(1 << 40, 3).expect("three digits up to 2^40 fit"),
            buckets: [0; 64],
        }
    }
}

impl Release {
    /// An irq-off section begins. Sections do not nest.
    pub fn begin(&mut self) {
        self.section = Section::begun();
    }

    /// One that lasts is left for what happens elsewhere meanwhile, and gone on with.
    pub fn suspend(&mut self) -> Section {
        std::mem::take(&mut self.section)
    }

    pub fn resume(&mut self, section: Section) {
        self.section = section;
    }

    /// Another section had the lock that this one needs.
    pub fn wait(&mut self, ns: u64) {
        self.spend(ns);
    }

    /// Length of the section under way so far, ns.
    pub fn section_ns(&self) -> u64 {
        self.section.ns
    }

    /// It ends; its length by the cost model, ns.
    pub fn end(&mut self) -> u64 {
        let section = std::mem::take(&mut self.section);
        if section.rqs == 0 && section.remote == 0 && section.tasks == 0 {
            return 0;
        }
        self.calls += 1;
        self.spent_ns += section.ns;
        self.lengths.saturating_record(section.ns);
        self.buckets[section.ns.max(1).ilog2() as usize] += 1;
        section.ns
    }

    /// All sections so far, ns.
    pub fn spent_ns(&self) -> u64 {
        self.spent_ns
    }

    fn spend(&mut self, ns: u64) {
        if self.section.depth > 0 {
            self.section.ns += ns;
        }
    }

    /// A silo was released: its whole subtree is visited on its CPU.
    pub fn released(&mut self, groups: u64) {
        self.rqs += 1;
        self.cfs_rqs += groups;
        self.section.rqs += 1;
        self.spend(groups * VISIT_NS);
    }

    /// A task (or a group's entity) was put back, on that many levels.
    pub fn enqueued(&mut self, levels: u64) {
        self.tasks += 1;
        self.section.tasks += 1;
        self.spend(ENQUEUE_NS + levels * ENQUEUE_LEVEL_NS);
    }

    /// Silos were looked at on the way to a task that is put back.
    pub fn visited(&mut self, silos: u64) {
        self.cfs_rqs += silos;
        self.spend(silos * VISIT_NS);
    }

    /// A silo of some CPU got its grant and will be released by an interrupt.
    pub fn remote(&mut self) {
        self.section.remote += 1;
        self.spend(REMOTE_NS);
    }

    /// A silo is released on the spot, under its CPU's lock.
    pub fn remote_lock(&mut self) {
        self.spend(REMOTE_LOCK_NS);
    }

    pub fn outcome(&self) -> ReleaseOutcome {
        let histogram = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        let at =
            |of: f64| if self.lengths.is_empty() { 0 } else { self.lengths.value_at_quantile(of) };
        ReleaseOutcome {
            calls: self.calls,
            rqs: self.rqs,
            cfs_rqs: self.cfs_rqs,
            tasks: self.tasks,
            spent_ns: self.spent_ns,
            irqoff_ns: IrqOff {
                p50: at(0.50),
                p99: at(0.99),
                max: if self.lengths.is_empty() { 0 } else { self.lengths.max() },
                histogram: histogram.map(|(b, &count)| [1 << b, 2 << b, count]).collect(),
            },
        }
    }
}
