//! Reads scrapes of cadvisor's counters, in the text form of Prometheus or as `OpenMetrics`. They
//! stand in for the group itself, one file for each time. JSON of a Prometheus query or of docker's
//! stats may hold several times, and a Prometheus can be asked itself.
//!
//! cadvisor serves limits and throttled periods only of groups that have a limit. On cgroup v1 it
//! serves CPU time by CPU, without a sum. A missing number is not taken to be 0.

mod json;
mod own;
mod samples;
mod scraped;

use super::labels::{Kind, Labels, NAME};
use super::{Above, AllowedCpus, Delta, Moment, Observed};
use cpumax_limit::{CpuStat, DEFAULT_PERIOD_NS, Limit, shown};
use cpumax_machine::named::Functions;
use cpumax_study::{Error, world::OwnKernel};
pub use own::Metrics;
use own::Own;
use samples::Samples;
pub use scraped::{Container, Scraped};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

/// A scrape has no longer line.
const LINE_MAX_BYTES: u64 = 1 << 16;
/// A node with thousands of containers serves some tens of MB.
const FILE_MAX_BYTES: u64 = 256 << 20;
/// A node has a few hundred containers.
const SERIES_MAX: usize = 100_000;
/// Linux has no more CPUs.
const CPUS_MAX: u64 = 8192;
/// Some editors write this mark at the beginning of UTF-8 text.
const MARK: &[u8] = "\u{feff}".as_bytes();
/// Containers named in a message that asks to choose one.
const NAMED: usize = 5;
/// The time between two scrapes may be longer than their stamps tell by this share, as files are
/// read one by one.
const READ_LATE: f64 = 0.1;

const USAGE: &str = "container_cpu_usage_seconds_total";
const PERIODS: &str = "container_cpu_cfs_periods_total";
const THROTTLED: &str = "container_cpu_cfs_throttled_periods_total";
const THROTTLED_SECONDS: &str = "container_cpu_cfs_throttled_seconds_total";
const QUOTA: &str = "container_spec_cpu_quota";
const PERIOD: &str = "container_spec_cpu_period";
/// When the container started, s since 1970.
const START: &str = "container_start_time_seconds";
/// Its label `kernelVersion` is the node's kernel.
const VERSION: &str = "cadvisor_version_info";

const NO_SERIES: &str = "it has none of cadvisor's counters, such as \
    container_cpu_usage_seconds_total{pod=\"web-1\"} 12.5: give scrapes of a kubelet's \
    /metrics/cadvisor; for a group's own cpu.stat --stat GROUP";

/// All metrics of containers that are read.
const OF_CONTAINERS: [&str; 7] =
    [USAGE, PERIODS, THROTTLED, THROTTLED_SECONDS, QUOTA, PERIOD, START];

/// Counters of one container.
#[derive(Debug, Clone, Default, PartialEq)]
struct Series {
    /// CPU time on all CPUs.
    usage_s: Option<f64>,
    /// CPU time on single CPUs, s.
    by_cpu_s: BTreeMap<String, f64>,
    periods: Option<f64>,
    throttled: Option<f64>,
    throttled_s: Option<f64>,
    quota_us: Option<f64>,
    period_us: Option<f64>,
    start_s: Option<f64>,
    at_ms: Option<f64>,
}

type Containers = BTreeMap<Labels, Series>;

/// The containers of a node at one time.
#[derive(Debug, Clone, Default)]
struct Scrape {
    /// The file, for messages.
    path: String,
    containers: Containers,
    /// The service's own metrics.
    own: Own,
    kernel: Option<String>,
    /// CPUs of the machine.
    cpus: Option<usize>,
    /// Docker's stats: of one container, which has a name and an id.
    is_docker: bool,
}

type Wanted = [(String, String)];

