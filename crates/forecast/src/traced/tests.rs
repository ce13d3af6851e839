use super::*;
use crate::recorded;
use crate::stretch::{Does, RunTrace, Stretch};
use cpumax_recording::Options;
use cpumax_study::{Share, Try, WhatIf};

/// Two workers that hand work to each other, under a tenth of a CPU.
const TEXT: &str = r#"
duration = "2s"
[machine]
cpus = 1
timer_phase = "0ms"
[[group]]
path = "/limited"
max = "10000 100000"
[[channel]]
name = "work"
[[task]]
name = "dispatcher"
group = "/limited"
program = [{ forever = [{ sleep = "9ms" }, { user = "2ms" }, { send = "work" }] }]
[[task]]
name = "worker"
group = "/limited"
count = 2
program = [{ forever = [{ recv = "work" }, { user = "1ms" }, { done = true }] }]
"#;

fn look_at(text: &str, kernel: &str) -> RunTrace {
    let workload = Arc::new(cpumax_workload::parse(text, "traced.toml").unwrap());
    let kernel = kernels::modelled(kernel).unwrap().remove(0);
    let limit = workload.groups[1].limit;
    let what_if = WhatIf {
        shares: vec![(1, Share { limit, weight: None })],
        duration_ns: workload.duration_ns,
        phase_ns: None,
        apart_ns: 0,
    };
    let watch = cpumax_machine::Watch {
        group: 1,
        from_ns: 0,
        until_done: false,
        cost_ppm: cpumax_machine::COST_AS_IT_SAYS,
    };
    let (what_if, watch) = (Some(what_if), Some(watch));
    let jobs = [Job { what_if, watch, ..Job::new(workload, kernel, 1) }];
    let running = Running::default();
    let look = collect_events(&jobs, &running, &(), &|_| Look::default()).unwrap().remove(0);
    let plan = Arc::new(Plan::of(&jobs[0], look));
    let follow = collect_events(&jobs, &running, &(), &|_| Follow::new(Arc::clone(&plan)))
        .unwrap()
        .remove(0);
    follow.finish()
}

/// Time of a thread in this state, ns.
fn time(stretch: &Stretch, name: &str, does: Does) -> u64 {
    let thread = stretch.threads.iter().find(|thread| thread.name == name).unwrap();
    let pieces = thread.pieces(stretch.until_ns - stretch.from_ns);
    pieces.filter(|(_, _, what)| *what == does).map(|(from, until, _)| until - from).sum()
}

#[test]
fn the_longest_request_is_seen_with_what_stopped_its_thread() {
    for kernel in ["4.19", "6.12", "6.18", "7.3"] {
        let told = look_at(TEXT, kernel);
        let [worst, typical] = &told.stretches[..] else { panic!("{kernel}: {told:?}") };
        assert_eq!((worst.of, typical.of), (Why::Worst, Why::Typical));
        assert!(worst.took_ns > 50_000_000 && typical.took_ns < worst.took_ns, "{kernel}");
        let length_ns = worst.until_ns - worst.from_ns;
        assert!((300_000_000..=500_000_000).contains(&length_ns), "{kernel}: {length_ns}");
        assert!((worst.from_ns..worst.until_ns).contains(&worst.done_ns), "{kernel}");
        assert_eq!(worst.threads[0].name, worst.by, "{kernel}");
        let names: Vec<&str> = worst.threads.iter().map(|thread| thread.name.as_str()).collect();
        assert!(names.contains(&"dispatcher") && names.contains(&"worker/0"), "{names:?}");
        let all = |does| -> u64 { names.iter().map(|name| time(worst, name, does)).sum() };
        // It runs for a tenth of the stretch, and is stopped when its runtime is used up.
        let ran = all(Does::Runs);
        assert!((length_ns / 15..length_ns / 6).contains(&ran), "{kernel}: {ran} of {length_ns}");
        assert!(all(Does::Stopped) > length_ns / 3, "{kernel}: {:?}", worst.threads);
        let edges = worst.periods_ns.len() as u64;
        assert!((3..=6).contains(&edges), "{kernel}: {edges}");
        assert!(worst.runtime.iter().all(|[_, usec]| *usec <= 10_000), "{kernel}");
        assert!(worst.runtime.iter().any(|[_, usec]| *usec == 0), "{kernel}");
        assert!(worst.runtime.is_sorted_by_key(|[at, _]| *at), "{kernel}");
        let wait = &told.waits[0];
        assert!(wait.waiter.starts_with("worker/") && wait.lock.is_none(), "{kernel}: {wait:?}");
        assert_eq!(wait.holder, "dispatcher", "{kernel}");
        assert!(wait.stopped_ns <= wait.total_ns && wait.longest_ns <= wait.total_ns);
        assert!(wait.stopped_ns > 500_000_000, "{kernel}: {wait:?}");
    }
}

#[test]
fn a_thread_that_waits_for_a_lock_waits_for_its_holder() {
    let text = r#"
duration = "1s"
[machine]
cpus = 2
[[group]]
path = "/limited"
max = "10000 100000"
[[lock]]
name = "the-lock"
kind = "mutex"
[[task]]
name = "holder"
group = "/limited"
cpus = "0"
program = [{ forever = [{ lock = "the-lock" }, { user = "30ms" }, { unlock = "the-lock" },
    { sleep = "1ms" }] }]
[[task]]
name = "waiter"
cpus = "1"
program = [{ forever = [{ lock = "the-lock" }, { user = "10us" }, { unlock = "the-lock" },
    { done = true }] }]
"#;
    let told = look_at(text, "6.12");
    assert!(told.stretches.is_empty(), "no request of the group was completed");
    let wait = told.waits.iter().find(|wait| wait.lock.is_some()).unwrap();
    assert_eq!((wait.waiter.as_str(), wait.holder.as_str()), ("waiter", "holder"));
    assert_eq!(wait.lock.as_deref(), Some("the-lock"));
    assert!(wait.total_ns > 500_000_000 && wait.stopped_ns > wait.total_ns / 2, "{wait:?}");
}

#[test]
fn a_replay_is_looked_at_where_its_answer_lies() {
    let path = std::path::Path::new("../../recordings/bursts.perf.data");
    let recording = recorded::read(path, Options::default()).unwrap();
    let limits = ["10000 100000", "20000 100000", "2"].map(|limit| Try::parse(limit).unwrap());
    let request = crate::Request { limits: limits.to_vec(), ..crate::Request::default() };
    let replay = Replay::new("bursts", &recording, &request).unwrap();
    let kernels = cpumax_machine::kernel::parse_kernels("5.4,6.18").unwrap();
    let running = Running::default();
    let mut runs = replay.runs(&kernels, 1, &running, &()).unwrap();
    replay.trace_decisive(&mut runs, &running, &()).unwrap();
    let traced: Vec<&Run> = runs.iter().filter(|run| run.trace.is_some()).collect();
    assert!((1..=2).contains(&traced.len()));
    for run in traced {
        assert_eq!(run.outcome.kernel, "6.18");
        assert!(run.prediction.throttled_percent.unwrap().value > 0.0);
        let trace = run.trace.as_ref().unwrap();
        // The traced run is the one of the outcome.
        let longest_ns = run.outcome.groups[&run.group].latency_ns.max;
        assert_eq!(trace.stretches[0].took_ns, longest_ns);
    }
}
