//! Checks a perf.data file before it is read. No size in it may make the reader allocate more
//! memory than the file justifies, and a cut file is recognized as cut.

use crate::error::Error;
use crate::raw::Bytes;
use crate::tracepoint::{RECORD_WITH, SWITCH_RECORDS};
use linux_perf_event_reader::Endianness;
use std::io::{self, BufRead, Read, Seek, SeekFrom};
use zstd_safe::{DCtx, InBuffer, OutBuffer};

const MAGIC_LITTLE: &[u8] = b"PERFILE2";
const MAGIC_BIG: &[u8] = b"2ELIFREP";
pub(super) const HEADER_SIZE: usize = 104;
/// Size of the description of an event: the smallest, and the largest that is accepted.
const ATTR_SIZE: std::ops::RangeInclusive<u64> = 64..=4096;
/// Bits of the sections that are read here.
const FEATURE_TRACING_DATA: u64 = 1 << 1;
const FEATURE_CMDLINE: u64 = 1 << 11;
const FEATURE_EVENT_DESC: u64 = 1 << 12;
/// Record types; the first two carry more data than their own size says.
const RECORD_AUXTRACE: u32 = 71;
pub(super) const RECORD_TRACING_DATA: u32 = 66;
const RECORD_FINISHED_ROUND: u32 = 68;
pub(super) const RECORD_COMPRESSED: u32 = 81;
pub(super) const RECORD_COMPRESSED2: u32 = 83;
/// The reader holds two rounds in memory, and so much for each record beside its content. Together
/// they may take this, or in larger files the size of the file.
const RECORD_COST_BYTES: u64 = 160;
const HELD_MAX_BYTES: u64 = 400 << 20;
/// Bound on the sections behind the data, which are held as well; most of them are kernel symbols.
pub(super) const SECTIONS_MAX_BYTES: u64 = 64 << 20;
/// Bound on the names of events, with their numbers on each CPU.
const EVENT_DESC_MAX_BYTES: u64 = 8 << 20;
/// Bound on an unpacked record. perf compresses at most its buffer at once, by default 512 KiB.
const EXPANDED_MAX_BYTES: u64 = 64 << 20;

/// Whether a file begins as perf.data of version 2 does, in either byte order.
pub(crate) fn is_perf_data(start: &[u8]) -> bool {
    start.starts_with(MAGIC_LITTLE) || start.starts_with(MAGIC_BIG)
}

/// Counts records in data that comes in pieces.
struct Records {
    endian: Endianness,
    count: u64,
    head: [u8; 8],
    /// Bytes of the head that are there, and bytes of the record that are to come.
    have: usize,
    left: usize,
}

impl Records {
    /// A count of 0 records.
    fn new(endian: Endianness) -> Self {
        Records { endian, count: 0, head: [0; 8], have: 0, left: 0 }
    }

    /// Counts the records that begin in the next piece of data; a head may be spread over pieces.
    fn count(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            if self.left == 0 {
                let part = data.len().min(8 - self.have);
                self.head[self.have..self.have + part].copy_from_slice(&data[..part]);
                self.have += part;
                data = &data[part..];
                if self.have < 8 {
                    return;
                }
                let size = Bytes::new(&self.head, self.endian).u16(6).unwrap_or(0);
                self.left = usize::from(size).saturating_sub(8);
                self.have = 0;
                self.count += 1;
            }
            let part = data.len().min(self.left);
            self.left -= part;
            data = &data[part..];
        }
    }
}

struct Guard<'a, F> {
    name: &'a str,
    file: &'a mut F,
    len: u64,
    endian: Endianness,
}

#[derive(Clone, Copy)]
struct Section {
    offset: u64,
    size: u64,
}

impl Section {
    /// The byte behind the section; `None` on overflow.
    fn end(self) -> Option<u64> {
        self.offset.checked_add(self.size)
    }
}

/// Checks the head, the sections and the chain of records. Returns the bytes of memory that the
/// reader will hold of them.
///
/// # Errors
/// The file cannot be read, is cut off or contradicts itself.
pub(super) fn check<F: BufRead + Seek>(name: &str, file: &mut F) -> Result<u64, Error> {
    let io = |source| Error::io(name, source);
    let len = file.seek(SeekFrom::End(0)).map_err(io)?;
    file.seek(SeekFrom::Start(0)).map_err(io)?;
    let mut guard = Guard { name, file, len, endian: Endianness::LittleEndian };
    let (data, sections_bytes) = guard.check_head()?;
    // Sections are held as bytes, and again parsed.
    guard.check_records(data, 2 * sections_bytes)
}

