//! Sizes as users write them: `256MiB`, `1.5GiB`, `65536`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::OpenError;

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

/// Units from the largest to the smallest; a size is written in the largest of which it is a whole number.
const UNITS: &[(&str, u64)] =
    &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
/// Further units that are read.
const DECIMAL: &[(&str, u64)] =
    &[("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000), ("", 1)];

impl FromStr for Size {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Self, OpenError> {
        let wrong = || OpenError(format!("`{text}` is not a size; expected bytes such as `256MiB`"));
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, name) = text.split_at(end);
        let mut units = UNITS.iter().chain(DECIMAL);
        let (_, factor) = units.find(|(unit, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(wrong)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |text: &str| text.parse::<u64>().ok();
        let parts = u32::try_from(fraction.len()).ok().and_then(|digits| 10u64.checked_pow(digits));
        let sum = || {
            let fraction = digits(fraction)?.checked_mul(*factor)?;
            let (parts, whole) = (parts?, digits(whole)?.checked_mul(*factor)?);
            fraction.is_multiple_of(parts).then_some(())?;
            whole.checked_add(fraction / parts)
        };
        sum().map(Size).ok_or_else(wrong)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = UNITS.iter().find(|(_, factor)| self.0 > 0 && self.0.is_multiple_of(*factor));
        let (unit, factor) = whole.copied().unwrap_or(("B", 1));
        write!(out, "{}{unit}", self.0 / factor)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        /// A text, or the number of bytes.
        struct Either;

        impl de::Visitor<'_> for Either {
            type Value = Size;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("bytes such as \"256MiB\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                let size = u64::try_from(bytes).map(Size);
                size.map_err(|_| E::invalid_value(de::Unexpected::Signed(bytes), &self))
            }
        }

        from.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written_alike() {
        for (text, bytes) in [
            ("0B", 0),
            ("1B", 1),
            ("3KiB", 3072),
            ("256MiB", 256 << 20),
            ("5GiB", 5 << 30),
            ("2TiB", 2 << 40),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)));
            assert_eq!(Size(bytes).to_string(), text);
        }
        for (text, bytes) in [("4096", 4096), ("1.5gib", 3 << 29), ("1MB", 1_000_000), ("0.5kB", 500)] {
            assert_eq!(text.parse(), Ok(Size(bytes)));
        }
        for text in ["", "MiB", "1.B", "1.5B", "-1", "1 MiB", "1MiBs", "99999999999TiB", "1..5kB"] {
            let error = text.parse::<Size>().unwrap_err().0;
            assert_eq!(error, format!("`{text}` is not a size; expected bytes such as `256MiB`"));
        }
    }
}
