use super::*;
use cpumax_limit::{CpuStat, Limit};
use cpumax_machine::named::Functions;
use cpumax_observed::counters::{Above, Moment, Periods};
use cpumax_outcome::Histogram;

fn study(kernels: &[&str]) -> Saved {
    let ranged = |value: f64, low: f64, high: f64| Some(Ranged { value, low, high });
    let run = |kernel: &&str| Predicted {
        recording: "web.data".to_owned(),
        limit: Try::parse("500m").unwrap(),
        role: None,
        kernel: (*kernel).to_owned(),
        prediction: Prediction {
            cpus: ranged(0.5, 0.45, 0.51),
            throttled_percent: ranged(60.0, 50.0, 70.0),
            requests_per_second: ranged(90.0, 80.0, 99.0),
            predictable: true,
            ..Prediction::default()
        },
        latencies: Histogram::default(),
        held: Vec::new(),
        trace: None,
    };
    let runs = kernels.iter().map(run).collect();
    Saved { recordings: Vec::new(), runs, advice: None }
}

/// Counters over a minute, read each second. Of the ten periods of even and odd seconds,
/// `throttled` are throttled.
fn observed(throttled: [u32; 2], cpus: f64, kernel: Option<&str>) -> Observed {
    let mut stat = CpuStat::default();
    let mut moments = Vec::new();
    for second in 0..=60_u64 {
        let usage_ns = Some((second as f64 * 1e9 * cpus) as u64);
        let at_ns = second * 1_000_000_000;
        moments.push(Moment {
            at_ns,
            usage_ns,
            stat: Some(stat),
            throttled_ns: Some(0),
            ..Moment::default()
        });
        stat.nr_periods += 10;
        stat.nr_throttled += throttled[second as usize % 2];
    }
    let limit = Limit::new(Some(50_000_000), 100_000_000, 0).ok();
    let named =
        |release: &str| OwnKernel { release: release.to_owned(), functions: Functions::new() };
    let (name, kernel) = ("/web".to_owned(), kernel.map(named));
    Observed { name, limit, kernel, cpus: None, above: None, moments }
}

#[test]
fn the_prediction_in_a_pod_is_that_of_the_observed_pod() {
    let mut saved = study(&["6.18"; 3]);
    for (run, asked) in saved.runs.iter_mut().zip(["500m", "500m,pod:600m", "500m,pod:1"]) {
        run.limit = Try::parse(asked).unwrap().into_written();
        run.recording = asked.to_owned();
    }
    let periods = Periods { nr_periods: 600, nr_throttled: 0, nr_bursts: 0 };
    let pod = |millicpus| {
        let limit = Limit::of_millicpus(millicpus, 100_000_000).unwrap();
        Some(Above { name: "pod".to_owned(), limit, periods, has_one: true })
    };
    let of = |above, saved: &Saved| {
        let observed = Observed { above, ..observed([6, 6], 0.5, Some("6.18")) };
        verify(saved, &observed, None, 1).map(|told| told.recording)
    };
    assert_eq!(of(pod(600), &saved).unwrap(), "500m,pod:600m");
    assert_eq!(of(pod(1000), &saved).unwrap(), "500m,pod:1");
    assert_eq!(of(pod(2000), &saved).unwrap(), "500m");
    assert_eq!(of(None, &saved).unwrap(), "500m");
    saved.runs.remove(0);
    let why = of(pod(2000), &saved).unwrap_err().to_string();
    let has = "has the limit 50000 100000 in a pod with 200000 100000, but the study predicts \
               50000 100000 in a pod with 100000 100000, 50000 100000 in a pod with 60000";
    assert!(why.contains(has), "{why}");
}

#[test]
fn a_number_comes_true_if_it_lies_in_its_range() {
    let saved = study(&["6.18"]);
    let told = |throttled, cpus| {
        let observed = observed(throttled, cpus, Some("6.18.44-fc"));
        let verified = verify(&saved, &observed, None, 1).unwrap();
        let [used, periods] = &verified.numbers[..] else { panic!("{verified:?}") };
        assert_eq!(verified.not_told, ["requests answered a second"]);
        (used.came_true, periods.came_true, verified.passed(), verified.notes.len())
    };
    assert_eq!(told([6, 6], 0.5), (true, true, true, 0));
    // Between 30 and 80: 55 % in all.
    assert_eq!(told([3, 8], 0.5), (true, true, true, 0));
    assert_eq!(told([9, 9], 0.5), (true, false, false, 0));
    let (used, periods, passed, notes) = told([1, 1], 0.2);
    assert_eq!((used, periods, passed, notes), (false, false, false, 1));
}

