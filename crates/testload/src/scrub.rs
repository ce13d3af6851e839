//! Removes from a recording what it says about the machine beyond scheduling, so that it can be
//! published: names of other programs, file names, host name, command line, build ids.
//!
//! It reads as much as needed of the format in the kernel's
//! tools/perf/Documentation/perf.data-file-format.txt: header, attributes, records, feature
//! sections. Records keep their lengths, so every event keeps its place and its time. Compressed
//! recordings are refused.

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;

const MAGIC: &[u8; 8] = b"PERFILE2";
const DATA_SECTION_AT: usize = 40;
const FLAGS_AT: usize = 72;
const HEADER_BYTES: usize = 104;
const RECORD_HEADER_BYTES: usize = 8;
const COMM_BYTES: usize = 16;

const RECORD_MMAP: u32 = 1;
const RECORD_COMM: u32 = 3;
const RECORD_SAMPLE: u32 = 9;
const RECORD_MMAP2: u32 = 10;
const RECORD_KSYMBOL: u32 = 17;
const RECORD_BPF: u32 = 18;
const RECORD_COMPRESSED: u32 = 81;

const FEATURE_TRACING_DATA: usize = 1;
/// Build ids, host name, command line, compression, BPF: numbers of `enum perf_header_feature`.
const FEATURES_DROPPED: [usize; 5] = [2, 3, 11, 25, 26];

/// Names that are kept: the loads, perf, and kernel threads.
const NAMES_KEPT: &[&str] = &[
    "testload",
    "srv-",
    "cli-",
    "rcv-",
    "snd-",
    "rate",
    "bur-",
    "bat-",
    "perf",
    "hackbench",
    "sched-messaging",
    "swapper",
    "kworker/",
    "ksoftirqd/",
    "migration/",
    "rcu_",
    "kcompactd",
    "kswapd",
    "kthreadd",
    "khugepaged",
    "jbd2/",
    "cpuhp/",
];

#[derive(Args)]
pub struct Scrub {
    /// Recording as perf wrote it.
    input: PathBuf,
    /// File for the result.
    output: PathBuf,
    /// Further names to keep, by their beginning.
    #[arg(long)]
    keep: Vec<String>,
}

impl Scrub {
    pub fn run(&self) -> Result<()> {
        let bytes = fs::read(&self.input)
            .with_context(|| format!("cannot read {}", self.input.display()))?;
        let scrubbed =
            scrub(&bytes, &self.keep).with_context(|| self.input.display().to_string())?;
        fs::write(&self.output, scrubbed)
            .with_context(|| format!("cannot write {}", self.output.display()))
    }
}

/// A copy of the recording without the names.
///
/// # Errors
/// Not a recording of perf, a truncated one, a compressed one, or one with call chains.
pub fn scrub(bytes: &[u8], keep: &[String]) -> Result<Vec<u8>> {
    ensure!(bytes.starts_with(MAGIC), "not a perf.data file");
    let data = section(bytes, DATA_SECTION_AT)?;
    let features = features(bytes, data.end)?;
    let tracing_data = features
        .iter()
        .find(|(feature, _)| *feature == FEATURE_TRACING_DATA)
        .map_or(&[][..], |(_, range)| &bytes[range.clone()]);
    let names = Names { keep, fields: name_fields(tracing_data), raw_at: raw_offset(bytes)? };
    let mut output = bytes[..data.start].to_vec();
    records(&bytes[data.clone()], &names, &mut output)?;
    let data_bytes = (output.len() - data.start) as u64;
    output[DATA_SECTION_AT + 8..DATA_SECTION_AT + 16].copy_from_slice(&data_bytes.to_le_bytes());
    append_features(bytes, &features, &mut output);
    Ok(output)
}

/// Positions of names in records.
struct Names<'a> {
    keep: &'a [String],
    /// Id of an event, and position of a name in its raw part.
    fields: Vec<(u16, Field)>,
    /// Offset of the raw part's length in a sample.
    raw_at: usize,
}

/// Position of a name in the raw part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Fixed(usize),
    /// Offset of a word with offset (low half) and length (high half) of a text.
    Dynamic(usize),
}

