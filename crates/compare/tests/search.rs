//! The search finds known differences between kernels without hints.

use cpumax_compare::Noisy;
use cpumax_compare::search::{
    Between, Counts, Event, Found, Line, Log, Plan, level_of_both, search, workload,
};
use cpumax_compare::{Error, Side, found};
use cpumax_outcome::Field;
use cpumax_study::world::{self, Each};
use cpumax_study::{Error as EngineError, Job, Model, NamedKernel, Watch, World};
use cpumax_workload::{Preempt, Workload};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const PLAN: Plan = Plan {
    first: 1,
    cases: 48,
    beyond: 3.0,
    kept_of_kind: 2,
    attempts: 3000,
    limits_only: true,
    level: Some(Preempt::Lazy),
};

fn named(kernel: &str) -> NamedKernel {
    cpumax_study::kernels::modelled(kernel).expect("is a kernel").remove(0)
}

/// This kernel in a world.
fn side(world: impl World + 'static, kernel: &str) -> Side {
    Side::new(Box::new(world), &named(kernel), || false).expect("is modelled")
}

fn model(kernel: &str) -> Side {
    side(Model::default(), kernel)
}

/// Findings of a search, and the number of its cases.
fn find(plan: &Plan, log: &mut Log, kernel: &str, against: &str) -> (Vec<Found>, usize) {
    let mut all = Vec::new();
    let mut cases = 0;
    let (reference, against) = (&model(kernel), &model(against));
    search(plan, log, Between { reference, against, models: None }, |event| {
        match event {
            Event::Found(found) => all.push(found.clone()),
            Event::Case(_) => cases += 1,
            Event::Shrinking(_) => {}
        }
        Ok(())
    })
    .expect("the model does not break");
    (all, cases)
}

#[test]
fn a_kernel_agrees_with_itself() {
    let (found, cases) = find(&PLAN, &mut Log::none(), "7.2", "7.2");
    assert_eq!((found.len(), cases), (0, 48));
}

#[test]
fn what_is_found_is_small_and_can_be_run_again() {
    let (found, _) = find(&PLAN, &mut Log::none(), "6.18", "7.2");
    assert!(!found.is_empty(), "7.2 lets several threads of one child run far beyond the quota");
    for found in &found {
        let text = found::text(found, "cpumax search", "cpumax compare");
        let read = cpumax_workload::parse(&text, "found.toml")
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert!(text.ends_with(&cpumax_workload::print(&read)), "{text}");
        assert!(found.cell.worst().is_some_and(|worst| worst.ratio > PLAN.beyond), "{text}");
        assert!(read.machine.timer_phase_ns.is_some(), "both kernels have this phase: {text}");
        assert_eq!(read.machine.hrtick, Some(false), "and no slice timer: {text}");
    }
    let leak = found.iter().any(|found| {
        found
            .cell
            .deviations
            .iter()
            .any(|deviation| deviation.field == Field::GroupUse && deviation.is_beyond())
    });
    assert!(leak, "a group's use differs");
}

#[test]
fn what_needs_limits_is_not_hidden_by_what_differs_more() {
    let kinds = |limits_only: bool| {
        let plan = Plan { first: 30, cases: 20, kept_of_kind: 0, limits_only, ..PLAN };
        let mut log = Log::none();
        find(&plan, &mut log, "7.3", "6.18");
        let kinds = log.lines().iter().filter_map(|line| Some((line.case, line.kind?)));
        kinds.filter(|(_, kind)| kind.needs_limits).map(|(case, _)| case).collect::<Vec<_>>()
    };
    let (worst, worst_of_these) = (kinds(false), kinds(true));
    assert!(worst.iter().all(|case| worst_of_these.contains(case)), "{worst:?}");
    assert!(worst.len() < worst_of_these.len(), "{worst:?} {worst_of_these:?}");
}

/// The model, which counts the batches of its jobs.
struct Counted(Arc<AtomicUsize>);

impl World for Counted {
    fn label(&self, kernel: &NamedKernel) -> Result<String, EngineError> {
        Model::default().label(kernel)
    }

    fn is_real(&self) -> bool {
        false
    }

    fn run(&self, jobs: &[Job], watch: &dyn Watch, each: Each<'_>) -> Result<(), EngineError> {
        self.0.fetch_add(jobs.len(), Ordering::Relaxed);
        Model::default().run(jobs, watch, each)
    }
}

#[test]
fn what_models_disagree_on_too_is_made_small_there() {
    let plan = Plan { cases: 16, kept_of_kind: 1, ..PLAN };
    let asked = |guided: bool| {
        let count = Arc::new(AtomicUsize::new(0));
        let reference = &side(Counted(Arc::clone(&count)), "6.18");
        let (first, second) = (&model("6.18"), &model("7.2"));
        let models = guided.then_some([first, second]);
        let mut found = Vec::new();
        let between = Between { reference, against: second, models };
        search(&plan, &mut Log::none(), between, |event| {
            if let Event::Found(one) = event {
                found.push(one.case);
            }
            Ok(())
        })
        .expect("the model does not break");
        (found, count.load(Ordering::Relaxed))
    };
    let (alone, guided) = (asked(false), asked(true));
    assert_eq!(alone.0, guided.0, "the same cases are kept");
    assert!(guided.1 * 3 < alone.1 * 2, "{} instead of {} runs", guided.1, alone.1);
}

#[test]
fn a_search_that_was_stopped_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let open = || Log::open(&path, "6.18 against 7.2").expect("opens");
    let plan = Plan { cases: 16, kept_of_kind: 0, ..PLAN };
    let (_, first) = find(&plan, &mut open(), "6.18", "7.2");
    assert_eq!(first, 16);
    let before = open().lines().to_vec();
    let more = Plan { cases: 32, ..plan };
    let (_, all) = find(&more, &mut open(), "6.18", "7.2");
    assert_eq!(all, 32, "those of before are told again");
    assert_eq!(open().lines()[..16], before);
    let mut whole = Log::none();
    find(&more, &mut whole, "6.18", "7.2");
    assert_eq!(open().lines(), whole.lines(), "as if it had not been stopped");
}

