//! The head of a trace.dat file: descriptions, options, and the place of each CPU's buffer.

use super::chunks::Algorithm;
use super::options::{self, Options};
use crate::event::CPUS_MAX;
use crate::raw::{Formats, Walk, WalkError};
use crate::tracepoint::Tracepoint;
use linux_perf_event_reader::Endianness;
use std::io::{BufReader, Read, Seek, SeekFrom};

/// Accepted sizes of a page of the ring buffer.
const PAGE_BYTES: std::ops::RangeInclusive<u32> = 1024..=1 << 20;
/// Bound on all descriptive sections together, each counted as often as it is referred to.
pub(super) const SECTIONS_MAX_BYTES: u64 = 128 << 20;
const OPTIONS_TAG: &[u8] = b"options  \0";
const FLYRECORD_TAG: &[u8] = b"flyrecord\0";
const LATENCY_TAG: &[u8] = b"latency  \0";

/// The pages of a CPU's buffer, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Buffer {
    pub cpu: u32,
    pub offset: u64,
    pub len: u64,
}

#[derive(Debug)]
pub(super) struct Head {
    pub endian: Endianness,
    pub page_bytes: u32,
    /// Offset of the first event in a page.
    pub data_at: usize,
    pub formats: Formats,
    pub options: Options,
    pub buffers: Vec<Buffer>,
    pub packed: Option<Algorithm>,
    /// The part of [`SECTIONS_MAX_BYTES`] that is not used yet.
    pub section_bytes_left: u64,
}

impl Head {
    /// Reads the head of a file of version 6 or 7; an error for other versions, impossible sizes
    /// and overlapping buffers.
    pub fn read<F: Read + Seek>(file: &mut F) -> Result<Head, WalkError> {
        file.seek(SeekFrom::Start(0)).map_err(WalkError::Io)?;
        let mut walk = Walk::new(BufReader::new(&mut *file), Endianness::LittleEndian);
        let (version, page_bytes) = walk.open()?;
        let mut head = Head {
            endian: walk.endian,
            page_bytes,
            data_at: 0,
            formats: Formats::new(),
            options: Options::default(),
            buffers: Vec::new(),
            packed: None,
            section_bytes_left: SECTIONS_MAX_BYTES,
        };
        match version.as_str() {
            "6" => {
                head.read_version_6(&mut walk)?;
                head.read_instances_6(file)?;
            }
            "7" => {
                let (compression, first) = (walk.string()?, {
                    walk.string()?; // its version
                    walk.u64()?
                });
                head.read_version_7(file, &compression, first)?;
            }
            other => {
                let what = format!(
                    "it is of version {}; versions 6 and 7 are read, and text of `trace-cmd \
                     report`",
                    cpumax_limit::one_line(other)
                );
                return Err(WalkError::Wrong(what));
            }
        }
        check_apart(&head.buffers)?;
        if !PAGE_BYTES.contains(&head.page_bytes) {
            return Err(WalkError::Wrong(format!(
                "pages of {} bytes; 1024 to 1048576 are read",
                head.page_bytes
            )));
        }
        Ok(head)
    }

    /// Reads the head of version 6 from where `walk` stands: descriptions, options, and places of
    /// buffers. An error if it is malformed, has too many CPUs, or holds the text of a latency
    /// tracer.
    fn read_version_6(&mut self, walk: &mut Walk<impl std::io::BufRead>) -> Result<(), WalkError> {
        self.set_data_offset(&walk.headers()?)?;
        walk.own_formats()?;
        walk.each_format(|system, text| add(&mut self.formats, system, text))?;
        for _ in ["symbols", "formats of printk"] {
            let len = walk.u32()?;
            walk.skip(u64::from(len))?;
        }
        let names = walk.u64()?;
        walk.skip(names)?;
        let cpus = walk.u32()?;
        if cpus > CPUS_MAX {
            return Err(WalkError::Wrong(format!("{cpus} CPUs; at most {CPUS_MAX} are read")));
        }
        let mut tag = walk.take(10)?;
        if tag == OPTIONS_TAG {
            loop {
                let id = walk.u16()?;
                if id == options::DONE {
                    break;
                }
                let len = walk.u32()?;
                let data = options::read_data(walk, len)?;
                self.options.add(id, &data, self.endian);
            }
            tag = walk.take(10)?;
        }
        self.buffers = match tag.as_slice() {
            FLYRECORD_TAG => read_buffers(walk, cpus)?,
            LATENCY_TAG => return Err(latency_text()),
            _ => return Err(WalkError::Wrong(format!("no buffers before byte {}", walk.at))),
        };
        Ok(())
    }

