//! Writes a workload on which two worlds differ as a scenario file, with the findings in a comment.

use crate::search::{Found, Plan};
use cpumax_outcome::{Deviation, Field};
use cpumax_study::NamedKernel;
use cpumax_workload::print;
use std::fmt::Write;
use std::path::Path;

/// Most numbers in that comment.
const NAMED: usize = 6;

/// The scenario file, exactly as it ran. The comment names `command`, which found it, and `again`,
/// which reproduces it.
pub fn text(found: &Found, command: &str, again: &str) -> String {
    let cell = &found.cell;
    let mut text = String::new();
    let _ = writeln!(text, "# Found by `{command}` as case {}, shrunk.", found.case);
    let _ = writeln!(text, "# Shown again by `{again}`.");
    for deviation in cell.deviations.iter().filter(|d| d.is_beyond()).take(NAMED) {
        let (reference, against) = (&cell.reference, &cell.against);
        let _ = writeln!(text, "# {}", sentence(deviation, reference, against));
    }
    let edges = &cell.conditions.first_edge_ns;
    if !edges.is_empty() {
        let edges: Vec<String> =
            edges.iter().map(|(path, &ns)| format!("{path} {}", milliseconds(ns))).collect();
        let _ = writeln!(text, "# First edge of each period: {}.", edges.join(", "));
    }
    text + &print(&found.workload)
}

/// The options of a search, for the commands that repeat it.
#[derive(Debug, Clone)]
pub struct SearchOptions {
    kernel: String,
    against: Option<String>,
    real: bool,
    seed: u64,
    beyond: f64,
    limits_only: bool,
}

impl SearchOptions {
    /// A search on this kernel, `real` or its model, against another or its own model.
    pub fn new(
        kernel: &NamedKernel,
        against: Option<&NamedKernel>,
        real: bool,
        seed: u64,
        plan: &Plan,
    ) -> SearchOptions {
        let &Plan { beyond, limits_only, .. } = plan;
        let (kernel, against) = (kernel.name.clone(), against.map(|other| other.name.clone()));
        SearchOptions { kernel, against, real, seed, beyond, limits_only }
    }

    /// Identifies the search in the head of its log; only an equal search may continue it.
    /// `against`: the label of the other side.
    pub fn name(&self, against: &str) -> String {
        let SearchOptions { kernel, seed, beyond, .. } = self;
        let version = env!("CARGO_PKG_VERSION");
        let on = if self.real { "vm" } else { "model" };
        format!(
            "cpumax {version} search --on {on} --kernel {kernel} --against {against} --seed {seed} \
             --beyond {beyond}"
        )
    }

    fn kernels(&self) -> String {
        let against = self.against.as_ref();
        let against = against.map_or(String::new(), |other| format!(" --against {other}"));
        let on = if self.real { "" } else { " --on model" };
        format!("--kernel {}{against}{on}", self.kernel)
    }

    /// The command that finds the case.
    pub fn command(&self) -> String {
        let SearchOptions { seed, beyond, limits_only, .. } = self;
        let limits_only = if *limits_only { " --limits-only" } else { "" };
        format!("cpumax search {} --seed {seed} --beyond {beyond}{limits_only}", self.kernels())
    }

    /// The command that reproduces a case kept at `path`; the case number seeds all draws.
    pub fn again(&self, path: &Path, case: u64) -> String {
        format!("cpumax compare {} {} --seed {case}", path.display(), self.kernels())
    }
}

/// File name of a found scenario, from worlds and case.
pub fn file_name(found: &Found) -> String {
    let name = format!("{}-{}-{}", found.cell.reference, found.cell.against, found.case);
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    format!("{}.toml", name.chars().map(safe).collect::<String>())
}

fn sentence(deviation: &Deviation, reference: &str, against: &str) -> String {
    let Deviation { of, field, ratio, .. } = deviation;
    let (first, second) = (amount(*field, deviation.reference), amount(*field, deviation.found));
    format!(
        "{of}, {field}: {first} on {reference}, {second} on {against}; {ratio:.1} times the \
         tolerance."
    )
}

fn amount(field: Field, number: u64) -> String {
    field.unit_ns().map_or_else(|| number.to_string(), |ns| milliseconds(number.saturating_mul(ns)))
}

fn milliseconds(ns: u64) -> String {
    format!("{}.{:03} ms", ns / 1_000_000, ns / 1000 % 1000)
}
