//! `cpumax inspect`: shows what a recording contains.

use crate::args::Reading;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use cpumax_forecast::recorded::{self, Inspected};

#[derive(Debug, Args)]
pub struct InspectArgs {
    #[command(flatten)]
    pub reading: Reading,
    /// Most threads and groups to list
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// Print everything as a JSON object instead of tables
    #[arg(long)]
    pub json: bool,
}

pub fn inspect(args: &InspectArgs) -> Result<(), Failure> {
    let recording = recorded::read(&args.reading.recording, args.reading.costs.options())
        .map_err(Failure::of)?;
    let name = recorded::name(&args.reading.recording);
    if args.json {
        return output::print_json(&Inspected::new(&name, &recording));
    }
    output::print(&cpumax_report::recording_text(&name, &recording, args.top, output::page()))
}
