//! Plots as SVG: numbers with their ranges against a limit, and distributions of latencies. Classes
//! choose colours from the page's style; series also differ in shape.

use crate::escape::xml;
use std::fmt::Write;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 46.0;
/// Approximate number of ticks on an axis.
const TICKS: f64 = 6.0;
/// Horizontal distance between series, so that their ranges do not overlap.
const BESIDE: f64 = 4.0;

/// A number and its range at a position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub x: f64,
    pub y: f64,
    pub low: f64,
    pub high: f64,
}

/// Points of one line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    /// CSS class that colours and hides it, such as `k0`.
    pub class: String,
    pub points: Vec<Point>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Axis<'a> {
    pub label: &'a str,
    pub log: bool,
}

/// A named position on the horizontal axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Mark {
    pub x: f64,
    pub name: String,
}

#[derive(Debug)]
pub(super) struct Plot<'a> {
    /// Unique on the page.
    pub id: String,
    /// Title of the picture.
    pub title: String,
    /// Description for screen readers.
    pub says: String,
    pub x: Axis<'a>,
    pub y: Axis<'a>,
    pub series: Vec<Series>,
    pub marks: Vec<Mark>,
    /// A value that does not depend on the axis, such as that without a limit.
    pub base: Option<Point>,
    /// Whether points are shown, with ranges, or only the line.
    pub ranges: bool,
}

/// Maps numbers to coordinates.
struct Scale {
    low: f64,
    high: f64,
    log: bool,
    from: f64,
    to: f64,
}

impl Scale {
    /// A scale that holds all of the numbers.
    fn over(numbers: impl Iterator<Item = f64>, log: bool, from: f64, to: f64) -> Scale {
        let usable = numbers.filter(|x| x.is_finite() && (!log || *x > 0.0));
        let (low, high) = usable
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
        let (low, high) = match (low.is_finite(), log) {
            (false, true) => (1.0, 10.0),
            (false, false) => (0.0, 1.0),
            (true, true) => (low * 0.8, high * 1.25),
            // A linear axis starts at 0.
            (true, false) => (0.0, if high > 0.0 { high * 1.05 } else { 1.0 }),
        };
        Scale { low, high, log, from, to }
    }

    fn place(&self, x: f64) -> f64 {
        let (low, high, x) = if self.log {
            (self.low.ln(), self.high.ln(), x.max(self.low).ln())
        } else {
            (self.low, self.high, x)
        };
        let share = ((x - low) / (high - low)).clamp(0.0, 1.0);
        self.from + share * (self.to - self.from)
    }

    /// Round numbers: one, two and five times powers of ten.
    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let decades = (self.high / self.low).log10();
            let steps: &[f64] = if decades < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
            let all = (first..=last).flat_map(|e| steps.iter().map(move |s| s * 10f64.powi(e)));
            return all.filter(|x| (self.low..=self.high).contains(x)).collect();
        }
        let rough = (self.high - self.low) / TICKS;
        let power = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
        let step = steps.into_iter().find(|step| *step >= rough).unwrap_or(rough);
        let count = (self.high / step).floor() as i32;
        (0..=count).map(|at| f64::from(at) * step).collect()
    }
}

