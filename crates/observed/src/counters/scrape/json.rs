//! JSON in place of scrapes: answers of Prometheus to `query` and `query_range`, and of docker to
//! `/containers/ID/stats`. One file may hold several times.
//!
//! Formats: <https://prometheus.io/docs/prometheus/latest/querying/api/> and docker's Engine API
//! 1.47.

use super::super::labels::{Labels, NAME};
use super::super::prometheus::Prometheus;
use super::samples::Samples;
use super::{FILE_MAX_BYTES, Metrics, Scrape, Series, VERSION, Wanted, known};
use cpumax_limit::one_line;
use cpumax_study::Error;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::time::{Duration, UNIX_EPOCH};

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

/// Reads a file of one or more JSON values: scrapes of docker, and answers of Prometheus, which are
/// added to `samples`. `path` is for messages; a scrape with the time of the one before is left
/// out. An error tells what is not understood, or that there is nothing.
pub(super) fn read(
    mut file: impl Read,
    path: &str,
    metrics: &Metrics,
    samples: &mut Samples,
) -> Result<Vec<Scrape>, Error> {
    let wrong = |what: &str| Error::Question(format!("{path}: {what}"));
    let mut text = String::new();
    let failed = |source| Error::File { path: path.to_owned(), source };
    file.read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 >= FILE_MAX_BYTES {
        return Err(wrong("a scrape has at most 256 MiB"));
    }
    let mut scrapes: Vec<Scrape> = Vec::new();
    path.clone_into(&mut samples.path);
    for value in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
        let value = value.map_err(|error| wrong(&format!("it is not JSON: {error}")))?;
        // `jq -s` gathers answers in an array.
        let answers = if let Value::Array(all) = value { all } else { vec![value] };
        for answer in answers {
            let more = scrapes_of(answer, metrics, samples).map_err(|what| wrong(&what))?;
            // Each answer of docker repeats the time of the one before.
            let last_ms = scrapes.last().and_then(at_ms);
            let is_new = |scrape: &Scrape| last_ms.is_none() || at_ms(scrape) != last_ms;
            scrapes.extend(more.into_iter().filter(is_new));
        }
    }
    for scrape in &mut scrapes {
        path.clone_into(&mut scrape.path);
    }
    Ok(scrapes)
}

/// The scrapes of one answer of docker; those of Prometheus are added to `samples`. `Err` tells
/// what is not understood, or Prometheus' own error.
fn scrapes_of(
    answer: Value,
    metrics: &Metrics,
    samples: &mut Samples,
) -> Result<Vec<Scrape>, String> {
    if answer.get("data").is_some_and(|data| data.get("resultType").is_some()) {
        let told = serde_json::from_value(answer).map_err(|error| error.to_string());
        let told = told.and_then(|told| queried(told, metrics, samples));
        return match told {
            Ok(0) => Err("it is JSON of a query to Prometheus that found no series".to_owned()),
            Ok(_) => Ok(Vec::new()),
            Err(what) => Err(format!("it is JSON of a query to Prometheus, but {what}")),
        };
    }
    if answer.get("cpu_stats").is_some() {
        return stats(answer).map_err(|what| format!("it is JSON of docker's stats, but {what}"));
    }
    if let Some(error) = answer.get("error").and_then(Value::as_str) {
        return Err(format!("it is JSON of a query that failed: {}", one_line(error)));
    }
    Err("it is JSON, but neither of a query to Prometheus nor of docker's /containers/ID/stats: \
         give a scrape of the target itself, such as of `kubectl get --raw \
         /api/v1/nodes/NODE/proxy/metrics/cadvisor`"
        .to_owned())
}

/// The time of the first container that has one, ms since 1970; `None` if none has.
fn at_ms(scrape: &Scrape) -> Option<u64> {
    scrape.containers.values().find_map(|series| series.at_ms).map(|ms| ms as u64)
}

/// Adds the known metrics in an answer of Prometheus to `samples`, and returns the number of all
/// series. `Err` says what is wrong with the answer.
fn queried(answered: Answered, metrics: &Metrics, samples: &mut Samples) -> Result<usize, String> {
    let data = answered.data;
    if !["matrix", "vector"].contains(&data.result_type.as_str()) {
        return Err(format!("of type {}: give one of type matrix or vector", data.result_type));
    }
    let count = data.result.len();
    for Found { mut metric, value, values } in data.result {
        let Some(name) = metric.remove(NAME) else {
            return Err("one series has no name: query the counters themselves, such as \
                        {__name__=~\"container_cpu_.*|container_spec_cpu_.*|container_start_.*\"}, \
                        without rate()"
                .to_owned());
        };
        let name = known(&name).map_or(name, str::to_owned);
        if known(&name).is_none() && !metrics.has(&name) {
            continue;
        }
        let number = |(at_s, number): (f64, String)| {
            let told = number.parse().map_err(|_| format!("'{number}' of {name} is not a number"));
            Ok((super::checked_ms((at_s * 1e3).round())? as u64, told?))
        };
        let all: Result<Vec<(u64, f64)>, String> =
            value.into_iter().chain(values).map(number).collect();
        samples.add(&name, Labels::of_pairs(metric), all?.into_iter(), metrics)?;
    }
    Ok(count)
}

