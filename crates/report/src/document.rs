//! A comparison as a document: when, with what, the matrix of scenarios, and what came of the
//! random cases.

use crate::escape;
use crate::matrix::{agreement, markdown};
use cpumax_compare::Comparison;
use cpumax_workload::Workload;
use std::fmt::Write;

/// How a comparison was made.
#[derive(Debug, Clone)]
pub struct Made<'a> {
    /// The command that makes it again.
    pub by: &'a str,
    /// The version of cpumax.
    pub version: &'a str,
    /// The day, as in `2026-05-01`.
    pub on: &'a str,
    /// How many CPUs the host has.
    pub cpus: usize,
}

/// The document, in Markdown.
pub fn document(comparison: &Comparison, title: &str, made: &Made<'_>) -> String {
    let mut out = format!(
        "# {title}\n\nMade by {} (cpumax {}) on {}. How to read it: docs/lab/compare.md.\n\n",
        escape::markdown_name(made.by),
        made.version,
        made.on,
    );
    let (scenarios, cases) = comparison.split();
    let of = |workloads: &[Workload]| comparison.matrix_of(workloads);
    let (of_scenarios, of_cases) = (of(scenarios), of(cases));
    out.push_str("| kernel | what ran | scenarios | random cases |\n|---|---|---|---|\n");
    for (at, (kernel, cells)) in comparison.kernels.iter().zip(&comparison.columns).enumerate() {
        let ran = cells.first().map_or("-".to_owned(), |cell| escape::markdown(&cell.reference));
        let tallies = [&of_scenarios, &of_cases].map(|matrix| {
            let none = matrix.rows.is_empty();
            if none { "-".to_owned() } else { matrix.tally_of(at).sentence() }
        });
        let _ = writeln!(out, "| {} | {ran} | {} |", kernel.name, tallies.join(" | "));
    }
    let machines = comparison.machines();
    if !machines.is_empty() {
        let _ = writeln!(out, "\nOn a host with {} CPUs:\n", made.cpus);
        for (cpus, note) in &machines {
            let _ = writeln!(out, "- machines with {cpus} CPUs: {}", escape::markdown(note));
        }
    }
    if !scenarios.is_empty() {
        let (summary, table) = (agreement(&of_scenarios), markdown(&of_scenarios));
        let _ = write!(out, "\n## Scenarios\n\n{summary}\n{table}");
    }
    let disagree = of_cases.disagreeing();
    if !disagree.rows.is_empty() {
        let _ = write!(out, "\n## Random cases that disagree\n\n{}", markdown(&disagree));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpumax_compare::Mode;
    use cpumax_compare::Noisy;
    use cpumax_compare::{How, Pairing, Tally};
    use cpumax_study::{kernels, scenario};

    #[test]
    fn a_document_has_each_kernel_and_only_cases_that_disagree() {
        let mut comparison = Comparison {
            workloads: vec![scenario::load("nested").unwrap(), scenario::load("case-7").unwrap()],
            cases: 1,
            kernels: kernels::modelled("7.3").unwrap(),
            against: kernels::modelled("7.3").unwrap().pop(),
            columns: Vec::new(),
        };
        let pairing = Pairing { seeds: 1..=1, trace: false, noisy: Noisy::only(0), runs: 1 };
        let stop = || false;
        let (mode, releases) = (Mode::Exact, false);
        let how = How { real: false, mode, side_by_side: None, kept: None, releases, stop };
        comparison.run(&pairing, how, |_| ()).unwrap();
        let agree = Tally { agree: 1, ..Tally::default() }.sentence();
        let made = Made { by: "cpumax compare a|b", version: "1", on: "2026-05-01", cpus: 2 };
        let text = document(&comparison, "Models", &made);
        let expected = format!(
            "# Models\n\nMade by cpumax compare a&#124;b (cpumax 1) on 2026-05-01. How to read it: \
             docs/lab/compare.md.\n\n\
             | kernel | what ran | scenarios | random cases |\n|---|---|---|---|\n\
             | 7.3 | model 7.3 | {agree} | {agree} |\n\n\
             ## Scenarios\n\n| agree on | scenarios |\n|---|---|\n| 1 of 1 | `nested` |\n\n\
             | | 7.3 |\n|---|---|\n| `nested` | 0.0 |\n"
        );
        assert_eq!(text, expected);
    }
}
