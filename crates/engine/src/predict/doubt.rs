//! What nobody knows of a run to come, and the runs that stand for it.

use cpumax_machine::COST_AS_IT_SAYS;

/// One run's share of what nobody knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// Seed of every random choice.
    pub seed: u64,
    /// When the limit's period timer first fires, ns.
    pub phase_ns: u64,
    /// What the group's work costs, in millionths of what was recorded.
    pub cost_ppm: u32,
    /// The cost of that work in millionths of the most likely one: 1000000, or an end of its range.
    pub work_ppm: u32,
    /// Whether it stands for what is most likely: the value is the median of these.
    pub likely: bool,
}

/// What the first run under a limit shows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// Of a hundred periods, those that were throttled.
    pub throttled_percent: f64,
    /// What a request cost that it got to, by what one costs on average: a limit under which only
    /// the first of the recorded requests are answered is not told by these what all cost.
    pub dearness: f64,
}

/// How much more or less the same work may cost on another day, as factors.
///
/// [Example](super).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkRange {
    /// At least.
    pub low: f64,
    /// At most.
    pub high: f64,
}

/// What is doubted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Doubts {
    /// The first run's seed; those of the others follow from it.
    pub seed: u64,
    /// What the work costs, as a factor; `None`: as much as was recorded, as far as that can be
    /// known.
    pub scale: Option<f64>,
    /// The same on another day, as factors of that.
    pub work: WorkRange,
}

impl Default for WorkRange {
    /// As it was seen to differ between a recording and runs of the same load; see docs/guide/replay.md.
    fn default() -> WorkRange {
        WorkRange { low: 0.9, high: 1.2 }
    }
}

/// Runs at the most likely cost, and at each end of the range.
const LIKELY: usize = 5;
const AT_THE_ENDS: usize = 3;
/// Work costs so much more where the limit stops it again and again, as caches are cold then.
/// docs/guide/replay.md tells of which loads that was seen.
const RISE: f64 = 0.06;
/// That is where so many of a hundred periods are throttled.
const OFTEN_PERCENT: f64 = 50.0;
/// The golden section: however many of its multiples are taken, they lie evenly between 0 and 1.
const GOLDEN_PPM: u64 = 618_034;

impl Doubts {
    /// The run that tells whether the limit stops the load often. `period_ns` is `None` where there
    /// is no limit.
    pub fn first(&self, period_ns: Option<u64>) -> Doubt {
        let rise = if period_ns.is_some() { self.rise() } else { 1.0 };
        self.run(0, period_ns, (rise, 1.0), true)
    }

    /// Whether the first run is a likely one.
    pub fn is_likely(&self, period_ns: Option<u64>, seen: Seen) -> bool {
        let often = self.scale.is_some() || seen.throttled_percent >= OFTEN_PERCENT;
        period_ns.is_none() || often && (seen.dearness - 1.0).abs() < f64::EPSILON
    }

    /// The runs that come after it. Without a limit phases make no difference, so there are fewer.
    pub fn others(&self, period_ns: Option<u64>, seen: Seen) -> Vec<Doubt> {
        let limited = period_ns.is_some();
        let often = limited && seen.throttled_percent >= OFTEN_PERCENT;
        let rise = if often { self.rise() } else { 1.0 } / seen.dearness;
        let (likely, at_the_ends) = if limited { (LIKELY, AT_THE_ENDS) } else { (1, 1) };
        let likely = likely - usize::from(self.is_likely(period_ns, seen));
        let at_end = |end: f64| std::iter::repeat_n((end, false), at_the_ends);
        let costs = std::iter::repeat_n((1.0, true), likely)
            .chain(at_end(self.work.low))
            .chain(at_end(self.work.high));
        costs
            .enumerate()
            .map(|(at, (work, likely))| self.run(1 + at, period_ns, (rise, work), likely))
            .collect()
    }

    fn rise(&self) -> f64 {
        if self.scale.is_some() { 1.0 } else { 1.0 + RISE }
    }

