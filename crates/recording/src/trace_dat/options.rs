//! Options of a trace.dat file: clock, machine, and lost events.

use crate::event::Machine;
use crate::raw::{Bytes, Walk, WalkError};
use linux_perf_event_reader::Endianness;
use std::io::BufRead;

pub(super) const DONE: u16 = 0;
const CPU_STAT: u16 = 2;
const BUFFER: u16 = 3;
const TRACE_CLOCK: u16 = 4;
const UNAME: u16 = 5;
const CPU_COUNT: u16 = 8;
const TSC2NSEC: u16 = 14;
const OPTION_MAX_BYTES: u32 = 16 << 20;
const INSTANCES_MAX: usize = 256;

/// Clocks whose times are nanoseconds.
const CLOCKS: [&str; 8] = ["", "local", "global", "perf", "mono", "mono_raw", "boot", "tai"];

#[derive(Debug, Default)]
pub(super) struct Options {
    pub machine: Machine,
    /// Events for which the kernel had no room.
    pub lost: u64,
    pub clock: String,
    /// Offsets of the buffers of further instances, in version 6.
    pub instances: Vec<u64>,
    tsc: Option<Tsc>,
}

/// Conversion from cycles of the processor's counter to nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Tsc {
    mult: u32,
    shift: u32,
    offset_ns: u64,
}

impl Options {
    /// Takes an option by its number: lost events, which add up, instances, the clock if none is
    /// known yet, kernel, CPUs, or the conversion of cycles. Others, and malformed ones, are
    /// ignored.
    pub fn add(&mut self, id: u16, data: &[u8], endian: Endianness) {
        let bytes = Bytes::new(data, endian);
        let text = String::from_utf8_lossy(data);
        let text = text.trim_end_matches('\0');
        match id {
            CPU_STAT => self.lost = self.lost.saturating_add(parse_lost(text)),
            BUFFER if self.instances.len() < INSTANCES_MAX => self.instances.extend(bytes.u64(0)),
            // All clocks, with the one in use in brackets.
            TRACE_CLOCK if self.clock.is_empty() => {
                let clock = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
                self.clock = clock.map(|(clock, _)| clock.to_owned()).unwrap_or_default();
            }
            // `Linux NAME RELEASE ARCHITECTURE`
            UNAME => {
                let words: Vec<&str> = text.split_whitespace().collect();
                self.machine.kernel = words.get(2).map(|word| (*word).to_owned());
                self.machine.arch = words.get(3..).and_then(<[_]>::last).map(|w| (*w).to_owned());
            }
            CPU_COUNT => self.machine.cpus = bytes.u32(0).filter(|cpus| *cpus > 0),
            TSC2NSEC => {
                let offset_ns = bytes.u64(8);
                let tsc = bytes.u32(0).zip(bytes.u32(4)).zip(offset_ns);
                self.tsc = tsc
                    .filter(|((_, shift), _)| *shift < 64)
                    .map(|((mult, shift), offset_ns)| Tsc { mult, shift, offset_ns });
            }
            _ => {}
        }
    }

    /// An error for a clock whose times are not, and cannot be converted to, nanoseconds.
    pub fn check_clock(&self) -> Result<(), String> {
        if self.tsc.is_some() || CLOCKS.contains(&self.clock.as_str()) {
            return Ok(());
        }
        Err(format!(
            "its times are those of the clock {}, which are not nanoseconds; record with \
             `trace-cmd record -C mono`, or with --tsc2nsec",
            cpumax_limit::one_line(&self.clock)
        ))
    }

    /// A time of the recorded clock in ns.
    pub fn time_ns(&self, time: u64) -> u64 {
        let Some(tsc) = self.tsc.filter(|_| self.clock.ends_with("tsc")) else { return time };
        let ns = (u128::from(time) * u128::from(tsc.mult)) >> tsc.shift;
        u64::try_from(ns).unwrap_or(u64::MAX).saturating_add(tsc.offset_ns)
    }
}

/// Reads the data of an option; an error above 16 MiB, or if there are fewer bytes.
pub(super) fn read_data(walk: &mut Walk<impl BufRead>, len: u32) -> Result<Vec<u8>, WalkError> {
    if len > OPTION_MAX_BYTES {
        return Err(WalkError::Wrong(format!(
            "an option of {len} bytes; at most {OPTION_MAX_BYTES} are read"
        )));
    }
    walk.take(u64::from(len))
}

/// The sum of the kernel's counts of lost events, lines like `overrun: 12`.
fn parse_lost(stat: &str) -> u64 {
    const KEYS: [&str; 3] = ["overrun", "commit overrun", "dropped events"];
    let counts = stat.lines().filter_map(|line| line.split_once(':'));
    counts
        .filter(|(key, _)| KEYS.contains(&key.trim()))
        .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::{Options, TRACE_CLOCK, TSC2NSEC, UNAME, parse_lost};
    use linux_perf_event_reader::Endianness::LittleEndian;

    #[test]
    fn reads_the_kernels_counts_of_lost_events() {
        let stat = "CPU: 0\nentries: 34\noverrun: 3\ncommit overrun: 1\nbytes: 1652\n\
                    dropped events: 2\nread events: 9\n";
        assert_eq!(parse_lost(stat), 6);
    }

    #[test]
    fn reads_clocks() {
        let mut options = Options::default();
        options.add(TRACE_CLOCK, b"local [global] counter x86-tsc\n\0", LittleEndian);
        assert_eq!((options.clock.as_str(), options.check_clock()), ("global", Ok(())));
        options.clock = "x86-tsc".to_owned();
        assert!(options.check_clock().unwrap_err().contains("x86-tsc"));
        let tsc = [3_u32.to_le_bytes(), 1_u32.to_le_bytes(), [7, 0, 0, 0], [0; 4]].concat();
        options.add(TSC2NSEC, &tsc, LittleEndian);
        assert_eq!((options.check_clock(), options.time_ns(100)), (Ok(()), 157));
    }

    #[test]
    fn reads_the_machine() {
        let mut options = Options::default();
        options.add(UNAME, b"Linux vm 6.18.44 x86_64\0", LittleEndian);
        assert_eq!(options.machine.kernel.as_deref(), Some("6.18.44"));
        assert_eq!(options.machine.arch.as_deref(), Some("x86_64"));
    }
}
