//! Studies: predictions of a replay or of advice, as just made or as read from a document, to be
//! shown or verified.

use crate::advise::{Advised, Role, RunHeld, Told, Tried};
use crate::predict::Prediction;
use crate::recorded;
use crate::replay::{self, Recorded, Replay, Request};
use crate::stretch::RunTrace;
use cpumax_limit::{one_line, shown};
use cpumax_machine::kernel::Kernel;
use cpumax_outcome::Histogram;
use cpumax_recording::{Defects, Options};
use cpumax_study::{
    Error, Ranged, Try, Watch,
    answer::{self, Answer},
    world::Running,
};
use serde::Deserialize;
use serde_json::Value;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

const FILE_MAX_BYTES: u64 = 256 << 20;
/// No machine has more CPUs. A period may end with a group throttled twice, rarely.
const CPUS_MOST: f64 = 8192.0;
const PERCENT_MOST: f64 = 101.0;

/// A study: recordings, predictions, and advice.
///
/// ```
/// use cpumax_forecast::Request;
/// use cpumax_forecast::saved::Saved;
/// use cpumax_study::{Try, kernel};
///
/// let path = "../../recordings/bursts.perf.data".as_ref();
/// let request = Request { limits: vec![Try::parse("500m")?], ..Request::default() };
/// let newest = Some(vec![kernel::Kernel::newest()]);
/// let (study, _) = Saved::of_recording(path, Default::default(), &request, newest, &())?;
/// let labels: Vec<String> = study.runs.iter().map(|run| run.limit.label()).collect();
/// assert_eq!(labels, ["none", "50/100"]);
/// # Ok::<(), cpumax_study::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Saved {
    /// The recorded numbers, of each recording.
    pub recordings: Vec<Recorded>,
    /// The prediction for each limit on each kernel.
    pub runs: Vec<Predicted>,
    /// The advice, where it was asked for; its limits are among the runs.
    pub advice: Option<Advised>,
}

/// The prediction for a limit on a kernel, from a replay or from advice.
#[derive(Debug, Clone, PartialEq)]
pub struct Predicted {
    /// The recording.
    pub recording: String,
    /// The limit.
    pub limit: Try,
    /// Why the limit is shown, in advice.
    pub role: Option<Role>,
    /// The kernel.
    pub kernel: String,
    /// The prediction.
    pub prediction: Prediction,
    /// Latencies of requests or bursts; may be empty.
    pub latencies: Histogram,
    /// The goals checked against it.
    pub held: Vec<Told>,
    /// A trace of a run, where that was asked for.
    pub trace: Option<RunTrace>,
}

impl From<replay::Run> for Predicted {
    /// The prediction of a run with its latencies; the limit keeps no words that it was parsed
    /// from.
    fn from(run: replay::Run) -> Predicted {
        Predicted {
            latencies: run.latencies().cloned().unwrap_or_default(),
            recording: run.outcome.scenario,
            limit: run.limit.into_written(),
            role: None,
            kernel: run.outcome.kernel,
            prediction: run.prediction,
            held: Vec::new(),
            trace: run.trace,
        }
    }
}

impl Predicted {
    /// The prediction of one run of advice, with the role of its limit.
    fn advised(role: Role, limit: &Try, run: RunHeld) -> Predicted {
        Predicted {
            recording: run.recording,
            limit: limit.clone(),
            role: Some(role),
            kernel: run.kernel,
            prediction: run.prediction,
            latencies: run.latency_histogram_ns.unwrap_or_default(),
            held: run.held,
            trace: run.trace,
        }
    }
}

impl Saved {
    /// The study of a replay.
    pub fn of_replay(recorded: Recorded, runs: Vec<replay::Run>) -> Saved {
        let runs = runs.into_iter().map(Predicted::from).collect();
        Saved { recordings: vec![recorded], runs, advice: None }
    }

    /// The study of advice.
    pub fn of_advice(advice: Advised) -> Saved {
        let mut saved = Saved { recordings: Vec::new(), runs: Vec::new(), advice: None };
        saved.add_advice(advice);
        saved
    }

    /// Whether a file may be a study: its first bytes begin a JSON array. A file that cannot be
    /// read is none.
    pub fn is_in(path: &Path) -> bool {
        let mut start = [0; 64];
        let read = File::open(path).and_then(|mut file| file.read(&mut start));
        let start = &start[..read.unwrap_or(0)];
        start.trim_ascii_start().starts_with(b"[")
    }

