//! Messages for text that is not TOML. The usual slips (a text without quotes, a number that begins with 0, `True`) are
//! answered with the line to write.

use std::ops::Range;

use super::mistyped;

/// Explains an error of the TOML parser, whose own words are `message`.
pub(super) fn explain(text: &str, span: &Range<usize>, message: &str) -> String {
    if message == "duplicate key" {
        let key = text.get(span.clone()).unwrap_or_default();
        return format!("`{key}` is there twice; remove one of them");
    }
    let slip = assignment(text, span.start).and_then(|(key, value)| slip(key, value));
    slip.unwrap_or_else(|| format!("not TOML: {message}"))
}

/// The key and the value, as written, of the line that holds the byte `at`.
fn assignment(text: &str, at: usize) -> Option<(&str, &str)> {
    let start = text.get(..at)?.rfind('\n').map_or(0, |newline| newline + 1);
    let line = text.get(start..)?.lines().next()?;
    let (key, rest) = line.split_once('=')?;
    let value = rest.split('#').next()?;
    Some((key.trim(), value.trim()))
}

fn slip(key: &str, value: &str) -> Option<String> {
    let write = |right: &str| format!("write `{key} = {right}`");
    let digits = value.trim_start_matches('0');
    if value.is_empty() {
        return Some(format!("`{key}` has no value"));
    }
    if value.starts_with('0') && value.bytes().all(|digit| digit.is_ascii_digit()) {
        let found = format!("`{value}`: a number in TOML does not begin with 0");
        return Some(match mistyped::octal(value, 8).filter(|_| key == "mode") {
            Some(mode) => format!("{found}; an octal mode is a text: {}", write(&mode)),
            None => format!("{found}: {}", write(if digits.is_empty() { "0" } else { digits })),
        });
    }
    match value.to_ascii_lowercase().as_str() {
        right @ ("true" | "false") if right != value => {
            return Some(format!(
                "`{value}`: TOML spells `true` and `false` in lower case: {}",
                write(right)
            ));
        }
        _ => {}
    }
    let bare = !value.contains(['"', '\'', '[', ']', '{', '}', '\\']);
    bare.then(|| format!("`{value}`: a text stands in quotes: {}", write(&format!("\"{value}\""))))
}
