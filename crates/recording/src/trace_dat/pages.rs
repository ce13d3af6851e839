//! The buffer of a CPU: pages as the kernel fills them, each with a time, the size in use, and
//! events one after the other.

use super::chunks::{Algorithm, unpack};
use super::head::{Buffer, Head};
use crate::raw::{Bytes, WalkError};
use linux_perf_event_reader::Endianness;
use std::io::{Read, Seek, SeekFrom};

/// Flags in the size of a page: events are missing before it, and their number stands behind its
/// events.
const MISSED: u32 = 1 << 31;
const MISSED_STORED: u32 = 1 << 30;
const COMMIT_MASK: u32 = (1 << 27) - 1;
/// Types of an event's head, in the place of its length in words.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// Bits of the time since the event before.
const DELTA_BITS: u32 = 27;
/// Bits of an absolute time; the highest ones are left out.
const STAMP_BITS: u32 = 59;
/// Bytes of pages that are read at once where they are not compressed.
const PIECE_BYTES: u64 = 1 << 16;

/// Offset and length of an event in the piece.
#[derive(Debug, Clone, Copy, Default)]
struct Record {
    at: usize,
    len: usize,
}

/// A CPU's buffer, and how far it has been read.
#[derive(Debug)]
pub(super) struct CpuBuffer {
    pub cpu: u32,
    /// Number of events that are missing before the next one.
    pub lost: Option<u64>,
    endian: Endianness,
    page_bytes: usize,
    data_at: usize,
    packed: Option<Algorithm>,
    piece_max_bytes: u64,
    /// The range of the file that has not been read yet, and its remaining chunks.
    at: u64,
    end: u64,
    chunks: Option<u32>,
    /// Some pages, and the positions of the current one and its next event in them.
    piece: Vec<u8>,
    page: usize,
    next: usize,
    page_end: usize,
    time: u64,
    record: Record,
}

impl CpuBuffer {
    /// The buffer of a CPU before its first event; it holds at most `piece_max_bytes`. An error if
    /// it ends beyond any file.
    pub fn new(buffer: &Buffer, head: &Head, piece_max_bytes: u64) -> Result<Self, String> {
        // The number of chunks is not part of the length.
        let len = buffer.len.saturating_add(if head.packed.is_some() { 4 } else { 0 });
        let end = buffer.offset.checked_add(len);
        let end = end.ok_or_else(|| format!("the buffer of CPU {} has no end", buffer.cpu))?;
        Ok(CpuBuffer {
            cpu: buffer.cpu,
            lost: None,
            endian: head.endian,
            page_bytes: head.page_bytes as usize,
            data_at: head.data_at,
            packed: head.packed,
            piece_max_bytes,
            at: buffer.offset,
            end,
            chunks: None,
            piece: Vec::new(),
            page: 0,
            next: 0,
            page_end: 0,
            time: 0,
            record: Record::default(),
        })
    }

    /// The event at which it stands; `None` before the first.
    pub fn record(&self) -> Option<&[u8]> {
        self.piece.get(self.record.at..self.record.at + self.record.len)
    }

    /// Goes on to the next event, and returns its time on the recorded clock; `None` after the
    /// last, an error where a page is malformed.
    pub fn advance<F: Read + Seek>(&mut self, file: &mut F) -> Result<Option<u64>, WalkError> {
        loop {
            while self.next < self.page_end {
                if self.read_event()? {
                    return Ok(Some(self.time));
                }
            }
            if !self.read_page(file)? {
                return Ok(None);
            }
        }
    }

    /// Reads the record at `next`, and moves behind it: sets the time, and `record` if it is an
    /// event. Returns false if it is none: it only sets the time, or is padding. An error if it
    /// goes beyond the page.
    fn read_event(&mut self) -> Result<bool, WalkError> {
        let bytes = Bytes::new(&self.piece[..self.page_end], self.endian);
        let word = |at: usize| bytes.u32(at).ok_or_else(|| self.malformed("an event that is cut"));
        let head = word(self.next)?;
        let (kind, delta) = match self.endian {
            Endianness::LittleEndian => (head & 0x1f, head >> 5),
            Endianness::BigEndian => (head >> DELTA_BITS, head & ((1 << DELTA_BITS) - 1)),
        };
        let delta = u64::from(delta);
        let behind = self.next + 4;
        let long = || word(behind).map(|word| u64::from(word) << DELTA_BITS | delta);
        let (time, record, next) = match kind {
            // The rest of the page is empty.
            PADDING if delta == 0 => (self.time, None, self.page_end),
            PADDING => (self.time.wrapping_add(delta), None, behind + word(behind)? as usize),
            TIME_EXTEND => (self.time.wrapping_add(long()?), None, behind + 4),
            TIME_STAMP => {
                let high = self.time >> STAMP_BITS << STAMP_BITS;
                (high | long()?, None, behind + 4)
            }
            0 => {
                let len = word(behind)? as usize;
                let record = Record { at: behind + 4, len: len.saturating_sub(4) };
                (self.time.wrapping_add(delta), Some(record), behind + len.max(4))
            }
            words => {
                let record = Record { at: behind, len: words as usize * 4 };
                (self.time.wrapping_add(delta), Some(record), behind + record.len)
            }
        };
        if record.is_some_and(|record| record.at + record.len > self.page_end) {
            return Err(self.malformed("an event that goes beyond its page"));
        }
        // Events begin at whole words.
        (self.time, self.next) = (time, next.next_multiple_of(4));
        self.record = record.unwrap_or_default();
        Ok(record.is_some())
    }

