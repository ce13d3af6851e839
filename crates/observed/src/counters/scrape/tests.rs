use super::super::Served;
use super::*;
use std::sync::atomic::{AtomicU32, Ordering};

/// The lines of a container at one time, some of them left out or changed.
#[derive(Clone)]
struct Lines {
    labels: String,
    at: u64,
    usage: f64,
    periods: u64,
    throttled: u64,
    quota: u64,
    /// Metrics that are not served.
    without: Vec<&'static str>,
}

const APP: &str = r#"container="app",namespace="shop",pod="web-1""#;
const FIRST: u64 = 1_700_000_000_000;

impl Lines {
    fn of(labels: &str, at: u64, [usage, periods, throttled]: [u64; 3]) -> Lines {
        let (labels, usage, without) = (labels.to_owned(), usage as f64, Vec::new());
        Lines { labels, at: FIRST + at * 1_000, usage, periods, throttled, quota: 50_000, without }
    }

    fn text(&self) -> String {
        let Lines { labels, at, usage, periods, throttled, quota, without } = self;
        let waited = *throttled as f64 / 20.0;
        let all = [
            (USAGE, format!("{{{labels},cpu=\"total\"}} {usage} {at}")),
            (PERIODS, format!("{{{labels}}} {periods} {at}")),
            (THROTTLED, format!("{{{labels}}} {throttled} {at}")),
            (THROTTLED_SECONDS, format!("{{{labels}}} {waited} {at}")),
            (QUOTA, format!("{{{labels}}} {quota}")),
            (PERIOD, format!("{{{labels}}} 100000")),
        ];
        let kept = all.iter().filter(|(name, _)| !without.contains(name));
        kept.fold(String::new(), |text, (name, rest)| text + name + rest + "\n")
    }

    fn without(mut self, metrics: &[&'static str]) -> Lines {
        self.without = metrics.to_vec();
        self
    }
}

/// Reads scrapes with these texts: the container with these labels.
fn told(texts: &[impl AsRef<[u8]>], labels: &[&str]) -> Result<Observed, String> {
    told_with(texts, labels, &Metrics::default()).map(|(observed, _)| observed)
}

/// The observed container, and the metrics of its service.
fn told_with(
    texts: &[impl AsRef<[u8]>],
    labels: &[&str],
    metrics: &Metrics,
) -> Result<(Observed, Served), String> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let (pid, nr) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(format!("cpumax-scrapes-{pid}-{nr}"));
    std::fs::create_dir_all(&folder).unwrap();
    let write = |at: usize| {
        let path = folder.join(format!("{at}.txt"));
        std::fs::write(&path, &texts[at]).unwrap();
        path
    };
    let paths: Vec<_> = (0..texts.len()).map(write).collect();
    let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
    let told = Scraped::of_files(&paths, &labels, None, metrics.clone());
    let told = told.and_then(|told| told.one()).map_err(|error| error.to_string());
    std::fs::remove_dir_all(folder).unwrap();
    told
}

/// Half a CPU for a minute, and 360 of 600 periods throttled.
fn two(change: impl Fn(Lines) -> Lines) -> [String; 2] {
    let lines = [Lines::of(APP, 0, [100, 1000, 500]), Lines::of(APP, 60, [130, 1600, 860])];
    lines.map(|lines| change(lines).text())
}

#[test]
fn two_scrapes_tell_what_went_by_between_them() {
    let observed = told(&two(|lines| lines), &["pod=web-1"]).unwrap();
    let whole = observed.whole();
    assert_eq!((whole.length_ns, whole.usage_ns), (60_000_000_000, Some(30_000_000_000)));
    let periods = whole.periods.unwrap();
    assert_eq!((periods.nr_periods, periods.nr_throttled), (600, 360));
    assert_eq!(whole.throttled_ns, Some(18_000_000_000));
    assert_eq!(observed.limit.unwrap().to_string(), "50000 100000");
    let [one, other] = two(|lines| lines);
    assert!(told(&[other, one], &["pod=web-1"]).unwrap_err().contains("later than the one before"));
}