impl Names<'_> {
    /// Overwrites a name, unless it is kept, and the rest of its field.
    fn hide(&self, field: &mut [u8]) {
        let length = field.iter().position(|&b| b == 0).unwrap_or(field.len());
        let name = &field[..length];
        let kept = NAMES_KEPT
            .iter()
            .copied()
            .chain(self.keep.iter().map(String::as_str))
            .any(|beginning| name.starts_with(beginning.as_bytes()));
        if !kept {
            field[..length].fill(b'x');
        }
        // The rest may hold the end of an earlier, longer name.
        field[length..].fill(0);
    }

    fn hide_in_sample(&self, record: &mut [u8]) {
        let raw = self.raw_at + 4;
        let Some(id) = u16_at(record, raw) else {
            return;
        };
        for (_, field) in self.fields.iter().filter(|(of, _)| *of == id) {
            let text = match *field {
                Field::Fixed(at) => Some((raw + at, COMM_BYTES)),
                Field::Dynamic(at) => u16_at(record, raw + at)
                    .zip(u16_at(record, raw + at + 2))
                    .map(|(text_at, length)| (raw + usize::from(text_at), usize::from(length))),
            };
            if let Some(text) = text.and_then(|(at, length)| record.get_mut(at..at + length)) {
                self.hide(text);
            }
        }
    }
}

/// Appends the records that stay, with names overwritten.
fn records(data: &[u8], names: &Names, output: &mut Vec<u8>) -> Result<()> {
    let mut at = 0;
    while at < data.len() {
        let kind = u32_at(data, at).context("the last record is cut")?;
        let size = usize::from(u16_at(data, at + 6).context("the last record is cut")?);
        ensure!(
            size >= RECORD_HEADER_BYTES && at + size <= data.len(),
            "record at byte {at} of the data is cut"
        );
        let begin = output.len();
        match kind {
            RECORD_MMAP | RECORD_MMAP2 | RECORD_KSYMBOL | RECORD_BPF => {}
            RECORD_COMPRESSED => bail!("compressed; record without -z"),
            _ => output.extend_from_slice(&data[at..at + size]),
        }
        let record = &mut output[begin..];
        match kind {
            RECORD_SAMPLE => names.hide_in_sample(record),
            // pid, tid, name padded to eight bytes, sample id.
            RECORD_COMM => {
                if let Some(rest) = record.get_mut(RECORD_HEADER_BYTES + 8..) {
                    let length = rest.iter().position(|&b| b == 0).unwrap_or(rest.len());
                    names.hide(&mut rest[..length]);
                }
            }
            _ => {}
        }
        at += size;
    }
    Ok(())
}

/// Feature sections: number and range, in the order of the file.
fn features(bytes: &[u8], table_at: usize) -> Result<Vec<(usize, Range<usize>)>> {
    (0..256)
        .filter(|bit| bytes.get(FLAGS_AT + bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1))
        .enumerate()
        .map(|(index, feature)| Ok((feature, section(bytes, table_at + index * 16)?)))
        .collect()
}

/// Appends the features that stay and their table, and sets the header's flags.
fn append_features(bytes: &[u8], features: &[(usize, Range<usize>)], output: &mut Vec<u8>) {
    let kept: Vec<_> =
        features.iter().filter(|(feature, _)| !FEATURES_DROPPED.contains(feature)).collect();
    output[FLAGS_AT..HEADER_BYTES].fill(0);
    let mut at = output.len() + kept.len() * 16;
    for (feature, range) in &kept {
        output[FLAGS_AT + feature / 8] |= 1 << (feature % 8);
        output.extend_from_slice(&(at as u64).to_le_bytes());
        output.extend_from_slice(&(range.len() as u64).to_le_bytes());
        at += range.len();
    }
    for (_, range) in kept {
        output.extend_from_slice(&bytes[range.clone()]);
    }
}