/// The counters of a container. An error where its limit changed, a counter went back or is
/// impossible, or each scrape is after another restart.
fn observed(
    scrapes: &[Scrape],
    first: &Labels,
    wanted: &Wanted,
    apart: Option<Duration>,
) -> Result<Observed, Error> {
    let lives = lives(scrapes, first, wanted)?;
    let name = first.to_string();
    let wrong = |what: &str| Error::Question(format!("{name}: {what}"));
    let moments = moments(&lives, scrapes, apart)?;
    let limits: Vec<Option<Limit>> = lives.iter().map(|(_, series)| series.limit()).collect();
    if let Some(pair) = limits.windows(2).find(|pair| pair[0] != pair[1]) {
        let told = |limit: Option<Limit>| limit.map_or("unknown".to_owned(), |l| l.to_string());
        let (from, to) = (told(pair[0]), told(pair[1]));
        return Err(wrong(&format!(
            "the limit was changed while it was counted, from {from} to {to}"
        )));
    }
    let above = above(scrapes, first);
    let kernel = scrapes.iter().find_map(|scrape| scrape.kernel.clone());
    let kernel = kernel.map(|release| OwnKernel { release, functions: Functions::default() });
    let count = scrapes.iter().find_map(|scrape| scrape.cpus);
    let cpus = count.map(|count| AllowedCpus { count, told_by: "online_cpus".to_owned() });
    let limit = limits[0];
    let mut observed =
        Observed { name: name.clone(), limit, kernel, cpus, above, moments }.checked()?;
    let deltas = observed.deltas();
    if deltas.is_empty() {
        let what = "it was restarted between the scrapes, so its counters began again: give two \
                    scrapes without a restart between them";
        return Err(wrong(what));
    }
    let found = |deltas: &[Delta]| deltas.iter().find_map(|delta| impossible(delta, limit));
    let mut what = found(&deltas);
    if what.is_some()
        && let Some(coarser) = coarser(&observed.moments)
    {
        observed.moments = coarser;
        what = found(&observed.deltas());
    }
    match what {
        None => Ok(observed),
        Some(what) => Err(wrong(&format!("its counters are impossible: {what}"))),
    }
}

/// The moments at which counters changed, ten steps apart or more, and the last such moment: a
/// query with a step tells the numbers of each scrape up to a step late, or twice. `None` without a
/// step, where fewer than two change, or where the group was recreated.
fn coarser(all: &[Moment]) -> Option<Vec<Moment>> {
    const STEPS: u64 = 10;
    let gaps = || all.windows(2).map(|pair| pair[1].at_ns - pair[0].at_ns);
    let step_ns = gaps().min()?;
    let has_step = gaps().all(|gap_ns| gap_ns.is_multiple_of(step_ns));
    let changes = |pair: &&[Moment]| pair[0] != Moment { at_ns: pair[0].at_ns, ..pair[1] };
    let changed: Vec<Moment> = all.windows(2).filter(changes).map(|pair| pair[1]).collect();
    let (first, last) = (*changed.first()?, *changed.last()?);
    if !has_step || changed.len() < 2 || all.iter().any(|moment| moment.is_anew) {
        return None;
    }
    let mut kept = vec![first];
    for moment in changed {
        let until_ns = moment.at_ns.saturating_add(STEPS * step_ns);
        let is_far = kept.last().is_some_and(|one| moment.at_ns - one.at_ns >= STEPS * step_ns);
        if is_far && until_ns <= last.at_ns {
            kept.push(moment);
        }
    }
    kept.push(last);
    Some(kept)
}

/// The labels and series of the container in each scrape. After a restart it is the newest one with
/// the wanted labels and all that a restart keeps; an error names the scrape that has none.
fn lives<'a>(
    scrapes: &'a [Scrape],
    first: &'a Labels,
    wanted: &Wanted,
) -> Result<Vec<(&'a Labels, Series)>, Error> {
    let mut lives: Vec<(&Labels, Series)> = Vec::new();
    let mut before = first;
    for Scrape { path, containers: scrape, .. } in scrapes {
        let is_told = !wanted.is_empty() || first.lasting().next().is_some();
        let again =
            |labels: &Labels| is_told && labels.has_all(wanted) && labels.is_same_container(first);
        let at_ms = |series: &Series| series.at_ms.unwrap_or(0.0);
        let anew = || {
            let found = scrape.iter().filter(|(labels, series)| series.counts() && again(labels));
            found.max_by(|one, other| at_ms(one.1).total_cmp(&at_ms(other.1)))
        };
        let same = scrape.get_key_value(before).filter(|(_, series)| series.counts());
        let found = same.or_else(anew);
        let (labels, series) =
            found.ok_or_else(|| Error::Question(format!("{path}: it has no {first}")))?;
        lives.push((labels, series.clone()));
        before = labels;
    }
    Ok(lives)
}

