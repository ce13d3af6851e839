//! Tables of runs: one row for each kernel, in blocks for groups, kinds of task or limits.
//!
//! A table wider than the given width wraps its cells; without a width every cell keeps one line.

use crate::escape::line;
use crate::units::{cpus, duration, percent};
use comfy_table::{
    Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, TableComponent, presets,
};
use cpumax_outcome::{GroupOutcome, Outcome, Percentiles, TaskOutcome};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Most groups or kinds of task in a table; the JSON form has all.
const BLOCKS_SHOWN: usize = 8;

/// A group's quota and period, for the column that compares with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Runtime per period, ns, more than 0.
    pub quota_ns: u64,
    /// Length of a period, ns.
    pub period_ns: u64,
}

/// Use and throttling of the groups in `quotas`, or of all groups if runs have none of those. The
/// value `None` marks a quota that changes during the run. Returns `None` when there are no groups.
pub fn groups(
    runs: &[Outcome],
    quotas: &BTreeMap<String, Option<Quota>>,
    width: Option<u16>,
) -> Option<String> {
    let mut paths: BTreeSet<&str> =
        names(runs, |run| run.groups.keys().map(String::as_str).collect());
    if paths.iter().any(|path| quotas.contains_key(*path)) {
        paths.retain(|path| quotas.contains_key(*path));
    }
    let labels = Labels::new("group", paths.len(), runs);
    let columns = ["CPUs", "of quota", "throttled\nperiods", "\nfor", "most in\na period"];
    let mut table = labels.table(&columns, width);
    for path in paths.iter().take(BLOCKS_SHOWN) {
        let known = runs.iter().filter_map(|run| Some((run, run.groups.get(*path)?)));
        for (index, (run, group)) in known.enumerate() {
            let cells = group_cells(group, run, quotas.get(*path).and_then(Option::as_ref));
            table.add_row(labels.row(path, index == 0, run, cells));
        }
    }
    finish(&table, paths.len(), "groups")
}

fn group_cells(group: &GroupOutcome, run: &Outcome, quota: Option<&Quota>) -> Vec<String> {
    let busy = ratio(group.usage_usec as f64 * 1e3, run.simulated_ns as f64);
    let of_quota =
        quota.and_then(|quota| Some(busy? * ratio(quota.period_ns as f64, quota.quota_ns as f64)?));
    vec![
        cell(busy, cpus),
        cell(of_quota, percent),
        throttled_periods(group),
        duration(group.throttled_usec.saturating_mul(1000)),
        most_in_a_period(group),
    ]
}

/// A dash for a real kernel, which does not report it.
fn most_in_a_period(group: &GroupOutcome) -> String {
    if group.max_period_usage_usec == 0 && group.usage_usec > 0 {
        return "-".to_owned();
    }
    duration(group.max_period_usage_usec.saturating_mul(1000))
}

/// `99% of 100`; a dash if no period passed.
fn throttled_periods(group: &GroupOutcome) -> String {
    let share = ratio(group.nr_throttled as f64, group.nr_periods as f64);
    cell(share, |share| format!("{} of {}", percent(share), group.nr_periods))
}

/// CPU use, latencies and longest stalls of the tasks. `None` when there are no tasks.
pub fn tasks(runs: &[Outcome], width: Option<u16>) -> Option<String> {
    let kinds = names(runs, |run| {
        run.tasks.iter().filter(|(_, task)| task.count > 0).map(|(name, _)| name.as_str()).collect()
    });
    let asked = |task: &TaskOutcome| task.completions > 0 || task.under_way > 0;
    let requests = runs.iter().flat_map(|run| run.tasks.values()).any(asked);
    let labels = Labels::new("task", kinds.len(), runs);
    let mut columns = vec!["CPUs"];
    if requests {
        columns.extend(["requests\ndone", "latency\np50", "\np99", "\nmax"]);
    }
    columns.push("longest\nstall");
    let mut table = labels.table(&columns, width);
    for kind in kinds.iter().take(BLOCKS_SHOWN) {
        let known = runs.iter().filter_map(|run| Some((run, run.tasks.get(*kind)?)));
        for (index, (run, task)) in known.enumerate() {
            let cells = task_cells(task, run, requests);
            table.add_row(labels.row(kind, index == 0, run, cells));
        }
    }
    finish(&table, kinds.len(), "kinds of task")
}

