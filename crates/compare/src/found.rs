//! A workload on which two worlds differ, as a scenario file: what was found stands at its head.

use crate::search::{Found, Plan};
use crate::world::World;
use cpumax_engine::NamedKernel;
use cpumax_outcome::{Deviation, Field};
use cpumax_workload::print;
use std::fmt::Write;
use std::path::Path;

/// Numbers beyond their tolerance that are named at the head of a file.
const NAMED: usize = 6;

/// The text of a scenario file, exactly as it was run, with what was found as a comment before it.
/// `command` is what found it, `again` what shows it again.
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

/// What is searched for, as commands that do it again.
#[derive(Debug, Clone)]
pub struct Asked {
    kernel: String,
    against: Option<String>,
    real: bool,
    seed: u64,
    beyond: f64,
    limits_only: bool,
}

impl Asked {
    /// A search on this kernel, `real` or its model, against another or its own model.
    pub fn new(
        kernel: &NamedKernel,
        against: Option<&NamedKernel>,
        real: bool,
        seed: u64,
        plan: &Plan,
    ) -> Asked {
        let &Plan { beyond, limits_only, .. } = plan;
        let (kernel, against) = (kernel.name.clone(), against.map(|other| other.name.clone()));
        Asked { kernel, against, real, seed, beyond, limits_only }
    }

    /// What stands at the head of its log: another search must not go on with it.
    pub fn name(&self, other: &dyn World) -> String {
        let Asked { kernel, seed, beyond, .. } = self;
        let (version, against) = (env!("CARGO_PKG_VERSION"), other.label());
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

    /// What finds it.
    pub fn command(&self) -> String {
        let Asked { seed, beyond, limits_only, .. } = self;
        let limits_only = if *limits_only { " --limits-only" } else { "" };
        format!("cpumax search {} --seed {seed} --beyond {beyond}{limits_only}", self.kernels())
    }

    /// What shows a case again that is kept there: what is drawn is drawn by its number.
    pub fn again(&self, path: &Path, case: u64) -> String {
        format!("cpumax compare {} {} --seed {case}", path.display(), self.kernels())
    }
}

/// Where a found scenario is kept: which worlds and which case, as a name for a file.
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
