//! `cpumax weigh`: what the rules of each kernel give and cost, scenario by scenario, and where the
//! last kernel of the list does worse than the one it is held against.

use crate::args::WeighArgs;
use crate::args::values::duration_ns;
use crate::command::replay;
use crate::failure::Failure;
use crate::output;
use crate::runs::Terminal;
use anyhow::anyhow;
use cpumax_engine::{Running, scenario, weigh as engine};
use cpumax_machine::kernel::{self, Kernel};
use cpumax_workload::Workload;
use std::path::Path;
use std::sync::Arc;

pub fn weigh(args: &WeighArgs) -> Result<(), Failure> {
    let kernels = kernel::parse_kernels(&args.kernel)?;
    let base = base(args, &kernels)?;
    let workloads = workloads(args)?;
    let seeds = args.seeds.map_or(1..=3, |seeds| seeds.first..=seeds.last);
    let running = Running { threads: args.jobs.map(usize::from), ..Running::default() };
    let weights = engine::weigh(&workloads, &kernels, &seeds, running, &Terminal::new());
    let weights = weights.map_err(Failure::of)?;
    output::print(&cpumax_report::weighed(&workloads, &kernels, base, &weights, output::page()))
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

fn workloads(args: &WeighArgs) -> Result<Vec<Arc<Workload>>, Failure> {
    let names: Vec<&str> = match args.scenarios.as_slice() {
        [] => engine::usual().collect(),
        named => named.iter().map(String::as_str).collect(),
    };
    let is_recording = |name: &&str| scenario::is_recording(Path::new(name));
    if args.set.is_some() && !names.iter().any(is_recording) {
        return Err(anyhow!("--set is for recordings, and none is weighed").into());
    }
    let of = |name: &str| {
        if is_recording(&name) {
            return recording(name, args);
        }
        let duration_ns = args.duration.map(duration_ns).transpose()?;
        engine::scenario(name, duration_ns).map_err(Failure::of)
    };
    names.into_iter().map(of).collect()
}

fn recording(name: &str, args: &WeighArgs) -> Result<Arc<Workload>, Failure> {
    let Some(set) = &args.set else {
        let what = "give the limit that it is to have by --set";
        return Err(anyhow!("{name} is a recording: {what}").into());
    };
    if args.duration.is_some() {
        let what = format!("{name} lasts as long as was recorded");
        return Err(anyhow!("--for is for scenarios: {what}").into());
    }
    let weighed = engine::recording(Path::new(name), &replay::limit(set)?);
    let (workload, defects) = weighed.map_err(Failure::of)?;
    replay::warn(&defects);
    Ok(workload)
}
