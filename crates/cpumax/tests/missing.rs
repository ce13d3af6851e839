//! Recordings that lack something, and all commands that answer from them: each command names what
//! is missing, and no number that is far off lacks a mark. The recordings are made from a complete
//! one, so the truth is known.

#[path = "missing/clients.rs"]
mod clients;
#[path = "missing/cpus.rs"]
mod cpus;
#[path = "missing/limits.rs"]
mod limits;
#[path = "missing/own.rs"]
mod own;
#[expect(dead_code, reason = "some of it is for traces of traced_probes")]
#[path = "../../recording/tests/support/perfetto.rs"]
mod perfetto;
#[path = "../../recording/tests/behaviour/traces.rs"]
mod traces;

use cpumax_forecast::{
    Replay, Request,
    advise::{Case, Goal, Question, advise},
    predict::Prediction,
    recorded::Inspected,
    saved::Saved,
    verify::verify,
};
use cpumax_machine::kernel;
use cpumax_observed::counters::{Moment, Observed};
use cpumax_recording::{GapKind, Options, Recording};
use cpumax_report::{Named, Page, advice_text, html, recording_text, replay_text};
use cpumax_study::{
    Ranged, Running, Try,
    limit::{CpuStat, Limit},
};
use traces::{IDLE, MS, Trace};

/// Length of the recording, and the limit that is tried.
const LENGTH_MS: u64 = 3_000;
const LIMIT: &str = "800m";
/// Most relative error of a number without a mark.
const MOST_OFF: f64 = 0.2;

/// Two threads that each work 3 of 10 ms on a CPU of their own, both woken on CPU 0; and a third
/// thread beside them.
fn whole() -> Trace {
    let mut trace = Trace::perf(2);
    for at in 0..LENGTH_MS / 10 {
        let ns = at * 10 * MS;
        trace.burst(ns, 0, "svc/101", 3 * MS);
        trace.wake(ns + 5 * MS, 0, IDLE, "svc/102");
        trace.stay(ns + 5 * MS + 2_000, 1, "svc/102", 3 * MS);
        trace.burst(ns + 4 * MS, 0, "other/50", MS / 2);
    }
    trace
}

/// The whole trace, but half of each run time is charged.
fn half_stolen() -> Trace {
    let half = |line: &str| vec![line.replace("runtime=3000000", "runtime=1500000")];
    whole().map(half)
}

/// The whole trace, but of every second run time half is charged.
fn charged_unevenly() -> Trace {
    let mut is_less = false;
    whole().map(|line| {
        is_less ^= line.contains("runtime=3000000");
        let charge = if is_less { "runtime=1500000" } else { "runtime=3000000" };
        vec![line.replace("runtime=3000000", charge)]
    })
}

/// The threads of the whole trace, and another one that runs on CPU 0 whenever it can.
fn busy() -> Trace {
    let mut trace = Trace::perf(2);
    for at in 0..LENGTH_MS / 10 {
        let ns = at * 10 * MS;
        let before = if at == 0 { IDLE } else { "other/50" };
        trace.wake(ns, 0, before, "svc/101");
        trace.switch(ns + 2_000, 0, before, "R", "svc/101");
        trace.charge(ns + 3 * MS, 0, "svc/101", 3 * MS - 2_000);
        trace.switch(ns + 3 * MS, 0, "svc/101", "S", "other/50");
        trace.charge(ns + 10 * MS, 0, "other/50", 7 * MS);
        trace.burst(ns + 5 * MS, 1, "svc/102", 3 * MS);
    }
    trace
}

/// The whole trace by a clock that counts in steps of 4 ms.
fn by_jiffies() -> Trace {
    whole().at(|ns| ns / (4 * MS) * (4 * MS))
}

/// Whether a time is in every second interval of 50 ms.
fn is_second(ns: u64) -> bool {
    (ns / (50 * MS)) % 2 == 1
}

/// Two threads that each work 3 of 10 ms, each woken on its own CPU.
fn apart() -> Trace {
    let mut trace = Trace::perf(2);
    for at in 0..LENGTH_MS / 10 {
        trace.burst(at * 10 * MS, 0, "svc/101", 3 * MS);
        trace.burst((at * 10 + 5) * MS, 1, "svc/102", 3 * MS);
    }
    trace
}

/// Two threads that each work 3 of 10 ms, each time on the CPU of the other before.
fn to_and_fro() -> Trace {
    let mut trace = Trace::perf(2);
    for at in 0..LENGTH_MS / 10 {
        trace.burst(at * 10 * MS, at as u32 % 2, "svc/101", 3 * MS);
        trace.burst((at * 10 + 5) * MS, (at as u32 + 1) % 2, "svc/102", 3 * MS);
    }
    trace
}

