//! A comparison of many workloads on several kernels in two worlds, and its matrix.

use crate::cell::Cell;
use crate::error::Error;
use crate::matrix::column;
use crate::pair::{Noisy, Pair};
use crate::parting::{beside, find_divergence};
use crate::side::{How, Side};
use crate::verdict::Verdict;
use cpumax_lab::MACHINE_NOTE;
use cpumax_outcome::Deviation;
use cpumax_study::NamedKernel;
use cpumax_workload::Workload;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The workloads and kernels of a comparison, and its results so far.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Scenarios, then random cases.
    pub workloads: Vec<Workload>,
    /// Number of random cases, at the end of `workloads`.
    pub cases: usize,
    /// Kernels to run on.
    pub kernels: Vec<NamedKernel>,
    /// The kernel that each is compared with in the same world; `None`: its own model.
    pub against: Option<NamedKernel>,
    /// For each kernel so far, the cells of each workload with each seed.
    pub columns: Vec<Vec<Cell>>,
}

/// How each workload is compared.
#[derive(Debug, Clone)]
pub struct Pairing {
    /// Seeds of each workload.
    pub seeds: RangeInclusive<u64>,
    /// Whether to record events.
    pub trace: bool,
    /// Number of runs of the model under noise.
    pub noisy: Noisy,
    /// Number of runs on a real kernel; the median counts.
    pub runs: u16,
}

/// Progress of a comparison.
#[derive(Debug)]
pub enum Progress<'a> {
    /// The comparison begins with the kernel of this name.
    Kernel(&'a str),
    /// A cell is done on the kernel of this name.
    Cell(&'a str, &'a mut Cell),
}

impl Comparison {
    /// Number of cells of the whole comparison.
    pub fn len(&self, pairing: &Pairing) -> usize {
        self.workloads.len() * pairing.seeds.clone().count() * self.kernels.len()
    }

    /// Boots all virtual machines at once instead of each on first use.
    ///
    /// # Errors
    /// A kernel has not been fetched, or does not boot.
    pub fn prepare(&self, how: How<'_>) -> Result<(), cpumax_study::Error> {
        let booted: Vec<&NamedKernel> = self.kernels.iter().chain(&self.against).collect();
        how.prepare(&booted, &self.workloads)
    }

    /// Runs the whole comparison and stores the results, also those before an error.
    ///
    /// # Errors
    /// A world fails, or was interrupted.
    pub fn run(
        &mut self,
        pairing: &Pairing,
        how: How<'_>,
        mut progress: impl FnMut(Progress<'_>),
    ) -> Result<(), Error> {
        let &Pairing { trace, noisy, runs, .. } = pairing;
        let of = |workload: &Workload| {
            let workload = Arc::new(workload.clone());
            let pair =
                move |seed| Pair { workload: Arc::clone(&workload), seed, trace, noisy, runs };
            pairing.seeds.clone().map(pair)
        };
        let pairs: Vec<Pair> = self.workloads.iter().flat_map(of).collect();
        for kernel in &self.kernels {
            progress(Progress::Kernel(&kernel.name));
            let mut cells = Vec::new();
            let each = |mut cell: Cell| {
                progress(Progress::Cell(&kernel.name, &mut cell));
                cells.push(cell);
            };
            let [reference, other] = sides(kernel, self.against.as_ref(), how)?;
            let ran = column(&pairs, how.mode, &reference, &other, each);
            self.columns.push(cells);
            ran?;
        }
        Ok(())
    }

    /// Number of cells so far.
    pub fn done(&self) -> usize {
        self.columns.iter().map(Vec::len).sum()
    }

    /// All cells, kernel by kernel.
    pub fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.columns.iter().flatten()
    }

    /// One line that names the two sides.
    pub fn title(&self, real: bool) -> String {
        let against = match (&self.against, real) {
            (Some(other), false) => {
                format!("The models of these kernels against that of {}", other.name)
            }
            (Some(other), true) => format!("These kernels against {}", other.name),
            (None, _) => "Real kernels against the model".to_owned(),
        };
        format!("{against}; 1 is the edge of the tolerance")
    }

