//! Encodes Protocol Buffers: appends fields to bytes.

/// Appends a varint (base 128, lowest digits first).
pub(crate) fn varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Appends a numeric field; negative values as `i64 as u64`.
pub(crate) fn number(to: &mut Vec<u8>, field: u32, value: u64) {
    varint(to, u64::from(field) << 3);
    varint(to, value);
}

/// Appends a length-delimited field: a text, a message or packed numbers.
pub(crate) fn bytes(to: &mut Vec<u8>, field: u32, value: &[u8]) {
    varint(to, u64::from(field) << 3 | 2);
    varint(to, value.len() as u64);
    to.extend_from_slice(value);
}

/// As [`bytes`], but omits an empty field.
pub(crate) fn packed(to: &mut Vec<u8>, field: u32, value: &[u8]) {
    if !value.is_empty() {
        bytes(to, field, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_match_the_encoding() {
        let mut to = Vec::new();
        number(&mut to, 1, 150);
        bytes(&mut to, 2, b"testing");
        number(&mut to, 329, u64::MAX);
        let end = [0xc8, 0x14, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        let text = [0x12, 0x07, b't', b'e', b's', b't', b'i', b'n', b'g'];
        assert_eq!(to, [&[0x08, 0x96, 0x01][..], &text, &end].concat());
    }
}
