//! `cpumax weigh`: what the rules of each kernel give and cost, scenario by scenario, and where the
//! last kernel of the list does worse than the one it is held against. The table of
//! docs/proposal.md.

use crate::args::WeighArgs;
use crate::command::replay;
use crate::failure::Failure;
use crate::output::{self, BOLD};
use crate::runs::Terminal;
use anyhow::anyhow;
use cpumax_engine::weigh::{self as engine, Unit, Weight, Worse};
use cpumax_engine::{Running, builtin, scenario};
use cpumax_machine::kernel::{self, Kernel};
use cpumax_report::{cpus, duration, percent};
use cpumax_workload::Workload;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Left to whoever names them: minutes instead of seconds.
const TOO_LARGE: [&str; 2] = ["profile-384", "profile-384-together"];
/// Names of the columns: of two to know a row by, what tasks get, and what that costs.
const HEADER: [&str; 12] = [
    "scenario", "kernel", "CPUs", "over", "stall", "p99", "even", "irqoff", "p99", "in all",
    "back", "idle",
];
/// What the columns are.
const LEGEND: &str = "CPUs: used by limited groups, of a recording until its work is done. over: most beyond the quota in a period. stall: longest wait of a \
     task. p99: of latencies. even: least use of alike tasks to the mean. irqoff: longest section that releases, its \
     p99, all of them in a second; back: tasks put back in a second. idle: timers that go off for a group after it was \
     last used, until it costs nothing. Means over seeds, but the longest.";

pub fn weigh(args: &WeighArgs) -> Result<(), Failure> {
    let kernels = kernel::parse_kernels(&args.kernel)?;
    let base = base(args, &kernels)?;
    let workloads = workloads(args)?;
    let seeds = args.seeds.map_or(1..=3, |seeds| seeds.first..=seeds.last);
    let running = Running { threads: args.jobs.map(usize::from), ..Running::default() };
    let weights = engine::weigh(&workloads, &kernels, &seeds, running, &Terminal::new());
    let weights = weights.map_err(Failure::of)?;
    let mut rows = Vec::new();
    let mut worse = Vec::new();
    for (workload, weights) in workloads.iter().zip(&weights) {
        for (at, (kernel, weight)) in kernels.iter().zip(weights).enumerate() {
            let name = if at == 0 { workload.name.clone() } else { String::new() };
            rows.push(row(weight, name, kernel));
        }
        let own = weights.last().map(|own| own.worse_than(&weights[base])).unwrap_or_default();
        worse.extend(own.iter().map(|what| format!("{}: {}", workload.name, told(what))));
    }
    let versions = [kernels.last(), kernels.get(base)].map(|k| k.map(|k| k.version.to_string()));
    write(&versions.map(Option::unwrap_or_default), &rows, &worse)
}

/// Which of the kernels the last one is held against.
fn base(args: &WeighArgs, kernels: &[Kernel]) -> anyhow::Result<usize> {
    let Some(name) = &args.against else { return Ok(kernels.len().saturating_sub(2)) };
    let asked = kernel::parse_kernels(name)?;
    let is_asked = |k: &Kernel| asked.len() == 1 && k.version == asked[0].version;
    kernels.iter().position(is_asked).ok_or_else(|| {
        anyhow!("--against {name} is not one of the kernels that are weighed: {}", args.kernel)
    })
}

fn write(
    [last, base]: &[String; 2],
    rows: &[Vec<String>],
    worse: &[String],
) -> Result<(), Failure> {
    let mut out = output::stdout();
    write!(out, "{}", table(rows, output::width()))?;
    writeln!(out, "\n{}", output::wrapped(LEGEND))?;
    let title = format!("Where {last} is worse than {base} by more than 5 %:");
    writeln!(out, "\n{}", output::styled(BOLD, &title))?;
    if worse.is_empty() {
        writeln!(out, "nowhere")?;
    }
    for what in worse {
        writeln!(out, "{}", output::wrapped(what))?;
    }
    Ok(out.flush()?)
}

/// One table; where there is no room for it, one of what tasks get and one of what that costs.
fn table(rows: &[Vec<String>], width: Option<u16>) -> String {
    let part = |columns: &[usize], width| {
        let of = |row: &Vec<String>| columns.iter().map(|&at| row[at].clone()).collect();
        let header: Vec<&str> = columns.iter().map(|&at| HEADER[at]).collect();
        cpumax_report::list(&header, rows.iter().map(of), width)
    };
    let all: Vec<usize> = (0..HEADER.len()).collect();
    let whole = part(&all, None);
    let is_wider = |width| whole.lines().any(|line| line.chars().count() > usize::from(width));
    if !width.is_some_and(is_wider) {
        return whole;
    }
    let get = part(&[0, 1, 2, 3, 4, 5, 6], width);
    let costs = part(&[0, 1, 7, 8, 9, 10, 11], width);
    format!("{get}\n{costs}")
}

