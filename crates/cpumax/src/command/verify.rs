//! `cpumax verify`: checks a saved prediction against counters of the group under its limit.

use crate::failure::Failure;
use crate::output;
use crate::runs::Terminal;
use clap::{Args, ValueHint};
use cpumax_forecast::{saved::Saved, verify};
use cpumax_observed::counters::{self, Group, Metrics, Observed, Served};
use cpumax_report::JsonArray;
use cpumax_study::{answer::Document, given::duration};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Output of `cpumax replay --json` or `cpumax advise --json`
    #[arg(value_name = "STUDY", value_hint = ValueHint::FilePath)]
    study: PathBuf,
    /// The group with the limit: its folder, or its path below the root of the hierarchy
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    #[arg(required_unless_present = "openmetrics", conflicts_with = "openmetrics")]
    cgroup: Option<PathBuf>,
    #[command(flatten)]
    counting: Counting,
    /// The kernel of the study to compare with [default: the one that behaves like the running one]
    #[arg(short, long, value_name = "KERNEL")]
    kernel: Option<String>,
    /// Seed of the random numbers behind intervals
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the result as JSON; - for standard output, without the table
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    json: Option<PathBuf>,
}

/// Scraped counters, and the time to count.
#[derive(Debug, Args)]
pub struct Counting {
    /// Two or more scrapes of cAdvisor's metrics instead of a group, in order of time; or JSON of a
    /// Prometheus query, or of docker stats
    #[arg(long, value_name = "FILE", num_args = 1.., value_hint = ValueHint::FilePath)]
    openmetrics: Vec<PathBuf>,
    /// A label of the container, such as pod=web-1; container= selects a pod itself
    #[arg(long, value_name = "LABEL=VALUE", requires = "openmetrics")]
    label: Vec<String>,
    /// Time to count; for scrapes without times, the time between them [default: 60s]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    length: Option<Duration>,
}

impl Counting {
    /// Reads the scrapes, and the service's own metrics in them.
    pub fn scraped(&self, metrics: &Metrics) -> Result<(Observed, Served), Failure> {
        let scrapes = counters::scrapes(&self.openmetrics, &self.label, self.length, metrics);
        scrapes.map_err(Failure::of)
    }

    /// Watches the group for the given time, or reads the scrapes.
    pub fn observed(
        &self,
        group: Option<&Path>,
        every: Option<Duration>,
    ) -> Result<Observed, Failure> {
        let Some(path) = group else {
            return Ok(self.scraped(&Metrics::default())?.0);
        };
        let length = self.length.unwrap_or(Duration::from_secs(60));
        let (every, watch) = (every.unwrap_or(counters::every(length)), Terminal::waiting(length));
        let group = Group::open(path).map_err(Failure::of)?;
        counters::observe(&group, length, every, &watch).map_err(Failure::of)
    }
}

pub fn verify(args: &VerifyArgs) -> Result<(), Failure> {
    let saved = Saved::read(&args.study).map_err(Failure::of)?;
    let json = args.json.as_deref().map(JsonArray::create).transpose()?;
    let observed = args.counting.observed(args.cgroup.as_deref(), None)?;
    let verified = verify::verify(&saved, &observed, args.kernel.as_deref(), args.seed);
    let verified = verified.map_err(Failure::of)?;
    let is_told = json.as_ref().is_none_or(|json| !json.is_stdout());
    json.map_or(Ok(()), |json| json.write(std::iter::once(Document::from(&verified))))?;
    if is_told {
        output::print(&cpumax_report::verification_text(&verified, output::page()))?;
    }
    if verified.passed() { Ok(()) } else { Err(Failure::Unexpected) }
}
