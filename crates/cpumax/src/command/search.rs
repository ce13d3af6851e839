//! `cpumax search`: small random scenarios in two worlds, until some are found on which the two
//! differ.

use crate::args::{SearchArgs, WorldName};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{self, BAD, BOLD};
use crate::result_file::ResultFile;
use crate::worlds;
use anyhow::Context;
use cpumax_compare::cell::Mode;
use cpumax_compare::search::{Between, Event, Found, Line, Log, Plan, search as run};
use cpumax_compare::worlds::{How, world};
use cpumax_compare::{Model, World, found};
use cpumax_engine::NamedKernel;
use cpumax_workload::Preempt;
use indicatif::ProgressBar;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Cases of one seed: those of the next follow.
const CASES_MAX: u64 = 1_000_000;

pub fn search(args: &SearchArgs) -> Result<(), Failure> {
    let asked = worlds::one(&args.kernel, args.on, "--kernel")?;
    let against = match &args.against {
        Some(list) => Some(worlds::one(list, args.on, "--against")?),
        None if args.on == WorldName::Model => {
            return Err(Failure::Input(anyhow::anyhow!(
                "the model would be compared with itself: give another kernel with --against"
            )));
        }
        None => None,
    };
    let plan = Plan {
        first: args.seed.saturating_mul(CASES_MAX),
        cases: args.cases,
        beyond: args.beyond,
        kept_of_kind: args.shrink,
        attempts: args.attempts,
        limits_only: args.limits_only,
        level: against.as_ref().map(|against| preemption_of_both(&asked, against)),
    };
    let how = How {
        real: args.on == WorldName::Vm,
        mode: Mode::Exact,
        side_by_side: args.jobs.map(usize::from),
        kept: None,
        stop: interrupt::requested,
    };
    let model = How { real: false, ..how };
    let mut reference = world(&asked, how).map_err(Failure::of)?;
    let other = match &against {
        Some(against) => world(against, how),
        None => world(&asked, model),
    };
    let mut other = other.map_err(Failure::of)?;
    let search = format!(
        "cpumax {} search --on {} --kernel {} --against {} --seed {} --beyond {}",
        env!("CARGO_PKG_VERSION"),
        args.on,
        asked.name,
        other.label(),
        args.seed,
        args.beyond
    );
    let mut log = match &args.log {
        Some(path) => Log::open(path, &search).map_err(worlds::failure)?,
        None => Log::none(),
    };
    fs::create_dir_all(&args.keep)
        .with_context(|| format!("cannot make {}", args.keep.display()))?;
    let _watched = interrupt::Watched::begin();
    let mut telling = Telling::new(args, &asked, against.as_ref());
    let real = against.as_ref().filter(|_| args.on == WorldName::Vm);
    let mut models = real.map(|against| {
        [&asked, against].map(|asked| Model::new(asked.kernel, interrupt::requested))
    });
    let mut between = Between {
        reference: &mut *reference,
        against: &mut *other,
        models: models
            .as_mut()
            .map(|models| models.each_mut().map(|model| model as &mut dyn World)),
    };
    let ended = run(&plan, &mut log, &mut between, |event| telling.event(&event));
    telling.bar.finish_and_clear();
    telling.summary()?;
    ended.map_err(worlds::failure)?;
    if telling.has_run_none() {
        return Err(Failure::Input(anyhow::anyhow!("no case could be run")));
    }
    if telling.disagreed == 0 { Ok(()) } else { Err(Failure::Unexpected) }
}

/// Preemption that both kernels have: their own if that is the same, else the one that all have.
fn preemption_of_both(one: &NamedKernel, other: &NamedKernel) -> Preempt {
    let [own, of_other] = [one, other].map(|asked| asked.kernel.rules.preempt);
    let has_real_time = [one, other].iter().any(|asked| asked.name.ends_with("-rt"));
    if own == of_other && !has_real_time { own } else { Preempt::Full }
}

/// What is told while it goes on, and counted for the end.
struct Telling<'a> {
    args: &'a SearchArgs,
    /// The kernels, as options.
    kernels: String,
    bar: ProgressBar,
    cases: u64,
    disagreed: u64,
    refused: BTreeMap<String, u64>,
    failed: BTreeMap<String, u64>,
    kept: Vec<PathBuf>,
}

