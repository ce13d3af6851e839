//! Excerpts of a run as threads against time, and which thread waited for which. Height and colour
//! of a bar show the state of a thread; a sentence and a table say the same in text.

use super::script::packed;
use crate::chrome::{state_name, write_stretch};
use crate::escape::xml;
use crate::units::duration;
use cpumax_forecast::stretch::{Does, RunTrace, Stretch, Thread, Wait, Why};
use std::fmt::Write;

/// Heights of a thread's lane and of the runtime's lane, pixels.
const LANE: u64 = 20;
const RUNTIME: u64 = 60;
/// Horizontal resolution of a drawing.
const STEPS: u64 = 2_000;
/// Most ticks on the time axis.
const TICKS: u64 = 10;
/// Factors by which a drawing can be widened.
const ZOOMS: [u64; 4] = [1, 2, 4, 8];

/// Labels of a run; `id` is for elements, and begins with a letter.
pub(super) struct Of<'a> {
    pub id: String,
    /// Limit and kernel.
    pub label: String,
    pub group: &'a str,
    /// Singular of what has latencies: request or burst.
    pub unit: &'a str,
}

/// Writes all excerpts and the table of waits.
pub(super) fn write(out: &mut String, of: &Of<'_>, trace: &RunTrace) {
    let _ = writeln!(out, "<h3>Thread by thread: {}</h3>", xml(&of.label));
    if !trace.stretches.is_empty() {
        write_zooms(out, &of.id);
        write_legend(out);
    }
    for (at, stretch) in trace.stretches.iter().enumerate() {
        write_figure(out, of, &format!("{}-{at}", of.id), stretch);
    }
    write_waits(out, of, trace);
}

/// Writes radio buttons for the width of plots of a class.
pub(super) fn write_zooms(out: &mut String, id: &str) {
    out.push_str("<fieldset><legend>Width</legend>");
    for zoom in ZOOMS {
        let checked = if zoom == 1 { " checked" } else { "" };
        let _ = write!(
            out,
            "<label><input type=\"radio\" name=\"{id}-z\" id=\"{id}-z{zoom}\"{checked}> \
             {zoom}×</label>"
        );
    }
    out.push_str("</fieldset>\n");
}

/// Writes the CSS rules of these radio buttons.
pub(super) fn write_zoom_rules(out: &mut String, id: &str) {
    for zoom in &ZOOMS[1..] {
        let width = zoom * 100;
        let _ = writeln!(
            out,
            "body:has(#{id}-z{zoom}:checked) .{id}-w {{ width: {width}%; max-width: none; }}"
        );
    }
}

fn write_legend(out: &mut String) {
    out.push_str("<p class=\"keys\">");
    for does in &Does::ALL[1..] {
        let (top, height) = bar(*does);
        let _ = write!(
            out,
            "<span><svg class=\"key d{}\" viewBox=\"0 0 14 {LANE}\" aria-hidden=\"true\">\
             <rect x=\"0\" y=\"{top}\" width=\"14\" height=\"{height}\"/></svg> {}</span> ",
            *does as u64,
            state_name(*does)
        );
    }
    out.push_str("<span>│ a period begins</span></p>\n");
}

/// Top and height of a state's bar in its lane.
fn bar(does: Does) -> (u64, u64) {
    match does {
        Does::Sleeps => (LANE, 0),
        Does::Runs => (3, 14),
        Does::Ready => (9, 2),
        Does::Stopped => (6, 8),
        Does::WaitsForLock => (8, 4),
    }
}

/// Time of a thread in each state between `from_ns` and `until_ns`, ns.
fn times(stretch: &Stretch, thread: &Thread, from_ns: u64, until_ns: u64) -> [u64; 5] {
    let mut times = [0; 5];
    for (from, until, does) in thread.pieces(stretch.until_ns.saturating_sub(stretch.from_ns)) {
        times[does as usize] += until.min(until_ns).saturating_sub(from.max(from_ns));
    }
    times
}

/// The states of the completing thread during the request, in a sentence or two.
fn sentence(of: &Of<'_>, stretch: &Stretch) -> String {
    let which = match stretch.of {
        Why::Worst => format!("The longest of all {}s took {}", of.unit, duration(stretch.took_ns)),
        Why::Typical => format!("A usual {} took {}", of.unit, duration(stretch.took_ns)),
    };
    let done_ns = stretch.done_ns.saturating_sub(stretch.from_ns);
    let begun_ns = done_ns.saturating_sub(stretch.took_ns);
    let Some(thread) = stretch.threads.iter().find(|thread| thread.name == stretch.by) else {
        return format!("{which}.");
    };
    let times = times(stretch, thread, begun_ns, done_ns);
    let told: Vec<String> = Does::ALL[1..]
        .iter()
        .filter(|does| times[**does as usize] > 0)
        .map(|does| format!("{} for {}", state_name(*does), duration(times[*does as usize])))
        .collect();
    let did = if told.is_empty() { "asleep all the time".to_owned() } else { told.join(", ") };
    format!("{which}. Meanwhile {}, which completed it, was {did}.", thread.name)
}