    /// Notes about machines, each with the number of CPUs.
    pub fn machines(&self) -> BTreeSet<(u16, &str)> {
        let cpus_of = |cell: &Cell| {
            let workload = self.workloads.iter().find(|one| one.name == cell.scenario);
            workload.map_or(0, |workload| workload.machine.cpus)
        };
        let of_machine = |note: &&String| note.starts_with(MACHINE_NOTE);
        let mut told = BTreeSet::new();
        for cell in self.cells() {
            let notes = cell.notes.iter().filter(of_machine);
            told.extend(notes.map(|note| (cpus_of(cell), note.as_str())));
        }
        told
    }

    /// The scenarios, and the random cases.
    pub fn split(&self) -> (&[Workload], &[Workload]) {
        self.workloads.split_at(self.workloads.len().saturating_sub(self.cases))
    }

    /// The matrix of all workloads and kernels.
    pub fn matrix(&self) -> Matrix {
        self.matrix_of(&self.workloads)
    }

    /// The matrix without random cases that agree.
    pub fn matrix_of_note(&self) -> Matrix {
        let (scenarios, cases) = self.split();
        let mut matrix = self.matrix_of(scenarios);
        matrix.rows.extend(self.matrix_of(cases).disagreeing().rows);
        matrix
    }

    /// The matrix of some of the workloads, and all kernels.
    pub fn matrix_of(&self, workloads: &[Workload]) -> Matrix {
        let row = |workload: &Workload| {
            let cells = self.columns.iter().map(|cells| {
                let same: Vec<&Cell> =
                    cells.iter().filter(|cell| cell.scenario == workload.name).collect();
                summed_up(&same)
            });
            (workload.name.clone(), cells.collect())
        };
        Matrix {
            columns: self.kernels.iter().map(|kernel| kernel.name.clone()).collect(),
            rows: workloads.iter().map(row).collect(),
        }
    }
}

/// The side of a kernel, and the one it is compared with: another kernel, or its own model.
///
/// # Errors
/// A kernel has not been fetched.
pub fn sides(
    kernel: &NamedKernel,
    against: Option<&NamedKernel>,
    how: How<'_>,
) -> Result<[Side; 2], Error> {
    let other = match against {
        Some(against) => Side::of(against, how),
        None => Side::of(kernel, How { real: false, ..how }),
    };
    Ok([Side::of(kernel, how).map_err(Error::Study)?, other.map_err(Error::Study)?])
}

/// Results by workload and kernel.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Matrix {
    /// Names of the kernels.
    pub columns: Vec<String>,
    /// Name of each workload, and a cell for each kernel.
    pub rows: Vec<(String, Vec<MatrixCell>)>,
}

/// One workload on one kernel.
#[derive(Debug, Clone, PartialEq)]
pub enum MatrixCell {
    /// Both worlds ran it.
    Held {
        /// Ratio of the worst number over all seeds.
        ratio: f64,
        /// Number of seeds with a number beyond its tolerance.
        beyond: u64,
        /// Number of seeds.
        seeds: u64,
        /// Numbers beyond their tolerance, worst first, for the worst seed.
        deviations: Vec<Deviation>,
        /// Description of where the two runs diverge, if known.
        parted: Option<String>,
    },
    /// A world cannot run it, with the reason.
    Refused(String),
    /// It did not end, with the reason.
    Failed(String),
    /// Not run (yet).
    Open,
}

/// Number of cells by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Every number within its tolerance.
    pub agree: u64,
    /// A number beyond its tolerance.
    pub differ: u64,
    /// Not run, because a world cannot.
    pub refused: u64,
    /// Not run to the end.
    pub failed: u64,
}

impl Matrix {
    /// Counts the cells.
    pub fn tally(&self) -> Tally {
        self.count(|_| true)
    }

    /// Counts the cells of one kernel.
    pub fn tally_of(&self, column: usize) -> Tally {
        self.count(|at| at == column)
    }

