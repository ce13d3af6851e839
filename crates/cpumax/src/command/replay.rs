//! `cpumax replay`: shows a recorded service under limits, on each kernel, beside the same without
//! a limit.

use super::{Cli, Command};
use crate::args::{self, Choosing, Reading, Tables};
use crate::failure::Failure;
use crate::output;
use crate::runs::Terminal;
use anyhow::{Context, bail};
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, Parser, ValueHint};
use cpumax_forecast::{Replay, Request, recorded, replay::documents, saved::Saved};
use cpumax_machine::kernel::{self, Kernel};
use cpumax_recording::{Defects, Options};
use cpumax_report::{ResultFile, StudyFiles, escape, replay_text};
use cpumax_study::given::{factor, time};
use cpumax_study::{Running, Try};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub struct ReplayArgs {
    #[command(flatten)]
    pub reading: Reading,
    #[command(flatten)]
    pub choosing: Choosing,
    /// A limit to try, one --set for each: quota and period in us ('50000 100000'), or CPUs as in
    /// Kubernetes (500m, 2), systemd (50%) or docker (1.5cpus), optionally with a period
    /// (500m/10ms), or files (cpu.max.burst=20000,cpu.weight=50). pod: limits the group above;
    /// /web:500m,/sidecar:200m limits both. See docs/reference/limits.md
    #[arg(long, value_name = "[GROUP:]LIMIT", allow_hyphen_values = true)]
    pub set: Vec<String>,
    #[command(flatten)]
    pub running: args::Running,
    /// Show the percentage of requests that take longer than this, e.g. 200ms
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub over: Option<u64>,
    /// Show a row for each kind of limited thread
    #[arg(long)]
    pub threads: bool,
    /// Traffic as a multiple of the recorded: requests come that much faster, pauses and clocks are
    /// shorter
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    pub scale_load: Option<f64>,
    /// Add to the JSON which thread ran when and waited for which, as reports show it
    #[arg(long)]
    pub stretches: bool,
    #[command(flatten)]
    tables: Tables,
    /// Write the recording, with the first --set, as a scenario file; runs nothing without --set
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub write_scenario: Option<PathBuf>,
}

/// A replay, as words ask for it.
#[derive(Debug)]
pub struct Replaying {
    /// How the recording is read.
    pub options: Options,
    /// The question put to it.
    pub request: Request,
    /// The kernels; `None`: those of the recording and the newest.
    pub kernels: Option<Vec<Kernel>>,
    /// Seed of all random numbers.
    pub seed: u64,
    /// How it is run.
    pub running: Running,
}

impl Replaying {
    /// The replay that the words of `cpumax replay` ask for.
    ///
    /// # Errors
    /// An option, a limit or a kernel is not understood.
    pub fn parse(words: &[OsString]) -> anyhow::Result<Replaying> {
        match Cli::try_parse_from(words)?.command {
            Command::Replay(args) => Replaying::of(&args, words),
            _ => bail!("these are not words of `cpumax replay`"),
        }
    }

    fn of(args: &ReplayArgs, words: &[OsString]) -> anyhow::Result<Replaying> {
        let asked = args.running.kernels_asked();
        Ok(Replaying {
            options: args.reading.costs.options(),
            kernels: asked.as_deref().map(kernel::parse_kernels).transpose()?,
            request: Request {
                limits: args.set.iter().map(|set| limit(set)).collect::<anyhow::Result<_>>()?,
                scale_load: args.scale_load,
                over_ns: args.over,
                made_by: again(words, "replay", None),
                ..chosen(&args.choosing)
            },
            seed: args.running.seed,
            running: args.running.how(),
        })
    }
}