/// Counters at each scrape, by its time stamps or by `apart`, ns since the first. Duplicates are
/// dropped; an error where times are missing or not ascending.
fn moments(
    lives: &[(&Labels, Series)],
    scrapes: &[Scrape],
    apart: Option<Duration>,
) -> Result<Vec<Moment>, Error> {
    let has_usage = lives.iter().all(|(_, series)| series.usage_s.is_some());
    let cpus = &lives[0].1.by_cpu_s;
    let has_same = |series: &Series| series.by_cpu_s.keys().eq(cpus.keys());
    let has_cpus = !cpus.is_empty() && lives.iter().all(|(_, series)| has_same(series));
    let mut moments: Vec<Moment> = Vec::new();
    for (at, (labels, series)) in lives.iter().enumerate() {
        let at_ns = match (series.at_ms, apart) {
            (Some(ms), _) => ms * 1e6,
            (None, Some(apart)) => at as f64 * apart.as_secs_f64() * 1e9,
            (None, None) => {
                let what = "its samples have no times: give the time between scrapes with --for";
                return Err(Error::Question(format!("{}: {what}", scrapes[at].path)));
            }
        };
        let by_cpu_s = || series.by_cpu_s.values().sum();
        let usage_s = if has_usage { series.usage_s } else { has_cpus.then(by_cpu_s) };
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        moments.push(Moment {
            at_ns: at_ns as u64,
            usage_ns: usage_s.map(ns),
            stat: series.stat(),
            throttled_ns: series.throttled_s.map(ns),
            waited_ns: None,
            is_anew: at > 0
                && (lives[at - 1].0 != *labels || series.started_after(&lives[at - 1].1)),
        });
    }
    // A file given twice, or answers that overlap, add nothing.
    let mut told = BTreeMap::new();
    moments.retain(|moment| {
        let counters = Moment { is_anew: false, ..*moment };
        told.insert(moment.at_ns, counters) != Some(counters)
    });
    if moments.windows(2).any(|pair| pair[0].at_ns >= pair[1].at_ns) {
        let what = "each scrape must be later than the one before it";
        return Err(Error::Question(what.to_owned()));
    }
    if moments.len() < 2 {
        let what = "the scrapes are the same: give two of different times";
        return Err(Error::Question(what.to_owned()));
    }
    let first_ns = moments[0].at_ns;
    for moment in &mut moments {
        moment.at_ns -= first_ns;
    }
    Ok(moments)
}

impl Series {
    /// Stores a number of one of cadvisor's metrics, of a single CPU where that is given; an error
    /// where there is another one.
    fn set(&mut self, name: &str, cpu: Option<&str>, value: f64) -> Result<(), ()> {
        let is_same = |before: f64| before.total_cmp(&value).is_eq();
        let slot = match (name, cpu) {
            (USAGE, Some(cpu)) if cpu != "total" => {
                let before = self.by_cpu_s.insert(cpu.to_owned(), value);
                return if before.is_none_or(is_same) { Ok(()) } else { Err(()) };
            }
            (USAGE, _) => &mut self.usage_s,
            (PERIODS, _) => &mut self.periods,
            (THROTTLED, _) => &mut self.throttled,
            (THROTTLED_SECONDS, _) => &mut self.throttled_s,
            (QUOTA, _) => &mut self.quota_us,
            (START, _) => &mut self.start_s,
            _ => &mut self.period_us,
        };
        let before = slot.replace(value);
        if name == START || before.is_none_or(is_same) { Ok(()) } else { Err(()) }
    }

    /// Whether it has CPU time or periods.
    fn counts(&self) -> bool {
        self.usage_s.is_some() || !self.by_cpu_s.is_empty() || self.periods.is_some()
    }

    /// Whether the container started after the scrape `before`. Its counters are then of a new run,
    /// even where they are higher. A scrape without a time counts from its own start.
    fn started_after(&self, before: &Series) -> bool {
        let before_s = before.at_ms.map(|ms| ms / 1e3).or(before.start_s);
        self.start_s.zip(before_s).is_some_and(|(start_s, before_s)| start_s > before_s)
    }

    /// Whether it has a quota, or periods, which are counted only under one.
    fn is_limited(&self) -> bool {
        self.quota_us.is_some_and(|us| us > 0.0) || self.periods.is_some()
    }