    /// Goes on to the next page, takes its time, and adds the events that are missing before it to
    /// `lost`, 1 if their number is unknown. False after the last; an error if the page is
    /// malformed.
    fn read_page<F: Read + Seek>(&mut self, file: &mut F) -> Result<bool, WalkError> {
        self.page += self.page_bytes;
        if self.page + self.page_bytes > self.piece.len() {
            if !self.read_piece(file)? {
                return Ok(false);
            }
            self.page = 0;
        }
        let page = self.piece.get(self.page..self.page + self.page_bytes);
        let page = Bytes::new(page.unwrap_or_default(), self.endian);
        let time = page.u64(0);
        // The size stands in the lower half of a kernel's `long`.
        let high_first = self.endian == Endianness::BigEndian && self.data_at == 16;
        let size = page.u32(if high_first { 12 } else { 8 });
        let (Some(time), Some(size)) = (time, size) else {
            return Err(self.malformed("a page that is cut"));
        };
        let used = (size & COMMIT_MASK) as usize;
        if used > self.page_bytes - self.data_at {
            return Err(self.malformed("a page that holds more than its size"));
        }
        if size & MISSED != 0 {
            let behind = self.data_at + used;
            let is_32_bit = self.data_at == 12;
            let count = if is_32_bit { page.u32(behind).map(u64::from) } else { page.u64(behind) };
            let count = count.filter(|_| size & MISSED_STORED != 0);
            let lost = self.lost.unwrap_or(0).saturating_add(count.unwrap_or(1));
            self.lost = Some(lost);
        }
        self.time = time;
        self.next = self.page + self.data_at;
        self.page_end = self.next + used;
        Ok(true)
    }

    /// Reads the next pages, unpacked, in place of those before; false if there are none, an error
    /// if they are too large or malformed.
    fn read_piece<F: Read + Seek>(&mut self, file: &mut F) -> Result<bool, WalkError> {
        self.piece.clear();
        let Some(algorithm) = self.packed else {
            let page_bytes = self.page_bytes as u64;
            if page_bytes > self.piece_max_bytes {
                return Err(
                    self.malformed(&format!("pages of {page_bytes} bytes for so many CPUs"))
                );
            }
            let pages = PIECE_BYTES.min(self.piece_max_bytes) / page_bytes * page_bytes;
            let pages = pages.max(page_bytes);
            let len = pages.min(self.end - self.at);
            if len < self.page_bytes as u64 {
                return Ok(false);
            }
            self.piece = self.read_bytes(file, len)?;
            return Ok(true);
        };
        if self.at >= self.end {
            return Ok(false);
        }
        let left = match self.chunks {
            Some(left) => left,
            None => self.read_u32(file)?,
        };
        let Some(left) = left.checked_sub(1) else { return Ok(false) };
        self.chunks = Some(left);
        let (packed, unpacked) = (self.read_u32(file)?, self.read_u32(file)?);
        if u64::from(packed.max(unpacked)) > self.piece_max_bytes {
            return Err(self.malformed(&format!("a chunk of {unpacked} bytes")));
        }
        let data = self.read_bytes(file, u64::from(packed))?;
        self.piece = unpack(algorithm, &data, unpacked)?;
        Ok(self.piece.len() >= self.page_bytes)
    }

    /// Reads the next 32 bits in the file's byte order, and moves on; an error if there are fewer.
    fn read_u32<F: Read + Seek>(&mut self, file: &mut F) -> Result<u32, WalkError> {
        let data = self.read_bytes(file, 4)?;
        Ok(Bytes::new(&data, self.endian).u32(0).unwrap_or(0))
    }

    /// Reads the next `len` bytes and moves on behind them.
    ///
    /// # Errors
    /// Fewer are left in the section or in the file, or the file cannot be read.
    fn read_bytes<F: Read + Seek>(&mut self, file: &mut F, len: u64) -> Result<Vec<u8>, WalkError> {
        if len > self.end - self.at {
            return Err(self.malformed("less data than its length tells"));
        }
        file.seek(SeekFrom::Start(self.at)).map_err(WalkError::Io)?;
        let mut data = Vec::new();
        file.by_ref().take(len).read_to_end(&mut data).map_err(WalkError::Io)?;
        if data.len() as u64 != len {
            return Err(WalkError::Wrong(format!(
                "the file ends within it, {} bytes are missing at byte {}",
                len - data.len() as u64,
                self.at + data.len() as u64
            )));
        }
        self.at += len;
        Ok(data)
    }

