//! A study that was saved as JSON, by a replay or with advice, read again: what was predicted of
//! which limit on which kernel, to be shown or held against what then happened.

use crate::advise::{Goal, Measure};
use crate::error::Error;
use crate::job::Share;
use crate::predict::{Prediction, Ranged};
use crate::recorded;
use crate::replay::{self, Replay, Request};
use crate::traced::RunTrace;
use crate::watch::Watch;
use crate::what_if::Beside;
use crate::world::Running;
use cpumax_limit::{Limit, Rules, shown};
use cpumax_machine::kernel::Kernel;
use cpumax_outcome::Histogram;
use cpumax_recording::{Defects, Gap, Options};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Larger files are no study.
const FILE_MAX_BYTES: u64 = 256 << 20;

/// What was saved.
///
/// ```
/// use cpumax_engine::saved::Saved;
///
/// let text = r#"[{"group":"/web","cpu_max":"50000 100000","burst_usec":0,"scenario":"web.data",
///     "world":"model","kernel":"6.18","seed":1,"groups":{},"prediction":{
///     "cpus":{"value":0.5,"low":0.4,"high":0.5},"throttled_percent":null,
///     "requests_per_second":null,"request_latency_ns":null,"latency_of":"bursts",
///     "work_takes_ns":null,"predictable":true,"why_not":null}}]"#;
/// let saved = Saved::parse("web.json", text)?;
/// assert_eq!(saved.runs[0].limit.limit.millicpus(), Some(500));
/// # Ok::<(), cpumax_engine::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Saved {
    /// What was recorded, of each recording.
    pub recordings: Vec<Recorded>,
    /// What each limit does on each kernel.
    pub runs: Vec<Run>,
    /// What is recommended, where that was asked.
    pub advice: Option<Advice>,
}

/// What was recorded.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Recorded {
    /// What the recording is called.
    #[serde(rename = "scenario")]
    pub name: String,
    /// Path of the limited group.
    pub group: String,
    /// The recorded kernel.
    pub kernel: Option<String>,
    /// Length, ns.
    pub simulated_ns: u64,
    /// When its load was there.
    pub window: Span,
    /// What was recorded.
    pub prediction: Prediction,
    /// What was repaired, and how often.
    #[serde(default)]
    pub repairs: BTreeMap<String, u64>,
    /// Where the replay without a limit is not what was recorded.
    #[serde(default)]
    pub disagreements: Vec<String>,
    /// What is not in it.
    #[serde(default)]
    pub gaps: Vec<Gap>,
    /// What clients ask is not in it.
    #[serde(default)]
    pub is_unheard: bool,
    /// Limits that were not tried.
    #[serde(default)]
    pub not_tried: Vec<NotTried>,
    /// The words of the command that made it.
    #[serde(default)]
    pub made_by: Vec<String>,
}

/// A stretch of time, ns since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Span {
    /// Its start.
    pub from_ns: u64,
    /// Its end.
    pub until_ns: u64,
}

/// A limit that was not tried.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct NotTried {
    /// Which.
    pub limit: String,
    /// On which kernel.
    pub kernel: String,
    /// Why not.
    pub why: String,
}

/// A limit, with all that belongs to it.
///
/// [Example](Saved).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// What the group may use.
    pub limit: Limit,
    /// Its weight, where that was tried.
    pub weight: Option<u32>,
    /// What the group above it may use, where that was tried.
    pub pod: Option<Share>,
    /// What other groups may use at the same time.
    pub beside: Vec<Beside>,
}

/// What a limit does to a recording on a kernel.
///
/// [Example](Saved).
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The recording.
    pub recording: String,
    /// The limit.
    pub limit: Tried,
    /// What it is beside others: `none`, `recommended`, `smaller`, `risky` or `current`, where
    /// advice was asked.
    pub role: Option<String>,
    /// The kernel.
    pub kernel: String,
    /// What it does.
    pub prediction: Prediction,
    /// Latencies, where requests or bursts were.
    pub latencies: Histogram,
    /// What was asked, held against that.
    pub held: Vec<Held>,
    /// A run of it looked at closely, where that was asked.
    pub trace: Option<RunTrace>,
}

/// A goal held against a prediction.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Held {
    /// What is measured for it.
    pub measure: Measure,
    /// What it may be at most, or at least for rates.
    pub bound: f64,
    /// What it is.
    pub found: Option<Ranged<f64>>,
    /// Whether the worse end of that keeps it.
    pub kept: bool,
}

/// What is recommended.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// What was asked.
    pub asked: Vec<Goal>,
    /// The limit; `None`: none is.
    pub recommended: Option<Limit>,
    /// Why none can be recommended: recording, why, and what to record instead.
    pub lacks: Vec<Lack>,
    /// So many times the recorded traffic.
    pub load: f64,
}

/// What a recording does not tell.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Lack {
    /// The recording.
    pub recording: String,
    /// What is wrong with it.
    pub why: String,
    /// What to record instead.
    pub instead: String,
}

