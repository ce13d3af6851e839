//! Version 7: sections whose places stand in options, each perhaps compressed.

use super::chunks::{Algorithm, unpack};
use super::head::{Buffer, Head, SECTIONS_MAX_BYTES, add, latency_text};
use super::options::{self, DONE};
use crate::event::CPUS_MAX;
use crate::raw::{Walk, WalkError};
use linux_perf_event_reader::Endianness;
use std::io::{BufReader, Read, Seek, SeekFrom};

/// Bounds on the sections of options, on instances, and on the size of a section.
const SECTIONS_MAX: usize = 256;
const INSTANCES_MAX: usize = 256;
const SECTION_MAX_BYTES: u64 = 64 << 20;
const FLAG_COMPRESSED: u16 = 1;

/// Options with places of sections.
const BUFFER: u16 = 3;
const HEADER_INFO: u16 = 16;
const EVENT_FORMATS: u16 = 18;
const BUFFER_TEXT: u16 = 22;

impl Head {
    /// Reads all sections of options and what they refer to. `first`: offset of the first one;
    /// `compression`: its name. An error for an unknown compression, malformed or too many
    /// sections, and the text of a latency tracer.
    pub(super) fn read_version_7<F: Read + Seek>(
        &mut self,
        file: &mut F,
        compression: &str,
        first: u64,
    ) -> Result<(), WalkError> {
        let algorithm = match compression {
            "none" => None,
            name => Some(Algorithm::from_name(name)?),
        };
        let mut next = first;
        let (mut has_text, mut instances) = (false, 0);
        for _ in 0..SECTIONS_MAX {
            if next == 0 {
                break;
            }
            let section = self.read_section(file, next, algorithm)?;
            let mut walk = Walk::new(&section[..], self.endian);
            next = loop {
                let id = walk.u16()?;
                let len = walk.u32()?;
                let data = options::read_data(&mut walk, len)?;
                let mut inner = Walk::new(&data[..], self.endian);
                match id {
                    DONE => break inner.u64()?,
                    BUFFER if instances == INSTANCES_MAX => {}
                    BUFFER => {
                        instances += 1;
                        self.take_buffers(file, &mut inner, algorithm)?;
                    }
                    HEADER_INFO => {
                        let section = self.read_section(file, inner.u64()?, algorithm)?;
                        let page = Walk::new(&section[..], self.endian).headers()?;
                        self.set_data_offset(&page)?;
                    }
                    EVENT_FORMATS => {
                        let section = self.read_section(file, inner.u64()?, algorithm)?;
                        let mut walk = Walk::new(&section[..], self.endian);
                        walk.each_format(|system, text| add(&mut self.formats, system, text))?;
                    }
                    BUFFER_TEXT => has_text = true,
                    _ => self.options.add(id, &data, self.endian),
                }
            };
        }
        if next != 0 {
            let what = format!("more than {SECTIONS_MAX} sections of options");
            return Err(WalkError::Wrong(what));
        }
        if has_text && self.buffers.is_empty() {
            return Err(latency_text());
        }
        Ok(())
    }

    /// Reads the section at this offset, unpacked, and counts it against the bound; an error above
    /// either bound.
    fn read_section<F: Read + Seek>(
        &mut self,
        file: &mut F,
        at: u64,
        algorithm: Option<Algorithm>,
    ) -> Result<Vec<u8>, WalkError> {
        let (flags, len, mut walk) = read_section_head(file, self.endian, at)?;
        let is_compressed = flags & FLAG_COMPRESSED != 0;
        let (packed, unpacked) = if is_compressed { (walk.u32()?, walk.u32()?) } else { (0, 0) };
        let largest = len.max(packed.into()).max(unpacked.into());
        if largest > SECTION_MAX_BYTES {
            return Err(WalkError::Wrong(format!(
                "a section of {largest} bytes at byte {at}; at most {SECTION_MAX_BYTES} are read"
            )));
        }
        let Some(left) = self.section_bytes_left.checked_sub(largest) else {
            let what = format!(
                "sections of more than {SECTIONS_MAX_BYTES} bytes together, with that at byte {at}"
            );
            return Err(WalkError::Wrong(what));
        };
        self.section_bytes_left = left;
        if !is_compressed {
            return walk.take(len);
        }
        let data = walk.take(u64::from(packed))?;
        let none =
            || WalkError::Wrong(format!("the section at byte {at} is compressed, the file not"));
        Ok(unpack(algorithm.ok_or_else(none)?, &data, unpacked)?)
    }

