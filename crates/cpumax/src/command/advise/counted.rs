//! `cpumax advise --stat` and `--openmetrics`: limits from counters alone.

use super::{AdviseArgs, THIN};
use crate::command::verify::Counting;
use crate::failure::Failure;
use crate::output;
use crate::runs::Terminal;
use anyhow::anyhow;
use clap::{Args, ValueHint};
use cpumax_forecast::advise::Question;
use cpumax_machine::kernel::parse_kernels;
use cpumax_observed::{
    counted::{self, Asked},
    counters::{Metrics, Observed, Served},
    fitted::{self, DRAWS, Fitting, Keep, Known},
    fleet,
};
use cpumax_report::JsonArray;
use cpumax_study::{
    answer::Document,
    given::duration,
    limit::{DEFAULT_PERIOD_NS, Limit},
};
use std::path::PathBuf;
use std::time::Duration;

/// Options for counters, instead of a recording.
#[derive(Debug, Args)]
#[command(next_help_heading = "From counters alone")]
pub struct Alone {
    /// A running group: its folder, or its path below the root of the hierarchy
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    #[arg(conflicts_with_all = ["recordings", "scraped"])]
    stat: Option<PathBuf>,
    #[command(flatten)]
    counting: Counting,
    /// Time between two reads of the group, at most half a period
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "20ms")]
    every: Duration,
    /// Answer for every container that the labels choose, those first whose limit costs most
    #[arg(long, requires = "scraped", conflicts_with_all = ["requests", "latency", "p99"])]
    #[arg(conflicts_with_all = ["threads", "clients", "other_kernels", "current"])]
    all: bool,
    /// Number of the service's threads that answer requests
    #[arg(long, value_name = "N", requires = "counters")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// The service's counter of requests, scraped as well, as METRIC or METRIC{LABEL="VALUE"}
    #[arg(long, value_name = "METRIC", requires = "scraped")]
    requests: Option<String>,
    /// The service's histogram of latencies, scraped as well; in seconds, or as its name says
    #[arg(long, value_name = "METRIC", requires = "scraped")]
    latency: Option<String>,
    /// Show the counters that these kernels would have under the present limit, e.g. 5.4,6.18
    #[arg(long, value_name = "LIST", requires = "counters")]
    other_kernels: Option<String>,
    /// Random services to try against the counters; 0: none
    #[arg(long, value_name = "N", requires = "counters", default_value_t = DRAWS as u32)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    draws: u32,
}

/// Advises on limits from counters. Options that need a recording are an error.
pub fn from_counters(args: &AdviseArgs, question: Question) -> Result<(), Failure> {
    if args.period.len() > 1 {
        return Err(anyhow!("--period: with counters give one length").into());
    }
    let json = args.running.json.as_deref().map(JsonArray::create).transpose()?;
    let others = [
        (args.p50.is_some(), "--p50"),
        (args.p95.is_some(), "--p95"),
        (args.p99.is_some(), "--p99"),
        (args.p999.is_some(), "--p99.9"),
        (args.slower_than.is_some(), "--slower-than"),
        (args.throughput.is_some(), "--throughput"),
    ];
    let not_told = others.into_iter().filter(|(is_asked, _)| *is_asked);
    let not_told: Vec<String> = not_told.map(|(_, option)| option.to_owned()).collect();
    let (throttled, seed) = (args.throttled, args.running.seed);
    let period_ns = args.period.first().copied().unwrap_or(DEFAULT_PERIOD_NS);
    let current = question.current.map(|current| current.limit);
    let asked = Asked { period_ns, throttled, current, not_told, seed };
    let fitting = args.alone.fitting(args, current)?;
    if args.alone.all {
        let scraped = args.alone.counting.scraped(Metrics::default());
        let containers = scraped.and_then(|scraped| scraped.all()).map_err(Failure::of)?;
        let watch = &Terminal::following(containers.len() as u64, "all containers");
        let all = fleet::fleet(containers, &asked, fitting.as_ref(), watch).map_err(Failure::of)?;
        let text = || cpumax_report::fleet_text(&all, throttled, output::page());
        output::answer(json, all.iter().map(Document::from), text)?;
        let is_told = all.iter().any(|one| one.counted.is_some());
        return if is_told { Ok(()) } else { Err(Failure::Status(THIN)) };
    }
    let (observed, served) = args.alone.observed()?;
    let mut told = counted::counted(&observed, &asked).map_err(Failure::of)?;
    if let Some(mut fitting) = fitting {
        fitting.keep.p99_ns = fitting.keep.p99_ns.filter(|_| served.p99_ns.is_some());
        fitting.known.served = served;
        let fit = fitted::fit(&observed, &fitting, &Terminal::new()).map_err(Failure::of)?;
        told = told.with_fit(fit);
    }
    let text = || cpumax_report::counters_text(&told, throttled, output::page());
    output::answer(json, std::iter::once(Document::from(&told)), text)?;
    // A fit answers what no limit is asked for.
    let is_fitted = told.fit.is_some() && throttled.is_none() && args.p99.is_none();
    let is_answered = told.not_told.is_empty() && (told.enough.is_some() || is_fitted);
    if is_answered { Ok(()) } else { Err(Failure::Status(THIN)) }
}

impl Alone {
    fn observed(&self) -> Result<(Observed, Served), Failure> {
        if self.stat.is_some() {
            let observed = self.counting.observed(self.stat.as_deref(), Some(self.every))?;
            return Ok((observed, Served::default()));
        }
        let metrics = Metrics::parse(self.requests.as_deref(), self.latency.as_deref());
        let scraped = metrics.and_then(|metrics| self.counting.scraped(metrics));
        scraped.and_then(|scraped| scraped.one()).map_err(Failure::of)
    }

    /// `None`: nothing is to be fitted.
    fn fitting(
        &self,
        args: &AdviseArgs,
        current: Option<Limit>,
    ) -> Result<Option<Fitting>, Failure> {
        let named = args.running.kernels_asked().as_deref().map(parse_kernels).transpose();
        let named = named.map_err(anyhow::Error::from)?.unwrap_or_default();
        if named.len() > 1 {
            let what = "--kernel: give the kernel of the node only, and others to --other-kernels";
            return Err(anyhow!(what).into());
        }
        let others = self.other_kernels.as_deref().map(parse_kernels).transpose();
        let clients = args.choosing.clients;
        if clients.is_some_and(|clients| clients.number.is_some()) {
            return Err(anyhow!("--clients: with counters give closed or open").into());
        }
        let clients = clients.map(|clients| clients.ask);
        let threads = self.threads.map(u32::from);
        let keep = Keep { throttled_percent: args.throttled, p99_ns: args.p99 };
        let fitting = Fitting {
            others: others.map_err(anyhow::Error::from)?.unwrap_or_default(),
            current,
            known: Known { clients, threads, ..Known::default() },
            keep,
            draws: self.draws as usize,
            seed: args.running.seed,
            running: args.running.how(),
            ..Fitting::on(named.first().copied())
        };
        Ok((self.draws > 0).then_some(fitting))
    }
}