impl Saved {
    /// Whether a file is a study as far as its beginning tells, and no recording: an array.
    pub fn is_in(path: &Path) -> bool {
        let mut start = [0; 64];
        let read = File::open(path).and_then(|mut file| file.read(&mut start));
        let start = &start[..read.unwrap_or(0)];
        start.trim_ascii_start().starts_with(b"[")
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or is no study.
    pub fn read(path: &Path) -> Result<Saved, Error> {
        let name = shown(path);
        let failed = |source| Error::File { path: name.clone(), source };
        let mut text = String::new();
        let file = File::open(path).map_err(failed)?;
        file.take(FILE_MAX_BYTES).read_to_string(&mut text).map_err(failed)?;
        Saved::parse(&name, &text)
    }

    /// Reads its text; `name` is for messages.
    ///
    /// # Errors
    /// It is no study.
    pub fn parse(name: &str, text: &str) -> Result<Saved, Error> {
        let wrong = |what: String| Error::Saved { path: name.to_owned(), what };
        let items: Vec<Value> =
            serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        Saved::from_items(items).map_err(wrong)
    }

    /// What is about to be written: the same as is read again.
    ///
    /// # Errors
    /// It is no study.
    pub fn of(documents: impl Iterator<Item = impl Serialize>) -> Result<Saved, Error> {
        let wrong = |what: String| Error::Saved { path: "the study".to_owned(), what };
        let items: Result<Vec<Value>, _> = documents.map(serde_json::to_value).collect();
        Saved::from_items(items.map_err(|error| wrong(error.to_string()))?).map_err(wrong)
    }

    /// A recording replayed under limits, on these kernels or the usual ones, as if it had been
    /// saved; and what was repaired.
    ///
    /// # Errors
    /// As of a replay.
    pub fn of_recording(
        path: &Path,
        options: Options,
        request: &Request,
        kernels: Option<Vec<Kernel>>,
        watch: &dyn Watch,
    ) -> Result<(Saved, Defects), Error> {
        let recording = recorded::read(path, options)?;
        let replay = Replay::new(&recorded::name(path), &recording, request)?;
        let kernels = kernels.unwrap_or_else(|| replay.kernels());
        let mut runs = replay.runs(&kernels, 1, &Running::default(), watch)?;
        replay.trace_telling(&mut runs, &Running::default(), watch)?;
        let first = std::iter::once(replay.document(&kernels, &runs));
        let saved = Saved::of(first.chain(runs.iter().map(replay::Run::document)))?;
        Ok((saved, replay.summary().defects.clone()))
    }

    fn from_items(items: Vec<Value>) -> Result<Saved, String> {
        let mut saved = Saved { recordings: Vec::new(), runs: Vec::new(), advice: None };
        for (at, item) in items.into_iter().enumerate() {
            saved.take(item).map_err(|what| format!("object {}: {what}", at + 1))?;
        }
        if saved.runs.is_empty() && saved.advice.is_none() {
            return Err("it has no predictions".to_owned());
        }
        Ok(saved)
    }

    fn take(&mut self, item: Value) -> Result<(), String> {
        let told = |error: serde_json::Error| error.to_string();
        if item.get("asked").is_some() {
            let told: AdviceText = serde_json::from_value(item).map_err(told)?;
            return self.take_advice(told);
        }
        if item.get("world").and_then(Value::as_str) == Some("recording") {
            self.recordings.push(serde_json::from_value(item).map_err(told)?);
            return Ok(());
        }
        let mut run: RunText = serde_json::from_value(item).map_err(told)?;
        let limit = run.limit.read()?;
        let own = run.groups.remove(&run.group).unwrap_or_default();
        self.runs.push(Run {
            recording: run.scenario,
            limit,
            role: None,
            kernel: run.kernel,
            prediction: run.prediction,
            latencies: own.latency_histogram_ns,
            held: Vec::new(),
            trace: run.trace,
        });
        Ok(())
    }

    fn take_advice(&mut self, told: AdviceText) -> Result<(), String> {
        for tried in told.limits {
            let limit = tried.limit.read()?;
            let run = |run: HeldText| Run {
                recording: run.recording,
                limit: limit.clone(),
                role: Some(tried.role.clone()),
                kernel: run.kernel,
                prediction: run.prediction,
                latencies: run.latency_histogram_ns.unwrap_or_default(),
                held: run.held,
                trace: run.trace,
            };
            self.runs.extend(tried.runs.into_iter().map(run));
        }
        let recommended = told.recommended.map(|limit| limit.read()).transpose()?;
        self.recordings.extend(told.recordings);
        self.advice = Some(Advice {
            asked: told.asked,
            recommended: recommended.map(|tried| tried.limit),
            lacks: told.lacks,
            load: told.load,
        });
        Ok(())
    }
}

impl Tried {
    /// Quota, period and burst in ms, as tables call it.
    pub fn label(&self) -> String {
        let beside: Vec<(&str, Share)> =
            self.beside.iter().map(|one| (one.path.as_str(), one.share)).collect();
        let own = Share { limit: self.limit, weight: self.weight };
        crate::what_if::label_of(own, self.pod, &beside)
    }

