//! Speed and number of rounds of a replay, as users write them.
//!
//! ```text
//! recorded                 by the frames' times
//! 2x, 0.5x                 a multiple of that
//! full                     as fast as the switch takes frames
//! 10000pps, 10kpps         frames a second
//! 100Mbit                  bits a second, counted as `port stats` counts bytes
//! ```

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

use crate::OpenError;

/// Speed of a replay. See the module's documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speed {
    /// A multiple of the recorded speed, in thousandths: 1,000 is the recorded speed.
    Recorded {
        /// 1 to 1,000,000.
        thousandths: u32,
    },
    /// As fast as the switch takes frames.
    Full,
    /// Frames a second.
    Frames(u64),
    /// Bits a second.
    Bits(u64),
}

impl Default for Speed {
    fn default() -> Self {
        Speed::Recorded { thousandths: 1000 }
    }
}

const FRAMES: &[(&str, u64)] = &[("Mpps", 1_000_000), ("kpps", 1_000), ("pps", 1)];
const BITS: &[(&str, u64)] = &[("Gbit", 1_000_000_000), ("Mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)];

/// Range of speeds in frames a second.
const FRAME_RATES: std::ops::RangeInclusive<u64> = 1..=1_000_000_000;
/// Range of speeds in bits a second.
const BIT_RATES: std::ops::RangeInclusive<u64> = 1_000..=1_000_000_000_000;
/// Range of multiples of the recorded speed, in thousandths.
const MULTIPLES: std::ops::RangeInclusive<u64> = 1..=1_000_000;

impl FromStr for Speed {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Self, OpenError> {
        let wrong = |why: &str| {
            OpenError(format!(
                "`{text}` is not a speed{why}; expected `recorded`, `2x`, `full`, `10000pps` or `100Mbit`"
            ))
        };
        match text {
            "recorded" => return Ok(Speed::default()),
            "full" => return Ok(Speed::Full),
            _ => {}
        }
        if let Some(number) = text.strip_suffix('x') {
            let thousandths = scaled(number, 1000).ok_or_else(|| wrong(""))?;
            return match u32::try_from(thousandths) {
                Ok(thousandths) if MULTIPLES.contains(&u64::from(thousandths)) => {
                    Ok(Speed::Recorded { thousandths })
                }
                _ => Err(wrong(": 0.001x to 1000x are possible")),
            };
        }
        let rate = text.strip_suffix("/s").unwrap_or(text);
        let of = |units: &[(&str, u64)]| {
            units.iter().find_map(|(unit, factor)| {
                let at = rate.len().checked_sub(unit.len())?;
                let (number, name) = rate.split_at_checked(at)?;
                // `pps` also ends `kpps`, so a number must be in front of it.
                name.eq_ignore_ascii_case(unit).then(|| scaled(number, *factor)).flatten()
            })
        };
        if let Some(rate) = of(FRAMES) {
            let good = FRAME_RATES.contains(&rate);
            return good
                .then_some(Speed::Frames(rate))
                .ok_or_else(|| wrong(": 1pps to 1000Mpps are possible"));
        }
        let rate = of(BITS).ok_or_else(|| wrong(""))?;
        let good = BIT_RATES.contains(&rate);
        good.then_some(Speed::Bits(rate)).ok_or_else(|| wrong(": 1kbit to 1000Gbit are possible"))
    }
}

/// Returns `number * factor`, if `number` is decimal and the product whole.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| {
        let good = !text.is_empty() && text.len() <= 15 && text.bytes().all(|b| b.is_ascii_digit());
        good.then(|| text.parse::<u64>().ok()).flatten()
    };
    let parts = 10u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let fraction = digits(fraction)?.checked_mul(factor)?;
    let whole = digits(whole)?.checked_mul(factor)?;
    fraction.is_multiple_of(parts).then_some(())?;
    whole.checked_add(fraction / parts)
}

