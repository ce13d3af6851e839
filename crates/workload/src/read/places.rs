//! Positions of the parts of a workload in its file, for messages of the checks.

use super::fields::Fields;
use super::names::Shared;
use crate::error::{ByteRange, PartIx};
use std::rc::Rc;

/// The table of each part in the file, and the position of each instruction. A group that no table
/// lists has the table of its first child, the root has none.
#[derive(Default)]
pub(super) struct Places<'t> {
    pub top: Option<Fields<'t>>,
    pub machine: Option<Fields<'t>>,
    pub softirqs: Vec<Fields<'t>>,
    pub groups: Vec<Option<Fields<'t>>>,
    pub locks: Vec<Fields<'t>>,
    pub channels: Vec<Fields<'t>>,
    pub tasks: Vec<Fields<'t>>,
    pub ops: Vec<Rc<[ByteRange]>>,
    pub jobs: Vec<Fields<'t>>,
    pub job_ops: Vec<Rc<[ByteRange]>>,
    pub sources: Vec<Fields<'t>>,
    pub interventions: Vec<Fields<'t>>,
    pub expectations: Vec<Fields<'t>>,
}

impl Places<'_> {
    /// Position of the value of `field` of a part, or else of the whole part.
    pub fn find(&self, part: PartIx, field: &str, shared: &Shared) -> ByteRange {
        let op = |ops: &[Rc<[ByteRange]>], of: usize, ix: usize| {
            ops.get(of).and_then(|ops| ops.get(ix)).copied().unwrap_or_default()
        };
        let fields = match part {
            PartIx::Top => self.top,
            PartIx::Machine => self.machine,
            PartIx::Softirq(ix) => self.softirqs.get(ix).copied(),
            PartIx::Group(ix) => self.groups.get(ix).copied().flatten(),
            PartIx::Lock(ix) => self.locks.get(ix).copied(),
            PartIx::Channel(ix) => self.channels.get(ix).copied(),
            PartIx::Distribution(ix) => return at(&shared.distributions_at, ix),
            PartIx::CpuSet(ix) => return at(&shared.cpu_sets_at, ix),
            PartIx::Task(ix) => self.tasks.get(ix).copied(),
            PartIx::Op(task, ix) => return op(&self.ops, task, ix),
            PartIx::Job(ix) => self.jobs.get(ix).copied(),
            PartIx::JobOp(job, ix) => return op(&self.job_ops, job, ix),
            PartIx::Source(ix) => self.sources.get(ix).copied(),
            PartIx::Intervention(ix) => self.interventions.get(ix).copied(),
            PartIx::Expectation(ix) => self.expectations.get(ix).copied(),
        };
        let Some(fields) = fields else { return ByteRange::default() };
        // A service has other names for the arrivals of its clients.
        let own: &[&str] = match (part, field) {
            (PartIx::Source(_), "every") => &["every", "rate", "think"],
            (PartIx::Source(_), "count") => &["count", "clients"],
            _ => &[],
        };
        fields.at(own.iter().find(|name| fields.value(name).is_some()).unwrap_or(&field))
    }
}

fn at(positions: &[ByteRange], ix: usize) -> ByteRange {
    positions.get(ix).copied().unwrap_or_default()
}
