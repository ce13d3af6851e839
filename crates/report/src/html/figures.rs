//! The figures of a study: each number against the limit, with a plot for each kernel, and
//! latencies by percentile. Check boxes hide series and plots by CSS only.

use super::plot::{Axis, Figure, PERCENTILES, Panel, Point, Series, key, percentile};
use super::{in_ms, words};
use crate::escape::xml;
use crate::predicted::{Ranged, Ranges, ranged};
use cpumax_forecast::advise::{Measure, Role};
use cpumax_forecast::predict::Prediction;
use cpumax_forecast::saved::{Predicted, Saved};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Most limits whose latencies are shown by percentile.
const DISTRIBUTIONS: usize = 8;

type Of = fn(&Prediction) -> Option<Ranged>;
/// Numbers against the limit: name, whether there is a figure without a goal, the goals' measure
/// of it, and how many units of that measure are one of the figure.
const NUMBERS: [(&str, bool, Option<Measure>, f64, Of); 9] = [
    ("Throttled periods, %", true, Some(Measure::ThrottledPercent), 1.0, |p| p.throttled_percent),
    ("p99.9", false, Some(Measure::P999Ns), 1e6, |p| Some(in_ms(p.request_latency_ns?.p999))),
    ("p99", true, Some(Measure::P99Ns), 1e6, |p| Some(in_ms(p.request_latency_ns?.p99))),
    ("p95", false, Some(Measure::P95Ns), 1e6, |p| Some(in_ms(p.request_latency_ns?.p95))),
    ("p90", true, None, 1e6, |p| Some(in_ms(p.request_latency_ns?.p90))),
    ("p50", true, Some(Measure::P50Ns), 1e6, |p| Some(in_ms(p.request_latency_ns?.p50))),
    ("All work takes, ms", false, Some(Measure::WorkTakesNs), 1e6, |p| p.work_takes_ns.map(in_ms)),
    ("Answered a second", false, Some(Measure::RequestsPerSecond), 1.0, |p| p.requests_per_second),
    ("CPUs used", true, None, 1.0, |p| p.cpus),
];

/// The runs of one plot: on one kernel, of one recording.
struct Place<'a> {
    name: String,
    runs: Vec<&'a Predicted>,
}

pub(super) struct Figures<'a> {
    prefix: char,
    study: &'a Saved,
    /// Kinds of limit, each a series.
    kinds: Vec<String>,
    places: Vec<Place<'a>>,
    /// Runs whose latencies are shown by percentile, on one kernel.
    distributions: Vec<&'a Predicted>,
}