impl<'a> Telling<'a> {
    fn new(
        args: &'a SearchArgs,
        asked: &NamedKernel,
        against: Option<&NamedKernel>,
    ) -> Telling<'a> {
        let against = against.map_or(String::new(), |other| format!(" --against {}", other.name));
        let on = if args.on == WorldName::Vm { "" } else { " --on model" };
        let kernels = format!("--kernel {}{against}{on}", asked.name);
        let style = output::bar_style("{bar:40} {pos} of {len} cases{msg}{left}");
        let bar = ProgressBar::new(args.cases).with_style(style);
        Telling {
            args,
            kernels,
            bar,
            cases: 0,
            disagreed: 0,
            refused: BTreeMap::new(),
            failed: BTreeMap::new(),
            kept: Vec::new(),
        }
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), cpumax_compare::Error> {
        match event {
            Event::Case(line) => self.case(line),
            Event::Shrinking(attempts) => {
                self.bar.set_message(format!(", shrinking one for the {attempts}th time"));
            }
            // It is noted first.
            Event::Found(found) => return self.found(found),
        }
        if interrupt::requested() { Err(cpumax_compare::Error::Interrupted) } else { Ok(()) }
    }

    fn case(&mut self, line: &Line) {
        self.cases += 1;
        self.bar.inc(1);
        self.disagreed += u64::from(line.kind.is_some());
        self.bar.set_message(format!(", {} disagree", self.disagreed));
        if let Some(reason) = &line.reason {
            let counts = if line.refused { &mut self.refused } else { &mut self.failed };
            *counts.entry(reason.clone()).or_default() += 1;
        }
    }

    /// There were cases, and all of them were refused or failed.
    fn has_run_none(&self) -> bool {
        let not_run: u64 = self.refused.values().chain(self.failed.values()).sum();
        self.cases > 0 && not_run == self.cases
    }

    fn found(&mut self, found: &Found) -> Result<(), cpumax_compare::Error> {
        let path = self.args.keep.join(found::file_name(found));
        let again = self.again(&path, found.case);
        write(&path, &found::text(found, &self.command(), &again))?;
        let worst = found.cell.worst();
        let what = worst.map_or(String::new(), |worst| {
            format!("{} {}, {:.1} times the tolerance", worst.of, worst.field, worst.ratio)
        });
        self.bar.suspend(|| {
            // Whoever does not want to read need not; the rest is told at the end.
            let _ = writeln!(output::stdout(), "case {}: {what}: {}", found.case, path.display());
        });
        self.kept.push(path);
        Ok(())
    }

    /// What finds it.
    fn command(&self) -> String {
        let SearchArgs { seed, beyond, limits_only, .. } = self.args;
        let limits_only = if *limits_only { " --limits-only" } else { "" };
        format!("cpumax search {} --seed {seed} --beyond {beyond}{limits_only}", self.kernels)
    }

    /// What shows it again: what is drawn is drawn by the number of the case.
    fn again(&self, path: &Path, case: u64) -> String {
        format!("cpumax compare {} {} --seed {case}", path.display(), self.kernels)
    }

    fn summary(&self) -> anyhow::Result<()> {
        let mut out = output::stdout();
        let disagreed = output::styled(if self.disagreed > 0 { BAD } else { BOLD }, self.disagreed);
        writeln!(out, "{} cases, {disagreed} disagree, {} kept", self.cases, self.kept.len())?;
        for (counts, what) in [(&self.refused, "could not be run"), (&self.failed, "failed")] {
            for (reason, count) in counts {
                writeln!(out, "{count} {what}: {reason}")?;
            }
        }
        Ok(out.flush()?)
    }
}

fn write(path: &Path, text: &str) -> Result<(), cpumax_compare::Error> {
    let file = ResultFile::create(path);
    file.and_then(|file| file.write(|out| Ok(out.write_all(text.as_bytes())?))).map_err(|error| {
        cpumax_compare::Error::File {
            path: path.display().to_string(),
            reason: format!("{error:#}"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_kernels_run_with_a_preemption_that_both_have() {
        let of = |list: &str| {
            let kernels = worlds::kernels(list, WorldName::Vm).unwrap();
            preemption_of_both(&kernels[0], &kernels[1])
        };
        assert_eq!(of("6.1,6.12"), Preempt::Voluntary);
        assert_eq!(of("6.18,7.3"), Preempt::Lazy);
        assert_eq!(of("6.12,6.18"), Preempt::Full);
        assert_eq!(of("6.12,6.12-rt"), Preempt::Full);
    }
}
