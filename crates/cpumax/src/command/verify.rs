//! `cpumax verify`: checks a saved prediction against counters of the group under its limit.

use crate::failure::Failure;
use crate::output;
use crate::runs::Terminal;
use clap::{ArgGroup, Args, ValueHint};
use cpumax_forecast::{saved::Saved, verify};
use cpumax_observed::counters::{self, Group, Metrics, Observed, Prometheus, Scraped};
use cpumax_report::JsonArray;
use cpumax_study::{Error, answer::Document, given::duration};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Output of `cpumax replay --json` or `cpumax advise --json`
    #[arg(value_name = "STUDY", value_hint = ValueHint::FilePath)]
    study: PathBuf,
    /// The group with the limit: its folder, or its path below the root of the hierarchy
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    #[arg(required_unless_present = "scraped", conflicts_with = "scraped")]
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
#[command(group(ArgGroup::new("scraped").args(["openmetrics", "prometheus"])))]
#[expect(clippy::doc_markdown, reason = "shown as help")]
pub struct Counting {
    /// Two or more scrapes of cAdvisor's metrics instead of a group, in order of time; or JSON of a
    /// Prometheus query, or of docker stats
    #[arg(long, value_name = "FILE", num_args = 1.., value_hint = ValueHint::FilePath)]
    openmetrics: Vec<PathBuf>,
    /// A label of the container, such as pod=web-1; container= selects a pod itself
    #[arg(long, value_name = "LABEL=VALUE", requires = "scraped")]
    label: Vec<String>,
    /// A Prometheus that has cAdvisor's metrics, or a server with its HTTP API, e.g.
    /// https://NAME:PASSWORD@HOST/PATH
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    prometheus: Option<String>,
    /// File with a bearer token for it [default: the variable CPUMAX_PROMETHEUS_TOKEN]
    #[arg(long, value_name = "FILE", requires = "prometheus", value_hint = ValueHint::FilePath)]
    token_file: Option<PathBuf>,
    /// Time of which its samples are taken, until now
    #[arg(long, value_name = "TIME", requires = "prometheus", value_parser = duration)]
    #[arg(default_value = "30m")]
    since: Duration,
    /// Time to count; for scrapes without times, the time between them [default: 60s]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    length: Option<Duration>,
}

impl Counting {
    /// Reads the scrapes, and the service's own metrics in them.
    pub fn scraped(&self, metrics: Metrics) -> Result<Scraped, Error> {
        let Some(url) = &self.prometheus else {
            return Scraped::of_files(&self.openmetrics, &self.label, self.length, metrics);
        };
        let prometheus = Prometheus::at(url, self.token_file.as_deref())?;
        Scraped::of_prometheus(&prometheus, &self.label, self.since, metrics)
    }

    /// Watches the group for the given time, or reads the scrapes.
    pub fn observed(
        &self,
        group: Option<&Path>,
        every: Option<Duration>,
    ) -> Result<Observed, Failure> {
        let Some(path) = group else {
            let one = self.scraped(Metrics::default()).and_then(|all| all.one());
            return one.map(|(observed, _)| observed).map_err(Failure::of);
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
    let text = || cpumax_report::verification_text(&verified, output::page());
    output::answer(json, std::iter::once(Document::from(&verified)), text)?;
    if verified.passed() { Ok(()) } else { Err(Failure::Unexpected) }
}
