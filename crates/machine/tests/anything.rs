//! Every valid workload can be run: none that the checks accept makes the model panic or break an
//! invariant, on any kernel.
//!
//! `PROPTEST_CASES=N` tries N workloads instead of the few of a normal test run.

use cpumax_limit::{Limit, Rules};
use cpumax_machine::kernel::{Kernel, parse_kernels};
use cpumax_machine::{Error, Options, Simulation};
use cpumax_noise::Microseconds;
use cpumax_outcome::Outcome;
use cpumax_workload::{Parts, Tasks, Workload, parse, print, random};
use proptest::collection::vec;
use proptest::prelude::*;

/// One for each generation, and kernels with other special rules.
const KERNELS: &str = "4.14,4.18,5.3,5.14,6.1,6.6,6.12,6.18,7.2,7.3,tasks-sync,pull";

/// The workload made from choices, if the checks accept it.
fn made(choices: &[u64]) -> Option<Workload> {
    random::anything(choices).try_into().ok()
}

fn choices() -> impl Strategy<Value = Vec<u64>> {
    vec(any::<u64>(), 20..400)
}

/// Number of events a run may have: after each one everything is checked.
fn affordable(parts: &Parts) -> usize {
    let tasks: u32 = parts.tasks.iter().map(|task| task.count).sum();
    let size = usize::from(parts.machine.cpus) * parts.groups.len() + tasks as usize;
    (400_000 / size).clamp(30, 3000)
}

fn checked(kernel: Kernel) -> Options<'static> {
    Options { check: true, ..Options::new(kernel, 1) }
}

/// Outcome of the first events, if the machine keeps its invariants.
fn begin(workload: &Workload, options: &Options) -> Result<Outcome, TestCaseError> {
    let kernel = options.kernel;
    let mut simulation = Simulation::new(workload, options, None);
    for _ in 0..affordable(workload) {
        match simulation.step() {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) if !matches!(error, Error::Invariant { .. }) => break,
            Err(error) => {
                let text = print(workload);
                return Err(TestCaseError::fail(format!("{}: {error}\n{text}", kernel.version)));
            }
        }
    }
    Ok(simulation.outcome())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_valid_workload_can_be_run(choices in choices()) {
        let Some(workload) = made(&choices) else { return Ok(()) };
        for kernel in parse_kernels(KERNELS).unwrap() {
            begin(&workload, &checked(kernel))?;
            let delays = Microseconds::of(1);
            begin(&workload, &Options { delays: Some(&delays), ..checked(kernel) })?;
        }
    }

    #[test]
    fn changed_workloads_can_be_run(
        choices in choices(),
        cpus: u16,
        factor in 0.0005..2000.0,
        quota_us in 0..u64::MAX / 1000,
        period_us in 0..1_100_000_u64,
        major in 4..8_u32,
        minor in 0..20_u32,
    ) {
        let Some(workload) = made(&choices) else { return Ok(()) };
        let kernel = parse_kernels("7.3").unwrap()[0];
        // An older kernel may have written it, which accepts more.
        let rules = Rules::of(major, minor);
        let limit = Limit::new_under(&rules, Some(quota_us * 1000), period_us * 1000, 0);
        let limit = limit.unwrap_or(Limit::UNLIMITED);
        let changed = [
            workload.clone().with_limit(1, limit, &rules),
            workload.clone().with_limit(1, limit, &Rules::NEWEST),
            workload.clone().with_cpus(cpus % 300),
            workload.clone().scale_work(Tasks::All, factor),
            workload.clone().scale_work(Tasks::NotIn(1), 1.0 / factor),
            workload.clone().scale_load(Tasks::In(0), factor),
            workload.scale_load(Tasks::Labelled("label"), 1.0 / factor),
        ];
        for workload in changed.into_iter().flatten() {
            prop_assert_eq!(workload.check().map_err(|error| error.to_string()), Ok(()));
            begin(&workload, &checked(kernel))?;
        }
    }

    #[test]
    fn printed_workloads_read_back_unchanged(choices in choices()) {
        let Some(workload) = made(&choices) else { return Ok(()) };
        let json = serde_json::to_string(&workload).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Workload>(&json).unwrap(), &workload);
        // Distributions and CPU sets get other numbers, and unused ones disappear.
        let text = print(&workload);
        let again = parse(&text, "again.toml");
        let again = again.map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(print(&again), text);
        let options = Options::new(parse_kernels("6.18").unwrap()[0], 1);
        prop_assert_eq!(begin(&again, &options)?, begin(&workload, &options)?);
    }
}

/// A test without cases tests nothing.
#[test]
fn most_of_what_is_made_is_accepted() {
    let mut random = cpumax_workload::Stream::new(1, cpumax_workload::Domain::Workload, 0);
    let accepted = (0..500).filter(|_| {
        let choices: Vec<u64> = (0..300).map(|_| random.next_u64()).collect();
        made(&choices).is_some()
    });
    let accepted = accepted.count();
    assert!(accepted > 250, "{accepted} of 500");
}
