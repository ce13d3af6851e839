//! `cpumax stat`: asks the `sched_ext` scheduler at its socket for the state of groups.

use crate::failure::Failure;
use crate::output;
use clap::Args;
use cpumax_observed::scheduler::ask;
use cpumax_report::escape;
use cpumax_report::{cpu_stat, groups_of_scheduler, openmetrics};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub struct StatArgs {
    /// Path of a cgroup below the root of the hierarchy [default: all groups with a limit]
    pub group: Option<String>,
    /// Show each thread of the group too
    #[arg(long, requires = "group")]
    pub tasks: bool,
    /// Print the scheduler's answer as JSON
    #[arg(long)]
    pub json: bool,
    /// Print metrics for Prometheus, with the names that container dashboards use
    #[arg(long, conflicts_with = "json")]
    pub openmetrics: bool,
    /// Print a table every so many seconds, until interrupted
    #[arg(
        long,
        value_name = "SECONDS",
        conflicts_with_all = ["json", "openmetrics"],
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub watch: Option<u64>,
    /// Socket of the scheduler
    #[arg(long, value_name = "PATH", default_value = "/run/scx_cpumax.sock")]
    pub socket: PathBuf,
}

/// Asks the scheduler and prints the answer, once or repeatedly.
pub fn stat(args: &StatArgs) -> Result<(), Failure> {
    loop {
        let groups = ask(&args.socket, args.group.as_deref(), args.tasks).map_err(Failure::of)?;
        let text = match (&groups[..], args) {
            (_, StatArgs { json: true, .. }) => {
                format!("{}\n", escape::pretty_json(&groups)?)
            }
            (_, StatArgs { openmetrics: true, .. }) => openmetrics(&groups),
            ([group], StatArgs { watch: None, group: Some(_), .. }) => cpu_stat(group),
            _ => groups_of_scheduler(&groups),
        };
        if args.watch.is_some() {
            write!(output::raw_stdout(), "\x1b[H\x1b[2J")?;
        }
        output::print(&text)?;
        let Some(seconds) = args.watch else { return Ok(()) };
        std::thread::sleep(Duration::from_secs(seconds));
    }
}
