//! Scrapes of cadvisor's counters, in the text form of Prometheus or as `OpenMetrics`, in place of
//! the group itself: one file for each time.

use super::{Moment, Observed};
use crate::error::Error;
use cpumax_limit::{CpuStat, Limit, one_line, shown};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

/// A longer line is none of a scrape.
const LINE_MAX_BYTES: u64 = 1 << 16;
/// Containers of a node are a few hundred.
const SERIES_MAX: usize = 100_000;
/// How many are named where one has to be chosen.
const NAMED: usize = 5;

const USAGE: &str = "container_cpu_usage_seconds_total";
const PERIODS: &str = "container_cpu_cfs_periods_total";
const THROTTLED: &str = "container_cpu_cfs_throttled_periods_total";
const THROTTLED_SECONDS: &str = "container_cpu_cfs_throttled_seconds_total";
const QUOTA: &str = "container_spec_cpu_quota";
const PERIOD: &str = "container_spec_cpu_period";

/// Of one container.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Series {
    usage_s: Option<f64>,
    periods: Option<f64>,
    throttled: Option<f64>,
    throttled_s: Option<f64>,
    quota_us: Option<f64>,
    period_us: Option<f64>,
    at_ms: Option<f64>,
}

/// The container whose labels have all of `labels` (`pod="web-1"`, without quotes as well), from
/// scrapes in order of time. Where they have no times, `apart` is between one and the next.
///
/// # Errors
/// A file cannot be read, no container or several have these labels, or it has no limit.
pub fn scrapes(
    paths: &[impl AsRef<Path>],
    labels: &[String],
    apart: Option<Duration>,
) -> Result<Observed, Error> {
    if paths.len() < 2 {
        return Err(Error::Question("one scrape tells no rate: give two".to_owned()));
    }
    let mut all = Vec::new();
    for path in paths {
        all.push(read(path.as_ref())?);
    }
    let name = chosen(&all[0], labels)?;
    let mut moments = Vec::new();
    let mut last = Series::default();
    for (at, (scrape, path)) in all.iter().zip(paths).enumerate() {
        let file = shown(path.as_ref());
        let wrong = |what: &str| Error::Question(format!("{file}: {what}"));
        let series = scrape.get(&name).ok_or_else(|| wrong(&format!("it has no {name}")))?;
        let at_ns = match (series.at_ms, apart) {
            (Some(ms), _) => ms * 1e6,
            (None, Some(apart)) => at as f64 * apart.as_secs_f64() * 1e9,
            (None, None) => {
                return Err(wrong(
                    "its samples have no times: say by --for how far apart they are",
                ));
            }
        };
        let count = |number: Option<f64>| number.map(|number| number as u64 as u32);
        let (Some(nr_periods), Some(nr_throttled)) =
            (count(series.periods), count(series.throttled))
        else {
            return Err(wrong(&format!("{name} has no {PERIODS}: it has no CPU limit")));
        };
        let throttled_ns = (series.throttled_s.unwrap_or(0.0) * 1e9) as u64;
        moments.push(Moment {
            at_ns: at_ns as u64,
            usage_ns: series.usage_s.map(|seconds| (seconds * 1e9) as u64),
            stat: CpuStat { nr_periods, nr_throttled, throttled_ns, ..CpuStat::default() },
            waited_ns: None,
        });
        last = *series;
    }
    if moments.windows(2).any(|pair| pair[0].at_ns >= pair[1].at_ns) {
        let what = "each scrape must be later than the one before it";
        return Err(Error::Question(what.to_owned()));
    }
    let first_ns = moments[0].at_ns;
    for moment in &mut moments {
        moment.at_ns -= first_ns;
    }
    let limit = limit(&last).ok_or_else(|| {
        let what = format!("the last scrape has no {QUOTA} and {PERIOD} that are a limit");
        Error::Question(format!("{name}: {what}"))
    })?;
    Observed { name, limit, kernel: None, cpus: None, moments }.checked()
}

fn limit(series: &Series) -> Option<Limit> {
    let us = |number: f64| (number > 0.0).then_some(number as u64)?.checked_mul(1_000);
    Limit::new(Some(us(series.quota_us?)?), us(series.period_us?)?, 0).ok()
}

/// The only container with these labels.
fn chosen(scrape: &BTreeMap<String, Series>, labels: &[String]) -> Result<String, Error> {
    let plain = |text: &str| text.replace('"', "");
    let has = |name: &str, wanted: &String| {
        plain(name).trim_matches(['{', '}']).split(',').any(|label| label == plain(wanted))
    };
    let limited = scrape.iter().filter(|(_, series)| series.periods.is_some());
    let limited = limited.map(|(name, _)| name);
    let found: Vec<&String> =
        limited.filter(|name| labels.iter().all(|wanted| has(name, wanted))).collect();
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        [] => Err(Error::Question(
            "no container with a CPU limit has these labels in the first scrape".to_owned(),
        )),
        several => {
            let some: Vec<&str> = several.iter().take(NAMED).map(|name| name.as_str()).collect();
            let (count, some) = (several.len(), some.join(" "));
            let what = "choose one by --label, such as --label pod=web-1";
            Err(Error::Question(format!("{count} containers have a limit: {what}: {some}")))
        }
    }
}