impl Plot<'_> {
    pub(super) fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let xs = points().map(|p| p.x).chain(self.marks.iter().map(|mark| mark.x));
        let x = Scale::over(xs, self.x.log, LEFT, WIDTH - RIGHT);
        let ys = points().chain(&self.base).flat_map(|p| [p.y, p.low, p.high]);
        let y = Scale::over(ys, self.y.log, HEIGHT - BOTTOM, TOP);
        let id = &self.id;
        let mut out = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\">\
             <title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>\n",
            xml(&self.title),
            xml(&self.says)
        );
        self.write_axes(&mut out, &x, &y);
        if let Some(base) = self.base {
            let (top, bottom) = (y.place(base.high), y.place(base.low));
            let (width, height) = (WIDTH - RIGHT - LEFT, (bottom - top).max(1.0));
            let _ = writeln!(
                out,
                "<rect class=\"base\" x=\"{LEFT}\" y=\"{top:.1}\" width=\"{width}\" \
                 height=\"{height:.1}\"/>"
            );
        }
        for mark in &self.marks {
            let at = x.place(mark.x);
            let (side, turn) = if at > WIDTH * 0.7 { ("end", -5.0) } else { ("start", 5.0) };
            let _ = writeln!(
                out,
                "<line class=\"mark\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{side}\">{}</text>",
                HEIGHT - BOTTOM,
                at + turn,
                TOP + 10.0,
                xml(&mark.name)
            );
        }
        for (at, series) in self.series.iter().enumerate() {
            let aside = if self.ranges {
                (at as f64 - (self.series.len() as f64 - 1.0) / 2.0) * BESIDE
            } else {
                0.0
            };
            self.write_series(&mut out, series, at, &|p| x.place(p) + aside, &y);
        }
        out.push_str("</svg>\n");
        out
    }

    fn write_axes(&self, out: &mut String, x: &Scale, y: &Scale) {
        let bottom = HEIGHT - BOTTOM;
        for tick in y.ticks() {
            let at = y.place(tick);
            let _ = writeln!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                at + 4.0,
                short(tick)
            );
        }
        for tick in x.ticks() {
            let at = x.place(tick);
            let _ = writeln!(
                out,
                "<line class=\"axis\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{bottom}\" y2=\"{}\"/>\
                 <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                bottom + 5.0,
                bottom + 18.0,
                short(tick)
            );
        }
        let _ = writeln!(
            out,
            "<path class=\"axis\" d=\"M{LEFT} {TOP}V{bottom}H{}\"/>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <text transform=\"translate(14 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            WIDTH - RIGHT,
            f64::midpoint(LEFT, WIDTH - RIGHT),
            HEIGHT - 8.0,
            xml(self.x.label),
            f64::midpoint(TOP, bottom),
            xml(self.y.label)
        );
    }

    fn write_series(
        &self,
        out: &mut String,
        series: &Series,
        shape: usize,
        x: &dyn Fn(f64) -> f64,
        y: &Scale,
    ) {
        let _ = write!(out, "<g class=\"{}\">", series.class);
        let line: Vec<String> =
            series.points.iter().map(|p| format!("{:.1} {:.1}", x(p.x), y.place(p.y))).collect();
        if line.len() > 1 {
            let _ = write!(out, "<path class=\"line\" d=\"M{}\"/>", line.join("L"));
        }
        for point in series.points.iter().filter(|_| self.ranges) {
            let (at, low, high) = (x(point.x), y.place(point.low), y.place(point.high));
            let _ = write!(
                out,
                "<path class=\"range\" d=\"M{at:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h6M{:.1} \
                 {high:.1}h6\"/>{}",
                at - 3.0,
                at - 3.0,
                symbol(shape, at, y.place(point.y))
            );
        }
        out.push_str("</g>\n");
    }
}

/// The symbol of a point; its shape depends on the series.
fn symbol(shape: usize, x: f64, y: f64) -> String {
    match shape % 3 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"),
        1 => format!("<rect x=\"{:.1}\" y=\"{:.1}\" width=\"7\" height=\"7\"/>", x - 3.5, y - 3.5),
        _ => format!("<path d=\"M{x:.1} {:.1}l4.5 8h-9z\"/>", y - 5.0),
    }
}

/// The symbol of a series for the legend.
pub(super) fn key(class: &str, shape: usize) -> String {
    let symbol = symbol(shape, 7.0, 7.0);
    format!("<svg class=\"key {class}\" viewBox=\"0 0 14 14\" aria-hidden=\"true\">{symbol}</svg>")
}

/// A number with up to three decimals, without trailing zeros.
fn short(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_lie_within() {
        let linear = Scale::over([0.13, 0.87].into_iter(), false, 0.0, 100.0);
        assert_eq!(
            linear.ticks().iter().map(|t| short(*t)).collect::<Vec<_>>().join(" "),
            "0 0.2 0.4 0.6 0.8"
        );
        let log = Scale::over([1.3, 80.0].into_iter(), true, 0.0, 100.0);
        assert_eq!(log.ticks(), [2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert!(log.place(1.3) < log.place(2.0) && log.place(1000.0) <= 100.0);
        let none = Scale::over(std::iter::empty(), true, 0.0, 100.0);
        assert!(!none.ticks().is_empty());
        let alike = Scale::over([0.0].into_iter(), false, 0.0, 100.0);
        assert!(alike.place(0.0).is_finite() && alike.ticks().len() < 20);
    }

    #[test]
    fn a_plot_has_a_title_and_every_point() {
        let point = |x: f64| Point { x, y: x, low: x / 2.0, high: x * 2.0 };
        let plot = Plot {
            id: "a".to_owned(),
            title: "p99 <of> it".to_owned(),
            says: "more".to_owned(),
            x: Axis { label: "CPUs", log: false },
            y: Axis { label: "ms", log: true },
            series: vec![Series { class: "k0".to_owned(), points: vec![point(1.0), point(2.0)] }],
            marks: vec![Mark { x: 1.5, name: "current".to_owned() }],
            base: Some(point(1.0)),
            ranges: true,
        };
        let svg = plot.svg();
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains("p99 &lt;of&gt; it") && svg.contains("aria-labelledby=\"a-t a-d\""));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
