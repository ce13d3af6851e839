//! Version 7: sections that options tell the places of, each perhaps compressed.

use super::chunks::{Algorithm, unpack};
use super::head::{Buffer, CPUS_MAX, Head, add, latency};
use super::options::{self, DONE};
use crate::raw::{Walk, WalkError};
use std::io::{BufReader, Read, Seek, SeekFrom};

/// Sections that are believed, and their sizes.
const SECTIONS_MAX: usize = 256;
const SECTION_MAX_BYTES: u64 = 64 << 20;
const FLAG_COMPRESSED: u16 = 1;

/// Options that tell places.
const BUFFER: u16 = 3;
const HEADER_INFO: u16 = 16;
const EVENT_FORMATS: u16 = 18;
const BUFFER_TEXT: u16 = 22;

impl Head {
    /// `first`: where the first section of options is.
    pub(super) fn version_7<F: Read + Seek>(
        &mut self,
        file: &mut F,
        compression: &str,
        first: u64,
    ) -> Result<(), WalkError> {
        let algorithm = match compression {
            "none" => None,
            name => Some(Algorithm::named(name)?),
        };
        let mut next = first;
        let mut has_text = false;
        for _ in 0..SECTIONS_MAX {
            if next == 0 {
                break;
            }
            let section = self.section(file, next, algorithm)?;
            let mut walk = Walk::new(&section[..], self.endian);
            next = loop {
                let id = walk.u16()?;
                let len = walk.u32()?;
                let data = options::data(&mut walk, len)?;
                let mut inner = Walk::new(&data[..], self.endian);
                match id {
                    DONE => break inner.u64()?,
                    BUFFER => self.buffer(file, &mut inner, algorithm)?,
                    HEADER_INFO => {
                        let section = self.section(file, inner.u64()?, algorithm)?;
                        let page = Walk::new(&section[..], self.endian).headers()?;
                        self.page_header(&page)?;
                    }
                    EVENT_FORMATS => {
                        let section = self.section(file, inner.u64()?, algorithm)?;
                        let mut walk = Walk::new(&section[..], self.endian);
                        walk.each_format(|text| add(&mut self.formats, text))?;
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
            return Err(latency());
        }
        Ok(())
    }

    /// What is in the section at that place.
    fn section<F: Read + Seek>(
        &self,
        file: &mut F,
        at: u64,
        algorithm: Option<Algorithm>,
    ) -> Result<Vec<u8>, WalkError> {
        let (flags, len, mut walk) = self.section_head(file, at)?;
        if len > SECTION_MAX_BYTES {
            return Err(WalkError::Wrong(format!("a section of {len} bytes at byte {at}")));
        }
        if flags & FLAG_COMPRESSED == 0 {
            return walk.take(len);
        }
        let (packed, unpacked) = (walk.u32()?, walk.u32()?);
        if u64::from(packed.max(unpacked)) > SECTION_MAX_BYTES {
            return Err(WalkError::Wrong(format!("a section of {unpacked} bytes at byte {at}")));
        }
        let data = walk.take(u64::from(packed))?;
        let none = || WalkError::Wrong(format!("the section at byte {at} is compressed, by none"));
        Ok(unpack(algorithm.ok_or_else(none)?, &data, unpacked)?)
    }

    /// Flags and length of the section at that place, and what comes behind its head.
    fn section_head<'a, F: Read + Seek>(
        &self,
        file: &'a mut F,
        at: u64,
    ) -> Result<(u16, u64, Walk<BufReader<&'a mut F>>), WalkError> {
        file.seek(SeekFrom::Start(at)).map_err(WalkError::Io)?;
        let mut walk = Walk::new(BufReader::new(file), self.endian);
        walk.u16()?; // its number
        let flags = walk.u16()?;
        walk.u32()?; // its description
        let len = walk.u64()?;
        Ok((flags, len, walk))
    }

    /// The buffers of an instance, if those before hold nothing.
    fn buffer<F: Read + Seek>(
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
        let (flags, ..) = self.section_head(file, section)?;
        self.packed = algorithm.filter(|_| flags & FLAG_COMPRESSED != 0);
        Ok(())
    }
}