impl<F: BufRead + Seek> Guard<'_, F> {
    /// Takes the byte order from the head. Returns the section of the data, and the size of all
    /// further sections, bytes.
    ///
    /// # Errors
    /// The file ends too early, perf did not finish it, or a field of the head is impossible.
    fn check_head(&mut self) -> Result<(Section, u64), Error> {
        let head =
            self.read_at(0, HEADER_SIZE.min(usize::try_from(self.len).unwrap_or(HEADER_SIZE)))?;
        if head.starts_with(MAGIC_BIG) {
            self.endian = Endianness::BigEndian;
        }
        let bytes = Bytes::new(&head, self.endian);
        if head.len() < HEADER_SIZE {
            return Err(
                self.cut(format!("it has {} bytes, its head alone {HEADER_SIZE}", self.len))
            );
        }
        let number = |at: usize| bytes.u64(at).unwrap_or(0);
        let section = |at: usize| Section { offset: number(at), size: number(at + 8) };
        let (attr_size, attrs, data) = (number(16), section(24), section(40));
        if number(8) != HEADER_SIZE as u64 {
            return Err(self.malformed(
                8,
                format!("a head of {} bytes; only {HEADER_SIZE} are read", number(8)),
            ));
        }
        if !ATTR_SIZE.contains(&attr_size) {
            return Err(self.malformed(
                16,
                format!("descriptions of events of {attr_size} bytes; 64 to 4096 are possible"),
            ));
        }
        if data.size == 0 {
            return Err(
                self.cut("perf did not finish it (its head says that it holds no data)".to_owned())
            );
        }
        for (section, what) in [(attrs, "the attributes"), (data, "the data")] {
            match section.end() {
                Some(end) if end <= self.len => {}
                end => {
                    let end =
                        end.map_or("beyond any file".to_owned(), |end| format!("at byte {end}"));
                    return Err(self.cut(format!(
                        "{what} should end {end}, the file ends at byte {}",
                        self.len
                    )));
                }
            }
        }
        Ok((data, self.check_features(data, number(72))?))
    }

    /// Checks the table of further sections, which follows the data, and the contents of the
    /// command line and of the names of events; returns the sections' size in all, bytes.
    /// `first_word`: the first 64 feature bits of the header. Errors: tracepoints or names of
    /// events are missing, a section lies outside of the file, all are too large, or counts in
    /// those two do not fit them.
    ///
    /// # Errors
    /// Tracepoints or names of events are missing, a section lies outside of the file, or all are
    /// too large.
    fn check_features(&mut self, data: Section, first_word: u64) -> Result<u64, Error> {
        let words = self.read_at(72, 32)?;
        let bits: u32 = words.iter().map(|b| b.count_ones()).sum();
        for (bit, what) in [
            (FEATURE_TRACING_DATA, "descriptions of tracepoints"),
            (FEATURE_EVENT_DESC, "names of events"),
        ] {
            if first_word & bit == 0 && bit == FEATURE_TRACING_DATA && self.has_switch_records()? {
                let what = format!("{SWITCH_RECORDS}; {RECORD_WITH}");
                return Err(Error::unsupported(self.name, what));
            }
            if first_word & bit == 0 {
                return Err(Error::unsupported(
                    self.name,
                    format!("it holds no {what}; {RECORD_WITH}"),
                ));
            }
        }
        let mut at = data.end().unwrap_or(self.len);
        let mut total = 0_u64;
        for index in 0..bits {
            let entry = self.read_at(at, 16)?;
            let bytes = Bytes::new(&entry, self.endian);
            let section = Section {
                offset: bytes.u64(0).unwrap_or(u64::MAX),
                size: bytes.u64(8).unwrap_or(u64::MAX),
            };
            total = total.saturating_add(section.size);
            if section.end().is_none_or(|end| end > self.len) || total > self.len {
                let what = format!(
                    "section {index} ({} bytes at {}) does not fit in",
                    section.size, section.offset
                );
                return Err(self.cut(what));
            }
            if total > SECTIONS_MAX_BYTES {
                let what = format!(
                    "sections of more than {SECTIONS_MAX_BYTES} bytes beside the data; feed the \
                     output of `perf script -i FILE`"
                );
                return Err(self.malformed(at, what));
            }
            // The table is in order of the bits.
            let is_of =
                |bit: u64| first_word & bit != 0 && index == ((bit - 1) & first_word).count_ones();
            if is_of(FEATURE_CMDLINE) {
                self.check_command_line(section)?;
            }
            if is_of(FEATURE_EVENT_DESC) {
                self.check_event_desc(section)?;
            }
            at += 16;
        }
        Ok(total)
    }

    /// Whether an event asks for records of thread switches (`context_switch`) instead of
    /// tracepoints; an error where the file ends too early.
    fn has_switch_records(&mut self) -> Result<bool, Error> {
        const FLAGS_AT: u64 = 40;
        const CONTEXT_SWITCH: u64 = 1 << 26;
        let head = self.read_at(16, 24)?;
        let number = |at: usize| Bytes::new(&head, self.endian).u64(at).unwrap_or(0);
        let (attr_size, attrs) =
            (number(0).max(1), Section { offset: number(8), size: number(16) });
        for ix in 0..attrs.size / attr_size {
            let flags = self.read_at(attrs.offset.saturating_add(ix * attr_size + FLAGS_AT), 8)?;
            if Bytes::new(&flags, self.endian).u64(0).unwrap_or(0) & CONTEXT_SWITCH != 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// An error if the command line has more words than fit its section, at four bytes each.
    fn check_command_line(&mut self, section: Section) -> Result<(), Error> {
        if section.size < 4 {
            return Ok(());
        }
        let start = self.read_at(section.offset, 4)?;
        let count = u64::from(Bytes::new(&start, self.endian).u32(0).unwrap_or(0));
        if count * 4 <= section.size {
            return Ok(());
        }
        let what = format!(
            "a command line of {count} words in {} bytes, of 4 each at least",
            section.size
        );
        Err(self.malformed(section.offset, what))
    }

    /// An error if the section with the names of events is too large, or its counts do not fit it.
    fn check_event_desc(&mut self, section: Section) -> Result<(), Error> {
        let place = section.offset;
        if section.size > EVENT_DESC_MAX_BYTES {
            let what = format!("names of events of more than {EVENT_DESC_MAX_BYTES} bytes");
            return Err(self.malformed(place, what));
        }
        let data =
            self.read_at(section.offset, usize::try_from(section.size).unwrap_or(usize::MAX))?;
        let bytes = Bytes::new(&data, self.endian);
        let walk = || {
            let count = bytes.u32(0)?;
            let attr_size = u64::from(bytes.u32(4)?);
            if !ATTR_SIZE.contains(&attr_size) || u64::from(count) > section.size / attr_size {
                return None;
            }
            let mut at = 8;
            for _ in 0..count {
                at += attr_size as usize;
                let ids = bytes.u32(at)? as usize;
                let text = bytes.u32(at + 4)? as usize;
                at = at.checked_add(8)?.checked_add(text)?.checked_add(ids.checked_mul(8)?)?;
                bytes.part(0, at)?;
            }
            Some(())
        };
        walk().ok_or_else(|| {
            self.malformed(place, "the names of the events do not fit their section".to_owned())
        })
    }

    /// Checks that every record lies within the data, is of a kind that is read, and unpacks.
    /// Returns the most bytes held at a time, with `always_bytes`; an error where these are above
    /// the bound.
    fn check_records(&mut self, data: Section, always_bytes: u64) -> Result<u64, Error> {
        self.seek(data.offset)?;
        let end = data.end().unwrap_or(self.len);
        let mut at = data.offset;
        let mut zstd = None;
        let (mut round_bytes, mut before_bytes, mut held_bytes) = (0_u64, 0_u64, 0);
        let most_bytes = HELD_MAX_BYTES.max(self.len);
        let mut inner = Records::new(self.endian);
        while at < end {
            let mut head = [0; 8];
            self.read_exact(&mut head)?;
            let bytes = Bytes::new(&head, self.endian);
            let (kind, size) = (bytes.u32(0).unwrap_or(0), u64::from(bytes.u16(6).unwrap_or(0)));
            if size < 8 || at + size > end {
                return Err(self.malformed(
                    at,
                    format!("a record of {size} bytes; 8 to {} are possible", end - at),
                ));
            }
            let mut held = size + RECORD_COST_BYTES;
            match kind {
                RECORD_AUXTRACE | RECORD_TRACING_DATA => {
                    let what = "holds hardware trace data (-e intel_pt// and the like), which is \
                                not read; record without";
                    return Err(self.malformed(at, what.to_owned()));
                }
                RECORD_COMPRESSED | RECORD_COMPRESSED2 => {
                    let mut body = vec![0; size as usize - 8];
                    self.read_exact(&mut body)?;
                    let body = if kind == RECORD_COMPRESSED {
                        &body[..]
                    } else {
                        self.without_padding(&body, at)?
                    };
                    let context = zstd.get_or_insert_with(DCtx::create);
                    held = self.expanded_bytes(context, body, at, &mut inner)?;
                }
                RECORD_FINISHED_ROUND => {
                    (before_bytes, round_bytes) = (round_bytes, 0);
                    self.skip(size - 8)?;
                }
                _ => self.skip(size - 8)?,
            }
            round_bytes += held;
            held_bytes = held_bytes.max(always_bytes + before_bytes + round_bytes);
            if held_bytes > most_bytes {
                let what = format!(
                    "it unpacks to more than {} MiB without a mark up to where it is in order; \
                     feed the output of `perf script -i FILE`",
                    most_bytes >> 20
                );
                return Err(self.malformed(at, what));
            }
            at += size;
        }
        Ok(held_bytes)
    }

    /// The data of the newer kind of compressed record, without its padding; an error if it tells a
    /// larger size than it has.
    fn without_padding<'b>(&self, body: &'b [u8], at: u64) -> Result<&'b [u8], Error> {
        let len = Bytes::new(body, self.endian).u64(0);
        let len = len.and_then(|len| usize::try_from(len).ok());
        let data = len.and_then(|len| body.get(8..)?.get(..len));
        data.ok_or_else(|| self.malformed(at, "a compressed record larger than itself".to_owned()))
    }

    /// Memory that a compressed record takes, bytes: its content, and a cost for each record in it.
    /// Unpacks it to count these in `inner`; an error if it cannot be, or is above 64 MiB.
    fn expanded_bytes(
        &self,
        context: &mut DCtx<'_>,
        body: &[u8],
        at: u64,
        inner: &mut Records,
    ) -> Result<u64, Error> {
        let before = inner.count;
        let mut scratch = [0_u8; 1 << 13];
        let mut input = InBuffer::around(body);
        let mut total = 0_u64;
        loop {
            let mut output = OutBuffer::around(&mut scratch[..]);
            if let Err(code) = context.decompress_stream(&mut output, &mut input) {
                let what =
                    format!("a record cannot be unpacked: {}", zstd_safe::get_error_name(code));
                return Err(self.malformed(at, what));
            }
            let written = output.pos();
            total += written as u64;
            inner.count(&scratch[..written]);
            if total > EXPANDED_MAX_BYTES {
                return Err(self.malformed(
                    at,
                    format!("a compressed record of more than {EXPANDED_MAX_BYTES} bytes"),
                ));
            }
            if written < scratch.len() && input.pos() == body.len() {
                return Ok(total + (inner.count - before) * RECORD_COST_BYTES);
            }
        }
    }

    /// Reads `len` bytes at byte `at`; [`Error::Cut`] if the file ends before.
    fn read_at(&mut self, at: u64, len: usize) -> Result<Vec<u8>, Error> {
        if at.checked_add(len as u64).is_none_or(|end| end > self.len) {
            return Err(self.cut(format!(
                "{len} bytes are missing at byte {at}, the file ends at byte {}",
                self.len
            )));
        }
        self.seek(at)?;
        let mut data = vec![0; len];
        self.read_exact(&mut data)?;
        Ok(data)
    }

    /// Seeks to byte `at` of the file.
    fn seek(&mut self, at: u64) -> Result<(), Error> {
        self.file.seek(SeekFrom::Start(at)).map_err(|e| self.io(e))?;
        Ok(())
    }

    /// Moves on by `len` bytes without reading them.
    fn skip(&mut self, len: u64) -> Result<(), Error> {
        let skipped = self.file.seek_relative(len as i64);
        skipped.map_err(|e| self.io(e))
    }

    /// Fills the buffer from the present place.
    fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), Error> {
        let read = Read::read_exact(self.file, buffer);
        read.map_err(|e| self.io(e))
    }

    /// The error of reading this file.
    fn io(&self, source: io::Error) -> Error {
        Error::io(self.name, source)
    }

    /// The error of a file whose end is missing.
    fn cut(&self, what: String) -> Error {
        Error::Cut { name: self.name.to_owned(), what }
    }

    /// The error of a contradiction at byte `at`.
    fn malformed(&self, at: u64, what: String) -> Error {
        Error::malformed(self.name, format!("byte {at}"), what)
    }
}

#[cfg(test)]
mod tests {
    use super::Records;
    use linux_perf_event_reader::Endianness;

    #[test]
    fn records_are_counted_however_they_are_cut() {
        let record = |size: u16| {
            let mut record = vec![0; usize::from(size)];
            record[6..8].copy_from_slice(&size.to_le_bytes());
            record
        };
        let data: Vec<u8> = [8, 24, 8, 100].into_iter().flat_map(record).collect();
        for piece in 1..data.len() {
            let mut records = Records::new(Endianness::LittleEndian);
            data.chunks(piece).for_each(|part| records.count(part));
            assert_eq!(records.count, 4, "in pieces of {piece}");
        }
    }
}
