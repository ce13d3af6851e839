//! Properties of every workload, tried on random ones: no invariant breaks, the same seed gives
//! the same result, and ticks that are not events change nothing.
//!
//! `CPUMAX_SEEDS=FROM..TO` tries those seeds instead of the few of a normal test run, and
//! `CPUMAX_KERNEL=NAME` one kernel instead of all.

use cpumax_machine::kernel::{Kernel, RELEASES, UNRELEASED};
use cpumax_machine::{Options, run};
use cpumax_noise::Microseconds;
use cpumax_outcome::Outcome;
use cpumax_workload::{Workload, random};
use std::ops::Range;

fn kernels() -> impl Iterator<Item = Kernel> {
    let releases = RELEASES.iter().map(|release| release.from);
    let all = releases.chain(UNRELEASED.iter().map(|kernel| kernel.version));
    let kernels = all.map(|version| Kernel::of(version).expect("every release is a kernel"));
    let only = std::env::var("CPUMAX_KERNEL").ok();
    kernels.filter(move |k| only.as_ref().is_none_or(|only| *only == k.version.to_string()))
}

fn options(kernel: Kernel, seed: u64) -> Options<'static> {
    Options::new(kernel, seed)
}

fn outcome(workload: &Workload, options: &Options) -> Outcome {
    run(workload, options, None, None)
        .unwrap_or_else(|e| panic!("{} on {}: {e}", workload.name, options.kernel.version))
}

/// The seeds from the environment, or `otherwise`.
fn seeds(otherwise: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var("CPUMAX_SEEDS") else { return otherwise };
    let ends =
        text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    ends.unwrap_or_else(|| panic!("CPUMAX_SEEDS is '{text}'; give FROM..TO, such as 0..1000"))
}

#[test]
fn no_invariant_breaks() {
    let mut events = 0;
    for seed in seeds(0..60) {
        let workload = random::workload(seed);
        for kernel in kernels() {
            events += outcome(&workload, &Options { check: true, ..options(kernel, seed) }).events;
        }
    }
    println!("{events} events, each followed by a check of every invariant");
    assert!(events >= 1_000_000, "{events} events are too few to prove anything");
}

/// Tasks that are about to park become real-time in some of these.
#[test]
fn no_invariant_breaks_under_noise() {
    for seed in [66, 91, 128].into_iter().chain(seeds(0..6)) {
        let workload = random::with_jobs(seed);
        for kernel in kernels() {
            let delays = Microseconds::of(5);
            let options = Options { check: true, delays: Some(&delays), ..options(kernel, 2) };
            outcome(&workload, &options);
        }
    }
}

#[test]
fn no_token_is_lost_and_no_job_done_twice() {
    let (mut events, mut done) = (0, 0);
    for seed in seeds(0..12) {
        let workload = random::with_jobs(seed);
        for kernel in kernels() {
            let outcome = outcome(&workload, &Options { check: true, ..options(kernel, seed) });
            events += outcome.events;
            let servers = outcome.tasks.iter().filter(|(name, _)| name.starts_with("server"));
            done += servers.map(|(_, server)| server.completions).sum::<u64>();
        }
    }
    println!("{events} events, {done} requests done in jobs or after them");
    assert!(events >= 400_000 && done >= 5_000, "{events} events, {done} requests");
}

#[test]
fn a_tick_that_is_no_event_changes_nothing() {
    let mut saved = 0;
    for seed in seeds(100..125) {
        let workload = random::workload(seed);
        for kernel in kernels() {
            let lazy = outcome(&workload, &options(kernel, seed));
            let stepped = Options { step_every_tick: true, ..options(kernel, seed) };
            let mut every_tick = outcome(&workload, &stepped);
            saved += every_tick.events.saturating_sub(lazy.events);
            every_tick.events = lazy.events;
            assert_eq!(lazy, every_tick, "{} on {}", workload.name, kernel.version);
        }
    }
    assert!(saved > 10_000, "only {saved} events were saved: nothing was compared");
}

/// Random machines are small. On larger ones with spread ticks, the first tick of the 17th CPU
/// refreshes shares.
#[test]
fn ticks_of_a_larger_machine_that_are_no_events_change_nothing() {
    let file = "../../scenarios/profile-small.toml";
    let text = std::fs::read_to_string(file).unwrap();
    let mut parts = cpumax_workload::parse(&text, file).unwrap().into_parts();
    parts.duration_ns = 300_000_000;
    parts.machine.tick_skew = true;
    let workload = Workload::try_from(parts).unwrap();
    for kernel in kernels() {
        let lazy = outcome(&workload, &options(kernel, 1));
        let stepped = Options { step_every_tick: true, ..options(kernel, 1) };
        let every_tick = Outcome { events: lazy.events, ..outcome(&workload, &stepped) };
        assert_eq!(lazy, every_tick, "{}", kernel.version);
    }
}

/// Each of these once broke something on the kernel named.
#[test]
fn seeds_that_found_faults_stay_fixed() {
    for (seed, kernel) in [
        // A nice level written to a task that was never on a queue.
        (969, "7.3"),
        // A period timer armed in the past, by a charge up to a tick that nohz_full had left out.
        (1_007_275, "4.18"),
        // A relative deadline that kept its virtual length at changes of weight.
        (1_024_042, "7.3"),
        // A tick between a grant and its unthrottle.
        (1813, "7.1"),
        // A killed kernel thread, whose work no longer took time.
        (600, "pull"),
        // Unthrottling that waited for a CPU's run queues and then found nothing to do.
        (936, "7.3"),
        // Ticks before the clock that a reschedule goes by.
        (83, "7.1"),
        (583, "4.19"),
        // Ticks that became more frequent while a task ran on a nohz_full CPU.
        (5615, "6.18"),
        // A tick that was due exactly when ticks became rarer.
        (340, "pull"),
        // A slice timer that was late by the length of an interrupt that was over.
        (1888, "7.3"),
    ] {
        let kernel = cpumax_machine::kernel::parse_kernels(kernel).expect("is a kernel")[0];
        let workload = random::workload(seed);
        let checked = Options { check: true, ..options(kernel, seed) };
        let lazy = outcome(&workload, &checked);
        let mut every_tick = outcome(&workload, &Options { step_every_tick: true, ..checked });
        every_tick.events = lazy.events;
        assert_eq!(lazy, every_tick, "{} on {}", workload.name, kernel.version);
    }
}

#[test]
fn machines_side_by_side_do_not_disturb_each_other() {
    let workload = random::workload(7);
    let kernels: Vec<Kernel> = kernels().collect();
    let alone: Vec<Outcome> = kernels.iter().map(|&k| outcome(&workload, &options(k, 7))).collect();
    let together: Vec<Outcome> = std::thread::scope(|scope| {
        let runs: Vec<_> = kernels
            .iter()
            .map(|&kernel| {
                scope.spawn({
                    let workload = &workload;
                    move || outcome(workload, &options(kernel, 7))
                })
            })
            .collect();
        runs.into_iter().map(|run| run.join().expect("a run does not panic")).collect()
    });
    assert_eq!(alone, together);
    let other_seed = outcome(&workload, &options(kernels[0], 8));
    assert_ne!(alone[0], other_seed, "the seed is used");
}
