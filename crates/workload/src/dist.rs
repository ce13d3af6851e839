//! Reproducible random numbers: streams of their own for all entities, and sampling of
//! distributions.
//!
//! Every entity of a run that draws random numbers has its own [`Stream`], a PCG generator
//! (`Pcg64Mcg`: 128-bit multiplicative congruential state, XSL-RR output) whose state is a hash of
//! (seed, domain, index). One more task in a workload, or one more draw in a task, leaves the
//! numbers of all others unchanged.
//!
//! `exp`, `ln` and `cos` come from `libm`, in software: the same bits on every machine.

use crate::model::{Distribution, Span};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

/// Longest length of time that [`Distribution::draw`] returns, ns: 2^53, about 104 days.
pub const MAX_DRAW_NS: u64 = 1 << 53;

/// Kind of entity that owns a [`Stream`]. The numbers enter the seed: a changed number changes the
/// runs of all seeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Domain {
    /// Draws of a task while it executes its program; index: number of the task.
    Task = 1,
    /// Arrivals of a source; index: its place in the workload.
    Source = 2,
    /// Phase of a group's period timer; index: its place in the workload.
    Group = 3,
    /// Random decisions of a CPU; index: its number.
    Cpu = 4,
    /// Random decisions of the machine as a whole.
    Machine = 5,
    /// Generation of random workloads.
    Workload = 6,
    /// Intervals of counters that a bootstrap draws again.
    Counters = 7,
    /// Services whose model is fitted to counters; index: number of the service.
    Fit = 8,
}

/// A stream of random numbers that belongs to one entity. Small, no heap, cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream(Pcg64Mcg);

impl Stream {
    /// The stream of entity `index` of kind `domain` in the run with this seed.
    ///
    /// The state is two outputs of `SplitMix64` started from `mix(mix(mix(seed) + domain) +
    /// index)`, where `mix` is one step of `SplitMix64`; the low half of the state is the first of
    /// the two.
    pub fn new(seed: u64, domain: Domain, index: u64) -> Stream {
        let key = mix(mix(mix(seed).wrapping_add(domain as u64)).wrapping_add(index));
        let low = mix(key);
        let high = mix(key.wrapping_add(GOLDEN_GAMMA));
        Stream(Pcg64Mcg::new(u128::from(high) << 64 | u128::from(low)))
    }

    /// The next number, uniform over all 64 bits; advances the stream.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A uniform number in `0..n`; 0 when `n` is 0. Advances the stream.
    pub fn below(&mut self, n: u64) -> u64 {
        // Multiply-shift; numbers that would favour some results are drawn anew.
        let mut product = u128::from(self.next_u64()) * u128::from(n);
        if (product as u64) < n {
            let unfair = n.wrapping_neg() % n;
            while (product as u64) < unfair {
                product = u128::from(self.next_u64()) * u128::from(n);
            }
        }
        (product >> 64) as u64
    }

    /// A uniform number in (0, 1], a multiple of 2^-53. Advances the stream.
    pub fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A number from the standard normal distribution (Box-Muller; always takes two from the
    /// stream).
    fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(self.unit()));
        radius * libm::cos(2.0 * std::f64::consts::PI * self.unit())
    }
}

