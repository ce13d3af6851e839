//! Amounts of CPU and memory as Kubernetes writes them: `500m`, `0.5`, `2`, `1e3`, `64Mi`.
//!
//! Follows the grammar of `resource.Quantity` in apimachinery. An amount is exact to 10^-9 of its
//! unit, as there. Negative amounts are refused: no request or limit may be one.

use serde::de::{self, Deserialize, Deserializer, Visitor};
use std::fmt;

/// An amount in 10^-9 of its unit: CPUs or bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Quantity(u128);

const NANO: u128 = 1_000_000_000;
/// 10^-9 in a thousandth.
const MILLI: u128 = 1_000_000;
/// Digits before and behind the point; larger numbers are no amount of a machine.
const DIGITS_MAX: usize = 18;

impl Quantity {
    /// So many thousandths of a CPU.
    pub fn of_milli(milli: u64) -> Quantity {
        Quantity(u128::from(milli) * MILLI)
    }

    /// Thousandths of a CPU, rounded up as the API server does.
    pub fn milli(self) -> u64 {
        u64::try_from(self.0.div_ceil(MILLI)).unwrap_or(u64::MAX)
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Whether it is a whole number of CPUs, above zero.
    pub fn is_whole(self) -> bool {
        self.0 > 0 && self.0.is_multiple_of(NANO)
    }

    /// Both together.
    pub fn plus(self, other: Quantity) -> Quantity {
        Quantity(self.0.saturating_add(other.0))
    }

    /// The amount less the other, at least nothing.
    pub fn minus(self, other: Quantity) -> Quantity {
        Quantity(self.0.saturating_sub(other.0))
    }

    /// Parses an amount; `None` if it is none, or too large.
    fn parse(text: &str) -> Option<Quantity> {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let text = text.strip_prefix('+').unwrap_or(text);
        let at = text.find(|c: char| !is_number(c)).unwrap_or(text.len());
        let (number, suffix) = text.split_at(at);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let too_long = whole.len() > DIGITS_MAX || fraction.len() > DIGITS_MAX;
        if whole.len() + fraction.len() == 0 || too_long || fraction.contains('.') {
            return None;
        }
        let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
        let (times, parts) = scale(suffix)?;
        let times = digits.checked_mul(times)?.checked_mul(NANO)?;
        let parts = parts.checked_mul(10u128.checked_pow(fraction.len() as u32)?)?;
        Some(Quantity(times.div_ceil(parts)))
    }
}

/// The factor of a suffix, as a fraction; `None` for an unknown suffix.
fn scale(suffix: &str) -> Option<(u128, u128)> {
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let decimal = |power: i32| {
        let size = 10u128.pow(power.unsigned_abs());
        if power < 0 { (1, size) } else { (size, 1) }
    };
    if let Some(at) = BINARY.iter().position(|binary| *binary == suffix) {
        return Some((1 << (10 * (at + 1)), 1));
    }
    let power = match suffix {
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "" => 0,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        _ => suffix
            .strip_prefix(['e', 'E'])?
            .parse()
            .ok()
            .filter(|power| (-18..=18).contains(power))?,
    };
    Some(decimal(power))
}

/// As an amount of CPU: `500m`, `2`.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.milli() {
            milli if milli.is_multiple_of(1_000) => write!(f, "{}", milli / 1_000),
            milli => write!(f, "{milli}m"),
        }
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Quantity, D::Error> {
        deserializer.deserialize_any(Amount)
    }
}

/// Takes a text or a number.
struct Amount;

impl Visitor<'_> for Amount {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an amount such as 500m, 0.5 or 64Mi")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
        Quantity::parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
        self.visit_str(&number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact() {
        let read = |text: &str| Quantity::parse(text).map(|amount| amount.0);
        for (text, nano) in [
            ("500m", 500_000_000),
            ("0.5", 500_000_000),
            (".5", 500_000_000),
            ("+2", 2 * NANO),
            ("1e3", 1_000 * NANO),
            ("5E-1", 500_000_000),
            ("1E", 10u128.pow(27)),
            ("100u", 100_000),
            ("1.5Ki", 1_536 * NANO),
            ("64Mi", (64 << 20) * NANO),
            ("0", 0),
            ("0.0000000001", 1),
        ] {
            assert_eq!(read(text), Some(nano), "{text}");
        }
        for text in ["", "m", "-1", "1x", "1.2.3", "1e99", "1ki", "0x10", "1_000", "５"] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(read(&"9".repeat(40)), None);
    }

    #[test]
    fn cpus_are_written_as_kubernetes_does() {
        for (text, written) in [("0.5", "500m"), ("2000m", "2"), ("100u", "1m"), ("0", "0")] {
            assert_eq!(Quantity::parse(text).unwrap().to_string(), written);
        }
        assert!(Quantity::of_milli(2_000).is_whole() && !Quantity::of_milli(1_500).is_whole());
    }
}