fn task_cells(task: &TaskOutcome, run: &Outcome, requests: bool) -> Vec<String> {
    let mut cells = vec![cell(ratio(task.usage_usec as f64 * 1e3, run.simulated_ns as f64), cpus)];
    if requests {
        cells.push(task.completions.to_string());
        cells.extend(latency_cells(task));
    }
    cells.push(duration(task.longest_stall_ns));
    cells
}

/// A `>` stands before a maximum that belongs to a request still under way.
fn latency_cells(task: &TaskOutcome) -> [String; 3] {
    let Percentiles { p50, p99, max } = task.latency_ns;
    let done = |ns| cell((task.completions > 0).then_some(ns), duration);
    let is_under_way = task.under_way > 0 && task.longest_under_way_ns == max;
    let max = if is_under_way { format!(">{}", duration(max)) } else { done(max) };
    [done(p50), done(p99), max]
}

/// A table of texts; in one that is too wide, the widest column is broken into lines.
pub fn list(
    header: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
    width: Option<u16>,
) -> String {
    let shown = |row: Vec<String>| row.iter().map(|cell| line(cell).into_owned()).collect();
    let rows: Vec<Vec<String>> = rows.into_iter().map(shown).collect();
    let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
    let widest = |column: &usize| cells(*column).map(|cell| cell.chars().count()).max();
    let widest = (0..header.len()).max_by_key(widest).unwrap_or(0);
    let mut table = new_table(header, header.len(), widest, width);
    table.add_rows(rows);
    text(&table)
}

/// Leading columns of a table of runs: subject, kernel, and seed if seeds differ.
struct Labels {
    subject: Option<&'static str>,
    seeds: bool,
}

impl Labels {
    fn new(subject: &'static str, subjects: usize, runs: &[Outcome]) -> Labels {
        let seeds = runs.windows(2).any(|pair| pair[0].seed != pair[1].seed);
        Labels { subject: (subjects > 0).then_some(subject), seeds }
    }

    fn table(&self, columns: &[&str], width: Option<u16>) -> Table {
        let mut header: Vec<&str> = self.subject.into_iter().collect();
        header.push("kernel");
        header.extend(self.seeds.then_some("seed"));
        let labels = header.len();
        header.extend(columns);
        new_table(&header, labels, 0, width)
    }

    fn row(&self, subject: &str, first: bool, run: &Outcome, cells: Vec<String>) -> Vec<String> {
        let mut row = Vec::new();
        if self.subject.is_some() {
            row.push(if first { line(subject).into_owned() } else { String::new() });
        }
        row.push(format!("{} {}", run.kernel, run.generation));
        row.extend(self.seeds.then(|| run.seed.to_string()));
        row.extend(cells);
        row
    }
}

/// A table with only a line under the header. The first `labels` columns are aligned left, the
/// others right. Column `name` may be broken into lines.
pub(crate) fn new_table(header: &[&str], labels: usize, name: usize, width: Option<u16>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_style(TableComponent::HeaderLines, '-');
    table.set_style(TableComponent::MiddleHeaderIntersections, '-');
    table.set_header(header.iter().enumerate().map(|(index, name)| {
        let align = if index < labels { CellAlignment::Left } else { CellAlignment::Right };
        Cell::new(name).set_alignment(align)
    }));
    for (index, column) in table.column_iter_mut().enumerate() {
        let last = index + 1 == header.len();
        // The line under the header fills one blank between columns.
        column.set_padding((0, u16::from(!last)));
        if index != name {
            // Only names are broken into lines.
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
        column.set_cell_alignment(if index < labels {
            CellAlignment::Left
        } else {
            CellAlignment::Right
        });
    }
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(width);
    }
    table
}

fn finish(table: &Table, blocks: usize, what: &str) -> Option<String> {
    if blocks == 0 {
        return None;
    }
    let mut shown = text(table);
    if blocks > BLOCKS_SHOWN {
        let _ = writeln!(shown, "and {} more {what}: see --json", blocks - BLOCKS_SHOWN);
    }
    Some(shown)
}

/// The table as text, without blanks at line ends.
pub(crate) fn text(table: &Table) -> String {
    let mut lines = table.trim_fmt();
    lines.push('\n');
    lines
}

