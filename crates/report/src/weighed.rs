//! Benefits and costs of the rules of each kernel: the table of docs/lab/proposal.md.

use crate::page::Page;
use crate::style::{BOLD, styled};
use crate::table::list;
use crate::units::{cpus, duration, percent};
use cpumax_forecast::weigh::{Unit, Weight, Worse};
use cpumax_machine::kernel::Kernel;
use cpumax_workload::Workload;
use std::fmt::Write;
use std::sync::Arc;

/// Columns: two for the row's name, then what tasks get, then its costs.
const HEADER: [&str; 12] = [
    "scenario", "kernel", "CPUs", "over", "stall", "p99", "even", "irqoff", "p99", "in all",
    "back", "idle",
];
const LEGEND: &str = "\
CPUs: used by limited groups, of a recording until its work is done. over: most beyond the quota \
in a period. stall: longest wait of a task. p99: of latencies. even: least use of alike tasks \
to the mean. irqoff: longest section that releases, its p99, all of them in a second; back: \
tasks put back in a second. idle: timers that go off for a group after it was last used, \
until it costs nothing. Means over seeds, but the longest.";

/// The table for each workload on each kernel, and where the last kernel is worse than the one with
/// index `base`.
pub fn weights_table(
    workloads: &[Arc<Workload>],
    kernels: &[Kernel],
    base: usize,
    weights: &[Vec<Weight>],
    page: Page,
) -> String {
    let mut rows = Vec::new();
    let mut worse = Vec::new();
    for (workload, weights) in workloads.iter().zip(weights) {
        for (at, (kernel, weight)) in kernels.iter().zip(weights).enumerate() {
            let name = if at == 0 { workload.name.clone() } else { String::new() };
            rows.push(row(weight, name, kernel));
        }
        let own = weights.last().map(|own| own.worse_than(&weights[base])).unwrap_or_default();
        worse.extend(own.iter().map(|what| format!("{}: {}", workload.name, told(what))));
    }
    let version = |kernel: Option<&Kernel>| kernel.map(|kernel| kernel.version.to_string());
    let [last, base] =
        [kernels.last(), kernels.get(base)].map(|kernel| version(kernel).unwrap_or_default());
    let mut out = table(&rows, page.width());
    let title = format!("Where {last} is worse than {base} by more than 5 %:");
    let _ = writeln!(out, "\n{}\n\n{}", page.wrapped(LEGEND), styled(BOLD, &title));
    if worse.is_empty() {
        out.push_str("nowhere\n");
    }
    for what in worse {
        let _ = writeln!(out, "{}", page.wrapped(&what));
    }
    out
}

/// One table; if it is too wide, one of what tasks get and one of the costs.
fn table(rows: &[Vec<String>], width: Option<u16>) -> String {
    let part = |columns: &[usize], width| {
        let of = |row: &Vec<String>| columns.iter().map(|&at| row[at].clone()).collect();
        let header: Vec<&str> = columns.iter().map(|&at| HEADER[at]).collect();
        list(&header, rows.iter().map(of), width)
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

    /// Two kernels of one scenario, with the widest value in each column.
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
