//! `make mutants`: breaks each rule and each step of bandwidth control, one at a time, and lists
//! mutants that no check notices.
//!
//! A rule is broken by each other value that some release has, on all releases that have the first
//! one. A step is left out or inverted (`cpumax_machine::Fault`). A mutant is noticed by an
//! expectation of a shipped scenario, or by an invariant in a random workload.
//! docs/reference/model.md lists those that are not noticed, with reasons; any other ends the
//! program with status 1. Each mutant is printed with the check that notices it. Arguments are
//! parts of names: only mutants whose name has one of them are tried.

use cpumax_study::{
    Error, Model, NamedKernel, Running, Watch, builtin,
    kernel::{self, Kernel, RELEASES},
    machine::{Fault, Options},
    scenario,
    suite::{Plan, Suite},
    workload::{Workload, random},
};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

/// One kernel of each generation. A mutant is tried on those of them that it changes, and a rule
/// also on the releases where its value begins and ends.
const KERNELS: &str = "3.16,4.19,6.1,6.12,6.18,7.2,7.3";
/// Rules of the fair class, which `cpumax compare` checks on real kernels, and the rule of no
/// Linux.
const LEFT_OUT: [&str; 26] = [
    "idle_class_is_free",
    "idle_search_by_load",
    "newidle_by_success",
    "delayed_is_load_only",
    "queue",
    "delayed_dequeue",
    "base_slice_ns",
    "lag_limit",
    "unprotected",
    "reweight",
    "reweight_counts_twice",
    "wakeup_pick",
    "idle_sleeper_gains_less",
    "fork_preempts",
    "change_protects",
    "requeue_charges",
    "delayed_keeps_lag",
    "short_slice_ignores_next",
    "full_weights",
    "rescales_deadline",
    "hrtick",
    "hrtick_each_pick",
    "empty_keeps_weight",
    "group_share",
    "preempt",
    "pull",
];
/// Scenarios that take long; others show the same effects in a hundredth of the time.
const TOO_LARGE: [&str; 5] =
    ["fibtest", "hackbench-3deep", "profile-384", "profile-384-together", "profile-small"];
/// Scenarios that a search found; their numbers are those of real kernels.
const FOUND: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/found");
/// Number of random workloads that run with every invariant checked after every event.
const RANDOM: u64 = 30;
/// A scenario or random workload that asks more often whether to stop, once in 256 events,
/// counts as endless.
const PATIENCE: u32 = 100_000;
const DOCUMENT: &str = include_str!("../../../docs/reference/model.md");
const HEADING: &str = "\n### What nothing notices\n";

/// Kernels with one fault.
struct Mutant {
    name: String,
    kernels: Vec<Kernel>,
}

fn main() -> ExitCode {
    let parts: Vec<String> = std::env::args().skip(1).collect();
    let is_asked = |name: &str| parts.is_empty() || parts.iter().any(|part| name.contains(part));
    let judge = Judge::new();
    let mutants: Vec<Mutant> =
        rules().chain(faults()).filter(|mutant| is_asked(&mutant.name)).collect();
    let began = Instant::now();
    let unnoticed = judge.unnoticed(&mutants);
    let seconds = began.elapsed().as_secs();
    println!("{} of {} mutants, in {seconds} s:", unnoticed.len(), mutants.len());
    for name in &unnoticed {
        println!("  {name}");
    }
    let known: BTreeSet<String> = known().filter(|name| is_asked(name)).collect();
    if unnoticed == known {
        return ExitCode::SUCCESS;
    }
    for name in unnoticed.difference(&known) {
        println!("Nothing notices {name}: expect something of a scenario that does");
    }
    for name in known.difference(&unnoticed) {
        println!("Something notices {name}: take it out of docs/reference/model.md");
    }
    ExitCode::FAILURE
}

/// Names of mutants in the document's list.
fn known() -> impl Iterator<Item = String> {
    let section = DOCUMENT.split(HEADING).nth(1).unwrap_or_default();
    let section = section.split("\n#").next().unwrap_or_default();
    let list = section.split_once("\n- ").map_or("", |(_, list)| list);
    list.split('`').skip(1).step_by(2).map(str::to_owned)
}

fn releases() -> Vec<Kernel> {
    RELEASES.iter().filter_map(|release| Kernel::of(release.from).ok()).collect()
}

/// Mutants of rules: one for each ordered pair of a rule's values, the first replaced by the
/// second.
fn rules() -> impl Iterator<Item = Mutant> {
    kernel::rules().into_iter().filter(|(rule, _)| !LEFT_OUT.contains(rule)).flat_map(
        |(rule, values)| {
            let own: Vec<(Kernel, String)> = releases()
                .into_iter()
                .filter_map(|kernel| Some((kernel, kernel.rule(rule).ok()?)))
                .collect();
            let is_released = |value: &&String| own.iter().any(|(_, own)| own == *value);
            let values: Vec<String> = values.iter().filter(is_released).cloned().collect();
            let pairs: Vec<(String, String)> = (values.iter())
                .flat_map(|from| values.iter().map(|to| (from.clone(), to.clone())))
                .filter(|(from, to)| from != to)
                .collect();
            pairs.into_iter().map(move |(from, to)| Mutant {
                name: format!("{rule}: {from} as {to}"),
                kernels: at_ends(&own, &from)
                    .filter_map(|kernel| kernel.with_rule(rule, &to).ok())
                    .collect(),
            })
        },
    )
}

