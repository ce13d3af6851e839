//! The what-if table: each limit on each kernel in one line, every number with its range.

use crate::escape::line;
use crate::table::{cell, new_table, text};
use crate::units::{cpus, duration};
use cpumax_forecast::predict::Over;

pub(crate) type Ranged = cpumax_study::Ranged<f64>;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PredictedRow {
    /// Limit for the first column; rows of one limit are adjacent.
    pub limit: String,
    /// Kernel version.
    pub kernel: String,
    /// Kind of thread, for a row below that of its kernel.
    pub thread: Option<String>,
    /// CPUs kept busy by the limited threads while they had load.
    pub cpus: Option<Ranged>,
    /// Share of throttled periods, per cent.
    pub throttled_percent: Option<Ranged>,
    /// Median and 99th percentile of latencies, ms.
    pub latency_ms: [Option<Ranged>; 2],
    /// Share of latencies above a bound, per cent.
    pub over: Option<Over<Ranged>>,
    /// Requests answered a second.
    pub requests_per_second: Option<Ranged>,
    /// Time that the recorded work takes, s.
    pub takes_s: Option<Ranged>,
    /// Whether the numbers are unreliable.
    pub doubtful: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ranges {
    /// In brackets behind the number: `49.7 (42..57)`.
    Beside,
    /// On a line of its own below the number.
    Below,
}

/// The table, and where its ranges stand: below their numbers if the table would otherwise be wider
/// than `width`. `unit` is what has latencies.
pub(crate) fn predicted(rows: &[PredictedRow], unit: &str, width: u16) -> (String, Ranges) {
    let beside = table(rows, unit, Ranges::Beside, None);
    if beside.lines().all(|line| line.chars().count() <= usize::from(width)) {
        return (beside, Ranges::Beside);
    }
    (table(rows, unit, Ranges::Below, Some(width)), Ranges::Below)
}

fn table(rows: &[PredictedRow], unit: &str, ranges: Ranges, width: Option<u16>) -> String {
    let first_kernel = rows.iter().map(|row| &row.kernel).find(|kernel| !kernel.is_empty());
    let one_kernel =
        rows.iter().all(|row| row.kernel.is_empty() || Some(&row.kernel) == first_kernel);
    let by_thread = rows.iter().any(|row| row.thread.is_some());
    let with_kernels = !one_kernel || by_thread;
    let rates = rows.iter().any(|row| row.requests_per_second.is_some());
    let takes = rows.iter().any(|row| row.takes_s.is_some());
    let p50 = format!("{unit}\np50, ms");
    let mut header = vec!["limit\n(ms)"];
    if with_kernels {
        header.push(if by_thread { "kernel,\nthreads" } else { "kernel" });
    }
    let labels = header.len();
    header.extend(["CPUs", "throttled\nperiods, %", &p50, "\np99, ms"]);
    let than = rows.iter().find_map(|row| row.over).map(|over| duration(over.than_ns));
    let over = than.map(|than| format!("over\n{than}, %"));
    header.extend(over.as_deref());
    if rates {
        header.push("answered\na second");
    }
    if takes {
        header.push("work takes,\ns");
    }
    let mut table = new_table(&header, labels, 0, width);
    // Only names may be broken into lines.
    for column in table.column_iter_mut().take(labels) {
        column.remove_constraint();
    }
    let mut previous: Option<&PredictedRow> = None;
    for row in rows {
        let same = previous.is_some_and(|previous| previous.limit == row.limit);
        let mut cells = vec![if same { String::new() } else { row.limit.clone() }];
        if with_kernels {
            cells.push(
                row.thread.as_ref().map_or(row.kernel.clone(), |name| format!("  {}", line(name))),
            );
        }
        let mut numbers = vec![row.cpus, row.throttled_percent];
        numbers.extend(row.latency_ms);
        numbers.extend(over.is_some().then_some(row.over.map(|over| over.percent)));
        numbers.extend(rates.then_some(row.requests_per_second));
        numbers.extend(takes.then_some(row.takes_s));
        let number = |number| cell(number, |number| ranged(number, ranges));
        cells.extend(numbers.into_iter().map(number));
        if row.doubtful {
            cells[0].push('?');
        }
        table.add_row(cells);
        previous = Some(row);
    }
    text(&table)
}

/// `49.7 (42..57)`; only the number if both ends of its range print alike.
pub(crate) fn ranged(number: Ranged, ranges: Ranges) -> String {
    let value = digits(number.value, 3);
    let (low, high) = (digits(number.low, 2), digits(number.high, 2));
    match ranges {
        _ if low == high => value,
        Ranges::Beside => format!("{value} ({low}..{high})"),
        Ranges::Below => format!("{value}\n{low}..{high}"),
    }
}

/// A number of CPUs; small numbers keep more digits.
pub(crate) fn ranged_cpus(number: Ranged) -> String {
    if number.value >= 0.1 {
        return ranged(number, Ranges::Beside);
    }
    let [value, low, high] = [number.value, number.low, number.high].map(cpus);
    if low == high { value } else { format!("{value} ({low}..{high})") }
}

/// Rounds to this many significant digits, and at most two decimals: `0.45`, `9.2`, `11000`.
pub(crate) fn digits(value: f64, significant: i32) -> String {
    if value.abs() < 0.005 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor() as i32 + 1;
    let unit = 10f64.powi((magnitude - significant).max(0));
    let decimals = (significant - magnitude).clamp(0, 2) as usize;
    let rounded = if unit > 1.0 { (value / unit).round() * unit } else { value };
    format!("{rounded:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(value: f64) -> Ranged {
        Ranged { value, low: value, high: value }
    }

    #[test]
    fn little_is_not_nothing() {
        let of = |value: f64, low: f64, high: f64| ranged_cpus(Ranged { value, low, high });
        assert_eq!(of(0.0038, 0.0038, 0.0038), "0.0038");
        assert_eq!(of(0.004, 0.0012, 0.02), "0.004 (0.0012..0.02)");
        assert_eq!(of(0.5, 0.5, 0.5), "0.50");
        assert_eq!(of(0.000_02, 0.0, 0.0), "0.00002");
    }

    fn row(limit: &str) -> PredictedRow {
        PredictedRow {
            limit: limit.to_owned(),
            kernel: "6.18".to_owned(),
            cpus: Some(Ranged { value: 0.4512, low: 0.4049, high: 0.541 }),
            throttled_percent: Some(Ranged { value: 97.56, low: 96.39, high: 98.78 }),
            latency_ms: [
                Some(Ranged { value: 49.66, low: 41.2, high: 57.9 }),
                Some(Ranged { value: 1070.6, low: 70.18, high: 1110.55 }),
            ],
            requests_per_second: Some(Ranged { value: 272.4, low: 231.4, high: 302.0 }),
            ..PredictedRow::default()
        }
    }

    #[test]
    fn each_limit_is_one_line_of_numbers_and_ranges() {
        let recorded = PredictedRow {
            limit: "recorded".to_owned(),
            kernel: String::new(),
            throttled_percent: None,
            cpus: Some(known(1.0)),
            latency_ms: [Some(known(0.951)), Some(known(8.1))],
            requests_per_second: Some(known(620.0)),
            ..PredictedRow::default()
        };
        let doubtful = PredictedRow { doubtful: true, ..row("25/50+b25") };
        let text = predicted(&[recorded, row("50/100"), doubtful], "requests", 120);
        let (text, ranges) = text;
        assert_eq!(ranges, Ranges::Beside);
        assert!(text.contains("0.45 (0.40..0.54)"), "{text}");
        assert!(text.contains("49.7 (41..58)") && text.contains("1070 (70..1100)"), "{text}");
        assert!(text.contains("272 (230..300)") && text.contains("97.6 (96..99)"), "{text}");
        assert!(text.contains("25/50+b25?") && !text.contains("6.18"), "{text}");
        assert!(text.lines().any(|line| line.starts_with("recorded") && line.contains(" -")));
    }

    #[test]
    fn ranges_stand_below_their_numbers_where_there_is_no_room_beside() {
        let recorded = PredictedRow {
            limit: "recorded".to_owned(),
            cpus: Some(known(1.0)),
            latency_ms: [Some(known(0.951)), Some(known(8.1))],
            requests_per_second: Some(known(620.0)),
            ..PredictedRow::default()
        };
        let other = PredictedRow { kernel: "6.1".to_owned(), ..row("50/100") };
        let (text, ranges) = predicted(&[recorded, other, row("50/100")], "requests", 80);
        let expected = "\
limit     kernel        CPUs   throttled  requests            answered
(ms)                          periods, %   p50, ms   p99, ms  a second
----------------------------------------------------------------------
recorded                1.00           -      0.95      8.10       620
50/100    6.1           0.45        97.6      49.7      1070       272
                  0.40..0.54      96..99    41..58  70..1100  230..300
          6.18          0.45        97.6      49.7      1070       272
                  0.40..0.54      96..99    41..58  70..1100  230..300
";
        assert_eq!((text.as_str(), ranges), (expected, Ranges::Below));
    }

    #[test]
    fn a_narrow_table_stays_within_its_width() {
        let mut other = row("50/100+20 in 200/100 (no cpu.max.burst)");
        other.kernel = "6.1".to_owned();
        other.requests_per_second = None;
        other.takes_s = Some(Ranged { value: 3.0, low: 2.5, high: 12.5 });
        let thread = Some("a-thread-with-a-long-name".to_owned());
        let below = PredictedRow { thread, ..other.clone() };
        let (text, _) = predicted(&[other, below], "bursts", 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("\n2.5..12") || text.contains(" 2.5..12"), "{text}");
    }
}
