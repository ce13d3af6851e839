//! The files that the events of runs go to.

use crate::args::RunArgs;
use anyhow::bail;
use cpumax_engine::Job;
use std::path::{Path, PathBuf};

/// Where the events of each job go: of those that are shown, if anywhere.
///
/// # Errors
/// Two would go to the same file.
pub fn of(
    jobs: &[Job],
    scenarios: usize,
    args: &RunArgs,
    is_shown: impl Fn(&Job) -> bool,
) -> anyhow::Result<Vec<Option<PathBuf>>> {
    let alone = jobs.iter().filter(|job| is_shown(job)).count() == 1;
    let names = Names { alone, scenario: scenarios > 1, seed: args.seeds.is_some() };
    let path = |job: &Job| {
        let wanted = args.trace.as_deref().filter(|_| is_shown(job));
        wanted.map(|path| names.path(path, &job.workload.name, &job.kernel.name, job.seed))
    };
    let paths: Vec<Option<PathBuf>> = jobs.iter().map(path).collect();
    check_paths(paths.iter().filter_map(Option::as_deref))?;
    Ok(paths)
}

/// What the traces of several runs differ by.
struct Names {
    /// There is but one.
    alone: bool,
    /// Scenarios differ.
    scenario: bool,
    /// Seeds differ.
    seed: bool,
}

impl Names {
    /// The file of one run.
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

/// No file may be written twice.
///
/// # Errors
/// One would be.
fn check_paths<'a>(paths: impl Iterator<Item = &'a Path>) -> anyhow::Result<()> {
    let mut paths: Vec<&Path> = paths.collect();
    paths.sort();
    if let Some(pair) = paths.windows(2).find(|pair| pair[0] == pair[1]) {
        bail!(
            "two runs would write their trace to {}: give scenarios of different names",
            pair[0].display()
        );
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
    }
}
