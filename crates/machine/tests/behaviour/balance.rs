//! Placement of tasks that have several CPUs to choose from.

use super::support::{recorded, under_noise};
use cpumax_outcome::trace::What;
use std::collections::BTreeMap;

/// CPU time of each kind of task, ms. With noise: without it tasks change at the very ticks at
/// which CPUs balance, and the same one may wait each time.
fn used_ms(kernel: &str, text: &str) -> BTreeMap<String, u64> {
    used_under_noise_ms(kernel, text, 1)
}

fn used_under_noise_ms(kernel: &str, text: &str, noise: u64) -> BTreeMap<String, u64> {
    let (outcome, _) = under_noise(text, kernel, noise);
    outcome.tasks.into_iter().map(|(name, task)| (name, task.usage_usec / 1000)).collect()
}

const KERNELS: [&str; 7] = ["4.18", "5.4", "6.1", "6.12", "6.18", "7.2", "7.3"];

#[test]
fn three_busy_tasks_share_two_cpus() {
    let hog = |name| format!("[[task]]\nname = \"{name}\"\nprogram = [{{ user = \"1min\" }}]\n");
    let text = ["duration = \"10s\"\n[machine]\ncpus = 2\n", &hog("a"), &hog("b"), &hog("c")];
    for kernel in KERNELS {
        // Without moves, two get 5 s and one 10. (Six real runs of 6.12 and 6.18 gave 6.2 to 7.1
        // s.)
        let runs: Vec<_> =
            (1..=15).map(|noise| used_under_noise_ms(kernel, &text.concat(), noise)).collect();
        for name in ["a", "b", "c"] {
            let each_ms = || runs.iter().map(|run| run[name]);
            assert!(
                each_ms().all(|ms| (5_200..7_800).contains(&ms)),
                "{name} on {kernel}: {runs:?}"
            );
            let mean_ms = each_ms().sum::<u64>() / runs.len() as u64;
            assert!((6_300..7_000).contains(&mean_ms), "{name}: {mean_ms} ms on {kernel}");
        }
    }
}

#[test]
fn loads_are_evened_out_and_not_numbers() {
    // A task of nice -5 weighs as much as three of nice 0, so it gets a CPU of its own. With two
    // tasks on each it would get three quarters of one.
    let text = "duration = \"10s\"\n[machine]\ncpus = 2\n\
                [[task]]\nname = \"heavy\"\nnice = -5\nprogram = [{ user = \"1min\" }]\n\
                [[task]]\nname = \"light\"\ncount = 3\nprogram = [{ user = \"1min\" }]\n";
    for kernel in KERNELS {
        let used_ms = used_ms(kernel, text);
        assert!(used_ms["heavy"] > 9_500, "{used_ms:?} on {kernel}");
    }
}

#[test]
fn a_waking_task_goes_where_only_class_idle_runs() {
    let text = "duration = \"3s\"\n[machine]\ncpus = 2\n\
                [[task]]\nname = \"idler\"\nclass = \"idle\"\ncpus = \"0\"\n\
                program = [{ user = \"1min\" }]\n\
                [[task]]\nname = \"hog\"\ncpus = \"1\"\nprogram = [{ user = \"1min\" }]\n\
                [[task]]\nname = \"worker\"\ncpus = \"1\"\n\
                program = [{ affinity = \"0-1\" }, { forever = [{ sleep = \"5ms\" }, \
                { user = \"5ms\" }] }]\n";
    for kernel in KERNELS {
        let used_ms = used_ms(kernel, text);
        let undisturbed = used_ms["hog"] >= 2_970;
        assert_eq!(undisturbed, kernel != "4.18", "{used_ms:?} on {kernel}");
    }
}

/// How often a task woke up on another CPU than the last time.
fn changes(kernel: &str, text: &str) -> usize {
    let (_, recorded) = recorded(text, kernel);
    let mut last = BTreeMap::new();
    let woken = recorded.events.iter().filter_map(|event| match event.what {
        What::Wake { task } => Some((task, event.cpu)),
        _ => None,
    });
    woken.filter(|&(task, cpu)| last.insert(task, cpu).is_some_and(|last| last != cpu)).count()
}

