//! A matrix of workloads and kernels: in each cell how far two worlds are apart, as a table for a
//! terminal, as Markdown, and as a picture ([`svg`]).
//!
//! Numbers are multiples of the tolerance: 1 is its edge. What was not compared has its reason
//! below.

mod svg;

use crate::escape::{self, line, markdown_name};
use crate::style::{BAD, DIM, GOOD, NEAR, Style};
use crate::units::duration;
use cpumax_compare::{Matrix, MatrixCell};
use cpumax_outcome::Deviation;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;

pub use svg::svg;

/// Most disagreements of one cell that are listed below the matrix.
const TOLD: usize = 3;

/// The matrix as text with colours (ANSI), and below it what disagrees and what could not be run.
pub fn matrix(matrix: &Matrix) -> String {
    let width = |(name, _): &(String, _)| line(name).chars().count();
    let name_width = matrix.rows.iter().map(width).max().unwrap_or(0);
    let widths: Vec<usize> = (0..matrix.columns.len())
        .map(|column| {
            let cells = matrix.rows.iter().filter_map(|(_, cells)| cells.get(column));
            let widest = cells.map(|cell| text(cell).chars().count()).max().unwrap_or(0);
            widest.max(matrix.columns[column].chars().count())
        })
        .collect();
    let mut out = " ".repeat(name_width);
    for (name, &width) in matrix.columns.iter().zip(&widths) {
        let _ = write!(out, "  {name:>width$}");
    }
    out.push('\n');
    for (name, cells) in &matrix.rows {
        let _ = write!(out, "{:name_width$}", line(name));
        for (cell, &width) in cells.iter().zip(&widths) {
            let (style, text) = (style(cell), text(cell));
            let _ = write!(out, "  {style}{text:>width$}{style:#}");
        }
        out.push('\n');
    }
    let below = [disagreements(matrix), reasons(matrix)].concat();
    if !below.is_empty() {
        out.push('\n');
    }
    for told in below {
        let _ = writeln!(out, "{}", line(&told));
    }
    out
}

/// The matrix as a Markdown table, and below it what disagrees and what could not be run.
pub fn markdown(matrix: &Matrix) -> String {
    let mut out = format!("| | {} |\n", matrix.columns.join(" | "));
    let _ = writeln!(out, "|---|{}", "---|".repeat(matrix.columns.len()));
    for (name, cells) in &matrix.rows {
        let cells: Vec<String> = cells
            .iter()
            .map(|cell| match cell {
                MatrixCell::Held { beyond: 1.., .. } => format!("**{}**", text(cell)),
                _ => text(cell),
            })
            .collect();
        let _ = writeln!(out, "| {} | {} |", markdown_name(name), cells.join(" | "));
    }
    for lines in [disagreements(matrix), reasons(matrix)] {
        if !lines.is_empty() {
            out.push('\n');
        }
        for told in lines {
            let _ = writeln!(out, "- {}", escape::markdown(&told));
        }
    }
    out
}

/// Workloads by the number of kernels on which they agree, as a Markdown table.
pub fn agreement(matrix: &Matrix) -> String {
    let mut rows: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for (name, cells) in &matrix.rows {
        let (mut held, mut differ) = (0_usize, Vec::new());
        for (kernel, cell) in matrix.columns.iter().zip(cells) {
            let MatrixCell::Held { beyond, .. } = cell else { continue };
            held += 1;
            if *beyond > 0 {
                differ.push(kernel.as_str());
            }
        }
        let agree = held - differ.len();
        let but = match agree {
            agree if agree == 0 || agree == held => String::new(),
            _ => format!(" (not {})", differ.join(", ")),
        };
        if held > 0 {
            let told = format!("{}{but}", markdown_name(name));
            rows.entry((Reverse(held), Reverse(agree))).or_default().push(told);
        }
    }
    let mut out = "| agree on | scenarios |\n|---|---|\n".to_owned();
    for ((Reverse(held), Reverse(agree)), names) in rows {
        let _ = writeln!(out, "| {agree} of {held} | {} |", names.join(", "));
    }
    out
}

/// `0.4`; `2.3 (3/20)` when it depends on the seed.
fn text(cell: &MatrixCell) -> String {
    match cell {
        MatrixCell::Held { ratio, beyond: 0, .. } => format!("{ratio:.1}"),
        MatrixCell::Held { ratio, seeds: 1, .. } => far(*ratio),
        MatrixCell::Held { ratio, beyond, seeds, .. } => {
            format!("{} ({beyond}/{seeds})", far(*ratio))
        }
        MatrixCell::Refused(_) => "-".to_owned(),
        MatrixCell::Failed(_) => "failed".to_owned(),
        MatrixCell::Open => String::new(),
    }
}

/// A ratio above 1, which does not become 1.0.
fn far(ratio: f64) -> String {
    match ratio {
        ..1.05 => "1.1".to_owned(),
        ..99.5 => format!("{ratio:.1}"),
        _ => format!("{ratio:.0}"),
    }
}

fn style(cell: &MatrixCell) -> Style {
    match cell {
        MatrixCell::Held { ratio, .. } if *ratio <= 1.0 => GOOD,
        MatrixCell::Held { ratio, .. } if *ratio <= 3.0 => NEAR,
        MatrixCell::Held { .. } | MatrixCell::Failed(_) => BAD,
        MatrixCell::Refused(_) | MatrixCell::Open => DIM,
    }
}

