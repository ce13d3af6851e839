//! Conditions observed on a real kernel go before what the workload and the rules say.

use cpumax_limit::Limit;
use cpumax_machine::kernel::parse_kernels;
use cpumax_machine::{Options, run};
use cpumax_outcome::{Conditions, GroupOutcome};
use cpumax_workload::Workload;
use cpumax_workload::build::{Group, Task};
use cpumax_workload::step::{forever, user};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a busy thread in a group of 6/100 does on 6.18 in this time.
fn hog(duration_ms: u64, observed: Option<&Conditions>) -> GroupOutcome {
    let limit = Limit::new(Some(6_000_000), 100_000_000, 0).expect("is a limit");
    let workload = Workload::builder("hog")
        .duration(Duration::from_millis(duration_ms))
        .with_group(Group::new("/limited").limit(limit))
        .task(Task::new("hog").group("/limited").program([forever([user(Duration::from_secs(1))])]))
        .build()
        .expect("is a workload");
    let kernel = parse_kernels("6.18").expect("is a kernel")[0];
    let options = Options { check: true, observed, ..Options::new(kernel, 1) };
    run(&workload, &options, None, None).expect("runs").groups.remove("/limited").expect("is there")
}

#[test]
fn the_limit_is_enforced_at_the_ticks_that_were_observed() {
    let edge = BTreeMap::from([("/limited".to_owned(), 80_000_000)]);
    for (hz, first_tick_ns, used_usec) in
        [(250, 0, 8_000), (250, 1_000_000, 9_000), (1000, 0, 6_000), (1000, 500_000, 6_500)]
    {
        let observed = Conditions {
            hz: Some(hz),
            first_tick_ns: Some(first_tick_ns),
            first_edge_ns: edge.clone(),
            ..Conditions::default()
        };
        assert_eq!(hog(50, Some(&observed)).usage_usec, used_usec, "{hz} {first_tick_ns}");
    }
}

#[test]
fn periods_end_at_the_edges_that_were_observed() {
    // An edge at the very start has passed when the limit is written.
    for (first_edge_ms, periods) in [(0, 4), (30, 5), (60, 4), (99, 4)] {
        let first_edge_ns = BTreeMap::from([("/limited".to_owned(), first_edge_ms * 1_000_000)]);
        let observed = Conditions { first_edge_ns, ..Conditions::default() };
        let hog = hog(450, Some(&observed));
        assert_eq!(hog.nr_periods, periods, "{first_edge_ms} ms");
    }
}