/// How often a task ran on another CPU than the last time.
fn moves(kernel: &str, text: &str) -> usize {
    let (_, recorded) = under_noise(text, kernel, 1);
    let mut last = BTreeMap::new();
    let switches = recorded.events.iter().filter_map(|event| match event.what {
        What::Switch { next } => next.map(|task| (task, event.cpu)),
        _ => None,
    });
    switches.filter(|&(task, cpu)| last.insert(task, cpu).is_some_and(|last| last != cpu)).count()
}

#[test]
fn on_busy_cpus_nobody_looks_for_an_idle_one_from_6_0_on() {
    let text = |count, sleep| {
        format!(
            "duration = \"2s\"\n[machine]\ncpus = 2\n[[task]]\nname = \"t\"\ncount = {count}\n\
             program = [{{ forever = [{{ user = {{ exponential = \"400us\" }} }}, \
             {{ sleep = \"{sleep}us\" }}] }}]\n"
        )
    };
    let busy = |kernel| changes(kernel, &text(4, 500));
    assert!(busy("6.1") * 4 < busy("5.19") * 3, "{} {}", busy("6.1"), busy("5.19"));
    // With little to do, newidle balancing tries nearly as often.
    let little = |kernel| changes(kernel, &text(3, 2_000));
    assert!(little("6.1") * 5 > little("5.19") * 4, "{} {}", little("6.1"), little("5.19"));
}

/// A task takes its utilisation along, so that the CPU it leaves has room for a while and takes no
/// task back. (A real 6.12 moves one of three every 132 ms, sometimes 128 or 136, 72 times in ten
/// seconds; if it left its utilisation behind it would be taken back at once, with 137 moves.)
#[test]
fn a_cpu_that_gave_a_task_away_takes_none_back_at_once() {
    let text = "duration = \"10s\"\n[machine]\ncpus = 2\n\
                [[task]]\nname = \"hog\"\ncount = 3\nprogram = [{ user = \"1min\" }]\n";
    for kernel in ["6.12", "6.18"] {
        let moves = moves(kernel, text);
        assert!((65..=80).contains(&moves), "{moves} on {kernel}");
    }
}

/// The sleeper may move to the other CPU only when it is about to sleep, where it stays queued for
/// a while as it used more than its share. It wakes up where it was taken.
#[test]
fn one_that_is_only_delayed_is_moved_for_its_load() {
    let text = "duration = \"2s\"\n[machine]\ncpus = 2\n\
                [[task]]\nname = \"pinned\"\ncount = 3\ncpus = \"0\"\n\
                program = [{ user = \"1min\" }]\n\
                [[task]]\nname = \"other\"\ncpus = \"1\"\nprogram = [{ user = \"1min\" }]\n\
                [[task]]\nname = \"sleeper\"\nnice = 19\ncpus = \"0\"\n\
                program = [{ user = \"1ms\" },\n\
                { affinity = \"0-1\" }, { sleep = \"1s\" }, { user = \"1ms\" }]\n";
    for (kernel, is_moved) in [("6.6", false), ("6.12", true), ("6.18", true), ("7.3", true)] {
        assert_eq!(changes(kernel, text) == 1, is_moved, "{kernel}");
    }
}

