//! The packets of a trace, one after the other; compressed ones are unpacked.

use super::wire::{Value, field, fields, varint};
use crate::error::Error;
use flate2::read::ZlibDecoder;
use std::io::{BufRead, Read};

const PACKET: u32 = 1;
const PACKET_KEY: u64 = (PACKET as u64) << 3 | 2;
const COMPRESSED_PACKETS: u32 = 50;
/// Bound on a packet, one of which is held at a time.
const PACKET_MAX_BYTES: u64 = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Whole,
    /// In the middle of a packet.
    Cut,
}

/// Whether the file begins with a packet, as far as its start tells.
pub(crate) fn is_perfetto(start: &[u8]) -> bool {
    let mut at = 0;
    if varint(start, &mut at) != Ok(PACKET_KEY) {
        return false;
    }
    let Ok(len) = varint(start, &mut at) else { return false };
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(start.len() - at);
    let packet = &start[at..at + len];
    let is_cut = at + len == start.len();
    let mut at = 0;
    loop {
        match field(packet, &mut at) {
            Ok(Some((1..=10_000, _))) => {}
            Ok(Some(_)) => return false,
            Ok(None) => return len > 0,
            // A text that begins with an empty line has no zeros or small numbers.
            Err(_) => return is_cut && start.iter().any(|byte| *byte < 9),
        }
    }
}

/// Hands each packet of a stream to `f`, unpacked where it was compressed. Returns whether the
/// stream ends in the middle of a packet.
///
/// # Errors
/// The stream cannot be read, holds something else than packets or one of more than 64 MiB; or an
/// error of `f`.
pub(super) fn each(
    name: &str,
    mut file: impl BufRead,
    mut f: impl FnMut(&[u8]) -> Result<(), Error>,
) -> Result<End, Error> {
    let mut at = 0_u64;
    let mut packet = Vec::new();
    loop {
        let began = at;
        let Some(key) = number(name, &mut file, &mut at)? else {
            return Ok(if at == began { End::Whole } else { End::Cut });
        };
        let Some(len) = number(name, &mut file, &mut at)? else { return Ok(End::Cut) };
        if key != PACKET_KEY || len > PACKET_MAX_BYTES {
            return Err(malformed(name, at, "no packet begins here, or one of more than 64 MiB"));
        }
        packet.clear();
        let read = (&mut file).take(len).read_to_end(&mut packet);
        if (read.map_err(|e| Error::io(name, e))? as u64) < len {
            return Ok(End::Cut);
        }
        at += len;
        let packed = fields(&packet).find(|(number, _)| *number == COMPRESSED_PACKETS);
        match packed {
            Some((_, Value::Bytes(packed))) => {
                let unpacked = unpack(packed).map_err(|what| malformed(name, at, &what))?;
                for (number, packet) in fields(&unpacked) {
                    if number == PACKET {
                        f(packet.bytes())?;
                    }
                }
            }
            _ => f(&packet)?,
        }
    }
}

/// Reads a varint of the stream, and moves `at` behind it; `None` where the stream ends, an error
/// above 64 bits.
fn number(name: &str, file: &mut impl BufRead, at: &mut u64) -> Result<Option<u64>, Error> {
    let mut bytes = [0; 10];
    for len in 1..=bytes.len() {
        let byte = &mut bytes[len - 1..len];
        if file.read(byte).map_err(|e| Error::io(name, e))? == 0 {
            return Ok(None);
        }
        *at += 1;
        if byte[0] < 0x80 {
            return Ok(varint(&bytes[..len], &mut 0).ok());
        }
    }
    Err(malformed(name, *at, "a number of more than 64 bits"))
}

/// Unpacks compressed packets; the error tells if that fails, or gives more than 64 MiB.
fn unpack(packed: &[u8]) -> Result<Vec<u8>, String> {
    let mut unpacked = Vec::new();
    let read = ZlibDecoder::new(packed).take(PACKET_MAX_BYTES + 1).read_to_end(&mut unpacked);
    match read {
        Ok(len) if len as u64 <= PACKET_MAX_BYTES => Ok(unpacked),
        Ok(_) => Err("compressed packets of more than 64 MiB".to_owned()),
        Err(e) => Err(format!("compressed packets cannot be unpacked: {e}")),
    }
}

/// The error of a trace that is malformed at byte `at`.
fn malformed(name: &str, at: u64, what: &str) -> Error {
    Error::malformed(name, format!("byte {at}"), what)
}
