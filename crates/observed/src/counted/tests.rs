use super::*;
use crate::counters::Moment;
use cpumax_limit::CpuStat;

/// Six seconds of readings, 10 ms apart, with CPU time that repeats the pattern.
fn observed(pattern_ms: &[u64], limit: Limit, throttled: u32) -> Observed {
    let mut moments = Vec::new();
    let mut usage_ns = 0;
    let mut stat = CpuStat::default();
    for at in 0..=600_u64 {
        moments.push(Moment {
            at_ns: at * 10_000_000,
            usage_ns: Some(usage_ns),
            stat: Some(stat),
            ..Moment::default()
        });
        usage_ns += pattern_ms[at as usize % pattern_ms.len()] * 1_000_000;
        stat.nr_periods = (at / 10) as u32;
        stat.nr_throttled = throttled.min(stat.nr_periods);
    }
    let cpus = Some(AllowedCpus { count: 2, told_by: "here".to_owned() });
    let (name, limit) = ("/g".to_owned(), Some(limit));
    Observed { name, limit, kernel: None, cpus, above: None, moments }
}

fn asked() -> Asked {
    Asked {
        period_ns: 100_000_000,
        throttled: Some(5.0),
        current: None,
        not_told: Vec::new(),
        seed: 1,
    }
}

#[test]
fn an_even_load_is_throttled_below_what_it_uses_and_not_well_above() {
    let current = Limit::new(Some(40_000_000), 100_000_000, 0).ok();
    let asked = Asked { current, ..asked() };
    let told = counted(&observed(&[5], Limit::UNLIMITED, 0), &asked).unwrap();
    assert!((told.cpus.value - 0.5).abs() < 1e-9, "{told:?}");
    assert_eq!(told.usage_usec.first(), Some(&50_000));
    let of = |millicpus| {
        let judged = told.limits.iter().find(|judged| judged.millicpus == millicpus).unwrap();
        let bounds = judged.throttled_percent.unwrap();
        (judged.too_small, bounds.least, bounds.most)
    };
    // All of some sixty periods are throttled, which does not prove that every period is.
    let (too_small, least, most) = of(400);
    assert!(too_small && (90.0..99.0).contains(&least) && most > 99.9, "{least} {most}");
    let (too_small, least, most) = of(750);
    assert!(!too_small && least < 0.1 && (4.0..5.0).contains(&most), "{least} {most}");
    // A slice may be stranded on the other CPU, and a reading is off by a tick.
    assert_eq!(told.enough, Some(600));
    assert!(told.notes.is_empty(), "{told:?}");
}

#[test]
fn bounds_of_bursts_hold_what_a_fluid_does() {
    // 80 ms of work every 200 ms: half of the periods want 80 ms, or two of them 40.
    let pattern: Vec<u64> = (0..20).map(|at| if at < 8 { 10 } else { 0 }).collect();
    let told = counted(&observed(&pattern, Limit::UNLIMITED, 0), &asked()).unwrap();
    let judged = told.limits.iter().find(|judged| judged.millicpus == 600).unwrap();
    let bounds = judged.throttled_percent.unwrap();
    assert!(!judged.too_small && bounds.least < 30.0 && bounds.most >= 50.0, "{bounds:?}");
}

#[test]
fn a_group_that_is_throttled_asks_for_more_than_it_uses() {
    let limit = Limit::new(Some(50_000_000), 100_000_000, 0).unwrap();
    let told = counted(&observed(&[5], limit, 30), &asked()).unwrap();
    assert!(told.throttled_percent.is_some_and(|share| share.value > 40.0), "{told:?}");
    assert!(told.enough.is_none() && told.notes[0].contains("needs more"), "{told:?}");
    // The present limit has the measured share; smaller ones throttle as much, and larger ones are
    // listed.
    let at = told.limits.iter().position(|judged| judged.measured_percent.is_some()).unwrap();
    let measured = told.limits[at].measured_percent.unwrap();
    assert_eq!((told.limits[at].millicpus, measured), (500, told.throttled_percent.unwrap()));
    for smaller in &told.limits[..=at] {
        let least = smaller.throttled_percent.unwrap().least;
        assert!(smaller.too_small && least >= measured.low, "{smaller:?}");
    }
    assert!(told.limits.last().unwrap().millicpus >= 1500, "{told:?}");
    assert!(told.limits[at + 1..].iter().all(|judged| !judged.too_small), "{told:?}");
}