    /// The error of a contradiction before the present place.
    fn malformed(&self, what: &str) -> WalkError {
        WalkError::Wrong(format!("{what}, before byte {}", self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::super::head::{Buffer, Head};
    use super::super::options::Options;
    use super::{CpuBuffer, MISSED, MISSED_STORED};
    use crate::raw::Formats;
    use linux_perf_event_reader::Endianness;
    use std::io::Cursor;

    const PAGE_BYTES: usize = 128;

    /// A page in the byte order of either kind of machine.
    struct Page {
        bytes: Vec<u8>,
        big: bool,
    }

    impl Page {
        fn new(big: bool, time: u64, used: u32) -> Self {
            let mut page = Page { bytes: Vec::new(), big };
            page.u64(time);
            page.u64(u64::from(used));
            page
        }

        fn u32(&mut self, number: u32) -> &mut Self {
            let bytes = if self.big { number.to_be_bytes() } else { number.to_le_bytes() };
            self.bytes.extend(bytes);
            self
        }

        fn u64(&mut self, number: u64) -> &mut Self {
            let bytes = if self.big { number.to_be_bytes() } else { number.to_le_bytes() };
            self.bytes.extend(bytes);
            self
        }

        fn head(&mut self, kind: u32, delta: u32) -> &mut Self {
            self.u32(if self.big { kind << 27 | delta } else { delta << 5 | kind })
        }

        fn finish(&mut self) -> Vec<u8> {
            self.bytes.resize(PAGE_BYTES, 0);
            self.bytes.clone()
        }
    }

    fn read(pages: &[Vec<u8>], big: bool) -> Result<Vec<(u64, usize, Option<u64>)>, String> {
        let data = pages.concat();
        let head = Head {
            endian: if big { Endianness::BigEndian } else { Endianness::LittleEndian },
            page_bytes: PAGE_BYTES as u32,
            data_at: 16,
            formats: Formats::new(),
            options: Options::default(),
            buffers: Vec::new(),
            packed: None,
            section_bytes_left: 0,
        };
        let buffer = Buffer { cpu: 3, offset: 0, len: data.len() as u64 };
        let mut buffer_of_cpu = CpuBuffer::new(&buffer, &head, 1 << 20).unwrap();
        let mut file = Cursor::new(data);
        let mut events = Vec::new();
        while let Some(time) = buffer_of_cpu.advance(&mut file).map_err(|e| format!("{e:?}"))? {
            events.push((time, buffer_of_cpu.record().unwrap().len(), buffer_of_cpu.lost.take()));
        }
        Ok(events)
    }

    #[test]
    fn times_lengths_and_losses_of_either_byte_order() {
        for big in [false, true] {
            // A word at 5, one at 5 + 2^27 + 3 + 4, one with three bytes of padding, one discarded.
            let mut first = Page::new(big, 5, 4 + 4 + 8 + 8 + 16 + 12);
            first.head(1, 0).u32(1);
            first.head(30, 3).u32(1).head(1, 4).u32(2);
            first.head(0, 10).u32(11).u64(0);
            first.head(29, 7).u32(8).u32(0);
            let mut second = Page::new(big, (1 << 59) + 9, 8 + MISSED + MISSED_STORED);
            second.head(1, 1).u32(1).u64(141);
            let mut third = Page::new(big, (1 << 59) + 20, 20 + MISSED);
            third.head(31, 6).u32(1).head(1, 0).u32(1).head(29, 0);
            let pages = [first.finish(), second.finish(), third.finish()];
            let long = 5 + (1 << 27) + 3;
            assert_eq!(
                read(&pages, big).unwrap(),
                [
                    (5, 4, None),
                    (long + 4, 4, None),
                    (long + 14, 7, None),
                    ((1 << 59) + 10, 4, Some(141)),
                    ((1 << 59) + (1 << 27) + 6, 4, Some(1)),
                ],
                "big: {big}"
            );
        }
    }

    #[test]
    fn events_beyond_their_page_are_refused() {
        let mut used = Page::new(false, 5, 113);
        assert!(read(&[used.finish()], false).unwrap_err().contains("more than its size"));
        let mut event = Page::new(false, 5, 8);
        event.head(2, 0).u32(1).u32(1);
        assert!(read(&[event.finish()], false).unwrap_err().contains("beyond its page"));
        let mut cut = Page::new(false, 5, 4);
        cut.head(0, 0);
        assert!(read(&[cut.finish()], false).unwrap_err().contains("cut"));
    }
}
