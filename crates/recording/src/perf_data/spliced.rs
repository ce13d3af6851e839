//! Puts other layouts of perf.data together to the one that is read: what was written to a pipe
//! (`perf record -o -`), and directories of `perf record --threads`. Parts of files stay where they
//! are; only heads and tables are made anew.

use super::guard::{
    HEADER_SIZE, RECORD_COMPRESSED, RECORD_COMPRESSED2, RECORD_TRACING_DATA, SECTIONS_MAX_BYTES,
    is_perf_data,
};
use crate::error::Error;
use crate::raw::Bytes;
use linux_perf_event_reader::Endianness;
use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};

const PIPE_HEADER_SIZE: u64 = 16;
const RECORD_HEADER_FEATURE: u32 = 80;
const FEATURE_TRACING_DATA: u64 = 1;
/// Number of bits for features.
const FEATURES: u64 = 256;
/// Bound on the parts: descriptions stand together, so few are enough.
const PARTS_MAX: usize = 4096;
/// Size of an event's description in present files; none is read from there.
const ATTR_SIZE: u64 = 128;

/// Parts of files and of memory, one after the other, to be read as one file.
#[derive(Debug)]
pub(super) struct Spliced<F> {
    files: Vec<F>,
    parts: Vec<Part>,
    at: u64,
    len: u64,
}

#[derive(Debug)]
struct Part {
    /// Offset in the whole.
    begin: u64,
    len: u64,
    from: From,
}

#[derive(Debug)]
enum From {
    Memory(Vec<u8>),
    File { file: usize, offset: u64 },
}

impl<F: Read + Seek> Spliced<F> {
    /// An empty whole over these files.
    fn new(files: Vec<F>) -> Self {
        Spliced { files, parts: Vec::new(), at: 0, len: 0 }
    }

    /// Appends a part of `len` bytes; nothing if that is 0.
    fn push(&mut self, from: From, len: u64) {
        if len > 0 {
            self.parts.push(Part { begin: self.len, len, from });
            self.len += len;
        }
    }

    /// Appends bytes that are held in memory.
    fn push_memory(&mut self, bytes: Vec<u8>) {
        let len = bytes.len() as u64;
        self.push(From::Memory(bytes), len);
    }
}

impl<F: Read + Seek> Read for Spliced<F> {
    /// Reads from the present place, at most up to the end of its part, in memory or in a file, and
    /// moves on; 0 at the end.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let ix = self.parts.partition_point(|part| part.begin + part.len <= self.at);
        let Some(part) = self.parts.get(ix) else { return Ok(0) };
        let within = self.at - part.begin;
        let most = usize::try_from(part.len - within).unwrap_or(usize::MAX).min(buffer.len());
        let buffer = &mut buffer[..most];
        let read = match &part.from {
            From::Memory(bytes) => (&bytes[within as usize..]).read(buffer)?,
            From::File { file, offset } => {
                self.files[*file].seek(SeekFrom::Start(offset + within))?;
                self.files[*file].read(buffer)?
            }
        };
        self.at += read as u64;
        Ok(read)
    }
}

impl<F: Read + Seek> Seek for Spliced<F> {
    /// Moves the present place, also beyond the end; an error before the beginning.
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.len.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}

/// Whether the file was written to a pipe.
pub(super) fn is_pipe(start: &[u8]) -> bool {
    let size = Bytes::new(start, endian(start)).u64(8);
    is_perf_data(start) && size == Some(PIPE_HEADER_SIZE)
}

/// The byte order that the first byte of a perf.data file tells.
fn endian(start: &[u8]) -> Endianness {
    if start.first() == Some(&b'2') { Endianness::BigEndian } else { Endianness::LittleEndian }
}

struct PipeRecord {
    kind: u32,
    /// Size of the record itself.
    size: u64,
    /// Size of the data behind the record: descriptions of tracepoints, whose length it contains.
    behind: u64,
    /// The section that it holds, if it is a description.
    feature: Option<u64>,
}

impl PipeRecord {
    /// A record by its first 16 bytes.
    fn of(head: &[u8; 16], endian: Endianness) -> PipeRecord {
        let bytes = Bytes::new(head, endian);
        let (kind, size) = (bytes.u32(0).unwrap_or(0), u64::from(bytes.u16(6).unwrap_or(0)));
        let (behind, feature) = match kind {
            RECORD_TRACING_DATA => {
                (u64::from(bytes.u32(8).unwrap_or(0)), Some(FEATURE_TRACING_DATA))
            }
            RECORD_HEADER_FEATURE if size >= 16 => (0, Some(bytes.u64(8).unwrap_or(FEATURES))),
            _ => (0, None),
        };
        PipeRecord { kind, size, behind, feature }
    }

    /// Bytes of the record and the data behind it.
    fn len(&self) -> u64 {
        self.size + self.behind
    }

