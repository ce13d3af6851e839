//! `cpumax kernels`: lists the modelled versions and the changes between them.

use crate::failure::Failure;
use crate::output;
use cpumax_study::kernels::alike;

pub fn kernels(json: bool) -> Result<(), Failure> {
    if json {
        return output::print_json(&alike());
    }
    output::print(&cpumax_report::generations(alike(), output::page()))
}
