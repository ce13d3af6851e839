//! Small loads of known work, for recordings and for checks of predictions: a server with
//! closed-loop and rate-driven clients, periodic bursts, pipes, and a batch job.
//!
//! Everything uses the loopback interface, and every load is bounded. Work is CPU time drawn from a
//! seed, so two runs with one seed do equal work under any limits. Results are one JSON object on
//! standard output.

mod ask;
mod batch;
mod burst;
mod cgroup;
mod client;
mod clock;
mod draw;
mod limit;
mod loads;
mod machine;
mod measure;
mod pipeline;
mod process;
mod proof;
mod recordings;
mod scrub;
mod serve;
mod spin;
mod stop;

use clap::{Args, Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "testload", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Answer requests, each by some CPU time, with one thread for each connection.
    Serve(serve::Serve),
    /// Clients that wait for the answer before they ask again.
    Closed(client::Closed),
    /// Clients that ask on a schedule, answered or not.
    Rate(client::Rate),
    /// One thread that asks an HTTP or Redis server on many connections for a given time.
    Ask(ask::Ask),
    /// Threads that each work once in every period.
    Burst(burst::Burst),
    /// Senders and receivers around pipes, like hackbench.
    Pipeline(pipeline::Pipeline),
    /// Threads that share work in rounds.
    Batch(batch::Batch),
    /// Remove names of other programs and of the machine from a recording.
    Scrub(scrub::Scrub),
    /// Make the shipped recordings (needs root and perf).
    Recordings(recordings::Recordings),
    /// Record real servers, run them under limits, and compare these runs with predictions (needs
    /// root, perf and the servers' programs).
    Proof(proof::Proof),
}

/// Options of every load.
#[derive(Args, Debug, Clone)]
struct Common {
    /// Seed of all random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print `ready` after the set-up, and begin after a line on standard input.
    #[arg(long)]
    wait: bool,
}

impl Common {
    /// Prints `ready`, and waits for a line on standard input, if `--wait` is given.
    fn wait_for_start(&self) -> anyhow::Result<()> {
        use std::io::Write as _;
        if self.wait {
            println!("ready");
            std::io::stdout().flush()?;
            std::io::stdin().read_line(&mut String::new())?;
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(serve) => serve.run(),
        Command::Closed(closed) => closed.run(),
        Command::Rate(rate) => rate.run(),
        Command::Ask(ask) => ask.run(),
        Command::Burst(burst) => burst.run(),
        Command::Pipeline(pipeline) => pipeline.run(),
        Command::Batch(batch) => batch.run(),
        Command::Scrub(scrub) => scrub.run(),
        Command::Recordings(recordings) => recordings.run(),
        Command::Proof(proof) => proof.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("testload: {error:#}");
            ExitCode::from(2)
        }
    }
}
