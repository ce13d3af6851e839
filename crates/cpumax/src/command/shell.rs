//! `cpumax completions` and `cpumax man`: files that a package installs.

use super::Cli;
use crate::failure::Failure;
use crate::output;
use anyhow::Context;
use clap::CommandFactory;
use cpumax_report::{WriteError, escape};
use std::fs;
use std::io::Write;
use std::path::Path;

pub fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "cpumax", &mut script);
    Ok(output::raw_stdout().write_all(&script).map_err(WriteError::stdout)?)
}

/// Writes a man page for the program and one for each subcommand into a folder.
pub fn man(folder: &Path) -> Result<(), Failure> {
    let context = || format!("cannot write man pages into {}", escape::path(folder));
    fs::create_dir_all(folder).with_context(context)?;
    clap_mangen::generate_to(Cli::command(), folder).with_context(context)?;
    Ok(())
}
