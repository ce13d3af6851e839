//! Protocol buffers, read field by field in place: a message takes no memory beyond its bytes.

use crate::raw::text;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// Of a variable or fixed number of bytes.
    Number(u64),
    /// A string, a message, or several numbers.
    Bytes(&'a [u8]),
}

/// The data is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken;

impl<'a> Value<'a> {
    /// The number; 0 if it is bytes.
    pub fn number(self) -> u64 {
        match self {
            Value::Number(number) => number,
            Value::Bytes(_) => 0,
        }
    }

    /// The number with its sign; 0 if it is bytes. Negative numbers of any width are written with
    /// 64 bits.
    pub fn i32(self) -> i32 {
        self.number() as i32
    }

    /// The bytes; none if it is a number.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Value::Number(_) => &[],
            Value::Bytes(bytes) => bytes,
        }
    }

    /// The bytes as text, which ends before a zero, or where it is not UTF-8.
    pub fn text(self) -> &'a str {
        text(self.bytes())
    }
}

/// Reads the number at `at`, seven bits a byte, and moves `at` behind it; an error if the data end
/// or it has more than 64 bits.
pub(super) fn varint(data: &[u8], at: &mut usize) -> Result<u64, Broken> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *data.get(*at).ok_or(Broken)?;
        *at += 1;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(Broken)
}

/// Where a message or a column lies in a bundle, and how far it has been read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Part {
    pub begin: usize,
    pub end: usize,
}

impl Part {
    /// Takes the next number of a column; `None` at its end.
    pub fn next_number(&mut self, bundle: &[u8]) -> Option<u64> {
        varint(bundle.get(..self.end)?, &mut self.begin).ok()
    }
}

/// Reads number and value of the field at `at`, and moves `at` behind it; `None` at the end, an
/// error where there is no field.
pub(super) fn field<'a>(
    data: &'a [u8],
    at: &mut usize,
) -> Result<Option<(u32, Value<'a>)>, Broken> {
    if *at >= data.len() {
        return Ok(None);
    }
    let key = varint(data, at)?;
    let number = u32::try_from(key >> 3).map_err(|_| Broken)?;
    let value = match key & 7 {
        0 => Value::Number(varint(data, at)?),
        1 => Value::Number(u64::from_le_bytes(fixed(data, at)?)),
        2 => {
            let len = usize::try_from(varint(data, at)?).map_err(|_| Broken)?;
            Value::Bytes(part(data, at, len)?)
        }
        5 => Value::Number(u64::from(u32::from_le_bytes(fixed(data, at)?))),
        _ => return Err(Broken),
    };
    if number == 0 {
        return Err(Broken);
    }
    Ok(Some((number, value)))
}

/// Reads the `N` bytes at `at`, and moves `at` behind them; an error if there are fewer.
fn fixed<const N: usize>(data: &[u8], at: &mut usize) -> Result<[u8; N], Broken> {
    part(data, at, N)?.try_into().map_err(|_| Broken)
}

/// The `len` bytes at `at`; moves `at` behind them. An error if there are fewer.
fn part<'a>(data: &'a [u8], at: &mut usize, len: usize) -> Result<&'a [u8], Broken> {
    let end = at.checked_add(len).ok_or(Broken)?;
    let part = data.get(*at..end).ok_or(Broken)?;
    *at = end;
    Ok(part)
}

/// The fields of a message, up to the first that is broken.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a> {
    data: &'a [u8],
    at: usize,
}

/// The fields of a message, by number and value, up to the first that is broken.
pub(super) fn fields(data: &[u8]) -> Fields<'_> {
    Fields { data, at: 0 }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, Value<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        field(self.data, &mut self.at).ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::{Broken, Value, field, fields, varint};

    #[test]
    fn reads_every_kind_of_field_and_stops_at_the_end() {
        let data = [0x08, 0x96, 0x01, 0x12, 2, b'a', b'b', 0x1d, 1, 0, 0, 0, 0x21, 2, 0, 0, 0];
        let data = [&data[..], &[0, 0, 0, 0]].concat();
        let all: Vec<_> = fields(&data).collect();
        let want = [
            (1, Value::Number(150)),
            (2, Value::Bytes(b"ab")),
            (3, Value::Number(1)),
            (4, Value::Number(2)),
        ];
        assert_eq!(all, want);
        for len in [1, 2, 4, 6, 9, 14, 20] {
            let mut at = 0;
            let broken = loop {
                match field(&data[..len], &mut at) {
                    Ok(Some(_)) => {}
                    other => break other,
                }
            };
            assert_eq!(broken, Err(Broken), "{len}");
        }
    }

    #[test]
    fn numbers_have_64_bits() {
        let minus_one = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(varint(&minus_one, &mut 0), Ok(u64::MAX));
        assert_eq!(Value::Number(u64::MAX).i32(), -1);
        assert_eq!(varint(&[0xff; 11], &mut 0), Err(Broken));
    }

    #[test]
    fn text_ends_at_nonsense() {
        assert_eq!(Value::Bytes(b"ab\xffc").text(), "ab");
        assert_eq!(Value::Bytes(b"ab\0c").text(), "ab");
        assert_eq!(Value::Number(7).text(), "");
    }
}
