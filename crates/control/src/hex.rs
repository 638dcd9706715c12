//! Bytes as people and JSON have them: hexadecimal digits.

use std::fmt::Write;

use serde::Serializer;

/// `0001ff`.
pub fn format(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Why a text is no bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HexError {
    /// Something else than digits and what may stand between them.
    #[error(
        "`{0}` is not a hexadecimal digit; expected pairs of 0 to 9 and a to f, with spaces or colons as you like"
    )]
    Digit(char),
    /// Half a byte is left.
    #[error("there is an odd number of hexadecimal digits ({0}); a byte has two")]
    Odd(usize),
}

/// Reads pairs of digits; spaces, colons and line ends between them mean nothing.
pub fn parse(text: &str) -> Result<Vec<u8>, HexError> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace() && *c != ':').collect();
    let values = digits.iter().map(|c| c.to_digit(16).map(|value| value as u8).ok_or(HexError::Digit(*c)));
    let values = values.collect::<Result<Vec<u8>, _>>()?;
    if values.len() % 2 != 0 {
        return Err(HexError::Odd(values.len()));
    }
    Ok(values.chunks_exact(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect())
}

/// For serde.
pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes_and_what_people_paste() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(parse(&format(&bytes)), Ok(bytes));
        assert_eq!(parse(" 00:0A ff\n"), Ok(vec![0, 10, 255]));
        assert_eq!(parse(""), Ok(vec![]));
    }

    #[test]
    fn says_what_is_wrong() {
        assert_eq!(
            parse("0x12").unwrap_err().to_string(),
            "`x` is not a hexadecimal digit; expected pairs of 0 to 9 and a to f, with spaces or colons as you like"
        );
        assert_eq!(
            parse("123").unwrap_err().to_string(),
            "there is an odd number of hexadecimal digits (3); a byte has two"
        );
    }
}
