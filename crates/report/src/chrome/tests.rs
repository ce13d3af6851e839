use super::*;
use serde_json::Value;

fn write(events: &[(u64, u16, What)], names: Option<Names>) -> Vec<Value> {
    let mut trace = ChromeTrace::new(Vec::new()).unwrap();
    trace.names = names.unwrap_or_default();
    for &(time_ns, cpu, what) in events {
        trace.event(TraceEvent { time_ns, cpu, what });
    }
    let text = trace.finish().unwrap();
    let whole: Value = serde_json::from_slice(&text).unwrap();
    whole["traceEvents"].as_array().unwrap().clone()
}

fn names() -> Names {
    Names {
        tasks: vec!["hog".to_owned(), "web \"1\"".to_owned()],
        groups: vec!["/".to_owned(), "/limited".to_owned()],
        locks: vec!["inode".to_owned()],
    }
}

/// `(track, name, start us, length us)` of the slices of one process, by track and start.
fn slices(events: &[Value], pid: u32) -> Vec<(u64, String, f64, f64)> {
    let of_pid = events.iter().filter(|event| event["ph"] == "X" && event["pid"] == pid);
    let mut slices: Vec<_> = of_pid
        .map(|event| {
            let name = event["name"].as_str().unwrap().to_owned();
            let (ts, dur) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
            (event["tid"].as_u64().unwrap(), name, ts, dur)
        })
        .collect();
    slices.sort_by(|a, b| (a.0, a.2).partial_cmp(&(b.0, b.2)).unwrap());
    slices
}

#[test]
fn cpus_show_who_ran_and_tasks_what_they_did() {
    let events = write(
        &[
            (0, 3, What::Wake { task: 0 }),
            (500, 3, What::Switch { next: Some(0) }),
            (2_000, 3, What::Wake { task: 1 }),
            (4_000, 3, What::Switch { next: Some(1) }),
            (5_000, 3, What::Park { task: 1 }),
            (5_000, 3, What::Switch { next: Some(0) }),
            (6_000, 3, What::Sleep { task: 0 }),
            (6_000, 3, What::Switch { next: None }),
            (9_000, 3, What::Unpark { task: 1 }),
        ],
        Some(names()),
    );
    let slice = |tid, name: &str, ts, dur| (tid, name.to_owned(), ts, dur);
    assert_eq!(
        slices(&events, CPUS),
        [slice(3, "hog", 0.5, 3.5), slice(3, "web \"1\"", 4.0, 1.0), slice(3, "hog", 5.0, 1.0)]
    );
    assert_eq!(
        slices(&events, TASKS),
        [
            slice(0, "ready", 0.0, 0.5),
            slice(0, "running", 0.5, 3.5),
            slice(0, "ready", 4.0, 1.0),
            slice(0, "running", 5.0, 1.0),
            slice(1, "ready", 2.0, 2.0),
            slice(1, "running", 4.0, 1.0),
            slice(1, "parked", 5.0, 4.0),
        ]
    );
}

#[test]
fn a_spinning_task_keeps_its_cpu_and_a_sleeping_one_becomes_ready() {
    let events = write(
        &[
            (0, 0, What::Switch { next: Some(0) }),
            (1_000, 0, What::LockWait { task: 0, lock: 0 }),
            (3_000, 0, What::LockTaken { task: 0, lock: 0 }),
            (4_000, 0, What::LockWait { task: 0, lock: 0 }),
            (4_000, 0, What::Switch { next: None }),
            (6_000, 0, What::LockTaken { task: 0, lock: 0 }),
            (7_000, 0, What::Switch { next: Some(0) }),
            (8_000, 0, What::Exit { task: 0 }),
        ],
        Some(names()),
    );
    let shown: Vec<(String, f64)> =
        slices(&events, TASKS).into_iter().map(|(_, name, _, dur)| (name, dur)).collect();
    let expected = [
        ("running", 1.0),
        ("waits for inode", 2.0),
        ("running", 1.0),
        ("waits for inode", 2.0),
        ("ready", 1.0),
        ("running", 1.0),
    ];
    assert_eq!(shown, expected.map(|(name, dur)| (name.to_owned(), dur)));
}

#[test]
fn throttling_is_a_slice_a_counter_and_periods_are_marks() {
    let events = write(
        &[
            (1_000, 0, What::Throttle { group: 1 }),
            (2_000, 1, What::Throttle { group: 1 }),
            (5_000, 0, What::Period { group: 1 }),
            (5_000, 0, What::Unthrottle { group: 1 }),
            (6_000, 1, What::Period { group: 1 }),
        ],
        Some(names()),
    );
    let lasted: Vec<f64> = slices(&events, LIMITS).into_iter().map(|slice| slice.3).collect();
    assert_eq!(lasted.len(), 2);
    assert!(lasted.contains(&4.0), "closed where it was released: {lasted:?}");
    let counts: Vec<u64> = events
        .iter()
        .filter(|event| event["ph"] == "C" && event["name"] == "/limited throttled CPUs")
        .map(|event| event["args"]["cpus"].as_u64().unwrap())
        .collect();
    assert_eq!(counts, [1, 2, 1]);
    assert_eq!(events.iter().filter(|event| event["ph"] == "i").count(), 2);
}

#[test]
fn tasks_without_names_have_numbers() {
    let events = write(
        &[(0, 0, What::Switch { next: Some(4) }), (1_000, 0, What::Switch { next: None })],
        None,
    );
    assert_eq!(slices(&events, CPUS), [(0, "task 4".to_owned(), 0.0, 1.0)]);
    assert!(write(&[], None).iter().all(|event| event["ph"] == "M"));
}

#[test]
fn a_call_that_releases_is_a_mark_on_its_cpu_with_what_it_did() {
    let call = |by| What::Release { by, took_ns: 7_500, told: 23, rqs: 1, cfs_rqs: 51, tasks: 16 };
    let marks = [(2_000, 3, call(Releaser::Distribute)), (3_000, 4, call(Releaser::Handler))];
    let events = write(&marks, None);
    let marks: Vec<_> = events.iter().filter(|event| event["ph"] == "i").collect();
    let told = |mark: &Value| (mark["name"].clone(), mark["tid"].clone(), mark["ts"].clone());
    assert_eq!(told(marks[0]), ("distribute".into(), 3.into(), 2.0.into()));
    assert_eq!(told(marks[1]), ("unthrottle handler".into(), 4.into(), 3.0.into()));
    let did = serde_json::json!({
        "took_ns": 7500, "told": 23, "rqs": 1, "cfs_rqs": 51, "tasks": 16
    });
    assert!(marks.iter().all(|mark| mark["args"]["released"] == did), "{marks:?}");
    let named =
        |tid: u64| events.iter().any(|event| event["name"] == "thread_name" && event["tid"] == tid);
    assert!(named(3) && named(4), "CPUs on which nobody ran have a name");
}
