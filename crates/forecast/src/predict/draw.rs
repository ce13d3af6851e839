//! Unknowns of a future run (phase of the period, seed, cost of the work), and the runs that sample
//! them.

use cpumax_machine::COST_AS_IT_SAYS;
use cpumax_study::given::factor;

/// The unknown values drawn for one run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Draw {
    /// Seed of every random choice.
    pub seed: u64,
    /// When the period timer of the first limited group first fires, ns.
    pub phase_ns: u64,
    /// How much later those of further limited groups do, where a kernel gives each its own phase,
    /// ns.
    pub apart_ns: u64,
    /// Cost of the group's work, in millionths of what was recorded.
    pub cost_ppm: u32,
    /// The work's cost in millionths of the most likely one: 1000000, or an end of its range.
    pub work_ppm: u32,
    /// Whether this draw is the most likely one: a prediction's value is the median of such runs.
    pub likely: bool,
}

/// Results of the first run under a limit; they decide how the other runs are drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FirstRun {
    /// Periods that were throttled, of a hundred.
    pub throttled_percent: f64,
    /// Mean cost of the requests that the run answered, divided by the mean cost of all recorded
    /// requests. Under a tight limit a run answers only the first of them.
    pub relative_cost: f64,
}

/// How much more or less the work may cost on another day, as factors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkRange {
    /// Lowest factor.
    pub low: f64,
    /// Highest factor.
    pub high: f64,
}

/// The unknowns of one question, from which its runs are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Unknowns {
    /// The first run's seed; those of the others follow from it.
    pub seed: u64,
    /// Cost of the work as a factor of what was recorded, where the user gave one.
    pub scale: Option<f64>,
    /// Range of the cost on another day, as factors of the most likely cost.
    pub work: WorkRange,
}

impl WorkRange {
    /// Parses two factors around 1, such as `0.9..1.2`.
    ///
    /// # Errors
    /// The text that would be accepted.
    pub fn parse(text: &str) -> Result<WorkRange, String> {
        let takes = "give two factors around 1, such as 0.9..1.2";
        let (low, high) = text.split_once("..").ok_or(takes)?;
        let (low, high) = (factor(low)?, factor(high)?);
        if low <= 1.0 && high >= 1.0 { Ok(WorkRange { low, high }) } else { Err(takes.to_owned()) }
    }
}

impl Default for WorkRange {
    /// A tenth less to a fifth more: the difference measured between a recording and later runs of
    /// an equal load.
    fn default() -> WorkRange {
        WorkRange { low: 0.9, high: 1.2 }
    }
}

/// Runs at the most likely cost, and at each end of the range.
const LIKELY: usize = 5;
const AT_THE_ENDS: usize = 3;
/// Work costs this share more where the limit stops it again and again: its caches are cold then.
/// On 19 loads a request cost 1.02 times the recorded time without a limit, 1.09 times there.
const RISE: f64 = 0.06;
/// [`RISE`] applies from this share of throttled periods on.
const OFTEN_PERCENT: f64 = 50.0;
/// The golden section: any number of its multiples lies evenly between 0 and 1.
const GOLDEN_PPM: u64 = 618_034;
/// The plastic number to the power -2: its multiples, and the sums of these with those of the
/// golden section, lie evenly, too.
const APART_PPM: u64 = 569_840;

impl Unknowns {
    /// The first run, with the rise of often throttled work under a limit. It tells whether the
    /// limit throttles the load often. `period_ns` is `None` without a limit.
    pub fn first(&self, period_ns: Option<u64>) -> Draw {
        let rise = if period_ns.is_some() { self.rise() } else { 1.0 };
        self.run(0, period_ns, (rise, 1.0), true)
    }

    /// Whether the first run turned out to be a most likely one: without a limit, or where its rise
    /// in cost was right and its requests cost as much as the average.
    pub fn is_likely(&self, period_ns: Option<u64>, seen: FirstRun) -> bool {
        let often = self.scale.is_some() || seen.throttled_percent >= OFTEN_PERCENT;
        period_ns.is_none() || often && (seen.relative_cost - 1.0).abs() < f64::EPSILON
    }

