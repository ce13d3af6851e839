//! `cpumax kernels`: lists the modelled versions and the changes between them.

use crate::failure::Failure;
use crate::output;
use clap::Args;
use cpumax_study::kernels::{alike, differing};

#[derive(Debug, Args)]
pub struct KernelsArgs {
    /// List the rules of the model in which two kernels differ, e.g. --diff 6.17 6.18
    #[arg(long, num_args = 2, value_names = ["KERNEL", "KERNEL"])]
    diff: Vec<String>,
    /// Print a JSON array instead of a table
    #[arg(long)]
    json: bool,
}

pub fn kernels(args: &KernelsArgs) -> Result<(), Failure> {
    if let [first, second] = args.diff.as_slice() {
        let names = [first.as_str(), second.as_str()];
        let rules = differing(names).map_err(Failure::of)?;
        if args.json {
            return output::print_json(&rules);
        }
        return output::print(&cpumax_report::differing(&rules, names, output::page()));
    }
    if args.json {
        return output::print_json(&alike());
    }
    output::print(&cpumax_report::generations(alike(), output::page()))
}
