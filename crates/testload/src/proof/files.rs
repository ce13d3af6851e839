//! The directory of a proof: results.json (all runs), groups.json (names of the limited group of
//! each recording), recordings/ (packed), predictions.json, advice.json, score.md (tables of the
//! last score).

use super::run::Run;
use anyhow::{Context as _, Result, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A prediction of `cpumax replay` for a recording and a limit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Prediction {
    pub recording: String,
    pub setting: String,
    /// Factor of the work; `None`: as recorded.
    pub scale: Option<f64>,
    /// `prediction` of its JSON; `None` if it failed.
    pub said: Option<Value>,
    pub failed: Option<String>,
}

/// The limit advised for a service and a target, and its effect.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Advice {
    pub workload: String,
    pub target: String,
    /// Bound of the measured number.
    pub bound: Option<f64>,
    /// Quota/period in ms; `None` if no limit was named.
    pub limit: Option<String>,
    /// Number measured under that limit.
    pub found: Option<f64>,
    pub kept: Option<bool>,
    /// A limit a fifth smaller, and its results.
    pub smaller: Option<String>,
    pub smaller_found: Option<f64>,
    pub smaller_kept: Option<bool>,
    pub why_not: Option<String>,
}

pub struct Folder(PathBuf);

impl Folder {
    pub fn open(path: &Path) -> Result<Folder> {
        let folder = Folder(path.to_owned());
        let recordings = folder.recordings();
        fs::create_dir_all(&recordings)
            .with_context(|| format!("cannot make {}", recordings.display()))?;
        Ok(folder)
    }

    pub fn recordings(&self) -> PathBuf {
        self.0.join("recordings")
    }

    pub fn runs(&self) -> Result<Vec<Run>> {
        self.read("results.json")
    }

    pub fn add_run(&self, run: Run) -> Result<()> {
        self.write_lines("results.json", &[self.runs()?, vec![run]].concat())
    }

    /// Arguments of `cpumax replay` for each recording.
    pub fn groups(&self) -> Result<BTreeMap<String, Vec<String>>> {
        self.read("groups.json")
    }

    /// Packs a recording, and writes the recorded run beside it.
    pub fn add_recording(&self, file: &str, run: &Run, group: &str) -> Result<()> {
        let name = file.trim_end_matches(".data");
        let path = self.recordings().join(file);
        // perf makes its files private.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644))
            .with_context(|| format!("cannot open {} to all", path.display()))?;
        zstd(&["-q", "-f", "-6", "--rm"], &path)?;
        let about = json!({ "recording": format!("{file}.zst"), "run": run });
        self.write(&format!("recordings/{name}.json"), &serde_json::to_string_pretty(&about)?)?;
        let mut groups = self.groups()?;
        groups.insert(name.to_owned(), vec!["--group".to_owned(), group.to_owned()]);
        self.write("groups.json", &serde_json::to_string_pretty(&groups)?)
    }

    /// The run that was recorded.
    pub fn recorded(&self, recording: &str) -> Result<Run> {
        #[derive(Deserialize)]
        struct About {
            run: Run,
        }
        let path = self.recordings().join(format!("{recording}.json"));
        Ok(parse::<About>(&path)?.run)
    }

    pub fn unpack(&self, recording: &str, into: &Path) -> Result<PathBuf> {
        let path = into.join(format!("{recording}.data"));
        let packed = self.recordings().join(format!("{recording}.data.zst"));
        let output = path.to_string_lossy().into_owned();
        zstd(&["-d", "-q", "-f", "-o", &output], &packed)?;
        Ok(path)
    }

    pub fn predictions(&self) -> Result<Vec<Prediction>> {
        self.read("predictions.json")
    }

    pub fn advices(&self) -> Result<Vec<Advice>> {
        self.read("advice.json")
    }

    /// Adds the result of an advice; replaces an earlier one for the workload and target.
    pub fn add_advice(&self, advice: Advice) -> Result<()> {
        let mut all = self.advices()?;
        all.retain(|one| (&one.workload, &one.target) != (&advice.workload, &advice.target));
        all.push(advice);
        self.write_lines("advice.json", &all)
    }

    pub fn write_predictions(&self, predictions: &[Prediction]) -> Result<()> {
        self.write_lines("predictions.json", predictions)
    }

    /// Writes an array with an item on each line.
    fn write_lines<T: Serialize>(&self, name: &str, items: &[T]) -> Result<()> {
        let lines = items.iter().map(serde_json::to_string);
        let lines: Vec<String> = lines.collect::<Result<_, _>>()?;
        self.write(name, &format!("[\n{}\n]\n", lines.join(",\n")))
    }

    fn read<T: DeserializeOwned + Default>(&self, name: &str) -> Result<T> {
        let path = self.0.join(name);
        if !path.exists() {
            return Ok(T::default());
        }
        parse(&path)
    }

    /// Replaces a file atomically.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let (path, new) = (self.0.join(name), self.0.join(format!("{name}.new")));
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

fn parse<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{}: not what a proof keeps", path.display()))
}

fn zstd(arguments: &[&str], path: &Path) -> Result<()> {
    let output = Command::new("zstd").args(arguments).arg(path).output();
    let output = output.context("cannot start zstd")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "zstd {}: {}", path.display(), said.trim());
    Ok(())
}