/// A parked task is expected to use as much as before when it comes back, so a CPU counts as busy
/// from the start of a period on and gives a task away. Where groups are throttled as a whole, it
/// has to become busy first. (Random case 22 of 2 from 0.43 s on; on real kernels: 505 and 503 ms
/// on 6.12, 708 and 420 on 6.18.)
#[test]
fn a_cpu_whose_tasks_come_back_from_parking_is_busy_at_once() {
    let text = "duration = \"3s\"\n[machine]\ncpus = 2\n[[group]]\npath = \"/g\"\n\
                max = \"95515 100000\"\n\
                [[group]]\npath = \"/g/h\"\n\
                [[task]]\nname = \"stays\"\ngroup = \"/g\"\ncpus = \"0\"\n\
                program = [{ user = \"1min\" }]\n\
                [[task]]\nname = \"three\"\ngroup = \"/g/h\"\ncount = 3\ncpus = \"1\"\n\
                program = [{ forever = [{ kernel = \"12277119ns\" }] }]\n\
                [[task]]\nname = \"moves\"\ngroup = \"/g\"\nstart = \"1ms\"\n\
                program = [{ forever = [{ kernel = \"658893ns\" }] }]\n";
    // Noise decides whether a balancing attempt comes while it is busy; so it does in some runs.
    let most_ms = |kernel: &str| {
        let runs = (1..=10).map(|noise| used_under_noise_ms(kernel, text, noise));
        runs.map(|used_ms| used_ms["stays"].abs_diff(used_ms["moves"])).max().expect("are some")
    };
    let [before, since] = [most_ms("6.12"), most_ms("6.18")];
    assert!(before < 30 && since > 150, "{before} {since}");
}

#[test]
fn an_idle_cpu_passes_over_a_cpu_whose_tasks_are_pinned() {
    // CPU 0 has the most to run, and no task that may leave. Two of CPU 1 began there before CPU 2
    // became idle.
    let text = "duration = \"2s\"\n[machine]\ncpus = 3\n\
                [[task]]\nname = \"pinned\"\ncount = 5\ncpus = \"0\"\n\
                program = [{ user = \"1min\" }]\n\
                [[task]]\nname = \"free\"\ncount = 2\ncpus = \"1\"\nstart = \"1ms\"\n\
                program = [{ user = \"1ms\" }, { affinity = \"0-2\" }, { user = \"1min\" }]\n";
    for kernel in KERNELS {
        let used_ms = used_ms(kernel, text);
        assert!(used_ms["free"] > 3_800, "{used_ms:?} on {kernel}");
    }
}

#[test]
fn a_cpu_that_went_while_it_ran_something_runs_again_when_it_is_back() {
    let text = "duration = \"1s\"\n[machine]\ncpus = 2\n\
                [[task]]\nname = \"hog\"\ncount = 2\nprogram = [{ user = \"300ms\" }]\n\
                [[task]]\nname = \"late\"\ncpus = \"1\"\nstart = \"900ms\"\n\
                program = [{ user = \"50ms\" }]\n\
                [[at]]\ntime = \"100ms\"\noffline = 1\n\
                [[at]]\ntime = \"800ms\"\nonline = 1\n";
    for kernel in KERNELS.into_iter().chain(["pull"]) {
        let used_ms = used_ms(kernel, text);
        assert!(used_ms["late"] >= 49, "{used_ms:?} on {kernel}");
    }
}

/// On CPU 0 the heavy task runs at nearly every tick and the waiting one may not leave, so the
/// heavy one has to. (Random case 18 of 2 on 6.12: a thread of CPU 0 gave its running task to CPU
/// 1 after that CPU's fourth failed attempt, thirteen times in 2.2 s.)
#[test]
fn an_idle_cpu_takes_who_runs_where_all_that_wait_are_pinned() {
    let text = "duration = \"1s\"\n[machine]\ncpus = 2\n\
                [[task]]\nname = \"pinned\"\nnice = 19\ncpus = \"0\"\n\
                program = [{ user = \"1min\" }]\n\
                [[task]]\nname = \"heavy\"\nnice = -20\ncpus = \"0\"\n\
                program = [{ user = \"1ms\" }, { affinity = \"0-1\" }, { user = \"1min\" }]\n";
    for kernel in KERNELS {
        let used_ms = used_ms(kernel, text);
        assert!(used_ms["pinned"] > 900, "{used_ms:?} on {kernel}");
    }
}
