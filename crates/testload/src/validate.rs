//! The validation of the what-if: each load is recorded without a limit, run for real under several
//! limits, predicted from its recording by `cpumax replay` for the same limits, and both are put
//! beside each other. The steps leave files in one directory, so each can be done again alone.
//!
//! Needs root, perf and a cgroup v1 or v2 cpu controller. The load is in a group of its own, its
//! client outside, as a service and its users are. Latency is taken where the model takes it: at
//! the thread that does the work, from the time a request is due (a client's write, a timer's tick)
//! until its work is done.

mod compare;
pub mod plan;
mod predict;
pub mod run;
mod ship;

use crate::stop::Stop;
use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use plan::{LIMITS, LOADS, Load};
use run::{Events, Setting};
use serde::de::DeserializeOwned;
pub use ship::Recordings;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct Validate {
    /// What to do.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "record,measure,predict,table")]
    steps: Vec<Step>,
    /// Loads to take, by name; all when not given.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Where recordings and results are kept.
    #[arg(long, default_value = "target/validate")]
    dir: PathBuf,
    /// Seed of the loads.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often each limit is measured, 1 to 100; the median run counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// How much work there is, in hundredths of the plan's.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    scale: u64,
    /// The command whose prediction is checked; by default the one beside this program.
    #[arg(long)]
    cpumax: Option<PathBuf>,
    /// Which of the two recordings the prediction is made from.
    #[arg(long, value_enum, default_value = "sched")]
    from: Events,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    /// Record each load without a limit, with perf, once with scheduling events and once with
    /// system calls too.
    Record,
    /// Run each load under each limit, and under none, without perf.
    Measure,
    /// Ask `cpumax replay` for the same.
    Predict,
    /// Print prediction beside measurement.
    Table,
}

/// What all steps need.
pub struct Context {
    pub dir: PathBuf,
    pub seed: u64,
    pub scale: u64,
    /// Which of the two recordings a prediction is made from.
    pub from: Events,
    pub stop: Stop,
}

impl Context {
    fn recording(&self, load: &Load, events: Events) -> PathBuf {
        self.dir.join(format!("{}.{events}.perf.data", load.name))
    }

    fn prediction(&self, load: &Load, setting: &str, seed: u64) -> PathBuf {
        self.dir.join(format!("{}.{setting}.{}.{seed}.predicted.json", load.name, self.from))
    }

    fn measurement(&self, load: &Load, setting: &str, repeat: u32) -> PathBuf {
        self.dir.join(format!("{}.{setting}.{repeat}.json", load.name))
    }
}

impl Validate {
    pub fn run(&self) -> Result<()> {
        fs::create_dir_all(&self.dir)
            .with_context(|| format!("cannot make {}", self.dir.display()))?;
        let context = Context {
            dir: self.dir.clone(),
            seed: self.seed,
            scale: self.scale,
            from: self.from,
            stop: Stop::on_signals()?,
        };
        let loads = self.loads()?;
        for step in &self.steps {
            for load in &loads {
                match step {
                    Step::Record => Self::record(&context, load)?,
                    Step::Measure => self.measure(&context, load)?,
                    Step::Predict => predict::predict(&context, load, &self.cpumax()?)?,
                    Step::Table => {}
                }
            }
            if *step == Step::Table {
                compare::print(&context, &loads, self.repeat)?;
            }
        }
        Ok(())
    }

    fn loads(&self) -> Result<Vec<&'static Load>> {
        if self.only.is_empty() {
            return Ok(LOADS.iter().filter(|load| load.validated).collect());
        }
        self.only
            .iter()
            .map(|name| {
                LOADS.iter().find(|load| load.name == name).with_context(|| {
                    let names: Vec<_> = LOADS.iter().map(|load| load.name).collect();
                    format!("no load `{name}`; there are {}", names.join(", "))
                })
            })
            .collect()
    }

    fn record(context: &Context, load: &Load) -> Result<()> {
        for events in [Events::Sched, Events::Syscalls] {
            let recording = Some((events, context.recording(load, events)));
            let setting = Setting::of_model(None, recording);
            Self::one(context, load, &format!("recording-{events}"), &setting, 0)?;
        }
        Ok(())
    }

    fn measure(&self, context: &Context, load: &Load) -> Result<()> {
        for repeat in 0..self.repeat {
            let unlimited = Setting::of_model(None, None);
            Self::one(context, load, "none", &unlimited, repeat)?;
            for limit in LIMITS {
                let setting = Setting::of_model(Some(*limit), None);
                Self::one(context, load, limit.name, &setting, repeat)?;
            }
        }
        Ok(())
    }

    /// Runs once and keeps what was measured.
    fn one(
        context: &Context,
        load: &Load,
        name: &str,
        setting: &Setting,
        repeat: u32,
    ) -> Result<()> {
        context.stop.check()?;
        let measured = run::run(context, load, setting)
            .with_context(|| format!("{} under {name}", load.name))?;
        eprintln!("{} under {name}, run {repeat}: {measured}", load.name);
        let path = context.measurement(load, name, repeat);
        fs::write(&path, serde_json::to_string_pretty(&measured)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn cpumax(&self) -> Result<PathBuf> {
        match &self.cpumax {
            Some(path) => Ok(path.clone()),
            None => Ok(std::env::current_exe()?.with_file_name("cpumax")),
        }
    }
}

/// Reads back what an earlier step kept; none when that was not done.
fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    if !path.exists() {
        return Ok(None);
    }
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text)
        .map(Some)
        .with_context(|| format!("{}: not what a step writes", path.display()))
}
