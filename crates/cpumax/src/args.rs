//! What the command line takes. Help, man pages and completions all come from here.

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// What will a CPU limit do to my service, on this kernel?
///
/// A deterministic model of the Linux fair class and its CPU bandwidth control (cgroup cpu.max), in every
/// generation from 4.18 to 7.3. It runs scenarios, and recordings of real services, and tells what each
/// kernel would have done: CPU used, periods throttled, latencies, who stalled and for how long.
#[derive(Debug, Parser)]
#[command(name = "cpumax", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the kernels that are modelled and what changed between them
    Kernels {
        /// Print a JSON array instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Print completions for a shell
    #[command(hide = true)]
    Completions { shell: clap_complete::Shell },
    /// Write man pages into a folder
    #[command(hide = true)]
    Man { folder: PathBuf },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
