//! Properties of any limit and any text.

use cpumax_limit::{CpuStat, File, Hierarchy, Limit, LimitError, LocalStat, Place, Rules};
use proptest::prelude::*;

const US: u64 = 1_000;

/// Any limit the newest kernel takes, in whole microseconds as its files show it.
fn limit() -> impl Strategy<Value = Limit> {
    let max_quota_us = (1_u64 << 44) - 1;
    let quota_us = prop_oneof![
        Just(None),
        (1_000..=1_000_000_u64).prop_map(Some),
        (1_000..=max_quota_us).prop_map(Some),
    ];
    (quota_us, 1_000..=1_000_000_u64, any::<u64>()).prop_map(move |(quota_us, period_us, burst)| {
        let most_us =
            quota_us.map_or(u64::MAX / US, |quota_us| quota_us.min(max_quota_us - quota_us));
        let burst_us = if burst % 3 == 0 { 0 } else { burst % (most_us + 1) };
        Limit::new(quota_us.map(|us| us * US), period_us * US, burst_us * US).unwrap()
    })
}

fn version() -> impl Strategy<Value = Rules> {
    (3..=7_u32, 0..=19_u32).prop_map(|(major, minor)| Rules::of(major, minor))
}

fn file() -> impl Strategy<Value = File> {
    prop::sample::select(File::ALL.to_vec())
}

/// Texts that resemble what the files take, and random ones.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        r"[ \t\n]{0,2}(max|[-+]?(0x)?[0-9]{0,22})[ \n]{0,2}(max|[-+]?[0-9]{0,22})[a-z\n ]{0,3}",
        (0..2_000_000_u64).prop_map(|us| us.to_string()),
    ]
}

proptest! {
    #[test]
    fn contents_of_files_can_be_written_back(limit in limit(), old in limit()) {
        let unlimited = old.write(File::CfsQuotaUs, "-1", &Rules::NEWEST).unwrap();
        let v2 = unlimited
            .write_cpu_max_burst("0").unwrap()
            .write_cpu_max(&limit.read(File::CpuMax)).unwrap()
            .write_cpu_max_burst(&limit.read(File::CpuMaxBurst)).unwrap();
        prop_assert_eq!(v2, limit);
        let v1 = [File::CfsBurstUs, File::CfsPeriodUs, File::CfsQuotaUs].iter().fold(
            unlimited,
            |now, file| now.write(*file, &limit.read(*file), &Rules::NEWEST).unwrap(),
        );
        prop_assert_eq!(v1, limit);
    }

    #[test]
    fn any_text_gives_a_limit_the_kernel_would_take_or_an_error(
        limit in limit(), file in file(), text in text(), rules in version(),
    ) {
        match limit.write(file, &text, &rules) {
            Ok(new) => {
                let (quota_ns, period_ns, burst_ns) =
                    (new.quota_ns(), new.period_ns(), new.burst_ns());
                let old_kernel = !rules.burst && burst_ns > 0;
                prop_assert!(!old_kernel, "burst {burst_ns} before there was one");
                prop_assert_eq!(Limit::new_under(&rules, quota_ns, period_ns, burst_ns), Ok(new));
                if let Some(quota_ns) = quota_ns {
                    prop_assert!(quota_ns >= 1_000_000 && burst_ns <= quota_ns);
                }
                prop_assert!((1_000_000..=1_000_000_000).contains(&period_ns));
            }
            Err(error) => {
                let message = error.to_string();
                prop_assert!(message.len() < 500 && !message.contains('\n'), "{message}");
            }
        }
    }

    #[test]
    fn stat_survives_printing(
        counts: [u32; 3], times_us in prop::array::uniform5(0..u64::MAX / US), v1: bool,
    ) {
        let hierarchy = if v1 { Hierarchy::V1 } else { Hierarchy::V2 };
        let [usage, user, system, throttled, burst] = times_us.map(|us| us * US);
        let v2_only = |ns| if v1 { 0 } else { ns };
        let stat = CpuStat {
            usage_ns: v2_only(usage),
            user_ns: v2_only(user),
            system_ns: v2_only(system),
            nr_periods: counts[0],
            nr_throttled: counts[1],
            throttled_ns: throttled,
            nr_bursts: counts[2],
            burst_ns: burst,
        };
        prop_assert_eq!(CpuStat::parse(&stat.print(hierarchy, &Rules::NEWEST)), Ok(stat));
        let local = LocalStat { throttled_ns: throttled };
        let printed = local.print(hierarchy, &Rules::NEWEST).unwrap();
        prop_assert_eq!(LocalStat::parse(&printed), Ok(local));
    }

    #[test]
    fn any_stat_text_is_read_or_refused(
        text in r"(([a-z_]{0,12}|nr_periods|burst_usec) -?[0-9]{0,40} ?\n){0,5}\PC{0,9}"
    ) {
        let _ = LocalStat::parse(&text);
        if let Err(error) = CpuStat::parse(&text) {
            prop_assert!(error.line >= 1 && error.line <= text.lines().count());
        }
    }

    #[test]
    fn no_group_is_effectively_above_its_parent(
        groups in prop::collection::vec((any::<prop::sample::Index>(), limit()), 0..20), v1: bool,
    ) {
        let mut places = vec![Place { parent: None, limit: Limit::UNLIMITED }];
        for (parent, limit) in groups {
            places.push(Place { parent: Some(parent.index(places.len())), limit });
        }
        let hierarchy = if v1 { Hierarchy::V1 } else { Hierarchy::V2 };
        match hierarchy.effective_ratios(&places, &Rules::NEWEST) {
            Ok(ratios) => for (place, ratio) in places.iter().zip(&ratios) {
                let Some(above) = place.parent.and_then(|parent| ratios[parent]) else { continue };
                prop_assert!(ratio.is_some_and(|ratio| ratio <= above));
            },
            Err(LimitError::AboveParent { group, ratio, above }) => {
                prop_assert!(v1 && ratio > above);
                prop_assert_eq!(places[group].limit.ratio(), Some(ratio));
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}
