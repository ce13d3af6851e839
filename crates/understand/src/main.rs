//! Judges how well recordings are understood: services whose truth is known are drawn, run by the
//! model, recorded and replayed under limits, and each number is held against the model's own runs
//! of the true service under these limits.
//!
//! The model is on both sides, so what differs is a fault of understanding. What the language of
//! scenarios cannot say is not judged: recordings of real services have the last word.

mod judge;
mod plan;
mod record;
mod scenario;
mod tally;

use clap::Parser;
use judge::Judged;
use plan::{Client, Plan, Server};
use rayon::prelude::*;
use record::Depth;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use tally::{Tally, name};

/// Judges how well recordings of services are understood, whose truth is known
#[derive(Debug, Parser)]
#[command(name = "understand")]
struct Args {
    /// Which services: each seed is one
    #[arg(long, value_name = "A..B", default_value = "0..1999", value_parser = seeds)]
    seeds: (u64, u64),
    /// What is recorded; both if not given
    #[arg(long)]
    depth: Option<Depth>,
    /// Services of these servers only
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    server: Vec<Server>,
    /// Services of these clients only
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    client: Vec<Client>,
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
    let wanted = |plan: &Plan| {
        (args.server.is_empty() || args.server.contains(&plan.server))
            && (args.client.is_empty() || args.client.contains(&plan.client))
    };
    let plans = (from..=until).map(|seed| Plan::draw(seed, None, None)).filter(wanted).collect();
    let services = judged(plans, args)?;
    let tally = Tally::of(&services);
    let text = if args.json {
        serde_json::json!({ "kinds": tally.json(), "services": services }).to_string() + "\n"
    } else {
        let listed = if args.list { list(&services) } else { String::new() };
        format!("{listed}{} services\n{}", services.len(), tally.table())
    };
    io::stdout().write_all(text.as_bytes()).map_err(|e| e.to_string())
}

/// Judges all, side by side, and tells how far it is.
fn judged(plans: Vec<Plan>, args: &Args) -> Result<Vec<Judged>, String> {
    let depths = args.depth.map_or_else(|| vec![Depth::Sched, Depth::Calls], |depth| vec![depth]);
    let (all, done) = (plans.len(), AtomicUsize::new(0));
    let one = |plan: Plan| {
        let judged = judge::judge(plan, &depths, args.keep.as_deref());
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if done % 20 == 0 || done == all {
            eprint!("\r{done} of {all} services{}", if done == all { "\n" } else { "" });
        }
        judged
    };
    plans.into_par_iter().map(one).collect()
}

/// A line for each number that is wrong, and for each recording that could not be replayed.
fn list(services: &[Judged]) -> String {
    let mut out = String::new();
    for service in services {
        let plan = &service.plan;
        let (server, client) = (name(&plan.server), name(&plan.client));
        for verdict in &service.verdicts {
            let of = format!("{:5} {:6} {server:12} {client:14}", plan.seed, name(&verdict.depth));
            if let Some(failed) = &verdict.failed {
                out += &format!("{of} not replayed: {failed}\n");
                continue;
            }
            let clients = verdict.clients.as_deref().unwrap_or("no requests");
            let connections = verdict.connections.unwrap_or(0);
            for cell in verdict.cells.iter().filter(|cell| !cell.is_right()) {
                let told = cell.told.map_or("-".to_owned(), |told| {
                    format!("{:.2} ({:.2}..{:.2})", told.value, told.low, told.high)
                });
                let mark = if cell.is_marked { "?" } else { " " };
                let truth = cell.truth;
                out += &format!(
                    "{of} {}.{}x {mark} {:9} {told} for {:.2} ({:.2}..{:.2}); {clients}, \
                     {connections} of {} connections\n",
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
