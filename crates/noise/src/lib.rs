//! Random lengths of what takes microseconds on a real kernel and no workload describes. They
//! depend on the kernel, its compiler and the machine, so a run draws them by a seed: for each step
//! a typical length, and around it a random part, which is small in some runs.

mod clock;
mod range;

use clock::{Clock, MOST_WRONG_NS};
use cpumax_machine::{Call, Delaying, Delays, Step, Told};
use cpumax_outcome::Conditions;
use cpumax_workload::{Domain, Stream};
use range::{READ_PAGE_NS, WRITE_PAGE_NS, range_ns};
use std::num::NonZeroU64;

/// Percentage of each step's range that is random; one of the three per run.
const CHANCE: [u64; 3] = [1, 10, 100];

/// Work in the kernel that one buffer of 64 pages covers, ns; the guest needs several for more.
const ONE_BUFFER_NS: u64 = 64 * 202_300;
/// Additional length of a tick per level of groups, ns. The length of work in the kernel is as
/// measured without groups.
const LEVEL_NS: u64 = 1_950;

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
        Box::new(Noise { drawn: Drawn::new(self.seed), later, page_ns, clocks: Vec::new() })
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
    /// Of each task.
    clocks: Vec<Clock>,
}

impl Noise {
    /// Draws the length of a step at `now_ns`, ns.
    fn drawn_ns(&mut self, now_ns: u64, step: Step) -> u64 {
        self.advance(now_ns);
        self.draw_ns(step)
    }

    /// Whether tasks read their CPU time after each call, as the guest's do where time is the
    /// host's.
    fn reads_cpu_time(&self) -> bool {
        self.page_ns.is_some()
    }

    /// Converts a length of work on pages, ns, to that on the observed machine; at least 1 there.
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

    fn point_ns(&mut self, now_ns: u64, writes: bool) -> u64 {
        let step = if writes { Step::WritePoint } else { Step::Point };
        let ns = self.drawn_ns(now_ns, step);
        self.page_ns(step, ns)
    }

    fn known_point_ns(&self, task: u32, left_ns: u64) -> Option<u64> {
        let first_ns = self.clocks[task as usize].first_page_ns?.get();
        let one_buffer_ns = self.page_ns(Step::Page, ONE_BUFFER_NS);
        let step = if first_ns > one_buffer_ns { Step::LaterPage } else { Step::Page };
        let page_ns = self.page_ns(step, self.typical_ns(step));
        Some(match first_ns.checked_sub(left_ns) {
            Some(done_ns) => page_ns - done_ns % page_ns,
            None => page_ns + left_ns - first_ns,
        })
    }

    fn work_ns(&mut self, now_ns: u64, task: u32, ns: u64, call: Option<Call>) -> u64 {
        let reads_cpu_time = self.reads_cpu_time();
        let left_ns = self.clocks[task as usize].ask(ns, call, reads_cpu_time);
        if left_ns <= MOST_WRONG_NS {
            return left_ns;
        }
        let call = call.filter(|_| !reads_cpu_time);
        let deep_ns = call.map_or(0, |call| {
            (left_ns / call.tick_ns).saturating_mul(u64::from(call.levels) * LEVEL_NS)
        });
        left_ns + deep_ns - MOST_WRONG_NS + self.drawn_ns(now_ns, Step::Work)
    }

    fn counts_by_clock(&self, task: u32) -> bool {
        !self.reads_cpu_time() && self.clocks[task as usize].is_program_work
    }

    fn mistaken_ns(&self, task: u32, in_user: bool, left_ns: u64, away_ns: u64) -> u64 {
        self.clocks[task as usize].mistaken_ns(in_user, left_ns, away_ns)
    }

    fn resume(&mut self, task: u32, in_user: bool, left_ns: u64, spent_ns: (u64, u64)) -> u64 {
        self.clocks[task as usize].resume(in_user, left_ns, spent_ns)
    }

    fn tell(&mut self, now_ns: u64, task: u32, told: Told) {
        let place = task as usize;
        match told {
            Told::New => {
                self.clocks.resize_with(self.clocks.len().max(place + 1), Clock::default);
                self.clocks[place] = Clock::default();
            }
            Told::Pages { left_ns, in_syscall, writes } => {
                // A list of requests first reads what exceeds whole buffers.
                let listed = in_syscall && left_ns > self.page_ns(Step::Page, ONE_BUFFER_NS);
                let first_ns = if writes || listed {
                    0
                } else {
                    left_ns.saturating_sub(self.drawn_ns(now_ns, Step::Read))
                };
                self.clocks[place].first_page_ns = NonZeroU64::new(first_ns);
            }
            told => {
                let reads_cpu_time = self.reads_cpu_time();
                self.clocks[place].tell(now_ns, told, reads_cpu_time);
            }
        }
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
