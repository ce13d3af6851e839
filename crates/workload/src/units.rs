//! Text of single values: lengths of time (`5ms`), rates (`200/s`), and suggestions for misspelt
//! names.

use crate::bounds::{MAX_DURATION_NS, NS_PER_MS, NS_PER_S, NS_PER_US};

pub(crate) const DURATION_FORM: &str =
    "a number and a unit, such as \"1.5ms\" (units: ns, us, ms, s, min, h; not finer than 1 ns)";

const UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", NS_PER_US),
    ("µs", NS_PER_US),
    ("ms", NS_PER_MS),
    ("s", NS_PER_S),
    ("min", 60 * NS_PER_S),
    ("h", 3600 * NS_PER_S),
];

/// Reads a length of time, ns, exactly: `1.5ms` is 1500000; `None` for a fraction of 1 ns, such as
/// `0.1ns`.
pub(crate) fn parse_duration(text: &str) -> Option<u64> {
    let text = text.trim();
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')?;
    let (number, unit) = text.split_at(unit_at);
    let unit = unit.trim_start();
    let &(_, unit_ns) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let mut ns = whole.parse::<u64>().ok()?.checked_mul(unit_ns)?;
    let mut place_ns = unit_ns;
    for digit in fraction.bytes() {
        if !place_ns.is_multiple_of(10) {
            return None;
        }
        place_ns /= 10;
        ns = ns.checked_add(place_ns * u64::from(digit - b'0'))?;
    }
    Some(ns)
}

pub(crate) const RATE_FORM: &str =
    "a number per unit of time, such as \"200/s\" or \"0.5/min\"; units ms, s, min, h";

/// Reads a rate, such as `200/s`, as the mean time between two events, ns, rounded. `None` for
/// malformed text, or a mean outside of 1 ns to a day.
pub(crate) fn parse_rate(text: &str) -> Option<u64> {
    let (number, unit) = text.split_once('/')?;
    let (number, unit) = (number.trim().replace('_', ""), unit.trim());
    let &(_, per_ns) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    let digits = format!("{whole}{fraction}");
    let is_number = !whole.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || digits.len() > 18 || number.ends_with('.') {
        return None;
    }
    let many: u128 = digits.parse().ok()?;
    let scale = 10_u128.pow(fraction.len() as u32);
    let mean_ns = (u128::from(per_ns) * scale + many / 2).checked_div(many)?;
    u64::try_from(mean_ns).ok().filter(|ns| (1..=MAX_DURATION_NS).contains(ns))
}

/// Prints a length of time in a form that [`parse_duration`] reads back exactly.
pub(crate) fn print_duration(ns: u64) -> String {
    let units = [("s", NS_PER_S), ("ms", NS_PER_MS), ("us", NS_PER_US)];
    let fits = units.iter().find(|(_, unit_ns)| ns >= *unit_ns && ns.is_multiple_of(*unit_ns));
    match fits {
        Some((unit, unit_ns)) => format!("{}{unit}", ns / unit_ns),
        None if ns == 0 => "0ms".to_owned(),
        None => format!("{ns}ns"),
    }
}

/// The name most similar to `wrong`, if any is similar enough.
pub(crate) fn nearest<'a>(
    wrong: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // A similar name differs from `wrong` in at most a third of its characters. Comparing is
    // quadratic in length, so only the first 64 characters are compared.
    const COMPARED_CHARS: usize = 64;
    let head = |name: &str| -> String {
        name.chars().take(COMPARED_CHARS).flat_map(char::to_lowercase).collect()
    };
    let wrong = head(wrong);
    let allowed = (wrong.chars().count() / 3).max(1);
    names
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&wrong, &head(name)), name))
        .filter(|(changes, _)| *changes <= allowed)
        .min_by_key(|(changes, _)| *changes)
        .map(|(_, name)| name)
}

/// The names that would be accepted, for messages: the most similar one, or a list.
pub(crate) fn accepted_names<'a>(
    wrong: &str,
    names: impl IntoIterator<Item = &'a str> + Clone,
) -> String {
    const LISTED: usize = 20;
    if let Some(name) = nearest(wrong, names.clone()) {
        return format!("did you mean `{name}`?");
    }
    let mut listed: Vec<String> =
        names.clone().into_iter().take(LISTED).map(|name| format!("`{name}`")).collect();
    if listed.is_empty() {
        return "there are none".to_owned();
    }
    let all = names.into_iter().count();
    if all > LISTED {
        listed.push(format!("and {} more", all - LISTED));
    }
    format!("one of {}", listed.join(", "))
}

/// Foreign text in a message: in quotes, escaped, and cut after 60 characters.
pub(crate) fn quoted(text: &str) -> String {
    const SHOWN_CHARS: usize = 60;
    let shown: String = text.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
    let cut = if text.chars().nth(SHOWN_CHARS).is_some() { "…" } else { "" };
    format!("\"{shown}{cut}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        let reads = [
            ("200/s", Some(5_000_000)),
            ("1/ms", Some(1_000_000)),
            ("0.5 / min", Some(120_000_000_000)),
            ("3/s", Some(333_333_333)),
            ("1_000/s", Some(1_000_000)),
            ("2.5/s", Some(400_000_000)),
            ("1000000000/s", Some(1)),
            ("10000000000/s", None),
            ("0/s", None),
            ("0.0001/h", None),
            ("-1/s", None),
            ("1./s", None),
            ("./s", None),
            ("/s", None),
            ("1e3/s", None),
            ("200", None),
            ("200/2s", None),
            ("200/s/s", None),
            ("9999999999999999999/s", None),
        ];
        for (text, mean_ns) in reads {
            assert_eq!(parse_rate(text), mean_ns, "{text}");
        }
    }

    #[test]
    fn durations_are_exact() {
        let good = [
            ("5ms", 5_000_000),
            ("1.5us", 1_500),
            ("0.000000001s", 1),
            ("1 min", 60_000_000_000),
            ("0.5h", 1_800_000_000_000),
            ("1_000ns", 1_000),
            ("2.50ms", 2_500_000),
            ("10µs", 10_000),
            ("0ms", 0),
        ];
        for (text, ns) in good {
            assert_eq!(parse_duration(text), Some(ns), "{text}");
        }
        let bad = [
            "",
            "5",
            "ms",
            "-5ms",
            "5 parsecs",
            "0.1ns",
            "1.0000001us",
            "1..2s",
            ".5s",
            "5.s",
            "99999999999999999999s",
            "18446744073709551615s",
            "5msms",
            "1e3ms",
        ];
        for text in bad {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn printed_durations_read_back() {
        for ns in [0, 1, 999, 1_000, 1_001, 5_000_000, 1_500_000, 60_000_000_000, u64::MAX] {
            assert_eq!(parse_duration(&print_duration(ns)), Some(ns));
        }
        assert_eq!(print_duration(1_500_000), "1500us");
    }

    #[test]
    fn suggestions_are_near() {
        assert_eq!(nearest("inod", ["inode", "mmap"]), Some("inode"));
        assert_eq!(nearest("Inode", ["inode", "mmap"]), Some("inode"));
        assert_eq!(nearest("zzz", ["inode", "mmap"]), None);
        assert_eq!(accepted_names("zzz", ["a1", "b1"]), "one of `a1`, `b1`");
        assert_eq!(accepted_names("zzz", []), "there are none");
    }
}