    /// Takes the buffers of an instance with their clock and page size, unless earlier ones hold
    /// events. An error if it is malformed or has too many CPUs.
    fn take_buffers<F: Read + Seek>(
        &mut self,
        file: &mut F,
        walk: &mut Walk<&[u8]>,
        algorithm: Option<Algorithm>,
    ) -> Result<(), WalkError> {
        if self.buffers.iter().any(|buffer| buffer.len > 0) {
            return Ok(());
        }
        let section = walk.u64()?;
        walk.string()?; // name of the instance
        self.options.clock = walk.string()?;
        self.page_bytes = walk.u32()?;
        let cpus = walk.u32()?;
        if cpus > CPUS_MAX {
            return Err(WalkError::Wrong(format!("{cpus} CPUs; at most {CPUS_MAX} are read")));
        }
        self.buffers.clear();
        for _ in 0..cpus {
            let (cpu, offset, len) = (walk.u32()?, walk.u64()?, walk.u64()?);
            self.buffers.push(Buffer { cpu, offset, len });
        }
        let (flags, ..) = read_section_head(file, self.endian, section)?;
        self.packed = algorithm.filter(|_| flags & FLAG_COMPRESSED != 0);
        Ok(())
    }
}

/// Flags and length of the section at this offset, and the reader behind its head; an error where
/// the file ends.
fn read_section_head<F: Read + Seek>(
    file: &mut F,
    endian: Endianness,
    at: u64,
) -> Result<(u16, u64, Walk<BufReader<&mut F>>), WalkError> {
    file.seek(SeekFrom::Start(at)).map_err(WalkError::Io)?;
    let mut walk = Walk::new(BufReader::new(file), endian);
    walk.u16()?; // its number
    let flags = walk.u16()?;
    walk.u32()?; // its description
    let len = walk.u64()?;
    Ok((flags, len, walk))
}

#[cfg(test)]
mod tests {
    use super::{EVENT_FORMATS, FLAG_COMPRESSED};
    use crate::raw::WalkError;
    use crate::trace_dat::head::Head;
    use std::io::Cursor;

    fn section(flags: u16, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 2];
        bytes.extend(flags.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend((content.len() as u64).to_le_bytes());
        [&bytes, content].concat()
    }

    fn option(id: u16, data: &[u8]) -> Vec<u8> {
        [&id.to_le_bytes()[..], &(data.len() as u32).to_le_bytes(), data].concat()
    }

    /// A file whose options refer `times` to one section, which unpacks to `len` bytes.
    fn telling(times: usize, len: usize) -> Vec<u8> {
        let mut file = b"\x17\x08\x44tracing7\0\0\x08".to_vec();
        file.extend(4096_u32.to_le_bytes());
        file.extend(b"zstd\x001.5\0");
        let first = file.len() as u64 + 8;
        file.extend(first.to_le_bytes());
        let behind = |options: usize| (first + 16 + options as u64).to_le_bytes();
        let options = |at: [u8; 8]| [option(EVENT_FORMATS, &at).repeat(times), option(0, &[0; 8])];
        let options_len = options([0; 8]).concat().len();
        file.extend(section(0, &options(behind(options_len)).concat()));
        let packed = zstd::encode_all(&vec![0; len][..], 1).unwrap();
        let sizes = [(packed.len() as u32).to_le_bytes(), (len as u32).to_le_bytes()].concat();
        file.extend(section(FLAG_COMPRESSED, &[sizes, packed].concat()));
        file
    }

    #[test]
    fn a_section_that_is_told_of_again_and_again_is_not_unpacked_for_ever() {
        assert!(Head::read(&mut Cursor::new(telling(3, 1 << 20))).is_ok());
        let Err(WalkError::Wrong(what)) = Head::read(&mut Cursor::new(telling(1000, 1 << 20)))
        else {
            panic!("a thousand times a megabyte")
        };
        assert!(what.contains("134217728 bytes together"), "{what}");
    }
}
