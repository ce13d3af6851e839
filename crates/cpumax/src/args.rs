//! Options that several commands share.

mod reading;

pub use reading::{Choosing, Costs, Reading};

use clap::{Args, ValueHint};
use cpumax_lab::catalog;
use std::path::PathBuf;

/// Options that all commands with runs share.
#[derive(Debug, Args)]
pub struct Running {
    /// Kernels to run on: versions, ranges, generations or all, e.g. 6.1,6.12..7.3,G2a [default:
    /// all; for a recording its own kernel, and in replay the newest too]
    #[arg(short, long, value_name = "LIST")]
    pub kernel: Option<String>,
    /// Seed of all random numbers; the same seed gives the same result to the byte
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write the results as JSON, documented in docs/reference/json.md; - for standard output,
    /// without tables
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Check the model's invariants after every event (slow)
    #[arg(long)]
    pub check: bool,
    /// Vary the cost of interrupts, switches, sleeps and work by microseconds, at random by this
    /// seed
    #[arg(long, value_name = "N")]
    pub noise: Option<u64>,
    /// Threads to use; results do not depend on it [default: one for each CPU]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Step through ticks that change nothing (slow, same results)
    #[arg(long, hide = true)]
    pub every_tick: bool,
}

/// Files for predictions as a table.
#[derive(Debug, Args)]
pub struct Tables {
    /// Write the predictions as CSV, a row for each limit, recording and kernel; - for standard
    /// output, without text
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub csv: Option<PathBuf>,
    /// Write the same rows as Parquet
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub parquet: Option<PathBuf>,
}

impl Running {
    /// The options in the form of the library.
    pub fn how(&self) -> cpumax_study::Running {
        cpumax_study::Running {
            check: self.check,
            every_tick: self.every_tick,
            noise: self.noise,
            threads: self.jobs.map(usize::from),
        }
    }

    /// The list of kernels, if one was given.
    pub fn kernels_asked(&self) -> Option<String> {
        self.kernel.clone().map(|list| if list == "all" { catalog::modelled() } else { list })
    }
}
