//! Judges how well recordings are understood: draws services, runs them in the model, records and
//! replays them under limits, and compares each number with the model's own runs of the true
//! service under these limits.
//!
//! Both sides use the model, so a difference is a fault of understanding. Behaviour that scenarios
//! cannot express is not judged: that takes recordings of real services.

mod judge;
mod plan;
mod record;
mod scenario;
mod tally;

use clap::{Parser, ValueEnum};
use judge::Judged;
use plan::{Client, Plan, Server};
use rayon::prelude::*;
use record::Depth;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use tally::{Tally, name};

/// Judges how well recordings of drawn services, whose truth is known, are understood
#[derive(Debug, Parser)]
#[command(name = "understand")]
struct Args {
    /// Seeds of the services, first and last
    #[arg(long, value_name = "A..B", default_value = "0..1999", value_parser = seeds)]
    seeds: (u64, u64),
    /// Judge only every Nth of them
    #[arg(long, value_name = "N", default_value = "1")]
    step: NonZeroUsize,
    /// Events of the recordings; both kinds by default
    #[arg(long)]
    depth: Option<Depth>,
    /// Only these kinds of servers or clients, e.g. tiers,fan-out,closed-loop
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = kind)]
    kind: Vec<Kind>,
    /// Print each number that is wrong
    #[arg(long)]
    list: bool,
    /// Print all as JSON, on one line
    #[arg(long)]
    json: bool,
    /// Keep scenarios and recordings in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Server(Server),
    Client(Client),
}

fn kind(text: &str) -> Result<Kind, String> {
    let server = Server::from_str(text, false).map(Kind::Server);
    server.or_else(|_| Client::from_str(text, false).map(Kind::Client)).map_err(|_| {
        let servers = Server::value_variants().iter().map(name);
        let all: Vec<String> = servers.chain(Client::value_variants().iter().map(name)).collect();
        format!("no such kind; there are {}", all.join(", "))
    })
}

/// Whether the service matches the requested kinds of servers and of clients; no request matches
/// all.
fn is_wanted(plan: &Plan, kinds: &[Kind]) -> bool {
    let of = |is_server: bool| {
        kinds.iter().filter(move |one| matches!(one, Kind::Server(_)) == is_server)
    };
    let fits =
        |is_server, own| of(is_server).next().is_none() || of(is_server).any(|one| *one == own);
    fits(true, Kind::Server(plan.server)) && fits(false, Kind::Client(plan.client))
}

fn seeds(text: &str) -> Result<(u64, u64), String> {
    let wrong = || "two numbers are needed, like 0..1999, the last one included".to_owned();
    let (from, until) = text.split_once("..").ok_or_else(wrong)?;
    let (from, until) = (from.parse().map_err(|_| wrong())?, until.parse().map_err(|_| wrong())?);
    if from <= until { Ok((from, until)) } else { Err(wrong()) }
}

fn main() -> ExitCode {
    let args = Args::parse();
    match answer(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("understand: {what}");
            ExitCode::from(2)
        }
    }
}

