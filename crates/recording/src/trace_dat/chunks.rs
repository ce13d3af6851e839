//! Compression of trace-cmd: sections as a whole, buffers in chunks of some pages.

use flate2::read::ZlibDecoder;
use std::io::Read;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Zstd,
    Zlib,
}

impl Algorithm {
    /// The algorithm of this name; an error for others, with the command that converts the file.
    pub fn from_name(name: &str) -> Result<Self, String> {
        match name {
            "zstd" => Ok(Algorithm::Zstd),
            "zlib" => Ok(Algorithm::Zlib),
            other => Err(format!(
                "it is compressed by {}; zstd and zlib are read, convert it with `trace-cmd \
                 convert --compression none`",
                cpumax_limit::one_line(other)
            )),
        }
    }
}

/// Unpacks data; an error if it cannot be, or does not come to exactly `len` bytes.
pub(super) fn unpack(algorithm: Algorithm, packed: &[u8], len: u32) -> Result<Vec<u8>, String> {
    let mut unpacked = Vec::new();
    let most = u64::from(len) + 1;
    let read = match algorithm {
        Algorithm::Zstd => zstd::stream::read::Decoder::with_buffer(packed)
            .and_then(|decoder| decoder.take(most).read_to_end(&mut unpacked)),
        Algorithm::Zlib => ZlibDecoder::new(packed).take(most).read_to_end(&mut unpacked),
    };
    match read {
        Ok(read) if read as u64 == u64::from(len) => Ok(unpacked),
        Ok(_) => {
            Err(format!("the compressed data does not unpack to the {len} bytes that it should"))
        }
        Err(e) => Err(format!("it cannot be unpacked: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Algorithm, unpack};
    use flate2::{Compression, write::ZlibEncoder};
    use std::io::Write;

    #[test]
    fn unpacks_data_of_the_stated_length() {
        let data = vec![7_u8; 10_000];
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        zlib.write_all(&data).unwrap();
        let zlib = zlib.finish().unwrap();
        let zstd = zstd::encode_all(&data[..], 1).unwrap();
        for (algorithm, packed) in [(Algorithm::Zlib, zlib), (Algorithm::Zstd, zstd)] {
            assert_eq!(unpack(algorithm, &packed, 10_000), Ok(data.clone()));
            for len in [9_999, 10_001] {
                assert!(unpack(algorithm, &packed, len).is_err(), "{algorithm:?} {len}");
            }
            assert!(unpack(algorithm, &packed[1..], 10_000).is_err());
        }
        assert!(Algorithm::from_name("lzma").unwrap_err().contains("trace-cmd convert"));
    }
}
