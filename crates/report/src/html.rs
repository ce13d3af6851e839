//! Studies as one self-contained HTML page: the answer first, then plots, the table, what was
//! recorded, doubts, and the commands that reproduce it.
//!
//! Selection and zoom use CSS only, so the page can be printed, attached to a ticket and read
//! aloud. The only script tells the numbers of figures under the pointer, and opens an excerpt in
//! the Perfetto UI when a button is pressed. The page is made from the saved JSON.

mod beside;
mod figures;
mod plot;
mod script;
mod stretch;
mod words;

use crate::escape::{self, xml};
use crate::page::Page;
use crate::predicted::{PredictedRow, Ranged, Ranges, ranged};
use crate::replay::row;
use cpumax_forecast::{advise::Role, saved::Saved, stretch::RunTrace};
use figures::Figures;
use std::fmt::Write;

/// Style of all pages, CSS.
pub const STYLE: &str = include_str!("html/style.css");

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
    let _ = writeln!(out, "<script>{}</script>\n</body>\n</html>", script::SCRIPT);
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

struct Section<'a> {
    prefix: char,
    named: &'a Named,
    figures: Figures<'a>,
}

impl<'a> Section<'a> {
    fn of((at, named): (usize, &'a Named)) -> Section<'a> {
        let prefix = char::from(b'a' + (at % 26) as u8);
        Section { prefix, named, figures: Figures::of(prefix, &named.study) }
    }

    fn write_rules(&self, out: &mut String) {
        self.figures.write_rules(out);
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

    fn write(&self, out: &mut String, several: bool) {
        let study = &self.named.study;
        let heading = if several { self.named.name.as_str() } else { "The answer" };
        let _ = writeln!(out, "<h2 id=\"{}-h\">{}</h2>", self.prefix, xml(heading));
        let _ = writeln!(out, "<p class=\"answer\">{}</p>", xml(&words::answer(study)));
        for line in words::lacks(study) {
            let _ = writeln!(out, "<p>{}</p>", xml(&line));
        }
        self.figures.write(out);
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