/// Increment of `SplitMix64`: 2^64 divided by the golden ratio, made odd.
const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output of `SplitMix64` after one step from `state`.
fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(GOLDEN_GAMMA);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Distribution {
    /// Draws a length of time, ns, at most [`MAX_DRAW_NS`]. A constant takes nothing from the
    /// stream.
    pub fn draw(&self, stream: &mut Stream) -> u64 {
        let drawn_ns = match self {
            Distribution::Constant { ns } => *ns,
            Distribution::Uniform { low_ns, high_ns } => {
                let width_ns = high_ns.saturating_sub(*low_ns).saturating_add(1);
                low_ns.saturating_add(stream.below(width_ns))
            }
            Distribution::Exponential { mean_ns } => {
                to_ns(*mean_ns as f64 * -libm::log(stream.unit()))
            }
            Distribution::LogNormal { median_ns, sigma } => {
                to_ns(*median_ns as f64 * libm::exp(sigma * stream.normal()))
            }
            Distribution::Empirical { values_ns, cumulative } => {
                let total = cumulative.last().copied().unwrap_or(0);
                let rank = stream.below(total);
                let ix = cumulative.partition_point(|&below| below <= rank);
                values_ns.get(ix).copied().unwrap_or(0)
            }
        };
        drawn_ns.min(MAX_DRAW_NS)
    }

    /// A copy with each of its lengths, ns, replaced by another.
    pub(crate) fn map(&self, ns: impl Fn(u64) -> u64) -> Distribution {
        match self {
            Distribution::Constant { ns: of } => Distribution::Constant { ns: ns(*of) },
            Distribution::Uniform { low_ns, high_ns } => {
                Distribution::Uniform { low_ns: ns(*low_ns), high_ns: ns(*high_ns) }
            }
            Distribution::Exponential { mean_ns } => {
                Distribution::Exponential { mean_ns: ns(*mean_ns) }
            }
            Distribution::LogNormal { median_ns, sigma } => {
                Distribution::LogNormal { median_ns: ns(*median_ns), sigma: *sigma }
            }
            Distribution::Empirical { values_ns, cumulative } => Distribution::Empirical {
                values_ns: values_ns.iter().map(|of| ns(*of)).collect(),
                cumulative: cumulative.clone(),
            },
        }
    }

    /// Expected length of time, ns, for people to read; no run depends on it.
    pub fn mean_ns(&self) -> f64 {
        match self {
            Distribution::Constant { ns } => *ns as f64,
            Distribution::Uniform { low_ns, high_ns } => {
                f64::midpoint(*low_ns as f64, *high_ns as f64)
            }
            Distribution::Exponential { mean_ns } => *mean_ns as f64,
            Distribution::LogNormal { median_ns, sigma } => {
                *median_ns as f64 * libm::exp(sigma * sigma / 2.0)
            }
            Distribution::Empirical { values_ns, cumulative } => {
                let (mut sum, mut counted) = (0.0, 0_u64);
                for (&value_ns, count) in values_ns.iter().zip(counts(cumulative)) {
                    sum += value_ns as f64 * count as f64;
                    counted = counted.saturating_add(count);
                }
                sum / counted.max(1) as f64
            }
        }
    }
}

impl Span {
    /// Draws this length of time, ns: the fixed length, or one of the workload's distributions (0
    /// without such a distribution, which the checks rule out).
    pub fn draw(self, distributions: &[Distribution], stream: &mut Stream) -> u64 {
        match self {
            Span::Fixed(ns) => ns,
            Span::Drawn(ix) => distributions.get(ix as usize).map_or(0, |d| d.draw(stream)),
        }
    }
}

/// The count of each value of a distribution, from the cumulative ones.
pub(crate) fn counts(cumulative: &[u64]) -> impl Iterator<Item = u64> {
    let befores = std::iter::once(&0).chain(cumulative);
    cumulative.iter().zip(befores).map(|(upto, before)| upto.saturating_sub(*before))
}