    /// Offset of the section within the record.
    fn body_at(&self) -> u64 {
        if self.kind == RECORD_TRACING_DATA { self.size } else { 16 }
    }
}

/// Lays out what was written to a pipe as a file: records with descriptions become sections, the
/// others stay where they are. Also returns whether the end is missing.
///
/// # Errors
/// A record is smaller than its head, or descriptions are too large or too scattered.
pub(super) fn from_pipe<F: Read + Seek>(
    name: &str,
    mut file: F,
) -> Result<(Spliced<F>, bool), Error> {
    let io = |source| Error::io(name, source);
    let mut walk = io::BufReader::with_capacity(1 << 16, &mut file);
    let mut start = [0; PIPE_HEADER_SIZE as usize];
    walk.read_exact(&mut start).map_err(io)?;
    let endian = endian(&start);
    let mut features: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let (mut at, mut held) = (PIPE_HEADER_SIZE, 0_u64);
    let len = walk.seek(SeekFrom::End(0)).map_err(io)?;
    walk.seek(SeekFrom::Start(at)).map_err(io)?;
    let malformed = |at: u64, what: String| Error::malformed(name, format!("byte {at}"), what);
    let mut is_cut = false;
    while at < len {
        let mut head = [0; 16];
        let have = usize::try_from(len - at).unwrap_or(16).min(16);
        walk.read_exact(&mut head[..have]).map_err(io)?;
        let record = PipeRecord::of(&head, endian);
        if have >= 8 && record.size < 8 {
            return Err(malformed(at, format!("a record of {} bytes; it needs 8", record.size)));
        }
        let next = at + record.len();
        if have < 8 || next > len {
            is_cut = true;
            break;
        }
        if let Some(feature) = record.feature {
            let body_len = record.len() - record.body_at();
            held += body_len;
            if held > SECTIONS_MAX_BYTES {
                let what = format!("descriptions of more than {SECTIONS_MAX_BYTES} bytes");
                return Err(malformed(at, what));
            }
            walk.seek(SeekFrom::Start(at + record.body_at())).map_err(io)?;
            let mut body = vec![0; body_len as usize];
            walk.read_exact(&mut body).map_err(io)?;
            if feature < FEATURES {
                features.entry(feature).or_insert(body);
            }
        } else {
            match ranges.last_mut() {
                Some((_, end)) if *end == at => *end = next,
                _ => ranges.push((at, next)),
            }
            walk.seek_relative((next - at) as i64 - have as i64).map_err(io)?;
        }
        if ranges.len() > PARTS_MAX {
            return Err(malformed(at, format!("descriptions in more than {PARTS_MAX} places")));
        }
        at = next;
    }
    Ok((laid_out(file, endian, &ranges, features), is_cut))
}

/// A perf.data file of a new head, records (`ranges` of `file`), table of sections, and sections
/// (`features`, by their bits). Copies no records.
fn laid_out<F: Read + Seek>(
    file: F,
    endian: Endianness,
    ranges: &[(u64, u64)],
    features: BTreeMap<u64, Vec<u8>>,
) -> Spliced<F> {
    let put = |bytes: &mut Vec<u8>, number: u64| match endian {
        Endianness::LittleEndian => bytes.extend(number.to_le_bytes()),
        Endianness::BigEndian => bytes.extend(number.to_be_bytes()),
    };
    let magic: &[u8; 8] = if endian == Endianness::BigEndian { b"2ELIFREP" } else { b"PERFILE2" };
    let data_len: u64 = ranges.iter().map(|(begin, end)| end - begin).sum();
    let mut bits = [0_u64; 4];
    for feature in features.keys() {
        bits[(feature / 64) as usize] |= 1 << (feature % 64);
    }
    let head_len = HEADER_SIZE as u64;
    let mut head = magic.to_vec();
    for number in [head_len, ATTR_SIZE, head_len, 0, head_len, data_len, 0, 0] {
        put(&mut head, number);
    }
    for bits in bits {
        put(&mut head, bits);
    }
    let mut spliced = Spliced::new(vec![file]);
    spliced.push_memory(head);
    for (begin, end) in ranges {
        spliced.push(From::File { file: 0, offset: *begin }, end - begin);
    }
    let mut table = Vec::new();
    let mut offset = head_len + data_len + 16 * features.len() as u64;
    for body in features.values() {
        put(&mut table, offset);
        put(&mut table, body.len() as u64);
        offset += body.len() as u64;
    }
    spliced.push_memory(table);
    for body in features.into_values() {
        spliced.push_memory(body);
    }
    spliced
}

