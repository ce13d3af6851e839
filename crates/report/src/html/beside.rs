//! Comparison of two studies: changes of each number under each limit. Runs of one recording are
//! compared run by run where seed, phase and costs agree; others by values and ranges.

use super::{Named, in_ms, number_html, words};
use crate::escape::xml;
use crate::predicted::{Ranged, Ranges, ranged};
use crate::replay::row;
use cpumax_forecast::{
    predict::{Sample, change},
    saved::{Predicted, Saved},
};
use std::fmt::Write;

/// Smallest change that counts, per cent or points.
const CHANGE_LEAST: f64 = 1.0;

#[derive(Debug, Clone, PartialEq)]
struct Pair {
    limit: String,
    kernel: String,
    what: &'static str,
    /// Whether the number is a percentage, whose change is given in points.
    is_share: bool,
    before: Ranged,
    after: Ranged,
    /// Change in runs with equal draws, per cent or points.
    by_run: Option<Ranged>,
}

impl Pair {
    /// Whether the number changed in all runs with equal draws; without such runs, whether neither
    /// value lies in the other's range.
    fn has_changed(&self) -> bool {
        let is_in = |value: f64, range: Ranged| (range.low..=range.high).contains(&value);
        match self.by_run {
            Some(change) => change.value.abs() >= CHANGE_LEAST && !is_in(0.0, change),
            None => !is_in(self.after.value, self.before) && !is_in(self.before.value, self.after),
        }
    }

    /// The change, per cent or points.
    fn change(&self) -> Option<Ranged> {
        let of_values = || between(self.is_share, self.before.value, self.after.value);
        self.by_run.or_else(|| of_values().map(Ranged::known))
    }

    fn changed(&self) -> String {
        let unit = if self.is_share { "points" } else { "%" };
        self.change().map_or("-".to_owned(), |change| {
            let range = format!(" ({:+.1}..{:+.1})", change.low, change.high);
            let range = if change.low < change.high { range } else { String::new() };
            format!("{:+.1} {unit}{range}", change.value)
        })
    }
}

/// The change from `before` to `after`, per cent of `before`, or points.
fn between(is_share: bool, before: f64, after: f64) -> Option<f64> {
    let change = after - before;
    if is_share { Some(change) } else { (before > 0.0).then(|| change * 100.0 / before) }
}

type Number = fn(&Sample) -> Option<f64>;
const NUMBERS: [(&str, bool, Number); 7] = [
    ("CPUs", false, |run| Some(run.cpus)),
    ("throttled periods, %", true, |run| run.throttled_percent),
    ("p50, ms", false, |run| run.latency_ns.map(|ns| ns[0] as f64)),
    ("p90, ms", false, |run| run.latency_ns.map(|ns| ns[1] as f64)),
    ("p99, ms", false, |run| run.latency_ns.map(|ns| ns[3] as f64)),
    ("answered a second", false, |run| run.requests_per_second),
    ("work takes, s", false, |run| run.takes_ns.map(|ns| ns as f64)),
];

/// Whether both runs replay one recording, so that equal seeds draw equal numbers.
fn same_recording(
    (before, one): (&Saved, &Predicted),
    (after, other): (&Saved, &Predicted),
) -> bool {
    let both = [(before, one), (after, other)].map(|(study, run)| {
        study.recordings.iter().find(|recorded| recorded.name == run.recording)
    });
    let [Some(before), Some(after)] = both else { return false };
    before.group == after.group
        && before.simulated_ns == after.simulated_ns
        && before.window == after.window
        && before.prediction == after.prediction
}

fn same_limit(one: &Predicted, other: &Predicted) -> bool {
    one.limit == other.limit && one.role == other.role
}

