//! Recognizes the form and the compression of a file by its first bytes, and explains why a file of
//! another kind is not read.

use crate::error::Error;
use crate::perf_data::is_perf_data;
use crate::perfetto::is_perfetto;
use crate::trace_dat::is_trace_dat;
use crate::wprof::is_wprof;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use liblzma::read::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};
use schemars::JsonSchema;
use serde::Serialize;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom};

/// Bytes at the start of a file that tell its form.
const START_BYTES: u64 = 4096;
const READ_BYTES: usize = 1 << 18;
/// Most bytes held in memory of a recording that needs seeking but is compressed or comes through a
/// pipe.
const HELD_MAX_BYTES: u64 = 256 << 20;
/// Most memory for unpacking, in bytes for xz, as a power of two for zstd.
const XZ_MAX_BYTES: u64 = 128 << 20;
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// A form of recording that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Form {
    /// Text of `perf script`, `trace-cmd report`, ftrace or atrace.
    Text,
    /// From `perf record`, be it a file, a directory or what went through a pipe.
    PerfData,
    /// A trace of Perfetto.
    Perfetto,
    /// From trace-cmd.
    TraceDat,
    /// JSON of wprof.
    Wprof,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    Plain,
    Gzip,
    Xz,
    Zstd,
    /// Output of `atrace -z`: text, then zlib from this byte on.
    Atrace(usize),
}

/// A file, read from its beginning as often as is needed.
#[derive(Debug)]
pub(crate) struct Source<F> {
    pub file: F,
    packing: Packing,
}

impl<F: Read + Seek> Source<F> {
    /// Seeks to the beginning of a file, and finds by its first bytes how it is packed; an error if
    /// it cannot be read.
    pub fn new(mut file: F) -> io::Result<Self> {
        file.seek(SeekFrom::Start(0))?;
        let packing = Packing::of(&start_of(&mut file)?);
        Ok(Source { file, packing })
    }

    /// Seeks to the beginning, and returns a reader of the unpacked content; an error if the file
    /// cannot be read.
    pub fn open(&mut self) -> io::Result<Box<dyn BufRead + '_>> {
        self.file.seek(SeekFrom::Start(0))?;
        self.packing.unpacked(BufReader::with_capacity(READ_BYTES, &mut self.file))
    }

    /// Whether the file is compressed as a whole.
    pub fn is_packed(&self) -> bool {
        self.packing != Packing::Plain
    }

    /// The form of the file, by its unpacked start; an error tells the kind of one that is not
    /// read.
    pub fn form(&mut self, name: &str) -> Result<Form, Error> {
        let start = self.open().and_then(|mut file| start_of(&mut file));
        Form::of(name, &start.map_err(|e| Error::io(name, e))?)
    }

    /// Reads the whole file, unpacked; an error beyond [`HELD_MAX_BYTES`].
    pub fn read_into_memory(&mut self, name: &str) -> Result<Vec<u8>, Error> {
        let file = self.open().map_err(|e| Error::io(name, e))?;
        read_into_memory(name, file)
    }
}

/// Unpacks what comes through a pipe, with the packing that its first 4 KiB tell; blocks for these.
/// An error if they cannot be read.
pub(crate) fn from_pipe<'a>(mut file: impl BufRead + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    let start = start_of(&mut file)?;
    let packing = Packing::of(&start);
    packing.unpacked(Cursor::new(start).chain(file))
}

/// Reads a whole file into memory, or refuses it beyond [`HELD_MAX_BYTES`].
pub(crate) fn read_into_memory(name: &str, file: impl Read) -> Result<Vec<u8>, Error> {
    let mut held = Vec::new();
    let read = file.take(HELD_MAX_BYTES + 1).read_to_end(&mut held);
    if read.map_err(|e| Error::io(name, e))? as u64 <= HELD_MAX_BYTES {
        return Ok(held);
    }
    Err(Error::unsupported(
        name,
        format!(
            "more than {} MiB of this form must lie in a file that is not compressed",
            HELD_MAX_BYTES >> 20
        ),
    ))
}

impl Packing {
    /// The packing, by the first bytes of a file.
    fn of(start: &[u8]) -> Self {
        match start {
            [0x1f, 0x8b, 8, ..] => Packing::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Packing::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Packing::Xz,
            _ => atrace_at(start).map_or(Packing::Plain, Packing::Atrace),
        }
    }

    /// A reader that unpacks a file of this packing. Text before the packed part of atrace is
    /// skipped at once; an error if that cannot be read.
    fn unpacked<'a>(self, mut file: impl BufRead + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
        let buffered = |file: Box<dyn Read + 'a>| -> Box<dyn BufRead + 'a> {
            Box::new(BufReader::with_capacity(READ_BYTES, file))
        };
        Ok(match self {
            Packing::Plain => Box::new(file),
            Packing::Atrace(at) => {
                io::copy(&mut (&mut file).take(at as u64), &mut io::sink())?;
                buffered(Box::new(ZlibDecoder::new(file)))
            }
            Packing::Gzip => buffered(Box::new(MultiGzDecoder::new(file))),
            Packing::Xz => {
                let stream = Stream::new_stream_decoder(XZ_MAX_BYTES, CONCATENATED)?;
                buffered(Box::new(XzDecoder::new_stream(file, stream)))
            }
            Packing::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(file)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                buffered(Box::new(decoder))
            }
        })
    }
}

