//! Positions of the parts of a workload in its file, for messages of the checks.

use super::fields::Fields;
use super::names::Shared;
use crate::error::{ByteRange, PartIx};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The table of each part in the file, and the position of each instruction. A group that no table
/// lists has the table of its first child, the root has none.
#[derive(Default)]
pub(super) struct Places<'t> {
    pub tables: BTreeMap<PartIx, Fields<'t>>,
    pub ops: Vec<Rc<[ByteRange]>>,
    pub job_ops: Vec<Rc<[ByteRange]>>,
}

impl Places<'_> {
    /// Position of the value of `field` of a part, or else of the whole part; empty if unknown.
    pub fn find(&self, part: PartIx, field: &str, shared: &Shared) -> ByteRange {
        let op = |ops: &[Rc<[ByteRange]>], of: usize, ix: usize| ops.get(of)?.get(ix).copied();
        let at = match part {
            PartIx::Distribution(ix) => shared.distributions_at.get(ix).copied(),
            PartIx::CpuSet(ix) => shared.cpu_sets_at.get(ix).copied(),
            PartIx::Op(task, ix) => op(&self.ops, task, ix),
            PartIx::JobOp(job, ix) => op(&self.job_ops, job, ix),
            _ => self.tables.get(&part).map(|fields| {
                // A service has other names for the arrivals of its clients.
                let own: &[&str] = match (part, field) {
                    (PartIx::Source(_), "every") => &["every", "rate", "think"],
                    (PartIx::Source(_), "count") => &["count", "clients"],
                    _ => &[],
                };
                fields.at(own.iter().find(|name| fields.value(name).is_some()).unwrap_or(&field))
            }),
        };
        at.unwrap_or_default()
    }
}
