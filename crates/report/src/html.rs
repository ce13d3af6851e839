//! Studies as one self-contained HTML page: the answer first, then plots, the table, what was
//! recorded, doubts, and the commands that reproduce it.
//!
//! Selection and zoom use CSS only, so the page can be printed, attached to a ticket and read
//! aloud. The only script opens an excerpt in the Perfetto UI when a button is pressed. The page is
//! made from the saved JSON.

mod beside;
mod plot;
mod script;
mod stretch;
mod words;

use crate::escape::{self, xml};
use crate::page::Page;
use crate::predicted::{PredictedRow, Ranged, Ranges, ranged};
use crate::replay::row;
use cpumax_forecast::predict;
use cpumax_forecast::{
    advise::Role,
    saved::{Predicted, Saved},
    traced::RunTrace,
};
use plot::{Axis, Mark, Plot, Point, Series, key};
use std::fmt::Write;

const STYLE: &str = include_str!("html/style.css");
const COLOURS: usize = 6;
const DISTRIBUTIONS: usize = 6;

/// A study and its name.
#[derive(Debug, Clone)]
pub struct Named {
    /// Name, usually that of its file.
    pub name: String,
    /// The saved study.
    pub study: Saved,
}

/// The page; `version` is that of cpumax.
pub fn html(studies: &[Named], version: &str) -> String {
    let sections: Vec<Section<'_>> = studies.iter().enumerate().map(Section::of).collect();
    let title = words::title(studies);
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n\
         <title>{}</title>\n<style>\n{STYLE}",
        script::policy(),
        xml(&title)
    );
    for section in &sections {
        section.write_rules(&mut out);
    }
    let _ = write!(out, "</style>\n</head>\n<body>\n<main>\n<h1>{}</h1>\n", xml(&title));
    beside::write(&mut out, studies);
    for section in &sections {
        let _ = writeln!(out, "<section aria-labelledby=\"{0}-h\">", section.prefix);
        section.write(&mut out, sections.len() > 1);
        out.push_str("</section>\n");
    }
    let _ = write!(
        out,
        "</main>\n<footer class=\"faint\"><p>Predicted by cpumax {}. A number in brackets or below \
         another is how far it may be off: nobody knows when a period begins, and the same work \
         costs more or less on another day.</p></footer>\n",
        xml(version)
    );
    if sections.iter().any(Section::has_stretches) {
        let _ = writeln!(out, "<script>{}</script>", script::SCRIPT);
    }
    out.push_str("</body>\n</html>\n");
    out
}

/// Only the answers of the studies and what their recordings lack, for a terminal.
pub fn answer_lines(studies: &[Named], page: Page) -> String {
    let of_study = |named: &Named| {
        let answer = format!("{}: {}", named.name, words::answer(&named.study));
        std::iter::once(answer).chain(words::gaps(&named.study)).collect::<Vec<_>>()
    };
    let lines = beside::answer(studies).into_iter().chain(studies.iter().flat_map(of_study));
    lines.map(|line| page.wrapped(&escape::line(&line)) + "\n").collect()
}

/// A series of the plots: runs on one kernel with one kind of limit.
struct Group<'a> {
    name: String,
    runs: Vec<&'a Predicted>,
}

struct Section<'a> {
    prefix: char,
    named: &'a Named,
    groups: Vec<Group<'a>>,
    /// Runs whose latency distributions are shown, on one kernel.
    distributions: Vec<&'a Predicted>,
}

