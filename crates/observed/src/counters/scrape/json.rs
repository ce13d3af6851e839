//! JSON in place of scrapes: answers of Prometheus to `query` and `query_range`, and of docker to
//! `/containers/ID/stats`. One file may hold several times.
//!
//! Formats: <https://prometheus.io/docs/prometheus/latest/querying/api/> and docker's Engine API
//! 1.47.

use super::super::labels::Labels;
use super::{FILE_MAX_BYTES, Metrics, Scrape, Series, is_known};
use cpumax_study::Error;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::time::UNIX_EPOCH;

/// Most times of a query.
const TIMES_MAX: usize = 100_000;

/// Whether a file that begins like this is JSON: an object whose first name is followed by a
/// colon, or an array.
pub(super) fn is_json(start: &[u8]) -> bool {
    match start.trim_ascii_start() {
        [b'[', ..] => true,
        [b'{', inside @ ..] => {
            let inside = inside.trim_ascii_start();
            let named = inside.strip_prefix(b"\"").and_then(|name| {
                let end = name.iter().position(|byte| *byte == b'"')?;
                name[end + 1..].trim_ascii_start().first()
            });
            named == Some(&b':') || inside.first() == Some(&b'}')
        }
        _ => false,
    }
}

#[derive(Deserialize)]
struct Answered {
    data: Data,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    result_type: String,
    #[serde(default)]
    result: Vec<Found>,
}

/// A series with its value at one time, or at several: s since 1970, and a number as text.
#[derive(Deserialize)]
struct Found {
    metric: BTreeMap<String, String>,
    #[serde(default)]
    value: Option<(f64, String)>,
    #[serde(default)]
    values: Vec<(f64, String)>,
}

#[derive(Deserialize)]
struct Stats {
    read: String,
    #[serde(default)]
    preread: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    id: String,
    #[serde(rename = "cpu_stats")]
    last: Cpu,
    #[serde(default, rename = "precpu_stats")]
    first: Cpu,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Cpu {
    #[serde(rename = "cpu_usage")]
    usage: Usage,
    online_cpus: Option<usize>,
    throttling_data: Throttling,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Usage {
    total_usage: Option<u64>,
}

/// All 0 where there is no limit.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Throttling {
    periods: u64,
    throttled_periods: u64,
    throttled_time: u64,
}

/// Reads the scrapes of each time in a file of one or more JSON values. `path` is for messages; a
/// scrape with the time of the one before is left out. An error tells what is not understood, or
/// that there is no scrape.
pub(super) fn read(
    mut file: impl Read,
    path: &str,
    metrics: &Metrics,
) -> Result<Vec<Scrape>, Error> {
    let wrong = |what: &str| Error::Question(format!("{path}: {what}"));
    let mut text = String::new();
    let failed = |source| Error::File { path: path.to_owned(), source };
    file.read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 >= FILE_MAX_BYTES {
        return Err(wrong("a scrape has at most 256 MiB"));
    }
    let mut scrapes: Vec<Scrape> = Vec::new();
    for value in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
        let value = value.map_err(|error| wrong(&format!("it is not JSON: {error}")))?;
        let more = if value.get("data").is_some_and(|data| data.get("resultType").is_some()) {
            queried(value, metrics).map_err(|what| {
                wrong(&format!("it is JSON of a query to Prometheus, but {what}"))
            })?
        } else if value.get("cpu_stats").is_some() {
            stats(value)
                .map_err(|what| wrong(&format!("it is JSON of docker's stats, but {what}")))?
        } else {
            return Err(wrong(
                "it is JSON, but neither of a query to Prometheus nor of docker's stats: give a \
                 scrape of the target itself, such as of `kubectl get --raw \
                 /api/v1/nodes/NODE/proxy/metrics/cadvisor`",
            ));
        };
        // Each answer of docker repeats the time of the one before.
        let last_ms = scrapes.last().and_then(at_ms);
        let is_new = |scrape: &Scrape| last_ms.is_none() || at_ms(scrape) != last_ms;
        scrapes.extend(more.into_iter().filter(is_new));
    }
    for scrape in &mut scrapes {
        path.clone_into(&mut scrape.path);
    }
    if scrapes.is_empty() {
        return Err(wrong("it is JSON of a query to Prometheus that found no series"));
    }
    Ok(scrapes)
}