fn write_figure(out: &mut String, of: &Of<'_>, id: &str, stretch: &Stretch) {
    let told = sentence(of, stretch);
    let left_out = match stretch.threads_left_out {
        0 => String::new(),
        1 => " 1 more thread did less.".to_owned(),
        more => format!(" {more} more threads did less."),
    };
    let from =
        format!("The picture begins {} after the start of the run.", duration(stretch.from_ns));
    let _ = writeln!(
        out,
        "<figure><figcaption>{} {from}{left_out}</figcaption>\n\
         <div class=\"stretch\"><ul class=\"names\" aria-hidden=\"true\">",
        xml(&told)
    );
    for thread in &stretch.threads {
        let _ = write!(out, "<li>{}</li>", xml(&thread.name));
    }
    let most_usec = stretch.runtime.iter().map(|[_, usec]| *usec).max().unwrap_or(0);
    let most = duration(most_usec.saturating_mul(1_000));
    let _ = write!(
        out,
        "<li class=\"runtime\">runtime left, of {most}</li></ul>\n\
         <div class=\"scroll\" role=\"group\" aria-label=\"Threads against time\" tabindex=\"0\">\
         <div class=\"{}-w\">",
        of.id
    );
    write_drawing(out, id, &told, stretch, most_usec);
    write_ticks(out, stretch);
    out.push_str("</div></div></div></figure>\n");
    write_numbers(out, of, stretch);
    write_button(out, of, id, stretch);
}

/// Maps times of an excerpt of this length, ns, to horizontal steps.
struct Steps(u64);

impl Steps {
    fn of(&self, ns: u64) -> u64 {
        (u128::from(ns) * u128::from(STEPS) / u128::from(self.0.max(1))).min(STEPS.into()) as u64
    }

    fn after(&self, ns: u64) -> u64 {
        (self.of(ns) + 1).min(STEPS)
    }
}

fn write_drawing(out: &mut String, id: &str, told: &str, stretch: &Stretch, most_usec: u64) {
    let length_ns = stretch.until_ns.saturating_sub(stretch.from_ns);
    let steps = Steps(length_ns);
    let lanes = LANE * stretch.threads.len() as u64;
    let height = lanes + RUNTIME;
    let _ = writeln!(
        out,
        "<svg class=\"lanes\" viewBox=\"0 0 {STEPS} {height}\" style=\"height:{height}px\" \
         preserveAspectRatio=\"none\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\">\
         <title id=\"{id}-t\">Threads against time</title><desc id=\"{id}-d\">{} The table below \
         has how long each thread did what.</desc>",
        xml(told)
    );
    let done_ns = stretch.done_ns.saturating_sub(stretch.from_ns);
    let begun = steps.of(done_ns.saturating_sub(stretch.took_ns));
    let width = steps.after(done_ns).saturating_sub(begun);
    let _ = writeln!(
        out,
        "<rect class=\"request\" x=\"{begun}\" y=\"0\" width=\"{width}\" height=\"{LANE}\"/>"
    );
    for (lane, thread) in (0_u64..).zip(&stretch.threads) {
        let mut paths: [String; 5] = Default::default();
        let mut drawn = 0;
        for (from_ns, until_ns, does) in thread.pieces(length_ns) {
            // A piece shorter than a step gets one step, unless that is taken.
            let (from, until) = (steps.of(from_ns).max(drawn), steps.after(until_ns - 1));
            if from >= until {
                continue;
            }
            drawn = until;
            let (top, height) = bar(does);
            let (top, width) = (lane * LANE + top, until - from);
            let _ = write!(paths[does as usize], "M{from} {top}h{width}v{height}h-{width}z");
        }
        for (does, path) in paths.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
            let _ = writeln!(out, "<path class=\"d{does}\" d=\"{path}\"/>");
        }
    }
    for at_ns in &stretch.periods_ns {
        let at = steps.of(*at_ns);
        let _ = write!(out, "<path class=\"edge\" d=\"M{at} 0v{height}\"/>");
    }
    let level = |usec: u64| height - usec * (RUNTIME - 6) / most_usec.max(1);
    let mut path = format!("M0 {height}");
    for [at_ns, usec] in &stretch.runtime {
        let _ = write!(path, "H{}V{}", steps.of(*at_ns), level(*usec));
    }
    let _ = writeln!(out, "<path class=\"left\" d=\"{path}H{STEPS}V{height}z\"/>\n</svg>");
}

