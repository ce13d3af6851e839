//! Prints services that were fitted to counters: limits, p99, and other kernels.

use crate::page::Page;
use crate::predicted::{Ranges, ranged, ranged_cpus};
use crate::table::list;
use cpumax_observed::fitted::{Costs, Fit, FittedLimit};
use cpumax_study::Ranged;
use std::fmt::Write;

/// The table of limits with its notes, and that of other kernels.
pub fn fit_text(fit: &Fit, page: Page) -> String {
    let mut out = String::new();
    let costs = match fit.costs {
        Costs::Nothing => {
            "Throttling costs you nothing here: without a limit p99 would hardly be less."
        }
        Costs::Latency => "Throttling costs latency here: without a limit p99 would be less.",
        Costs::Unsure => {
            "Whether throttling costs latency here cannot be told from these counters."
        }
    };
    let _ = writeln!(out, "{}", page.wrapped(costs));
    let in_ms = fit.p99_now_ns.is_some();
    let p99 = if in_ms { "p99, ms" } else { "p99, times\nthat of now" };
    let header = ["limit", "CPUs", "throttled\nperiods, %", "throttled,\ns in a s", p99];
    let rows = fit.limits.iter().map(|limit| row(limit, in_ms));
    let _ = writeln!(out, "\n{}", list(&header, rows, page.width()));
    let which = if fit.is_kernel_told {
        format!("on {}", fit.kernel)
    } else {
        format!("on {}, as the node's kernel is not told: give it by --kernel", fit.kernel)
    };
    let from = format!(
        "From counters: of {} services, the {:.0} that reproduce what was counted, {which}; ranges \
         hold 9 of 10; the row of now is measured. p99 below the present limit cannot be told \
         from counters: record the service (`cpumax record`), or ask `cpumax replay` with a \
         recording.",
        fit.drawn, fit.effective
    );
    let _ = writeln!(out, "{}", page.wrapped(&from));
    if !fit.on_kernels.is_empty() {
        let header = ["kernel", "CPUs", "throttled periods, %", "throttled, s in a s"];
        let rows = fit.on_kernels.iter().map(|on| {
            let share = ranged(on.throttled_percent, Ranges::Beside);
            let time = ranged(on.throttled_seconds, Ranges::Beside);
            vec![on.kernel.clone(), ranged_cpus(on.cpus), share, time]
        });
        let _ = writeln!(out, "\nThe present limit on other kernels:");
        let _ = writeln!(out, "{}", list(&header, rows, page.width()));
    }
    out
}

fn row(limit: &FittedLimit, in_ms: bool) -> Vec<String> {
    let cell = |number: Option<Ranged<f64>>| {
        number.map_or("-".to_owned(), |number| ranged(number, Ranges::Beside))
    };
    let ms = limit.p99_ns.map(|ns| Ranged {
        value: ns.value / 1e6,
        low: ns.low / 1e6,
        high: ns.high / 1e6,
    });
    let name = limit.millicpus.map_or("none".to_owned(), |millicpus| format!("{millicpus}m"));
    vec![
        if limit.is_present { format!("{name} now") } else { name },
        ranged_cpus(limit.cpus),
        cell(Some(limit.throttled_percent)),
        cell(limit.throttled_seconds),
        cell(if in_ms { ms } else { limit.p99_times }),
    ]
}
