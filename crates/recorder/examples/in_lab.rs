//! Records two threads that wake each other, and prints the recorded file, for tests/lab.rs. A
//! virtual machine of the lab has neither a C library nor a command to record.

use cpumax_recorder::{Request, Target, record};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

const ROUNDS: u32 = 200;
/// Iterations of each thread in a round; a fixed number, so recording does not change the work.
const WORK: [u64; 2] = [300_000, 100_000];

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().any(|word| word == "load") {
        load();
        return Ok(());
    }
    let this = std::env::current_exe()?.into_os_string();
    let status = std::process::Command::new(&this).arg("load").status()?;
    if !status.success() {
        return Err(format!("the load without a recording: {status}").into());
    }
    // The rights of a recorder in a pod.
    let rights = CapabilitySet::BPF | CapabilitySet::PERFMON;
    let (effective, permitted, inheritable) = (rights, rights, CapabilitySet::empty());
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable })?;
    let file = PathBuf::from("/recording");
    let what = Target::Command(vec![this, "load".into()]);
    let request = Request {
        calls: true,
        memory: 8 << 20,
        time: Some(Duration::from_secs(60)),
        ..Request::new(what, file.clone())
    };
    let told = record(&request, &mut |_| true)?;
    println!("lost {}", told.progress.lost);
    let recorded = std::fs::read(&file)?;
    let mut line = String::from("file ");
    recorded.iter().try_for_each(|byte| write!(line, "{byte:02x}"))?;
    println!("{line}");
    Ok(())
}

/// Runs both threads and prints the CPU time of each, ns.
fn load() {
    let (to_other, from_first) = channel();
    let (to_first, from_other) = channel();
    let other = thread::Builder::new()
        .name("other".to_owned())
        .spawn(move || work(WORK[1], &from_first, &to_first));
    let first = thread::Builder::new().name("first".to_owned()).spawn(move || {
        let _ = to_other.send(());
        work(WORK[0], &from_other, &to_other)
    });
    for (name, thread) in [("first", first), ("other", other)] {
        let used_ns = thread.expect("a thread").join().expect("no panic");
        println!("{name} {used_ns}");
    }
}

/// Works at each message and sends one back; returns its CPU time, ns.
fn work(counts: u64, told: &Receiver<()>, tell: &Sender<()>) -> u64 {
    for _ in 0..ROUNDS {
        if told.recv().is_err() {
            break;
        }
        (0..counts).for_each(|count| {
            std::hint::black_box(count);
        });
        let _ = tell.send(());
        thread::sleep(Duration::from_micros(100));
    }
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}