/// Lays out the files of a directory as one: the first with its head, then the records of the
/// others. The end of a zstd frame follows each compressed file, and the head's sizes are raised.
/// [`Error::Cut`] where the first file is shorter than its head tells.
pub(super) fn from_threads<F: Read + Seek>(
    name: &str,
    mut files: Vec<F>,
) -> Result<Spliced<F>, Error> {
    let io = |source| Error::io(name, source);
    let cut = |what: String| Error::Cut { name: name.to_owned(), what };
    let mut head = vec![0; HEADER_SIZE];
    let lens: Vec<u64> = files
        .iter_mut()
        .map(|file| file.seek(SeekFrom::End(0)))
        .collect::<Result<_, _>>()
        .map_err(io)?;
    let Some(first) = files.first_mut() else { return Ok(Spliced::new(files)) };
    first.seek(SeekFrom::Start(0)).map_err(io)?;
    first.read_exact(&mut head).map_err(io)?;
    let endian = endian(&head);
    let number = |bytes: &[u8], at: usize| Bytes::new(bytes, endian).u64(at).unwrap_or(0);
    let (begin, size) = (number(&head, 40), number(&head, 48));
    let sections: u32 = head[72..104].iter().map(|byte| byte.count_ones()).sum();
    let table_len = 16 * u64::from(sections);
    let end = begin.checked_add(size).filter(|end| *end <= lens[0] && begin >= 104);
    let table_end = end.map(|end| end + table_len).filter(|end| *end <= lens[0]);
    let (Some(end), Some(table_end)) = (end, table_end) else {
        return Err(cut(format!("its data end beyond the file's {} bytes", lens[0])));
    };
    let mut table = vec![0; table_len as usize];
    first.seek(SeekFrom::Start(end)).map_err(io)?;
    first.read_exact(&mut table).map_err(io)?;
    // Each file is compressed by itself, and perf leaves its zstd frame open.
    let mut ends = Vec::new();
    for (ix, (file, len)) in files.iter_mut().zip(&lens).enumerate() {
        let records = if ix == 0 { (begin, end) } else { (0, *len) };
        let is_compressed = has_compressed(file, endian, records).map_err(io)?;
        ends.push(if is_compressed { end_of_frame(endian) } else { Vec::new() });
    }
    let grown = lens[1..].iter().copied().chain(ends.iter().map(|end| end.len() as u64));
    let grown = grown.fold(0, u64::saturating_add);
    let later = |bytes: &mut [u8], at: usize| {
        let number = number(bytes, at).saturating_add(grown);
        let number = match endian {
            Endianness::LittleEndian => number.to_le_bytes(),
            Endianness::BigEndian => number.to_be_bytes(),
        };
        bytes[at..at + 8].copy_from_slice(&number);
    };
    later(&mut head, 48);
    for section in 0..sections as usize {
        later(&mut table, 16 * section);
    }
    let mut spliced = Spliced::new(files);
    spliced.push_memory(head);
    for ((file, len), frame_end) in lens.iter().enumerate().zip(ends) {
        let (from, to) = if file == 0 { (HEADER_SIZE as u64, end) } else { (0, *len) };
        spliced.push(From::File { file, offset: from }, to - from);
        spliced.push_memory(frame_end);
    }
    spliced.push_memory(table);
    spliced.push(From::File { file: 0, offset: table_end }, lens[0] - table_end);
    Ok(spliced)
}

/// Whether there is a compressed record within this range of a file. Stops at a record of
/// impossible size; an error if the file cannot be read.
fn has_compressed(
    file: &mut (impl Read + Seek),
    endian: Endianness,
    (mut at, end): (u64, u64),
) -> io::Result<bool> {
    let mut walk = io::BufReader::with_capacity(1 << 16, file);
    walk.seek(SeekFrom::Start(at))?;
    while at + 8 <= end {
        let mut head = [0; 8];
        walk.read_exact(&mut head)?;
        let head = Bytes::new(&head, endian);
        let (kind, size) = (head.u32(0).unwrap_or(0), head.u16(6).unwrap_or(0));
        if [RECORD_COMPRESSED, RECORD_COMPRESSED2].contains(&kind) {
            return Ok(true);
        }
        // The reader of the record reports the wrong size.
        let Some(behind) = size.checked_sub(8) else { break };
        walk.seek_relative(i64::from(behind))?;
        at += u64::from(size);
    }
    Ok(false)
}

/// A compressed record that ends a zstd frame: an empty last block (RFC 8878).
fn end_of_frame(endian: Endianness) -> Vec<u8> {
    const LAST_BLOCK: [u8; 3] = [1, 0, 0];
    let size = 8 + LAST_BLOCK.len() as u16;
    let (kind, size) = match endian {
        Endianness::LittleEndian => (RECORD_COMPRESSED.to_le_bytes(), size.to_le_bytes()),
        Endianness::BigEndian => (RECORD_COMPRESSED.to_be_bytes(), size.to_be_bytes()),
    };
    [&kind[..], &[0; 2], &size, &LAST_BLOCK].concat()
}
