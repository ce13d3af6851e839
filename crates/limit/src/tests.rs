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