    /// The work costs `rise` times as much as was recorded, and `work` times that.
    fn run(
        &self,
        at: usize,
        period_ns: Option<u64>,
        (rise, work): (f64, f64),
        likely: bool,
    ) -> Doubt {
        Doubt {
            seed: self.seed.wrapping_add(at as u64),
            phase_ns: phase_ns(self.seed, at as u64, period_ns.unwrap_or(1)),
            cost_ppm: ppm(self.scale.unwrap_or(1.0) * (work * rise)),
            work_ppm: ppm(work),
            likely,
        }
    }
}

/// Where in the period its timer fires in this run: evenly spread over the runs, from a start that
/// the seed gives.
fn phase_ns(seed: u64, at: u64, period_ns: u64) -> u64 {
    let turns_ppm = (seed % 1_000_000 + at) * GOLDEN_PPM % 1_000_000;
    (u128::from(period_ns) * u128::from(turns_ppm) / 1_000_000) as u64
}

fn ppm(factor: f64) -> u32 {
    (factor * f64::from(COST_AS_IT_SAYS)).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOUBTS: Doubts = Doubts { seed: 1, scale: None, work: WorkRange { low: 0.9, high: 1.2 } };

    /// Of all runs of a limit: first and others.
    fn all(doubts: &Doubts, throttled_percent: f64) -> Vec<Doubt> {
        let period_ns = Some(100_000_000);
        let first = doubts.first(period_ns);
        let seen = Seen { throttled_percent, dearness: 1.0 };
        let is_likely = doubts.is_likely(period_ns, seen);
        let others = doubts.others(period_ns, seen);
        std::iter::once(Doubt { likely: is_likely, ..first }).chain(others).collect()
    }

    fn costs(runs: &[Doubt], likely: bool) -> Vec<u32> {
        let mut costs: Vec<u32> =
            runs.iter().filter(|run| run.likely == likely).map(|run| run.cost_ppm).collect();
        costs.dedup();
        costs
    }

    #[test]
    fn work_that_is_stopped_again_and_again_costs_more() {
        let often = all(&DOUBTS, 99.0);
        assert_eq!(costs(&often, true), [1_060_000]);
        assert_eq!(costs(&often, false), [954_000, 1_272_000]);
        let seldom = all(&DOUBTS, 3.0);
        assert_eq!(costs(&seldom, true), [1_000_000]);
        assert_eq!(costs(&seldom, false), [1_060_000, 900_000, 1_200_000]);
        for runs in [often, seldom] {
            assert_eq!(runs.iter().filter(|run| run.likely).count(), LIKELY);
        }
    }

    #[test]
    fn who_says_what_work_costs_is_believed() {
        let told = Doubts { scale: Some(1.3), ..DOUBTS };
        for throttled_percent in [0.0, 100.0] {
            let runs = all(&told, throttled_percent);
            assert_eq!(costs(&runs, true), [1_300_000]);
            assert_eq!(costs(&runs, false), [1_170_000, 1_560_000]);
        }
    }

    #[test]
    fn where_the_first_requests_cost_more_all_cost_less() {
        let seen = Seen { throttled_percent: 99.0, dearness: 1.06 };
        assert!(!DOUBTS.is_likely(Some(100_000_000), seen));
        let others = DOUBTS.others(Some(100_000_000), seen);
        assert_eq!(costs(&others, true), [1_000_000]);
        assert_eq!(costs(&others, false), [900_000, 1_200_000]);
    }

    #[test]
    fn periods_begin_at_places_that_lie_evenly() {
        for seed in [1, 7, u64::MAX] {
            let mut phases: Vec<u64> = (0..11).map(|at| phase_ns(seed, at, 1_100)).collect();
            phases.sort_unstable();
            let mut gaps = phases.windows(2).map(|pair| pair[1] - pair[0]);
            assert!(gaps.all(|gap| (30..=170).contains(&gap)), "{phases:?}");
        }
    }

    #[test]
    fn without_a_limit_only_the_work_is_doubted() {
        assert_eq!(DOUBTS.first(None).cost_ppm, 1_000_000);
        let seen = Seen { throttled_percent: 0.0, dearness: 1.0 };
        assert!(DOUBTS.is_likely(None, seen));
        assert_eq!(costs(&DOUBTS.others(None, seen), false), [900_000, 1_200_000]);
    }
}