/// Finds fields with names in the kernel's description of its events.
fn name_fields(tracing_data: &[u8]) -> Vec<(u16, Field)> {
    let text = String::from_utf8_lossy(tracing_data);
    let mut fields = Vec::new();
    for event in text.split("name: ").skip(1) {
        let id =
            event.split_once("\nID: ").and_then(|(_, rest)| rest.split_once('\n')?.0.parse().ok());
        let Some(id) = id else { continue };
        for line in event.lines().take_while(|line| !line.starts_with("print fmt")) {
            let named = line.contains("comm") || line.contains("filename");
            let offset = line
                .split_once("\toffset:")
                .and_then(|(_, rest)| rest.split_once(';')?.0.parse().ok());
            match offset {
                Some(at) if named && line.contains("__data_loc") => {
                    fields.push((id, Field::Dynamic(at)));
                }
                Some(at) if named && line.contains("[16]") => fields.push((id, Field::Fixed(at))),
                _ => {}
            }
        }
    }
    fields
}

/// Offset of a sample's raw part, which must be equal for all events.
fn raw_offset(bytes: &[u8]) -> Result<usize> {
    const IDENTIFIER: u64 = 1 << 16;
    const RAW: u64 = 1 << 10;
    /// Ip, tid, time, addr, id, stream id, cpu, period: one word each, before the raw part.
    const ONE_WORD: u64 = 0b1_1100_1111;
    /// Counter values and call chains: of variable length, before the raw part.
    const LONG: u64 = 0b11_0000;
    let attributes = section(bytes, 24)?;
    let size = u64_at(bytes, 16).context("the header is cut")? as usize;
    ensure!(size >= 32, "attributes of {size} bytes");
    let mut types = (attributes.start..attributes.end)
        .step_by(size)
        .map(|at| u64_at(bytes, at + 24).context("the attributes are cut"))
        .filter(|kind| kind.as_ref().is_ok_and(|kind| kind & RAW != 0) || kind.is_err())
        .collect::<Result<Vec<_>>>()?;
    types.dedup();
    match types[..] {
        [kind] if kind & LONG == 0 => {
            let words = (kind & (ONE_WORD | IDENTIFIER)).count_ones() as usize;
            Ok(RECORD_HEADER_BYTES + 8 * words)
        }
        [_] => bail!("samples with call chains or counter groups; record without -g"),
        _ => bail!("{} different layouts of samples; expected one", types.len()),
    }
}

/// A section given by offset and size, checked against the length of the file.
fn section(bytes: &[u8], at: usize) -> Result<Range<usize>> {
    let (offset, size) =
        u64_at(bytes, at).zip(u64_at(bytes, at + 8)).context("the header is cut")?;
    let end = offset.checked_add(size).context("a section has no end")?;
    ensure!(end <= bytes.len() as u64, "a section ends beyond the file");
    Ok(offset as usize..end as usize)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_the_description_of_events() {
        let text = "name: sched_switch\nID: 372\nformat:\n\
                    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\n\
                    \tfield:char prev_comm[16];\toffset:8;\tsize:16;\n\
                    \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\n\
                    \tfield:char next_comm[16];\toffset:40;\tsize:16;\n\nprint fmt: comm\n\
                    name: sched_process_exec\nID: 9\n\
                    \tfield:__data_loc char[] filename;\toffset:8;\tsize:4;\n";
        assert_eq!(
            name_fields(text.as_bytes()),
            [(372, Field::Fixed(8)), (372, Field::Fixed(40)), (9, Field::Dynamic(8))]
        );
    }

    #[test]
    fn names_are_hidden_unless_known() {
        let names = Names { keep: &["mine".to_owned()], fields: Vec::new(), raw_at: 0 };
        for (before, after) in [
            (b"secret\0old", b"xxxxxx\0\0\0\0"),
            (b"srv-01\0old", b"srv-01\0\0\0\0"),
            (b"mine-is-it", b"mine-is-it"),
        ] {
            let mut field = *before;
            names.hide(&mut field);
            assert_eq!(&field, after);
        }
    }

    #[test]
    fn what_is_no_recording_is_refused() {
        for bytes in [&b""[..], b"PERFILE", b"PERFILE2", &[0; 4096], b"PERFILE2\xff\xff\xff\xff"] {
            assert!(scrub(bytes, &[]).is_err());
        }
        let mut header = [0xff; 256];
        header[..8].copy_from_slice(MAGIC);
        assert!(scrub(&header, &[]).is_err());
    }
}
