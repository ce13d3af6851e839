//! Growth of time and memory with CPUs, groups and tasks: `cargo bench -p cpumax-machine --bench
//! scaling`.
//!
//! Each point is a process that runs one workload and prints its CPU time and its largest resident
//! size. Where valgrind is installed, two more run under callgrind, for the instructions between
//! two points of time. The table goes to standard output, the curves to target/scaling.svg.

#[path = "shared/measure.rs"]
mod measure;

use cpu_time::ProcessTime;
use cpumax_machine::{Options, kernel, run};
use cpumax_workload::Workload;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Makes this program run one point: `--point MS KERNEL CPUS GROUPS TASKS`.
const POINT: &str = "--point";
const KERNELS: [&str; 3] = ["6.18", "7.3", "pull"];
const SIMULATED_MS: u64 = 1_000;
/// Interval in which instructions are counted: one period, after the start.
const COUNTED_MS: [u64; 2] = [100, 200];
/// The values that vary, with those of the others: CPUs, groups, tasks.
const CURVES: [(&str, [&[u32]; 3]); 3] = [
    ("CPUs", [&[8, 32, 128, 512, 1024], &[100], &[4000]]),
    ("groups", [&[64], &[10, 100, 1000, 5000, 20_000], &[4000]]),
    ("tasks", [&[64], &[100], &[100, 1000, 10_000, 50_000, 200_000]]),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [POINT, ms, kernel, cpus, groups, tasks] => point(ms, kernel, [cpus, groups, tasks]),
        ref args if !args.contains(&"--bench") => Ok(()),
        _ => curves(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

/// One limited group, with half the CPUs, above all others, which are leaves; the tasks never
/// stop.
fn workload(ms: u32, [cpus, groups, tasks]: [u32; 3]) -> Result<Workload, String> {
    let leaves = groups.clamp(1, tasks);
    let idle = groups - leaves;
    let quota_us = u64::from(cpus) * 50_000;
    let mut text = format!(
        "name = \"scaling\"\nshows = \"-\"\nduration = \"{ms}ms\"\n\
         machine = {{ cpus = {cpus}, llc = 8 }}\n\
         [[group]]\npath = \"/limited\"\nmax = \"{quota_us} 100000\"\n\
         [[group]]\npath = \"/limited/leaf{{0..{}}}\"\n",
        leaves - 1
    );
    if idle > 0 {
        let _ = writeln!(text, "[[group]]\npath = \"/limited/idle{{0..{}}}\"", idle - 1);
    }
    let _ = write!(
        text,
        "[[task]]\nname = \"hog{{0..{}}}\"\ncount = {}\ngroup = \"/limited/leaf{{0..{}}}\"\n\
         program = [{{ forever = [{{ user = \"1s\" }}] }}]\n",
        leaves - 1,
        tasks / leaves,
        leaves - 1
    );
    cpumax_workload::parse(&text, "scaling").map_err(|error| error.to_string())
}

fn point(ms: &str, kernel: &str, size: [&str; 3]) -> Result<(), String> {
    let number = |text: &str| text.parse::<u32>().map_err(|_| format!("{text} is no number"));
    let size = [number(size[0])?, number(size[1])?, number(size[2])?];
    let workload = workload(number(ms)?, size)?;
    let kernel = kernel::parse_kernels(kernel).map_err(|error| error.to_string())?[0];
    let options = Options::new(kernel, 1);
    let start = ProcessTime::now();
    let outcome = run(&workload, &options, None, None).map_err(|error| error.to_string())?;
    println!("{} {} {}", start.elapsed().as_millis(), measure::resident_kib(), outcome.events);
    Ok(())
}

/// Measurements of a point: time, ms; instructions, in thousands (0: not counted); resident size,
/// KiB; events.
type Measured = [u64; 4];

fn measure(kernel: &str, size: [u32; 3]) -> Result<Measured, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(program)
        .args(arguments(SIMULATED_MS, kernel, size))
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let [ms, kib, events] = <[u64; 3]>::try_from(numbers)
        .map_err(|_| format!("{kernel} {size:?}: {}", String::from_utf8_lossy(&output.stderr)))?;
    Ok([ms, instructions(kernel, size).unwrap_or(0) / 1000, kib, events])
}

fn arguments(ms: u64, kernel: &str, size: [u32; 3]) -> Vec<String> {
    let first = [POINT.to_owned(), ms.to_string(), kernel.to_owned()];
    first.into_iter().chain(size.map(|n| n.to_string())).collect()
}

fn instructions(kernel: &str, size: [u32; 3]) -> Option<u64> {
    let count = |ms: u64| {
        let args = arguments(ms, kernel, size);
        measure::callgrind(&args.iter().map(AsRef::as_ref).collect::<Vec<_>>())
    };
    let [from_ms, to_ms] = COUNTED_MS;
    count(to_ms)?.1.checked_sub(count(from_ms)?.1)
}

fn curves() -> Result<(), String> {
    let [from_ms, to_ms] = COUNTED_MS;
    println!(
        "{SIMULATED_MS} ms simulated, seed 1; CPU time of one thread, millions of instructions \
         from {from_ms} to {to_ms} ms, largest resident size"
    );
    println!(
        "{:>6} {:>6} {:>6} {:>7} {:>9} {:>9} {:>9} {:>10}",
        "kernel", "CPUs", "groups", "tasks", "ms", "M instr.", "MiB", "events"
    );
    let mut panels = Vec::new();
    for (name, ranges) in CURVES {
        let mut lines = Vec::new();
        for kernel in KERNELS {
            let mut line = Vec::new();
            for size in sizes(ranges) {
                let measured @ [ms, thousands, kib, events] = measure(kernel, size)?;
                let [cpus, groups, tasks] = size;
                println!(
                    "{kernel:>6} {cpus:>6} {groups:>6} {tasks:>7} {ms:>9} {:>9.1} {:>9.1} \
                     {events:>10}",
                    thousands as f64 / 1e3,
                    kib as f64 / 1024.0
                );
                let at = size.into_iter().zip(ranges).find(|(_, range)| range.len() > 1);
                line.push((at.map_or(0, |(n, _)| n), measured));
            }
            lines.push((kernel, line));
        }
        panels.push((name, lines));
    }
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).with_file_name("scaling.svg");
    std::fs::write(&path, svg(&panels)).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("curves: {}", path.display());
    Ok(())
}

