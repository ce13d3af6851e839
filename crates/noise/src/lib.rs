//! Random lengths of what takes microseconds on a real kernel and no workload describes. They
//! depend on the kernel, its compiler and the machine, so a run draws them by a seed: for each step
//! a typical length, and around it a random part, which is small in some runs.

mod range;

use cpumax_machine::{Delaying, Delays, Step};
use cpumax_outcome::Conditions;
use cpumax_workload::{Domain, Stream};
use range::{READ_PAGE_NS, WRITE_PAGE_NS, range_ns};

/// Percentage of each step's range that is random; one of the three per run.
const CHANCE: [u64; 3] = [1, 10, 100];

/// The random microseconds of a run of the model: interrupts, switches and work take so many more
/// or fewer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Microseconds {
    /// Seed from the start.
    pub seed: u64,
    /// Later seeds: start, ns, ascending, and seed. Runs that are alike up to there diverge.
    pub from: Vec<(u64, u64)>,
}

impl Microseconds {
    /// The microseconds of one seed.
    pub fn of(seed: u64) -> Microseconds {
        Microseconds { seed, from: Vec::new() }
    }
}

impl Delaying for Microseconds {
    fn begin(&self, observed: Option<&Conditions>) -> Box<dyn Delays> {
        let later = self.from.iter().rev().copied().collect();
        let page_ns = observed.and_then(|observed| observed.page_ns);
        Box::new(Noise { drawn: Drawn::new(self.seed), later, page_ns })
    }
}

/// The noise of a run.
#[derive(Debug)]
struct Noise {
    drawn: Drawn,
    /// Later seeds, the next one last.
    later: Vec<(u64, u64)>,
    /// As measured on the observed machine, if time is the host's there.
    page_ns: Option<[u64; 2]>,
}

impl Delays for Noise {
    fn advance(&mut self, now_ns: u64) {
        while let Some((_, seed)) = self.later.pop_if(|(from_ns, _)| *from_ns <= now_ns) {
            self.drawn = Drawn::new(seed);
        }
    }

    fn draw_ns(&mut self, step: Step) -> u64 {
        self.drawn.draw_ns(step)
    }

    fn typical_ns(&self, step: Step) -> u64 {
        self.drawn.typical_ns[step as usize]
    }

    fn most_ns(&self, step: Step) -> u64 {
        range_ns(step).1
    }

    fn below(&mut self, n: u64) -> u64 {
        self.drawn.random.below(n)
    }

    fn page_ns(&self, step: Step, ns: u64) -> u64 {
        let Some([read_ns, write_ns]) = self.page_ns else { return ns };
        let ns = if step == Step::WritePoint {
            ns.saturating_mul(write_ns) / WRITE_PAGE_NS
        } else {
            ns.saturating_mul(read_ns) / READ_PAGE_NS
        };
        ns.max(1)
    }
}

/// The lengths of one seed.
#[derive(Debug)]
struct Drawn {
    random: Stream,
    typical_ns: [u64; Step::ALL.len()],
    chance: u64,
}

impl Drawn {
    /// Draws the typical length of each step, and how much of its range stays random.
    fn new(seed: u64) -> Drawn {
        let random = Stream::new(seed, Domain::Machine, 0);
        let chance = CHANCE[(seed % CHANCE.len() as u64) as usize];
        let mut drawn = Drawn { random, typical_ns: [0; Step::ALL.len()], chance };
        for &step in Step::ALL {
            let (least, most) = range_ns(step);
            let certain = (most - least) * (100 - drawn.chance_of(step)) / 100;
            drawn.typical_ns[step as usize] = least + drawn.random.below(certain + 1);
        }
        drawn
    }

    /// Percentage of a step's range that is random in each draw; 100 for where a tick falls in a
    /// page.
    fn chance_of(&self, step: Step) -> u64 {
        if matches!(step, Step::Point | Step::WritePoint) { 100 } else { self.chance }
    }

    /// Draws the length of a step, ns: the run's typical one and a random part.
    fn draw_ns(&mut self, step: Step) -> u64 {
        let (least, most) = range_ns(step);
        self.typical_ns[step as usize]
            + self.random.below((most - least) * self.chance_of(step) / 100 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_its_own_lengths_and_its_own_share_of_chance() {
        let spread = |seed: u64| {
            let mut drawn = Drawn::new(seed);
            let ns: Vec<u64> = (0..1000).map(|_| drawn.draw_ns(Step::Wake)).collect();
            let (least, most) = range_ns(Step::Wake);
            assert!(ns.iter().all(|ns| (least..=most + 1).contains(ns)));
            ns.iter().max().unwrap() - ns.iter().min().unwrap()
        };
        assert!(spread(3) < 200 && (900..1_200).contains(&spread(4)) && spread(5) > 10_000);
        let typical = |seed| Drawn::new(seed).typical_ns[Step::Wake as usize];
        assert!((0..30).map(|n| typical(3 * n)).any(|ns| ns > 10_000));
        assert!((0..30).map(|n| typical(3 * n)).any(|ns| ns < 4_000));
    }
}