/// Kernels of both studies, paired with themselves; if they have none in common, paired by
/// position.
fn kernels(before: &Saved, after: &Saved) -> Vec<(String, String)> {
    let of = |study: &Saved| {
        let mut all: Vec<String> = Vec::new();
        for run in &study.runs {
            if !all.contains(&run.kernel) {
                all.push(run.kernel.clone());
            }
        }
        all
    };
    let (before, after) = (of(before), of(after));
    let common: Vec<(String, String)> = before
        .iter()
        .filter(|kernel| after.contains(kernel))
        .map(|kernel| (kernel.clone(), kernel.clone()))
        .collect();
    if common.is_empty() { before.into_iter().zip(after).collect() } else { common }
}

/// Runs that are compared, with labels for limit and kernel.
fn runs<'a>(
    before: &'a Saved,
    after: &'a Saved,
) -> Vec<(String, String, &'a Predicted, &'a Predicted)> {
    let mut beside = Vec::new();
    let kernels = kernels(before, after);
    for one in &before.runs {
        let Some((_, kernel)) = kernels.iter().find(|(kernel, _)| *kernel == one.kernel) else {
            continue;
        };
        let on = || after.runs.iter().filter(|other| other.kernel == *kernel);
        let by_role = |other: &&Predicted| one.role.is_some() && other.role == one.role;
        let same = on()
            .find(|other| same_limit(one, other))
            .or_else(|| on().find(by_role))
            .or_else(|| on().find(|other| other.limit == one.limit));
        let Some(other) = same else { continue };
        let both = |before: String, after: String| {
            if before == after { before } else { format!("{before} → {after}") }
        };
        let role = words::role(one.role);
        let limit = both(words::label(one), words::label(other)) + role;
        beside.push((limit, both(one.kernel.clone(), kernel.clone()), one, other));
    }
    beside
}

fn pairs(before: &Saved, after: &Saved) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (limit, kernel, one, other) in runs(before, after) {
        let numbers = |run: &Predicted| {
            let row = row("", "", &run.prediction);
            let p90 = run.prediction.request_latency_ns.map(|latency| in_ms(latency.p90));
            let [p50, p99] = row.latency_ms;
            let rate = row.requests_per_second;
            [row.cpus, row.throttled_percent, p50, p90, p99, rate, row.takes_s]
        };
        let is_one = same_recording((before, one), (after, other));
        let both = numbers(one).into_iter().zip(numbers(other));
        for ((what, is_share, number), (before, after)) in NUMBERS.into_iter().zip(both) {
            let (Some(before), Some(after)) = (before, after) else { continue };
            let of_runs =
                |one: &Sample, other: &Sample| between(is_share, number(one)?, number(other)?);
            let by_run =
                is_one.then(|| change(&one.prediction, &other.prediction, of_runs)).flatten();
            let (limit, kernel) = (limit.clone(), kernel.clone());
            pairs.push(Pair { limit, kernel, what, is_share, before, after, by_run });
        }
    }
    pairs
}

fn sentence(pairs: &[Pair]) -> String {
    if pairs.is_empty() {
        return "The two have no limit in common: there is nothing to hold beside each other."
            .to_owned();
    }
    let changed: Vec<&Pair> = pairs.iter().filter(|pair| pair.has_changed()).collect();
    let all = pairs.len();
    let by_range = match pairs.iter().filter(|pair| pair.by_run.is_none()).count() {
        0 => "",
        some if some == all => BY_RANGE,
        _ => PARTLY_BY_RANGE,
    };
    let size = |pair: &&&Pair| {
        let change = pair.change().map_or(0.0, |change| change.value.abs());
        // The largest absolute change counts, in points or per cent.
        (change * 1e3) as u64
    };
    let told = |pair: &Pair| {
        format!(
            "{} under {} on {} from {} to {} ({})",
            pair.what,
            pair.limit,
            pair.kernel,
            ranged(pair.before, Ranges::Beside),
            ranged(pair.after, Ranges::Beside),
            pair.changed()
        )
    };
    let Some(most) = changed.iter().max_by_key(size) else {
        return format!("None of {all} numbers changed by more than may be chance.{by_range}");
    };
    let p99 = changed.iter().filter(|pair| pair.what == "p99, ms").max_by_key(size);
    let how_many = match changed.len() {
        1 => format!("One of {all} numbers changed by more than may be chance:"),
        some => format!("{some} of {all} numbers changed by more than may be chance, most"),
    };
    format!("{how_many} {}.{by_range}", told(p99.unwrap_or(most)))
}