/// The whole trace, and four stops of the machine for 0.4 s within a burst.
fn stops() -> Trace {
    let mut trace = Trace::perf(2);
    for part in 0..5 {
        let within = |ns: u64| (part * 601 * MS..(part + 1) * 601 * MS).contains(&ns);
        trace.append(whole().without(|ns, _| !within(ns)), part * 400 * MS);
    }
    trace
}

/// Selects times between two limits, ns.
fn between(from_ms: u64, until_ms: u64) -> impl Fn(u64) -> bool {
    move |ns| (from_ms * MS..until_ms * MS).contains(&ns)
}

/// Whether the burst that begins at this time is one of every `many`.
fn one_in(many: u64, ns: u64) -> bool {
    (ns / (10 * MS)).is_multiple_of(many)
}

struct Lacking {
    name: &'static str,
    trace: Trace,
    kind: GapKind,
    /// CPUs that the two threads really used.
    cpus: f64,
}

fn lacking() -> Vec<Lacking> {
    let perf = "perf sched record";
    let on = |cpu: u32| format!(" [{cpu:03}] ");
    let on_1 = |line: &str| line.contains(" [001] ");
    let unnamed = |line: &str| vec![line.replace("_cpu=001", "_cpu=000")];
    let is_own = |line: &str| line.contains("svc/") || line.contains("svc ");
    let mut suspended = whole();
    suspended.append(whole(), 3_600_000 * MS);
    let mut lost = whole().without(|ns, _| ns % (100 * MS) > 60 * MS);
    lost.line(1_000 * MS, "   svc   101 [000] 1.0: PERF_RECORD_LOST lost 1500");
    let mut lost_on_one =
        whole().without(|ns, line| line.contains(&on(1)) && between(500, 1_500)(ns));
    lost_on_one.line(500 * MS, "CPU:1 [LOST 300 EVENTS]");
    let garbled = |line: &str| {
        let is_garbled = line.contains("svc") && line.contains("1 [000] 1.0");
        vec![if is_garbled { line.replace(" [000] ", " (000) ") } else { line.to_owned() }]
    };
    let twice = |line: &str| vec![line.to_owned(); if line.contains("sched_stat") { 2 } else { 1 }];
    let less = |line: &str| vec![line.replace("runtime=3000000", "runtime=2600000")];
    let double = |line: &str| vec![line.replace("runtime=3000000", "runtime=6000000")];
    let real_time = |line: &str| vec![line.replace("prio=120", "prio=49")];
    let no = |what: &'static str| move |_: u64, line: &str| line.contains(what);
    let case = |name, trace, kind| Lacking { name, trace, kind, cpus: 0.6 };
    vec![
        case(
            "one CPU, chosen",
            whole().only_cpus(&[0]).command(&format!("{perf} -C 0")),
            GapKind::Cpus,
        ),
        case("one CPU, by a mask", whole().only_cpus(&[0]), GapKind::Cpus),
        case(
            "one CPU, without a head",
            whole().only_cpus(&[0]).headless().map(unnamed),
            GapKind::Runs,
        ),
        case("one CPU, named", whole().only_cpus(&[0]).headless(), GapKind::Cpus),
        case("begins late", apart().without(|ns, line| ns < MS * 800 && on_1(line)), GapKind::Cpus),
        case("ends early", apart().without(|ns, line| ns > MS * 1800 && on_1(line)), GapKind::Cpus),
        case("stops", stops(), GapKind::Silence),
        case(
            "one thread",
            whole()
                .without(|_, line| !line.contains("101"))
                .command("perf record -a -e sched:sched_switch --filter next_pid==101"),
            GapKind::Threads,
        ),
        case("suspended", suspended, GapKind::Silence),
        case("most lost", lost, GapKind::Lost),
        case("a third of a CPU lost", lost_on_one, GapKind::Lost),
        case("lines that cannot be read", whole().map(garbled), GapKind::Lost),
        case(
            "lost without a word",
            whole().without(|ns, line| one_in(4, ns) && line.contains(&on(1))),
            GapKind::Runs,
        ),
        case(
            "switches",
            whole().without(|ns, line| one_in(5, ns) && line.contains("prev_state=S")),
            GapKind::Switches,
        ),
        case("no wakeups", whole().without(no("sched_waking")), GapKind::Waits),
        case(
            "only the end",
            whole()
                .without(|ns, line| ns < 700 * MS && line.contains(&on(0)))
                .command(&format!("{perf} --overwrite")),
            GapKind::Overwritten,
        ),
        case("cut", whole().without(|ns, _| ns > 2_500 * MS), GapKind::Cut),
        case("every second 50 ms", whole().without(|ns, _| is_second(ns)), GapKind::Skipped),
        case(
            "every second 50 ms of a CPU",
            whole().without(|ns, line| is_second(ns) && line.contains(&on(1))),
            GapKind::Runs,
        ),
        case(
            "every second 57 ms, switches that do not chain",
            busy().without(|ns, _| (ns / (57 * MS)) % 2 == 1),
            GapKind::Switches,
        ),
        case(
            "every second burst of a CPU, and its wakeups",
            to_and_fro().without(|ns, line| (ns / (20 * MS)) % 2 == 1 && on_1(line)),
            GapKind::Runs,
        ),
        case("jiffies", by_jiffies(), GapKind::Clock),
        case("charged half", half_stolen(), GapKind::ImpossibleCharges),
        case("charged less", whole().map(less), GapKind::ImpossibleCharges),
        case("charged unevenly", charged_unevenly(), GapKind::Stolen),
        case("charged twice", whole().map(double), GapKind::ImpossibleCharges),
        case("recorded twice", whole().map(twice), GapKind::Context),
        case("no context", whole(), GapKind::Context),
        case("real-time", whole().map(real_time), GapKind::RealTime),
        Lacking { cpus: 0.3, ..case("stolen", half_stolen(), GapKind::Stolen) },
        Lacking {
            cpus: 0.3,
            ..case("stolen, not charged", half_stolen().uncharged(), GapKind::Charges)
        },
    ]
    .into_iter()
    .inspect(|lacking| assert!(is_own(&lacking.trace.text()), "{}", lacking.name))
    .collect()
}

