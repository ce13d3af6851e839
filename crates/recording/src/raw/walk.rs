//! The head of a trace.dat file, which is also a section of perf.data. It has magic, version, byte
//! order, sizes, header page, header event, and the tracer's own events. Then follow the `format`
//! files of the events of each system (`sched`, `irq`, …).

use super::bytes::Bytes;
use linux_perf_event_reader::Endianness;
use std::io::{self, BufRead, Read};

const MAGIC: &[u8] = b"\x17\x08\x44tracing";
/// No description is longer.
const SIZED_MAX_BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct Walk<R> {
    reader: R,
    pub endian: Endianness,
    pub at: u64,
}

/// Why the walk ends early.
#[derive(Debug)]
pub(crate) enum WalkError {
    Io(io::Error),
    /// The file contradicts its form.
    Wrong(String),
}

impl From<String> for WalkError {
    fn from(what: String) -> Self {
        WalkError::Wrong(what)
    }
}

impl<R: BufRead> Walk<R> {
    /// A walk from the beginning of `reader`; byte 0 of its count is there.
    pub fn new(reader: R, endian: Endianness) -> Self {
        Walk { reader, endian, at: 0 }
    }

    /// Reads the first bytes, and takes the byte order from them. Returns version and size of a
    /// page; an error without the magic bytes.
    pub fn open(&mut self) -> Result<(String, u32), WalkError> {
        if self.take(MAGIC.len() as u64)? != MAGIC {
            return Err(WalkError::Wrong(
                "it does not begin with the magic bytes of tracing data".to_owned(),
            ));
        }
        let version = self.string()?;
        if self.take(1)? != [0] {
            self.endian = Endianness::BigEndian;
        }
        self.take(1)?; // size of a long
        Ok((version, self.u32()?))
    }

    /// Reads the descriptions of a page of the ring buffer, whose text it returns, and of the heads
    /// of events; an error where they do not stand.
    pub fn headers(&mut self) -> Result<String, WalkError> {
        self.expect("header_page")?;
        let page = self.sized()?;
        self.expect("header_event")?;
        self.sized()?;
        Ok(page)
    }

    /// Skips the descriptions of the tracer's own events; an error where the file ends.
    pub fn own_formats(&mut self) -> Result<(), WalkError> {
        for _ in 0..self.u32()? {
            self.sized()?;
        }
        Ok(())
    }

    /// Calls `f` with the system and the description of each event; its error ends the walk.
    pub fn each_format(
        &mut self,
        mut f: impl FnMut(&str, &str) -> Result<(), String>,
    ) -> Result<(), WalkError> {
        for _ in 0..self.u32()? {
            let system = self.string()?;
            for _ in 0..self.u32()? {
                f(&system, &self.sized()?)?;
            }
        }
        Ok(())
    }

    /// Reads the next `len` bytes; an error if there are fewer.
    pub fn take(&mut self, len: u64) -> Result<Vec<u8>, WalkError> {
        let mut taken = Vec::new();
        (&mut self.reader).take(len).read_to_end(&mut taken).map_err(WalkError::Io)?;
        self.at += taken.len() as u64;
        if taken.len() as u64 == len { Ok(taken) } else { Err(self.ends()) }
    }

    /// Moves on by `len` bytes; an error if there are fewer.
    pub fn skip(&mut self, len: u64) -> Result<(), WalkError> {
        let skipped = io::copy(&mut (&mut self.reader).take(len), &mut io::sink());
        let skipped = skipped.map_err(WalkError::Io)?;
        self.at += skipped;
        if skipped == len { Ok(()) } else { Err(self.ends()) }
    }

    /// Reads a string up to a zero byte, which must come within 1 MiB; bytes that are not UTF-8 are
    /// replaced.
    pub fn string(&mut self) -> Result<String, WalkError> {
        let mut text = Vec::new();
        let mut limited = (&mut self.reader).take(SIZED_MAX_BYTES);
        limited.read_until(0, &mut text).map_err(WalkError::Io)?;
        self.at += text.len() as u64;
        if text.pop() == Some(0) {
            Ok(String::from_utf8_lossy(&text).into_owned())
        } else {
            Err(self.ends())
        }
    }

    pub fn u16(&mut self) -> Result<u16, WalkError> {
        let data = self.take(2)?;
        Ok(Bytes::new(&data, self.endian).u16(0).unwrap_or(0))
    }

    pub fn u32(&mut self) -> Result<u32, WalkError> {
        let data = self.take(4)?;
        Ok(Bytes::new(&data, self.endian).u32(0).unwrap_or(0))
    }

    pub fn u64(&mut self) -> Result<u64, WalkError> {
        let data = self.take(8)?;
        Ok(Bytes::new(&data, self.endian).u64(0).unwrap_or(0))
    }

    /// Reads a string; an error if it is another one.
    fn expect(&mut self, what: &str) -> Result<(), WalkError> {
        if self.string()? == what {
            return Ok(());
        }
        Err(WalkError::Wrong(format!("no {what} before byte {}", self.at)))
    }

    /// Reads text that is preceded by its size in 64 bits; an error above 1 MiB.
    fn sized(&mut self) -> Result<String, WalkError> {
        let size = self.u64()?;
        if size > SIZED_MAX_BYTES {
            return Err(WalkError::Wrong(format!(
                "a description of {size} bytes; at most {SIZED_MAX_BYTES} are read"
            )));
        }
        let text = self.take(size)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// The error of a file that ends here.
    fn ends(&self) -> WalkError {
        WalkError::Wrong(format!("ends at byte {}, before it is complete", self.at))
    }
}