impl<'a> Figures<'a> {
    pub(super) fn of(prefix: char, study: &'a Saved) -> Figures<'a> {
        let recordings: BTreeSet<&str> = study.runs.iter().map(|run| &*run.recording).collect();
        let (mut kinds, mut places) = (Vec::new(), Vec::<Place<'a>>::new());
        for run in &study.runs {
            kinds.extend(words::kind(run).filter(|kind| !kinds.contains(kind)));
            let name = match recordings.len() {
                1 => run.kernel.clone(),
                _ => format!("{}, {}", run.kernel, run.recording),
            };
            match places.iter_mut().find(|place| place.name == name) {
                Some(place) => place.runs.push(run),
                None => places.push(Place { name, runs: vec![run] }),
            }
        }
        let first = places.first().into_iter().flat_map(|place| &place.runs).copied();
        let shown: Vec<&Predicted> = first.filter(|run| run.latencies.count() > 0).collect();
        let every = shown.len().div_ceil(DISTRIBUTIONS).max(1);
        let distributions = shown.into_iter().step_by(every).collect();
        Figures { prefix, study, kinds, places, distributions }
    }

    /// Writes CSS rules that hide unselected series and plots.
    pub(super) fn write_rules(&self, out: &mut String) {
        let counts = [self.kinds.len(), self.places.len(), self.distributions.len()];
        for (kind, count) in ["s", "k", "l"].into_iter().zip(counts) {
            for at in 0..count {
                let class = format!("{}-{kind}{at}", self.prefix);
                let _ =
                    writeln!(out, "body:has(#{class}:not(:checked)) .{class} {{ display: none; }}");
            }
        }
    }

    pub(super) fn write(&self, out: &mut String) {
        if !self.kinds.is_empty() {
            out.push_str("<h3>Against the limit</h3>\n");
            self.write_choices(out, "Limits", 's', self.kinds.iter());
            if self.places.len() > 1 {
                let names = self.places.iter().map(|place| &place.name);
                self.write_choices(out, "Kernels", 'k', names);
            }
            out.push_str("<div class=\"plots\">\n");
            for number in NUMBERS {
                self.write_number(out, number);
            }
            out.push_str("</div>\n");
        }
        if self.distributions.len() > 1 {
            self.write_distributions(out);
        }
    }

    /// Writes check boxes; those of series are their legend too.
    fn write_choices<'n>(
        &self,
        out: &mut String,
        legend: &str,
        kind: char,
        names: impl Iterator<Item = &'n String>,
    ) {
        let _ = writeln!(out, "<fieldset><legend>{legend}</legend>");
        for (at, name) in names.enumerate() {
            let (id, name) = (format!("{}-{kind}{at}", self.prefix), xml(name));
            let key = if kind == 'k' { String::new() } else { key(at) };
            let _ = writeln!(
                out,
                "<label><input type=\"checkbox\" id=\"{id}\" checked> {key} {name}</label>"
            );
        }
        out.push_str("</fieldset>\n");
    }

    fn write_number(&self, out: &mut String, number: (&str, bool, Option<Measure>, f64, Of)) {
        let (name, is_usual, measure, unit, of) = number;
        let target = |run: &&Predicted| {
            let held = run.held.iter().find(|held| Some(held.measure) == measure)?;
            Some(held.bound / unit)
        };
        let unlimited =
            |place: &Place<'a>| place.runs.iter().find(|run| words::kind(run).is_none()).copied();
        let panel = |(at, place): (usize, &Place<'a>)| Panel {
            class: format!("{}-k{at}", self.prefix),
            name: place.name.clone(),
            series: self.series(place, of),
            limits: self.limits(),
            target: place.runs.iter().find_map(target),
            base: unlimited(place).and_then(|run| of(&run.prediction)),
        };
        let panels: Vec<Panel> = self.places.iter().enumerate().map(panel).collect();
        let has_points = panels.iter().any(|p| p.series.iter().any(|s| !s.points.is_empty()));
        if !has_points || (!is_usual && panels.iter().all(|panel| panel.target.is_none())) {
            return;
        }
        let has_base = panels.iter().any(|panel| panel.base.is_some());
        let is_doubtful = self.study.runs.iter().any(|run| !run.prediction.predictable);
        let grey = if has_base { " Grey: without a limit." } else { "" };
        let hollow = if is_doubtful { " Hollow: not predictable, see below." } else { "" };
        let is_latency = name.starts_with('p');
        let title =
            if is_latency { format!("{name} of {}, ms", self.unit()) } else { name.to_owned() };
        let note = format!(".{grey}{hollow}");
        let y = if is_latency { Axis::Log } else { Axis::Linear };
        Figure { title, note, x: Axis::Linear, x_label: "limit, CPUs", y, panels }.write(out);
    }

    /// A series for each kind of limit, with its points in the order of limits.
    fn series(&self, place: &Place<'_>, of: Of) -> Vec<Series> {
        let point = |run: &&Predicted| {
            let (x, y) = (words::millicpus(run)? as f64 / 1e3, of(&run.prediction)?);
            let is_doubtful = !run.prediction.predictable;
            let doubtful = if is_doubtful { " ?" } else { "" };
            let (label, number) = (words::label(run), ranged(y, Ranges::Beside));
            let says = format!("{label}{doubtful} on {}: {number}", place.name);
            Some(Point { x, y, says, is_doubtful })
        };
        let series = |(nth, kind): (usize, &String)| {
            let runs = place.runs.iter().filter(|run| words::kind(run).as_ref() == Some(kind));
            let mut points: Vec<Point> = runs.filter_map(point).collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            points.dedup_by(|a, b| a.says == b.says);
            Series { class: format!("{}-s{nth}", self.prefix), nth, points }
        };
        self.kinds.iter().enumerate().map(series).collect()
    }

    /// The recommended and the current limit.
    fn limits(&self) -> Vec<(f64, &'static str)> {
        let of = |(role, name)| {
            let run = self.study.runs.iter().find(|run| run.role == Some(role))?;
            Some((words::millicpus(run)? as f64 / 1e3, name))
        };
        let roles = [(Role::Recommended, "advised"), (Role::Current, "current")];
        roles.into_iter().filter_map(of).collect()
    }

    fn unit(&self) -> &'static str {
        self.study.runs.first().map_or("requests", |run| run.prediction.latency_of.name())
    }