    /// The limit by quota and period; `None` where it is unknown whether it has one. A quota is
    /// served only where there is one, a period always.
    fn limit(&self) -> Option<Limit> {
        let us = |number: f64| (number as u64).checked_mul(1_000);
        match (self.quota_us.filter(|us| *us > 0.0), self.period_us) {
            (Some(quota), period) => {
                let period_ns = period.map_or(Some(DEFAULT_PERIOD_NS), us)?;
                Limit::new(Some(us(quota)?), period_ns, 0).ok()
            }
            (None, Some(_)) if self.periods.is_none() => Some(Limit::UNLIMITED),
            _ => None,
        }
    }

    /// Periods and throttled periods, cut to 32 bits as the kernel's are; `None` if either is
    /// missing.
    fn stat(&self) -> Option<CpuStat> {
        let count = |number: f64| number as u64 as u32;
        let (nr_periods, nr_throttled) = (count(self.periods?), count(self.throttled?));
        Some(CpuStat { nr_periods, nr_throttled, ..CpuStat::default() })
    }
}

/// Describes the first number that no kernel can show: more throttled periods than periods, more
/// throttled time, periods or CPU time than the length allows. `None` if all are possible.
fn impossible(delta: &Delta, limit: Option<Limit>) -> Option<String> {
    let seconds = delta.length_ns as f64 / 1e9;
    if let Some(periods) = delta.periods
        && periods.nr_throttled > periods.nr_periods + 1
    {
        let (throttled, all) = (periods.nr_throttled, periods.nr_periods);
        return Some(format!("{throttled} of {all} periods were throttled"));
    }
    if let Some(ns) = delta.throttled_ns.filter(|ns| *ns / CPUS_MAX > delta.length_ns) {
        return Some(format!("throttled for {} s in {seconds:.1} s", ns / 1_000_000_000));
    }
    let limit = limit?;
    let in_time = delta.length_ns as f64 * (1.0 + READ_LATE) / limit.period_ns() as f64;
    if let Some(periods) = delta.periods
        && periods.nr_periods as f64 > in_time + 2.0
    {
        let (all, ms) = (periods.nr_periods, limit.period_ns() as f64 / 1e6);
        return Some(format!("{all} periods of {ms} ms in {seconds:.1} s"));
    }
    let (usage_ns, quota_ns) = (delta.usage_ns?, limit.quota_ns()?);
    // Allows one more period than there was time for, and an unknown burst.
    let most_ns = quota_ns as f64 * (in_time + 2.0);
    (usage_ns as f64 > most_ns).then(|| {
        let cpus = usage_ns as f64 / delta.length_ns.max(1) as f64;
        let most = limit.cpus().unwrap_or(f64::INFINITY);
        format!("{cpus:.2} CPUs used under a limit of {most:.2} CPUs")
    })
}

/// The group of the container's pod, where that has a quota. Its periods are counted from the first
/// to the last scrape; `None` where its limit changed.
fn above(scrapes: &[Scrape], container: &Labels) -> Option<Above> {
    let pod = container.value("pod");
    let is_it = |labels: &Labels| {
        labels.kind() == Kind::Pod
            && labels.value("pod") == pod
            && labels.value("namespace") == container.value("namespace")
    };
    let is_in_one = container.kind() == Kind::Container && !pod.is_empty();
    let (first, last) = (&scrapes.first()?.containers, &scrapes.last()?.containers);
    let (labels, _) = first.iter().find(|(labels, _)| is_in_one && is_it(labels))?;
    let (from, to) = (first.get(labels)?, last.get(labels)?);
    let limit = to.limit().filter(|limit| limit.quota_ns().is_some())?;
    let at = |series: &Series| Some(Moment { stat: Some(series.stat()?), ..Moment::default() });
    let periods = at(from)?.until(&at(to)?).periods?;
    let is_sound = periods.nr_throttled <= periods.nr_periods && from.limit() == Some(limit);
    let in_pod = |labels: &&Labels| {
        let same = |name| labels.value(name) == container.value(name);
        labels.kind() == Kind::Container && same("pod") && same("namespace")
    };
    let mut all = scrapes.iter().flat_map(|scrape| scrape.containers.keys()).filter(in_pod);
    let has_one = all.all(|other| other.is_same_container(container));
    is_sound.then(|| Above { name: labels.to_string(), limit, periods, has_one })
}