fn disagreements(matrix: &Matrix) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, cells) in &matrix.rows {
        for (kernel, cell) in matrix.columns.iter().zip(cells) {
            let MatrixCell::Held { deviations, parted, .. } = cell else { continue };
            let mut told: Vec<String> = deviations.iter().take(TOLD).map(sentence).collect();
            if !told.is_empty() {
                told.extend(parted.clone());
                lines.push(format!("{name} on {kernel}: {}", told.join("; ")));
            }
        }
    }
    lines
}

/// `/limited use 200ms, not 210ms (2.5)`: the reference first, then what is held against it.
fn sentence(deviation: &Deviation) -> String {
    let Deviation { of, field, ratio, .. } = deviation;
    let amount = |number: u64| match field.unit_ns() {
        Some(ns) => duration(number.saturating_mul(ns)),
        None => number.to_string(),
    };
    let (reference, found) = (amount(deviation.reference), amount(deviation.found));
    format!("{of} {field} {reference}, not {found} ({})", far(*ratio))
}

/// Each reason once for a workload, with the kernels it holds for.
fn reasons(matrix: &Matrix) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, cells) in &matrix.rows {
        let mut kernels: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (kernel, cell) in matrix.columns.iter().zip(cells) {
            let reason = match cell {
                MatrixCell::Refused(reason) => format!("cannot be run: {reason}"),
                MatrixCell::Failed(reason) => format!("failed: {reason}"),
                MatrixCell::Held { .. } | MatrixCell::Open => continue,
            };
            kernels.entry(reason).or_default().push(kernel);
        }
        for (reason, kernels) in kernels {
            let all = kernels.len() == matrix.columns.len();
            let on = if all { String::new() } else { format!(" on {}", kernels.join(", ")) };
            lines.push(format!("{name}{on} {reason}"));
        }
    }
    lines
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use cpumax_compare::Tally;
    use cpumax_outcome::Field;

    pub(crate) fn example() -> Matrix {
        let deviation = Deviation {
            path: "groups./limited.usage_usec".to_owned(),
            of: "/limited".to_owned(),
            field: Field::GroupUse,
            reference: 200_000,
            found: 210_000,
            difference: 10_000,
            tolerance: Some(2_000),
            ratio: 5.0,
        };
        let held = |ratio, beyond, seeds, deviations| MatrixCell::Held {
            ratio,
            beyond,
            seeds,
            deviations,
            parted: None,
        };
        let refused = || MatrixCell::Refused("it needs 8 CPUs <here>".to_owned());
        Matrix {
            columns: vec!["6.12".to_owned(), "7.3".to_owned()],
            rows: vec![
                (
                    "nested".to_owned(),
                    vec![held(0.44, 0, 1, vec![]), held(5.0, 1, 1, vec![deviation])],
                ),
                ("fibtest-8".to_owned(), vec![refused(), refused()]),
                (
                    "hog".to_owned(),
                    vec![held(1.01, 3, 20, vec![]), MatrixCell::Failed("it hung".to_owned())],
                ),
            ],
        }
    }

    #[test]
    fn a_cell_is_a_multiple_of_the_tolerance_and_the_rest_is_told_below() {
        let plain = anstream::adapter::strip_str(&matrix(&example())).to_string();
        let expected = "                 6.12     7.3
nested            0.4     5.0
fibtest-8           -       -
hog        1.1 (3/20)  failed

nested on 7.3: /limited use 200ms, not 210ms (5.0)
fibtest-8 cannot be run: it needs 8 CPUs <here>
hog on 7.3 failed: it hung
";
        assert_eq!(plain, expected);
    }

    #[test]
    fn cells_are_counted() {
        let tally = example().tally();
        assert_eq!(tally, Tally { agree: 1, differ: 2, refused: 2, failed: 1 });
        let sentence = "1 of 3 agree (33.3 %), 2 cannot be run there, 1 failed";
        assert_eq!(tally.sentence(), sentence);
        assert!(!tally.is_of_nothing());
        let tally = Tally { refused: 2, ..Tally::default() };
        assert_eq!(tally.sentence(), "nothing could be compared, 2 cannot be run there");
        assert!(tally.is_of_nothing());
    }

    #[test]
    fn workloads_are_listed_by_the_kernels_on_which_they_agree() {
        let rows = "| 1 of 2 | `nested` (not 7.3) |\n| 0 of 1 | `hog` |\n";
        assert_eq!(agreement(&example()), format!("| agree on | scenarios |\n|---|---|\n{rows}"));
    }

    #[test]
    fn a_name_breaks_no_table() {
        let name = "x|y`z<b>&\u{202e}".to_owned();
        let refused = MatrixCell::Refused("it\nis `|".to_owned());
        let one = Matrix { columns: vec!["6.12".to_owned()], rows: vec![(name, vec![refused])] };
        let text = markdown(&one);
        let row = text.lines().nth(2).unwrap();
        assert_eq!(row, "| x&#124;y&#96;z&lt;b&gt;&amp;&#92;u{202e} | - |");
        let told = text.lines().last().unwrap();
        assert!(told.ends_with("cannot be run: it&#92;nis &#96;&#124;"), "{told}");
        assert!(!matrix(&one).contains('\u{202e}') && !svg(&one, "").contains('\u{202e}'));
    }

    #[test]
    fn markdown_is_a_table_and_lists() {
        let text = markdown(&example());
        assert!(
            text.starts_with("| | 6.12 | 7.3 |\n|---|---|---|\n| `nested` | 0.4 | **5.0** |\n"),
            "{text}"
        );
        assert!(text.contains("\n\n- nested on 7.3: "), "{text}");
    }
}