fn answer(args: &Args) -> Result<(), String> {
    if let Some(folder) = &args.keep {
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let (from, until) = args.seeds;
    let seeds = (from..=until).step_by(args.step.get());
    let plans = seeds.map(Plan::draw).filter(|plan| is_wanted(plan, &args.kind));
    let depths = args.depth.map_or_else(|| vec![Depth::Sched, Depth::Calls], |depth| vec![depth]);
    let services = judged(plans.collect(), &depths, args.keep.as_deref())?;
    let tally = Tally::of(&services);
    let text = if args.json {
        serde_json::json!({ "kinds": tally.json(), "services": services }).to_string() + "\n"
    } else {
        let listed = if args.list { list(&services) } else { String::new() };
        format!("{listed}{} services\n{}", services.len(), tally.table())
    };
    io::stdout().write_all(text.as_bytes()).map_err(|e| e.to_string())
}

/// Judges all services in parallel and shows progress.
fn judged(plans: Vec<Plan>, depths: &[Depth], keep: Option<&Path>) -> Result<Vec<Judged>, String> {
    let (all, done) = (plans.len(), AtomicUsize::new(0));
    let one = |plan: Plan| {
        let judged = judge::judge(plan, depths, keep);
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if done % 20 == 0 || done == all {
            eprint!("\r{done} of {all} services{}", if done == all { "\n" } else { "" });
        }
        judged
    };
    plans.into_par_iter().map(one).collect()
}

/// A line for each wrong number, and for each recording that could not be replayed.
fn list(services: &[Judged]) -> String {
    let mut out = String::new();
    for service in services {
        let plan = &service.plan;
        let (server, client) = (name(&plan.server), name(&plan.client));
        for verdict in &service.verdicts {
            let of = format!("{:5} {:6} {server:12} {client:14}", plan.seed, name(&verdict.depth));
            if let Some(failed) = &verdict.failed {
                let _ = writeln!(out, "{of} not replayed: {failed}");
                continue;
            }
            let clients = verdict.clients.as_deref().unwrap_or("no requests");
            let connections = verdict.connections.unwrap_or(0);
            for cell in verdict.cells.iter().filter(|cell| !cell.is_right()) {
                let told = cell.told.map_or("-".to_owned(), |told| {
                    format!("{:.2} ({:.2}..{:.2})", told.value, told.low, told.high)
                });
                let mark = if cell.marked.is_some() { "?" } else { " " };
                let truth = cell.truth;
                let _ = writeln!(
                    out,
                    "{of} {}.{}x {mark} {:9} {told} for {:.2} ({:.2}..{:.2}); {clients}, \
                     {connections} of {} connections",
                    cell.limit / 100,
                    cell.limit / 10 % 10,
                    name(&cell.number),
                    truth.median,
                    truth.low,
                    truth.high,
                    plan.connections
                );
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Services with short runs.
    const FIXED: [u64; 18] =
        [0, 37, 74, 111, 185, 296, 333, 370, 407, 444, 481, 518, 592, 629, 666, 703, 740, 777];
    /// For each depth, of 152 numbers: how many are right, and how many are wrong without a mark.
    const FLOOR: [(&str, u64, u64); 2] = [("calls", 145, 6), ("sched", 103, 8)];

    /// Fails if a change makes understanding of these services worse.
    #[test]
    fn recordings_are_understood_as_well_as_they_were() {
        let plans = FIXED.map(Plan::draw).to_vec();
        let tally = Tally::of(&judged(plans, &[Depth::Sched, Depth::Calls], None).unwrap());
        for (depth, right, wrong) in FLOOR {
            let all = tally.all(depth);
            assert!(all.right >= right, "{depth}: {all:?}, of which {right} were right");
            assert!(all.unmarked_wrong <= wrong, "{depth}: {all:?}, {wrong} were wrong unmarked");
        }
    }

    #[test]
    fn each_pair_of_kinds_is_drawn_and_every_service_can_be_run() {
        let pairs = Server::value_variants().len() * Client::value_variants().len();
        for seed in 0..pairs as u64 {
            let plan = Plan::draw(seed);
            for limit in [None, Some((50_000, 100_000))] {
                let parsed = cpumax_study::workload::parse(&plan.scenario(limit), "drawn.toml");
                assert!(parsed.is_ok(), "{plan:?}: {parsed:?}");
            }
            assert!(plan.duration_ns >= 100_000_000 && plan.connections > 0, "{plan:?}");
        }
    }

    #[test]
    fn kinds_are_told_apart() {
        assert_eq!(kind("tiers"), Ok(Kind::Server(Server::Tiers)));
        assert_eq!(kind("open-plans"), Ok(Kind::Client(Client::OpenPlans)));
        assert!(kind("none").unwrap_err().contains("fan-out"));
        let plan = Plan::draw(0);
        assert!(is_wanted(&plan, &[]) && is_wanted(&plan, &[Kind::Server(plan.server)]));
        assert!(!is_wanted(&plan, &[Kind::Server(plan.server), Kind::Client(Client::OpenEven)]));
    }
}
