//! Random lengths of what takes microseconds on a real kernel and no workload describes. They
//! depend on the kernel, its compiler and the machine, so a run draws them by a seed: for each kind
//! a typical length, and around it a random part, which is small in some runs.

mod kind;

use cpumax_workload::{Domain, Stream};
use kind::KINDS;

pub(crate) use kind::{Kind, MOST_WRONG_NS, READ_PAGE_NS, WRITE_PAGE_NS};

/// Percentage of each kind's range that is random; one of the three per run.
const CHANCE: [u64; 3] = [1, 10, 100];

#[derive(Debug)]
pub(crate) struct Noise {
    random: Stream,
    pub typical_ns: [u64; KINDS.len()],
    chance: u64,
}

impl Noise {
    /// Noise of a run with this seed: draws the typical length of each kind, and how much of its
    /// range stays random.
    pub fn new(seed: u64) -> Noise {
        let random = Stream::new(seed, Domain::Machine, 0);
        let chance = CHANCE[(seed % CHANCE.len() as u64) as usize];
        let mut noise = Noise { random, typical_ns: [0; KINDS.len()], chance };
        for &kind in KINDS {
            let (least, most) = kind.range_ns();
            let certain = (most - least) * (100 - noise.chance_of(kind)) / 100;
            noise.typical_ns[kind as usize] = least + noise.random.below(certain + 1);
        }
        noise
    }

    /// Percentage of a kind's range that is random in each draw; 100 for where a tick falls in a
    /// page.
    fn chance_of(&self, kind: Kind) -> u64 {
        if matches!(kind, Kind::Point | Kind::WritePoint) { 100 } else { self.chance }
    }

    /// A random number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.random.below(n)
    }

    /// Draws a length of this kind, ns: the run's typical one and a random part.
    pub fn draw(&mut self, kind: Kind) -> u64 {
        let (least, most) = kind.range_ns();
        self.typical_ns[kind as usize]
            + self.random.below((most - least) * self.chance_of(kind) / 100 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_its_own_lengths_and_its_own_share_of_chance() {
        let spread = |seed: u64| {
            let mut noise = Noise::new(seed);
            let drawn: Vec<u64> = (0..1000).map(|_| noise.draw(Kind::Wake)).collect();
            let (least, most) = Kind::Wake.range_ns();
            assert!(drawn.iter().all(|ns| (least..=most + 1).contains(ns)));
            drawn.iter().max().unwrap() - drawn.iter().min().unwrap()
        };
        assert!(spread(3) < 200 && (900..1_200).contains(&spread(4)) && spread(5) > 10_000);
        let typical = |seed| Noise::new(seed).typical_ns[Kind::Wake as usize];
        assert!((0..30).map(|n| typical(3 * n)).any(|ns| ns > 10_000));
        assert!((0..30).map(|n| typical(3 * n)).any(|ns| ns < 4_000));
    }
}
