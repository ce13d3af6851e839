//! How the kernel charged the stays of threads on CPUs. `update_curr()` charges a fair thread at
//! every tick and when it leaves. Interrupts and the host take of some stays more than of others.

use crate::event::PrevState;
use std::collections::BTreeMap;

/// Stays below this wall time do not count: the clocks differ too much for them, ns.
const STAY_LEAST_NS: u64 = 50_000;
/// Least number of stays that tell a part.
const STAYS_LEAST: u64 = 20;

/// A stay that ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stay {
    /// Whether its beginning was recorded and the thread was not a real-time one.
    pub is_known: bool,
    pub wall_ns: u64,
    pub charged_ns: u64,
    /// Wall time since the last charge, ns.
    pub uncharged_ns: u64,
}

/// All stays whose beginning and end are known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stays {
    /// Their wall time, and the part of it behind the last charge of each, ns.
    pub wall_ns: u64,
    pub uncharged_ns: u64,
    /// Number of charged stays, by the percentage of their wall time that was charged.
    by_percent: BTreeMap<u64, u64>,
}

impl Stays {
    /// Adds a stay if its beginning is known, and its end: why the thread `left`.
    pub fn add(&mut self, stay: &Stay, left: Option<PrevState>) {
        if !stay.is_known || left.is_none() {
            return;
        }
        self.wall_ns = self.wall_ns.saturating_add(stay.wall_ns);
        self.uncharged_ns = self.uncharged_ns.saturating_add(stay.uncharged_ns);
        if stay.wall_ns >= STAY_LEAST_NS && stay.uncharged_ns < stay.wall_ns {
            let percent = u128::from(stay.charged_ns) * 100 / u128::from(stay.wall_ns);
            *self.by_percent.entry(percent.min(1000) as u64).or_default() += 1;
        }
    }

    /// The percentage of the wall time that was charged in the middle one of all stays, if it is
    /// that of at least 60 % of them, within a twentieth.
    pub fn common_percent(&self) -> Option<u64> {
        let all: u64 = self.by_percent.values().sum();
        let mut seen = 0;
        let (middle, _) = self.by_percent.iter().find(|(_, count)| {
            seen += *count;
            seen * 2 >= all
        })?;
        let near = middle / 20 + 1;
        let alike: u64 = self
            .by_percent
            .range(middle.saturating_sub(near)..=middle + near)
            .map(|(_, count)| count)
            .sum();
        (all >= STAYS_LEAST && alike * 5 >= all * 3).then_some(*middle)
    }
}
