//! Numbers and conditions as they are written; widths are known later.

use std::fmt;

use pipeline::bits::Bits;
use pipeline::ir::{KeyMatch, MatchKind};

/// A number as written: its digits, of which those of hexadecimal, octal and binary numbers may be `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Literal {
    text: String,
    /// Bits per digit; 0 of a decimal number.
    bits: u32,
    digits: Vec<Option<u8>>,
}

impl Literal {
    /// Reads a number.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        let (bits, digits) = match lower.get(..2) {
            Some("0x") => (4, lower.get(2..)),
            Some("0o") => (3, lower.get(2..)),
            Some("0b") => (1, lower.get(2..)),
            _ => (0, Some(lower.as_str())),
        };
        let radix = if bits == 0 { 10 } else { 1 << bits };
        let digit = |c: char| match c {
            '*' if bits > 0 => Some(None),
            _ => c.to_digit(radix).map(|digit| Some(digit as u8)),
        };
        let digits: Option<Vec<_>> = digits.unwrap_or("").chars().map(digit).collect();
        match digits {
            Some(digits) if !digits.is_empty() => Ok(Self { text: text.into(), bits, digits }),
            _ => Err(format!("{text:?} is no number (expected decimal digits, or 0x, 0o or 0b and digits)")),
        }
    }

    /// Whether a digit is `*`.
    pub fn has_wildcard(&self) -> bool {
        self.digits.contains(&None)
    }

    /// The value in so many bits; wildcards are 0.
    ///
    /// # Errors
    /// It does not fit.
    pub fn value(&self, width: u16) -> Result<Bits, String> {
        let value = match self.bits {
            0 => Bits::parse(width, &self.text),
            _ => self.pack(width, |digit| digit.unwrap_or(0)),
        };
        value.ok_or_else(|| format!("{} does not fit in {width} bits", self.text))
    }

    /// The mask of the digits given, cut to so many bits; of a decimal number, all bits.
    fn mask(&self, width: u16) -> Bits {
        if self.bits == 0 {
            return Bits::ones(width);
        }
        let given = u64::from(self.bits) * self.digits.len() as u64;
        let ones = Bits::ones(width);
        let spare = u64::from(width).saturating_sub(given);
        let wild = self.digits.iter().rev().enumerate().filter(|(_, digit)| digit.is_none());
        let digit = Bits::from_u64(width, (1 << self.bits) - 1);
        wild.fold(ones.shr(spare), |mask, (i, _)| mask.and(&digit.shl(u64::from(self.bits) * i as u64).not()))
    }

    /// The digits' bits; `None` if one beyond the width is set.
    fn pack(&self, width: u16, digit: impl Fn(Option<u8>) -> u8) -> Option<Bits> {
        let mut bytes = vec![0; usize::from(width).div_ceil(8)];
        for (i, value) in self.digits.iter().rev().enumerate() {
            let value = digit(*value);
            for bit in (0..self.bits).filter(|bit| value >> bit & 1 == 1) {
                let at = i * self.bits as usize + bit as usize;
                let byte = bytes.iter_mut().rev().nth(at / 8).filter(|_| at < usize::from(width))?;
                *byte |= 1 << (at % 8);
            }
        }
        Some(Bits::from_bytes(width, &bytes))
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A condition as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// A number, maybe with wildcards.
    Value(Literal),
    /// `value/length`
    Prefix(Literal, u16),
    /// `value&&&mask`
    Mask(Literal, Literal),
    /// `low..high`
    Range(Literal, Literal),
}

