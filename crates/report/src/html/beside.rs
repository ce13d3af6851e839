//! Two studies number by number: what changed under each limit, and whether that is more than how
//! far numbers may be off.

use super::{Named, words};
use crate::escape::xml;
use crate::predicted::{Ranged, Ranges, ranged};
use crate::replay::row;
use cpumax_engine::predict::Ranged as Predicted;
use cpumax_engine::saved::{Run, Saved};
use std::fmt::Write;

/// A number of both studies.
#[derive(Debug, Clone, PartialEq)]
struct Pair {
    limit: String,
    kernel: String,
    what: &'static str,
    /// It is a share of a hundred, whose change is told in points.
    is_share: bool,
    before: Ranged,
    after: Ranged,
}

impl Pair {
    /// What is in the range of one is in that of the other, too, in part.
    fn overlaps(&self) -> bool {
        self.before.low <= self.after.high && self.after.low <= self.before.high
    }

    /// How much it changed: per cent of what it was, or points.
    fn change(&self) -> Option<f64> {
        let change = self.after.value - self.before.value;
        if self.is_share {
            return Some(change);
        }
        (self.before.value > 0.0).then(|| change * 100.0 / self.before.value)
    }

    fn changed(&self) -> String {
        let unit = if self.is_share { "points" } else { "%" };
        self.change().map_or("-".to_owned(), |change| format!("{change:+.1} {unit}"))
    }
}

/// Which of two studies a limit is compared by: the same one, or what it is in both.
fn same_limit(one: &Run, other: &Run) -> bool {
    one.limit == other.limit && one.role == other.role
}

/// Those that are in both studies; where there are none, each with that in its place of the list.
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

/// Runs that stand beside each other, with what both are called.
fn runs<'a>(before: &'a Saved, after: &'a Saved) -> Vec<(String, String, &'a Run, &'a Run)> {
    let mut beside = Vec::new();
    let kernels = kernels(before, after);
    for one in &before.runs {
        let Some((_, kernel)) = kernels.iter().find(|(kernel, _)| *kernel == one.kernel) else {
            continue;
        };
        let on = || after.runs.iter().filter(|other| other.kernel == *kernel);
        let by_role = |other: &&Run| one.role.is_some() && other.role == one.role;
        let same = on()
            .find(|other| same_limit(one, other))
            .or_else(|| on().find(by_role))
            .or_else(|| on().find(|other| other.limit == one.limit));
        let Some(other) = same else { continue };
        let both = |before: String, after: String| {
            if before == after { before } else { format!("{before} → {after}") }
        };
        let role = words::role(one.role.as_deref());
        let limit = both(words::label(one), words::label(other)) + role;
        beside.push((limit, both(one.kernel.clone(), kernel.clone()), one, other));
    }
    beside
}

fn pairs(before: &Saved, after: &Saved) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (limit, kernel, one, other) in runs(before, after) {
        let numbers = |run: &Run| {
            let row = row("", "", &run.prediction);
            let p90 = run.prediction.request_latency_ns.map(|latency| in_ms(latency.p90));
            [
                ("CPUs", false, row.cpus),
                ("throttled periods, %", true, row.throttled_percent),
                ("p50, ms", false, row.latency_ms[0]),
                ("p90, ms", false, p90),
                ("p99, ms", false, row.latency_ms[1]),
                ("answered a second", false, row.requests_per_second),
                ("work takes, s", false, row.takes_s),
            ]
        };
        for ((what, is_share, before), (.., after)) in numbers(one).into_iter().zip(numbers(other))
        {
            if let (Some(before), Some(after)) = (before, after) {
                let (limit, kernel) = (limit.clone(), kernel.clone());
                pairs.push(Pair { limit, kernel, what, is_share, before, after });
            }
        }
    }
    pairs
}

fn in_ms(number: Predicted<u64>) -> Ranged {
    let ms = |ns: u64| ns as f64 / 1e6;
    Ranged { value: ms(number.value), low: ms(number.low), high: ms(number.high) }
}

