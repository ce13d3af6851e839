//! `cpumax scenarios`: what is built in, and the text of one to start from.

use crate::failure::Failure;
use crate::output;
use cpumax_engine::builtin::{self, BuiltIn};
use cpumax_engine::scenario::{self, not_built_in};
use std::io::Write;

pub fn scenarios(name: Option<&str>) -> Result<(), Failure> {
    let Some(name) = name else { return list() };
    let built_in = builtin::find(name).map(|built_in| built_in.text.to_owned());
    let text = built_in.or_else(|| Some(cpumax_workload::print(&scenario::case(name)?)));
    Ok(output::stdout().write_all(text.ok_or_else(|| not_built_in(name))?.as_bytes())?)
}

fn list() -> Result<(), Failure> {
    let row = |built_in: &BuiltIn| {
        let workload = cpumax_workload::parse(built_in.text, built_in.name)?;
        Ok(vec![built_in.name.to_owned(), workload.shows.clone()])
    };
    let rows: Vec<Vec<String>> = builtin::ALL.iter().map(row).collect::<anyhow::Result<_>>()?;
    let table = cpumax_report::list(&["scenario", "shows"], rows, output::page().width());
    Ok(output::stdout().write_all(table.as_bytes())?)
}