    /// The draws after the first: the rest of five most likely ones and three at each end of the
    /// range of cost, or six where several groups are limited: in a narrow range of phases one of
    /// them does not throttle. Without a limit phases make no difference, so there is one at each
    /// end only.
    pub fn others(&self, period_ns: Option<u64>, seen: FirstRun, is_nested: bool) -> Vec<Draw> {
        let limited = period_ns.is_some();
        let often = limited && seen.throttled_percent >= OFTEN_PERCENT;
        let rise = if often { self.rise() } else { 1.0 } / seen.relative_cost;
        let at_the_ends = if is_nested { 2 * AT_THE_ENDS } else { AT_THE_ENDS };
        let (likely, at_the_ends) = if limited { (LIKELY, at_the_ends) } else { (1, 1) };
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

    /// Factor on the cost of work that is often throttled; 1 where the user gave the cost.
    fn rise(&self) -> f64 {
        if self.scale.is_some() { 1.0 } else { 1.0 + RISE }
    }

    /// The draw of run number `at`: its work costs `rise` times what was recorded or the user's
    /// factor says, and `work` times that.
    fn run(
        &self,
        at: usize,
        period_ns: Option<u64>,
        (rise, work): (f64, f64),
        likely: bool,
    ) -> Draw {
        Draw {
            seed: self.seed.wrapping_add(at as u64),
            phase_ns: evenly_ns(self.seed, at as u64, GOLDEN_PPM, period_ns.unwrap_or(1)),
            apart_ns: evenly_ns(self.seed, at as u64, APART_PPM, period_ns.unwrap_or(1)),
            cost_ppm: ppm(self.scale.unwrap_or(1.0) * (work * rise)),
            work_ppm: ppm(work),
            likely,
        }
    }
}

/// A place within the period in this run, ns: evenly spread over the runs by multiples of a
/// section, from a start that the seed gives.
fn evenly_ns(seed: u64, at: u64, section_ppm: u64, period_ns: u64) -> u64 {
    let turns_ppm = (seed % 1_000_000 + at) * section_ppm % 1_000_000;
    (u128::from(period_ns) * u128::from(turns_ppm) / 1_000_000) as u64
}

/// A factor in millionths, rounded.
fn ppm(factor: f64) -> u32 {
    (factor * f64::from(COST_AS_IT_SAYS)).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWNS: Unknowns =
        Unknowns { seed: 1, scale: None, work: WorkRange { low: 0.9, high: 1.2 } };

    #[test]
    fn work_costs_less_or_more_by_factors_around_1() {
        assert_eq!(WorkRange::parse("0.9..1.2"), Ok(WorkRange { low: 0.9, high: 1.2 }));
        assert_eq!(WorkRange::parse("1..1"), Ok(WorkRange { low: 1.0, high: 1.0 }));
        for text in ["", "1", "1.1..1.2", "0.8..0.9", "0..1", "x..2", "0.9..NaN", "1..1e9"] {
            assert!(WorkRange::parse(text).is_err(), "{text}");
        }
    }

    fn all(unknowns: &Unknowns, throttled_percent: f64) -> Vec<Draw> {
        let period_ns = Some(100_000_000);
        let first = unknowns.first(period_ns);
        let seen = FirstRun { throttled_percent, relative_cost: 1.0 };
        let is_likely = unknowns.is_likely(period_ns, seen);
        let others = unknowns.others(period_ns, seen, false);
        std::iter::once(Draw { likely: is_likely, ..first }).chain(others).collect()
    }

    fn costs(runs: &[Draw], likely: bool) -> Vec<u32> {
        let mut costs: Vec<u32> =
            runs.iter().filter(|run| run.likely == likely).map(|run| run.cost_ppm).collect();
        costs.dedup();
        costs
    }

    #[test]
    fn work_that_is_stopped_again_and_again_costs_more() {
        let often = all(&UNKNOWNS, 99.0);
        assert_eq!(costs(&often, true), [1_060_000]);
        assert_eq!(costs(&often, false), [954_000, 1_272_000]);
        let seldom = all(&UNKNOWNS, 3.0);
        assert_eq!(costs(&seldom, true), [1_000_000]);
        assert_eq!(costs(&seldom, false), [1_060_000, 900_000, 1_200_000]);
        for runs in [often, seldom] {
            assert_eq!(runs.iter().filter(|run| run.likely).count(), LIKELY);
        }
    }

    #[test]
    fn a_given_cost_of_work_is_not_raised() {
        let told = Unknowns { scale: Some(1.3), ..UNKNOWNS };
        for throttled_percent in [0.0, 100.0] {
            let runs = all(&told, throttled_percent);
            assert_eq!(costs(&runs, true), [1_300_000]);
            assert_eq!(costs(&runs, false), [1_170_000, 1_560_000]);
        }
    }

    #[test]
    fn costly_first_requests_lower_the_cost_of_work() {
        let seen = FirstRun { throttled_percent: 99.0, relative_cost: 1.06 };
        assert!(!UNKNOWNS.is_likely(Some(100_000_000), seen));
        let others = UNKNOWNS.others(Some(100_000_000), seen, false);
        assert_eq!(costs(&others, true), [1_000_000]);
        assert_eq!(costs(&others, false), [900_000, 1_200_000]);
    }

    #[test]
    fn periods_of_two_groups_begin_at_places_that_lie_evenly() {
        for seed in [1, 7, u64::MAX] {
            for section_ppm in [GOLDEN_PPM, APART_PPM, GOLDEN_PPM + APART_PPM] {
                let at_ns = |at| evenly_ns(seed, at, section_ppm, 1_100);
                let mut phases: Vec<u64> = (0..11).map(at_ns).collect();
                phases.sort_unstable();
                let mut gaps = phases.windows(2).map(|pair| pair[1] - pair[0]);
                assert!(gaps.all(|gap| (10..=170).contains(&gap)), "{phases:?}");
            }
        }
    }

    #[test]
    fn without_a_limit_only_the_cost_of_work_varies() {
        assert_eq!(UNKNOWNS.first(None).cost_ppm, 1_000_000);
        let seen = FirstRun { throttled_percent: 0.0, relative_cost: 1.0 };
        assert!(UNKNOWNS.is_likely(None, seen));
        assert_eq!(costs(&UNKNOWNS.others(None, seen, false), false), [900_000, 1_200_000]);
    }
}
