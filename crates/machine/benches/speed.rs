//! Speed of the model: `make bench`, or `cargo bench -p cpumax-machine --bench speed -- [FILTER]`.
//!
//! For each workload and kernel: events per second of CPU time, the best of a few runs, and
//! instructions per event, which do not depend on other load of the machine. Callgrind counts
//! instructions on runs of two lengths, whose difference excludes the start; without valgrind that
//! column is empty.
//! valgrind that column is empty.

#[path = "shared/measure.rs"]
mod measure;

use cpu_time::ProcessTime;
use cpumax_machine::{Options, kernel, run};
use cpumax_workload::Workload;
use std::path::Path;
use std::process::ExitCode;

const SEED: u64 = 1;
const KERNELS: &str = "4.19,6.1,6.18,7.3";
/// File; simulated time for timing, ms; simulated time of the longer run for counting, ms (the
/// other is half as long).
const WORKLOADS: [(&str, u64, u64); 3] = [
    ("../../scenarios/fibtest.toml", 60_000, 4_000),
    ("benches/mix.toml", 3_000, 200),
    ("../../scenarios/profile-small.toml", 30_000, 2_000),
];
const RUNS: u32 = 3;
/// Makes this program run one workload once: `--once FILE KERNEL MS`.
const ONCE: &str = "--once";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [ONCE, file, kernel, ms] => once(file, kernel, ms),
        // `cargo bench` passes this; `cargo test` does not, and measures nothing.
        ref args if !args.contains(&"--bench") => Ok(()),
        ref args => table(args.iter().find(|arg| !arg.starts_with("--")).copied().unwrap_or("")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

/// The run that is counted under callgrind; prints its number of events.
fn once(file: &str, version: &str, ms: &str) -> Result<(), String> {
    let ms = ms.parse().map_err(|_| format!("{ms} is no number of milliseconds"))?;
    let workload = workload(Path::new(file), ms)?;
    let kernel = kernels(version)?[0];
    println!("{}", events(&workload, kernel)?);
    Ok(())
}

fn table(filter: &str) -> Result<(), String> {
    println!("seed {SEED}, best of {RUNS} runs, CPU time of one thread");
    println!(
        "{:<14} {:>6} {:>10} {:>10} {:>8} {:>18}",
        "workload", "kernel", "events", "events/s", "ns/event", "instructions/event"
    );
    for (file, time_ms, count_ms) in WORKLOADS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let workload = workload(&path, time_ms)?;
        for kernel in kernels(KERNELS)? {
            let row = format!("{:<14} {:>6}", workload.name, kernel.version.to_string());
            if !row.contains(filter) {
                continue;
            }
            let (events, ns) = best(&workload, kernel)?;
            let instructions = instructions_per_event(&path, kernel, count_ms)
                .map_or_else(|| "-".to_owned(), |n| format!("{n}"));
            println!(
                "{row} {events:>10} {:>10} {:>8} {instructions:>18}",
                u128::from(events) * 1_000_000_000 / ns.max(1),
                ns / u128::from(events.max(1)),
            );
        }
    }
    Ok(())
}

fn workload(path: &Path, ms: u64) -> Result<Workload, String> {
    let workload = cpumax_workload::load(path).map_err(|error| error.to_string())?;
    let workload = workload.with_duration(ms * 1_000_000).map_err(|error| error.to_string())?;
    Ok(workload)
}

fn kernels(list: &str) -> Result<Vec<kernel::Kernel>, String> {
    kernel::parse_kernels(list).map_err(|error| error.to_string())
}

fn events(workload: &Workload, kernel: kernel::Kernel) -> Result<u64, String> {
    let options = Options::new(kernel, SEED);
    let outcome = run(workload, &options, None, None).map_err(|error| error.to_string())?;
    Ok(outcome.events)
}

/// Number of events of a run, and the time of the fastest, ns.
fn best(workload: &Workload, kernel: kernel::Kernel) -> Result<(u64, u128), String> {
    let mut best = (0, u128::MAX);
    for _ in 0..RUNS {
        let start = ProcessTime::now();
        let events = events(workload, kernel)?;
        let ns = start.elapsed().as_nanos();
        best = (events, ns.min(best.1));
    }
    Ok(best)
}

fn instructions_per_event(path: &Path, kernel: kernel::Kernel, ms: u64) -> Option<u64> {
    let (short_events, short) = callgrind(path, kernel, ms / 2)?;
    let (long_events, long) = callgrind(path, kernel, ms)?;
    let events = long_events.checked_sub(short_events).filter(|&events| events > 0)?;
    Some(long.checked_sub(short)? / events)
}

/// Events and instructions of one run, if valgrind is installed.
fn callgrind(path: &Path, kernel: kernel::Kernel, ms: u64) -> Option<(u64, u64)> {
    let (version, ms) = (kernel.version.to_string(), ms.to_string());
    let args = [ONCE.as_ref(), path.as_os_str(), version.as_ref(), ms.as_ref()];
    let (events, instructions) = measure::callgrind(&args)?;
    Some((events.trim().parse().ok()?, instructions))
}