    fn count(&self, is_counted: impl Fn(usize) -> bool) -> Tally {
        let mut tally = Tally::default();
        let cells = self.rows.iter().flat_map(|(_, cells)| cells.iter().enumerate());
        for (_, cell) in cells.filter(|(at, _)| is_counted(*at)) {
            match cell {
                MatrixCell::Held { beyond: 0, .. } => tally.agree += 1,
                MatrixCell::Held { .. } => tally.differ += 1,
                MatrixCell::Refused(_) => tally.refused += 1,
                MatrixCell::Failed(_) => tally.failed += 1,
                MatrixCell::Open => {}
            }
        }
        tally
    }

    /// Only the rows with a number beyond its tolerance or a failure.
    #[must_use]
    pub fn disagreeing(mut self) -> Matrix {
        let is_bad = |cell: &MatrixCell| {
            matches!(cell, MatrixCell::Held { beyond: 1.., .. } | MatrixCell::Failed(_))
        };
        self.rows.retain(|(_, cells)| cells.iter().any(is_bad));
        self
    }

    /// Only the rows in which something was run.
    #[must_use]
    pub fn tried(mut self) -> Matrix {
        let is_tried = |cell: &MatrixCell| !matches!(cell, MatrixCell::Open);
        self.rows.retain(|(_, cells)| cells.iter().any(is_tried));
        self
    }
}

impl Tally {
    /// Whether no cell was run.
    pub fn is_of_nothing(&self) -> bool {
        self.agree + self.differ + self.failed == 0
    }

    /// The counts in a sentence.
    pub fn sentence(&self) -> String {
        let held = self.agree + self.differ;
        let share = self.agree as f64 * 100.0 / held as f64;
        let mut parts = match held {
            0 => vec!["nothing could be compared".to_owned()],
            _ => vec![format!("{} of {held} agree ({share:.1} %)", self.agree)],
        };
        for (count, what) in [(self.refused, "cannot be run there"), (self.failed, "failed")] {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        }
        parts.join(", ")
    }
}

/// Combines the cells of all seeds.
fn summed_up(cells: &[&Cell]) -> MatrixCell {
    let held: Vec<(&Cell, f64)> =
        cells.iter().filter_map(|cell| Some((*cell, cell.verdict.ratio()?))).collect();
    for cell in cells {
        if let Verdict::Failed(reason) = &cell.verdict {
            return MatrixCell::Failed(reason.clone());
        }
    }
    let Some(&(worst, ratio)) = held.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else {
        let refused = cells.iter().find_map(|cell| match &cell.verdict {
            Verdict::Refused(reason) => Some(reason.clone()),
            _ => None,
        });
        return refused.map_or(MatrixCell::Open, MatrixCell::Refused);
    };
    MatrixCell::Held {
        ratio,
        beyond: held.iter().filter(|(cell, _)| cell.verdict.differs()).count() as u64,
        seeds: held.len() as u64,
        deviations: worst.deviations.iter().filter(|d| d.is_beyond()).cloned().collect(),
        parted: parted(worst),
    }
}

/// Describes where the two runs diverge, after a guided run by that one.
fn parted(cell: &Cell) -> Option<String> {
    let Some(led) = &cell.led else { return cell.parted.clone() };
    let places = match led.places {
        0 => "in one run of the model".to_owned(),
        1 => "led in 1 place".to_owned(),
        places => format!("led in {places} places"),
    };
    if led.ratio <= 1.0 {
        let agrees = format!("{places}, all numbers agree");
        return Some(match &cell.parted {
            Some(parted) => format!("{parted}; {agrees}"),
            None => agrees,
        });
    }
    let parted = match (&led.parted, led.together_ns) {
        (Some(parted), _) => parted.clone(),
        (None, None) => "the same turns to the end".to_owned(),
        (None, Some(ns)) => format!("the same turns to {:.2} ms", ns as f64 / 1e6),
    };
    Some(if led.places == 0 { parted } else { format!("{places}: {parted}") })
}

