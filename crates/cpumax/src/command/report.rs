//! `cpumax report`: writes recordings or saved results as one HTML file.

use super::replay::{again, chosen, limit, warn};
use crate::args::{Choosing, Costs};
use crate::failure::Failure;
use crate::output;
use crate::runs::Terminal;
use anyhow::anyhow;
use clap::{Args, ValueHint};
use cpumax_forecast::{Request, recorded, saved::Saved};
use cpumax_machine::kernel;
use cpumax_report::{Named, ResultFile, answer_lines, html};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Output of `cpumax replay --json` or `cpumax advise --json`, or recordings; several are shown
    /// one below the other
    #[arg(required = true, value_name = "STUDY|RECORDING", value_hint = ValueHint::FilePath)]
    inputs: Vec<PathBuf>,
    /// The file to write; - for standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(default_value = "report.html")]
    output: PathBuf,
    /// For recordings, a limit to try, as in replay [default: several around the use]
    #[arg(long, value_name = "[GROUP:]LIMIT", allow_hyphen_values = true)]
    set: Vec<String>,
    /// For recordings, the kernels [default: the recorded one and the newest]
    #[arg(short, long, value_name = "LIST")]
    kernel: Option<String>,
    #[command(flatten)]
    choosing: Choosing,
    #[command(flatten)]
    costs: Costs,
}

pub fn report(args: &ReportArgs, words: &[OsString]) -> Result<(), Failure> {
    let file = ResultFile::create(&args.output)?;
    let named =
        |path: &PathBuf| Ok(Named { name: recorded::name(path), study: study(path, args, words)? });
    let studies = args.inputs.iter().map(named).collect::<Result<Vec<_>, Failure>>()?;
    let is_stdout = file.is_stdout();
    file.write_text(&html(&studies, env!("CARGO_PKG_VERSION")))?;
    let told = answer_lines(&studies, output::page());
    if is_stdout { output::eprint(&told) } else { output::print(&told) }
}

fn study(path: &Path, args: &ReportArgs, words: &[OsString]) -> Result<Saved, Failure> {
    if Saved::is_in(path) {
        let is_asked = !args.set.is_empty() || args.kernel.is_some();
        if is_asked || !args.choosing.group.is_empty() {
            let path = path.display();
            let what = format!("are for recordings: {path} has saved results");
            return Err(anyhow!("--set, --kernel and --group {what}").into());
        }
        return Saved::read(path).map_err(Failure::of);
    }
    let limits = args.set.iter().map(|set| limit(set)).collect::<anyhow::Result<_>>()?;
    let mut made_by = again(words, "replay", Some(path));
    made_by.push("--stretches".to_owned());
    let request = Request { limits, made_by, ..chosen(&args.choosing) };
    let kernels = args.kernel.as_deref().map(kernel::parse_kernels).transpose()?;
    let (options, watch) = (args.costs.options(), Terminal::new());
    let (study, defects) =
        Saved::of_recording(path, options, &request, kernels, &watch).map_err(Failure::of)?;
    warn(&defects);
    Ok(study)
}
