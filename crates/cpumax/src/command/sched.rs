//! `cpumax sched`: replaces this process by the `sched_ext` scheduler, a program of its own.

use crate::failure::Failure;
use anyhow::{Context, anyhow};
use clap::Args;
use cpumax_observed::scheduler::{self, PROGRAM};
use cpumax_report::escape;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

#[derive(Debug, Args)]
pub struct SchedArgs {
    /// Arguments of `scx_cpumax`; `cpumax sched -- --help` lists them
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<OsString>,
}

/// Does not return if the scheduler can be started.
pub fn sched(args: &SchedArgs) -> Result<(), Failure> {
    let program = scheduler::program().with_context(|| {
        format!(
            "{PROGRAM} is neither beside cpumax nor in PATH: build it with `cargo build --release \
             -p {PROGRAM}`"
        )
    })?;
    let error = Command::new(&program).args(&args.args).exec();
    Err(anyhow!(error).context(escape::path(&program)).into())
}
