//! Positions of the parts of a workload in its file, for messages.

use crate::draft::Positions;
use crate::error::{ByteRange, PartIx};

#[derive(Default)]
pub(super) struct PartPositions {
    pub top: Positions,
    pub machine: Positions,
    pub softirqs: Vec<Positions>,
    pub groups: Vec<Positions>,
    pub locks: Vec<Positions>,
    pub channels: Vec<Positions>,
    pub distributions: Vec<ByteRange>,
    pub cpu_sets: Vec<ByteRange>,
    pub tasks: Vec<Positions>,
    pub ops: Vec<Vec<ByteRange>>,
    pub jobs: Vec<Positions>,
    pub job_ops: Vec<Vec<ByteRange>>,
    pub sources: Vec<Positions>,
    pub interventions: Vec<Positions>,
    pub expectations: Vec<Positions>,
}

impl PartPositions {
    /// Range of `field` of a part, or else of the whole part.
    pub fn find(&self, part: PartIx, field: &str) -> ByteRange {
        let positions = match part {
            PartIx::Top => Some(&self.top),
            PartIx::Machine => Some(&self.machine),
            PartIx::Softirq(ix) => self.softirqs.get(ix),
            PartIx::Group(ix) => self.groups.get(ix),
            PartIx::Lock(ix) => self.locks.get(ix),
            PartIx::Channel(ix) => self.channels.get(ix),
            PartIx::Distribution(ix) => {
                return self.distributions.get(ix).copied().unwrap_or_default();
            }
            PartIx::CpuSet(ix) => return self.cpu_sets.get(ix).copied().unwrap_or_default(),
            PartIx::Task(ix) => self.tasks.get(ix),
            PartIx::Op(task, op) => {
                let op = self.ops.get(task).and_then(|ops| ops.get(op)).copied();
                return op.unwrap_or_default();
            }
            PartIx::Job(ix) => self.jobs.get(ix),
            PartIx::JobOp(job, op) => {
                let op = self.job_ops.get(job).and_then(|ops| ops.get(op)).copied();
                return op.unwrap_or_default();
            }
            PartIx::Source(ix) => self.sources.get(ix),
            PartIx::Intervention(ix) => self.interventions.get(ix),
            PartIx::Expectation(ix) => self.expectations.get(ix),
        };
        positions.map_or_else(ByteRange::default, |positions| positions.of(field))
    }
}