impl Pattern {
    /// Reads a condition.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some((value, mask)) = text.split_once("&&&") {
            return Ok(Pattern::Mask(number(value)?, number(mask)?));
        }
        if let Some((low, high)) = text.split_once("..") {
            return Ok(Pattern::Range(number(low)?, number(high)?));
        }
        if let Some((value, length)) = text.split_once('/') {
            let length =
                length.parse().map_err(|_| format!("{length:?} is no prefix length (expected a number)"))?;
            return Ok(Pattern::Prefix(number(value)?, length));
        }
        Literal::parse(text).map(Pattern::Value)
    }

    /// The condition on a key of this kind and width; `None` if it matches anything.
    ///
    /// # Errors
    /// The key cannot have such a condition.
    pub fn on(&self, kind: MatchKind, width: u16) -> Result<Option<KeyMatch>, String> {
        let exact = |value: &Literal| -> Result<Bits, String> {
            if value.has_wildcard() {
                return Err(format!("{value} has wildcards, but the key is matched {}", kind.name()));
            }
            value.value(width)
        };
        let is = match (self, kind) {
            (Pattern::Value(value), MatchKind::Exact | MatchKind::Optional) => KeyMatch::Exact(exact(value)?),
            (Pattern::Value(value), MatchKind::Range) => KeyMatch::Range(exact(value)?, exact(value)?),
            (Pattern::Value(value), MatchKind::Ternary) => masked(&value.value(width)?, value.mask(width)),
            (Pattern::Value(value), MatchKind::Lpm) => prefix(&value.value(width)?, value.prefix(width)?),
            (Pattern::Prefix(value, length), MatchKind::Lpm) if *length <= width => {
                prefix(&exact(value)?, *length)
            }
            (Pattern::Prefix(value, length), MatchKind::Ternary) if *length <= width => {
                masked(&exact(value)?, ones(width, *length))
            }
            (Pattern::Prefix(_, length), MatchKind::Lpm | MatchKind::Ternary) => {
                return Err(format!("prefix length {length} exceeds the key's {width} bits"));
            }
            (Pattern::Mask(value, mask), MatchKind::Ternary) => masked(&exact(value)?, exact(mask)?),
            (Pattern::Range(low, high), MatchKind::Range) => KeyMatch::Range(exact(low)?, exact(high)?),
            (Pattern::Prefix(..), _) => {
                return Err(format!("a prefix does not fit a key matched {}", kind.name()));
            }
            (Pattern::Mask(..), _) => {
                return Err(format!("a mask does not fit a key matched {}", kind.name()));
            }
            (Pattern::Range(..), _) => {
                return Err(format!("bounds do not fit a key matched {}", kind.name()));
            }
        };
        Ok(Some(is).filter(|is| !is_anything(is)))
    }

    /// The condition on a part of a value set's tuple, which may be any; `None` if it matches anything.
    ///
    /// # Errors
    /// A number does not fit.
    pub fn on_part(&self, width: u16) -> Result<Option<KeyMatch>, String> {
        let kind = match self {
            Pattern::Value(value) if !value.has_wildcard() => MatchKind::Exact,
            Pattern::Range(..) => MatchKind::Range,
            _ => MatchKind::Ternary,
        };
        self.on(kind, width)
    }
}

impl Literal {
    /// Length of the prefix that the number stands for in a key of so many bits: wildcards end it.
    fn prefix(&self, width: u16) -> Result<u16, String> {
        let given = self.digits.iter().filter(|digit| digit.is_some()).count();
        if self.digits.iter().take(given).any(Option::is_none) {
            return Err(format!("{self} is no prefix (expected wildcards at its end only)"));
        }
        let bits = if self.bits == 0 { usize::from(width) } else { given * self.bits as usize };
        // A number with more digits than the key has: those in front are zeros.
        let spare = (self.bits as usize * self.digits.len()).saturating_sub(usize::from(width));
        Ok(u16::try_from(bits.saturating_sub(spare)).unwrap_or(width).min(width))
    }
}

/// A number without wildcards.
fn number(text: &str) -> Result<Literal, String> {
    Literal::parse(text).and_then(|literal| match literal.has_wildcard() {
        true => Err(format!("{text:?} has wildcards (expected a number)")),
        false => Ok(literal),
    })
}

fn ones(width: u16, length: u16) -> Bits {
    Bits::ones(width).shl(u64::from(width.saturating_sub(length)))
}

fn masked(value: &Bits, mask: Bits) -> KeyMatch {
    KeyMatch::Mask(value.and(&mask), mask)
}

fn prefix(value: &Bits, length: u16) -> KeyMatch {
    KeyMatch::Prefix(value.and(&ones(value.width(), length)), length)
}