    /// If the buffers of the top instance are empty, takes those of the first one with events; an
    /// error if none stand where the options say.
    fn read_instances_6<F: Read + Seek>(&mut self, file: &mut F) -> Result<(), WalkError> {
        for offset in std::mem::take(&mut self.options.instances) {
            if self.buffers.iter().any(|buffer| buffer.len > 0) {
                return Ok(());
            }
            file.seek(SeekFrom::Start(offset)).map_err(WalkError::Io)?;
            let mut walk = Walk::new(BufReader::new(&mut *file), self.endian);
            if walk.take(10)? != FLYRECORD_TAG {
                return Err(WalkError::Wrong(format!("no buffers at byte {offset}")));
            }
            self.buffers = read_buffers(&mut walk, self.buffers.len() as u32)?;
        }
        Ok(())
    }

    /// Sets the offset of events in a page from the line `\tfield: char
    /// data;\toffset:16;\tsize:4080;\tsigned:1;` of its description; an error unless it is 12 or
    /// 16.
    pub(super) fn set_data_offset(&mut self, text: &str) -> Result<(), WalkError> {
        let data = text.lines().find(|line| line.contains(" data;"));
        let offset = data.and_then(|line| {
            let (_, offset) = line.split_once("offset:")?;
            offset.split(';').next()?.trim().parse::<usize>().ok()
        });
        let wrong = || "it does not tell that events begin at byte 12 or 16 of a page".to_owned();
        self.data_at = offset.filter(|at| [12, 16].contains(at)).ok_or_else(wrong)?;
        Ok(())
    }
}

/// Adds the description of an event to `formats`, if its tracepoint is read; an error if that is
/// malformed.
pub(super) fn add(formats: &mut Formats, system: &str, text: &str) -> Result<(), String> {
    formats.add(system, text, |_, tracepoint| tracepoint != Tracepoint::Other)
}

/// The error for a file with the text of a latency tracer.
pub(super) fn latency_text() -> WalkError {
    let what = "it holds the text of a latency tracer, not events; record with `trace-cmd record \
                -e sched`";
    WalkError::Wrong(what.to_owned())
}

/// Reads offset and length of the buffer of each CPU; an error where the file ends.
fn read_buffers(
    walk: &mut Walk<impl std::io::BufRead>,
    cpus: u32,
) -> Result<Vec<Buffer>, WalkError> {
    (0..cpus).map(|cpu| Ok(Buffer { cpu, offset: walk.u64()?, len: walk.u64()? })).collect()
}

/// An error if buffers overlap: a small file would be read many times.
fn check_apart(buffers: &[Buffer]) -> Result<(), String> {
    let mut full: Vec<&Buffer> = buffers.iter().filter(|buffer| buffer.len > 0).collect();
    full.sort_unstable_by_key(|buffer| buffer.offset);
    let meet = |pair: &&[&Buffer]| pair[0].offset.saturating_add(pair[0].len) > pair[1].offset;
    full.windows(2).find(meet).map_or(Ok(()), |pair| {
        let (one, other) = (pair[0].cpu, pair[1].cpu);
        Err(format!("the buffers of CPU {one} and CPU {other} lie in the same place"))
    })
}

#[cfg(test)]
mod tests {
    use super::{Buffer, check_apart};

    #[test]
    fn buffers_lie_apart() {
        let buffer = |cpu, offset, len| Buffer { cpu, offset, len };
        let apart = [buffer(0, 4096, 4096), buffer(1, 0, 4096), buffer(2, 100, 0)];
        assert_eq!(check_apart(&apart), Ok(()));
        for second in [buffer(1, 4096, 4096), buffer(1, 1, 4096), buffer(1, 0, u64::MAX)] {
            let told = check_apart(&[buffer(0, 4096, 4096), second]).unwrap_err();
            assert!(told.contains("CPU 0") && told.contains("CPU 1"), "{told}");
        }
    }
}