    /// Reads a study from a file of at most 256 MiB.
    ///
    /// # Errors
    /// The file cannot be read, or is not a study.
    pub fn read(path: &Path) -> Result<Saved, Error> {
        let name = shown(path);
        let failed = |source| Error::File { path: name.clone(), source };
        let mut text = String::new();
        let file = File::open(path).map_err(failed)?;
        file.take(FILE_MAX_BYTES).read_to_string(&mut text).map_err(|error| {
            match error.kind() {
                ErrorKind::InvalidData => {
                    Error::Saved { path: name.clone(), what: "it is not text".to_owned() }
                }
                _ => failed(error),
            }
        })?;
        Saved::parse(&name, &text)
    }

    /// Reads a study from a text, a JSON array of documents; `name` is for messages.
    ///
    /// # Errors
    /// The text is not a study.
    pub fn parse(name: &str, text: &str) -> Result<Saved, Error> {
        let wrong = |what: String| Error::Saved { path: name.to_owned(), what };
        let items: Vec<Value> =
            serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let mut saved = Saved { recordings: Vec::new(), runs: Vec::new(), advice: None };
        for (at, item) in items.into_iter().enumerate() {
            let taken = saved.add_document(item);
            taken.map_err(|what| wrong(format!("object {}: {what}", at + 1)))?;
        }
        if saved.runs.is_empty() && saved.advice.is_none() {
            return Err(wrong("it has no predictions".to_owned()));
        }
        let recorded = saved.recordings.iter().map(|recorded| &recorded.prediction);
        let mut all = saved.runs.iter().map(|run| &run.prediction).chain(recorded);
        match all.find_map(impossible) {
            Some(what) => Err(wrong(what)),
            None => Ok(saved),
        }
    }

    /// Reads a recording, replays it with seed 1 on these kernels or the usual ones, and traces the
    /// decisive runs; also returns the repairs. Without limits in the request, a dozen around the
    /// CPUs used.
    ///
    /// # Errors
    /// As of [`recorded::read`] and [`Replay::runs`].
    pub fn of_recording(
        path: &Path,
        options: Options,
        request: &Request,
        kernels: Option<Vec<Kernel>>,
        watch: &dyn Watch,
    ) -> Result<(Saved, Defects), Error> {
        let recording = recorded::read(path, options)?;
        let mut replay = Replay::new(&recorded::name(path), &recording, request)?;
        if request.limits.is_empty() {
            replay.try_curve();
        }
        let kernels = kernels.unwrap_or_else(|| replay.kernels());
        let mut runs = replay.runs(&kernels, 1, &Running::default(), watch)?;
        replay.trace_decisive(&mut runs, &Running::default(), watch)?;
        let recorded = replay.document(&kernels, &runs);
        Ok((Saved::of_replay(recorded, runs), replay.summary().defects.clone()))
    }

    /// Adds a recording, a run or advice; an error tells what is wrong, such as another kind.
    fn add_document(&mut self, item: Value) -> Result<(), String> {
        if item.get("kind").is_none() && item.get("prediction").is_some() {
            self.runs.extend(run_without_kind(item)?);
            return Ok(());
        }
        match answer::kind(&item)? {
            Recorded::KIND => self.recordings.push(answer::read(item)?),
            replay::Run::KIND => {
                let run: replay::Run = answer::read(item)?;
                self.runs.push(run.into());
            }
            Advised::KIND => self.add_advice(answer::read(item)?),
            other => {
                let (recording, run, advice) = (Recorded::KIND, replay::Run::KIND, Advised::KIND);
                return Err(format!(
                    "its kind is '{}', but a study has {recording}, {run} and {advice}",
                    one_line(other)
                ));
            }
        }
        Ok(())
    }

    /// Adds the advice, its recordings, and the runs of all its limits; those parts move out of it.
    fn add_advice(&mut self, mut advice: Advised) {
        for Tried { role, limit, runs, .. } in std::mem::take(&mut advice.limits) {
            let limit = Try::of(limit.limit);
            self.runs.extend(runs.into_iter().map(|run| Predicted::advised(role, &limit, run)));
        }
        self.recordings.append(&mut advice.recordings);
        self.advice = Some(advice);
    }
}

