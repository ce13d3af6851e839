//! Makes the shipped recordings: short runs of the loads, without names of other programs.

use crate::limit::Limit;
use crate::loads::Load;
use crate::loads::run::{Events, Setting, run};
use crate::scrub::scrub;
use crate::stop::Stop;
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use std::fs;
use std::path::PathBuf;

const LARGEST_BYTES: usize = 2_000_000;

#[derive(Debug)]
struct Shipped {
    name: &'static str,
    load: &'static str,
    limit: Limit,
    events: Events,
    /// Amount of work, per cent of the load's usual amount.
    scale: u64,
}

const SHIPPED: &[Shipped] = &[
    shipped("web-closed", "web-closed", Limit::NONE, Events::Sched, 60),
    shipped("web-closed-limited", "web-closed", Limit::of_100_ms(50), Events::Sched, 30),
    shipped("web-closed-syscalls", "web-closed", Limit::NONE, Events::Syscalls, 15),
    shipped("web-rate", "web-rate", Limit::NONE, Events::Sched, 60),
    shipped("bursts", "bursts", Limit::NONE, Events::Sched, 60),
    shipped("batch", "batch", Limit::NONE, Events::Sched, 60),
    shipped("batch-limited", "batch", Limit::of_100_ms(80), Events::Sched, 30),
    shipped("pipeline", "pipeline", Limit::NONE, Events::Sched, 150),
];

const fn shipped(
    name: &'static str,
    load: &'static str,
    limit: Limit,
    events: Events,
    scale: u64,
) -> Shipped {
    Shipped { name, load, limit, events, scale }
}

#[derive(Args)]
pub struct Recordings {
    /// Directory for the recordings.
    #[arg(long, default_value = "recordings")]
    dir: PathBuf,
    /// Recordings to make, by name; all by default.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Seed of the loads.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory for recordings before names are removed.
    #[arg(long, default_value = "target/recordings")]
    raw_dir: PathBuf,
}

impl Recordings {
    pub fn run(&self) -> Result<()> {
        for dir in [&self.dir, &self.raw_dir] {
            fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        let stop = Stop::on_signals()?;
        for shipped in SHIPPED {
            if !self.only.is_empty() && !self.only.iter().any(|name| name == shipped.name) {
                continue;
            }
            self.make(shipped, &stop).with_context(|| shipped.name.to_owned())?;
        }
        Ok(())
    }

    fn make(&self, shipped: &Shipped, stop: &Stop) -> Result<()> {
        stop.check()?;
        let file = format!("{}.perf.data", shipped.name);
        let raw = self.raw_dir.join(&file);
        let setting = Setting {
            seed: self.seed,
            scale: shipped.scale,
            limit: shipped.limit,
            recording: Some((shipped.events, raw.clone())),
            as_modelled: true,
            stop: stop.clone(),
        };
        let measured = run(Load::find(shipped.load)?, &setting)?;
        let bytes = fs::read(&raw).with_context(|| format!("cannot read {}", raw.display()))?;
        let scrubbed = scrub(&bytes, &[])?;
        ensure!(
            scrubbed.len() <= LARGEST_BYTES,
            "{} bytes, more than {LARGEST_BYTES}",
            scrubbed.len()
        );
        let path = self.dir.join(&file);
        fs::write(&path, &scrubbed).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("{file}: {} KiB; {measured}", scrubbed.len() / 1024);
        Ok(())
    }
}