pub fn replay(args: &ReplayArgs, words: &[OsString]) -> Result<(), Failure> {
    let Replaying { options, request, kernels, seed, running } = Replaying::of(args, words)?;
    request.limited_group().map_err(Failure::of)?;
    let Tables { csv, parquet } = &args.tables;
    let files = StudyFiles::create(&args.running.json, csv, parquet)?;
    let is_told = files.leave_stdout();
    let recording = recorded::read(&args.reading.recording, options).map_err(Failure::of)?;
    let replay = Replay::new(&recorded::name(&args.reading.recording), &recording, &request);
    let replay = replay.map_err(Failure::of)?;
    // The runs are made from it and take as much memory again.
    drop(recording);
    warn(&replay.summary().defects);
    if let Some(file) = &args.write_scenario {
        let limit = request.limits.first();
        let scenario = replay.as_scenario(limit).map_err(Failure::of)?;
        let text = cpumax_workload::to_file(&scenario, &file.display().to_string())?;
        ResultFile::create(file)?.write_text(&text)?;
        if args.set.is_empty() {
            return Ok(());
        }
    }
    let kernels = kernels.unwrap_or_else(|| replay.kernels());
    let watch = Terminal::new();
    let mut runs = replay.runs(&kernels, seed, &running, &watch).map_err(Failure::of)?;
    if args.stretches {
        replay.trace_decisive(&mut runs, &running, &watch).map_err(Failure::of)?;
    }
    drop(watch);
    let recorded = replay.document(&kernels, &runs);
    let saved = || Saved::of_replay(recorded.clone(), runs.clone());
    files.write(documents(&recorded, &runs), saved)?;
    if is_told {
        let (name, page) = (recorded::name(&args.reading.recording), output::page());
        let threads = args.threads;
        output::print(&replay_text(&name, &replay, &kernels, &runs, threads, page))?;
    }
    Ok(())
}

/// The options for threads and for the understanding of a recording, as a request.
pub fn chosen(choosing: &Choosing) -> Request {
    Request {
        group: choosing.group.clone(),
        clients: choosing.clients,
        pin: choosing.pin.clone(),
        hz: choosing.hz,
        cpus: choosing.cpus,
        open_loop: choosing.open_loop.clone(),
        closed_loop: choosing.closed_loop.clone(),
        skip_late: choosing.skip_late.clone(),
        from_ns: choosing.from,
        until_ns: choosing.to,
        scale_work: choosing.scale_work,
        work: choosing.work_range,
        ..Request::default()
    }
}

pub fn limit(set: &str) -> anyhow::Result<Try> {
    Try::parse(set).with_context(|| format!("--set '{}'", escape::line(set)))
}

/// Prints faults of the recording that were repaired.
pub fn warn(defects: &Defects) {
    if !defects.is_empty() {
        anstream::eprintln!("The recording has faults that were repaired:\n{defects}");
    }
}

/// Ids of options that do not change a result.
const ASIDE: &str = "json csv parquet svg markdown output trace runs write_scenario jobs";

/// Those words of a command line that decide the result, to be repeated later. `input` replaces
/// the recordings if only one of several counts.
pub fn again(line: &[OsString], name: &str, input: Option<&Path>) -> Vec<String> {
    let cli = Cli::command();
    let given = cli.clone().get_matches_from(line);
    let mut words = vec!["cpumax".to_owned(), name.to_owned()];
    words.extend(input.map(|path| path.to_string_lossy().into_owned()));
    let (Some((_, given)), Some(command)) = (given.subcommand(), cli.find_subcommand(name)) else {
        return words;
    };
    for argument in command.get_arguments() {
        let id = argument.get_id().as_str();
        let Ok(Some(values)) = given.try_get_raw(id) else { continue };
        let is_said = given.value_source(id) == Some(ValueSource::CommandLine);
        if !is_said || ASIDE.split(' ').any(|aside| aside == id) {
            continue;
        }
        let option = argument.get_long().map(|long| format!("--{long}"));
        if !argument.get_action().takes_values() {
            words.extend(option);
            continue;
        }
        for value in values.map(|value| value.to_string_lossy()) {
            match &option {
                Some(option) if value.starts_with('-') => words.push(format!("{option}={value}")),
                option => words.extend(option.iter().cloned().chain([value.into_owned()])),
            }
        }
    }
    words
}
