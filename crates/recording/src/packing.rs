//! Recognizes the compression of a file by its first bytes, and unpacks it.

use crate::error::Error;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use liblzma::read::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};
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

    /// The unpacked start of the file; an error if it cannot be read.
    pub fn start(&mut self) -> io::Result<Vec<u8>> {
        start_of(&mut self.open()?)
    }

    /// Reads the whole file, unpacked; an error beyond [`HELD_MAX_BYTES`].
    pub fn read_into_memory(&mut self, name: &str) -> Result<Vec<u8>, Error> {
        let file = self.open().map_err(|e| Error::io(name, e))?;
        read_into_memory(name, file)
    }
}

/// Unpacks a stream, with the packing that its first 4 KiB tell; blocks for these.
///
/// # Errors
/// They cannot be read, or begin a packed stream that cannot be unpacked.
pub fn unpacked<'a>(mut file: impl BufRead + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
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

/// Reads at most the first 4 KiB; fewer are no error.
fn start_of(file: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    file.take(START_BYTES).read_to_end(&mut start)?;
    Ok(start)
}
