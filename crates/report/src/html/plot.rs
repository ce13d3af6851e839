//! Plots as SVG: numbers with their ranges against a limit, and latencies by percentile. The page's
//! style has the colours, and series differ in their marks too. The title of a mark has its
//! numbers, which browsers show under the pointer.

use crate::escape::xml;
use crate::predicted::Ranged;
use std::fmt::Write;

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 230.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = WIDTH - 18.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = HEIGHT - 40.0;
/// Approximate number of ticks on an axis.
const TICKS: f64 = 5.0;
/// Height of a line of text.
const LINE: f64 = 14.0;
const COLOURS: usize = 6;
/// Marks around a point: circle, square, triangle, diamond, triangle, cross and hourglass. Their
/// number and that of colours have no common divisor, so that 42 series differ.
const MARKS: [&str; 7] = [
    "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "m-3.5-3.5h7v7h-7z",
    "m0-5l4.5 8h-9z",
    "m0-5l5 5l-5 5l-5-5z",
    "m0 5l4.5-8h-9z",
    "m-1.3-5h2.6v3.7h3.7v2.6h-3.7v3.7h-2.6v-3.7h-3.7v-2.6h3.7z",
    "m-4.5-4.5h9l-9 9h9z",
];

/// A number and its range at a position.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Point {
    pub x: f64,
    pub y: Ranged,
    /// The numbers as text; empty: the line passes here, and there is no mark.
    pub says: String,
    /// Whether the number cannot be relied on; its mark is hollow.
    pub is_doubtful: bool,
}

/// Points of one line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    /// CSS class that hides it.
    pub class: String,
    /// Chooses colour and mark.
    pub nth: usize,
    pub points: Vec<Point>,
}

/// The kind of numbers along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Axis {
    /// Numbers from zero.
    Linear,
    /// Numbers above zero.
    Log,
    /// Per cent that lie above a percentile, from 100 down, with logarithmic distances.
    Percentile,
}

/// Plots with common axes.
#[derive(Debug)]
pub(super) struct Figure {
    /// The numbers and their unit.
    pub title: String,
    /// Explanation below the title.
    pub note: String,
    pub x: Axis,
    pub x_label: &'static str,
    pub y: Axis,
    pub panels: Vec<Panel>,
}

#[derive(Debug, Default)]
pub(super) struct Panel {
    /// CSS class that hides it.
    pub class: String,
    pub name: String,
    pub series: Vec<Series>,
    /// Named positions on the horizontal axis.
    pub limits: Vec<(f64, &'static str)>,
    /// The most, or of rates the least, that is asked for.
    pub target: Option<f64>,
    /// The number without a limit.
    pub base: Option<Ranged>,
}

/// Maps numbers to coordinates.
struct Scale {
    low: f64,
    high: f64,
    axis: Axis,
    from: f64,
    to: f64,
}

impl Scale {
    /// A scale that holds all of the numbers.
    fn over(numbers: impl Iterator<Item = f64>, axis: Axis, from: f64, to: f64) -> Scale {
        let usable = numbers.filter(|x| x.is_finite() && (axis == Axis::Linear || *x > 0.0));
        let (low, high) = usable
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
        let (low, high) = match (axis, low.is_finite()) {
            (Axis::Linear, true) => (0.0, if high > 0.0 { high * 1.05 } else { 1.0 }),
            (Axis::Linear, false) => (0.0, 1.0),
            (Axis::Log, true) => (low * 0.8, high * 1.25),
            (Axis::Percentile, true) => (low.min(50.0), 100.0),
            (_, false) => (1.0, 10.0),
        };
        let (from, to) = if axis == Axis::Percentile { (to, from) } else { (from, to) };
        Scale { low, high, axis, from, to }
    }

    fn place(&self, x: f64) -> f64 {
        let (low, high, x) = match self.axis {
            Axis::Linear => (self.low, self.high, x),
            Axis::Log | Axis::Percentile => (self.low.ln(), self.high.ln(), x.max(self.low).ln()),
        };
        let share = ((x - low) / (high - low)).clamp(0.0, 1.0);
        self.from + share * (self.to - self.from)
    }

