//! `cpumax replay`: a recorded service under limits it did not have, on each kernel, against no
//! limit.

use crate::args::{Choosing, ReplayArgs};
use crate::failure::Failure;
use crate::output;
use crate::runs::Terminal;
use anyhow::Context;
use cpumax_engine::replay::Run;
use cpumax_engine::saved::Saved;
use cpumax_engine::{Replay, Request, Try, recorded};
use cpumax_machine::kernel;
use cpumax_recording::Defects;
use cpumax_report::{JsonArray, ResultFile, csv, escape, replayed};

pub fn replay(args: &ReplayArgs) -> Result<(), Failure> {
    let asked = args.running.kernels_asked().map(kernel::parse_kernels).transpose()?;
    let request = request(args)?;
    request.limited_group().map_err(Failure::of)?;
    let json = args.running.json.as_deref().map(JsonArray::create).transpose()?;
    let recording = recorded::read(&args.reading.recording, args.reading.costs.options())
        .map_err(Failure::of)?;
    let replay = Replay::new(&recorded::name(&args.reading.recording), &recording, &request);
    let replay = replay.map_err(Failure::of)?;
    // What runs is made of it and takes as much memory again.
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
    let runs = replay.runs(&kernels, seed, &running, &Terminal::new()).map_err(Failure::of)?;
    let documents =
        || std::iter::once(replay.document(&kernels, &runs)).chain(runs.iter().map(Run::document));
    let is_told = json.as_ref().is_none_or(|json| !json.is_stdout());
    json.map_or(Ok(()), |json| json.write(documents()))?;
    if let Some(path) = &args.csv {
        ResultFile::create(path)?
            .write_text(&csv(&Saved::of(documents()).map_err(Failure::of)?))?;
    }
    if is_told {
        let (name, page) = (recorded::name(&args.reading.recording), output::page());
        let threads = args.threads;
        output::print(&replayed(&name, &replay, &kernels, &runs, threads, page))?;
    }
    Ok(())
}

fn request(args: &ReplayArgs) -> anyhow::Result<Request> {
    Ok(Request {
        limits: args.set.iter().map(|set| limit(set)).collect::<anyhow::Result<_>>()?,
        scale_load: args.scale_load,
        ..chosen(&args.choosing)
    })
}

/// Which threads are limited, and how the recording is understood.
pub fn chosen(choosing: &Choosing) -> Request {
    Request {
        group: choosing.group.clone(),
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

/// Repairs are told whatever becomes of the run.
pub fn warn(defects: &Defects) {
    if !defects.is_empty() {
        anstream::eprintln!("The recording has faults that were repaired:\n{defects}");
    }
}
