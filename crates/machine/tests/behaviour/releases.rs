//! Each call that unthrottles is reported: in the outcome by length, in the trace one by one.

use super::support::recorded;
use cpumax_outcome::trace::{Recorded, What};
use cpumax_outcome::{Did, Outcome, Releaser};

/// Four CPUs that run out of runtime in each of two periods; a limited group with two below it,
/// and a thread per CPU in one of these.
fn traced(version: &str, costs: bool) -> (Outcome, Recorded) {
    let text = format!(
        r#"
        duration = "250ms"
        [machine]
        cpus = 4
        costs = {costs}
        timer_phase = "0s"
        [[group]]
        path = "/limited"
        max = "100000 100000"
        [[group]]
        path = "/limited/leaf{{0..1}}"
        [[task]]
        name = "hog"
        count = 4
        group = "/limited/leaf0"
        program = [{{ forever = [{{ user = "1s" }}] }}]
        "#
    );
    recorded(&text, version)
}

/// Calls of one function in a trace, in order.
fn calls(trace: &Recorded, of: Releaser) -> Vec<(u64, Did)> {
    let calls = trace.events.iter().filter_map(|event| match event.what {
        What::Release { by, took_ns, told, rqs, cfs_rqs, tasks } if by == of => {
            let [told, rqs, cfs_rqs, tasks] = [told, rqs, cfs_rqs, tasks].map(u64::from);
            Some((took_ns, Did { told, rqs, cfs_rqs, tasks }))
        }
        _ => None,
    });
    calls.collect()
}

#[test]
fn one_call_releases_everything_or_tells_each_cpu_to() {
    let walked = |rqs, tasks| Did { told: 0, rqs, cfs_rqs: 3 * rqs, tasks };
    for (version, distribute, handlers) in [
        ("6.2", walked(4, 4), 0),
        ("6.12", Did { told: 3, ..walked(1, 1) }, 3),
        ("6.18", Did { told: 3, ..walked(1, 1) }, 3),
        ("7.3", Did { told: 3, ..Did::default() }, 4),
    ] {
        for costs in [false, true] {
            let (_, trace) = traced(version, costs);
            let found = calls(&trace, Releaser::Distribute);
            let found: Vec<Did> = found.into_iter().map(|(_, did)| did).collect();
            assert_eq!(found, [distribute; 2], "{version}");
            let found = calls(&trace, Releaser::Handler);
            assert_eq!(found.len(), 2 * handlers, "{version}");
            assert!(found.iter().all(|(_, did)| *did == walked(1, 1)), "{version}: {found:?}");
        }
    }
}

#[test]
fn the_outcome_has_the_calls_of_the_trace() {
    for version in ["6.2", "6.18", "7.3", "pull"] {
        let (outcome, trace) = traced(version, true);
        let release = &outcome.release;
        for (of, told) in
            [(Releaser::Distribute, &release.distribute), (Releaser::Handler, &release.handler)]
        {
            let calls = calls(&trace, of);
            assert_eq!(told.calls, calls.len() as u64, "{version}");
            assert_eq!(told.ns, calls.iter().map(|(ns, _)| ns).sum::<u64>(), "{version}");
            let longest = calls.iter().map(|(ns, _)| *ns).max().unwrap_or(0);
            assert_eq!(told.longest.ns, longest, "{version}");
            let all = told.by_length.iter().map(|of| of.calls).sum::<u64>();
            assert_eq!(all, told.calls, "{version}");
            let sum = |at: usize| calls.iter().map(|(_, did)| did.numbers()[at]).sum::<u64>();
            assert_eq!(told.did.numbers(), [0, 1, 2, 3].map(sum), "{version}");
        }
        let [distribute, handler] = [&release.distribute, &release.handler];
        assert_eq!(release.calls, distribute.calls + handler.calls);
        assert_eq!(release.spent_ns, distribute.ns + handler.ns);
        assert_eq!(release.tasks, distribute.did.tasks + handler.did.tasks);
        let longest_ns = distribute.longest.ns.max(handler.longest.ns);
        // The histogram has three digits.
        let off_ns = release.irqoff_ns.max.abs_diff(longest_ns);
        assert!(off_ns <= longest_ns / 1000 + 1, "{version}: {release:?}");
    }
}
