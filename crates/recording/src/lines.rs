//! Lines of a text, of bounded length.

use std::io::{self, BufRead};

/// Longer lines are no events.
const LINE_MAX_BYTES: usize = 1 << 14;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Newline,
    /// The last line, without a newline.
    OfFile,
    Nothing,
    /// The line is longer than the bound; the buffer has a part of it.
    TooLong,
}

/// Reads a line without its newline into `buffer`, which it clears first. Skips what goes beyond 16
/// KiB. Tells how the line ended; an error if the file cannot be read.
pub(crate) fn next_line(file: &mut impl BufRead, buffer: &mut Vec<u8>) -> io::Result<End> {
    buffer.clear();
    let mut too_long = false;
    loop {
        let chunk = match file.fill_buf() {
            Ok(chunk) => chunk,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        if chunk.is_empty() {
            return Ok(if buffer.is_empty() && !too_long { End::Nothing } else { End::OfFile });
        }
        let newline = memchr::memchr(b'\n', chunk);
        let part = &chunk[..newline.unwrap_or(chunk.len())];
        if buffer.len() + part.len() > LINE_MAX_BYTES {
            too_long = true;
        } else {
            buffer.extend_from_slice(part);
        }
        let used = newline.map_or(chunk.len(), |at| at + 1);
        file.consume(used);
        if newline.is_some() {
            return Ok(if too_long { End::TooLong } else { End::Newline });
        }
    }
}
