//! Intervals of balancing, which depend on its results: at ticks (kernel: `sd->balance_interval`),
//! and at CPUs about to go idle (kernel: `NI_RANDOM`).

use crate::events::NEVER;
use crate::ids::{SeId, TaskId};
use cpumax_workload::Stream;

/// Result of a balancing attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// No CPU has more than it should.
    Balanced,
    /// A CPU has, but its tasks may not come here: pinned elsewhere, or throttled, which counts
    /// alike (kernel: `LBF_ALL_PINNED`).
    Pinned,
    /// A CPU has, but its tasks run, are cache-hot, or too heavy.
    Nothing,
    Moved,
}

impl Found {
    /// The result over two domains: this one if tasks moved, else `other`.
    pub fn or(self, other: Found) -> Found {
        if self == Found::Moved { self } else { other }
    }
}

/// Balancing state of a CPU at ticks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BalanceInterval {
    /// The tick at which it last balanced, ns; negative before the run.
    pub last_ns: i64,
    doubled: u32,
    /// Failed attempts in a row: another CPU had too much, and nothing could be taken.
    pub failed: u32,
    /// Its interval was over at the last tick, which it missed.
    pub is_late: bool,
    /// Up to when `last_ns` is valid, ns.
    pub seen_ns: u64,
    /// When it last became or was idle, ns.
    pub idle_ns: u64,
}

impl BalanceInterval {
    /// Longest interval that doubling reaches where all tasks are pinned, ms.
    const MOST_PINNED_MS: u32 = 512;

    /// The balancing interval, ms: the number of CPUs in its domain, doubled as often as its
    /// results demand.
    pub fn interval_ms(&self, domain: u32) -> u32 {
        domain.saturating_mul(1 << self.doubled)
    }

    /// Updates interval and failures by a result: a balanced domain doubles the interval once,
    /// pinned tasks up to half a second, anything else resets it; attempts without a move count as
    /// failed.
    pub fn note_result(&mut self, found: Found, domain: u32) {
        let may_double = match found {
            Found::Balanced => self.doubled == 0,
            Found::Pinned => self.doubled == 0 || self.interval_ms(domain) < Self::MOST_PINNED_MS,
            Found::Nothing | Found::Moved => {
                self.doubled = 0;
                self.failed = if found == Found::Moved { 0 } else { self.failed.saturating_add(1) };
                return;
            }
        };
        self.failed = 0;
        self.doubled += u32::from(may_double);
    }

    /// Updates failures and interval by a result of newidle balancing, which never lengthens the
    /// interval.
    pub fn note_newidle(&mut self, found: Found) {
        if found != Found::Nothing {
            self.failed = 0;
        }
        if matches!(found, Found::Nothing | Found::Moved) {
            self.doubled = 0;
        }
    }
}

/// How often newidle balancing found something in a domain (kernel: `update_newidle_stats()`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Newidle {
    calls: u32,
    successes: u32,
    /// Number of attempts in [`Newidle::SIDES`] calls, less one.
    ratio: u32,
}

impl Newidle {
    /// Range of the random draw; also the number of calls after which the ratio is updated.
    const SIDES: u32 = 1024;

    /// Counts that start as if half of the range had been tried, with every second attempt a
    /// success.
    pub fn new() -> Newidle {
        Newidle { calls: Self::SIDES / 2, successes: Self::SIDES / 4, ratio: Self::SIDES / 2 }
    }

    /// Draws whether to try newidle balancing this time; if so, as how many calls a success counts.
    pub fn draw(&self, random: &mut Stream) -> Option<u32> {
        let weight = 1 + self.ratio;
        let thrown = random.below(Self::SIDES.into());
        (thrown <= weight.into()).then_some((Self::SIDES + weight / 2) / weight)
    }

    /// Counts a call and its successes; every so many calls sets the ratio of successes anew and
    /// halves the counts.
    pub fn note_call(&mut self, successes: u32) {
        self.calls += 1;
        self.successes += successes;
        if self.calls >= Self::SIDES {
            self.ratio = self.successes;
            self.calls /= 2;
            self.successes /= 2;
        }
    }
}