fn is_anything(is: &KeyMatch) -> bool {
    match is {
        KeyMatch::Exact(_) | KeyMatch::Range(..) => false,
        KeyMatch::Prefix(_, length) => *length == 0,
        KeyMatch::Mask(_, mask) => mask.is_zero(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(text: &str, kind: MatchKind, width: u16) -> Result<Option<KeyMatch>, String> {
        Pattern::parse(text)?.on(kind, width)
    }

    fn mask(width: u16, value: u64, mask: u64) -> Result<Option<KeyMatch>, String> {
        Ok(Some(KeyMatch::Mask(Bits::from_u64(width, value), Bits::from_u64(width, mask))))
    }

    fn prefix_of(width: u16, value: u64, length: u16) -> Result<Option<KeyMatch>, String> {
        Ok(Some(KeyMatch::Prefix(Bits::from_u64(width, value), length)))
    }

    #[test]
    fn numbers_have_four_radices() {
        for text in ["26", "0x1a", "0X1A", "0o32", "0b11010"] {
            assert_eq!(Literal::parse(text).unwrap().value(8), Ok(Bits::from_u64(8, 26)), "{text}");
        }
        let wide = Literal::parse("0x102030405060708090a0b0c0d0e0f1011").unwrap();
        assert_eq!(wide.value(136).unwrap().to_string(), "0x102030405060708090a0b0c0d0e0f1011");
        assert_eq!(
            wide.value(128),
            Err("0x102030405060708090a0b0c0d0e0f1011 does not fit in 128 bits".into())
        );
        assert_eq!(Literal::parse("0b111").unwrap().value(2), Err("0b111 does not fit in 2 bits".into()));
        assert_eq!(Literal::parse("0x0003").unwrap().value(2), Ok(Bits::from_u64(2, 3)));
        for text in ["", "0x", "0b2", "a", "1*", "-1"] {
            assert!(Literal::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ternary_keys_match_the_digits_given() {
        assert_eq!(on("0x25**", MatchKind::Ternary, 16), mask(16, 0x2500, 0xff00));
        assert_eq!(on("0x2*", MatchKind::Ternary, 16), mask(16, 0x20, 0xf0));
        assert_eq!(on("0b*1*0", MatchKind::Ternary, 4), mask(4, 4, 5));
        assert_eq!(on("5", MatchKind::Ternary, 4), mask(4, 5, 15));
        assert_eq!(on("0x0***", MatchKind::Ternary, 13), mask(13, 0, 0x1000));
        assert_eq!(on("7&&&5", MatchKind::Ternary, 4), mask(4, 5, 5));
        assert_eq!(on("0xff/4", MatchKind::Ternary, 8), mask(8, 0xf0, 0xf0));
        assert_eq!(on("0x**", MatchKind::Ternary, 8), Ok(None));
    }

    #[test]
    fn prefixes_are_as_long_as_their_digits() {
        assert_eq!(on("0x0a01****", MatchKind::Lpm, 32), prefix_of(32, 0x0a01_0000, 16));
        assert_eq!(on("0x0a010065", MatchKind::Lpm, 32), prefix_of(32, 0x0a01_0065, 32));
        assert_eq!(on("0x0a0100ff/25", MatchKind::Lpm, 32), prefix_of(32, 0x0a01_0080, 25));
        assert_eq!(on("0x1ff", MatchKind::Lpm, 9), prefix_of(9, 0x1ff, 9));
        assert_eq!(on("17", MatchKind::Lpm, 9), prefix_of(9, 17, 9));
        assert_eq!(on("0/0", MatchKind::Lpm, 32), Ok(None));
        assert!(on("0x0*1", MatchKind::Lpm, 12).unwrap_err().contains("no prefix"));
        assert!(on("1/33", MatchKind::Lpm, 32).unwrap_err().contains("exceeds"));
    }

    #[test]
    fn other_kinds_take_what_fits_them() {
        let range = |low, high| Ok(Some(KeyMatch::Range(Bits::from_u64(8, low), Bits::from_u64(8, high))));
        assert_eq!(on("1..0x10", MatchKind::Range, 8), range(1, 16));
        assert_eq!(on("3", MatchKind::Range, 8), range(3, 3));
        assert_eq!(on("3", MatchKind::Optional, 8), Ok(Some(KeyMatch::Exact(Bits::from_u64(8, 3)))));
        for (text, kind) in [
            ("0x1*", MatchKind::Exact),
            ("1..2", MatchKind::Exact),
            ("1&&&1", MatchKind::Lpm),
            ("1/2", MatchKind::Range),
        ] {
            assert!(on(text, kind, 8).is_err(), "{text} {kind:?}");
        }
    }
}
