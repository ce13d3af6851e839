//! `cpumax weigh`: costs and benefits of each kernel, scenario by scenario, and where the last
//! kernel of the list is worse than the one it is compared with.

use crate::command::replay;
use crate::failure::Failure;
use crate::output;
use crate::runs::Terminal;
use anyhow::anyhow;
use clap::{Args, ValueHint};
use cpumax_forecast::weigh as library;
use cpumax_lab::catalog::{self, Set};
use cpumax_machine::kernel;
use cpumax_report::{JsonArray, weights_table};
use cpumax_study::given::{Seeds, run_time, seeds};
use cpumax_study::{Running, scenario};
use cpumax_workload::Workload;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, Args)]
pub struct WeighArgs {
    /// Names of built-in scenarios, scenario files, or recordings [default: all built-in scenarios
    /// except those with 384 CPUs]
    #[arg(value_name = "SCENARIO", value_hint = ValueHint::FilePath)]
    pub scenarios: Vec<String>,
    /// The limit that recordings get, e.g. '50000 100000' or 500m
    #[arg(long, value_name = "[GROUP:]LIMIT", allow_hyphen_values = true)]
    pub set: Option<String>,
    /// Kernels to show; the last one is compared with another
    #[arg(short, long, value_name = "LIST", default_value_t = catalog::list(Set::Weigh) + ",pull")]
    pub kernel: String,
    /// The kernel in this list to compare the last one with [default: the one before it]
    #[arg(long, value_name = "KERNEL")]
    pub against: Option<String>,
    /// Seeds to take the mean over [default: 1..3]
    #[arg(long, value_name = "A..B", value_parser = seeds)]
    pub seeds: Option<Seeds>,
    /// Length of the run instead of the scenario's own, e.g. 10s
    #[arg(long = "for", value_name = "TIME", value_parser = run_time)]
    pub duration: Option<u64>,
    /// Threads to use; results do not depend on it [default: one for each CPU]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Write the weights as JSON; - for standard output, without the table
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
}

pub fn weigh(args: &WeighArgs) -> Result<(), Failure> {
    let kernels = kernel::parse_kernels(&args.kernel)?;
    let base = library::base(args.against.as_deref(), &kernels);
    let base = base.map_err(|error| anyhow!(error).context("--against"))?;
    let json = args.json.as_deref().map(JsonArray::create).transpose()?;
    let workloads = workloads(args)?;
    let seeds = args.seeds.map_or(1..=3, |seeds| seeds.first..=seeds.last);
    let running = Running { threads: args.jobs.map(usize::from), ..Running::default() };
    let weights = library::weigh(&workloads, &kernels, &seeds, running, &Terminal::new());
    let weights = weights.map_err(Failure::of)?;
    let documents = library::documents(&workloads, &kernels, base, &weights);
    let text = || weights_table(&workloads, &kernels, base, &weights, output::page());
    output::answer(json, documents, text)
}

fn workloads(args: &WeighArgs) -> Result<Vec<Arc<Workload>>, Failure> {
    let names: Vec<&str> = match args.scenarios.as_slice() {
        [] => library::usual().collect(),
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
        library::scenario(name, args.duration).map_err(Failure::of)
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
    let weighed = library::recording(Path::new(name), &replay::limit(set)?);
    let (workload, defects) = weighed.map_err(Failure::of)?;
    replay::warn(&defects);
    Ok(workload)
}
