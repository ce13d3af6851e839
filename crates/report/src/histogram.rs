//! Histogram of calls that release tasks, by length, in the form of bpftrace.

use cpumax_outcome::{Call, Calls, Did};
use std::fmt::Write;

const BAR: u64 = 28;
/// Numbers of a call, in the order of [`Did::numbers`].
const DID: [&str; 4] = ["told", "rqs", "cfs_rqs", "tasks"];

/// The calls of one function by length: bounds in ns, number of calls, a bar, and the means of a
/// call's numbers; below, the longest call.
///
/// Whole multiples of a binary unit have the suffix `K`, `M` or `G`: 65536 is `64K`.
pub fn histogram(calls: &Calls) -> String {
    let most = calls.by_length.iter().map(|of| of.calls).max().unwrap_or(0).max(1);
    let width = BAR as usize;
    let mut text = format!("{:>26} {:width$}  ", "calls", "");
    text.extend(DID.map(|name| format!(" {name:>8}")));
    text.push('\n');
    for of in &calls.by_length {
        let bounds = format!("[{}, {})", binary(of.low), binary(of.high));
        let filled = u128::from(of.calls) * u128::from(BAR) / u128::from(most);
        let bar = "@".repeat(filled as usize);
        let _ = write!(text, "{bounds:<16} {:>9} |{bar:<width$}|", of.calls);
        text.extend(means(of.did, of.calls));
        text.push('\n');
    }
    let Call { at_ns, cpu, ns, did: Did { told, rqs, cfs_rqs, tasks } } = calls.longest;
    let _ = writeln!(
        text,
        "longest: {ns} ns at {at_ns} ns on CPU {cpu}: told {told}, rqs {rqs}, cfs_rqs {cfs_rqs}, \
         tasks {tasks}"
    );
    text
}

/// Mean of each number over so many calls, to a tenth.
fn means(did: Did, calls: u64) -> [String; 4] {
    did.numbers().map(|all| {
        let tenths = (u128::from(all) * 10 + u128::from(calls) / 2) / u128::from(calls.max(1));
        format!(" {:>6}.{}", tenths / 10, tenths % 10)
    })
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
    fn bars_are_in_proportion_and_means_to_a_tenth() {
        let did = |told, rqs, cfs_rqs, tasks| Did { told, rqs, cfs_rqs, tasks };
        let mut calls = Calls::default();
        for at_ns in 0..4 {
            calls.add(Call { at_ns, cpu: 3, ns: 70_000, did: did(23, 1, 51, 16 + at_ns) });
        }
        calls.add(Call { at_ns: 9, cpu: 3, ns: 1024, did: did(0, 1, 51, 2) });
        let text = histogram(&calls);
        let lines: Vec<&str> = text.lines().collect();
        let head = "                     calls                                    told      rqs";
        assert_eq!(lines[0], format!("{head}  cfs_rqs    tasks"));
        let row = |bounds, calls, bar: usize, did| {
            let bar = format!("{}{}", "@".repeat(bar), " ".repeat(28 - bar));
            format!("{bounds:<16} {calls:>9} |{bar}| {did}")
        };
        assert_eq!(lines[1], row("[1K, 2K)", 1, 7, "     0.0      1.0     51.0      2.0"));
        assert_eq!(lines[2], row("[64K, 128K)", 4, 28, "    23.0      1.0     51.0     17.5"));
        let longest = "longest: 70000 ns at 0 ns on CPU 3: told 23, rqs 1, cfs_rqs 51, tasks 16";
        assert_eq!(lines[3..], [longest]);
    }

    #[test]
    fn odd_bounds_are_written_out_and_nothing_overflows() {
        let mut calls = Calls::default();
        calls.add(Call { ns: u64::MAX, ..Call::default() });
        calls.by_length[0].calls = u64::MAX;
        calls.by_length[0].did.rqs = u64::MAX;
        assert!(histogram(&calls).contains("[8589934592G, 18446744073709551615)"), "{calls:?}");
        assert!(histogram(&calls).contains(&"@".repeat(28)));
    }
}
