//! Files for the events of runs.

use crate::chrome::ChromeTrace;
use crate::file::ResultFile;
use cpumax_outcome::trace::{Numbered, TraceEvent, TraceSink};
use cpumax_study::{Job, OtherError, Traced};
use std::fs::File;
use std::io::{self, BufWriter, Seek};
use std::path::{Path, PathBuf};

/// For each job the file for its events, if any.
#[derive(Debug, Default)]
pub struct TraceFiles(Vec<Option<PathBuf>>);

/// Two runs would write to one file.
#[derive(Debug, thiserror::Error)]
#[error("two runs would write their trace to {0}: give scenarios of different names")]
pub struct SameTraceFile(String);

impl TraceFiles {
    /// Assigns files to the jobs for which `is_shown` holds. A single one gets `path`; of several,
    /// each has the kernel in its name, the scenario if `scenarios`, and the seed if `seeds`.
    ///
    /// # Errors
    /// Two jobs would write to one file.
    pub fn new(
        path: &Path,
        jobs: &[Job],
        is_shown: impl Fn(&Job) -> bool,
        (scenarios, seeds): (bool, bool),
    ) -> Result<TraceFiles, SameTraceFile> {
        let alone = jobs.iter().filter(|job| is_shown(job)).count() == 1;
        let names = Names { alone, scenario: scenarios, seed: seeds };
        let of = |job: &Job| names.path(path, &job.workload.name, &job.kernel.name, job.seed);
        let paths: Vec<Option<PathBuf>> =
            jobs.iter().map(|job| is_shown(job).then(|| of(job))).collect();
        check_paths(paths.iter().filter_map(Option::as_deref))?;
        Ok(TraceFiles(paths))
    }

    /// Opens the file for the events of the job with this index.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn open(&self, job: usize) -> Traced {
        let Some(path) = self.0.get(job).and_then(Option::as_deref) else { return Ok(None) };
        Ok(Some(Box::new(Trace::create(path)?)))
    }
}

struct Trace {
    /// Into a temporary file: a run that fails leaves nothing.
    events: ChromeTrace<BufWriter<File>>,
    file: ResultFile,
}

impl Trace {
    fn create(path: &Path) -> Result<Trace, OtherError> {
        let file = ResultFile::create(path)?;
        let scratch = file.scratch().map(BufWriter::new);
        let events = scratch
            .and_then(ChromeTrace::new)
            .map_err(|error| format!("cannot make a temporary file for the trace: {error}"))?;
        Ok(Trace { events, file })
    }
}

impl TraceSink for Trace {
    fn event(&mut self, event: TraceEvent) {
        self.events.event(event);
    }

    fn name(&mut self, of: Numbered, name: String) {
        self.events.name(of, name);
    }
}

impl cpumax_study::Trace for Trace {
    fn done(self: Box<Self>) -> Result<(), OtherError> {
        let Trace { events, file } = *self;
        Ok(file.write(|out| {
            let mut text = events.finish()?.into_inner()?;
            text.rewind()?;
            io::copy(&mut text, out).map(drop)
        })?)
    }
}

struct Names {
    alone: bool,
    scenario: bool,
    seed: bool,
}

impl Names {
    fn path(&self, path: &Path, scenario: &str, kernel: &str, seed: u64) -> PathBuf {
        if self.alone {
            return path.to_owned();
        }
        let mut parts = vec![kernel.to_owned()];
        if self.scenario {
            parts.insert(0, scenario.to_owned());
        }
        if self.seed {
            parts.push(format!("seed{seed}"));
        }
        with_parts(path, &parts)
    }
}

/// Checks that no file is written twice.
///
/// # Errors
/// Two paths are equal.
fn check_paths<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<(), SameTraceFile> {
    let mut paths: Vec<&Path> = paths.collect();
    paths.sort();
    if let Some(pair) = paths.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(SameTraceFile(cpumax_limit::shown(pair[0])));
    }
    Ok(())
}

/// `trace.json` with `6.18` becomes `trace-6.18.json`.
fn with_parts(path: &Path, parts: &[String]) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut name = format!("{stem}-{}", parts.join("-").replace(['/', '\\'], "_"));
    if let Some(extension) = path.extension() {
        name = format!("{name}.{}", extension.to_string_lossy());
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_traces_are_named_by_what_tells_them_apart() {
        let parts = ["a/b".to_owned(), "6.18".to_owned()];
        assert_eq!(
            with_parts(Path::new("/tmp/x.y/trace.json"), &parts),
            Path::new("/tmp/x.y/trace-a_b-6.18.json")
        );
        assert_eq!(with_parts(Path::new("trace"), &parts[1..]), Path::new("trace-6.18"));
        let same = [Path::new("a"), Path::new("b"), Path::new("a")];
        assert!(check_paths(same.into_iter()).unwrap_err().to_string().contains("to a:"));
        check_paths(same[..2].iter().copied()).unwrap();
    }
}