fn read(lacking: &Lacking) -> Recording {
    let mut text = lacking.trace.text();
    if lacking.kind == GapKind::Cut {
        text.truncate(text.len() - 20);
    }
    Recording::read_bytes("made up", text.as_bytes(), Options::default()).unwrap()
}

fn request() -> Request {
    Request {
        group: vec!["comm:svc".parse().unwrap()],
        limits: vec![Try::parse(LIMIT).unwrap()],
        periods_ns: vec![100 * MS],
        ..Request::default()
    }
}

/// A question for kernel 6.18.
fn question(goal: Goal) -> Question {
    Question {
        goals: vec![goal],
        kernels: kernel::parse_kernels("6.18").ok(),
        periods_ns: vec![100 * MS],
        bursts_percent: vec![0.0],
        load: 1.0,
        current: None,
        others: false,
        seed: 1,
    }
}

/// CPUs of the smallest limit that meets the goal, if there is one.
fn smallest(recording: &Recording, request: &Request, goal: Goal) -> Option<f64> {
    let cases = [Case::new("made up".to_owned(), recording, request).unwrap()];
    let advice = advise(&cases, &question(goal), &Running::default(), &()).unwrap();
    let named = advice.recommended()?.smallest.clone()?;
    Some(named.limit.limit.millicpus()? as f64 / 1e3)
}

/// Whether a number without a mark is far off, and the truth outside of its range.
fn is_off(number: Ranged<f64>, truth: f64) -> bool {
    let near = (number.value - truth).abs() <= truth * MOST_OFF + 0.02;
    !near && !(number.low * 0.98..=number.high * 1.02).contains(&truth)
}

fn check(name: &str, what: &str, told: &Prediction, truth: &Prediction, cpus: f64) {
    if !told.predictable {
        return;
    }
    let used = told.cpus.unwrap();
    assert!(!is_off(used, cpus), "{name}: {what}: {used:?} CPUs, in truth {cpus}");
    let (Some(told), Some(truth)) = (told.request_latency_ns, truth.request_latency_ns) else {
        return;
    };
    let p50 = told.p50;
    let ms = |ns: u64| ns as f64 / 1e6;
    let p50 = Ranged { value: ms(p50.value), low: ms(p50.low), high: ms(p50.high) };
    assert!(!is_off(p50, ms(truth.p50.value)), "{name}: {what}: p50 {p50:?}, in truth {truth:?}");
}