    /// Whether it is of the group alone.
    pub fn is_alone(&self) -> bool {
        self.pod.is_none() && self.beside.is_empty()
    }
}

/// A limit as it is written.
#[derive(Debug, Deserialize)]
struct LimitText {
    #[serde(flatten)]
    own: ShareText,
    #[serde(default)]
    pod: Option<ShareText>,
    #[serde(default)]
    beside: Vec<BesideText>,
}

#[derive(Debug, Deserialize)]
struct ShareText {
    cpu_max: String,
    burst_usec: u64,
    #[serde(default)]
    weight: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct BesideText {
    group: String,
    #[serde(flatten)]
    share: ShareText,
}

impl LimitText {
    fn read(&self) -> Result<Tried, String> {
        let pod = self.pod.as_ref().map(ShareText::read).transpose()?;
        let beside =
            |one: &BesideText| Ok(Beside { path: one.group.clone(), share: one.share.read()? });
        let beside = self.beside.iter().map(beside).collect::<Result<_, String>>()?;
        let Share { limit, weight } = self.own.read()?;
        Ok(Tried { limit, weight, pod, beside })
    }
}

impl ShareText {
    fn read(&self) -> Result<Share, String> {
        let written = Limit::UNLIMITED.write_cpu_max(&self.cpu_max);
        let burst_ns = self.burst_usec.checked_mul(1_000).ok_or("a burst beyond any time")?;
        let limit = written.map_err(|error| error.to_string())?;
        let limit = Limit::new_under(&Rules::NEWEST, limit.quota_ns(), limit.period_ns(), burst_ns);
        Ok(Share { limit: limit.map_err(|error| error.to_string())?, weight: self.weight })
    }
}

/// A run of a replay as it is written.
#[derive(Debug, Deserialize)]
struct RunText {
    group: String,
    #[serde(flatten)]
    limit: LimitText,
    scenario: String,
    kernel: String,
    prediction: Prediction,
    #[serde(default)]
    trace: Option<RunTrace>,
    #[serde(default)]
    groups: BTreeMap<String, GroupText>,
}

#[derive(Debug, Default, Deserialize)]
struct GroupText {
    #[serde(default)]
    latency_histogram_ns: Histogram,
}

/// Advice as it is written.
#[derive(Debug, Deserialize)]
struct AdviceText {
    asked: Vec<Goal>,
    recommended: Option<LimitText>,
    #[serde(default)]
    lacks: Vec<Lack>,
    limits: Vec<TriedText>,
    #[serde(default = "one")]
    load: f64,
    #[serde(default)]
    recordings: Vec<Recorded>,
}

fn one() -> f64 {
    1.0
}

#[derive(Debug, Deserialize)]
struct TriedText {
    role: String,
    #[serde(flatten)]
    limit: LimitText,
    runs: Vec<HeldText>,
}

#[derive(Debug, Deserialize)]
struct HeldText {
    recording: String,
    kernel: String,
    prediction: Prediction,
    #[serde(default)]
    latency_histogram_ns: Option<Histogram>,
    held: Vec<Held>,
    #[serde(default)]
    trace: Option<RunTrace>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Try, kernel};

    #[test]
    fn what_a_replay_writes_is_read_again() {
        let path = Path::new("../../recordings/bursts.perf.data");
        let recording = recorded::read(path, Options::default()).unwrap();
        let limits = vec![Try::parse("20000 100000,cpu.max.burst=5000,cpu.weight=50").unwrap()];
        let request = Request { limits, ..Request::default() };
        let replay = Replay::new("bursts", &recording, &request).unwrap();
        let kernels = kernel::parse_kernels("5.14,6.18").unwrap();
        let runs = replay.runs(&kernels, 1, &Running::default(), &()).unwrap();
        let mut all = vec![replay.document(&kernels, &runs)];
        all.extend(runs.iter().map(replay::Run::document));
        let saved = Saved::parse("x", &serde_json::to_string(&all).unwrap()).unwrap();
        assert_eq!(saved.recordings[0].group, replay.path());
        assert_eq!(saved.runs.len(), runs.len());
        for (saved, run) in saved.runs.iter().zip(&runs) {
            assert_eq!(
                (saved.limit.label(), saved.limit.limit),
                (run.limit.label.clone(), run.limit.limit)
            );
            assert_eq!(saved.prediction, run.prediction);
            assert_eq!(Some(&saved.latencies), run.latencies());
        }
        assert!(saved.runs[0].latencies.count() > 0);
    }

    #[test]
    fn what_is_no_study_is_said() {
        let told = |text: &str| Saved::parse("x.json", text).unwrap_err().to_string();
        assert!(told("{").contains("x.json: ") && told("{").contains("`cpumax replay --json`"));
        assert!(told("[]").contains("no predictions"));
        assert!(told("[1]").contains("object 1: "));
        assert!(told(r#"[{"asked":[]}]"#).contains("missing field"));
    }
}