fn sizes(ranges: [&'static [u32]; 3]) -> impl Iterator<Item = [u32; 3]> {
    let [cpus, groups, tasks] = ranges;
    cpus.iter()
        .flat_map(move |&c| groups.iter().flat_map(move |&g| tasks.iter().map(move |&t| [c, g, t])))
}

type Panel<'a> = (&'a str, Vec<(&'a str, Vec<(u32, Measured)>)>);

const WIDE: f64 = 300.0;
const HIGH: f64 = 220.0;
const COLOURS: [&str; 3] = ["#1f77b4", "#ff7f0e", "#2ca02c"];

/// Measured quantities, one row of panels each, and how many units are one on the axis.
const ROWS: [(&str, f64); 3] =
    [("CPU time, ms", 1.0), ("M instructions a period", 1e3), ("memory, MiB", 1024.0)];

/// One panel for each varied value and each measurement, both axes logarithmic.
fn svg(panels: &[Panel<'_>]) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        panels.len() as f64 * (WIDE + 60.0) + 20.0,
        ROWS.len() as f64 * (HIGH + 60.0) + 20.0
    );
    for (column, (name, lines)) in panels.iter().enumerate() {
        for (row, (what, scale)) in ROWS.iter().enumerate() {
            let points: Vec<Vec<(f64, f64)>> = lines
                .iter()
                .map(|(_, line)| {
                    line.iter()
                        .map(|(n, m)| (f64::from(*n), (m[row] as f64 / scale).max(1.0)))
                        .collect()
                })
                .collect();
            let left = column as f64 * (WIDE + 60.0) + 50.0;
            let top = row as f64 * (HIGH + 60.0) + 30.0;
            panel(&mut out, (left, top), (name, what), &points);
        }
    }
    for (at, kernel) in KERNELS.iter().enumerate() {
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"14\" fill=\"{}\">{kernel}</text>",
            50 + 60 * at,
            COLOURS[at]
        );
    }
    out + "</svg>\n"
}

fn panel(
    out: &mut String,
    (left, top): (f64, f64),
    (x_name, y_name): (&str, &str),
    lines: &[Vec<(f64, f64)>],
) {
    let all = || lines.iter().flatten();
    let range = |of: &dyn Fn(&(f64, f64)) -> f64| {
        let low = all().map(of).fold(f64::INFINITY, f64::min).log10().floor();
        let high = all().map(of).fold(1.0, f64::max).log10().ceil();
        (low, high.max(low + 1.0))
    };
    let (x_range, y_range) = (range(&|p| p.0), range(&|p| p.1));
    let x = |v: f64| left + (v.log10() - x_range.0) / (x_range.1 - x_range.0) * WIDE;
    let y = |v: f64| top + HIGH - (v.log10() - y_range.0) / (y_range.1 - y_range.0) * HIGH;
    let _ = writeln!(
        out,
        "<rect x=\"{left}\" y=\"{top}\" width=\"{WIDE}\" height=\"{HIGH}\" fill=\"none\" \
         stroke=\"#999\"/>"
    );
    let _ = writeln!(out, "<text x=\"{left}\" y=\"{}\">{x_name}: {y_name}</text>", top - 4.0);
    for (low, high, is_x) in [(x_range.0, x_range.1, true), (y_range.0, y_range.1, false)] {
        for power in low as i32..=high as i32 {
            let value = 10f64.powi(power);
            let (tx, ty) = if is_x {
                (x(value) - 8.0, top + HIGH + 14.0)
            } else {
                (left - 40.0, y(value) + 4.0)
            };
            let _ = writeln!(out, "<text x=\"{tx:.0}\" y=\"{ty:.0}\">{value}</text>");
        }
    }
    for (line, colour) in lines.iter().zip(COLOURS) {
        let path: Vec<String> =
            line.iter().map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1))).collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
            path.join(" ")
        );
    }
}
