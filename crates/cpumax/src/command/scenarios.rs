//! `cpumax scenarios`: lists the built-in scenarios, or prints one.

use crate::failure::Failure;
use crate::output;
use cpumax_study::{builtin, scenario};

pub fn scenarios(name: Option<&str>, json: bool) -> Result<(), Failure> {
    let Some(name) = name else { return list(json) };
    output::print(&scenario::text(name).map_err(Failure::of)?)
}

fn list(json: bool) -> Result<(), Failure> {
    let all = builtin::listed().map_err(Failure::of)?;
    if json {
        return output::print_json(&all);
    }
    output::print(&cpumax_report::scenarios(all, output::page()))
}
