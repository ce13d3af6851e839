//! Counters through Prometheus' HTTP API: saved answers of Prometheus 2.42 to the queries that are
//! asked, answers that stand for what goes wrong, and a real Prometheus that scrapes this test.

use cpumax_observed::counters::{Metrics, Observed, Prometheus, Scraped};
use cpumax_require::{Need, found};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

const USAGE: &str = "container_cpu_usage_seconds_total";
const PERIODS: &str = "container_cpu_cfs_periods_total";
const THROTTLED: &str = "container_cpu_cfs_throttled_periods_total";
const QUOTA: &str = "container_spec_cpu_quota";

/// Serves what `answer` makes of the head of each request; returns the port.
fn serve(answer: impl Fn(&str) -> (u16, String) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let one = move |mut stream: TcpStream| {
        let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        let (status, body) = answer(&head.join("\n"));
        let length = body.len();
        let head = format!("HTTP/1.1 {status} Told\r\nContent-Length: {length}\r\n");
        // A client that is gone is no failure of the server.
        let _ = write!(stream, "{head}Content-Type: text/plain\r\nConnection: close\r\n\r\n{body}");
    };
    thread::spawn(move || listener.incoming().flatten().for_each(one));
    port
}

/// The metric that a request asks for.
fn asked(head: &str) -> &str {
    let query = head.split("query=").nth(1).unwrap();
    query.split(['%', '{', '&', ' ']).next().unwrap()
}

/// Answers each query with the series of its metric.
fn answers(series: Vec<Value>) -> u16 {
    serve(move |head| {
        let of = |one: &&Value| one["metric"]["__name__"] == asked(head);
        let result: Vec<&Value> = series.iter().filter(of).collect();
        let data = json!({"resultType": "matrix", "result": result});
        (200, json!({"status": "success", "data": data}).to_string())
    })
}

fn series(name: &str, labels: &Value, values: &[(u64, &str)]) -> Value {
    let mut metric = labels.clone();
    metric["__name__"] = name.into();
    let values: Vec<Value> = values.iter().map(|(at, number)| json!([at, number])).collect();
    json!({"metric": metric, "values": values})
}

fn told(port: u16, labels: &[&str]) -> Result<Scraped, String> {
    let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
    let prometheus = Prometheus::at(&format!("http://me:secret@127.0.0.1:{port}"), None).unwrap();
    let since = Duration::from_secs(1_800);
    let told = Scraped::of_prometheus(&prometheus, &labels, since, Metrics::default());
    told.map_err(|error| error.to_string())
}

fn one(port: u16, labels: &[&str]) -> Result<Observed, String> {
    told(port, labels)?.one().map(|(observed, _)| observed).map_err(|error| error.to_string())
}

#[test]
fn saved_answers_tell_the_container_its_pod_and_its_kernel() {
    let saved: Value = serde_json::from_str(include_str!("data/prometheus.json")).unwrap();
    let heads = Arc::new(Mutex::new(String::new()));
    let seen = Arc::clone(&heads);
    let port = serve(move |head| {
        seen.lock().unwrap().push_str(head);
        (200, saved[asked(head)].to_string())
    });
    let observed = one(port, &["pod=app-0"]).unwrap();
    let whole = observed.whole();
    assert_eq!((observed.moments.len(), whole.length_ns / 1_000_000), (4, 6_003));
    assert!((0.78e9..0.79e9).contains(&(whole.usage_ns.unwrap() as f64)), "{whole:?}");
    assert!(whole.periods.unwrap().nr_periods >= 53 && whole.throttled_ns.is_some(), "{whole:?}");
    assert_eq!(observed.limit.unwrap().to_string(), "25000 100000");
    assert_eq!(observed.kernel.unwrap().release, "6.1.0-13-amd64");
    assert!(observed.above.unwrap().has_one);
    let heads = heads.lock().unwrap();
    assert!(heads.to_lowercase().contains("authorization: basic bwu6c2vjcmv0"), "{heads}");
    assert!(heads.contains("pod%3D%22app-0%22") || heads.contains("pod=%22app-0%22"), "{heads}");
}

