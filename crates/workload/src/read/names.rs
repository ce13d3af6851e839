//! Names of parts with their indices, and the values that a workload stores once.

use super::fields::{Fields, Length, Read};
use crate::cpus::CpuSet;
use crate::error::{ByteRange, Error, Refusal};
use crate::model::{CpuSetIx, DistIx, Distribution, Parts, Span};
use crate::units::{accepted_names, quoted};
use std::collections::BTreeMap;

/// Names of the parts of one kind, and the index of each.
pub(super) struct Names {
    /// The kind of part, for messages.
    what: &'static str,
    indices: BTreeMap<String, u32>,
}

impl Names {
    pub fn new(what: &'static str) -> Names {
        Names { what, indices: BTreeMap::new() }
    }

    /// Gives the next index to `name`, which stands in this table.
    ///
    /// # Errors
    /// The name has an index already.
    pub fn enter(&mut self, name: &str, fields: Fields<'_>) -> Read<u32> {
        if self.indices.contains_key(name) {
            let problem = format!("two {}s are named {}", self.what, quoted(name));
            let refusal = Refusal::new(Error::Name, problem, "give each its own name");
            return Err(refusal.at(fields.at("name")));
        }
        Ok(self.add(name))
    }

    /// Gives the next index to `name`, which has none.
    pub fn add(&mut self, name: &str) -> u32 {
        let ix = self.indices.len() as u32;
        self.indices.insert(name.to_owned(), ix);
        ix
    }

    /// The index of the part of this name.
    pub fn get(&self, name: &str) -> Option<u32> {
        self.indices.get(name).copied()
    }

    /// The index of the part of this name.
    ///
    /// # Errors
    /// There is none; the refusal has no position yet.
    pub fn find(&self, name: &str) -> Read<u32> {
        self.get(name).ok_or_else(|| {
            let problem = format!("there is no {} named {}", self.what, quoted(name));
            let names = self.indices.keys().map(String::as_str);
            Refusal::new(Error::Name, problem, accepted_names(name, names))
        })
    }
}

/// The sets of CPUs and the distributions of a workload. Equal ones are stored once, in the order
/// of their first use.
#[derive(Default)]
pub(super) struct Shared {
    cpu_sets: BTreeMap<Vec<u16>, CpuSetIx>,
    distributions: BTreeMap<(u8, Vec<u64>, Vec<u64>), DistIx>,
    /// Position of the first use of each.
    pub cpu_sets_at: Vec<ByteRange>,
    pub distributions_at: Vec<ByteRange>,
}

impl Shared {
    /// The index of a set of CPUs that is used at this position; adds it to `parts` if it is new.
    pub fn cpu_set(&mut self, parts: &mut Parts, cpus: CpuSet, at: ByteRange) -> CpuSetIx {
        let next = parts.cpu_sets.len() as CpuSetIx;
        let ix = *self.cpu_sets.entry(cpus.0.clone()).or_insert(next);
        if ix == next {
            parts.cpu_sets.push(cpus);
            self.cpu_sets_at.push(at);
        }
        ix
    }

    /// A length of time that is used at this position; adds its distribution to `parts` if it is
    /// new.
    pub fn span(&mut self, parts: &mut Parts, length: Length, at: ByteRange) -> Span {
        let distribution = match length {
            Length::Fixed(ns) => return Span::Fixed(ns),
            Length::Drawn(distribution) => distribution,
        };
        let next = parts.distributions.len() as DistIx;
        let ix = *self.distributions.entry(identity(&distribution)).or_insert(next);
        if ix == next {
            parts.distributions.push(distribution);
            self.distributions_at.push(at);
        }
        Span::Drawn(ix)
    }
}

/// A key that differs between different distributions.
fn identity(distribution: &Distribution) -> (u8, Vec<u64>, Vec<u64>) {
    match distribution {
        Distribution::Constant { ns } => (0, vec![*ns], vec![]),
        Distribution::Uniform { low_ns, high_ns } => (1, vec![*low_ns, *high_ns], vec![]),
        Distribution::Exponential { mean_ns } => (2, vec![*mean_ns], vec![]),
        Distribution::LogNormal { median_ns, sigma } => {
            (3, vec![*median_ns, sigma.to_bits()], vec![])
        }
        Distribution::Empirical { values_ns, cumulative } => {
            (4, values_ns.clone(), cumulative.clone())
        }
    }
}
