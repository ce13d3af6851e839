use super::*;

#[test]
fn a_lone_token_keeps_the_period_and_max_keeps_the_burst() {
    let limit = Limit::new(Some(20_000_000), 50_000_000, 10_000_000).unwrap();
    assert_eq!(limit.write_cpu_max("30000").unwrap().to_string(), "30000 50000");
    let unlimited = limit.write_cpu_max("max 100000\n").unwrap();
    assert_eq!((unlimited.quota_ns(), unlimited.burst_ns()), (None, 10_000_000));
    assert_eq!(unlimited.read(File::CfsQuotaUs), "-1");
}

#[test]
fn an_old_burst_refuses_a_smaller_quota() {
    let limit = Limit::UNLIMITED.write_cpu_max_burst("80000").unwrap();
    let error = limit.write_cpu_max("50000").unwrap_err();
    assert_eq!(error, LimitError::BurstAboveQuota { burst_ns: 80_000_000, quota_ns: 50_000_000 });
    assert_eq!(
        error.to_string(),
        "a burst of 80000 us is above the quota of 50000 us; lower the burst first"
    );
}

#[test]
fn a_limit_is_written_file_by_file_in_an_order_that_is_taken() {
    let limit = |quota_us: u64, burst_us: u64| {
        Limit::new(Some(quota_us * 1000), 50_000_000, burst_us * 1000).unwrap()
    };
    let steps = |new: Limit, old: Limit| new.steps_from(old).collect::<Vec<_>>();
    let (small, large) = (limit(20_000, 5_000), limit(40_000, 30_000));
    assert_eq!(steps(large, small), [limit(40_000, 5_000), large]);
    assert_eq!(steps(small, large), [limit(40_000, 5_000), small]);
    assert_eq!(steps(limit(20_000, 0), small), [limit(20_000, 0)], "the burst alone");
    assert_eq!(steps(limit(9_000, 5_000), small), [limit(9_000, 5_000)], "the quota alone");
    assert_eq!(steps(small, small), [small], "who writes the same refills too");
}

#[test]
fn checks_come_in_the_kernels_order() {
    let refused = |quota, period, burst| Limit::new(quota, period, burst).unwrap_err();
    assert_eq!(refused(Some(999_999), 1, 0), LimitError::QuotaTooSmall { quota_ns: 999_999 });
    assert_eq!(refused(None, 999_999, 0), LimitError::PeriodTooSmall { period_ns: 999_999 });
    assert_eq!(
        refused(Some(u64::MAX), 1_000_000_001, 0),
        LimitError::PeriodTooLarge { period_ns: 1_000_000_001 }
    );
    assert_eq!(
        refused(Some(MAX_QUOTA_NS + 1), 1_000_000, u64::MAX),
        LimitError::QuotaTooLarge { quota_ns: MAX_QUOTA_NS + 1 }
    );
    assert_eq!(
        refused(Some(MAX_QUOTA_NS), 1_000_000, 1),
        LimitError::BurstAndQuotaTooLarge { burst_ns: 1, quota_ns: MAX_QUOTA_NS }
    );
    assert!(Limit::new(None, 1_000_000, u64::MAX).is_ok());
}

#[test]
fn single_numbers_are_read_strictly() {
    let write = |text| Limit::UNLIMITED.write(File::CfsPeriodUs, text, &Rules::NEWEST);
    for (text, period_us) in [("5000\n", 5000), ("+5000", 5000), ("0x1388", 5000), ("011610", 5000)]
    {
        assert_eq!(write(text).unwrap().period_ns(), period_us * 1000, "{text}");
    }
    for text in ["", "\n", " 5000", "5000 ", "5000\n\n", "-5000", "5e3", "0x", "09000", "max"] {
        let error = write(text).unwrap_err();
        assert!(matches!(error, LimitError::NotANumber { .. }), "{text}: {error}");
        assert_eq!(error.errno(), Errno::Invalid);
    }
    // An overflow is seen before the junk behind it.
    let error = write("99999999999999999999x").unwrap_err();
    assert_eq!(error.errno(), Errno::Range);
    assert_eq!(
        error.to_string(),
        "cpu.cfs_period_us: \"99999999999999999999x\" does not fit in 64 bits"
    );
}