    /// Round numbers within the scale, with their labels.
    fn ticks(&self) -> Vec<(f64, String)> {
        let numbers: Vec<f64> = match self.axis {
            Axis::Percentile => PERCENTILES.into(),
            Axis::Log => {
                let (decades, first) = ((self.high / self.low).log10(), self.low.log10().floor());
                let steps: &[f64] = if decades < 2.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let powers = (0..=decades.ceil() as i32).map(|e| 10f64.powi(first as i32 + e));
                powers.flat_map(|power| steps.iter().map(move |step| step * power)).collect()
            }
            Axis::Linear => {
                let rough = (self.high - self.low) / TICKS;
                let power = 10f64.powf(rough.log10().floor());
                let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
                let step = steps.into_iter().find(|step| *step >= rough).unwrap_or(rough);
                (0..=(self.high / step).floor() as i32).map(|at| f64::from(at) * step).collect()
            }
        };
        let label = |x: f64| match self.axis {
            Axis::Percentile => percentile(x),
            Axis::Linear | Axis::Log => short(x),
        };
        let within = numbers.into_iter().filter(|x| (self.low..=self.high).contains(x));
        within.map(|x| (x, label(x))).collect()
    }
}

/// Percentiles that are shown, as per cent above them.
pub(super) const PERCENTILES: [f64; 5] = [50.0, 10.0, 5.0, 1.0, 0.1];

/// `p99` of 1 per cent above it.
pub(super) fn percentile(above: f64) -> String {
    format!("p{}", short(100.0 - above))
}

impl Figure {
    pub(super) fn write(&self, out: &mut String) {
        let points = || self.panels.iter().flat_map(|panel| &panel.series).flat_map(|s| &s.points);
        let limits = self.panels.iter().flat_map(|panel| &panel.limits).map(|(x, _)| *x);
        let x = Scale::over(points().map(|p| p.x).chain(limits), self.x, LEFT, RIGHT);
        let bases = self.panels.iter().filter_map(|panel| panel.base);
        let ranges = points().map(|point| point.y).chain(bases);
        let targets = self.panels.iter().filter_map(|panel| panel.target);
        let ys = ranges.flat_map(|y| [y.value, y.low, y.high]).chain(targets);
        let y = Scale::over(ys, self.y, BOTTOM, TOP);
        let wide = if self.panels.len() > 1 { " class=\"wide\"" } else { "" };
        let _ = writeln!(
            out,
            "<figure{wide}><figcaption><b>{}</b>{}</figcaption>\n<div class=\"panels\">",
            xml(&self.title),
            xml(&self.note)
        );
        for panel in &self.panels {
            let _ = write!(
                out,
                "<svg class=\"{}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{} \
                 {}\">",
                panel.class,
                xml(&self.title),
                xml(&panel.name)
            );
            self.write_axes(out, &x, &y);
            panel.write(out, &x, &y);
            out.push_str("</svg>\n");
        }
        let _ = writeln!(
            out,
            "</div>\n<label class=\"slider\" hidden>{} <input type=\"range\" min=\"0\" \
             value=\"0\"></label><ul class=\"told\"></ul></figure>",
            self.x_label
        );
    }

    fn write_axes(&self, out: &mut String, x: &Scale, y: &Scale) {
        let _ = write!(out, "<path class=\"grid\" d=\"");
        for (tick, _) in y.ticks() {
            let _ = write!(out, "M{LEFT} {:.1}H{RIGHT}", y.place(tick));
        }
        let _ = write!(out, "\"/><path class=\"axis\" d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}");
        for (tick, _) in x.ticks() {
            let _ = write!(out, "M{:.1} {BOTTOM}v5", x.place(tick));
        }
        out.push_str("\"/>");
        for (tick, label) in y.ticks() {
            text(out, LEFT - 6.0, y.place(tick) + 4.0, "end", &label);
        }
        for (tick, label) in x.ticks() {
            text(out, x.place(tick), BOTTOM + 18.0, "middle", &label);
        }
        text(out, f64::midpoint(LEFT, RIGHT), HEIGHT - 6.0, "middle", self.x_label);
    }
}

impl Panel {
    fn write(&self, out: &mut String, x: &Scale, y: &Scale) {
        if let Some(base) = self.base {
            let (top, bottom) = (y.place(base.high), y.place(base.low));
            let (width, height) = (RIGHT - LEFT, (bottom - top).max(1.5));
            let _ = write!(
                out,
                "<rect class=\"base\" x=\"{LEFT}\" y=\"{top:.1}\" width=\"{width}\" \
                 height=\"{height:.1}\"/>"
            );
        }
        text(out, LEFT, LINE - 2.0, "start", &self.name);
        if let Some(target) = self.target {
            let at = y.place(target);
            let _ = write!(out, "<path class=\"mark\" d=\"M{LEFT} {at:.1}H{RIGHT}\"/>");
            text(out, RIGHT, at - 4.0, "end", &format!("target {}", short(target)));
        }
        for (nth, (limit, name)) in self.limits.iter().enumerate() {
            let at = x.place(*limit);
            let (side, aside) = if at > WIDTH * 0.7 { ("end", -5.0) } else { ("start", 5.0) };
            let _ = write!(out, "<path class=\"mark\" d=\"M{at:.1} {TOP}V{BOTTOM}\"/>");
            text(out, at + aside, TOP + LINE * (nth as f64 + 0.8), side, name);
        }
        for series in &self.series {
            series.write(out, x, y);
        }
    }
}

impl Series {
    fn write(&self, out: &mut String, x: &Scale, y: &Scale) {
        let places = |of: fn(&Point) -> f64| {
            self.points.iter().map(move |p| format!("{:.1} {:.1}", x.place(p.x), y.place(of(p))))
        };
        let joined =
            |places: &mut dyn Iterator<Item = String>| places.collect::<Vec<_>>().join("L");
        let _ = write!(out, "\n<g class=\"{} {}\">", self.class, colour(self.nth));
        if self.points.iter().any(|point| point.y.low < point.y.high) {
            let band = joined(&mut places(|p| p.y.high).chain(places(|p| p.y.low).rev()));
            let _ = write!(out, "<path class=\"band\" d=\"M{band}z\"/>");
        }
        if self.points.len() > 1 {
            let line = joined(&mut places(|p| p.y.value));
            let _ = write!(out, "<path class=\"line\" d=\"M{line}\"/>");
        }
        for point in self.points.iter().filter(|point| !point.says.is_empty()) {
            let class = if point.is_doubtful { "doubtful" } else { "point" };
            let at = x.place(point.x);
            let _ = write!(
                out,
                "<path class=\"{class}\" data-x=\"{at:.1}\" d=\"M{at:.1} {:.1}{}\">\
                 <title>{}</title></path>",
                y.place(point.y.value),
                mark(self.nth),
                xml(&point.says)
            );
        }
        out.push_str("</g>");
    }
}

fn text(out: &mut String, x: f64, y: f64, side: &str, text: &str) {
    let text = xml(text);
    let _ = write!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{side}\">{text}</text>");
}

