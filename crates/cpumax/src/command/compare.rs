//! `cpumax compare`: the model held against real kernels, or one kernel against another, scenario
//! by scenario.

mod document;

use crate::args::{CompareArgs, Seeds, WorldName};
use crate::failure::Failure;
use crate::interrupt;
use crate::json::JsonArray;
use crate::output;
use crate::result_file::ResultFile;
use crate::worlds;
use anyhow::{Context, anyhow, bail};
use cpumax_compare::cell::Mode;
use cpumax_compare::matrix::{Noisy, Pair, column};
use cpumax_compare::parting::{beside, parting};
use cpumax_compare::worlds::{How, prepare, world};
use cpumax_compare::{Cell, Verdict, World};
use cpumax_engine::{NamedKernel, builtin, scenario};
use cpumax_report::{Matrix, MatrixCell};
use cpumax_workload::{Workload, random};
use indicatif::ProgressBar;
use std::fs;
use std::io::Write;
use std::path::Path;

pub fn compare(args: &CompareArgs) -> Result<(), Failure> {
    let workloads = workloads(args)?;
    let asked = worlds::kernels(&args.kernel, args.on)?;
    let against = against(args)?;
    let kept = kept(args)?;
    let files = Files::create(args)?;
    if let Some(folder) = &args.trace {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let pairs = pairs(args, &workloads);
    let _watched = interrupt::Watched::begin();
    let mode = if args.parallel { Mode::Parallel } else { Mode::Exact };
    let how = How {
        real: args.on == WorldName::Vm,
        mode,
        side_by_side: args.jobs.map(usize::from),
        kept,
        stop: interrupt::requested,
    };
    let bar = progress(pairs.len() * asked.len());
    bar.set_message("booting");
    bar.tick();
    let booted: Vec<&NamedKernel> = asked.iter().chain(&against).collect();
    prepare(&booted, how, &workloads).map_err(Failure::of)?;
    let mut columns: Vec<Vec<Cell>> = Vec::new();
    let mut traced = Ok(());
    let mut ran = Ok(());
    for kernel in &asked {
        bar.set_message(kernel.name.clone());
        let mut cells = Vec::new();
        let each = |mut cell: Cell| {
            if let Some(folder) = &args.trace
                && traced.is_ok()
            {
                traced = write_traces(folder, &kernel.name, &cell);
                cell.traces.clear();
            }
            cells.push(cell);
            bar.inc(1);
        };
        ran = held(&pairs, mode, kernel, against.as_ref(), how, each);
        columns.push(cells);
        if ran.is_err() {
            break;
        }
    }
    bar.finish_and_clear();

    let mut matrix = matrix_of(&workloads, &asked, &columns);
    let tally = matrix.tally();
    let title = title(args, against.as_ref());
    let shown = files.json.as_ref().is_none_or(|json| !json.is_stdout());
    if ran.is_err() {
        // What is done is told, but put into no file, where it would pass for all of it.
        if shown && !tally.is_of_nothing() {
            let is_done = |cell: &MatrixCell| !matches!(cell, MatrixCell::Open);
            matrix.rows.retain(|(_, cells)| cells.iter().any(is_done));
            let done: usize = columns.iter().map(Vec::len).sum();
            let all = pairs.len() * asked.len();
            // Why it ended matters more than who reads.
            let _ = tell(&format!("{title}; broken off after {done} of {all}"), &matrix);
        }
        return ran;
    }
    let written = files.write(args, &title, &workloads, &asked, &columns);
    // Whatever became of files, what was found is told.
    let told = if shown { tell(&title, &matrix) } else { Ok(()) };
    traced.and(written).and(told)?;
    if tally.is_of_nothing() {
        return Err(anyhow!(tally.sentence()).into());
    }
    if tally.differ + tally.failed > 0 { Err(Failure::Unexpected) } else { Ok(()) }
}

/// What is compared: each workload with each seed.
fn pairs<'a>(args: &CompareArgs, workloads: &'a [Workload]) -> Vec<Pair<'a>> {
    let seeds = args.seeds.unwrap_or(Seeds { first: args.seed, last: args.seed });
    let trace = args.trace.is_some();
    let noisy = Noisy::up_to(args.noisy);
    let runs = args.median;
    let of = |workload| {
        (seeds.first..=seeds.last).map(move |seed| Pair { workload, seed, trace, noisy, runs })
    };
    workloads.iter().flat_map(of).collect()
}