#[test]
fn all_ways_to_write_a_scrape_tell_the_same() {
    let plain = told(&two(|lines| lines), &["pod=web-1"]).unwrap();
    let quoted = |line: &str| {
        let (name, rest) = line.split_once('{').unwrap();
        format!("{{\"{name}\",{}\n", rest.replace("pod=", "\"pod\"="))
    };
    let inside = |line: &str| format!("{{__name__=\"{}\n", line.replacen('{', "\", ", 1));
    let ways: [&dyn Fn(&str) -> String; 5] = [
        &|line| format!("\t {}\n", line.replace("} ", "}\t")),
        &|line| format!("# HELP {USAGE} of \\n {{x\n{line} \r\n"),
        &|line| line.replace("_total", "") + "\n",
        &quoted,
        &inside,
    ];
    for way in ways {
        let texts = two(|lines| lines).map(|text| text.lines().map(way).collect::<String>());
        assert_eq!(told(&texts, &["pod=web-1"]).unwrap(), plain, "{}", texts[0]);
    }
    // A zstd frame of one raw block.
    let packed = |text: String| {
        let (size, block) = ((text.len() - 256) as u16, (text.len() as u32) << 3 | 1);
        let head = [&[0x28, 0xb5, 0x2f, 0xfd, 0x60], &size.to_le_bytes()[..]].concat();
        [&head, &block.to_le_bytes()[..3], text.as_bytes()].concat()
    };
    assert_eq!(told(&two(|lines| lines).map(packed), &["pod=web-1"]).unwrap(), plain);
}

#[test]
fn order_of_labels_means_nothing() {
    let [before, _] = two(|lines| lines);
    let turned = r#"pod="web-1",namespace="shop",image="",container="app""#;
    let after = Lines::of(turned, 60, [130, 1600, 860]).text();
    let observed = told(&[before, after], &["pod=web-1"]).unwrap();
    assert_eq!(observed.whole().periods.unwrap().nr_throttled, 360);
}

#[test]
fn cpus_are_summed_up_where_there_is_no_total() {
    let by_cpu = |text: String, one: f64, other: f64| {
        let usage = |cpu: &str, s: f64| format!("{USAGE}{{{APP},cpu=\"{cpu}\"}} {s}\n");
        text + &usage("cpu00", one) + &usage("cpu01", other)
    };
    let [before, after] = two(|lines| lines.without(&[USAGE]));
    let texts = [by_cpu(before, 60.0, 40.0), by_cpu(after.clone(), 75.0, 55.0)];
    assert_eq!(told(&texts, &[]).unwrap().whole().usage_ns, Some(30_000_000_000));
    // A total beside them is the total.
    let [before, after_all] = two(|lines| lines);
    let texts = [by_cpu(before, 60.0, 40.0), by_cpu(after_all, 75.0, 55.0)];
    assert_eq!(told(&texts, &[]).unwrap().whole().usage_ns, Some(30_000_000_000));
    // With an additional CPU, its usage before is unknown.
    let texts = [texts[0].clone().replace("\"total\"", "\"cpu07\""), by_cpu(after, 75.0, 55.0)];
    assert_eq!(told(&texts, &[]).unwrap().whole().usage_ns, None);
}

#[test]
fn missing_metrics_are_not_taken_to_be_0() {
    let observed = told(&two(|lines| lines.without(&[THROTTLED_SECONDS])), &[]).unwrap();
    assert_eq!(observed.whole().throttled_ns, None);
    assert_eq!(observed.whole().periods.unwrap().nr_throttled, 360);
    let observed = told(&two(|lines| lines.without(&[USAGE])), &[]).unwrap();
    assert_eq!(observed.whole().usage_ns, None);
    let observed = told(&two(|lines| lines.without(&[PERIODS])), &[]).unwrap();
    assert_eq!(observed.whole().periods, None);
    // kube-prometheus-stack drops these.
    let observed = told(&two(|lines| lines.without(&[QUOTA, PERIOD])), &[]).unwrap();
    assert_eq!(observed.limit, None);
}

#[test]
fn a_container_without_a_limit_has_usage() {
    let all = [PERIODS, THROTTLED, THROTTLED_SECONDS, QUOTA];
    let observed = told(&two(|lines| lines.without(&all)), &["container=app"]).unwrap();
    assert_eq!(observed.limit, Some(Limit::UNLIMITED));
    let whole = observed.whole();
    assert_eq!((whole.usage_ns, whole.periods), (Some(30_000_000_000), None));
}

#[test]
fn a_limit_that_was_changed_between_scrapes_is_no_answer() {
    let texts = two(|mut lines| {
        lines.quota = if lines.at == FIRST { 20_000 } else { 50_000 };
        lines
    });
    let error = told(&texts, &[]).unwrap_err();
    assert!(error.contains("from 20000 100000 to 50000 100000"), "{error}");
}

