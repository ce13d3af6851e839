//! Compresses packets, to keep recordings small.

use flate2::{Compress, Compression, FlushCompress, Status};
use std::io;

/// Compressor of packets, with zlib's fastest level.
pub(crate) struct Deflate {
    with: Compress,
    packed: Vec<u8>,
}

impl Deflate {
    pub fn new() -> Deflate {
        Deflate { with: Compress::new(Compression::fast(), true), packed: Vec::new() }
    }

    /// Compresses packets into one zlib stream.
    pub fn packed(&mut self, packets: &[u8]) -> io::Result<&[u8]> {
        self.with.reset();
        self.packed.clear();
        // Incompressible data grows by some bytes for every 16 kB.
        self.packed.reserve(packets.len() + packets.len() / 1024 + 64);
        let status = self.with.compress_vec(packets, &mut self.packed, FlushCompress::Finish)?;
        match status {
            Status::StreamEnd => Ok(&self.packed),
            _ => Err(io::Error::other("packets grow when they are compressed")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn packets_of_any_kind_are_compressed_and_unpacked() {
        let mut deflate = Deflate::new();
        let mut random = 1u64;
        let mut noise = |len: usize| -> Vec<u8> {
            let mut next = || {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 56) as u8
            };
            (0..len).map(|_| next()).collect()
        };
        for packets in [vec![], vec![7; 1 << 18], noise(1), noise(100), noise(1 << 18)] {
            let mut unpacked = Vec::new();
            let packed = deflate.packed(&packets).unwrap();
            flate2::read::ZlibDecoder::new(packed).read_to_end(&mut unpacked).unwrap();
            assert!(unpacked == packets, "{} bytes", packets.len());
        }
    }
}
