//! `cpumax inspect`: shows what a recording contains.

use crate::args::InspectArgs;
use crate::failure::Failure;
use crate::output;
use cpumax_forecast::recorded::{self, Inspected};

pub fn inspect(args: &InspectArgs) -> Result<(), Failure> {
    let recording = recorded::read(&args.reading.recording, args.reading.costs.options())
        .map_err(Failure::of)?;
    let name = recorded::name(&args.reading.recording);
    if args.json {
        return output::print_json(&Inspected::new(&name, &recording));
    }
    output::print(&cpumax_report::recording_text(&name, &recording, args.top, output::page()))
}