#[test]
fn impossible_counters_are_refused() {
    for (after, what) in [
        ([99_130, 1600, 860], "1650.50 CPUs used under a limit of 0.50 CPUs"),
        ([142, 1600, 860], "0.70 CPUs used under a limit of 0.50 CPUs"),
        ([130, 1600, 2860], "2360 of 600 periods"),
        ([130, 3400, 860], "2400 periods of 100 ms in 60.0 s"),
    ] {
        let texts = [Lines::of(APP, 0, [100, 1000, 500]), Lines::of(APP, 60, after)];
        let error = told(&texts.map(|lines| lines.text()), &[]).unwrap_err();
        assert!(error.contains("impossible") && error.contains(what), "{error}");
    }
    let [before, after] = two(|lines| lines);
    for (number, what) in [
        ("1e308", "1.txt, line 4: a counter cannot be 1e308, but 0 to 18446744073.709"),
        ("-1", "line 4: a counter cannot be -1.0"),
        ("NaN", "line 4: a counter cannot be NaN"),
        ("1e9", "its counters are impossible: throttled for 999999975 s in 60.0 s"),
        ("43 1e308", "line 4: 1e308 ms since 1970 is no time"),
    ] {
        let after = after.replace("} 43 1", &format!("}} {number} 1"));
        assert!(refused(&[before.clone(), after]).contains(what), "{number}");
    }
}