/// What changed, in a sentence or two.
fn sentence(pairs: &[Pair]) -> String {
    if pairs.is_empty() {
        return "The two have no limit in common: there is nothing to hold beside each other."
            .to_owned();
    }
    let beyond: Vec<&Pair> = pairs.iter().filter(|pair| !pair.overlaps()).collect();
    let all = pairs.len();
    let size = |pair: &&&Pair| {
        let change = pair.change().map_or(0.0, f64::abs);
        // What is told in points is not measured by what it was.
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
    let Some(most) = beyond.iter().max_by_key(size) else {
        return format!("None of {all} numbers changed beyond how far it may be off.");
    };
    let p99 = beyond.iter().filter(|pair| pair.what == "p99, ms").max_by_key(size);
    let changed = match beyond.len() {
        1 => format!("One of {all} numbers changed beyond how far it may be off"),
        some => format!("{some} of {all} numbers changed beyond how far they may be off, most"),
    };
    let colon = if beyond.len() == 1 { ":" } else { "" };
    format!("{changed}{colon} {}.", told(p99.unwrap_or(most)))
}

/// The sentence alone, where there are two studies.
pub(super) fn answer(studies: &[Named]) -> Option<String> {
    let [before, after] = studies else { return None };
    Some(sentence(&pairs(&before.study, &after.study)))
}

/// Two studies beside each other; nothing where there are not two.
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
             beyond how far both may be off is bold.</caption>\n<thead><tr>",
        );
        for head in ["limit", "kernel", "number", "before", "after", "change", "ranges overlap"] {
            let _ = write!(out, "<th scope=\"col\">{head}</th>");
        }
        out.push_str("</tr></thead>\n<tbody>\n");
    }
    for pair in &pairs {
        let (class, overlap) =
            if pair.overlaps() { ("", "yes") } else { (" class=\"advised\"", "no") };
        let number = |number: Ranged| match ranged(number, Ranges::Below).split_once('\n') {
            Some((value, range)) => format!("{value}<small>{range}</small>"),
            None => ranged(number, Ranges::Below),
        };
        let _ = writeln!(
            out,
            "<tr{class}><th scope=\"row\">{}</th><td class=\"text\">{}</td>\
             <td class=\"text\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{overlap}</td></tr>",
            xml(&pair.limit),
            xml(&pair.kernel),
            pair.what,
            number(pair.before),
            number(pair.after),
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

    fn study(kernel: &str, p99_ms: u64) -> Saved {
        let latency = |ms: u64| {
            let ns = ms * 1_000_000;
            let (low, high) = (ns * 9 / 10, ns * 11 / 10);
            format!(r#"{{"value":{ns},"low":{low},"high":{high}}}"#)
        };
        let (p50, p99) = (latency(3), latency(p99_ms));
        let text = format!(
            r#"[{{"group":"/web","cpu_max":"50000 100000","burst_usec":0,"scenario":"web.data",
            "kernel":"{kernel}","prediction":{{"cpus":{{"value":0.5,"low":0.5,"high":0.5}},
            "throttled_percent":{{"value":40.0,"low":30.0,"high":50.0}},
            "requests_per_second":null,"request_latency_ns":{{"p50":{p50},"p90":{p50},"p99":{p99}}},
            "latency_of":"requests","work_takes_ns":null,"predictable":true,"why_not":null}}}}]"#
        );
        Saved::parse("x.json", &text).unwrap()
    }

    fn named(name: &str, study: Saved) -> Named {
        Named { name: name.to_owned(), study }
    }

    #[test]
    fn what_changed_beyond_its_range_is_told() {
        let studies = [named("a", study("5.4", 80)), named("b", study("6.18", 40))];
        let told = answer(&studies).unwrap();
        assert_eq!(
            told,
            "One of 5 numbers changed beyond how far it may be off: p99, ms under 50/100 on \
             5.4 → 6.18 from 80.0 (72..88) to 40.0 (36..44) (-50.0 %)."
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
        assert_eq!(told, "None of 5 numbers changed beyond how far it may be off.");
        assert_eq!(answer(&studies[..1]), None);
        let mut page = String::new();
        write(&mut page, &studies[..1]);
        assert!(page.is_empty());
    }
}
