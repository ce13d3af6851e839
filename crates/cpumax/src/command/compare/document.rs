//! A comparison as a document: when, with what, the matrix of scenarios, and what came of the
//! random cases.

use super::matrix_of;
use crate::args::CompareArgs;
use cpumax_compare::Cell;
use cpumax_compare::matrix::Noisy;
use cpumax_engine::NamedKernel;
use cpumax_lab::OF_MACHINE;
use cpumax_report::{Matrix, MatrixCell, escape, markdown};
use cpumax_workload::Workload;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::SystemTime;

/// The document, in Markdown. `columns` has the cells of each kernel, `cases` of the workloads at
/// the end are random.
pub fn text(
    args: &CompareArgs,
    title: &str,
    workloads: &[Workload],
    cases: usize,
    asked: &[NamedKernel],
    columns: &[Vec<Cell>],
) -> String {
    let (scenarios, cases) = workloads.split_at(workloads.len().saturating_sub(cases));
    let today = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let mut out = format!(
        "# {title}\n\nMade by {} (cpumax {}) on {}. How to read it: [compare.md](compare.md).\n\n",
        escape::markdown_name(&command(args)),
        env!("CARGO_PKG_VERSION"),
        today.get(..10).unwrap_or_default(),
    );
    out.push_str("| kernel | what ran | scenarios | random cases |\n|---|---|---|---|\n");
    for (kernel, cells) in asked.iter().zip(columns) {
        let ran = cells.first().map_or("-".to_owned(), |cell| escape::markdown(&cell.reference));
        let tally = |workloads: &[Workload]| {
            let matrix =
                matrix_of(workloads, std::slice::from_ref(kernel), std::slice::from_ref(cells));
            if workloads.is_empty() { "-".to_owned() } else { matrix.tally().sentence() }
        };
        let (scenarios, cases) = (tally(scenarios), tally(cases));
        let _ = writeln!(out, "| {} | {ran} | {scenarios} | {cases} |", kernel.name);
    }
    let machines = machines(workloads, columns);
    if !machines.is_empty() {
        let here = std::thread::available_parallelism().map_or(1, usize::from);
        let _ = writeln!(out, "\nOn a host with {here} CPUs:\n");
        for (cpus, note) in &machines {
            let _ = writeln!(out, "- machines with {cpus} CPUs: {}", escape::markdown(note));
        }
    }
    if !scenarios.is_empty() {
        let matrix = markdown(&matrix_of(scenarios, asked, columns));
        let _ = write!(out, "\n## Scenarios\n\n{matrix}");
    }
    let disagree = without_agreeing(&matrix_of(cases, asked, columns), cases.len());
    if !disagree.rows.is_empty() {
        let _ = write!(out, "\n## Random cases that disagree\n\n{}", markdown(&disagree));
    }
    out
}

/// What was told of machines of so many CPUs.
fn machines<'a>(workloads: &[Workload], columns: &'a [Vec<Cell>]) -> BTreeSet<(u16, &'a str)> {
    let cpus_of = |cell: &Cell| {
        let workload = workloads.iter().find(|workload| workload.name == cell.scenario);
        workload.map_or(0, |workload| workload.machine.cpus)
    };
    let notes = columns
        .iter()
        .flatten()
        .flat_map(|cell| cell.notes.iter().map(move |note| (cpus_of(cell), note.as_str())));
    notes.filter(|(_, note)| note.starts_with(OF_MACHINE)).collect()
}

/// Without those of the last `cases` rows in which nothing is beyond its tolerance and nothing
/// failed.
pub fn without_agreeing(matrix: &Matrix, cases: usize) -> Matrix {
    let bad = |cell: &MatrixCell| {
        matches!(cell, MatrixCell::Held { beyond: 1.., .. } | MatrixCell::Failed(_))
    };
    let (scenarios, cases) = matrix.rows.split_at(matrix.rows.len().saturating_sub(cases));
    let differ = cases.iter().filter(|(_, cells)| cells.iter().any(bad));
    let rows = scenarios.iter().chain(differ).cloned().collect();
    Matrix { columns: matrix.columns.clone(), rows }
}

/// The command again, without where its output goes.
fn command(args: &CompareArgs) -> String {
    let mut text = "cpumax compare".to_owned();
    let mut add = |word: String| {
        let _ = write!(text, " {word}");
    };
    args.scenarios.iter().for_each(|name| add(name.clone()));
    if args.all {
        add("--all".to_owned());
    }
    if let Some(cases) = args.cases {
        add(format!("--cases {}..{}", cases.first, cases.last));
    }
    add(format!("--kernel {} --on {}", args.kernel, args.on));
    if let Some(against) = &args.against {
        add(format!("--against {against}"));
    }
    if args.parallel {
        add("--parallel".to_owned());
        if args.median > 1 {
            add(format!("--median {}", args.median));
        }
    }
    if args.noisy != Noisy::MOST {
        add(format!("--noisy {}", args.noisy));
    }
    if args.trace.is_some() {
        add("--trace FOLDER".to_owned());
    }
    match args.seeds {
        Some(seeds) => add(format!("--seeds {}..{}", seeds.first, seeds.last)),
        None => add(format!("--seed {}", args.seed)),
    }
    text
}
