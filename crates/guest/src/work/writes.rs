//! Time of a write to a file in memory by its length. A write holds the inode's lock for as long.
//!
//! Bytes differ in cost: on 6.12 a page of the first 256 KiB of a file takes 10 us, a later one 11
//! to 12 us.

use super::Rate;

/// Lengths of the writes that are measured, bytes.
pub(crate) const SIZES: [usize; 9] =
    [16 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 3 << 19, 1 << 21, 1 << 22];

/// Measured times, with straight lines between them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Writes {
    lines: [Line; SIZES.len()],
}

#[derive(Debug, Clone, Copy, Default)]
struct Line {
    from_bytes: usize,
    from_ns: u64,
    byte: Rate,
}

impl Writes {
    /// Makes the function from bytes to time, piecewise linear, of the times of a write of each of
    /// the [`SIZES`], ns, without the fixed cost of a call.
    pub fn new(times_ns: [u64; SIZES.len()]) -> Writes {
        let mut writes = Writes::default();
        let (mut from_bytes, mut from_ns) = (0, 0);
        for ((line, bytes), ns) in writes.lines.iter_mut().zip(SIZES).zip(times_ns) {
            let byte = Rate::of(ns.saturating_sub(from_ns), (bytes - from_bytes) as u64);
            *line = Line { from_bytes, from_ns, byte };
            (from_bytes, from_ns) = (bytes, ns.max(from_ns));
        }
        writes
    }

    /// Bytes of a write that takes `ns`, without the fixed cost of a call.
    pub fn bytes(&self, ns: u64) -> usize {
        let after = self.lines.partition_point(|line| line.from_ns <= ns);
        let line = &self.lines[after.saturating_sub(1)];
        line.from_bytes + line.byte.count(ns.saturating_sub(line.from_ns)) as usize
    }

    /// Time of a byte in the middle of the measured range, fs.
    pub fn byte_fs(&self) -> u64 {
        self.lines[SIZES.len() / 2].byte.fs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_as_long_as_it_was_measured_and_between_on_a_line() {
        let mut times_ns = SIZES.map(|bytes| bytes as u64 * 2);
        for ns in &mut times_ns[4..] {
            *ns *= 2;
        }
        let writes = Writes::new(times_ns);
        let near = |ns: u64, bytes: usize| assert!(writes.bytes(ns).abs_diff(bytes) < 8, "{ns}");
        assert_eq!(writes.bytes(0), 0);
        near(16 << 10, 8 << 10);
        near(3 << 17, 3 << 16);
        for (ns, bytes) in times_ns.into_iter().zip(SIZES) {
            near(ns, bytes);
        }
        // 256 KiB take 512 us, 512 KiB 2048.
        near(5 << 18, 384 << 10);
        // Beyond the last size its line goes on.
        near(5 << 22, 5 << 20);
    }
}