/// Kernels that have this value: those of [`KERNELS`], and those next to a release that does not
/// have it.
fn at_ends<'a>(all: &'a [(Kernel, String)], value: &'a str) -> impl Iterator<Item = Kernel> + 'a {
    let has = move |at: usize| all.get(at).is_none_or(|(_, own)| own == value);
    let is_end = move |at: usize| !has(at + 1) || at > 0 && !has(at - 1);
    let is_some = |kernel: &Kernel| kernel::covers(KERNELS, kernel).unwrap_or(false);
    let with = all.iter().enumerate().filter(move |(at, _)| has(*at));
    with.filter(move |(at, (kernel, _))| is_end(*at) || is_some(kernel))
        .map(|(_, (kernel, _))| *kernel)
}

fn faults() -> impl Iterator<Item = Mutant> {
    let kernels = kernel::parse_kernels(KERNELS).unwrap_or_default();
    Fault::ALL.iter().filter(|fault| !fault.is_of_pull()).map(move |&fault| Mutant {
        name: format!("{fault:?}"),
        kernels: kernels.iter().map(|kernel| kernel.with_fault(fault)).collect(),
    })
}

fn found() -> Vec<String> {
    let files = std::fs::read_dir(FOUND).expect("it is part of the repository").flatten();
    let paths = files.map(|file| file.path().to_string_lossy().into_owned());
    let mut paths: Vec<String> = paths.filter(|path| path.ends_with(".toml")).collect();
    paths.sort();
    paths
}

struct Judge {
    /// Ascending by their length.
    plans: Vec<Plan>,
    random: Vec<Workload>,
}

/// How often a run has asked whether to stop.
#[derive(Default)]
struct Patience(AtomicU32);

impl Watch for Patience {
    fn stopped(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) > PATIENCE
    }
}

impl Judge {
    fn new() -> Judge {
        let names = builtin::ALL.iter().map(|built_in| built_in.name.to_owned());
        let names = names.filter(|name| !TOO_LARGE.contains(&name.as_str())).chain(found());
        let plans = names.map(|name| Plan::new(scenario::load(&name).expect("it is shipped")));
        let mut plans: Vec<Plan> = plans.collect();
        plans.sort_by_key(|plan| {
            let workload = plan.workload();
            workload.duration_ns * u64::from(workload.machine.cpus)
        });
        Judge { plans, random: (0..RANDOM).map(random::workload).collect() }
    }

    /// Prints what notices each mutant. Returns the names of those that no check notices.
    fn unnoticed(&self, mutants: &[Mutant]) -> BTreeSet<String> {
        let next = AtomicUsize::new(0);
        let unnoticed = Mutex::new(BTreeSet::new());
        let work = || {
            while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                let notices = self.notices(mutant);
                println!("{}: {}", mutant.name, notices.as_deref().unwrap_or("nothing"));
                if notices.is_none() {
                    let mut unnoticed = unnoticed.lock().unwrap_or_else(PoisonError::into_inner);
                    unnoticed.insert(mutant.name.clone());
                }
            }
        };
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(work);
            }
        });
        unnoticed.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// The check that notices the mutant, if any does.
    fn notices(&self, mutant: &Mutant) -> Option<String> {
        let in_scenario = self.plans.iter().find_map(|plan| self.scenario(plan, &mutant.kernels));
        in_scenario.or_else(|| {
            let kernels = &mutant.kernels;
            self.random.iter().find_map(|workload| {
                kernels.iter().find_map(|&kernel| random_run(workload, kernel))
            })
        })
    }

    /// The expectation of a scenario that fails, if one does.
    fn scenario(&self, plan: &Plan, kernels: &[Kernel]) -> Option<String> {
        let expectations = &plan.workload().expectations;
        let is_expected = |kernel: &&Kernel| {
            expectations.iter().any(|e| kernel::covers(&e.kernels, kernel).unwrap_or(true))
        };
        let kernels: Vec<NamedKernel> =
            kernels.iter().filter(is_expected).map(|&kernel| NamedKernel::from(kernel)).collect();
        if kernels.is_empty() {
            return None;
        }
        let name = &plan.workload().name;
        let running = Running { threads: Some(1), ..Running::default() };
        let ended = Suite::new(vec![plan.clone()], kernels, 1..=1, Box::new(Model { running }));
        let ended = ended.and_then(|suite| {
            let ended = suite.run(&suite.jobs(), &Patience::default())?;
            let verdicts = ended.iter().flat_map(|ended| &ended.verdicts);
            let failed = verdicts.flat_map(|verdict| {
                let failed = verdict.measured().iter().filter(|measured| !measured.passed);
                failed.map(|measured| (verdict.expectation(), measured))
            });
            let told = failed.map(|(expectation, measured)| {
                format!("{name} on {}: {} {}", measured.kernel, expectation.metric, measured.value)
            });
            Ok::<_, Error>(told.take(1).next())
        });
        ended.unwrap_or_else(|error| Some(format!("{name}: {error}")))
    }
}

/// The invariant that breaks in a random workload, if one does.
fn random_run(workload: &Workload, kernel: Kernel) -> Option<String> {
    use cpumax_study::{machine, world};
    let options = Options { check: true, ..Options::new(kernel, 1) };
    let asked = Patience::default();
    let mut patience = |_| {
        if asked.stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let ended = world::guarded(|| machine::run(workload, &options, None, Some(&mut patience)));
    let error = match ended {
        Ok(Ok(_)) => return None,
        Ok(Err(error)) => error.to_string(),
        Err(stopped) => stopped.to_string(),
    };
    Some(format!("{} on {}: {error}", workload.name, kernel.version))
}
