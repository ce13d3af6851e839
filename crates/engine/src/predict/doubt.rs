//! What nobody knows of a run to come, and the runs that stand for it.

use cpumax_machine::COST_AS_IT_SAYS;

/// One run's share of what nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Doubt {
    /// Seed of every random choice.
    pub seed: u64,
    /// When the limit's period timer first fires, ns.
    pub phase_ns: u64,
    /// What the group's work costs, in millionths of what was recorded.
    pub cost_ppm: u32,
    /// Whether it stands for what is most likely: the value is the median of these.
    pub likely: bool,
}

/// How much more or less the same work may cost on another day, as factors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkRange {
    /// At least.
    pub low: f64,
    /// At most.
    pub high: f64,
}

/// What is doubted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Doubts {
    /// The first run's seed; those of the others follow from it.
    pub seed: u64,
    /// What the work costs, as a factor; `None`: as much as was recorded, as far as that can be
    /// known.
    pub scale: Option<f64>,
    /// The same on another day, as factors of that.
    pub work: WorkRange,
}

impl Default for WorkRange {
    /// As it was seen to differ between a recording and runs of the same load; see docs/replay.md.
    fn default() -> WorkRange {
        WorkRange { low: 0.9, high: 1.2 }
    }
}

/// Runs at the most likely cost, and at each end of the range.
const LIKELY: usize = 5;
const AT_THE_ENDS: usize = 3;
/// Work costs so much more where the limit stops it again and again, as caches are cold then.
/// docs/replay.md tells of which loads that was seen.
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
        self.run(0, period_ns, rise, true)
    }

    /// Whether the first run is a likely one, given the share of periods that were throttled in it.
    pub fn is_likely(&self, period_ns: Option<u64>, throttled_percent: f64) -> bool {
        period_ns.is_none() || self.scale.is_some() || throttled_percent >= OFTEN_PERCENT
    }

    /// The runs that come after it. Without a limit phases make no difference, so there are fewer.
    pub fn others(&self, period_ns: Option<u64>, throttled_percent: f64) -> Vec<Doubt> {
        let limited = period_ns.is_some();
        let often = limited && throttled_percent >= OFTEN_PERCENT;
        let rise = if often { self.rise() } else { 1.0 };
        let (likely, at_the_ends) = if limited { (LIKELY, AT_THE_ENDS) } else { (1, 1) };
        let likely = likely - usize::from(self.is_likely(period_ns, throttled_percent));
        let at_end = |end: f64| std::iter::repeat_n((end * rise, false), at_the_ends);
        let costs = std::iter::repeat_n((rise, true), likely)
            .chain(at_end(self.work.low))
            .chain(at_end(self.work.high));
        costs
            .enumerate()
            .map(|(at, (cost, likely))| self.run(1 + at, period_ns, cost, likely))
            .collect()
    }

    fn rise(&self) -> f64 {
        if self.scale.is_some() { 1.0 } else { 1.0 + RISE }
    }

    fn run(&self, at: usize, period_ns: Option<u64>, cost: f64, likely: bool) -> Doubt {
        Doubt {
            seed: self.seed.wrapping_add(at as u64),
            phase_ns: phase_ns(self.seed, at as u64, period_ns.unwrap_or(1)),
            cost_ppm: ppm(self.scale.unwrap_or(1.0) * cost),
            likely,
        }
    }
}

/// Where in the period its timer fires in this run: evenly spread over the runs, from a start that
/// the seed gives.
fn phase_ns(seed: u64, at: u64, period_ns: u64) -> u64 {
    let turns_ppm = seed.wrapping_add(at).wrapping_mul(GOLDEN_PPM) % 1_000_000;
    (u128::from(period_ns) * u128::from(turns_ppm) / 1_000_000) as u64
}

fn ppm(factor: f64) -> u32 {
    (factor * f64::from(COST_AS_IT_SAYS)).round() as u32
}