fn colour(nth: usize) -> String {
    format!("s{}", nth % COLOURS)
}

fn mark(nth: usize) -> &'static str {
    MARKS[nth % MARKS.len()]
}

/// The mark of a series for the legend.
pub(super) fn key(nth: usize) -> String {
    let (colour, mark) = (colour(nth), mark(nth));
    format!(
        "<svg class=\"key {colour}\" viewBox=\"0 0 14 14\" aria-hidden=\"true\"><path d=\"M7 \
         7{mark}\"/></svg>"
    )
}

/// A number with up to three decimals, without trailing zeros.
pub(super) fn short(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale) -> String {
        scale.ticks().into_iter().map(|(_, label)| label).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ticks_are_round_and_lie_within() {
        let over = |numbers: &[f64], axis| Scale::over(numbers.iter().copied(), axis, 0.0, 100.0);
        assert_eq!(labels(&over(&[0.13, 0.87], Axis::Linear)), "0 0.2 0.4 0.6 0.8");
        let log = over(&[1.3, 80.0], Axis::Log);
        assert_eq!(labels(&log), "2 5 10 20 50 100");
        assert!(log.place(1.3) < log.place(2.0) && log.place(1000.0) <= 100.0);
        let percentiles = over(&[0.3, 100.0], Axis::Percentile);
        assert_eq!(labels(&percentiles), "p50 p90 p95 p99");
        assert!(percentiles.place(50.0) < percentiles.place(1.0));
        assert!(!over(&[], Axis::Log).ticks().is_empty());
        let alike = over(&[0.0], Axis::Linear);
        assert!(alike.place(0.0).is_finite() && alike.ticks().len() < 20);
    }

    #[test]
    fn a_figure_has_every_point_with_its_numbers() {
        let point = |x: f64, says: &str| Point {
            x,
            y: Ranged { value: x, low: x / 2.0, high: x * 2.0 },
            says: says.to_owned(),
            is_doubtful: x > 1.0,
        };
        let points = vec![point(1.0, "1 <of> 2"), point(2.0, "two"), point(3.0, "")];
        let series = vec![Series { class: "k0".to_owned(), nth: 8, points }];
        let limits = vec![(1.5, "current")];
        let panel = Panel { series, limits, target: Some(3.0), ..Panel::default() };
        let mut out = String::new();
        let (title, note) = ("p99, ms".to_owned(), String::new());
        let (x, y, panels) = (Axis::Linear, Axis::Log, vec![panel]);
        Figure { title, note, x, x_label: "CPUs", y, panels }.write(&mut out);
        assert_eq!(
            (out.matches("class=\"point\"").count(), out.matches("doubtful").count()),
            (1, 1)
        );
        assert!(out.contains("<title>1 &lt;of&gt; 2</title>") && out.contains(">target 3<"));
        assert!(!out.contains("NaN") && !out.contains("inf"), "{out}");
    }

    #[test]
    fn forty_two_series_differ_in_colour_or_mark() {
        let all: std::collections::BTreeSet<String> = (0..42).map(key).collect();
        assert_eq!(all.len(), 42);
    }
}
