//! `cpumax scenarios`: what is built in, and the text of one to start from.

use crate::failure::Failure;
use crate::output;
use cpumax_engine::{builtin, scenario};
use std::io::Write;

pub fn scenarios(name: Option<&str>, json: bool) -> Result<(), Failure> {
    let Some(name) = name else { return list(json) };
    Ok(output::stdout().write_all(scenario::text(name).map_err(Failure::of)?.as_bytes())?)
}

fn list(json: bool) -> Result<(), Failure> {
    let all = builtin::listed().map_err(Failure::of)?;
    if json {
        return output::print_json(&all);
    }
    output::print(&cpumax_report::scenarios(all, output::page()))
}