/// State of balancing on a CPU.
#[derive(Debug, Clone)]
pub(crate) struct CpuBalancing {
    pub interval: BalanceInterval,
    /// Success of newidle balancing: in its cache domain, and on the machine.
    pub newidle: [Newidle; 2],
    pub random: Stream,
    /// On the first CPU of a cache domain: how many CPUs a waking task searches, and until when
    /// that is valid, ns.
    pub idle_search: (u32, u64),
}

impl CpuBalancing {
    /// Of a CPU that has not balanced yet.
    pub fn new(random: Stream) -> CpuBalancing {
        let interval = BalanceInterval::default();
        CpuBalancing { interval, newidle: [Newidle::new(); 2], random, idle_search: (0, 0) }
    }
}

/// State of balancing on the whole machine.
#[derive(Debug)]
pub(crate) struct Balancing {
    /// The tick of the next round, ns, or [`NEVER`].
    pub due_ns: u64,
    /// Copies of each CPU's `nr_running`, side by side in memory: balancing and placement read
    /// many.
    pub nr_running: Vec<u32>,
    pub lists: BalanceLists,
}

/// Reused buffers of the balancer.
#[derive(Debug, Default)]
pub(crate) struct BalanceLists {
    pub pending: Vec<SeId>,
    pub movable: Vec<TaskId>,
}

impl Balancing {
    /// No round is due, on idle CPUs.
    pub fn new(cpus: usize) -> Balancing {
        let (nr_running, lists) = (vec![0; cpus], BalanceLists::default());
        Balancing { due_ns: NEVER, nr_running, lists }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Simulation;
    use crate::{Options, kernel};
    use cpumax_workload::Domain;

    #[test]
    fn the_interval_grows_while_there_is_nothing_to_do_and_most_where_all_are_pinned() {
        let mut interval = BalanceInterval::default();
        let mut intervals_ms = |found: Found, times: u32| {
            (0..times).for_each(|_| interval.note_result(found, 2));
            (interval.interval_ms(2), interval.failed)
        };
        assert_eq!(intervals_ms(Found::Balanced, 9), (4, 0));
        assert_eq!(intervals_ms(Found::Pinned, 3), (32, 0));
        assert_eq!(intervals_ms(Found::Balanced, 9), (32, 0), "what has grown stays");
        assert_eq!(intervals_ms(Found::Pinned, 9), (512, 0));
        assert_eq!(intervals_ms(Found::Nothing, 3), (2, 3));
        assert_eq!(intervals_ms(Found::Moved, 1), (2, 0));
    }

    #[test]
    fn newidle_balancing_is_rarer_without_success_and_more_frequent_with_it() {
        let mut random = Stream::new(1, Domain::Cpu, 0);
        let mut newidle = Newidle::new();
        let mut looks_of = |succeeds: bool, calls: u32| {
            let mut looks = 0;
            for _ in 0..calls {
                let weight = newidle.draw(&mut random);
                looks += u32::from(weight.is_some());
                newidle.note_call(if succeeds { weight.unwrap_or(0) } else { 0 });
            }
            looks
        };
        // The first 512 calls use the initial ratio.
        assert!((200..310).contains(&looks_of(false, 512)));
        looks_of(false, 8 * 512);
        assert!(looks_of(false, 1024) < 40);
        looks_of(true, 16 * 512);
        assert!(looks_of(true, 1024) > 900);
    }

    /// How often the interval of CPU 1 has doubled after a second in which three hogs may use
    /// these CPUs.
    fn doubled(cpus: &str) -> u32 {
        let text = format!(
            "duration = \"1s\"\n[machine]\ncpus = 2\n\
             [[task]]\nname = \"hog\"\ncount = 3\ncpus = \"{cpus}\"\n\
             program = [{{ user = \"2s\" }}]\n"
        );
        let workload = cpumax_workload::parse(&text, "pinned.toml").unwrap();
        let kernel = kernel::parse_kernels("6.12").unwrap()[0];
        let options = Options::new(kernel, 1);
        let machine = Simulation::ended(&workload, &options);
        let mut cpus = machine.cpus.ids();
        let second = cpus.nth(1).unwrap();
        (machine.cpus[second].balancing.interval.interval_ms(2) / 2).ilog2()
    }

    #[test]
    fn an_idle_cpu_gives_up_on_tasks_that_are_pinned_to_another() {
        assert!(doubled("0") >= 7);
        assert!(doubled("0-1") <= 1);
    }
}