#[test]
fn a_throttled_group_of_little_use_is_judged_under_larger_limits() {
    // A scrape after 300 s: 0.0038 CPUs under 80m, 133 of 173 periods throttled.
    let moment = |at_ns, usage_ns, nr_periods, nr_throttled| Moment {
        at_ns,
        usage_ns: Some(usage_ns),
        stat: Some(CpuStat { nr_periods, nr_throttled, ..CpuStat::default() }),
        ..Moment::default()
    };
    let moments = vec![moment(0, 0, 1000, 700), moment(300_000_000_000, 1_140_000_000, 1173, 833)];
    let limit = Limit::new(Some(8_000_000), 100_000_000, 0).ok();
    let name = "{container=\"ne\"}".to_owned();
    let observed = Observed { name, limit, kernel: None, cpus: None, above: None, moments };
    let told = counted(&observed, &Asked { throttled: None, ..asked() }).unwrap();
    assert!((told.cpus.value - 0.0038).abs() < 1e-6, "{told:?}");
    let small: Vec<(u64, bool)> =
        told.limits.iter().map(|judged| (judged.millicpus, judged.too_small)).collect();
    assert!(small.contains(&(80, true)) && small.contains(&(160, false)), "{small:?}");
    assert!(small.iter().all(|(millicpus, is_small)| *is_small == (*millicpus <= 80)));
    // Scrapes lack the limit; --current may give it.
    let unknown = Observed { limit: None, ..observed };
    let told = counted(&unknown, &Asked { throttled: None, ..asked() }).unwrap();
    assert!(told.cpu_max.is_none() && told.notes.iter().any(|n| n.contains("--current")));
    let told = counted(&unknown, &Asked { current: limit, throttled: None, ..asked() });
    assert_eq!(told.unwrap().cpu_max.as_deref(), Some("8000 100000"));
}

#[test]
fn a_pod_that_throttles_its_container_is_noted() {
    let mut observed = observed(&[5], Limit::UNLIMITED, 0);
    let limit = Limit::new(Some(40_000_000), 100_000_000, 0).unwrap();
    let periods =
        crate::counters::Periods { nr_periods: 60, nr_throttled: 52, ..Default::default() };
    observed.above = Some(Above { name: "{pod=\"p\"}".to_owned(), limit, periods, has_one: false });
    let told = counted(&observed, &asked()).unwrap();
    assert!(told.notes[0].contains("40000 100000") && told.notes[0].contains("86.7 %"));
    assert_eq!(told.enough, None, "it asks for more than it used");
}

#[test]
fn the_more_cpus_a_group_may_run_on_the_less_is_sure() {
    let on = |count: Option<usize>| {
        let mut observed = observed(&[10, 6], Limit::UNLIMITED, 0);
        observed.cpus = count.map(|count| AllowedCpus { count, told_by: "here".to_owned() });
        let current = Limit::new(Some(71_000_000), 100_000_000, 0).ok();
        let told = counted(&observed, &Asked { current, ..asked() }).unwrap();
        let judged = told.limits.iter().find(|judged| judged.millicpus == 710).unwrap();
        (judged.throttled_percent.unwrap().least, told.enough, told.notes)
    };
    // On two CPUs 8 ms may be off; on many CPUs at most one reading, 10 ms.
    let (least, enough, notes) = on(Some(2));
    assert!(least > 90.0 && enough == Some(950) && notes.is_empty(), "{least} {enough:?}");
    let (least, enough, notes) = on(Some(16));
    assert!(least < 0.1 && enough == Some(1600) && notes.is_empty(), "{least} {enough:?}");
    let (least, enough, notes) = on(None);
    assert!(least < 0.1 && enough == Some(1600), "{least} {enough:?}");
    assert!(notes[0].contains("number of CPUs"), "{notes:?}");
}

#[test]
fn readings_far_apart_rule_out_only_what_is_below_the_mean() {
    let mut rare = observed(&[5], Limit::UNLIMITED, 0);
    rare.moments = rare.moments.into_iter().step_by(100).collect();
    let told = counted(&rare, &asked()).unwrap();
    assert!(told.limits.iter().all(|judged| judged.throttled_percent.is_none()));
    assert!(told.limits[0].too_small && told.notes[0].contains("--stat"), "{told:?}");
}
