//! Protocol buffers as they stand in a file: what the writer needs of them, appended to bytes.

/// A number in base 128, least digits first.
pub(crate) fn varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// A field that is a number. Negative ones are given as `i64 as u64`.
pub(crate) fn number(to: &mut Vec<u8>, field: u32, value: u64) {
    varint(to, u64::from(field) << 3);
    varint(to, value);
}

/// A field of bytes: a text, a message or packed numbers.
pub(crate) fn bytes(to: &mut Vec<u8>, field: u32, value: &[u8]) {
    varint(to, u64::from(field) << 3 | 2);
    varint(to, value.len() as u64);
    to.extend_from_slice(value);
}

/// As [`bytes`], left out where there are none.
pub(crate) fn packed(to: &mut Vec<u8>, field: u32, value: &[u8]) {
    if !value.is_empty() {
        bytes(to, field, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_are_as_the_encoding_has_them() {
        let mut to = Vec::new();
        number(&mut to, 1, 150);
        bytes(&mut to, 2, b"testing");
        number(&mut to, 329, u64::MAX);
        let end = [0xc8, 0x14, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        let text = [0x12, 0x07, b't', b'e', b's', b't', b'i', b'n', b'g'];
        assert_eq!(to, [&[0x08, 0x96, 0x01][..], &text, &end].concat());
    }
}