/// A pod as a kubelet serves it: the pod, its sandbox, and each container with its id.
fn pod(name: &str, at: u64, counts: [u64; 3], containers: &[(&str, &str)]) -> String {
    let common = format!(r#"namespace="shop",pod="{name}""#);
    let own = format!(r#"container="",id="/kubepods/pod-{name}",image="",name="",{common}"#);
    let sandbox =
        format!(r#"container="",id="/kubepods/pod-{name}/0",image="pause",name="0",{common}"#);
    let none = [PERIODS, THROTTLED, THROTTLED_SECONDS, QUOTA];
    let mut text = Lines::of(&own, at, counts).text();
    text += &Lines::of(&sandbox, at, [0, 0, 0]).without(&none).text();
    for (container, id) in containers {
        let labels = format!(
            r#"container="{container}",id="/kubepods/{name}/{id}",image="i",name="{id}",{common}"#
        );
        let [usage, periods, throttled] = counts;
        text += &Lines::of(&labels, at, [usage, periods, throttled / 2]).text();
    }
    text
}

#[test]
fn a_pod_alone_names_its_container() {
    let at = |at, counts| {
        pod("web-1", at, counts, &[("app", "a")]) + &pod("db", at, counts, &[("pg", "p")])
    };
    let texts = [at(0, [100, 1000, 500]), at(60, [130, 1600, 860])];
    let observed = told(&texts, &["pod=web-1"]).unwrap();
    assert!(observed.name.contains("container=\"app\""), "{}", observed.name);
    assert_eq!(observed.whole().periods.unwrap().nr_throttled, 180);
    // The pod has a limit of its own, and is stopped by it more often.
    let above = observed.above.unwrap();
    assert_eq!((above.periods.nr_throttled, above.periods.nr_periods), (360, 600));
    assert!(above.has_one, "the other pod's container is not its own");
    let two = |at, counts| pod("web-1", at, counts, &[("app", "a"), ("side", "s")]);
    let texts_of_two = [two(0, [100, 1000, 500]), two(60, [130, 1600, 860])];
    let of_two = told(&texts_of_two, &["container=app"]).unwrap();
    assert!(!of_two.above.unwrap().has_one);
    let itself = told(&texts, &["pod=web-1", "container="]).unwrap();
    assert_eq!((itself.whole().periods.unwrap().nr_throttled, itself.above), (360, None));
}

#[test]
fn of_several_each_hint_chooses_one() {
    let at = |at, counts| pod("web-1", at, counts, &[("app", "a"), ("side", "s")]);
    let texts = [at(0, [100, 1000, 500]), at(60, [130, 1600, 860])];
    let error = told(&texts, &["pod=web-1"]).unwrap_err();
    let hints: Vec<&str> = error.split("--label ").skip(1).collect();
    assert_eq!(hints.len(), 3, "{error}");
    for hint in hints {
        let hint = hint.split([' ', ',', ';']).next().unwrap();
        assert!(told(&texts, &["pod=web-1", hint]).is_ok(), "{hint}: {error}");
    }
    let none = told(&texts, &["pod=web-2"]).unwrap_err();
    assert!(none.contains("--label container=app"), "{none}");
    assert!(told(&texts, &["web-1"]).unwrap_err().contains("LABEL=VALUE"));
}

#[test]
fn the_time_between_two_runs_of_a_container_is_left_out() {
    let at = |at, counts, id| pod("web-1", at, counts, &[("app", id)]);
    let old = at(0, [100, 1000, 500], "a");
    let new = [at(60, [10, 200, 100], "b"), at(120, [40, 800, 460], "b")];
    let error = told(&[old.clone(), new[0].clone()], &["pod=web-1"]).unwrap_err();
    assert!(error.contains("restarted"), "{error}");
    let observed = told(&[old, new[0].clone(), new[1].clone()], &["pod=web-1"]).unwrap();
    let whole = observed.whole();
    assert_eq!((whole.length_ns, whole.usage_ns), (60_000_000_000, Some(30_000_000_000)));
    assert_eq!(whole.periods.unwrap().nr_periods, 600);
}

#[test]
fn a_container_that_started_after_the_scrape_before_was_restarted() {
    let at = |at, counts: [u64; 3], start: &str| {
        Lines::of(APP, at, counts).text() + &format!("{START}{{{APP}}} {start}\n")
    };
    let old = at(0, [5, 100, 60], "1.69999999e+09");
    // Its counters are higher than those of the run before.
    let new = at(60, [25, 500, 300], "1.70000001e+09");
    let error = told(&[old.clone(), new.clone()], &["pod=web-1"]).unwrap_err();
    assert!(error.contains("restarted"), "{error}");
    let last = at(120, [55, 1100, 660], "1.70000001e+09");
    let texts = [old.clone(), new.clone(), new, last];
    let whole = told(&texts, &["pod=web-1"]).unwrap().whole();
    assert_eq!((whole.length_ns, whole.usage_ns), (60_000_000_000, Some(30_000_000_000)));
    for start in ["1.69999999e+09", "-6.2135596800e+10"] {
        let same = at(60, [25, 500, 300], start);
        let whole = told(&[old.clone(), same], &["pod=web-1"]).unwrap().whole();
        assert_eq!(whole.usage_ns, Some(20_000_000_000));
    }
}

#[test]
fn a_file_that_is_no_scrape_is_named() {
    let query = r#"{"data": {"resultType": "scalar", "result": []}}"#;
    let rate =
        r#"{"data": {"resultType": "vector", "result": [{"metric": {}, "value": [1, "2"]}]}}"#;
    for (text, what) in [
        (query, "of type scalar: give one of type matrix or vector"),
        (rate, "without rate()"),
        (r#"{"data": {"resultType": "matrix", "result": []}}"#, "found no series"),
        (r#"{"read": "2023", "cpu_stats": {}}"#, "docker's stats, but it has no total_usage"),
        ("\n [{}]", "JSON"),
        (r#"{"status": "error", "error": "parse error"}"#, "query that failed: parse error"),
        ("usage_usec 5\nnr_periods 3\n", "none of cadvisor's counters"),
        ("", "none of cadvisor's counters"),
        ("{}", "JSON"),
        (r#"{"data": "#, "it is not JSON"),
    ] {
        let error = told(&[text.to_owned(), text.to_owned()], &["pod=web-1"]).unwrap_err();
        assert!(error.contains(what) && error.contains("0.txt: "), "{error}");
    }
    assert!(!json::is_json(b"{\"a.b\",pod=\"x\"} 1") && !json::is_json(b"# TYPE"));
}

#[test]
fn a_query_to_prometheus_is_as_good_as_scrapes() {
    let series = |name: &str, more: &str, values: [&str; 2]| {
        let [one, other] = values;
        format!(
            r#"{{"metric": {{"__name__": "{name}", "pod": "web-1", "container": "app"{more}}},
            "values": [[1700000000, "{one}"], [1700000060.5, "{other}"]]}}"#
        )
    };
    let all = [
        series(USAGE, r#", "cpu": "total""#, ["100.0", "130.0"]),
        series(PERIODS, "", ["1000", "1600"]),
        series(THROTTLED, "", ["500", "860"]),
        series(QUOTA, "", ["50000", "50000"]),
        series(PERIOD, "", ["100000", "100000"]),
        series(VERSION, r#", "kernelVersion": "6.1.0-13-amd64""#, ["1", "1"]),
        series("http_seconds_bucket", r#", "le": "0.1""#, ["0", "900"]),
        series("http_seconds_bucket", r#", "le": "0.5""#, ["0", "1000"]),
        series("http_seconds_bucket", r#", "le": "+Inf""#, ["0", "1000"]),
        series("other", "", ["1", "x"]),
    ];
    let all = all.join(",");
    let text = format!(r#"{{"data": {{"resultType": "matrix", "result": [{all}]}}}}"#);
    let metrics = Metrics::parse(None, Some("http_seconds{pod=\"web-1\"}")).unwrap();
    let (observed, served) =
        told_with(std::slice::from_ref(&text), &["pod=web-1"], &metrics).unwrap();
    let whole = observed.whole();
    assert_eq!((whole.length_ns, whole.usage_ns), (60_500_000_000, Some(30_000_000_000)));
    let periods = whole.periods.unwrap();
    assert_eq!((periods.nr_periods, periods.nr_throttled), (600, 360));
    assert_eq!(observed.limit.unwrap().to_string(), "50000 100000");
    assert_eq!(observed.kernel.unwrap().release, "6.1.0-13-amd64");
    assert!((served.requests_per_s.unwrap() - 1000.0 / 60.5).abs() < 1e-9);
    let p99 = served.p99_ns.unwrap();
    assert!((p99.value - 460e6).abs() < 1.0 && (p99.low, p99.high) == (100e6, 500e6), "{p99:?}");
    let none = Metrics::parse(Some("http_total"), None).unwrap();
    let error = told_with(&[text], &["pod=web-1"], &none).unwrap_err();
    assert!(error.contains("http_total: no series"), "{error}");
}

#[test]
fn a_histogram_has_the_unit_in_its_name() {
    let told_of = |name: &str, bounds: [&str; 2]| {
        let texts = two(|lines| lines);
        let counts = [[0, 0], [900, 1000]];
        let with = |(text, [less, all]): (&String, [u64; 2])| {
            let [low, high] = bounds;
            format!(
                "{text}{name}_bucket{{le=\"{low}\"}} {less}\n{name}_bucket{{le=\"{high}\"}} {all}\n\
                 {name}_bucket{{le=\"+Inf\"}} {all}\n"
            )
        };
        let texts: Vec<String> = texts.iter().zip(counts).map(with).collect();
        let metrics = Metrics::parse(None, Some(name)).unwrap();
        told_with(&texts, &[], &metrics).map(|(_, served)| served.p99_ns.unwrap().value)
    };
    for (name, bounds) in [
        ("took", ["0.1", "0.5"]),
        ("istio_request_duration_milliseconds", ["100", "500"]),
        ("took_us", ["1e5", "500000"]),
    ] {
        let p99_ns = told_of(name, bounds).unwrap();
        assert!((p99_ns - 460e6).abs() < 1.0, "{name}: {p99_ns}");
    }
    for wrong in ["500000", "-1", "NaN", "x"] {
        let says = told_of("upstream_rq_time", ["0.5", wrong]).unwrap_err();
        assert!(says.contains(&format!("`le` cannot be '{wrong}', but 0 to 100000 s")), "{says}");
    }
}

/// An answer of Prometheus with a step in s, of counters scraped each 30 s: 0.4 CPUs.
fn resampled(step: u64, count: u64) -> String {
    let series = |name: &str, of: &dyn Fn(u64) -> u64| {
        let at = |at: u64| format!(r#"[{}, "{}"]"#, FIRST / 1_000 + at * step, of(at * step));
        let values: Vec<String> = (0..count).map(at).collect();
        let values = values.join(",");
        format!(r#"{{"metric": {{"__name__": "{name}", "pod": "web-1"}}, "values": [{values}]}}"#)
    };
    let all = [
        series(USAGE, &|s| 100 + s / 30 * 12),
        series(PERIODS, &|s| 1000 + s / 30 * 300),
        series(THROTTLED, &|s| 500 + s / 30 * 60),
        series(QUOTA, &|_| 50_000),
        series(PERIOD, &|_| 100_000),
    ];
    let all = all.join(",");
    format!(r#"{{"data": {{"resultType": "matrix", "result": [{all}]}}}}"#)
}

#[test]
fn a_query_may_have_a_shorter_step_than_scrapes() {
    for step in [5, 14, 15, 20, 30, 45] {
        let whole = told(&[resampled(step, 1800 / step)], &[]).unwrap().whole();
        let cpus = whole.usage_ns.unwrap() as f64 / whole.length_ns as f64;
        assert!((cpus - 0.4).abs() < 0.02, "step {step}: {cpus}");
        assert!(whole.length_ns > 1_600_000_000_000, "step {step}: {whole:?}");
    }
    let less = resampled(15, 120).replace("\"50000\"", "\"5000\"");
    let says = refused(&[less]);
    assert!(says.contains("impossible: 0.40 CPUs used under a limit of 0.05"), "{says}");
}

#[test]
fn stats_of_docker_hold_two_times() {
    let text = r#"{"read": "2023-11-14T22:14:20Z", "preread": "2023-11-14T22:13:20Z",
        "name": "/web-1", "cpu_stats": {"cpu_usage": {"total_usage": 130000000000},
        "online_cpus": 2, "throttling_data": {"periods": 1600, "throttled_periods": 860,
        "throttled_time": 40000000000}}, "precpu_stats": {"cpu_usage": {"total_usage":
        100000000000}, "throttling_data": {"periods": 1000, "throttled_periods": 500,
        "throttled_time": 20000000000}}}"#;
    let twice = [text.to_owned() + "\n" + text];
    let podman =
        text.replace("T22:14:20Z", "T21:44:20-00:30").replace("T22:13:20Z", "T23:13:20+01:00");
    for texts in [[text.to_owned()], twice, [format!("[{podman}]")]] {
        let observed = told(&texts, &["name=web-1"]).unwrap();
        assert_eq!(observed.moments.len(), 2, "given twice it tells no more");
        let whole = observed.whole();
        assert_eq!((whole.length_ns, whole.usage_ns), (60_000_000_000, Some(30_000_000_000)));
        assert_eq!(whole.periods.unwrap().nr_throttled, 360);
        assert_eq!(whole.throttled_ns, Some(20_000_000_000));
        assert_eq!((observed.limit, observed.cpus.unwrap().count), (None, 2));
    }
    let unknown = told(&[text.replace("\"online_cpus\": 2", "\"online_cpus\": 0")], &[]);
    assert_eq!(unknown.unwrap().cpus, None);
    let error = told(&[text.to_owned()], &["pod=web-1"]).unwrap_err();
    assert!(error.ends_with("the id of the container; give --label name=web-1"), "{error}");
}

/// Why scrapes with these texts are refused.
fn refused(texts: &[String]) -> String {
    told(texts, &[]).unwrap_err()
}

#[test]
fn a_series_that_is_there_twice_counts_once_or_is_refused() {
    let [first, last] = two(|lines| lines);
    let same = told(&[first.clone(), last.clone() + &last], &[]).unwrap();
    assert_eq!(same, told(&[first.clone(), last.clone()], &[]).unwrap());
    let other = Lines::of(APP, 60, [130, 1600, 940]).text();
    let says = refused(&[first, last + &other]);
    assert!(says.contains("line 9: container_cpu_cfs_throttled_periods_total of {"), "{says}");
    assert!(says.contains("is there twice, with different numbers"), "{says}");
    let cpus = |usage: u64, more: &str| {
        let cpu = |cpu: u64, usage: u64| {
            format!("{USAGE}{{{APP},cpu=\"cpu0{cpu}\"}} {usage} {}\n", FIRST + usage * 1_000)
        };
        cpu(0, usage) + &cpu(1, usage) + more
    };
    let again = format!("{USAGE}{{{APP},cpu=\"cpu01\"}} 30 {}\n", FIRST + 30_000);
    let doubled = told(&[cpus(10, ""), cpus(30, &again)], &[]).unwrap();
    assert_eq!(doubled.moments[1].usage_ns, Some(60_000_000_000));
    assert!(refused(&[cpus(10, ""), cpus(20, &again)]).contains("twice, with different numbers"));
}

#[test]
fn a_scrape_that_is_cut_marked_or_given_twice_is_told() {
    let [first, last] = two(|lines| lines);
    let cut = last.split_at(last.len() - 1).0.to_owned();
    assert!(refused(&[first.clone(), cut]).contains("line 6: the line has no end: the scrape"));
    let unended = format!("{last}# EOF");
    let marked = [format!("\u{feff}{first}"), unended].map(|text| text.replace('\n', "\r\n"));
    assert_eq!(told(&marked, &[]).unwrap(), told(&[first.clone(), last], &[]).unwrap());
    assert!(refused(&[first.clone(), first]).contains("the scrapes are the same"));
}