fn read(path: &Path) -> Result<BTreeMap<String, Series>, Error> {
    let failed = |source| Error::File { path: shown(path), source };
    let mut file = BufReader::new(File::open(path).map_err(failed)?);
    let mut all: BTreeMap<String, Series> = BTreeMap::new();
    let mut line = Vec::new();
    let mut number = 0_u64;
    loop {
        line.clear();
        number += 1;
        let read = file.by_ref().take(LINE_MAX_BYTES).read_until(b'\n', &mut line);
        if read.map_err(failed)? == 0 {
            return Ok(all);
        }
        let wrong = |what: &str| Error::Question(format!("{}, line {number}: {what}", shown(path)));
        if line.len() as u64 == LINE_MAX_BYTES {
            return Err(wrong("it is longer than any of a scrape"));
        }
        let Ok(text) = str::from_utf8(&line) else { return Err(wrong("it is no text")) };
        take(text.trim_end(), &mut all).map_err(|what| wrong(&what))?;
        if all.len() > SERIES_MAX {
            return Err(wrong(&format!("more than {SERIES_MAX} containers")));
        }
    }
}

/// One line: a metric with labels, a value, and perhaps a time; others are passed over.
fn take(line: &str, all: &mut BTreeMap<String, Series>) -> Result<(), String> {
    let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap_or(line.len()));
    if ![USAGE, PERIODS, THROTTLED, THROTTLED_SECONDS, QUOTA, PERIOD].contains(&name) {
        return Ok(());
    }
    let takes = "expected METRIC{LABELS} NUMBER [TIME]";
    let (labels, rest) = rest.split_at(rest.rfind('}').map_or(0, |at| at + 1));
    // Of the CPUs of a container only all together count.
    if labels.contains("cpu=\"") && !labels.contains("cpu=\"total\"") {
        return Ok(());
    }
    let kept =
        labels.trim_matches(['{', '}']).split(',').filter(|label| !label.starts_with("cpu="));
    let labels = format!("{{{}}}", one_line(&kept.collect::<Vec<_>>().join(",")));
    let mut words = rest.split_ascii_whitespace();
    let mut next = || words.next().map(str::parse::<f64>).transpose();
    let (Ok(Some(value)), Ok(at)) = (next(), next()) else { return Err(takes.to_owned()) };
    if !value.is_finite() || value < 0.0 && name != QUOTA {
        return Err(format!("{value} is no counter; {takes}"));
    }
    let series = all.entry(labels).or_default();
    // Seconds in OpenMetrics, ms in the form before it; neither has been small for long.
    let at_ms = at.map(|at| if at < 1e11 { at * 1e3 } else { at });
    series.at_ms = at_ms.filter(|at| at.is_finite()).or(series.at_ms);
    let slot = match name {
        USAGE => &mut series.usage_s,
        PERIODS => &mut series.periods,
        THROTTLED => &mut series.throttled,
        THROTTLED_SECONDS => &mut series.throttled_s,
        QUOTA => &mut series.quota_us,
        _ => &mut series.period_us,
    };
    *slot = Some(value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrape(time: u64, usage: f64, periods: u64, throttled: u64) -> String {
        let labels = r#"container="app",namespace="shop",pod="web-1""#;
        format!(
            "# TYPE {USAGE} counter\n\
             {USAGE}{{{labels},cpu=\"total\"}} {usage} {time}\n\
             {PERIODS}{{{labels}}} {periods} {time}\n\
             {THROTTLED}{{{labels}}} {throttled} {time}\n\
             {QUOTA}{{{labels}}} 50000 {time}\n\
             {PERIOD}{{{labels}}} 100000 {time}\n\
             {PERIODS}{{pod=\"other\"}} 7 {time}\n\
             {THROTTLED}{{pod=\"other\"}} 0 {time}\n# EOF\n"
        )
    }

    fn files(name: &str, texts: &[String]) -> Vec<std::path::PathBuf> {
        let folder = std::env::temp_dir().join(format!("cpumax-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |(at, text): (usize, &String)| {
            let path = folder.join(format!("{at}.txt"));
            std::fs::write(&path, text).unwrap();
            path
        };
        texts.iter().enumerate().map(write).collect()
    }

    #[test]
    fn two_scrapes_tell_what_went_by_between_them() {
        let (first, last) = (1_700_000_000_000, 1_700_000_060_000);
        let paths = files("two", &[scrape(first, 10.0, 100, 5), scrape(last, 37.0, 700, 305)]);
        let observed = scrapes(&paths, &["pod=web-1".to_owned()], None).unwrap();
        let whole = observed.whole();
        assert_eq!((whole.length_ns, whole.usage_ns), (60_000_000_000, Some(27_000_000_000)));
        assert_eq!((whole.nr_periods, whole.nr_throttled), (600, 300));
        assert_eq!(observed.limit.to_string(), "50000 100000");
        let ambiguous = scrapes(&paths, &[], None).unwrap_err().to_string();
        assert!(ambiguous.contains("2 containers") && ambiguous.contains("--label"), "{ambiguous}");
        let none = scrapes(&paths, &["pod=none".to_owned()], None).unwrap_err().to_string();
        assert!(none.contains("no container"), "{none}");
        let back: Vec<_> = paths.iter().rev().collect();
        assert!(scrapes(&back, &["pod=web-1".to_owned()], None).is_err());
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        let paths = files("bad", &[format!("{PERIODS}{{pod=\"a\"}} x\n"), String::new()]);
        let told = scrapes(&paths, &[], None).unwrap_err().to_string();
        assert!(told.contains("line 1") && told.contains("METRIC"), "{told}");
        for line in ["", "{", "}", PERIODS, "container_cpu_cfs_periods_total{", "a{b} NaN"] {
            let _ = take(line, &mut BTreeMap::new());
        }
    }
}
