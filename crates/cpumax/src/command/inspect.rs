//! `cpumax inspect`: what is in a recording, before anything is asked of it.

use crate::args::InspectArgs;
use crate::failure::Failure;
use crate::output;
use crate::reading;
use cpumax_engine::recorded::Inspected;

pub fn inspect(args: &InspectArgs) -> Result<(), Failure> {
    let recording = reading::read(&args.reading.recording, &args.reading.costs)?;
    let name = reading::name(&args.reading.recording);
    if args.json {
        return output::print_json(&Inspected::new(&name, &recording));
    }
    output::print(&cpumax_report::inspected(&name, &recording, args.top, output::page()))
}