/// Writes the time axis, in round milliseconds.
fn write_ticks(out: &mut String, stretch: &Stretch) {
    let length_ns = stretch.until_ns.saturating_sub(stretch.from_ns).max(1);
    let steps = (0..20).flat_map(|power| [1, 2, 5].map(|step| step * 10_u64.pow(power / 2)));
    let mut steps = steps.map(|step| step * 100_000);
    let step_ns = steps.find(|step_ns| length_ns / step_ns <= TICKS).unwrap_or(length_ns);
    out.push_str("<div class=\"ticks\" aria-hidden=\"true\">");
    for tick in 0..=length_ns / step_ns {
        let at_ns = tick * step_ns;
        let share = at_ns as f64 * 100.0 / length_ns as f64;
        // A last tick would stick out on the right.
        if share < 97.0 {
            let ms = at_ns as f64 / 1e6;
            let unit = if tick == 0 { " ms" } else { "" };
            let _ = write!(out, "<span style=\"left:{share:.2}%\">{ms}{unit}</span>");
        }
    }
    out.push_str("</div>");
}

/// Writes a table with the time of each thread in each state.
fn write_numbers(out: &mut String, of: &Of<'_>, stretch: &Stretch) {
    let which = match stretch.of {
        Why::Worst => "longest",
        Why::Typical => "usual",
    };
    let _ = write!(
        out,
        "<details><summary>How long each thread did what in these {}</summary>\
         <div class=\"scroll\" role=\"region\" aria-label=\"Threads of {}, {which}\" \
         tabindex=\"0\"><table><thead><tr><th scope=\"col\">thread</th>",
        duration(stretch.until_ns.saturating_sub(stretch.from_ns)),
        xml(&of.label)
    );
    for does in &Does::ALL[1..] {
        let _ = write!(out, "<th scope=\"col\">{}, ms</th>", state_name(*does));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for thread in &stretch.threads {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", xml(&thread.name));
        for ns in &times(stretch, thread, 0, u64::MAX)[1..] {
            let _ = write!(out, "<td>{:.1}</td>", *ns as f64 / 1e6);
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div></details>\n");
}

/// Writes the button that opens the excerpt in the Perfetto UI. It stays hidden without the script.
fn write_button(out: &mut String, of: &Of<'_>, id: &str, stretch: &Stretch) {
    // Writing into memory does not fail.
    let Ok(trace) = write_stretch(stretch, of.group, Vec::new()) else { return };
    let _ = writeln!(
        out,
        "<p class=\"elsewhere\"><button type=\"button\" hidden data-trace=\"{id}-p\" \
         data-title=\"{}\">Open in the Perfetto UI</button> <span class=\"faint\">loads \
         ui.perfetto.dev in a new tab and hands it this stretch: what its threads did when, and \
         their names. It stays in your browser, and without the button nothing is loaded.</span> \
         <span id=\"{id}-p-told\" role=\"status\"></span></p>\n\
         <script type=\"text/plain\" id=\"{id}-p\">{}</script>",
        xml(&of.label),
        packed(&trace)
    );
}

fn write_waits(out: &mut String, of: &Of<'_>, trace: &RunTrace) {
    if trace.waits.is_empty() {
        out.push_str("<p>Nobody waited for a thread that the limit had stopped.</p>\n");
        return;
    }
    let _ = write!(
        out,
        "<div class=\"scroll\" role=\"region\" aria-labelledby=\"{0}-who\" tabindex=\"0\"><table>\n\
         <caption id=\"{0}-who\">Who waited for whom, while the limit had stopped that one: all of \
         the run, {1}",
        of.id,
        xml(&of.label)
    );
    if trace.waits_left_out > 0 {
        let _ = write!(out, "; {} more waited less", trace.waits_left_out);
    }
    out.push_str("</caption>\n<thead><tr>");
    let heads = [
        "who waited",
        "for whom",
        "for what",
        "times",
        "in all, ms",
        "while it was stopped, ms",
        "longest, ms",
    ];
    for head in heads {
        let _ = write!(out, "<th scope=\"col\">{head}</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for wait in &trace.waits {
        let Wait { waiter, lock, holder, times, total_ns, stopped_ns, longest_ns } = wait;
        let [total, stopped, longest] =
            [total_ns, stopped_ns, longest_ns].map(|ns| format!("{:.1}", *ns as f64 / 1e6));
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td class=\"text\">{}</td><td class=\"text\">{}</td>\
             <td>{times}</td><td>{total}</td><td>{stopped}</td><td>{longest}</td></tr>",
            xml(waiter),
            xml(holder),
            xml(lock.as_deref().unwrap_or("to be woken"))
        );
    }
    out.push_str("</tbody></table></div>\n");
}