/// The time of the first container that has one, ms since 1970; `None` if none has.
fn at_ms(scrape: &Scrape) -> Option<u64> {
    scrape.containers.values().find_map(|series| series.at_ms).map(|ms| ms as u64)
}

/// The known metrics in an answer of Prometheus, one scrape for each time, ascending. `Err` says
/// what is wrong with the answer.
fn queried(value: Value, metrics: &Metrics) -> Result<Vec<Scrape>, String> {
    let answered: Answered = serde_json::from_value(value).map_err(|error| error.to_string())?;
    let data = answered.data;
    if !["matrix", "vector"].contains(&data.result_type.as_str()) {
        return Err(format!("of type {}: give one of type matrix or vector", data.result_type));
    }
    let mut all: BTreeMap<u64, Scrape> = BTreeMap::new();
    for Found { mut metric, value, values } in data.result {
        let Some(name) = metric.remove("__name__") else {
            return Err("one series has no name: query the counters themselves, such as \
                        {__name__=~\"container_cpu_.*|container_spec_cpu_.*|container_start_.*\"}, \
                        without rate()"
                .to_owned());
        };
        if !is_known(&name) && !metrics.has(&name) {
            continue;
        }
        let labels = Labels::of_pairs(metric);
        for (at_s, number) in value.into_iter().chain(values) {
            let (at_ms, wrong) = (at_s * 1e3, || format!("'{number}' of {name} is not a number"));
            let number: f64 = number.parse().map_err(|_| wrong())?;
            let scrape = all.entry(at_ms as u64).or_default();
            scrape.add(&name, labels.clone(), (number, Some(at_ms)), metrics)?;
        }
        if all.len() > TIMES_MAX {
            return Err(format!("has more than {TIMES_MAX} times"));
        }
    }
    Ok(all.into_values().collect())
}

/// The two scrapes in an answer of docker, the earlier one first; only the later one where the
/// earlier has no time. Periods are left out where they are 0, as without a limit. The error tells
/// what the later one lacks.
fn stats(value: Value) -> Result<Vec<Scrape>, String> {
    let stats: Stats = serde_json::from_value(value).map_err(|error| error.to_string())?;
    let name = stats.name.trim_start_matches('/').to_owned();
    let labels = Labels::of_pairs([("name".to_owned(), name), ("id".to_owned(), stats.id)]);
    let cpus = stats.last.online_cpus;
    let at = |cpu: &Cpu, time: &str| {
        let since = humantime::parse_rfc3339(time).ok()?.duration_since(UNIX_EPOCH).ok()?;
        let limited = cpu.throttling_data.periods > 0;
        let count = |number: u64| Some(number as f64).filter(|_| limited);
        let series = Series {
            usage_s: Some(cpu.usage.total_usage? as f64 / 1e9),
            periods: count(cpu.throttling_data.periods),
            throttled: count(cpu.throttling_data.throttled_periods),
            throttled_s: count(cpu.throttling_data.throttled_time).map(|ns| ns / 1e9),
            at_ms: Some(since.as_millis() as f64),
            ..Series::default()
        };
        let containers = [(labels.clone(), series)].into();
        Some(Scrape { containers, cpus, is_docker: true, ..Scrape::default() })
    };
    let last = at(&stats.last, &stats.read);
    let last = last.ok_or("it has no total_usage, or `read` is not a time")?;
    let first = at(&stats.first, &stats.preread);
    Ok(first.into_iter().chain([last]).collect())
}