/// A sentence if a prediction is impossible: a number outside of its range, below 0, or beyond what
/// there is. `None` else.
fn impossible(prediction: &Prediction) -> Option<String> {
    let ns = |one: Ranged<u64>| {
        let Ranged { value, low, high } = one;
        Ranged { value: value as f64, low: low as f64, high: high as f64 }
    };
    let latencies = prediction.request_latency_ns.as_ref();
    let latencies = latencies.map(|all| [all.p50, all.p90, all.p95, all.p99, all.p999]);
    let latencies = latencies.into_iter().flatten();
    let latencies = latencies.map(|one| ("request_latency_ns", Some(ns(one)), f64::INFINITY));
    let all = [
        ("cpus", prediction.cpus, CPUS_MOST),
        ("throttled_percent", prediction.throttled_percent, PERCENT_MOST),
        ("requests_per_second", prediction.requests_per_second, f64::MAX),
    ];
    all.into_iter().chain(latencies).find_map(|(name, number, most)| {
        let Ranged { value, low, high } = number?;
        let is_possible = 0.0 <= low && low <= value && value <= high && high <= most;
        (!is_possible).then(|| format!("{name} cannot be {value} (from {low} to {high})"))
    })
}

/// The prediction of a run's document that an earlier cpumax wrote without a kind: enough to be
/// verified. `None` where the document describes the recording; an error where it is no run.
/// Latencies that lack p95 are left out.
fn run_without_kind(mut item: Value) -> Result<Option<Predicted>, String> {
    #[derive(Deserialize)]
    struct Run {
        #[serde(flatten)]
        limit: Try,
        scenario: String,
        kernel: String,
        prediction: Prediction,
    }
    if item.get("world").is_some_and(|world| world == "recording") {
        return Ok(None);
    }
    let latency = &mut item["prediction"]["request_latency_ns"];
    if latency.get("p95").is_none() {
        *latency = Value::Null;
    }
    let run: Run = answer::read(item)?;
    Ok(Some(Predicted {
        recording: run.scenario,
        limit: run.limit.into_written(),
        role: None,
        kernel: run.kernel,
        prediction: run.prediction,
        latencies: Histogram::default(),
        held: Vec::new(),
        trace: None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpumax_study::{answer::Document, kernel};

    fn replayed() -> (Recorded, Vec<replay::Run>) {
        let path = Path::new("../../recordings/bursts.perf.data");
        let recording = recorded::read(path, Options::default()).unwrap();
        let limits = vec![Try::parse("20000 100000,cpu.max.burst=5000,cpu.weight=50").unwrap()];
        let request = Request { limits, ..Request::default() };
        let replay = Replay::new("bursts", &recording, &request).unwrap();
        let kernels = kernel::parse_kernels("5.13,6.18").unwrap();
        let runs = replay.runs(&kernels, 1, &Running::default(), &()).unwrap();
        (replay.document(&kernels, &runs), runs)
    }

    #[test]
    fn a_written_replay_can_be_read() {
        let (recorded, runs) = replayed();
        let all: Vec<_> = replay::documents(&recorded, &runs).collect();
        let text = serde_json::to_string(&all).unwrap();
        let saved = Saved::parse("x", &text).unwrap();
        assert_eq!(saved, Saved::of_replay(recorded.clone(), runs));
        assert!(saved.runs[0].latencies.count() > 0);
        let told = |text: &str| Saved::parse("x.json", text).unwrap_err().to_string();
        let other = told(&text.replacen("\"version\":2", "\"version\":7", 1));
        assert!(other.contains("object 1: it has version 7, but only version 2"), "{other}");
        let other = told(&text.replacen("\"kind\":\"replay\"", "\"kind\":\"weights\"", 1));
        assert!(other.contains("object 2: its kind is 'weights', but a study"), "{other}");
        for number in [-1.0, 1e308, 0.0] {
            let mut all: Value = serde_json::from_str(&text).unwrap();
            all[1]["prediction"]["cpus"]["high"] = number.into();
            let other = told(&all.to_string());
            assert!(other.contains("x.json: cpus cannot be "), "{number}: {other}");
        }
        let run = serde_json::to_value(Document::from(&recorded)).unwrap();
        assert!(told(&format!("[{run}]")).contains("no predictions"));
    }

    #[test]
    fn other_documents_are_refused() {
        let told = |text: &str| Saved::parse("x.json", text).unwrap_err().to_string();
        assert!(told("{").contains("x.json: ") && told("{").contains("`cpumax replay --json`"));
        assert!(told("[]").contains("no predictions"));
        assert!(told("[1]").contains("object 1: it has no `kind`"));
        assert!(told(r#"[{"kind":"advice","version":2,"asked":[]}]"#).contains("missing field"));
    }
}
