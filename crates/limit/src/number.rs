//! The kernel's two parsers of numbers: the strict one of single-number files (`kstrtoull()`,
//! `kstrtoll()`) and the lenient one of `cpu.max` (`sscanf()`). Both work on bytes and stop at a
//! NUL, as a C string does.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    NotANumber,
    DoesNotFit,
}

/// Strict: optional `+`, then decimal, `0x` hexadecimal or `0` octal, then at most one newline. The
/// error tells whether it is no number, or does not fit.
pub(crate) fn strict_u64(text: &str) -> Result<u64, Refused> {
    let text = c_string(text);
    magnitude(text.strip_prefix(b"+").unwrap_or(text))
}

/// Strict: optional `+` or `-`, then decimal, `0x` hexadecimal or `0` octal, then at most one
/// newline. The error tells whether it is no number, or does not fit.
pub(crate) fn strict_i64(text: &str) -> Result<i64, Refused> {
    let text = c_string(text);
    if let Some(rest) = text.strip_prefix(b"-") {
        0_i64.checked_sub_unsigned(magnitude(rest)?).ok_or(Refused::DoesNotFit)
    } else {
        let value = magnitude(text.strip_prefix(b"+").unwrap_or(text))?;
        i64::try_from(value).map_err(|_| Refused::DoesNotFit)
    }
}

/// Lenient: the decimal digits at the start of `text`. The rest is ignored, and a number that does
/// not fit wraps. `None` without a digit.
pub(crate) fn leading_u64(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    let wrap = |value: u64, byte: &u8| value.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
    text.first().filter(|byte| byte.is_ascii_digit())?;
    Some(digits.fold(0, wrap))
}

/// The first token, of at most `limit` bytes, and the rest; white space before either is skipped. A
/// longer token is split there. Ends at a NUL.
pub(crate) fn token(text: &str, limit: usize) -> (&[u8], &[u8]) {
    let text = trim_start(c_string(text));
    let end = text.iter().take(limit).take_while(|byte| !is_space(**byte)).count();
    let (token, rest) = text.split_at(end);
    (token, trim_start(rest))
}

/// The bytes before the first NUL.
fn c_string(text: &str) -> &[u8] {
    text.as_bytes().split(|byte| *byte == 0).next().unwrap_or_default()
}

/// The text without leading white space.
fn trim_start(text: &[u8]) -> &[u8] {
    let skipped = text.iter().take_while(|byte| is_space(**byte)).count();
    &text[skipped..]
}

/// White space as the kernel's Latin-1 character table has it.
fn is_space(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | b' ' | 0xa0)
}

/// Parses an unsigned number by its prefix: `0x` hexadecimal, `0` octal, else decimal; one newline
/// may follow. The error tells whether the digits do not fit 64 bits, or it is no number.
fn magnitude(text: &[u8]) -> Result<u64, Refused> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let (digits, radix) = match text {
        [b'0', b'x' | b'X', digits @ ..] if digits.first().is_some_and(u8::is_ascii_hexdigit) => {
            (digits, 16)
        }
        [b'0', ..] => (text, 8),
        _ => (text, 10),
    };
    // An overflow is reported whatever follows the digits.
    let end = digits.iter().position(|byte| !(*byte as char).is_digit(radix));
    let (digits, junk) = digits.split_at(end.unwrap_or(digits.len()));
    let value = digits.iter().try_fold(0_u64, |value, byte| {
        let digit = (*byte as char).to_digit(radix)?;
        value.checked_mul(u64::from(radix))?.checked_add(u64::from(digit))
    });
    match value {
        None => Err(Refused::DoesNotFit),
        Some(_) if digits.is_empty() || !junk.is_empty() => Err(Refused::NotANumber),
        Some(value) => Ok(value),
    }
}