/// The labels of the only container with the wanted ones; of several the only one with a limit.
/// Containers come before pods and other groups. The error lists options that choose one.
fn chosen<'a>(of: &'a Scrape, wanted: &Wanted) -> Result<&'a Labels, Error> {
    let scrape = &of.containers;
    let found = scrape.iter().filter(|(_, series)| series.counts());
    let found: Vec<(&Labels, &Series)> = found.filter(|(l, _)| l.has_all(wanted)).collect();
    let Some(kind) = found.iter().map(|(labels, _)| labels.kind()).min() else {
        let all: Vec<&Labels> = scrape.keys().filter(|l| l.kind() == Kind::Container).collect();
        let there =
            if all.is_empty() { String::new() } else { format!("; there are: {}", hints(&all)) };
        let what = "no container of the first scrape has these labels";
        let name = scrape.keys().find_map(Labels::option_of_one_life);
        if let Some(name) = name.filter(|_| of.is_docker) {
            return Err(Error::Question(format!(
                "{what}: docker's stats have none but the name and the id of the container; give \
                 {name}"
            )));
        }
        return Err(Error::Question(format!("{what}{there}")));
    };
    let likely = || found.iter().filter(|(labels, _)| labels.kind() == kind);
    let all: Vec<&Labels> = likely().map(|(labels, _)| *labels).collect();
    let limited: Vec<&Labels> =
        likely().filter(|(_, series)| series.is_limited()).map(|(labels, _)| *labels).collect();
    match (all.as_slice(), limited.as_slice()) {
        ([one], _) | (_, [one]) => Ok(one),
        (several, _) => {
            let pod = found.iter().any(|(labels, _)| labels.kind() == Kind::Pod);
            let pod = pod && kind == Kind::Container && !wanted.is_empty();
            let pod = if pod { "; the pod itself by --label container=" } else { "" };
            let (count, hints) = (several.len(), hints(several));
            Err(Error::Question(format!(
                "{count} containers have these labels: choose one by {hints}{pod}"
            )))
        }
    }
}

/// Options that choose each of the first five, for an error.
fn hints(all: &[&Labels]) -> String {
    let some: Vec<String> = all.iter().take(NAMED).map(|one| one.options_apart_from(all)).collect();
    let more = if all.len() > NAMED { " ..." } else { "" };
    some.join(", or ") + more
}

/// Reads the scrapes of a file: one in text form, or several in JSON. Answers of Prometheus are
/// added to `samples`. An error names the line where the file is malformed or too large.
fn read(path: &Path, metrics: &Metrics, samples: &mut Samples) -> Result<Vec<Scrape>, Error> {
    let failed = |source| Error::File { path: shown(path), source };
    let file = File::open(path).map_err(failed)?;
    let file = cpumax_recording::unpacked(BufReader::new(file)).map_err(failed)?;
    let mut file = BufReader::new(file.take(FILE_MAX_BYTES));
    if file.fill_buf().map_err(failed)?.starts_with(MARK) {
        file.consume(MARK.len());
    }
    if json::is_json(file.fill_buf().map_err(failed)?) {
        return json::read(file, &shown(path), metrics, samples);
    }
    let mut all = Scrape { path: shown(path), ..Scrape::default() };
    let mut line = Vec::new();
    let (mut number, mut bytes) = (0_u64, 0_u64);
    loop {
        line.clear();
        number += 1;
        let read = file.by_ref().take(LINE_MAX_BYTES).read_until(b'\n', &mut line);
        let read = read.map_err(failed)?;
        let wrong = |what: &str| Error::Question(format!("{}, line {number}: {what}", shown(path)));
        bytes += read as u64;
        if bytes >= FILE_MAX_BYTES {
            return Err(wrong("a scrape has at most 256 MiB"));
        }
        if read == 0 && !all.containers.values().any(Series::counts) {
            return Err(Error::Question(format!("{}: {NO_SERIES}", shown(path))));
        }
        if read == 0 {
            return Ok(vec![all]);
        }
        if line.len() as u64 == LINE_MAX_BYTES {
            return Err(wrong("a line of a scrape has at most 64 KiB"));
        }
        let Ok(text) = str::from_utf8(&line) else {
            return Err(wrong("it is not UTF-8 text (PowerShell's `>` writes UTF-16)"));
        };
        let is_sample = parse_line(text.trim(), &mut all, metrics).map_err(|what| wrong(&what))?;
        if is_sample && !text.ends_with('\n') {
            return Err(wrong("the line has no end: the scrape is cut off"));
        }
        if all.containers.len() > SERIES_MAX {
            return Err(wrong(&format!("a scrape has at most {SERIES_MAX} containers")));
        }
    }
}