    fn write_distributions(&self, out: &mut String) {
        let unit = self.unit();
        let kernel = &self.distributions[0].kernel;
        let _ = writeln!(out, "<h3>How long {unit} take, on {}</h3>", xml(kernel));
        let names: Vec<String> = self.distributions.iter().map(|run| words::label(run)).collect();
        self.write_choices(out, "Limits (quota/period, ms)", 'l', names.iter());
        let series = |(nth, run): (usize, &&Predicted)| Series {
            class: format!("{}-l{nth}", self.prefix),
            nth,
            points: by_percentile(&names[nth], &run.latencies.buckets),
        };
        let series = self.distributions.iter().enumerate().map(series).collect();
        let title = format!("Percentiles of {unit}, ms");
        let note =
            ". A line is one run of the model; the table has how far it may be off.".to_owned();
        let panels = vec![Panel { series, ..Panel::default() }];
        let (x, y) = (Axis::Percentile, Axis::Log);
        Figure { title, note, x, x_label: "percentile", y, panels }.write(out);
    }
}

/// Points of a histogram: for each end of a bucket, ms, the share, per cent, of latencies above it;
/// percentiles among them have marks.
fn by_percentile(label: &str, buckets: &[[u64; 3]]) -> Vec<Point> {
    let all = buckets.iter().fold(0_u64, |sum, [_, _, count]| sum.saturating_add(*count));
    let point = |above: f64, ms: f64, says: String| Point {
        x: above,
        y: Ranged::known(ms),
        says,
        is_doubtful: false,
    };
    let mut points = Vec::new();
    let mut left = all;
    let mut percentiles = PERCENTILES.into_iter().peekable();
    for [_, high, count] in buckets {
        left = left.saturating_sub(*count);
        let (above, ms) = (left as f64 * 100.0 / all.max(1) as f64, *high as f64 / 1e6);
        while let Some(percent) = percentiles.next_if(|percent| above <= *percent) {
            let (name, number) = (percentile(percent), ranged(Ranged::known(ms), Ranges::Beside));
            points.push(point(percent, ms, format!("{label}, {name}: {number}")));
        }
        if left > 0 {
            points.push(point(above, ms, String::new()));
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_marks_on_the_line_of_a_distribution() {
        let points = by_percentile("50/100", &[[0, 2_000_000, 92], [8_000_000, 9_000_000, 8]]);
        let told: Vec<(f64, f64, &str)> =
            points.iter().map(|p| (p.x, p.y.value, p.says.as_str())).collect();
        assert_eq!(told[0], (50.0, 2.0, "50/100, p50: 2.00"));
        assert_eq!(told[1], (10.0, 2.0, "50/100, p90: 2.00"));
        assert_eq!(told[2], (8.0, 2.0, ""));
        assert_eq!(told[3], (5.0, 9.0, "50/100, p95: 9.00"));
        assert_eq!(told.len(), 6);
        assert!(by_percentile("none", &[]).is_empty());
    }
}
