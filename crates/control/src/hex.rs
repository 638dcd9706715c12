//! Bytes as hexadecimal digits, for people and for JSON.

use std::fmt::Write;

use serde::Serializer;

/// Formats bytes, such as `0001ff`.
pub fn format(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Reasons for refusing a text as hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HexError {
    /// A character that is neither a digit nor a separator.
    #[error(
        "`{0}` is not a hexadecimal digit; expected pairs of 0 to 9 and a to f, optionally separated by spaces or colons"
    )]
    Digit(char),
    /// An odd number of digits.
    #[error("odd number of hexadecimal digits ({0}); expected two per byte")]
    Odd(usize),
}

/// Parses pairs of digits. White space and colons are ignored.
pub fn parse(text: &str) -> Result<Vec<u8>, HexError> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace() && *c != ':').collect();
    let values = digits.iter().map(|c| c.to_digit(16).map(|value| value as u8).ok_or(HexError::Digit(*c)));
    let values = values.collect::<Result<Vec<u8>, _>>()?;
    if values.len() % 2 != 0 {
        return Err(HexError::Odd(values.len()));
    }
    Ok(values.chunks_exact(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect())
}

/// Serializes bytes as digits, for serde's `serialize_with`.
pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_and_pasted_digits_parse() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(parse(&format(&bytes)), Ok(bytes));
        assert_eq!(parse(" 00:0A ff\n"), Ok(vec![0, 10, 255]));
        assert_eq!(parse(""), Ok(vec![]));
    }

    #[test]
    fn errors_state_the_cause() {
        assert_eq!(
            parse("0x12").unwrap_err().to_string(),
            "`x` is not a hexadecimal digit; expected pairs of 0 to 9 and a to f, optionally separated by spaces or colons"
        );
        assert_eq!(
            parse("123").unwrap_err().to_string(),
            "odd number of hexadecimal digits (3); expected two per byte"
        );
    }
}
