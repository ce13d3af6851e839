//! Checks predictions on real servers: records them without a limit, runs them under limits,
//! predicts these runs from the recordings by `cpumax replay`, and reports the errors.
//!
//! Needs root, perf, zstd and a cgroup v1 or v2 cpu controller. The limited group holds all
//! processes of the server; the client runs outside, and latency is the client's. Services whose
//! programs the machine lacks are reported and left out.

mod advice;
mod client;
mod files;
mod predict;
mod run;
mod score;
mod server;
mod services;
mod tables;

use crate::limit::Limit;
use crate::stop::Stop;
use advice::Target;
use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use files::Folder;
use run::{Perf, Session};
use serde_json::json;
use services::{Kind, SERVICES, Service};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct Proof {
    /// Steps to take.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "record,measure,predict,score")]
    steps: Vec<Step>,
    /// Services, by name; all by default.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Directory of recordings and results.
    #[arg(long, default_value = "target/proof")]
    dir: PathBuf,
    /// Limits, quota/period in ms with `+b` and a burst; `U`, no limit, shows the drift.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "U,20/100,50/100,100/100,U,25/50,10/20,25/50+b25"
    )]
    limits: Vec<Limit>,
    /// Runs under each limit, in addition to earlier ones.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Seconds of each run.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// The cpumax command to check; by default the one beside this program.
    #[arg(long)]
    cpumax: Option<PathBuf>,
    /// Kernel whose rules the machine follows, as in `cpumax replay --kernel`.
    #[arg(long, default_value = "6.18")]
    kernel: String,
    /// Recorders: perf with the scheduler's events (plain) or with system calls (full), or
    /// `cpumax record` with system calls (record), which takes no load of testload's own.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "plain,full")]
    recorders: Vec<Perf>,
    /// Targets for `cpumax advise`, each alone.
    #[arg(long, value_delimiter = ',', default_value = "p99=50ms,slower-than=20%,throttled=5%")]
    targets: Vec<Target>,
    /// Recorder whose recordings `cpumax advise` reads.
    #[arg(long, value_enum, default_value = "full")]
    advised_from: Perf,
    /// Print the score as JSON instead of Markdown.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    /// Record each service without a limit, by each recorder.
    Record,
    /// Run each service under each limit, without perf.
    Measure,
    /// Predict these runs by `cpumax replay`.
    Predict,
    /// Print the errors of predictions, and write the tables to `score.md`.
    Score,
    /// Ask `cpumax advise` for a limit that keeps each target, and run the service under it and
    /// under one a fifth smaller.
    Advise,
    /// Print how often advised limits kept their targets, and smaller ones did not.
    Kept,
}

impl Proof {
    pub fn run(&self) -> Result<()> {
        let stop = Stop::on_signals()?;
        let done = self.take_steps(&stop);
        // Otherwise the error would be that of a program that ctrl-C also ended.
        stop.check()?;
        done
    }

    fn take_steps(&self, stop: &Stop) -> Result<()> {
        let folder = Folder::open(&self.dir)?;
        let cpumax = match &self.cpumax {
            Some(path) => path.canonicalize().with_context(|| path.display().to_string())?,
            None => std::env::current_exe()?.with_file_name("cpumax"),
        };
        let has = |step| self.steps.contains(&step);
        if has(Step::Record) || has(Step::Measure) || has(Step::Advise) {
            let services = self.services()?;
            let rounds = if has(Step::Measure) { self.repeat } else { 1 };
            // Round by round, so that runs under one limit are minutes apart.
            for round in 1..=rounds {
                for service in &services {
                    let record = has(Step::Record) && round == 1;
                    self.serve(&folder, service, (record, round == 1), &cpumax, stop)
                        .with_context(|| service.name.to_owned())?;
                }
            }
        }
        if has(Step::Predict) {
            let asked = predict::ReplayCommand::new(&cpumax, &self.kernel)?;
            predict::predict(&folder, &asked, &self.only, stop)?;
        }
        if has(Step::Score) {
            self.score(&folder)?;
        }
        if has(Step::Kept) {
            print!("{}", advice::markdown(&folder.advices()?));
        }
        Ok(())
    }

    /// The requested services, without those that the machine cannot run.
    fn services(&self) -> Result<Vec<&'static Service>> {
        if !self.only.is_empty() {
            let services = self.only.iter().map(|name| Service::find(name));
            let services: Vec<_> = services.collect::<Result<_>>()?;
            for service in &services {
                let missing = service.missing();
                ensure!(missing.is_empty(), "{} needs {}", service.name, missing.join(", "));
            }
            return Ok(services);
        }
        let (mut services, mut left_out) = (Vec::new(), Vec::new());
        for service in SERVICES {
            match service.missing()[..] {
                [] => services.push(service),
                [..] => left_out.push(service),
            }
        }
        for service in left_out {
            eprintln!("{} is left out: no {}", service.name, service.missing().join(", "));
        }
        if services.is_empty() {
            bail!("no service is left");
        }
        Ok(services)
    }

    /// Records, measures and checks advice for one service in one round.
    fn serve(
        &self,
        folder: &Folder,
        service: &'static Service,
        (record, advise): (bool, bool),
        cpumax: &Path,
        stop: &Stop,
    ) -> Result<()> {
        eprintln!("{}: starts", service.name);
        let mut session = Session::start(service, self.seconds, cpumax, stop)?;
        if record {
            let own = matches!(service.kind, Kind::Own(_));
            for &perf in self.recorders.iter().filter(|one| !own || **one != Perf::Record) {
                let run = session.record(perf, &folder.recordings())?;
                eprintln!("{} recorded {}: {}", service.name, perf.name(), run.describe());
                folder.add_recording(&perf.file(service.name), &run, &session.group())?;
            }
        }
        if self.steps.contains(&Step::Measure) {
            let runs = folder.runs()?;
            let before = runs.iter().filter(|run| run.workload == service.name);
            let rep = 1 + before.map(|run| run.rep).max().unwrap_or(0);
            for limit in &self.limits {
                let run = session.measure(limit, rep)?;
                eprintln!("{} under {limit}, run {rep}: {}", service.name, run.describe());
                folder.add_run(run)?;
            }
        }
        if advise && self.steps.contains(&Step::Advise) {
            let asked = advice::AdviseCommand {
                cpumax,
                kernel: &self.kernel,
                from: if matches!(service.kind, Kind::Own(_)) {
                    Perf::Full
                } else {
                    self.advised_from
                },
            };
            advice::advise(folder, &asked, &self.targets, &mut session)?;
        }
        Ok(())
    }

    fn score(&self, folder: &Folder) -> Result<()> {
        let (runs, predictions) = (folder.runs()?, folder.predictions()?);
        let mut cells = score::cells(&runs, &predictions);
        if !self.only.is_empty() {
            let asked = |cell: &score::Cell| {
                self.only.iter().any(|name| name == score::workload(&cell.recording))
            };
            cells.retain(asked);
        }
        ensure!(!cells.is_empty(), "{}: nothing is predicted yet", self.dir.display());
        if self.json {
            let score = json!({ "summaries": score::summaries(&cells), "cells": cells });
            println!("{}", serde_json::to_string_pretty(&score)?);
        } else {
            let tables = tables::markdown(folder, &runs, &predictions, &cells)?;
            folder.write("score.md", &tables)?;
            print!("{tables}");
        }
        Ok(())
    }
}
