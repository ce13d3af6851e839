//! `cpumax inspect`: what is in a recording, before anything is asked of it.

use crate::args::InspectArgs;
use crate::failure::Failure;
use crate::output;
use crate::reading;

pub fn inspect(args: &InspectArgs) -> Result<(), Failure> {
    let recording = reading::read(&args.reading)?;
    let name = reading::name(&args.reading);
    output::print(&cpumax_report::inspected(&name, &recording, args.top, output::page()))
}
