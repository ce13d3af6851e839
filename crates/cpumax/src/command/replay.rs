//! `cpumax replay`: shows a recorded service under limits, on each kernel, beside the same without
//! a limit.

use crate::args::{self, Choosing, ReplayArgs};
use crate::failure::Failure;
use crate::output;
use crate::runs::Terminal;
use anyhow::Context;
use clap::CommandFactory;
use clap::parser::ValueSource;
use cpumax_forecast::{Replay, Request, recorded, replay::documents, saved::Saved};
use cpumax_machine::kernel;
use cpumax_recording::Defects;
use cpumax_report::{JsonArray, ResultFile, csv, escape, replay_text};
use cpumax_study::Try;
use std::path::Path;

pub fn replay(args: &ReplayArgs) -> Result<(), Failure> {
    let asked = args.running.kernels_asked().as_deref().map(kernel::parse_kernels).transpose()?;
    let request = request(args)?;
    request.limited_group().map_err(Failure::of)?;
    let json = args.running.json.as_deref().map(JsonArray::create).transpose()?;
    let table = args.csv.as_deref().map(ResultFile::create).transpose()?;
    let is_told = cpumax_report::stdout_is_free(json.as_ref(), table.as_ref())?;
    let recording = recorded::read(&args.reading.recording, args.reading.costs.options())
        .map_err(Failure::of)?;
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
    let kernels = asked.unwrap_or_else(|| replay.kernels());
    let (seed, running) = (args.running.seed, args.running.how());
    let watch = Terminal::new();
    let mut runs = replay.runs(&kernels, seed, &running, &watch).map_err(Failure::of)?;
    if args.stretches {
        replay.trace_decisive(&mut runs, &running, &watch).map_err(Failure::of)?;
    }
    drop(watch);
    let recorded = replay.document(&kernels, &runs);
    json.map_or(Ok(()), |json| json.write(documents(&recorded, &runs)))?;
    if let Some(table) = table {
        table.write_text(&csv(&Saved::of_replay(recorded, runs.clone())))?;
    }
    if is_told {
        let (name, page) = (recorded::name(&args.reading.recording), output::page());
        let threads = args.threads;
        output::print(&replay_text(&name, &replay, &kernels, &runs, threads, page))?;
    }
    Ok(())
}

fn request(args: &ReplayArgs) -> anyhow::Result<Request> {
    Ok(Request {
        limits: args.set.iter().map(|set| limit(set)).collect::<anyhow::Result<_>>()?,
        scale_load: args.scale_load,
        over_ns: args.over,
        made_by: again("replay", None),
        ..chosen(&args.choosing)
    })
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
const ASIDE: [&str; 9] =
    ["json", "csv", "svg", "markdown", "output", "trace", "runs", "write_scenario", "jobs"];

/// The words of this command line that decide the result, to be repeated later. `input` replaces
/// the recordings if only one of several counts.
pub fn again(name: &str, input: Option<&Path>) -> Vec<String> {
    let cli = args::Cli::command();
    let given = cli.clone().get_matches_from(std::env::args_os());
    let mut words = vec!["cpumax".to_owned(), name.to_owned()];
    words.extend(input.map(|path| path.to_string_lossy().into_owned()));
    let (Some((_, given)), Some(command)) = (given.subcommand(), cli.find_subcommand(name)) else {
        return words;
    };
    for argument in command.get_arguments() {
        let id = argument.get_id().as_str();
        let Ok(Some(values)) = given.try_get_raw(id) else { continue };
        if ASIDE.contains(&id) || given.value_source(id) != Some(ValueSource::CommandLine) {
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