impl fmt::Display for Speed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, units) = match *self {
            Speed::Recorded { thousandths: 1000 } => return out.write_str("recorded"),
            Speed::Recorded { thousandths } => return write!(out, "{}x", f64::from(thousandths) / 1000.0),
            Speed::Full => return out.write_str("full"),
            Speed::Frames(rate) => (rate, FRAMES),
            Speed::Bits(rate) => (rate, BITS),
        };
        let whole = units.iter().find(|(_, factor)| rate.is_multiple_of(*factor));
        let (unit, factor) = whole.copied().unwrap_or(("", 1));
        write!(out, "{}{unit}", rate / factor)
    }
}

impl Serialize for Speed {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Speed {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

/// Number of times that a file is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounds {
    /// This many times, at least once.
    Times(u32),
    /// Without end.
    Forever,
}

impl Default for Rounds {
    fn default() -> Self {
        Rounds::Times(1)
    }
}

impl Rounds {
    fn times(number: u64) -> Option<Self> {
        u32::try_from(number).ok().filter(|times| *times > 0).map(Rounds::Times)
    }
}

impl fmt::Display for Rounds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rounds::Times(times) => write!(out, "{times}"),
            Rounds::Forever => out.write_str("forever"),
        }
    }
}

impl Serialize for Rounds {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Rounds::Times(times) => to.serialize_u32(*times),
            Rounds::Forever => to.serialize_str("forever"),
        }
    }
}

impl<'de> Deserialize<'de> for Rounds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(RoundsVisitor)
    }
}

/// Reads a number or a text: the configuration file has both, the command line only text.
struct RoundsVisitor;

impl Visitor<'_> for RoundsVisitor {
    type Value = Rounds;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("1 to 4294967295 rounds, or `forever`")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Rounds, E> {
        Rounds::times(number).ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Rounds, E> {
        let times = u64::try_from(number).ok().and_then(Rounds::times);
        times.ok_or_else(|| E::invalid_value(de::Unexpected::Signed(number), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Rounds, E> {
        let times = match text {
            "forever" => Some(Rounds::Forever),
            number => number.parse().ok().and_then(Rounds::times),
        };
        times.ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_read_and_written_alike() {
        for (text, speed) in [
            ("recorded", Speed::Recorded { thousandths: 1000 }),
            ("2x", Speed::Recorded { thousandths: 2000 }),
            ("0.5x", Speed::Recorded { thousandths: 500 }),
            ("0.001x", Speed::Recorded { thousandths: 1 }),
            ("full", Speed::Full),
            ("17pps", Speed::Frames(17)),
            ("10kpps", Speed::Frames(10_000)),
            ("1500kpps", Speed::Frames(1_500_000)),
            ("100Mbit", Speed::Bits(100_000_000)),
        ] {
            assert_eq!(text.parse(), Ok(speed), "{text}");
            assert_eq!(speed.to_string(), text);
        }
        for (text, speed) in [
            ("1x", Speed::default()),
            ("10000pps", Speed::Frames(10_000)),
            ("1.5Mpps", Speed::Frames(1_500_000)),
            ("2.5gbit/s", Speed::Bits(2_500_000_000)),
        ] {
            assert_eq!(text.parse(), Ok(speed), "{text}");
        }
    }

    #[test]
    fn invalid_speeds_are_refused_with_valid_examples() {
        for text in
            ["", "x", "fast", "-1x", "1e3x", "1.x", ".5x", "0.0001x", "10", "10 pps", "1.5pps", "é", "9bits"]
        {
            let error = text.parse::<Speed>().unwrap_err().0;
            let expected = format!(
                "`{text}` is not a speed; expected `recorded`, `2x`, `full`, `10000pps` or `100Mbit`"
            );
            assert_eq!(error, expected);
        }
        for (text, range) in [
            ("0x", "0.001x to 1000x"),
            ("1001x", "0.001x to 1000x"),
            ("0pps", "1pps to 1000Mpps"),
            ("1001Mpps", "1pps to 1000Mpps"),
            ("999bit", "1kbit to 1000Gbit"),
            ("1001Gbit", "1kbit to 1000Gbit"),
        ] {
            let error = text.parse::<Speed>().unwrap_err().0;
            assert!(error.starts_with(&format!("`{text}` is not a speed: {range} are possible;")), "{error}");
        }
    }
}
