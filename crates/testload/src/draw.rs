//! Random lengths of time from a seed: `2ms`, `uniform:1ms..3ms`, `exp:2ms`, `lognormal:2ms,0.5`.
//!
//! Each connection or thread has its own generator, so its draws do not depend on the speed of
//! others. Lengths are at most twenty times the mean or median, which bounds a load.

use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use std::str::FromStr;

const LONGEST_OF_TYPICAL: f64 = 20.0;
const LONGEST_NS: u64 = 3_600_000_000_000;

/// A length of time, or its distribution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Span {
    Constant { ns: u64 },
    Uniform { low_ns: u64, high_ns: u64 },
    Exponential { mean_ns: u64 },
    LogNormal { median_ns: u64, sigma: f64 },
}

impl Span {
    pub fn draw_ns(self, stream: &mut Stream) -> u64 {
        let long_ns = |typical_ns: u64, factor: f64| {
            (typical_ns as f64 * factor.min(LONGEST_OF_TYPICAL)) as u64
        };
        match self {
            Span::Constant { ns } => ns,
            Span::Uniform { low_ns, high_ns } => {
                low_ns + (stream.unit() * (high_ns - low_ns + 1) as f64) as u64
            }
            Span::Exponential { mean_ns } => long_ns(mean_ns, -libm::log(1.0 - stream.unit())),
            Span::LogNormal { median_ns, sigma } => {
                long_ns(median_ns, libm::exp(sigma * stream.normal()))
            }
        }
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let wanted = || {
            format!(
                "`{text}`: expected `2ms`, `uniform:1ms..3ms`, `exp:2ms` or `lognormal:2ms,0.5`, \
                 at most 1 h, units s, ms, us, ns"
            )
        };
        let span = match text.split_once(':') {
            None => time_ns(text).map(|ns| Span::Constant { ns }),
            Some(("exp", mean)) => time_ns(mean).map(|mean_ns| Span::Exponential { mean_ns }),
            Some(("uniform", range)) => range.split_once("..").and_then(|(low, high)| {
                let (low_ns, high_ns) = (time_ns(low)?, time_ns(high)?);
                (low_ns <= high_ns).then_some(Span::Uniform { low_ns, high_ns })
            }),
            Some(("lognormal", rest)) => rest.split_once(',').and_then(|(median, sigma)| {
                let (median_ns, sigma) = (time_ns(median)?, sigma.parse::<f64>().ok()?);
                (0.0..=5.0).contains(&sigma).then_some(Span::LogNormal { median_ns, sigma })
            }),
            Some(_) => None,
        };
        span.ok_or_else(wanted)
    }
}

/// Parses a length of time such as `1.5ms` from the command line, ns.
pub fn parse_ns(text: &str) -> Result<u64, String> {
    time_ns(text)
        .ok_or_else(|| format!("`{text}`: expected a time such as `2ms`, units s, ms, us, ns"))
}

fn time_ns(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| c.is_ascii_alphabetic())?;
    let unit_ns = match &text[digits..] {
        "s" => 1e9,
        "ms" => 1e6,
        "us" => 1e3,
        "ns" => 1.0,
        _ => return None,
    };
    let ns = text[..digits].parse::<f64>().ok()? * unit_ns;
    (0.0..=LONGEST_NS as f64).contains(&ns).then_some(ns as u64)
}

pub struct Stream(Pcg64Mcg);

impl Stream {
    /// The stream of one thread or connection.
    pub fn new(seed: u64, index: u64) -> Stream {
        Stream(Pcg64Mcg::seed_from_u64(
            seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index.wrapping_mul(0xd1b5_4a32_d192_ed03),
        ))
    }

    /// A uniform number in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A standard normal number (Box-Muller).
    fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.unit()));
        radius * libm::cos(std::f64::consts::TAU * self.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_ns(text: &str) -> f64 {
        let span: Span = text.parse().unwrap();
        let mut stream = Stream::new(7, 3);
        (0..20_000).map(|_| span.draw_ns(&mut stream) as f64).sum::<f64>() / 20_000.0
    }

    #[test]
    fn each_distribution_has_its_mean() {
        assert!((mean_ns("2ms") - 2e6).abs() < 1.0);
        assert!((mean_ns("uniform:1ms..3ms") - 2e6).abs() < 3e4);
        assert!((mean_ns("exp:2ms") - 2e6).abs() < 6e4);
        let expected = 2e6 * libm::exp(0.125);
        assert!((mean_ns("lognormal:2ms,0.5") - expected).abs() < 6e4);
    }

    #[test]
    fn one_seed_gives_one_sequence_and_another_index_another() {
        let span = Span::Exponential { mean_ns: 1_000_000 };
        let draw = |seed, index| {
            let mut stream = Stream::new(seed, index);
            (0..8).map(|_| span.draw_ns(&mut stream)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn bad_spans_are_refused() {
        for text in [
            "",
            "2",
            "ms",
            "-1ms",
            "2h",
            "uniform:3ms..1ms",
            "exp:",
            "lognormal:1ms,9",
            "x:1ms",
            "5000s",
        ] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