/// Reads one line and stores its number in `all`: a metric with labels, a value, and perhaps a
/// time. Unknown metrics and comments are skipped, and `false`; the error tells the expected form.
fn parse_line(line: &str, all: &mut Scrape, metrics: &Metrics) -> Result<bool, String> {
    let (name, rest) = line.split_at(line.find(['{', ' ', '\t']).unwrap_or(line.len()));
    let is_read = |name: &str| known(name).is_some() || metrics.has(name);
    if !name.is_empty() && !is_read(name) {
        return Ok(false);
    }
    let wrong = || "expected METRIC{LABELS} NUMBER [TIME]".to_owned();
    let (mut labels, rest) = if rest.starts_with('{') {
        Labels::read(rest).ok_or_else(wrong)?
    } else {
        (Labels::default(), rest)
    };
    // The name may stand among the labels.
    let inside = labels.remove(NAME).filter(|inside| is_read(inside));
    let name = inside.as_deref().unwrap_or(name);
    if name.is_empty() {
        return Ok(false);
    }
    let name = known(name).unwrap_or(name);
    let mut words = rest.split_ascii_whitespace();
    // A bucket of a histogram may be followed by an exemplar.
    let mut next = || words.next().filter(|word| *word != "#").map(str::parse::<f64>).transpose();
    let (Ok(Some(value)), Ok(at)) = (next(), next()) else { return Err(wrong()) };
    // OpenMetrics has seconds, the older form ms; a clock that is right tells them apart by their
    // size.
    let at_ms = at.map(|at| checked_ms(if at < 1e11 { at * 1e3 } else { at })).transpose();
    let added = at_ms.and_then(|at_ms| all.add(name, labels, (value, at_ms), metrics));
    added.map(|()| true).map_err(|what| format!("{what}; {}", wrong()))
}

/// The name of one of cadvisor's metrics that are read, which may lack `_total`, as some collectors
/// take it off; `None` of any other.
fn known(name: &str) -> Option<&'static str> {
    let is_it = |own: &&str| *own == name || own.strip_suffix("_total") == Some(name);
    OF_CONTAINERS.into_iter().chain([VERSION]).find(is_it)
}

impl Scrape {
    /// Stores a number of a known metric, with its time, ms since 1970. Unknown metrics are
    /// ignored; an error where the number is too large, NaN or wrongly negative, or differs from
    /// one of the same series.
    fn add(
        &mut self,
        name: &str,
        mut labels: Labels,
        (value, at_ms): (f64, Option<f64>),
        metrics: &Metrics,
    ) -> Result<(), String> {
        let value = checked(name, value)?;
        self.own.add(name, &labels, value, metrics)?;
        if name == VERSION {
            let release = labels.value("kernelVersion");
            self.kernel = Some(release.to_owned()).filter(|release| !release.is_empty());
        }
        if !OF_CONTAINERS.contains(&name) {
            return Ok(());
        }
        let cpu = labels.remove("cpu");
        let twice = format!("{name} of {labels} is there twice, with different numbers");
        let series = self.containers.entry(labels).or_default();
        // Some kubelets stamp the start with itself.
        let at_ms = at_ms.filter(|_| name != START);
        series.at_ms = at_ms.or(series.at_ms);
        series.set(name, cpu.as_deref(), value).map_err(|()| twice)
    }
}

/// A number that the metric can have: the kernel counts in 64 bits, and times in ns.
fn checked(name: &str, value: f64) -> Result<f64, String> {
    let most = u64::MAX as f64 / if [USAGE, THROTTLED_SECONDS].contains(&name) { 1e9 } else { 1.0 };
    // An unknown start is a time long before 1970.
    if value.abs() <= most && (value >= 0.0 || [QUOTA, START].contains(&name)) {
        return Ok(value);
    }
    Err(format!("a counter cannot be {value:?}, but 0 to {most:?}"))
}

/// A time in ms since 1970 that fits 64 bits in ns.
fn checked_ms(ms: f64) -> Result<f64, String> {
    let is_possible = (0.0..=u64::MAX as f64 / 1e6).contains(&ms);
    is_possible.then_some(ms).ok_or_else(|| format!("{ms:?} ms since 1970 is no time"))
}

#[cfg(test)]
mod tests;