/// One column: what is run on that kernel.
fn held(
    pairs: &[Pair<'_>],
    mode: Mode,
    kernel: &NamedKernel,
    against: Option<&NamedKernel>,
    how: How<'_>,
    each: impl FnMut(Cell),
) -> Result<(), Failure> {
    let mut reference = world(kernel, how).map_err(Failure::of)?;
    let other: Result<Box<dyn World + '_>, _> = match against {
        Some(against) => world(against, how),
        None => world(kernel, How { real: false, ..how }),
    };
    let mut other = other.map_err(Failure::of)?;
    column(pairs, mode, &mut *reference, &mut *other, each).map_err(worlds::failure)
}

fn tell(title: &str, matrix: &Matrix) -> anyhow::Result<()> {
    let mut out = output::stdout();
    let tally = matrix.tally();
    writeln!(out, "{title}\n\n{}", cpumax_report::matrix(matrix))?;
    if !tally.is_of_nothing() {
        writeln!(out, "{}", tally.sentence())?;
    }
    Ok(out.flush()?)
}

/// The files that were asked for.
struct Files {
    json: Option<JsonArray>,
    svg: Option<ResultFile>,
    markdown: Option<ResultFile>,
}

impl Files {
    fn create(args: &CompareArgs) -> anyhow::Result<Files> {
        Ok(Files {
            json: args.json.as_deref().map(JsonArray::create).transpose()?,
            svg: args.svg.as_deref().map(ResultFile::create).transpose()?,
            markdown: args.markdown.as_deref().map(ResultFile::create).transpose()?,
        })
    }

    /// Each of them, also where another one cannot be written.
    fn write(
        self,
        args: &CompareArgs,
        title: &str,
        workloads: &[Workload],
        asked: &[NamedKernel],
        columns: &[Vec<Cell>],
    ) -> anyhow::Result<()> {
        let cases = args.cases.map_or(0, |cases| (cases.last - cases.first) as usize + 1);
        let json = self.json.map_or(Ok(()), |json| json.write(columns.iter().flatten()));
        let svg = self.svg.map_or(Ok(()), |file| {
            let shown = document::without_agreeing(&matrix_of(workloads, asked, columns), cases);
            let text = cpumax_report::svg(&shown, title);
            file.write(|out| Ok(out.write_all(text.as_bytes())?))
        });
        let markdown = self.markdown.map_or(Ok(()), |file| {
            let text = document::text(args, title, workloads, cases, asked, columns);
            file.write(|out| Ok(out.write_all(text.as_bytes())?))
        });
        json.and(svg).and(markdown)
    }
}

fn title(args: &CompareArgs, against: Option<&NamedKernel>) -> String {
    let against = match (against, args.on) {
        (Some(other), WorldName::Model) => {
            format!("The models of these kernels against that of {}", other.name)
        }
        (Some(other), WorldName::Vm) => format!("These kernels against {}", other.name),
        (None, _) => "Real kernels against the model".to_owned(),
    };
    format!("{against}; 1 is the edge of the tolerance")
}

fn against(args: &CompareArgs) -> Result<Option<NamedKernel>, Failure> {
    let Some(list) = &args.against else {
        if args.on == WorldName::Model {
            let what = "the model would be compared with itself";
            return Err(anyhow!("{what}: give another kernel with --against").into());
        }
        return Ok(None);
    };
    Ok(Some(worlds::one(list, args.on, "--against")?))
}

fn kept(args: &CompareArgs) -> anyhow::Result<Option<&Path>> {
    if args.runs.is_some() && args.on == WorldName::Model {
        bail!("--runs keeps what real kernels did: it goes with --on vm");
    }
    Ok(args.runs.as_deref())
}

fn workloads(args: &CompareArgs) -> anyhow::Result<Vec<Workload>> {
    let mut workloads =
        args.scenarios.iter().map(|name| scenario::load(name)).collect::<Result<Vec<_>, _>>()?;
    if args.all {
        for built_in in builtin::ALL {
            workloads.push(cpumax_workload::parse(built_in.text, built_in.name)?);
        }
    }
    if let Some(Seeds { first, last }) = args.cases {
        let random = if args.parallel { random::real_on_several } else { random::real };
        workloads.extend((first..=last).map(random));
    }
    if workloads.is_empty() {
        bail!("nothing to compare: give scenarios, --all or --cases");
    }
    Ok(workloads)
}