/// Asks a Prometheus for the counters of the wanted containers, of the pods that they are in, and
/// of the service itself.
pub(super) fn asked(
    prometheus: &Prometheus,
    wanted: &Wanted,
    since: Duration,
    metrics: &Metrics,
) -> Result<Samples, Error> {
    let mut samples = Samples::of(prometheus.to_string());
    let seconds = since.as_secs().max(1);
    let ask = |query: &str, samples: &mut Samples| {
        let answer = prometheus.query(query)?;
        let told = serde_json::from_slice(&answer).map_err(|error| error.to_string());
        let told = told.and_then(|told| queried(told, metrics, samples));
        told.map_err(|what| {
            let what = format!("its answer is no answer of Prometheus: {what}");
            Error::Question(format!("{prometheus}: {what} (query {query})"))
        })
    };
    let chosen = matchers(wanted)?;
    // The group of a pod has no container.
    let is_other = |(name, value): &&(String, String)| name != "container" || value.is_empty();
    let mut of_pods: Vec<(String, String)> = wanted.iter().filter(is_other).cloned().collect();
    of_pods.push(("container".to_owned(), String::new()));
    let of_pods = matchers(&of_pods)?;
    let is_named = wanted.iter().any(|(name, value)| name == "container" && !value.is_empty());
    let mut found = 0;
    for name in super::OF_CONTAINERS {
        found += ask(&format!("{name}{{{chosen}}}[{seconds}s]"), &mut samples)?;
        if is_named {
            ask(&format!("{name}{{{of_pods}}}[{seconds}s]"), &mut samples)?;
        }
    }
    if found == 0 {
        return Err(Error::Question(format!(
            "{prometheus}: it has no {}{{{chosen}}} of the last {seconds} s",
            super::USAGE
        )));
    }
    ask(VERSION, &mut samples)?;
    for (name, labels) in metrics.names() {
        ask(&format!("{name}{{{}}}[{seconds}s]", matchers(labels)?), &mut samples)?;
    }
    Ok(samples)
}

/// Labels in the language of Prometheus' queries.
fn matchers(wanted: &Wanted) -> Result<String, Error> {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let one = |(name, value): &(String, String)| {
        if name.is_empty() || !name.chars().all(is_letter) {
            let what = "a label has a name of letters, digits and _";
            return Err(Error::Question(format!("--label '{name}={value}': {what}")));
        }
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        Ok(format!("{name}=\"{value}\""))
    };
    let all: Result<Vec<String>, Error> = wanted.iter().map(one).collect();
    Ok(all?.join(","))
}

/// The two scrapes in an answer of docker, the earlier one first; only the later one where the
/// earlier has no time. Periods are left out where they are 0, as without a limit. The error tells
/// what the later one lacks.
fn stats(value: Value) -> Result<Vec<Scrape>, String> {
    let stats: Stats = serde_json::from_value(value).map_err(|error| error.to_string())?;
    let name = stats.name.trim_start_matches('/').to_owned();
    let labels = Labels::of_pairs([("name".to_owned(), name), ("id".to_owned(), stats.id)]);
    let cpus = stats.last.online_cpus.filter(|cpus| *cpus > 0);
    let at = |cpu: &Cpu, time: &str| {
        let since = since_1970(time)?;
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
    let last = last.ok_or("it has no total_usage, or `read` is no time from 1970 on")?;
    let first = at(&stats.first, &stats.preread);
    Ok(first.into_iter().chain([last]).collect())
}

/// The time since 1970 of a time in UTC, as docker tells, or with an offset, as podman does; `None`
/// if it is neither, or earlier.
fn since_1970(time: &str) -> Option<Duration> {
    let in_utc = |time: &str| humantime::parse_rfc3339(time).ok()?.duration_since(UNIX_EPOCH).ok();
    let date_end = time.find('T')?;
    let Some(at) = time.rfind(['+', '-']).filter(|at| *at > date_end) else { return in_utc(time) };
    let (local, offset) = time.split_at(at);
    let (hours, minutes) = offset[1..].split_once(':')?;
    let (hours, minutes) = (hours.parse::<u8>().ok()?, minutes.parse::<u8>().ok()?);
    let off = Duration::from_secs(u64::from(hours) * 3600 + u64::from(minutes) * 60);
    let local = in_utc(&format!("{local}Z"))?;
    if offset.starts_with('+') { local.checked_sub(off) } else { local.checked_add(off) }
}
