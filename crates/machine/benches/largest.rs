//! Speed of the largest scenario: `cargo bench -p cpumax-machine --bench largest -- [KERNEL]`.
//!
//! Runs a minute of scenarios/profile-384.toml for each kernel, in one thread, and takes the best
//! of a few runs, each in a process of its own. Also prints instructions per simulated second,
//! counted by callgrind between two points of it.

#[path = "shared/measure.rs"]
mod measure;

use cpu_time::ProcessTime;
use cpumax_machine::{Options, kernel, run};
use std::path::Path;
use std::process::{Command, ExitCode};

const SCENARIO: &str = "../../scenarios/profile-384.toml";
const KERNELS: [&str; 5] = ["6.1", "6.12", "6.18", "7.3", "pull"];
const SEED: u64 = 1;
const SIMULATED_MS: u64 = 60_000;
/// Interval in which instructions are counted: two periods, after the start.
const COUNTED_MS: [u64; 2] = [300, 500];
const RUNS: u32 = 2;
/// Makes this program execute one run: `--once KERNEL MS`.
const ONCE: &str = "--once";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [ONCE, kernel, ms] => once(kernel, ms),
        // `cargo bench` passes this; `cargo test` does not, and measures nothing.
        ref args if !args.contains(&"--bench") => Ok(()),
        ref args => table(args.iter().find(|arg| !arg.starts_with("--")).copied()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

/// Prints CPU time, ms, resident size, KiB, and events.
fn once(kernel: &str, ms: &str) -> Result<(), String> {
    let ms: u64 = ms.parse().map_err(|_| format!("{ms} is no number of milliseconds"))?;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(SCENARIO);
    let workload = cpumax_workload::load(&path).map_err(|error| error.to_string())?;
    let workload = workload.with_duration(ms * 1_000_000).map_err(|error| error.to_string())?;
    let kernel = kernel::parse_kernels(kernel).map_err(|error| error.to_string())?[0];
    let start = ProcessTime::now();
    let options = Options::new(kernel, SEED);
    let outcome = run(&workload, &options, None, None).map_err(|error| error.to_string())?;
    let took_ms = start.elapsed().as_millis();
    println!("{took_ms} {} {}", measure::resident_kib(), outcome.events);
    Ok(())
}

fn table(only: Option<&str>) -> Result<(), String> {
    println!(
        "profile-384, {SIMULATED_MS} ms simulated, seed {SEED}, best of {RUNS} runs, CPU time of \
         one thread"
    );
    println!(
        "{:>6} {:>8} {:>22} {:>10} {:>6} {:>22}",
        "kernel", "CPU s", "faster than real time", "events", "MiB", "M instructions a second"
    );
    for kernel in KERNELS {
        if only.is_some_and(|only| only != kernel) {
            continue;
        }
        let mut best = measured(kernel)?;
        for _ in 1..RUNS {
            best = best.min(measured(kernel)?);
        }
        let [ms, kib, events] = best;
        let instructions = instructions_a_second(kernel)
            .map_or_else(|| "-".to_owned(), |n| (n / 1_000_000).to_string());
        println!(
            "{kernel:>6} {:>8.1} {:>22.1} {events:>10} {:>6} {instructions:>22}",
            ms as f64 / 1e3,
            SIMULATED_MS as f64 / ms.max(1) as f64,
            kib / 1024
        );
    }
    Ok(())
}

fn measured(kernel: &str) -> Result<[u64; 3], String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(program)
        .args([ONCE, kernel, &SIMULATED_MS.to_string()])
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    <[u64; 3]>::try_from(numbers)
        .map_err(|_| format!("{kernel}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn instructions_a_second(kernel: &str) -> Option<u64> {
    let count = |ms: u64| {
        let ms = ms.to_string();
        measure::callgrind(&[ONCE.as_ref(), kernel.as_ref(), ms.as_ref()])
    };
    let [from_ms, to_ms] = COUNTED_MS;
    let between = count(to_ms)?.1.checked_sub(count(from_ms)?.1)?;
    Some(between * 1000 / (to_ms - from_ms))
}
