use super::*;
use crate::counters::{Above, Moment, Periods};
use cpumax_limit::CpuStat;
use cpumax_machine::kernel::parse_kernels;

fn fitting(draws: usize) -> Fitting {
    Fitting { draws, ..Fitting::on(parse_kernels("6.18").unwrap()[0]) }
}

/// Counters of half a minute under a limit of half a CPU.
fn observed(cpus: f64, nr_periods: u32, nr_throttled: u32) -> Observed {
    let stat = CpuStat { nr_periods, nr_throttled, ..CpuStat::default() };
    let last = Moment {
        at_ns: 30_000_000_000,
        usage_ns: Some((cpus * 30e9) as u64),
        stat: Some(stat),
        ..Moment::default()
    };
    let first = Moment { usage_ns: Some(0), stat: Some(CpuStat::default()), ..Moment::default() };
    Observed {
        name: "/web".to_owned(),
        limit: Limit::new(Some(50_000_000), 100_000_000, 0).ok(),
        kernel: None,
        cpus: None,
        above: None,
        moments: vec![first, last],
    }
}

#[test]
fn larger_limits_throttle_less_and_only_they_have_a_p99() {
    let others = parse_kernels("5.4,7.3").unwrap();
    let asked = Fitting { others, ..fitting(96) };
    let told = |threads| {
        let running = Running { threads: Some(threads), ..Running::default() };
        fit(&observed(0.3, 300, 60), &Fitting { running, ..asked.clone() }, &()).unwrap().unwrap()
    };
    let fit = told(1);
    assert_eq!(fit, told(3), "threads make no difference");
    assert!(fit.is_kernel_told && fit.kernel == "6.18" && fit.effective > 5.0, "{fit:?}");
    let throttled: Vec<f64> = fit.limits.iter().map(|row| row.throttled_percent.value).collect();
    assert!(throttled.is_sorted_by(|a, b| a >= b), "{throttled:?}");
    assert!(throttled[0] > 50.0 && throttled.last() == Some(&0.0), "{throttled:?}");
    for row in &fit.limits {
        let is_larger = row.millicpus.is_none_or(|millicpus| millicpus > 500);
        assert_eq!(row.p99_times.is_some(), is_larger, "{row:?}");
        assert!(row.p99_times.is_none_or(|times| times.value <= 1.05), "{row:?}");
        assert_eq!((row.is_present, row.p99_ns), (row.millicpus == Some(500), None));
    }
    let present = fit.limits.iter().find(|row| row.is_present).unwrap();
    assert_eq!(present.throttled_percent, Ranged::known(20.0));
    let kernels: Vec<&str> = fit.on_kernels.iter().map(|on| on.kernel.as_str()).collect();
    assert_eq!(kernels, ["5.4", "7.3"]);
}

#[test]
fn a_group_that_is_never_throttled_gets_a_limit() {
    let keep = Keep { throttled_percent: Some(5.0), p99_ns: None };
    let fit = fit(&observed(0.1, 300, 0), &Fitting { keep, ..fitting(96) }, &());
    let fit = fit.unwrap().unwrap();
    assert_eq!(fit.costs, Costs::Nothing, "{fit:?}");
    assert!(fit.enough.is_some_and(|millicpus| (100..=500).contains(&millicpus)), "{fit:?}");
}

#[test]
fn counters_of_no_single_service_are_refused() {
    let why = |observed: &Observed| fit(observed, &fitting(64), &()).unwrap().unwrap_err();
    // A tenth of the limit is used, and all periods are throttled.
    assert!(why(&observed(0.05, 300, 300)).contains("no single service"));
    assert!(why(&observed(0.3, 10, 5)).contains("fewer than 20 periods"));
    let unlimited = Observed { limit: Some(Limit::UNLIMITED), ..observed(0.3, 300, 0) };
    assert!(why(&unlimited).contains("no limit"));
    let not_told = Observed { limit: None, ..observed(0.3, 300, 0) };
    assert!(why(&not_told).contains("its limit is unknown"));
    let periods = Periods { nr_periods: 9, nr_throttled: 1, nr_bursts: 0 };
    let (name, limit) = ("pod".to_owned(), unlimited.limit.unwrap());
    let above = Above { name, limit, periods, has_one: false };
    let in_pod = Observed { above: Some(above), ..observed(0.3, 300, 0) };
    assert!(why(&in_pod).contains("limit of its pod"));
}

/// A kubelet gives the pod of one container the same limit.
#[test]
fn a_pod_of_one_container_is_limited_with_it() {
    let counters = observed(0.4, 300, 150);
    let at = |nr_throttled| Above {
        name: "pod".to_owned(),
        limit: counters.limit.unwrap(),
        periods: Periods { nr_periods: 300, nr_throttled, nr_bursts: 0 },
        has_one: true,
    };
    let told = |nr_throttled| {
        let in_pod = Observed { above: Some(at(nr_throttled)), ..counters.clone() };
        fit(&in_pod, &fitting(128), &()).unwrap()
    };
    let fit = told(100).unwrap();
    assert!(fit.limits[0].throttled_percent.value > 50.0, "{fit:?}");
    assert_eq!(fit.limits.last().unwrap().throttled_percent, Ranged::known(0.0));
    assert_ne!(told(0), Ok(fit), "the pod's counters are reproduced too");
    let (half, present) = (Limit::of_millicpus(250, 100_000_000), counters.limit.unwrap());
    assert_eq!(at(0).with(half.unwrap(), present), half);
    assert!(at(0).with(Limit::UNLIMITED, present).unwrap().quota_ns().is_none());
}

#[test]
fn ranges_hold_the_truth_of_services_from_the_priors() {
    let (numbers, refused) = calibrate(&fitting(128), Knows::Requests, 0..8, &()).unwrap();
    assert!(refused <= 1 && numbers.len() == 7, "{numbers:?}");
    let (held, told) =
        numbers.iter().fold((0, 0), |(held, told), n| (held + n.held, told + n.told));
    // With eight services, chance may take some off nine of ten.
    assert!(held * 100 >= told * 80, "{held} of {told}: {numbers:?}");
    assert!(numbers.iter().all(|number| number.ranks.iter().sum::<usize>() == number.told));
}

#[test]
fn ranges_are_wider_than_what_draws_say() {
    let all = || (0..100).map(|at| (1.0, f64::from(at))).collect::<Vec<_>>();
    let percent = range(all(), Scale::Percent).unwrap();
    assert!(percent.value > 48.0 && percent.value < 51.0, "{percent:?}");
    assert!(percent.low < 4.0 && percent.high > 94.0, "{percent:?}");
    let alike = range(vec![(1.0, 2.0); 9], Scale::Ratio).unwrap();
    assert!(alike.value > 1.999 && alike.value < 2.001, "{alike:?}");
    assert!(alike.low < 2.0 && alike.high > 2.0, "{alike:?}");
    assert_eq!(range(Vec::new(), Scale::Plain), None);
}
