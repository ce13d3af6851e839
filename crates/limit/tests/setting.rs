//! The grammar of limits, and properties of it for any text.

use cpumax_limit::{Limit, LimitError, Rules, Setting, SettingError, Target};
use proptest::prelude::*;

const US: u64 = 1_000;

fn setting(text: &str) -> Setting {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The limit of a group that had none.
fn limit(text: &str) -> Limit {
    let setting = setting(text);
    let [part] = setting.parts() else { panic!("{text}: {:?}", setting.parts()) };
    part.apply(Limit::UNLIMITED, &Rules::NEWEST).unwrap().limit
}

fn refused(text: &str) -> String {
    let error = text.parse::<Setting>().expect_err(text).to_string();
    let mut given = text.split([',', ':', '=']).filter(|part| !part.is_empty());
    assert!(given.any(|part| error.contains(part)), "{text}: {error}");
    error
}

#[test]
fn each_system_has_its_notation() {
    for (given, cpu_max) in [
        ("50000 100000", "50000 100000"),
        ("50000", "50000 100000"),
        ("max", "max 100000"),
        ("infinity", "max 100000"),
        ("unlimited/50ms", "max 50000"),
        ("pod:-1", "max 100000"),
        ("cpu.max=500000000 100000", "500000000 100000"),
        ("cpu.max=20000 50000", "20000 50000"),
        ("cpu.max=max 50000", "max 50000"),
        ("500m", "50000 100000"),
        ("2000m", "200000 100000"),
        ("2", "200000 100000"),
        ("0.5/10ms", "5000 10000"),
        ("50%/10ms", "5000 10000"),
        ("1.5cpus", "150000 100000"),
        ("cpu.cfs_quota_us=0x4e20,cpu.cfs_period_us=50000", "20000 50000"),
        ("/a:b/c:500m", "50000 100000"),
        ("/a,b/c: 500m", "50000 100000"),
        ("pod:417m", "42000 100000"),
    ] {
        assert_eq!(limit(given).to_string(), cpu_max, "{given}");
    }
    assert_eq!(limit("500m, cpu.max.burst=20000").burst_ns(), 20_000 * US);
}

#[test]
fn translations_are_listed() {
    assert_eq!(setting("500m").understood(), ["500m = 50000 100000"]);
    assert_eq!(setting("50000").understood(), ["50000 = 50000 100000"]);
    assert_eq!(
        setting("/a:417m,cpu.max.burst=5000,pod:417m").understood(),
        ["/a:417m = 41700 100000", "pod:417m = 42000 100000"]
    );
    for own in ["50000  100000", "max", "/g:cpu.max=50000,cpu.weight=50", "cpu.max.burst=0x10"] {
        assert!(setting(own).understood().is_empty(), "{own}");
    }
}

#[test]
fn groups_keep_their_order() {
    let text = "500m,cpu.weight=50,pod:1,cpu.max.burst=1000,/other:max";
    let setting = setting(text);
    let targets: Vec<&Target> = setting.parts().iter().map(|part| &part.target).collect();
    assert_eq!(targets, [&Target::Chosen, &Target::Pod, &Target::Path("/other".to_owned())]);
    let had = Limit::UNLIMITED;
    let container = setting.parts()[0].apply(had, &Rules::NEWEST).unwrap();
    assert_eq!((container.weight, container.limit.burst_ns()), (Some(50), 0));
    let pod = setting.parts()[1].apply(had, &Rules::NEWEST).unwrap();
    assert_eq!((pod.weight, pod.limit.burst_ns()), (None, 1_000 * US));
    assert_eq!(setting.to_string(), text);
}

#[test]
fn a_write_changes_what_the_group_has() {
    let had = Limit::new(Some(20_000 * US), 50_000 * US, 10_000 * US).unwrap();
    let after = |text: &str| {
        let applied = setting(text).parts()[0].apply(had, &Rules::NEWEST);
        applied.map(|applied| (applied.limit.to_string(), applied.limit.burst_ns() / US))
    };
    assert_eq!(after("cpu.max=30000"), Ok(("30000 50000".to_owned(), 10_000)));
    // Without the file's name it is the whole of a limit.
    assert_eq!(after("30000"), Ok(("30000 100000".to_owned(), 10_000)));
    assert_eq!(after("cpu.weight=3"), Ok(("20000 50000".to_owned(), 10_000)));
    let error = after("cpu.max=5000").unwrap_err();
    assert!(matches!(error, SettingError::Refused { why: LimitError::BurstAboveQuota { .. }, .. }));
    assert_eq!(after("cpu.max.burst=0,cpu.max=5000"), Ok(("5000 50000".to_owned(), 0)));
}

#[test]
fn a_kernel_tells_what_it_does_not_have() {
    let text = "cpu.max=20000 100000,cpu.max.burst=20000";
    let of = |text: &str, rules: Rules| setting(text).parts()[0].apply(Limit::UNLIMITED, &rules);
    let old = of(text, Rules::of(5, 4)).unwrap();
    assert_eq!((old.limit.to_string(), old.limit.burst_ns()), ("20000 100000".to_owned(), 0));
    assert_eq!(old.missing[0].to_string(), "cpu.max.burst exists from Linux 5.14 on");
    assert!(of(text, Rules::of(5, 14)).unwrap().missing.is_empty());
    let nothing = of("cpu.max.burst=20000", Rules::of(5, 4)).unwrap_err().to_string();
    assert_eq!(
        nothing,
        "\"cpu.max.burst=20000\": nothing of this can be set: cpu.max.burst exists from Linux \
         5.14 on"
    );
}

#[test]
fn options_of_other_systems_are_translated() {
    for (given, cpu_max) in [
        ("0.5 CPU", "50000 100000"),
        ("2 cores", "200000 100000"),
        ("CPUQuota=50%", "50000 100000"),
        ("CPUQuota=", "max 100000"),
        ("/a:CPUQuota=20%", "20000 100000"),
        ("CPUQuota=50% CPUQuotaPeriodSec=20ms", "10000 20000"),
        ("CPUQuotaPerSecUSec=1.500s", "150000 100000"),
        ("CPUQuotaPerSecUSec=infinity", "max 100000"),
        ("cpu.max: 50000 100000", "50000 100000"),
        ("--cpus=0.5", "50000 100000"),
        ("--cpus 1.5", "150000 100000"),
        ("cpus: '0.50'", "50000 100000"),
        ("NanoCpus=500000000", "50000 100000"),
        ("\"NanoCpus\": 1500000000", "150000 100000"),
        ("--cpu-quota=20000 --cpu-period=50000", "20000 50000"),
        ("--cpu-quota=-1", "max 100000"),
        ("cpu_quota: 20000", "20000 100000"),
        ("cpu: 500m", "50000 100000"),
        ("limits.cpu=\"2\"", "200000 100000"),
        ("25ms/100ms", "25000 100000"),
    ] {
        assert_eq!(limit(given).to_string(), cpu_max, "{given}");
    }
    assert_eq!(setting("--cpus=0.5").understood(), ["--cpus=0.5 = 50000 100000"]);
    assert_eq!(setting("CPUWeight=50").parts()[0].target, Target::Chosen);
    assert!(refused("NanoCpus=half").contains("'500m'"));
    assert!(refused("CPUQuotaPeriodSec=20ms").contains("'50%/20ms'"));
}

#[test]
fn a_comma_in_a_number_is_refused_with_a_hint() {
    for (given, meant) in [
        ("0,5", "'0.5'"),
        ("1,5cpus", "'1.5cpus'"),
        ("/a:33,3 %", "'/a:33.3 %'"),
        ("50000,100000", "'50000 100000'"),
        ("cpu.max=50000,20000", "'cpu.max=50000 20000'"),
    ] {
        let error = refused(given);
        assert!(error.contains(meant), "{given}: {error}");
    }
}

/// Texts in single quotes in a message: hints, which must be accepted.
fn hints(message: &str) -> Vec<&str> {
    message.split('\'').skip(1).step_by(2).collect()
}

#[test]
fn each_hint_is_taken_when_it_is_typed() {
    let mut count = 0;
    for given in [
        "nonsense",
        "500",
        "500/10ms",
        "999 ",
        "50ms",
        "200 ms",
        "50us",
        "3s",
        "0",
        "0,5",
        "1,5 cpus",
        "33,3%",
        "50000,100000",
        "0.0001",
        "0.001%",
        "0.5m",
        "500m/10",
        "500m/2s",
        "500 M",
        "2 loaves",
        "cpu.max",
        "cpu.max=0.5",
        "cpu.max=50%",
        "cpu.max=2000m",
        "cpu.max=50ms",
        "cpu.max=50000us",
        "cpu.max=50000 100ms",
        "50ms 100ms",
        "5e4 1e5",
        "50000 100000 1",
        "max x",
        "cpu.max=max x",
        "2 cpus 10ms",
        "cpu.max=500",
        "cpu.maximum=1",
        "cpu.weight=0",
        "/limited",
        "500m,",
        ":500m",
        "500m,300m",
        "CPUQuotaPeriodSec=10ms",
        "CPUQuotaPeriodSec=x",
        "NanoCpus=x",
        "CPUQuota=x",
        "CPUQuota=50",
        "--cpu-quota 0.5",
        "--cpus=x",
        "--cpus=0",
        "--memory=1g",
        "quota=5",
        "1e3",
        "500000000",
        "1500000000",
        "/a:1000000",
        "500000000/100ms",
        "500000000/100000",
        "50/100ms",
        "99/1s",
        "1/2",
        "1/4",
        "1/3 CPU",
        "100/50",
        "25ms per 100ms",
        "50% of 10ms",
        "0.5 CPU 100ms",
    ] {
        let error = given.parse::<Setting>().expect_err(given).to_string();
        for hint in hints(&error) {
            assert!(hint.parse::<Setting>().is_ok(), "{given}: '{hint}' of {error}");
            count += 1;
        }
    }
    assert!(count > 80, "{count} hints");
}

#[test]
fn text_that_the_kernel_would_ignore_is_refused_with_hints() {
    for (given, told) in [
        ("cpu.max=2000m", "cpu.max=2000 and ignores the rest; give 'cpu.max=2000', or '2000m'"),
        ("cpu.max=50000us", "give 'cpu.max=50000'"),
        ("cpu.max=50ms", "cpu.max=50 and ignores the rest; give 'cpu.max=50000'"),
        ("cpu.max=0.5", "cpu.max=0 and ignores the rest; give '0.5'"),
        ("cpu.max=50%", "give '50%'"),
        ("cpu.max=50000 100ms", "cpu.max=50000 100 and ignores the rest; give 'cpu.max=50000 1"),
        ("50ms 100ms", "give 'cpu.max=50000 100000'"),
        ("cpu.max=50000 100000 1", "and ignores the rest; give 'cpu.max=50000 100000'"),
        ("cpu.max=50000 x", "cpu.max=50000 and ignores the rest"),
        ("cpu.max=max x", "cpu.max=max and ignores the rest"),
    ] {
        let error = refused(given);
        assert!(error.contains(told), "{error}");
    }
}

#[test]
fn refusals_name_what_is_accepted() {
    for (given, told) in [
        ("nonsense", "'500m'"),
        ("500", "'500cpus', '500m'"),
        ("500000000", "'500000000n' for 0.5 CPUs"),
        ("pod:50/100ms", "'50ms/100ms' for 0.5 CPUs"),
        ("1/4", "'0.25' for 0.25 CPUs"),
        ("25ms per 100ms", "'25ms/100ms'"),
        ("CPUQuota=50", "'CPUQuota=50%' for 0.5 CPUs, or '50cpus' for 50 CPUs"),
        ("50ms", "a part of a period"),
        ("0", "max for no limit"),
        ("0.0001", "a multiple of 0.001"),
        ("500m/10", "from 1ms to 1s"),
        ("500m/2s", "a period of 2000000 us is too long"),
        ("cpu.max=500", "a quota of 500 us is too small"),
        ("cpu.max=-1", "cpu.max takes"),
        ("cpu.max", "FILE=VALUE"),
        ("cpu.maximum=1", "cpu.max, cpu.max.burst, cpu.weight"),
        ("cpu.weight=0", "from 1 to 10000"),
        ("cpu.weight=10001", "from 1 to 10000"),
        ("cpu.max.burst=1ms", "one number of us"),
        ("/limited", "[GROUP:]LIMIT"),
        ("500m,", "[GROUP:]LIMIT"),
        (":500m", "[GROUP:]LIMIT"),
    ] {
        let error = refused(given);
        assert!(error.contains(told), "{given}: {error}");
    }
    assert!(refused("500m,300m").contains("cpu.max twice for the group"));
    assert!(refused("pod:1,500m").contains("cpu.max twice for the pod"));
    assert!(refused("pod:1/0us").contains("is too small"));
    assert!(refused("/a:1,/b:1,/a:cpu.max=2000").contains("cpu.max twice for /a"));
}

#[test]
fn the_table_of_the_documents_is_true() {
    let document = include_str!("../../../docs/reference/limits.md");
    let section = document.split("## How a limit is said").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut rows = 0;
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let [given, _, told] = row.trim_matches(['|', ' ']).split(" | ").collect::<Vec<_>>()[..]
        else {
            panic!("{row}");
        };
        let given = given.trim_matches('`');
        let result = match given.parse::<Setting>() {
            Ok(_) => format!("`{}`", limit(given)),
            Err(_) => "refused".to_owned(),
        };
        assert_eq!(result, told, "{row}");
        rows += 1;
    }
    assert_eq!(rows, 31);
}

