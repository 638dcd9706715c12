//! UUIDs of rows (RFC 7047 §3.1).

use std::fmt;
use std::str::FromStr;

/// A UUID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

/// Text that is not a UUID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a UUID; expected 32 hexadecimal digits in groups of 8-4-4-4-12")]
pub struct UuidError(pub String);

/// Digits in each group.
const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];

impl FromStr for Uuid {
    type Err = UuidError;

    fn from_str(text: &str) -> Result<Self, UuidError> {
        let error = || UuidError(text.chars().take(64).collect());
        let groups = text.split('-');
        let well_formed = groups.clone().map(str::len).eq(GROUPS)
            && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
        if !well_formed {
            return Err(error());
        }
        let digits: String = groups.collect();
        let number = u128::from_str_radix(&digits, 16).map_err(|_| error())?;
        Ok(Uuid(number.to_be_bytes()))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                out.write_str("-")?;
            }
            write!(out, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        let text = "550e8400-e29b-41d4-a716-446655440000";
        let uuid: Uuid = text.parse().unwrap();
        assert_eq!(uuid.0[..5], [0x55, 0x0e, 0x84, 0x00, 0xe2]);
        assert_eq!(uuid.to_string(), text);
        assert_eq!(text.to_uppercase().parse(), Ok(uuid));
    }

    #[test]
    fn other_text_is_refused() {
        for bad in ["", "550e8400e29b41d4a716446655440000", "550e8400-e29b-41d4-a716-44665544000+", "é"] {
            assert_eq!(bad.parse::<Uuid>(), Err(UuidError(bad.into())));
        }
    }
}