fn workloads(args: &WeighArgs) -> Result<Vec<Arc<Workload>>, Failure> {
    let built_in = || builtin::ALL.iter().map(|b| b.name).filter(|name| !TOO_LARGE.contains(name));
    let names: Vec<&str> = match args.scenarios.as_slice() {
        [] => built_in().collect(),
        named => named.iter().map(String::as_str).collect(),
    };
    let mut workloads = Vec::new();
    let is_recording = |name: &&str| scenario::is_recording(Path::new(name));
    if args.set.is_some() && !names.iter().any(is_recording) {
        return Err(anyhow!("--set is for recordings, and none is weighed").into());
    }
    for name in names {
        if is_recording(&name) {
            let Some(set) = &args.set else {
                let what = "give the limit that it is to have by --set";
                return Err(anyhow!("{name} is a recording: {what}").into());
            };
            if args.duration.is_some() {
                let what = format!("{name} lasts as long as was recorded");
                return Err(anyhow!("--for is for scenarios: {what}").into());
            }
            // The phase of its periods stays random: what it does comes at times of its own.
            workloads.push(Arc::new(replay::limited(Path::new(name), set)?));
            continue;
        }
        let mut parts = scenario::load(name).map_err(Failure::of)?.into_parts();
        // Periods are the windows in which use is counted.
        parts.machine.timer_phase_ns = Some(0);
        if let Some(duration) = args.duration {
            match u64::try_from(duration.as_nanos()) {
                Ok(ns @ 1..=cpumax_workload::bounds::MAX_DURATION_NS) => parts.duration_ns = ns,
                _ => return Err(anyhow!("--for takes more than nothing and at most a day").into()),
            }
        }
        workloads.push(Arc::new(parts.try_into()?));
    }
    Ok(workloads)
}

fn row(weight: &Weight, name: String, kernel: &Kernel) -> Vec<String> {
    let ns = |ns: f64| if ns < 1.0 { "-".to_owned() } else { duration(ns as u64) };
    vec![
        name,
        kernel.version.to_string(),
        cpus(weight.used.max(0.0)),
        ns(weight.over_ns),
        ns(weight.stall_ns),
        ns(weight.p99_ns),
        weight.even.map_or_else(|| "-".to_owned(), percent),
        ns(weight.irqoff_max_ns as f64),
        ns(weight.irqoff_p99_ns),
        ns(weight.spent_ns),
        format!("{:.0}", weight.tasks),
        format!("{:.1}", weight.idle),
    ]
}

fn told(worse: &Worse) -> String {
    let Worse { what, own, other, unit } = *worse;
    match unit {
        Unit::Ns => {
            format!("{what} {} instead of {}", duration(own as u64), duration(other as u64))
        }
        Unit::Timers => format!("{own:.1} timers of an idle group instead of {other:.1}"),
        Unit::Number => format!("{what} {} instead of {}", cpus(own), cpus(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two kernels of one scenario, with the widest of everything.
    fn rows() -> Vec<Vec<String>> {
        let name = ["profile-384-together", ""];
        let row = |name: &str| {
            let cells = [name, "7.3", "0.0947", "0.15ms", "99.5ms", "99.5ms", "100%", "1.14us"];
            let costs = ["1.14us", "57.5ms", "199954", "2.0"];
            cells.iter().chain(&costs).map(|&cell| cell.to_owned()).collect()
        };
        name.map(row).to_vec()
    }

    #[test]
    fn a_table_that_is_wider_than_the_terminal_is_two() {
        assert_eq!(table(&rows(), Some(104)).lines().count(), 2 + 2);
        assert_eq!(table(&rows(), None), table(&rows(), Some(104)), "there is room for it");
        let expected = "\
scenario              kernel  CPUs    over    stall   p99     even
------------------------------------------------------------------
profile-384-together  7.3     0.0947  0.15ms  99.5ms  99.5ms  100%
                      7.3     0.0947  0.15ms  99.5ms  99.5ms  100%

scenario              kernel  irqoff  p99     in all  back    idle
------------------------------------------------------------------
profile-384-together  7.3     1.14us  1.14us  57.5ms  199954  2.0
                      7.3     1.14us  1.14us  57.5ms  199954  2.0
";
        assert_eq!(table(&rows(), Some(80)), expected);
    }
}
