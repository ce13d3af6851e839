//! A perf.data file and the text that `perf script` prints of it are the same recording.
//!
//! `web.perf.data` was made while two clients asked a small server over the loopback device, with
//! scheduler, system call, interrupt and timer events. `perf script --header --ns -F
//! comm,tid,cpu,time,event,trace --show-task-events --show-cgroup-events` printed `web.txt` of it;
//! addresses and process columns are left out.

use cpumax_recording::{Options, Recording, Selection, Selector};
use cpumax_workload::{Op, Workload};
use std::path::{Path, PathBuf};

fn read(name: &str) -> Recording {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    Recording::read(&path, Options::default()).unwrap()
}

fn workload(recording: &Recording) -> Workload {
    let selector: Selector = "srv-*".parse().unwrap();
    let selection = Selection { limited: vec![selector], ..Selection::default() };
    // Its origin is not part of the comparison.
    recording.workload(&selection).unwrap().with_name("same", "").unwrap()
}

#[test]
fn data_and_text_make_the_same_workload() {
    let (data, text) = (read("web.perf.data"), read("web.txt"));
    assert_eq!(data.span_ns(), text.span_ns());
    let (a, b) = (workload(&data), workload(&text));
    assert_eq!(a.tasks.len(), b.tasks.len());
    for (a, b) in a.tasks.iter().zip(&b.tasks) {
        assert_eq!(a, b);
    }
    assert_eq!(a, b);
}

#[test]
fn a_client_waits_for_its_server_and_thinks_in_between() {
    let workload = workload(&read("web.perf.data"));
    let program = |name: &str| {
        let of_name = |task: &&cpumax_workload::TaskSpec| task.name.starts_with(name);
        &workload.tasks.iter().find(of_name).unwrap().program
    };
    let count =
        |name: &str, what: fn(&Op) -> bool| program(name).iter().filter(|op| what(op)).count();
    for (client, server) in [("cli-00", "srv-00"), ("cli-01", "srv-01")] {
        assert!(
            count(client, |op| matches!(op, Op::Recv { .. })) >= 5,
            "{client} waits for answers"
        );
        assert!(count(client, |op| matches!(op, Op::Sleep(_))) >= 4, "{client} thinks");
        assert_eq!(count(server, |op| matches!(op, Op::Serve { .. })), 1, "{server} serves");
    }
    let of_jobs = |what: fn(&Op) -> bool| {
        workload.jobs.iter().flat_map(|job| &job.program).filter(|op| what(op)).count()
    };
    let answers = of_jobs(|op| *op == Op::Done);
    let asked_again = of_jobs(|op| matches!(op, Op::After { .. }));
    assert!(answers >= 10 && asked_again + 2 == answers, "{asked_again} of {answers}");
}

/// The shipped recordings that are present.
fn shipped() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|x| x == "data"))
        .collect();
    files.sort();
    files
}

#[test]
fn shipped_recordings_can_be_read_and_are_worth_it() {
    let files = shipped();
    assert!(files.len() >= 3);
    for file in files {
        let recording = Recording::read(&file, Options::default()).unwrap();
        let (summary, defects) = (recording.summary(), recording.defects());
        assert!(std::fs::metadata(&file).unwrap().len() <= 2 << 20, "{}", file.display());
        assert_eq!(defects.lost_events, 0, "{}", file.display());
        assert!(defects.mismatched_switches < summary.events / 50, "{}: {defects}", file.display());
        let selection = Selection {
            limited: vec!["cgroup:/testload".parse().unwrap()],
            ..Selection::default()
        };
        let workload = recording.workload(&selection).unwrap();
        let chosen = workload.tasks.iter().filter(|task| task.group != 0).count();
        assert!(chosen >= 2, "{}: {chosen} threads in /testload", file.display());
    }
}