/// Texts that resemble limits, and random ones.
fn text() -> impl Strategy<Value = String> {
    let amount =
        || r"(max|[0-9]{0,17}(\.[0-9]{0,10})?( ?(m|%|cpus|CPU|us|n))?)( ?/ ?[0-9]{0,7}(us|ms)?)?";
    let write = || r"cpu\.(max|max\.burst|weight|cfs_quota_us|x)= ?[0-9]{0,22}( [0-9]{0,9})?";
    let own = || r"[0-9]{0,22} ?[0-9]{0,9}";
    let limit = move || prop_oneof![amount(), write(), own()];
    let one = move || (r"(|pod:|/[a:,/é]{0,5}:|/g:)", limit()).prop_map(|(g, l)| g + &l);
    prop_oneof![
        any::<String>(),
        one(),
        prop::collection::vec(one(), 1..4).prop_map(|all| all.join(",")),
        r"(--)?(cpus|cpu-quota|CPUQuota|NanoCpus|cpu)[=: ] ?[0-9]{0,11}(\.[0-9]{0,2})?(m|%)?",
    ]
}

fn version() -> impl Strategy<Value = Rules> {
    (3..=7_u32, 0..=19_u32).prop_map(|(major, minor)| Rules::of(major, minor))
}

proptest! {
    #[test]
    fn any_text_is_a_setting_or_an_error(text in text(), rules in version()) {
        let Ok(setting) = text.parse::<Setting>() else { return Ok(()) };
        prop_assert!(!setting.parts().is_empty());
        prop_assert_eq!(setting.to_string(), text);
        for (at, part) in setting.parts().iter().enumerate() {
            prop_assert!(setting.parts()[..at].iter().all(|other| other.target != part.target));
            if let Ok(applied) = part.apply(Limit::UNLIMITED, &rules) {
                let Limit { .. } = applied.limit;
                prop_assert!(applied.weight.is_none_or(|weight| (1..=10_000).contains(&weight)));
                prop_assert!(applied.missing.is_empty() || !rules.burst);
            }
        }
    }

    #[test]
    fn a_limit_that_can_be_read_can_be_set(
        quota_us in prop::option::of(1_000..=1_u64 << 43),
        period_us in 1_000..=1_000_000_u64,
        burst in any::<u64>(),
    ) {
        let burst_us = quota_us.map_or(burst % (1 << 43), |quota_us| burst % (quota_us + 1));
        let ns = |us: u64| us * US;
        let wanted = Limit::new(quota_us.map(ns), ns(period_us), ns(burst_us)).unwrap();
        for text in [format!("{wanted},cpu.max.burst={burst_us}"),
                     format!("/g:cpu.max={wanted},cpu.max.burst={burst_us}")] {
            prop_assert!(setting(&text).understood().is_empty());
            prop_assert_eq!(limit(&text), wanted);
        }
    }

    #[test]
    fn text_after_the_kernels_form_is_refused(
        quota_us in 1_000..2_000_000_u64,
        period_us in 1_000..1_000_000_u64,
        junk in "[a-z%.+-]{1,3}",
    ) {
        for text in [format!("{quota_us} {period_us}{junk}"), format!("cpu.max={quota_us}{junk}"),
                     format!("{quota_us}{junk} {period_us}"),
                     format!("cpu.max={quota_us} {period_us} {junk}")] {
            prop_assert!(text.parse::<Setting>().is_err(), "{}", text);
        }
    }

    #[test]
    fn the_systems_agree_on_whole_shares(milli in 1..100_000_u64, period_ms in 1..=1000_u64) {
        let period_us = period_ms * 1_000;
        let of_container = limit(&format!("{milli}m/{period_ms}ms"));
        let quota_us = (milli * period_us / 1_000).max(1_000);
        prop_assert_eq!(of_container.to_string(), format!("{quota_us} {period_us}"));
        let cpus = format!("{}.{:03}", milli / 1_000, milli % 1_000);
        prop_assert_eq!(limit(&format!("{cpus}/{period_ms}ms")), of_container);
        if milli * period_ms >= 1_000 {
            let percent = format!("{}.{}%/{period_ms}ms", milli / 10, milli % 10);
            prop_assert_eq!(limit(&percent), of_container);
            prop_assert_eq!(limit(&format!("{cpus}cpus/{period_ms}ms")), of_container);
        }
    }

    #[test]
    fn a_pod_has_as_much_as_its_container_and_no_hundredth_of_a_cpu_more(
        milli in 1..100_000_u64, period_ms in 1..=1000_u64,
    ) {
        let quota_us = |text: String| limit(&text).quota_ns().unwrap() / US;
        let container = quota_us(format!("{milli}m/{period_ms}ms"));
        let pod = quota_us(format!("pod:{milli}m/{period_ms}ms"));
        // Both are cut to whole microseconds.
        prop_assert!(container <= pod + 1, "{container} {pod}");
        prop_assert!(pod < container + period_ms * 10 + 1, "{container} {pod}");
    }
}