impl Cell {
    /// Names and texts of trace files: the events of both worlds, which can be compared line by
    /// line, and, where they diverge, both side by side around that time.
    pub fn trace_files(&self, kernel: &str) -> Vec<(String, String)> {
        let scenario = self.scenario.replace(std::path::is_separator, "-");
        let name = |what: &str| format!("{scenario}-{kernel}-{}-{what}.txt", self.seed);
        let of = |(trace, side): (&cpumax_outcome::trace::Recorded, &str)| {
            let lines: Vec<String> = trace.lines().collect();
            (name(side), lines.join("\n") + "\n")
        };
        let mut files: Vec<_> = self.traces.iter().zip(["first", "second"]).map(of).collect();
        if let [first, second] = &self.traces[..]
            && let Some(found) = find_divergence(first, second)
        {
            let head = format!(
                "From {:.3} ms on {} gets {} CPU time on the left ({}) than on the right ({}); \
                 all times in ms.\n",
                found.since_ns as f64 / 1e6,
                found.task,
                if found.more_ns > 0 { "more" } else { "less" },
                self.reference,
                self.against,
            );
            let lines = beside(first, second, &found);
            files.push((name("parting"), head + "\n" + &lines.join("\n") + "\n"));
        }
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair::Mode;
    use cpumax_study::{kernels, scenario};

    fn models(version: &str, against: &str) -> Comparison {
        let one = |list: &str| kernels::modelled(list).unwrap();
        Comparison {
            workloads: vec![scenario::load("nested").unwrap(), scenario::load("case-7").unwrap()],
            cases: 1,
            kernels: one(version),
            against: one(against).pop(),
            columns: Vec::new(),
        }
    }

    fn how() -> How<'static> {
        let stop = || false;
        let (mode, releases) = (Mode::Exact, false);
        How { real: false, mode, side_by_side: None, kept: None, releases, stop }
    }

    #[test]
    fn a_model_agrees_with_itself_and_random_cases_that_agree_are_not_of_note() {
        let mut comparison = models("6.18,7.3", "7.3");
        let pairing = Pairing { seeds: 1..=2, trace: true, noisy: Noisy::only(0), runs: 1 };
        assert_eq!(comparison.len(&pairing), 2 * 2 * 2);
        let mut told = Vec::new();
        let ran = comparison.run(&pairing, how(), |progress| match progress {
            Progress::Kernel(name) => told.push(name.to_owned()),
            Progress::Cell(kernel, cell) => {
                let files = cell.trace_files(kernel);
                assert!(files[0].0.ends_with(&format!("-{kernel}-{}-first.txt", cell.seed)));
                assert!(files.len() >= 2 && files[0].1.ends_with('\n'));
                told.push(cell.scenario.clone());
                cell.traces.clear();
            }
        });
        ran.unwrap();
        assert_eq!(comparison.done(), 8);
        let mut each = vec!["nested", "nested", "case-7", "case-7"];
        each.insert(0, "6.18");
        assert_eq!(told[..5], each);
        let matrix = comparison.matrix();
        let own = |(_, cells): &(String, Vec<MatrixCell>)| {
            matches!(&cells[1], MatrixCell::Held { ratio: 0.0, beyond: 0, seeds: 2, .. })
        };
        assert!(matrix.rows.iter().all(own), "{matrix:?}");
        assert_eq!(matrix.tally_of(1), Tally { agree: 2, ..Tally::default() });
        assert!(
            comparison
                .title(false)
                .ends_with("against that of 7.3; 1 is the edge of the tolerance")
        );
        comparison.columns.remove(0);
        comparison.kernels.remove(0);
        let of_note = comparison.matrix_of_note();
        assert_eq!(of_note.rows.len(), 1, "the random case agrees");
        assert_eq!(of_note.rows[0].0, "nested");
    }

    #[test]
    fn what_was_not_run_is_open() {
        let mut comparison = models("6.18", "7.3");
        comparison.columns.push(Vec::new());
        let matrix = comparison.matrix();
        assert_eq!(matrix.rows[0].1, [MatrixCell::Open]);
        assert!(matrix.tally().is_of_nothing() && matrix.tried().rows.is_empty());
    }
}