/// Output of each command.
struct Answers {
    texts: Vec<(&'static str, String)>,
    recorded: Prediction,
    none: Prediction,
    limited: Prediction,
    names_a_limit: bool,
}

fn answers(name: &str, recording: &Recording) -> Answers {
    let page = Page::of(Some(10_000));
    let running = Running::default();
    let kernels = kernel::parse_kernels("6.18").unwrap();
    let replay = Replay::new(name, recording, &request()).unwrap();
    let runs = replay.runs(&kernels, 1, &running, &()).unwrap();
    let recorded = replay.document(&kernels, &runs);
    let documents: Vec<_> = cpumax_forecast::replay::documents(&recorded, &runs).collect();
    let json = serde_json::to_string(&documents).unwrap();
    let saved = Saved::parse(name, &json).unwrap();
    let cases = [Case::new(name.to_owned(), recording, &request()).unwrap()];
    let advice = advise(&cases, &question(Goal::Throttled(5.0)), &running, &()).unwrap();
    let verified = verify(&saved, &observed(), None, 1).unwrap();
    let text = |lines: &[String]| lines.join("\n");
    let texts = vec![
        ("inspect", recording_text(name, recording, 20, page)),
        ("inspect --json", serde_json::to_string(&Inspected::new(name, recording)).unwrap()),
        ("replay", replay_text(name, &replay, &kernels, &runs, false, page)),
        ("advise", advice_text(&advice, &cases, page)),
        ("advise --json", serde_json::to_string(&advice.document(&cases)).unwrap()),
        ("verify", text(&verified.notes)),
        ("report", html(&[Named { name: name.to_owned(), study: saved }], "0")),
        ("replay --json", json),
    ];
    let of = |at: usize| runs[at].prediction.clone();
    let names_a_limit = advice.recommended().is_some_and(|found| found.smallest.is_some());
    Answers { texts, recorded: replay.recorded(), none: of(0), limited: of(1), names_a_limit }
}

/// Counters of a group under the limit.
fn observed() -> Observed {
    let moment = |second: u32| Moment {
        at_ns: u64::from(second) * 1_000_000_000,
        usage_ns: Some(u64::from(second) * 500_000_000),
        stat: Some(CpuStat { nr_periods: second * 10, nr_throttled: second, ..CpuStat::default() }),
        throttled_ns: Some(0),
        waited_ns: None,
        is_anew: false,
    };
    Observed {
        name: "/svc".to_owned(),
        limit: Limit::new(Some(80_000_000), 100_000_000, 0).ok(),
        above: None,
        kernel: None,
        cpus: None,
        moments: (0..10).map(moment).collect(),
    }
}

/// Text as it stands in plain text, JSON or HTML.
fn plain(text: &str) -> String {
    let text = anstream::adapter::strip_str(text).to_string();
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    text.replace("&#39;", "'").replace("&quot;", "\"").replace("\\\"", "\"")
}

#[test]
fn what_is_missing_is_named_by_each_command_and_numbers_far_off_are_marked() {
    let truth = answers("whole", &whole().read());
    assert!(truth.names_a_limit && truth.recorded.predictable && truth.limited.predictable);
    let all = lacking();
    assert!(all.len() >= 15);
    for lacking in all {
        let (name, recording) = (lacking.name, read(&lacking));
        let gaps = recording.gaps();
        let gap = gaps.iter().find(|gap| gap.kind == lacking.kind);
        let gap = gap.unwrap_or_else(|| panic!("{name}: {gaps:?}"));
        let told = answers(name, &recording);
        for (command, text) in &told.texts {
            let text = plain(text);
            // Numbers and names differ between all threads and the chosen ones.
            let is_of_some = |c: char| c.is_ascii_digit() || "()".contains(c);
            let parts = gap.told.split(is_of_some);
            let says = parts.max_by_key(|part| part.len()).unwrap_or_default();
            assert!(text.contains(says), "{name}: {command} does not tell `{says}`:\n{text}");
        }
        let doubtful = gaps.iter().any(|gap| gap.doubtful);
        assert!(!(doubtful && told.names_a_limit), "{name}: a limit is named");
        if !doubtful {
            let used_ns: u64 =
                [101, 102].map(|tid| traces::runtime_ns(&recording, tid)).iter().sum();
            let cpus = used_ns as f64 / recording.span_ns() as f64;
            let used = Ranged { value: cpus, low: cpus / 2.0, high: cpus };
            assert!(!is_off(used, lacking.cpus), "{name}: inspect tells {cpus} CPUs");
        }
        check(name, "recorded", &told.recorded, &truth.recorded, lacking.cpus);
        check(name, "none", &told.none, &truth.none, lacking.cpus);
        let under = lacking.cpus.min(0.8);
        check(name, LIMIT, &told.limited, &truth.limited, under);
    }
}
