//! Confidence intervals of ratios measured over time, by a circular block bootstrap (Politis and
//! Romano, 1992). It redraws the readings in blocks of several in a row, as neighbours are alike.
//! The generator is `cpumax_workload::Stream` (PCG-64-MCG), so a seed always gives the same
//! interval.

use cpumax_study::Ranged;
use cpumax_workload::{Domain, Stream};

/// Number of resamples.
const DRAWN: usize = 1_000;
/// Per cent of resamples left out on each side; nineteen of twenty such intervals hold the true
/// ratio.
const LEFT_OUT_PERCENT: f64 = 2.5;
/// With fewer readings there is no bootstrap.
const READINGS_MIN: usize = 8;

/// The sum of the first numbers divided by the sum of the second, with the 95 % interval of a
/// bootstrap by `seed`; one pair for each reading. `None` where the second sum to 0. With fewer
/// than eight readings the interval spans the ratios of single readings.
pub fn interval(readings: &[(f64, f64)], seed: u64) -> Option<Ranged<f64>> {
    let ratio = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
    let sum = |all: &mut dyn Iterator<Item = (f64, f64)>| {
        all.fold((0.0, 0.0), |(part, whole), (a, b)| (part + a, whole + b))
    };
    let (part, whole) = sum(&mut readings.iter().copied());
    let value = ratio(part, whole)?;
    if readings.len() < READINGS_MIN {
        let each = readings.iter().filter_map(|&(part, whole)| ratio(part, whole));
        let (low, high) = each.fold((value, value), |(low, high), x| (low.min(x), high.max(x)));
        return Some(Ranged { value, low, high });
    }
    let count = readings.len();
    let block = (count as f64).cbrt().round().max(1.0) as usize;
    let mut stream = Stream::new(seed, Domain::Counters, 0);
    let mut drawn: Vec<f64> = (0..DRAWN)
        .filter_map(|_| {
            let mut all = (0..count.div_ceil(block)).flat_map(|_| {
                let from = stream.below(count as u64) as usize;
                (from..from + block).map(|at| readings[at % count]).collect::<Vec<_>>()
            });
            let (part, whole) = sum(&mut all);
            ratio(part, whole)
        })
        .collect();
    drawn.sort_by(f64::total_cmp);
    let left_out = (drawn.len() as f64 * LEFT_OUT_PERCENT / 100.0) as usize;
    let (low, high) = (*drawn.get(left_out)?, *drawn.get(drawn.len() - 1 - left_out)?);
    Some(Ranged { value, low: low.min(value), high: high.max(value) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_wider_the_more_readings_differ_and_the_same_for_a_seed() {
        let even = vec![(5.0, 10.0); 60];
        let all = interval(&even, 1).unwrap();
        assert_eq!((all.value, all.low, all.high), (0.5, 0.5, 0.5));
        let alternating: Vec<(f64, f64)> =
            (0..60).map(|at| (f64::from(at % 2) * 10.0, 10.0)).collect();
        // Long runs of one value tell less than values that alternate.
        let in_rows: Vec<(f64, f64)> =
            (0..60).map(|at| (f64::from(at / 15 % 2) * 10.0, 10.0)).collect();
        let width = |readings: &[(f64, f64)]| {
            let found = interval(readings, 7).unwrap();
            assert_eq!(Some(found), interval(readings, 7));
            assert!(found.low <= 0.5 && found.high >= 0.5, "{found:?}");
            found.high - found.low
        };
        assert!(width(&in_rows) > 1.5 * width(&alternating), "{}", width(&in_rows));
        assert_eq!(interval(&[(1.0, 0.0)], 1), None);
        let few = interval(&[(0.0, 1.0), (1.0, 1.0)], 1).unwrap();
        assert_eq!((few.value, few.low, few.high), (0.5, 0.0, 1.0));
    }

    #[test]
    fn an_interval_holds_the_ratio_about_as_often_as_it_should() {
        let mut stream = Stream::new(3, Domain::Counters, 1);
        let held = (0..200).filter(|&seed| {
            let drawn: Vec<(f64, f64)> =
                (0..100).map(|_| (f64::from(u8::from(stream.below(10) < 3)), 1.0)).collect();
            let found = interval(&drawn, seed).unwrap();
            found.low <= 0.3 && found.high >= 0.3
        });
        let held = held.count();
        assert!((170..=199).contains(&held), "{held} of 200");
    }
}
