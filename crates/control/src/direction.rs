//! Names of directions: `in` for packets that a port receives, `out` for packets that it sends, `both`.

use fabric::Interest;

/// All names; the first is the default.
pub const DIRECTIONS: [(&str, Interest); 3] = [
    ("both", Interest { received: true, sent: true, explained: false }),
    ("in", Interest { received: true, sent: false, explained: false }),
    ("out", Interest { received: false, sent: true, explained: false }),
];

/// An unknown direction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a direction; expected `in`, `out` or `both`")]
pub struct NotADirection(String);

/// Parses a direction; an empty text means both.
pub fn parse(text: &str) -> Result<Interest, NotADirection> {
    let text = if text.is_empty() { "both" } else { text };
    let found = DIRECTIONS.iter().find(|(name, _)| *name == text);
    found.map(|(_, interest)| *interest).ok_or_else(|| NotADirection(text.into()))
}

/// Returns the name of a direction.
pub fn format(interest: Interest) -> &'static str {
    DIRECTIONS.iter().find(|(_, known)| *known == interest).map_or("both", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_directions_parse_back() {
        for (name, interest) in DIRECTIONS {
            assert_eq!((parse(name), format(interest)), (Ok(interest), name));
        }
        assert_eq!(parse(""), parse("both"));
        assert_eq!(
            parse("inn").unwrap_err().to_string(),
            "`inn` is not a direction; expected `in`, `out` or `both`"
        );
    }
}