impl Form {
    /// Whether the reader of the form seeks, so that the file must not be compressed as a whole.
    pub(crate) fn needs_seeking(self) -> bool {
        match self {
            Form::Text | Form::Perfetto | Form::Wprof => false,
            Form::PerfData | Form::TraceDat => true,
        }
    }

    /// The form, by the start of an unpacked file. A known kind that is not read is refused by
    /// name, as is unknown binary data; everything else counts as text.
    pub(crate) fn of(name: &str, start: &[u8]) -> Result<Form, Error> {
        if is_perf_data(start) {
            return Ok(Form::PerfData);
        }
        if is_trace_dat(start) {
            return Ok(Form::TraceDat);
        }
        if is_wprof(start) {
            return Ok(Form::Wprof);
        }
        if let Some(what) = unread_kind(start) {
            return Err(Error::not_a_recording(name, what));
        }
        if is_perfetto(start) {
            return Ok(Form::Perfetto);
        }
        if start.contains(&0) {
            return Err(Error::not_a_recording(name, "it is of no form that is known"));
        }
        Ok(Form::Text)
    }
}

/// Where the packed part of the output of `atrace -z` begins: the byte behind a line `TRACE:`.
/// `None` if it is no zlib data, or no text stands before.
fn atrace_at(start: &[u8]) -> Option<usize> {
    const LINE: &[u8] = b"TRACE:\n";
    let at = start.windows(LINE.len()).position(|window| window == LINE)? + LINE.len();
    // A zlib header: method deflate, and a checksum over its two bytes.
    let head = [*start.get(at)?, *start.get(at + 1)?];
    let is_zlib = head[0] & 0x0f == 8 && u16::from_be_bytes(head).is_multiple_of(31);
    let is_text =
        start[..at].iter().all(|byte| byte.is_ascii_graphic() || b" \r\n\t".contains(byte));
    (is_zlib && is_text).then_some(at)
}

/// The kind of a file that is not read, and how to get one that is; `None` if its start is of no
/// such kind.
fn unread_kind(start: &[u8]) -> Option<&'static str> {
    Some(match start {
        [] => "it is empty",
        [b'P', b'E', b'R', b'F', b'F', b'I', b'L', b'E', ..]
        | [b'E', b'L', b'I', b'F', b'F', b'R', b'E', b'P', ..] => {
            "it is a perf.data file of version 1 (Linux before 2.6.33); feed the output of `perf \
             script -i FILE` of that perf"
        }
        [0x75, 0xd1, 0x1d, 0x57, ..]
        | [0x57, 0x1d, 0xd1, 0x75, ..]
        | [0xc1, 0x1f, 0xfc, 0xc1, ..]
        | [0xc1, 0xfc, 0x1f, 0xc1, ..] => CTF,
        _ if start.starts_with(b"/* CTF ") => CTF,
        [0x7f, b'E', b'L', b'F', ..] => "it is a program (ELF), not a recording of one",
        [0xd4, 0xc3, 0xb2, 0xa1, ..]
        | [0xa1, 0xb2, 0xc3, 0xd4, ..]
        | [0x4d, 0x3c, 0xb2, 0xa1, ..]
        | [0x0a, 0x0d, 0x0d, 0x0a, ..] => "it holds packets of a network (pcap), not a scheduler's",
        _ if start.starts_with(b"SQLite format 3") => {
            "it is a database (SQLite); feed the trace that it was made of"
        }
        [b'P', b'K', 3, 4, ..] => "it is a zip archive; unpack it first",
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => "it is compressed by bzip2; unpack it first",
        [0x04, 0x22, 0x4d, 0x18, ..] => "it is compressed by lz4; unpack it first",
        [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd, ..] | [0xfd, b'7', b'z', b'X', b'Z', ..] => {
            "it is compressed twice; unpack it first"
        }
        _ if looks_like_json(start) => {
            "it is JSON; feed the perf.data or trace that it was made of (Perfetto traces are read \
             in their own form)"
        }
        // Lines of the idle task begin with `<idle>-0`.
        _ if looks_like_html(start) => {
            "it is a web page (HTML); feed the trace in it, or that it was made of"
        }
        _ => return None,
    })
}

pub(crate) const CTF: &str = "it is a CTF trace (LTTng), which is not read; record with `perf \
    sched record -a --all-cgroups -- sleep 10` instead";

/// Whether a text begins as JSON does, after blanks: with `{` before a `"` or `}`, or with `[`
/// before a `{` or `]`.
pub(crate) fn looks_like_json(start: &[u8]) -> bool {
    let text = start.trim_ascii_start();
    let behind = text.get(1..).unwrap_or_default().trim_ascii_start().first();
    match text.first() {
        Some(b'{') => matches!(behind, Some(b'"' | b'}')),
        Some(b'[') => matches!(behind, Some(b'{' | b']')),
        _ => false,
    }
}

/// Whether a text begins as HTML or XML does.
fn looks_like_html(start: &[u8]) -> bool {
    let text = start.trim_ascii_start().get(..5).unwrap_or_default().to_ascii_lowercase();
    text.starts_with(b"<!") || text == b"<html" || text == b"<?xml"
}

/// Reads at most the first 4 KiB; fewer are no error.
fn start_of(file: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    file.take(START_BYTES).read_to_end(&mut start)?;
    Ok(start)
}