fn matrix_of(workloads: &[Workload], asked: &[NamedKernel], columns: &[Vec<Cell>]) -> Matrix {
    let row = |workload: &Workload| {
        let cells = columns.iter().map(|cells| {
            let same: Vec<&Cell> =
                cells.iter().filter(|cell| cell.scenario == workload.name).collect();
            summed_up(&same)
        });
        (workload.name.clone(), cells.collect())
    };
    Matrix {
        columns: asked.iter().map(|kernel| kernel.name.clone()).collect(),
        rows: workloads.iter().map(row).collect(),
    }
}

/// The cells of all seeds as one.
fn summed_up(cells: &[&Cell]) -> MatrixCell {
    let held: Vec<(&Cell, f64)> =
        cells.iter().filter_map(|cell| Some((*cell, cell.verdict.ratio()?))).collect();
    for cell in cells {
        if let Verdict::Failed(reason) = &cell.verdict {
            return MatrixCell::Failed(reason.clone());
        }
    }
    let Some(&(worst, ratio)) = held.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else {
        let refused = cells.iter().find_map(|cell| match &cell.verdict {
            Verdict::Refused(reason) => Some(reason.clone()),
            _ => None,
        });
        return refused.map_or(MatrixCell::Open, MatrixCell::Refused);
    };
    MatrixCell::Held {
        ratio,
        beyond: held.iter().filter(|(cell, _)| cell.verdict.differs()).count() as u64,
        seeds: held.len() as u64,
        deviations: worst.deviations.iter().filter(|d| d.is_beyond()).cloned().collect(),
        parted: parted(worst),
    }
}

/// Where the two part; where a run was led along the reference's, where that one does.
fn parted(cell: &Cell) -> Option<String> {
    let Some(led) = &cell.led else { return cell.parted.clone() };
    let places = match led.places {
        0 => "in one run of the model".to_owned(),
        1 => "led in 1 place".to_owned(),
        places => format!("led in {places} places"),
    };
    if led.ratio <= 1.0 {
        let agrees = format!("{places}, all numbers agree");
        return Some(match &cell.parted {
            Some(parted) => format!("{parted}; {agrees}"),
            None => agrees,
        });
    }
    let parted = match (&led.parted, led.together_ns) {
        (Some(parted), _) => parted.clone(),
        (None, None) => "the same turns to the end".to_owned(),
        (None, Some(ns)) => format!("the same turns to {:.2} ms", ns as f64 / 1e6),
    };
    Some(if led.places == 0 { parted } else { format!("{places}: {parted}") })
}

/// What happened in both worlds, in two files that can be compared line by line.
fn write_traces(folder: &Path, kernel: &str, cell: &Cell) -> anyhow::Result<()> {
    for (trace, side) in cell.traces.iter().zip(["first", "second"]) {
        let name = format!("{}-{kernel}-{}-{side}.txt", cell.scenario, cell.seed);
        let lines: Vec<String> = trace.lines().collect();
        write_file(&folder.join(name), &(lines.join("\n") + "\n"))?;
    }
    let [first, second] = &cell.traces[..] else { return Ok(()) };
    if let Some(found) = parting(first, second) {
        let name = format!("{}-{kernel}-{}-parting.txt", cell.scenario, cell.seed);
        let head = format!(
            "From {:.3} ms on {} gets {} CPU time on the left ({}) than on the right ({}); all times in ms.\n",
            found.since_ns as f64 / 1e6,
            found.task,
            if found.more_ns > 0 { "more" } else { "less" },
            cell.reference,
            cell.against,
        );
        let lines = beside(first, second, &found);
        write_file(&folder.join(name), &(head + "\n" + &lines.join("\n") + "\n"))?;
    }
    Ok(())
}

fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    ResultFile::create(path)?.write(|out| Ok(out.write_all(text.as_bytes())?))
}

/// Draws nothing when standard error is not a terminal.
fn progress(cells: usize) -> ProgressBar {
    let template = "{bar:40} {pos} of {len} comparisons, now on {msg}{left}";
    ProgressBar::new(cells as u64).with_style(output::bar_style(template))
}
