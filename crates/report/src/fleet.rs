//! Prints all containers of a fleet, those first whose limit costs most.

use crate::escape::line;
use crate::page::Page;
use crate::predicted::{Ranges, ranged, ranged_cpus};
use crate::style::{BOLD, DIM, styled};
use crate::table::list;
use cpumax_observed::{fitted::Costs, fleet::InFleet};
use std::fmt::Write;

/// A sentence, the table, and the reasons of those that are not told. `throttled` is the goal, per
/// cent of periods.
pub fn fleet_text(all: &[InFleet], throttled: Option<f64>, page: Page) -> String {
    let mut out = String::new();
    let told: Vec<&InFleet> = all.iter().filter(|one| one.counted.is_some()).collect();
    let count = |costs| all.iter().filter(|one| costs_of(one) == Some(costs)).count();
    let (costly, free) = (count(Costs::Latency), count(Costs::Nothing));
    let unneeded: u64 = all.iter().filter_map(|one| one.unneeded_millicpus).sum();
    let above = throttled.map_or("that use".to_owned(), |most| {
        format!("the limits that throttle at most {most} % of periods")
    });
    let first = format!(
        "Throttling costs latency in {costly} of {} containers, nothing in {free}; of {} counters \
         do not tell. Limits give {:.1} CPUs above {above}.",
        all.len(),
        all.len() - costly - free,
        unneeded as f64 / 1e3
    );
    let _ = writeln!(out, "{}", styled(BOLD, page.wrapped(&first)));
    let mut header = vec!["container", "limit", "CPUs", "throttled\nperiods, %"];
    header.extend(["p99, times that\nwithout a limit", "unneeded"]);
    header.extend(throttled.map(|_| "enough"));
    let rows = told.iter().map(|one| row(one, throttled.is_some()));
    if !told.is_empty() {
        let _ = writeln!(out, "\n{}", list(&header, rows, page.width()));
    }
    for one in all {
        if let Some(why) = &one.why_not {
            let _ =
                writeln!(out, "{}", page.wrapped(&format!("{}: {}", line(&one.name()), line(why))));
        }
    }
    let legend = "From counters: ranges hold 9 of 10. Without --all, each container's labels ask \
                  for its own table.";
    let _ = writeln!(out, "{}", styled(DIM, page.wrapped(legend)));
    out
}

fn costs_of(one: &InFleet) -> Option<Costs> {
    one.counted.as_ref()?.fit.as_ref().map(|fit| fit.costs)
}

fn row(one: &InFleet, has_goal: bool) -> Vec<String> {
    let none = || "-".to_owned();
    let millicpus = |number: Option<u64>| number.map_or_else(none, |number| format!("{number}m"));
    let Some(told) = &one.counted else { return Vec::new() };
    let share = told.throttled_percent.map_or_else(none, |share| ranged(share, Ranges::Beside));
    let times = match (one.costs_times, costs_of(one)) {
        (Some(times), _) => format!("{times:.1}"),
        (None, Some(Costs::Nothing)) => "1".to_owned(),
        (None, _) => "not told".to_owned(),
    };
    let limit = told.cpu_max.as_deref().unwrap_or("not told").to_owned();
    let mut cells =
        vec![line(&one.name()).into_owned(), limit, ranged_cpus(told.cpus), share, times];
    cells.push(millicpus(one.unneeded_millicpus));
    cells.extend(has_goal.then(|| millicpus(told.enough)));
    cells
}