/// How numbers are compared where no runs, or not all, have equal draws.
const BY_RANGE: &str = " \
They are not of the same recording, or their runs drew other seeds, phases or costs of work, so \
ranges are compared: a number changed if neither value is in the other's range.";
const PARTLY_BY_RANGE: &str = " \
Where runs drew other seeds, phases or costs of work, ranges are compared: a number changed if \
neither value is in the other's range.";

/// Only the sentence, for two studies.
pub(super) fn answer(studies: &[Named]) -> Option<String> {
    let [before, after] = studies else { return None };
    Some(sentence(&pairs(&before.study, &after.study)))
}

/// Writes the comparison of two studies; nothing for another number of studies.
pub(super) fn write(out: &mut String, studies: &[Named]) {
    let [before, after] = studies else { return };
    let pairs = pairs(&before.study, &after.study);
    let _ = write!(
        out,
        "<section aria-labelledby=\"beside-h\">\n<h2 id=\"beside-h\">Before and after: {} and \
         {}</h2>\n<p class=\"answer\">{}</p>\n",
        xml(&before.name),
        xml(&after.name),
        xml(&sentence(&pairs))
    );
    if !pairs.is_empty() {
        out.push_str(
            "<div class=\"scroll\" role=\"region\" aria-labelledby=\"beside-t\" tabindex=\"0\">\
             <table class=\"beside\">\n<caption id=\"beside-t\">Number by number; one that changed \
             by more than may be chance is bold.</caption>\n<thead><tr>",
        );
        for head in ["limit", "kernel", "number", "before", "after", "change", "changed"] {
            let _ = write!(out, "<th scope=\"col\">{head}</th>");
        }
        out.push_str("</tr></thead>\n<tbody>\n");
    }
    for pair in &pairs {
        let (class, has_changed) =
            if pair.has_changed() { (" class=\"advised\"", "yes") } else { ("", "no") };
        let _ = writeln!(
            out,
            "<tr{class}><th scope=\"row\">{}</th><td class=\"text\">{}</td>\
             <td class=\"text\">{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{has_changed}</td></tr>",
            xml(&pair.limit),
            xml(&pair.kernel),
            pair.what,
            number_html(pair.before),
            number_html(pair.after),
            pair.changed()
        );
    }
    if !pairs.is_empty() {
        out.push_str("</tbody></table></div>\n");
    }
    out.push_str("</section>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpumax_forecast::predict::{Drawn, Latency, Prediction, Unit};
    use cpumax_outcome::Histogram;
    use cpumax_recording::{Defects, Waits};
    use cpumax_study::{Ranged, Try};

    fn study(kernel: &str, p99_ms: u64) -> Saved {
        let latency = |ms: u64| {
            let value = ms * 1_000_000;
            Ranged { value, low: value * 9 / 10, high: value * 11 / 10 }
        };
        let (p50, p99) = (latency(3), latency(p99_ms));
        let prediction = Prediction {
            cpus: Some(Ranged::known(0.5)),
            throttled_percent: Some(Ranged { value: 40.0, low: 30.0, high: 50.0 }),
            request_latency_ns: Some(Latency { p50, p90: p50, p95: p50, p99, p999: p99 }),
            latency_of: Unit::Requests,
            predictable: true,
            ..Prediction::default()
        };
        let run = Predicted {
            recording: "web.data".to_owned(),
            limit: Try::parse("500m").unwrap(),
            role: None,
            kernel: kernel.to_owned(),
            prediction,
            latencies: Histogram::default(),
            held: Vec::new(),
            trace: None,
        };
        Saved { recordings: Vec::new(), runs: vec![run], advice: None }
    }

    fn named(name: &str, study: Saved) -> Named {
        Named { name: name.to_owned(), study }
    }

    /// A recording's study whose runs have these multiples of the latencies.
    fn with_runs(p99_ms: u64, times: [f64; 3]) -> Named {
        let mut study = study("6.18", p99_ms);
        let prediction = &mut study.runs[0].prediction;
        let run = |seed: u64| {
            let ns = (times[seed as usize] * p99_ms as f64 * 1e6) as u64;
            let sample = Sample { cpus: 0.5, latency_ns: Some([ns; 5]), ..Sample::default() };
            Drawn { reading: 0, seed, phase_ns: 7, work_ppm: 1_000_000, likely: true, sample }
        };
        prediction.runs = (0..3).map(run).collect();
        let recorded = serde_json::json!({
            "scenario": "web.data", "world": "recording", "group": "/web",
            "cpu_max": "max 100000", "burst_usec": 0,
            "taken_for": { "kernel": "6.18" }, "simulated_ns": 9,
            "window": { "from_ns": 0, "until_ns": 9 },
            "prediction": Prediction::default(), "repairs": Defects::default(), "in_force": [],
            "event_cost": { "syscall_ns": 0, "other_ns": 0 }, "waits": Waits::default(),
            "gaps": [], "is_unheard": false, "disagreements": [], "not_tried": [], "made_by": [],
        });
        study.recordings.push(serde_json::from_value(recorded).unwrap());
        named("x", study)
    }

    #[test]
    fn what_changed_in_all_runs_that_drew_the_same_is_told() {
        let before = || with_runs(80, [0.9, 1.0, 1.1]);
        let told = answer(&[before(), with_runs(84, [0.9, 1.0, 1.1])]).unwrap();
        assert_eq!(
            told,
            "3 of 5 numbers changed by more than may be chance, most p99, ms under 50/100 on 6.18 \
             from 80.0 (72..88) to 84.0 (76..92) (+5.0 %). Where runs drew other seeds, phases or \
             costs of work, ranges are compared: a number changed if neither value is in the \
             other's range."
        );
        // Higher in one run, lower in another.
        let told = answer(&[before(), with_runs(80, [1.0, 1.0, 1.0])]).unwrap();
        assert!(told.starts_with("None of 5 numbers changed"), "{told}");
        // Another recording has no runs with equal draws.
        let mut other = with_runs(84, [0.9, 1.0, 1.1]);
        other.study.recordings[0].simulated_ns += 1;
        let told = answer(&[before(), other]).unwrap();
        assert_eq!(
            told,
            format!("None of 5 numbers changed by more than may be chance.{BY_RANGE}")
        );
    }

    #[test]
    fn what_changed_beyond_its_range_is_told() {
        let studies = [named("a", study("5.4", 80)), named("b", study("6.18", 40))];
        let told = answer(&studies).unwrap();
        assert_eq!(
            told,
            format!(
                "One of 5 numbers changed by more than may be chance: p99, ms under 50/100 on \
                 5.4 → 6.18 from 80.0 (72..88) to 40.0 (36..44) (-50.0 %).{BY_RANGE}"
            )
        );
        let mut page = String::new();
        write(&mut page, &studies);
        assert_eq!(page.matches("<tr").count(), 1 + 5);
        assert_eq!(page.matches("<tr class=\"advised\">").count(), 1, "{page}");
        assert!(page.contains("5.4 → 6.18") && page.contains("-50.0 %"), "{page}");
    }

    #[test]
    fn what_may_be_chance_is_said_to_be() {
        let studies = [named("a", study("6.18", 80)), named("b", study("6.18", 85))];
        let told = answer(&studies).unwrap();
        assert!(
            told.starts_with("None of 5 numbers changed by more than may be chance."),
            "{told}"
        );
        assert_eq!(answer(&studies[..1]), None);
        let mut page = String::new();
        write(&mut page, &studies[..1]);
        assert!(page.is_empty());
    }
}