impl<'a> Section<'a> {
    fn of((at, named): (usize, &'a Named)) -> Section<'a> {
        let prefix = char::from(b'a' + (at % 26) as u8);
        let study = &named.study;
        let mut groups: Vec<Group<'a>> = Vec::new();
        let kinds: std::collections::BTreeSet<String> =
            study.runs.iter().filter_map(words::kind).collect();
        let recordings: std::collections::BTreeSet<&str> =
            study.runs.iter().map(|run| run.recording.as_str()).collect();
        for run in &study.runs {
            let Some(kind) = words::kind(run) else { continue };
            let mut name = run.kernel.clone();
            if kinds.len() > 1 {
                let _ = write!(name, ", {kind}");
            }
            if recordings.len() > 1 {
                let _ = write!(name, ", {}", run.recording);
            }
            match groups.iter_mut().find(|group| group.name == name) {
                Some(group) => group.runs.push(run),
                None => groups.push(Group { name, runs: vec![run] }),
            }
        }
        for group in &mut groups {
            group.runs.sort_by_key(|run| words::millicpus(run));
            group.runs.dedup_by_key(|run| words::millicpus(run));
        }
        let first = study.runs.first();
        let is_shown = |run: &&Predicted| {
            let like_first =
                |first: &Predicted| first.kernel == run.kernel && first.recording == run.recording;
            first.is_some_and(like_first) && run.latencies.count() > 0
        };
        let distributions = study.runs.iter().filter(is_shown).take(DISTRIBUTIONS).collect();
        Section { prefix, named, groups, distributions }
    }

    /// Writes CSS rules that hide unselected series.
    fn write_rules(&self, out: &mut String) {
        let prefix = self.prefix;
        for (kind, count) in [('k', self.groups.len()), ('l', self.distributions.len())] {
            for at in 0..count {
                let class = format!("{prefix}-{kind}{at}");
                let _ =
                    writeln!(out, "body:has(#{class}:not(:checked)) .{class} {{ display: none; }}");
            }
        }
        stretch::write_zoom_rules(out, &format!("{prefix}-p"));
        for (of, _) in self.traces() {
            stretch::write_zoom_rules(out, &of.id);
        }
    }

    /// Runs with recorded excerpts.
    fn traces(&self) -> impl Iterator<Item = (stretch::Of<'_>, &RunTrace)> {
        let traced =
            self.named.study.runs.iter().filter_map(|run| Some((run, run.trace.as_ref()?)));
        traced.enumerate().map(|(at, (run, trace))| {
            let unit = run.prediction.latency_of.name().trim_end_matches('s');
            let role = words::role(run.role);
            let of = stretch::Of {
                id: format!("{}-r{at}", self.prefix),
                label: format!("{}{role} on {}", words::label(run), run.kernel),
                group: words::group(&self.named.study, &run.recording),
                unit,
            };
            (of, trace)
        })
    }

    fn has_stretches(&self) -> bool {
        self.traces().any(|(_, trace)| !trace.stretches.is_empty())
    }

    fn write(&self, out: &mut String, several: bool) {
        let study = &self.named.study;
        let heading = if several { self.named.name.as_str() } else { "The answer" };
        let _ = writeln!(out, "<h2 id=\"{}-h\">{}</h2>", self.prefix, xml(heading));
        let _ = writeln!(out, "<p class=\"answer\">{}</p>", xml(&words::answer(study)));
        for line in words::lacks(study) {
            let _ = writeln!(out, "<p>{}</p>", xml(&line));
        }
        self.write_plots(out);
        self.write_distribution(out);
        for (of, trace) in self.traces() {
            stretch::write(out, &of, trace);
        }
        self.write_table(out);
        let _ = writeln!(out, "<h3>What was recorded, and what is doubtful</h3>\n<ul>");
        for line in words::recorded(study).into_iter().chain(words::doubts(study)) {
            let _ = writeln!(out, "<li>{}</li>", xml(&line));
        }
        out.push_str("</ul>\n<h3>Made again by</h3>\n");
        let commands: Vec<String> = words::commands(study).iter().map(|line| xml(line)).collect();
        let _ = writeln!(out, "<pre tabindex=\"0\"><code>{}</code></pre>", commands.join("\n"));
    }

    fn write_choices<'n>(
        &self,
        out: &mut String,
        legend: &str,
        kind: char,
        names: impl Iterator<Item = &'n str>,
    ) {
        let _ = writeln!(out, "<fieldset><legend>{legend}</legend>");
        for (at, name) in names.enumerate() {
            let id = format!("{}-{kind}{at}", self.prefix);
            let _ = writeln!(
                out,
                "<label><input type=\"checkbox\" id=\"{id}\" checked> {} {}</label>",
                key(&format!("s{}", at % COLOURS), if kind == 'k' { at } else { 0 }),
                xml(name)
            );
        }
        out.push_str("</fieldset>\n");
    }

    fn write_plots(&self, out: &mut String) {
        if self.groups.is_empty() {
            return;
        }
        let study = &self.named.study;
        out.push_str("<h3>Against the limit</h3>\n");
        let names = self.groups.iter().map(|group| group.name.as_str());
        self.write_choices(out, "Kernels", 'k', names);
        stretch::write_zooms(out, &format!("{}-p", self.prefix));
        out.push_str("<div class=\"plots\">\n");
        let unit = study.runs.first().map_or("requests", |run| run.prediction.latency_of.name());
        let latency = |of: fn(&predict::Latency) -> cpumax_study::Ranged<u64>| {
            move |run: &Predicted| run.prediction.request_latency_ns.as_ref().map(|l| in_ms(of(l)))
        };
        let throttled = |run: &Predicted| run.prediction.throttled_percent;
        let cpus = |run: &Predicted| run.prediction.cpus;
        let of = |name: &str| format!("{name} of {unit}, ms");
        self.write_plot(out, "Throttled periods, %", false, &throttled);
        self.write_plot(out, &of("p99"), true, &latency(|l| l.p99));
        self.write_plot(out, &of("p90"), true, &latency(|l| l.p90));
        self.write_plot(out, &of("p50"), true, &latency(|l| l.p50));
        self.write_plot(out, "CPUs used", false, &cpus);
        out.push_str("</div>\n");
    }

    fn write_plot(
        &self,
        out: &mut String,
        what: &str,
        log: bool,
        of: &dyn Fn(&Predicted) -> Option<Ranged>,
    ) {
        let study = &self.named.study;
        let point = |run: &&Predicted| {
            let number = of(run)?;
            let x = words::millicpus(run)? as f64 / 1e3;
            Some(Point { x, y: number.value, low: number.low, high: number.high })
        };
        let series = |(at, group): (usize, &Group<'_>)| Series {
            class: format!("s{} {}-k{at}", at % COLOURS, self.prefix),
            points: group.runs.iter().filter_map(point).collect(),
        };
        let series: Vec<Series> = self.groups.iter().enumerate().map(series).collect();
        if series.iter().all(|series| series.points.is_empty()) {
            return;
        }
        let unlimited = study.runs.iter().find(|run| words::kind(run).is_none());
        let base = unlimited.and_then(of);
        let base = base.map(|n| Point { x: 0.0, y: n.value, low: n.low, high: n.high });
        let id = format!(
            "{}-{}",
            self.prefix,
            what.chars().filter(|c| c.is_alphanumeric()).collect::<String>()
        );
        let plot = Plot {
            id,
            title: format!("{what} against the limit"),
            says: "The table below has every number of it.".to_owned(),
            x: Axis { label: "limit, CPUs", log: false },
            y: Axis { label: what, log },
            series,
            marks: marks(study),
            base,
            ranges: true,
        };
        let grey = if base.is_some() { " Grey: without a limit." } else { "" };
        let _ = writeln!(
            out,
            "<figure>{}<figcaption>{}.{grey}</figcaption></figure>",
            self.widened(&plot),
            xml(what)
        );
    }

    /// A plot in a container that may be wider than the page.
    fn widened(&self, plot: &Plot<'_>) -> String {
        let (prefix, title) = (self.prefix, xml(&plot.title));
        let svg = plot.svg();
        format!(
            "<div class=\"scroll\" role=\"group\" aria-label=\"{title}\" tabindex=\"0\">\
             <div class=\"{prefix}-p-w\">{svg}</div></div>"
        )
    }

    fn write_distribution(&self, out: &mut String) {
        if self.distributions.len() < 2 {
            return;
        }
        let kernel = &self.distributions[0].kernel;
        let unit = self.distributions[0].prediction.latency_of.name();
        let _ = writeln!(out, "<h3>How long {unit} take, on {}</h3>", xml(kernel));
        let names: Vec<String> = self.distributions.iter().map(|run| words::label(run)).collect();
        self.write_choices(out, "Limits (quota/period, ms)", 'l', names.iter().map(String::as_str));
        let series = |(at, run): (usize, &&Predicted)| Series {
            class: format!("s{} {}-l{at}", at % COLOURS, self.prefix),
            points: longer(&run.latencies.buckets),
        };
        let y = format!("share of {unit} that take longer, %");
        let plot = Plot {
            id: format!("{}-longer", self.prefix),
            title: format!("How many {unit} take longer than so many milliseconds"),
            says: "A line for each limit; both axes are logarithmic.".to_owned(),
            x: Axis { label: "ms", log: true },
            y: Axis { label: &y, log: true },
            series: self.distributions.iter().enumerate().map(series).collect(),
            marks: Vec::new(),
            base: None,
            ranges: false,
        };
        let _ = writeln!(
            out,
            "<figure>{}<figcaption>Read it at 1 %: that is p99. It is of one run of the model for \
             each limit; the table has how far it may be off.</figcaption></figure>",
            self.widened(&plot)
        );
    }

    fn write_table(&self, out: &mut String) {
        let study = &self.named.study;
        let unit = study.runs.first().map_or("requests", |run| run.prediction.latency_of.name());
        let rows: Vec<_> = study
            .runs
            .iter()
            .map(|run| (Some(run), row(&words::label(run), &run.kernel, &run.prediction)))
            .collect();
        let recorded = study.recordings.iter().map(|recorded| {
            (None, row("recorded", recorded.kernel.as_deref().unwrap_or(""), &recorded.prediction))
        });
        let rows: Vec<_> = recorded.chain(rows).collect();
        let rates = rows.iter().any(|(_, row)| row.requests_per_second.is_some());
        let takes = rows.iter().any(|(_, row)| row.takes_s.is_some());
        let _ = writeln!(
            out,
            "<h3 id=\"{0}-table\">All numbers</h3>\n<div class=\"scroll\" role=\"region\" \
             aria-labelledby=\"{0}-table\" tabindex=\"0\"><table>\n<caption>Limits are \
             quota/period, +burst, in ms. ?: not predictable, see below.</caption>\n<thead><tr>",
            self.prefix
        );
        let mut head = vec![
            "limit".to_owned(),
            "kernel".to_owned(),
            "CPUs".to_owned(),
            "throttled periods, %".to_owned(),
            format!("p50 of {unit}, ms"),
            format!("p99 of {unit}, ms"),
        ];
        head.extend(rates.then(|| "answered a second".to_owned()));
        head.extend(takes.then(|| "work takes, s".to_owned()));
        for name in head {
            let _ = write!(out, "<th scope=\"col\">{}</th>", xml(&name));
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        for (run, row) in rows {
            row_labels(out, &row, run.and_then(|run| run.role));
            let mut numbers = vec![row.cpus, row.throttled_percent];
            numbers.extend(row.latency_ms);
            numbers.extend(rates.then_some(row.requests_per_second));
            numbers.extend(takes.then_some(row.takes_s));
            for number in numbers {
                let text = number.map_or("-".to_owned(), number_html);
                let _ = write!(out, "<td>{text}</td>");
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody>\n</table></div>\n");
    }
}

/// Begins a row of the table with limit, role and kernel.
fn row_labels(out: &mut String, row: &PredictedRow, role: Option<Role>) {
    let class = if role == Some(Role::Recommended) { " class=\"advised\"" } else { "" };
    let doubtful = if row.doubtful { " ?" } else { "" };
    let _ = write!(
        out,
        "<tr{class}><th scope=\"row\">{}{}{doubtful}</th><td class=\"text\">{}</td>",
        xml(&row.limit),
        words::role(role),
        xml(&row.kernel)
    );
}

/// A number, and its range in small type.
fn number_html(number: Ranged) -> String {
    let text = ranged(number, Ranges::Below);
    match text.split_once('\n') {
        Some((value, range)) => format!("{value}<small>{range}</small>"),
        None => text,
    }
}

fn in_ms(number: cpumax_study::Ranged<u64>) -> Ranged {
    let ms = |ns: u64| ns as f64 / 1e6;
    Ranged { value: ms(number.value), low: ms(number.low), high: ms(number.high) }
}

/// Marks of the recommended and the current limit.
fn marks(study: &Saved) -> Vec<Mark> {
    let mut marks: Vec<Mark> = Vec::new();
    for (role, name) in [(Role::Recommended, "advised"), (Role::Current, "current")] {
        let run = study.runs.iter().find(|run| run.role == Some(role));
        if let Some(millicpus) = run.and_then(words::millicpus) {
            marks.push(Mark { x: millicpus as f64 / 1e3, name: name.to_owned() });
        }
    }
    marks
}

/// Points of a histogram: for each end of a bucket, ms, the share, per cent, of latencies above it.
fn longer(buckets: &[[u64; 3]]) -> Vec<Point> {
    let all = buckets.iter().fold(0_u64, |sum, [_, _, count]| sum.saturating_add(*count));
    let mut left = all;
    let mut points = Vec::new();
    if let Some([low, ..]) = buckets.first() {
        points.push((*low, all));
    }
    for [_, high, count] in buckets {
        left = left.saturating_sub(*count);
        points.push((*high, left));
    }
    let point = |(ns, left): (u64, u64)| {
        let (x, y) = (ns as f64 / 1e6, left as f64 * 100.0 / all.max(1) as f64);
        Point { x, y, low: y, high: y }
    };
    points.into_iter().filter(|(ns, left)| *ns > 0 && *left > 0).map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_falls_from_all_to_what_is_slowest() {
        let points = longer(&[[1_000_000, 2_000_000, 90], [8_000_000, 9_000_000, 10]]);
        let told: Vec<(f64, f64)> = points.iter().map(|p| (p.x, p.y)).collect();
        assert_eq!(told, [(1.0, 100.0), (2.0, 10.0)]);
        assert!(longer(&[]).is_empty());
    }
}