#[test]
fn what_the_server_says_is_told_with_the_query_and_without_the_password() {
    let refused = r#"{"status": "error", "errorType": "execution", "error": "too many samples"}"#;
    for (status, body, what) in [
        (422, refused, "execution: too many samples"),
        (302, "login", "302"),
        (200, "<html>", "no answer of Prometheus"),
        (200, r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#, "it has no"),
    ] {
        let port = serve(move |_| (status, body.to_owned()));
        let error = told(port, &["pod=w"]).unwrap_err();
        assert!(error.contains(what) && error.contains(r#"{pod="w"}"#), "{error}");
        assert!(error.contains("http://127.0.0.1:") && !error.contains("secret"), "{error}");
    }
    let error = told(1, &["a-b=w"]).unwrap_err();
    assert!(error.contains("a label has a name of letters"), "{error}");
}

/// Half a CPU for two minutes, at these times and with these labels.
fn half(labels: &Value, at: [u64; 2], base: u64) -> Vec<Value> {
    let number = |number: u64| number.to_string();
    let [from, to] = at;
    let one = |name, first: u64, more: u64| {
        let (first, last) = (number(first), number(first + more));
        series(name, labels, &[(from, first.as_str()), (to, last.as_str())])
    };
    let seconds = to - from;
    vec![
        one(USAGE, base, seconds / 2),
        one(PERIODS, base * 10, seconds * 10),
        one(THROTTLED, base, seconds),
        series(QUOTA, labels, &[(from + 3, "80000"), (to - 3, "80000")]),
        series("container_spec_cpu_period", labels, &[(from + 3, "100000"), (to - 3, "100000")]),
    ]
}

#[test]
fn runs_and_replicas_are_not_mixed_and_the_end_of_a_series_is_no_number() {
    let app = |id: &str, of: &str| -> Value {
        json!({"pod": "w", "id": id, "container": "app", "prometheus_replica": of})
    };
    let mut all = half(&app("/1", "a"), [1_000_000, 1_000_120], 50);
    all.extend(half(&app("/2", "a"), [1_000_140, 1_000_260], 1));
    // The other replica scrapes at other times.
    all.extend(half(&app("/2", "b"), [1_000_147, 1_000_267], 2));
    all.push(series(USAGE, &app("/2", "b"), &[(1_000_200, "NaN")]));
    let observed = one(answers(all), &["pod=w"]).unwrap();
    let whole = observed.whole();
    assert_eq!(observed.deltas().len(), 2, "the time between two runs is left out");
    assert_eq!((whole.length_ns, whole.usage_ns), (240_000_000_000, Some(120_000_000_000)));
    assert_eq!(whole.periods.unwrap().nr_throttled, 240);
}

#[test]
fn a_changed_limit_a_fallen_counter_and_a_missing_series_are_told() {
    let app = json!({"pod": "w", "container": "app", "id": "/1"});
    let sound = half(&app, [1_000_000, 1_000_120], 50);
    let but = |name: &str, values: Option<&[(u64, &str)]>| {
        let kept = sound.iter().filter(|one| one["metric"]["__name__"] != name).cloned();
        let other = values.map(|values| series(name, &app, values));
        one(answers(kept.chain(other).collect()), &["pod=w"])
    };
    let changed = but(QUOTA, Some(&[(1_000_001, "50000"), (1_000_119, "80000")])).unwrap_err();
    assert!(changed.contains("from 50000 100000 to 80000 100000"), "{changed}");
    let fell = but(USAGE, Some(&[(1_000_000, "50"), (1_000_120, "9")])).unwrap_err();
    assert!(fell.contains("counters went back"), "{fell}");
    assert_eq!(but(THROTTLED, None).unwrap().whole().periods, None);
    assert_eq!(but(USAGE, None).unwrap().whole().usage_ns, None);
    // Beside others, it is one of all.
    let other = json!({"pod": "v", "container": "app", "id": "/9"});
    let more = sound.iter().cloned().chain(half(&other, [1_000_000, 1_000_120], 7));
    let port = answers(more.collect());
    assert_eq!(told(port, &[]).unwrap().all().unwrap().len(), 2);
    let several = one(port, &[]).unwrap_err();
    assert!(several.contains("--label pod=w, or --label pod=v"), "{several}");
}

#[test]
fn a_real_prometheus_tells_what_it_scraped() {
    let run = || Command::new("prometheus").arg("--version").output();
    if found(Need::Prometheus, run()).is_none() {
        return;
    }
    let started = Instant::now();
    let exporter = serve(move |_| {
        let s = started.elapsed().as_secs_f64();
        let labels = r#"container="app",id="/k/1",namespace="shop",pod="web-1""#;
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
        let (periods, throttled) = ((s * 10.0) as u64, (s * 4.0) as u64);
        let text = format!(
            "{USAGE}{{{labels},cpu=\"total\"}} {} {at}\n{PERIODS}{{{labels}}} {periods} {at}\n\
             {THROTTLED}{{{labels}}} {throttled} {at}\n{QUOTA}{{{labels}}} 50000\n\
             container_spec_cpu_period{{{labels}}} 100000\n\
             cadvisor_version_info{{kernelVersion=\"6.12.9\"}} 1\n",
            s * 0.3
        );
        (200, text)
    });
    let folder = tempfile::tempdir().unwrap();
    let settings = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: kubelet\n  \
         static_configs: [{{targets: ['127.0.0.1:{exporter}']}}]\n"
    );
    let file = folder.path().join("prometheus.yml");
    std::fs::write(&file, settings).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut prometheus = Command::new("prometheus")
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let long_enough = |observed: &Observed| observed.whole().length_ns >= 4_000_000_000;
    let mut last = Err("not asked".to_owned());
    while !last.as_ref().is_ok_and(long_enough) && started.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(500));
        last = one(port, &["pod=web-1"]);
    }
    prometheus.kill().unwrap();
    prometheus.wait().unwrap();
    let observed = last.unwrap();
    let whole = observed.whole();
    let cpus = whole.usage_ns.unwrap() as f64 / whole.length_ns as f64;
    assert!((0.29..0.31).contains(&cpus) && observed.moments.len() > 3, "{whole:?}");
    let periods = whole.periods.unwrap();
    assert!(periods.nr_throttled > 0 && periods.nr_throttled < periods.nr_periods, "{whole:?}");
    assert_eq!(observed.limit.unwrap().to_string(), "50000 100000");
    assert_eq!(observed.kernel.unwrap().release, "6.12.9");
}