#[test]
fn a_number_that_came_true_gets_no_note() {
    let saved = study(&["6.18"]);
    // 0.511 of 0.45 to 0.51: read a little late it may be either.
    let verified = verify(&saved, &observed([6, 6], 0.511, None), None, 1).unwrap();
    assert!(verified.numbers[0].came_true && verified.notes.is_empty(), "{verified:?}");
    let verified = verify(&saved, &observed([6, 6], 0.6, None), None, 1).unwrap();
    assert!(!verified.numbers[0].came_true && verified.notes.len() == 1, "{verified:?}");
}

#[test]
fn missing_counters_are_not_0_and_do_not_come_true() {
    let saved = study(&["6.18"]);
    let mut untold = observed([6, 6], 0.5, None);
    untold.moments.iter_mut().for_each(|moment| moment.throttled_ns = None);
    let verified = verify(&saved, &untold, None, 1).unwrap();
    assert!(verified.beside.is_empty() && verified.notes[0].contains("missing"));
    let mut nothing = saved.clone();
    nothing.runs[0].prediction.cpus = None;
    let verified = verify(&nothing, &observed([6, 6], 0.5, None), None, 1).unwrap();
    assert_eq!(verified.numbers.len(), 1, "nobody predicted how many CPUs");
    nothing.runs[0].prediction.throttled_percent = None;
    assert!(verify(&nothing, &observed([6, 6], 0.5, None), None, 1).is_err());
}

#[test]
fn the_prediction_is_that_of_a_kernel_that_behaves_like_the_running_one() {
    let of = |kernels: &[&str], release: Option<&str>, named: Option<&str>| {
        let observed = observed([6, 6], 0.5, release);
        let verified = verify(&study(kernels), &observed, named, 1);
        verified.map(|verified| verified.predicted_for).map_err(|error| error.to_string())
    };
    let told = |text: &str| Ok(text.to_owned());
    assert_eq!(of(&["5.4", "6.18", "7.3"], Some("7.3.4"), None), told("7.3"));
    assert_eq!(of(&["5.4", "6.18"], Some("6.19.1"), None), told("6.18"));
    assert_eq!(of(&["5.4", "6.18"], Some("6.19.1"), Some("5.4")), told("5.4"));
    assert_eq!(of(&["5.4"], None, None), told("5.4"));
    assert!(of(&["5.4", "6.18"], None, None).unwrap_err().contains("5.4, 6.18"));
    let error = of(&["5.4"], Some("6.18.1"), None).unwrap_err();
    assert!(error.contains("--kernel 6.18") && error.contains("predicts for 5.4"), "{error}");
}

#[test]
fn a_kernel_counts_as_what_its_functions_make_it() {
    let mut observed = observed([6, 6], 0.5, Some("6.12.0-160000.5-default"));
    let by_task = ["throttle_cfs_rq_work", "__cfsb_csd_unthrottle"];
    let has = by_task.map(|name| (name.to_owned(), true));
    observed.kernel.as_mut().unwrap().functions = has.into();
    let verified = verify(&study(&["6.12", "6.18"]), &observed, None, 1).unwrap();
    assert_eq!(verified.predicted_for, "6.18");
    assert!(verified.notes.iter().any(|note| note.contains("throttles by task")));
}

#[test]
fn another_limit_or_too_little_time_is_no_answer() {
    let saved = study(&["6.18"]);
    let mut other = observed([6, 6], 0.5, None);
    other.limit = Limit::new(Some(40_000_000), 100_000_000, 0).ok();
    let told = verify(&saved, &other, None, 1).unwrap_err().to_string();
    assert!(told.contains("40000 100000") && told.contains("50000 100000"), "{told}");
    other.limit = Some(Limit::UNLIMITED);
    assert!(verify(&saved, &other, None, 1).unwrap_err().to_string().contains("no limit"));
    other.limit = None;
    assert!(verify(&saved, &other, None, 1).unwrap_err().to_string().contains("missing"));
    let mut short = observed([6, 6], 0.5, None);
    short.moments.truncate(2);
    let told = verify(&saved, &short, None, 1).unwrap_err().to_string();
    assert!(told.contains("only 10 periods"), "{told}");
}