fn names<'a>(runs: &'a [Outcome], of: impl Fn(&'a Outcome) -> Vec<&'a str>) -> BTreeSet<&'a str> {
    runs.iter().flat_map(of).collect()
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// A dash stands for a missing value.
pub(crate) fn cell<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(kernel: &str, seed: u64) -> Outcome {
        let mut run = Outcome {
            scenario: "s".to_owned(),
            world: "model".to_owned(),
            kernel: kernel.to_owned(),
            generation: "G3".to_owned(),
            seed,
            simulated_ns: 10_000_000_000,
            groups: BTreeMap::new(),
            tasks: BTreeMap::new(),
            release: cpumax_outcome::ReleaseOutcome::default(),
            events: 0,
        };
        let limited = GroupOutcome {
            usage_usec: 2_000_000,
            nr_periods: 100,
            nr_throttled: 99,
            throttled_usec: 8_000_000,
            max_period_usage_usec: 24_000,
            ..GroupOutcome::default()
        };
        run.groups.insert("/limited".to_owned(), limited);
        run.groups.insert("/free".to_owned(), GroupOutcome::default());
        let latency_ns = Percentiles { p50: 1_500_000, p99: 80_000_000, max: 81_234_567 };
        let server =
            TaskOutcome { count: 2, completions: 500, latency_ns, ..TaskOutcome::default() };
        run.tasks.insert("server".to_owned(), server);
        run.tasks.insert("never".to_owned(), TaskOutcome::default());
        run
    }

    fn quotas() -> BTreeMap<String, Option<Quota>> {
        let quota = Quota { quota_ns: 20_000_000, period_ns: 100_000_000 };
        BTreeMap::from([("/limited".to_owned(), Some(quota))])
    }

    #[test]
    fn only_limited_groups_are_shown_with_their_share_of_the_quota() {
        let text = groups(&[run("5.4", 1), run("6.18", 1)], &quotas(), None).unwrap();
        let expected = "\
group     kernel   CPUs  of quota   throttled        most in
                                      periods  for  a period
------------------------------------------------------------
/limited  5.4 G3    0.2      100%  99% of 100   8s      24ms
          6.18 G3   0.2      100%  99% of 100   8s      24ms
";
        assert_eq!(text, expected);
    }

    #[test]
    fn without_quotas_all_groups_are_shown() {
        let text = groups(&[run("5.4", 1)], &BTreeMap::new(), None).unwrap();
        assert!(text.contains("/free") && text.contains("/limited"), "{text}");
        let mut bare = run("5.4", 1);
        bare.groups.clear();
        assert_eq!(groups(&[bare], &quotas(), None), None);
    }

    #[test]
    fn tasks_that_never_were_are_left_out_and_seeds_shown_where_they_differ() {
        let text = tasks(&[run("6.18", 1), run("6.18", 2)], None).unwrap();
        let expected = "\
task    kernel   seed  CPUs  requests  latency                longest
                                 done      p50   p99     max    stall
---------------------------------------------------------------------
server  6.18 G3  1        0       500    1.5ms  80ms  81.2ms        0
        6.18 G3  2        0       500    1.5ms  80ms  81.2ms        0
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_request_that_never_ends_is_the_longest() {
        let mut run = run("6.12", 1);
        let server = run.tasks.get_mut("server").unwrap();
        (server.under_way, server.longest_under_way_ns) = (1, 108_000_000_000);
        server.latency_ns.max = 108_000_000_000;
        let text = tasks(std::slice::from_ref(&run), None).unwrap();
        assert!(text.contains("1.5ms  80ms  >108s"), "{text}");
        let server = run.tasks.get_mut("server").unwrap();
        (server.completions, server.latency_ns) = (0, Percentiles { max: 9, ..server.latency_ns });
        server.longest_under_way_ns = 9;
        let text = tasks(&[run], None).unwrap();
        assert!(text.contains("        -    -  >9ns"), "{text}");
    }

    #[test]
    fn a_list_breaks_its_last_column_between_words() {
        let rows = vec![vec!["5.4".to_owned(), "slices no longer expire at the edge".to_owned()]];
        let expected = "\
kernel  what changed
-----------------------
5.4     slices no
        longer expire
        at the edge
";
        assert_eq!(list(&["kernel", "what changed"], rows, Some(23)), expected);
    }

    #[test]
    fn many_groups_end_in_a_count() {
        let mut run = run("6.18", 1);
        for index in 0..10 {
            run.groups.insert(format!("/g{index}"), GroupOutcome::default());
        }
        let text = groups(&[run], &BTreeMap::new(), None).unwrap();
        assert!(text.ends_with("and 4 more groups: see --json\n"), "{text}");
    }

    #[test]
    fn names_are_shown_and_do_nothing() {
        let row = vec!["a\u{1b}[2Jb\nc\u{202e}".to_owned()];
        let text = list(&["name"], [row], None);
        assert!(text.contains("a\\u{1b}[2Jb\\nc\\u{202e}"), "{text}");
    }
}
