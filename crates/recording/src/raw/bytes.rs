//! Numbers and strings at given offsets of a record; `None` beyond its end.

use linux_perf_event_reader::Endianness;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes<'a> {
    data: &'a [u8],
    little: bool,
}

impl<'a> Bytes<'a> {
    pub fn new(data: &'a [u8], endian: Endianness) -> Self {
        Bytes { data, little: endian == Endianness::LittleEndian }
    }

    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// The `len` bytes at `at`; `None` if they reach beyond the end.
    pub fn part(&self, at: usize, len: usize) -> Option<Bytes<'a>> {
        Some(Bytes { data: self.array(at, len)?, ..*self })
    }

    pub fn u16(&self, at: usize) -> Option<u16> {
        let b: [u8; 2] = self.array(at, 2)?.try_into().ok()?;
        Some(if self.little { u16::from_le_bytes(b) } else { u16::from_be_bytes(b) })
    }

    pub fn u32(&self, at: usize) -> Option<u32> {
        let b: [u8; 4] = self.array(at, 4)?.try_into().ok()?;
        Some(if self.little { u32::from_le_bytes(b) } else { u32::from_be_bytes(b) })
    }

    pub fn i32(&self, at: usize) -> Option<i32> {
        Some(self.u32(at)? as i32)
    }

    pub fn u64(&self, at: usize) -> Option<u64> {
        let b: [u8; 8] = self.array(at, 8)?.try_into().ok()?;
        Some(if self.little { u64::from_le_bytes(b) } else { u64::from_be_bytes(b) })
    }

    pub fn u8(&self, at: usize) -> Option<u8> {
        self.data.get(at).copied()
    }

    /// A number of 1, 2, 4 or 8 bytes, sign-extended if `signed`.
    pub fn number(&self, at: usize, size: usize, signed: bool) -> Option<i64> {
        Some(match (size, signed) {
            (1, false) => i64::from(self.u8(at)?),
            (1, true) => i64::from(self.u8(at)? as i8),
            (2, false) => i64::from(self.u16(at)?),
            (2, true) => i64::from(self.u16(at)? as i16),
            (4, false) => i64::from(self.u32(at)?),
            (4, true) => i64::from(self.i32(at)?),
            (8, _) => self.u64(at)? as i64,
            _ => return None,
        })
    }

    /// At most `len` bytes from `at` on, up to a zero byte or to a byte that is not UTF-8; cut at
    /// the end of the record. `None` if `at` is beyond it.
    pub fn text(&self, at: usize, len: usize) -> Option<&'a str> {
        let data = self.data.get(at..)?;
        Some(text(&data[..len.min(data.len())]))
    }

    fn array(&self, at: usize, len: usize) -> Option<&'a [u8]> {
        self.data.get(at..at.checked_add(len)?)
    }
}

/// The text before the first zero byte, or before a byte that is not UTF-8.
pub(crate) fn text(data: &[u8]) -> &str {
    let data = &data[..memchr::memchr(0, data).unwrap_or(data.len())];
    match std::str::from_utf8(data) {
        Ok(text) => text,
        Err(e) => std::str::from_utf8(&data[..e.valid_up_to()]).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::Bytes;
    use linux_perf_event_reader::Endianness;

    #[test]
    fn reads_both_byte_orders_and_stops_at_the_end() {
        let data = [1, 2, 3, 4, 5, 6, 7, 0xff];
        let little = Bytes::new(&data, Endianness::LittleEndian);
        let big = Bytes::new(&data, Endianness::BigEndian);
        assert_eq!(little.u16(0), Some(0x0201));
        assert_eq!(big.u16(0), Some(0x0102));
        assert_eq!(little.number(7, 1, true), Some(-1));
        assert_eq!(little.number(7, 1, false), Some(255));
        assert_eq!(little.u64(1), None);
        assert_eq!(little.u32(usize::MAX), None);
        assert_eq!(little.number(0, 3, false), None);
    }

    #[test]
    fn text_ends_at_zero_or_at_nonsense() {
        let text = |data: &[u8]| {
            let bytes = Bytes::new(data, Endianness::LittleEndian);
            bytes.text(0, 16).map(str::to_owned)
        };
        assert_eq!(text(b"ab\0cd"), Some("ab".to_owned()));
        assert_eq!(text(b"ab\xffcd"), Some("ab".to_owned()));
        assert_eq!(text(b"0123456789abcdefXYZ"), Some("0123456789abcdef".to_owned()));
    }
}
