//! Messages for invalid TOML. For common mistakes (a text without quotes, a number that begins with 0, `True`), they
//! contain the corrected line.

use std::ops::Range;

use super::mistyped;

/// Explains an error of the TOML parser with the message `message`.
pub(super) fn explain(text: &str, span: &Range<usize>, message: &str) -> String {
    if message == "duplicate key" {
        let key = text.get(span.clone()).unwrap_or_default();
        return format!("`{key}` is set twice; remove one of them");
    }
    let explained = assignment(text, span.start).and_then(|(key, value)| common_mistake(key, value));
    explained.unwrap_or_else(|| format!("invalid TOML: {message}"))
}

/// Returns the key and the value, as written, in the line of byte `at`.
fn assignment(text: &str, at: usize) -> Option<(&str, &str)> {
    let start = text.get(..at)?.rfind('\n').map_or(0, |newline| newline + 1);
    let line = text.get(start..)?.lines().next()?;
    let (key, rest) = line.split_once('=')?;
    let value = rest.split('#').next()?;
    Some((key.trim(), value.trim()))
}

fn common_mistake(key: &str, value: &str) -> Option<String> {
    let fix = |value: &str| format!("`{key} = {value}`");
    let digits = value.trim_start_matches('0');
    if value.is_empty() {
        return Some(format!("`{key}` has no value"));
    }
    if let Some(rest) = value.strip_prefix('=') {
        return Some(format!(
            "`{key}` has two equals signs; write {}",
            fix(rest.trim_start_matches('=').trim())
        ));
    }
    if value.starts_with('0') && value.bytes().all(|digit| digit.is_ascii_digit()) {
        let found = format!("`{value}`: numbers in TOML cannot begin with 0");
        return Some(match mistyped::octal(value, 8).filter(|_| key == "mode") {
            Some(mode) => format!("{found}; write an octal mode as text: {}", fix(&mode)),
            None => format!("{found}: write {}", fix(if digits.is_empty() { "0" } else { digits })),
        });
    }
    match value.to_ascii_lowercase().as_str() {
        right @ ("true" | "false") if right != value => {
            return Some(format!("`{value}`: booleans in TOML are lower case: write {}", fix(right)));
        }
        _ => {}
    }
    let bare = !value.contains(['"', '\'', '[', ']', '{', '}', '\\']);
    bare.then(|| format!("`{value}`: texts need quotes: write {}", fix(&format!("\"{value}\""))))
}
