//! Makes the recordings that are shipped: short ones of the same loads, with names of other
//! programs taken out.

use super::Context;
use super::plan::{LIMITS, LOADS, SHIPPED, Shipped};
use super::run::{self, Setting};
use crate::scrub::scrub;
use crate::stop::Stop;
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use std::fs;
use std::path::PathBuf;

const LARGEST_BYTES: usize = 2_000_000;

#[derive(Args)]
pub struct Recordings {
    /// Where to put them.
    #[arg(long, default_value = "recordings")]
    dir: PathBuf,
    /// Which ones, by name; all when not given.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Seed of the loads.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where recordings are before names are taken out.
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
            let context = Context {
                dir: self.raw_dir.clone(),
                seed: self.seed,
                scale: shipped.scale,
                from: shipped.events,
                stop: stop.clone(),
            };
            self.make(&context, shipped).with_context(|| shipped.name.to_owned())?;
        }
        Ok(())
    }

    fn make(&self, context: &Context, shipped: &Shipped) -> Result<()> {
        context.stop.check()?;
        let load = LOADS.iter().find(|load| load.name == shipped.load).context("no such load")?;
        let limit = LIMITS.iter().find(|limit| Some(limit.name) == shipped.limit);
        let file = format!("{}.perf.data", shipped.name);
        let raw = self.raw_dir.join(&file);
        let recording = Some((shipped.events, raw.clone()));
        let setting = Setting::of_model(limit.copied(), recording);
        let measured = run::run(context, load, &setting)?;
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
