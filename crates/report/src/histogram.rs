//! Histograms drawn with characters, in the shape that users of bpftrace know.

use std::fmt::Write;

/// Width of the longest bar.
const BAR: u64 = 52;

/// One line a bucket of `[low, high, count]`: its bounds, its count and a bar. Empty for no
/// buckets.
///
/// Bounds are written with the binary suffixes `K`, `M`, `G` where they are whole: 65536 is `64K`.
pub fn histogram(buckets: &[[u64; 3]]) -> String {
    let most = buckets.iter().map(|bucket| bucket[2]).max().unwrap_or(0).max(1);
    let mut text = String::new();
    for &[low, high, count] in buckets {
        let bounds = format!("[{}, {})", binary(low), binary(high));
        let filled = (u128::from(count) * u128::from(BAR) / u128::from(most)) as usize;
        let bar = "@".repeat(filled);
        let _ = writeln!(text, "{bounds:<16} {count:>9} |{bar:<width$}|", width = BAR as usize);
    }
    text
}

fn binary(value: u64) -> String {
    for (suffix, shift) in [("G", 30), ("M", 20), ("K", 10)] {
        if value >= 1 << shift && value.trailing_zeros() >= shift {
            return format!("{}{suffix}", value >> shift);
        }
    }
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_in_proportion_to_the_largest_count() {
        let text = histogram(&[
            [32 << 20, 64 << 20, 412],
            [64 << 20, 128 << 20, 824],
            [1 << 30, 1 << 31, 0],
        ]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(
            lines[0],
            format!("[32M, 64M)             412 |{}{}|", "@".repeat(26), " ".repeat(26))
        );
        assert_eq!(lines[1], format!("[64M, 128M)            824 |{}|", "@".repeat(52)));
        assert!(lines[2].starts_with("[1G, 2G)                 0 |  "));
    }

    #[test]
    fn odd_bounds_are_written_out_and_nothing_overflows() {
        assert_eq!(histogram(&[]), "");
        let text = histogram(&[[3, 1500, u64::MAX]]);
        assert!(text.starts_with("[3, 1500) "), "{text}");
        assert!(text.contains(&"@".repeat(52)));
    }
}
