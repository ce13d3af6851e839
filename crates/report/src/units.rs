//! Numbers with their units, short enough for a column.

/// A length of time with three significant digits and a suitable unit: `0`, `850ns`, `1.25ms`,
/// `72.1s`.
pub fn duration(ns: u64) -> String {
    // Each bound is where rounding to three digits would reach 1000.
    let (value, unit) = match ns {
        0 => return "0".to_owned(),
        1..1_000 => (ns as f64, "ns"),
        1_000..999_500 => (ns as f64 / 1e3, "us"),
        999_500..999_500_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    format!("{}{unit}", three_digits(value))
}

/// A share of one as per cent: `99.8%`, `0.03%`, `100%`.
pub fn percent(share: f64) -> String {
    format!("{}%", three_digits(share * 100.0))
}

/// A number of CPUs kept busy: `0.5`, `12.3`, `0.0027`.
pub fn cpus(busy: f64) -> String {
    if !(1e-6..0.1).contains(&busy) {
        return three_digits(busy);
    }
    // Two significant digits of very small values, else four decimals.
    let decimals = if busy < 0.000_5 { (1.0 - busy.log10().floor()) as usize } else { 4 };
    format!("{busy:.decimals$}").trim_end_matches('0').to_owned()
}

/// Three significant digits, at most two decimals, without trailing zeros.
fn three_digits(value: f64) -> String {
    let decimals = [9.995, 99.95].iter().filter(|&&limit| value < limit).count();
    let text = format!("{value:.decimals$}");
    if decimals == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_take_the_unit_that_suits_them() {
        for (ns, text) in [
            (0, "0"),
            (1, "1ns"),
            (999, "999ns"),
            (1_000, "1us"),
            (1_250, "1.25us"),
            (999_499, "999us"),
            (999_500, "1ms"),
            (12_345_678, "12.3ms"),
            (100_000_000, "100ms"),
            (999_500_000, "1s"),
            (72_100_000_000, "72.1s"),
            (1_234_000_000_000, "1234s"),
            (u64::MAX, "18446744074s"),
        ] {
            assert_eq!(duration(ns), text, "{ns}");
        }
    }

    #[test]
    fn shares_and_cpus_keep_three_digits() {
        assert_eq!(percent(0.0), "0%");
        assert_eq!(percent(0.000_34), "0.03%");
        assert_eq!(percent(0.9984), "99.8%");
        assert_eq!(percent(1.0), "100%");
        assert_eq!(percent(29.7), "2970%");
        assert_eq!(cpus(0.5), "0.5");
        assert_eq!(cpus(0.002_74), "0.0027");
        assert_eq!(cpus(0.05), "0.05");
        assert_eq!(cpus(0.000_01), "0.00001");
        assert_eq!(cpus(0.000_123_4), "0.00012");
        assert_eq!(cpus(0.0), "0");
        assert_eq!(cpus(9.996), "10");
        assert_eq!(cpus(12.34), "12.3");
    }
}