/// Whole ns, rounded down; NaN and negative values become 0, values beyond `u64` its maximum.
fn to_ns(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 20_000;

    fn sorted(distribution: &Distribution) -> Vec<u64> {
        let mut stream = Stream::new(7, Domain::Task, 0);
        let mut all: Vec<u64> = (0..DRAWS).map(|_| distribution.draw(&mut stream)).collect();
        all.sort_unstable();
        all
    }

    fn mean(all: &[u64]) -> f64 {
        all.iter().map(|&ns| ns as f64).sum::<f64>() / all.len() as f64
    }

    #[test]
    fn the_same_numbers_on_every_machine_and_in_every_release() {
        // Computed by an independent program from the recipe in the documentation.
        let recorded_raw =
            [16_641_277_496_948_281_006, 7_236_863_486_294_353_800, 2_359_890_561_840_889_091];
        let recorded_draws = [1_346_101, 671_595];
        let mut stream = Stream::new(1, Domain::Task, 2);
        let first: Vec<u64> = (0..3).map(|_| stream.next_u64()).collect();
        assert_eq!(first, recorded_raw);
        let log_normal = Distribution::LogNormal { median_ns: 1_000_000, sigma: 0.5 };
        let exponential = Distribution::Exponential { mean_ns: 1_000_000 };
        let drawn = [log_normal.draw(&mut stream), exponential.draw(&mut stream)];
        assert_eq!(drawn, recorded_draws);
    }

    #[test]
    fn splitmix_agrees_with_its_published_vector() {
        // The first outputs of SplitMix64 from state 1234567.
        let states =
            [0, 1, 2].map(|n: u64| 1_234_567u64.wrapping_add(GOLDEN_GAMMA.wrapping_mul(n)));
        let published =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(states.map(mix), published);
    }

    #[test]
    fn streams_of_different_entities_differ() {
        let mut firsts = Vec::new();
        for seed in 0..4 {
            for domain in [Domain::Task, Domain::Source, Domain::Group, Domain::Cpu] {
                for index in 0..100 {
                    firsts.push(Stream::new(seed, domain, index).next_u64());
                }
            }
        }
        let all = firsts.len();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), all);
    }

    #[test]
    fn below_is_fair_and_stays_below() {
        let mut stream = Stream::new(3, Domain::Machine, 0);
        let mut counts = [0u32; 5];
        for _ in 0..50_000 {
            counts[stream.below(5) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| (9_500..10_500).contains(&count)), "{counts:?}");
        assert_eq!(stream.below(0), 0);
        assert_eq!(stream.below(1), 0);
        assert!(stream.below(u64::MAX) < u64::MAX);
    }

    #[test]
    fn means_and_quantiles_are_those_of_the_distribution() {
        let uniform = Distribution::Uniform { low_ns: 1_000, high_ns: 3_000 };
        let all = sorted(&uniform);
        assert!(all[0] >= 1_000 && all[DRAWS - 1] <= 3_000);
        assert!((mean(&all) - 2_000.0).abs() < 20.0);

        let all = sorted(&Distribution::Exponential { mean_ns: 1_000_000 });
        assert!((mean(&all) / 1e6 - 1.0).abs() < 0.03, "{}", mean(&all));
        let median = all[DRAWS / 2] as f64 / 1e6;
        assert!((median - std::f64::consts::LN_2).abs() < 0.03, "{median}");

        let log_normal = Distribution::LogNormal { median_ns: 1_000_000, sigma: 0.5 };
        let all = sorted(&log_normal);
        assert!((all[DRAWS / 2] as f64 / 1e6 - 1.0).abs() < 0.03);
        // One standard deviation up is at the quantile 0.8413.
        let up = all[DRAWS * 8413 / 10_000] as f64 / 1e6;
        assert!((up - libm::exp(0.5)).abs() < 0.05, "{up}");
        assert!((mean(&all) / log_normal.mean_ns() - 1.0).abs() < 0.03);

        let empirical = Distribution::Empirical { values_ns: vec![1, 9], cumulative: vec![3, 4] };
        let all = sorted(&empirical);
        let nines = all.iter().filter(|&&ns| ns == 9).count() as f64 / DRAWS as f64;
        assert!((nines - 0.25).abs() < 0.02, "{nines}");
        assert!(all.iter().all(|&ns| ns == 1 || ns == 9));
        assert!((empirical.mean_ns() - 3.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_is_longer_than_the_cap_and_nothing_panics() {
        let wild = [
            Distribution::Constant { ns: u64::MAX },
            Distribution::Uniform { low_ns: 0, high_ns: u64::MAX },
            Distribution::Uniform { low_ns: 9, high_ns: 3 },
            Distribution::Exponential { mean_ns: u64::MAX },
            Distribution::LogNormal { median_ns: u64::MAX, sigma: f64::INFINITY },
            Distribution::LogNormal { median_ns: 1, sigma: f64::NAN },
            Distribution::Empirical { values_ns: vec![], cumulative: vec![] },
            Distribution::Empirical { values_ns: vec![u64::MAX], cumulative: vec![] },
        ];
        let mut stream = Stream::new(0, Domain::Task, 0);
        for distribution in &wild {
            for _ in 0..100 {
                assert!(distribution.draw(&mut stream) <= MAX_DRAW_NS);
            }
        }
        assert_eq!(Span::Drawn(3).draw(&wild[..1], &mut stream), 0);
        assert_eq!(Span::Fixed(5).draw(&[], &mut stream), 5);
    }
}