#[test]
fn cpu_max_is_read_leniently() {
    let write = |text| Limit::UNLIMITED.write_cpu_max(text).map(|limit| limit.to_string());
    for (text, reads) in [
        ("  50000\t20000\n", "50000 20000"),
        ("50000,20000", "50000 100000"),
        ("50000us", "50000 100000"),
        ("50000 20000 30000", "50000 20000"),
        ("50000 -20000", "50000 100000"),
        ("max max", "max 100000"),
        ("18446744073709551615", "max 100000"),
        ("0000000000000005000020000", "50000 20000"),
    ] {
        assert_eq!(write(text).as_deref(), Ok(reads), "{text}");
    }
    for text in ["", " ", "Max", "maxx", "-1", "+50000", "\0", "µ"] {
        assert!(matches!(write(text), Err(LimitError::NotANumber { .. })), "{text}");
    }
    assert_eq!(
        write("half").unwrap_err().to_string(),
        "cpu.max takes \"QUOTA [PERIOD]\" in us, e.g. \"50000 100000\" or \"max\", not \"half\""
    );
}

#[test]
fn kernels_differ_as_their_rules_say() {
    let cpu_max = |text: &str, rules: &Rules| Limit::UNLIMITED.write(File::CpuMax, text, rules);
    // This many us are 2^64 + 50 000 384 ns.
    let wrapping = "18446744073759552 100000";
    let before_6_17 = cpu_max(wrapping, &Rules::of(6, 12)).unwrap();
    assert_eq!(before_6_17.quota_ns(), Some(50_000_384));
    let error = cpu_max(wrapping, &Rules::of(6, 17)).unwrap_err();
    assert_eq!(
        error,
        LimitError::NotRepresentable { member: Member::Quota, value_us: 18_446_744_073_759_552 }
    );
    let huge = "17592186044416";
    assert!(cpu_max(huge, &Rules::of(5, 4)).is_ok());
    assert!(matches!(cpu_max(huge, &Rules::of(5, 8)), Err(LimitError::QuotaTooLarge { .. })));
    let burst = Limit::new(Some(50_000_000), 100_000_000, 20_000_000).unwrap();
    let burst_after = |rules| burst.write(File::CpuMax, "50000", &rules).unwrap().burst_ns();
    assert_eq!(burst_after(Rules::of(6, 5)), 20_000);
    assert_eq!(burst_after(Rules::of(6, 1)), 20_000_000);
    let error = burst.write(File::CpuMaxBurst, "0", &Rules::of(5, 10)).unwrap_err();
    assert_eq!(error.errno(), Errno::NoEntry);
    assert_eq!(Limit::new_under(&Rules::of(5, 10), None, 1_000_000, 1), Err(LimitError::NoBurst));
}

#[test]
fn foreign_text_in_an_error_is_short_and_printable() {
    let error = Limit::UNLIMITED.write_cpu_max(&"\u{1b}x".repeat(1 << 20)).unwrap_err();
    let text = error.to_string();
    assert!(text.len() < 400 && !text.contains('\u{1b}') && text.ends_with("…\""), "{text}");
}

#[test]
fn the_examples_in_the_document_are_true() {
    let document = include_str!("../../../docs/reference/limits.md");
    let group = Limit::new(Some(50_000_000), 100_000_000, 20_000_000).unwrap();
    let mut examples = 0;
    for row in
        document.split("## Examples").nth(1).unwrap().lines().filter(|l| l.starts_with("| `"))
    {
        let [file, written, result] =
            row.trim_matches(['|', ' ']).split(" | ").collect::<Vec<_>>()[..]
        else {
            panic!("{row}");
        };
        let file = File::ALL.into_iter().find(|f| f.name() == file.trim_matches('`')).unwrap();
        let told = match group.write(file, written.trim_matches('`'), &Rules::NEWEST) {
            Ok(limit) => format!("`{}`", limit.read(file)),
            Err(error) => error.to_string(),
        };
        assert_eq!(told, result, "{row}");
        examples += 1;
    }
    assert_eq!(examples, 12);
}