/// The model of 7.2. If `agrees` holds for the workload, one of [`Noisy::MOST`] runs under noise
/// behaves like 6.18.
struct Rare(fn(&Workload, u64) -> bool);

impl World for Rare {
    fn label(&self, kernel: &NamedKernel) -> Result<String, EngineError> {
        Model::default().label(kernel)
    }

    fn is_real(&self) -> bool {
        false
    }

    fn run(&self, jobs: &[Job], watch: &dyn Watch, each: Each<'_>) -> Result<(), EngineError> {
        let first = Job { noise: None, ..jobs[0].clone() };
        let agrees = jobs.len() > Noisy::MOST as usize && (self.0)(&first.workload, first.seed);
        let other = Job { kernel: named(if agrees { "6.18" } else { "7.2" }), ..first.clone() };
        let reports = world::all(&Model::default(), &[first, other], watch)?;
        for index in 0..jobs.len() {
            assert!(each(index, Ok(reports[index.min(1)].clone())).is_continue());
        }
        Ok(())
    }
}

/// Numbers of the disagreeing cases, and the kept findings.
fn find_rare(plan: &Plan, agrees: fn(&Workload, u64) -> bool) -> (Vec<u64>, Vec<Found>) {
    let (reference, against) = (&model("6.18"), &side(Rare(agrees), "7.2"));
    let between = Between { reference, against, models: None };
    let (mut log, mut all) = (Log::none(), Vec::new());
    search(plan, &mut log, between, |event| {
        if let Event::Found(found) = event {
            all.push(found.clone());
        }
        Ok(())
    })
    .expect("the model does not break");
    let disagree = log.lines().iter().filter(|line| line.kind.is_some());
    (disagree.map(|line| line.case).collect(), all)
}

#[test]
fn what_a_comparison_would_not_call_a_disagreement_is_none() {
    let plan = Plan { cases: 16, kept_of_kind: 1, ..PLAN };
    let (disagree, found) = find_rare(&plan, |_, _| true);
    assert_eq!((disagree, found.len()), (vec![], 0));
    let (disagree, found) = find_rare(&plan, |_, _| false);
    assert!(!disagree.is_empty() && !found.is_empty());
}

#[test]
fn what_is_kept_is_confirmed() {
    let plan = Plan { cases: 16, kept_of_kind: 1, ..PLAN };
    let (_, found) = find_rare(&plan, |made, case| *made != workload(case, PLAN.level));
    assert!(!found.is_empty());
    for found in found {
        assert_eq!(found.workload, workload(found.case, PLAN.level), "nothing smaller is");
        assert!(found.cell.worst().is_some_and(|worst| worst.ratio > PLAN.beyond));
    }
    // A shrunk duration agrees.
    let halves =
        |made: &Workload, case| made.duration_ns < workload(case, PLAN.level).duration_ns / 2;
    let (_, found) = find_rare(&plan, halves);
    assert!(found.iter().all(|found| !halves(&found.workload, found.case)));
    assert!(found.iter().any(|found| found.workload != workload(found.case, PLAN.level)));
}

#[test]
fn each_case_is_noted_as_it_is_done() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let open = || Log::open(&path, "7.2 against itself").expect("opens");
    let plan = Plan { cases: 16, ..PLAN };
    let (reference, against) = (&model("7.2"), &model("7.2"));
    let between = Between { reference, against, models: None };
    let mut cases = 0;
    let ended = search(&plan, &mut open(), between, |_| {
        cases += 1;
        if cases == 5 { Err(Error::Interrupted) } else { Ok(()) }
    });
    assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
    let lines = open().lines().to_vec();
    assert_eq!(lines.iter().map(|line| line.case).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    let (_, all) = find(&plan, &mut open(), "7.2", "7.2");
    assert_eq!((all, open().lines().len()), (16, 16));
}

#[test]
fn worlds_have_names() {
    assert_eq!(model("6.18.3").label, "model 6.18");
}

#[test]
fn two_kernels_run_with_a_preemption_that_both_have() {
    let of = |list: &str| {
        let kernels = cpumax_study::kernels::fetched(list).unwrap().kernels;
        level_of_both(&kernels[0], &kernels[1])
    };
    assert_eq!(of("6.1,6.12"), Preempt::Voluntary);
    assert_eq!(of("6.18,7.3"), Preempt::Lazy);
    assert_eq!(of("6.12,6.18"), Preempt::Full);
    assert_eq!(of("6.12,6.12-rt"), Preempt::Full);
}

#[test]
fn what_came_of_cases_is_counted() {
    let line = |case, reason: Option<&str>, refused| Line {
        case,
        ratio: None,
        kind: None,
        path: None,
        reason: reason.map(str::to_owned),
        refused,
        kept: false,
    };
    let mut counts = Counts::default();
    assert!(!counts.has_run_none(), "there was none");
    counts.count(&line(1, Some("it needs 8 CPUs"), true));
    counts.count(&line(2, Some("it hung"), false));
    counts.count(&line(3, Some("it needs 8 CPUs"), true));
    assert!(counts.has_run_none());
    let reasons: Vec<String> = counts.reasons().collect();
    assert_eq!(reasons, ["2 could not be run: it needs 8 CPUs", "1 failed: it hung"]);
    counts.count(&line(4, None, false));
    assert!(!counts.has_run_none() && counts.cases == 4 && counts.disagreed == 0);
}
