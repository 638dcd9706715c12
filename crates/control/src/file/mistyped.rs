//! Messages for values of the wrong TOML type: the type found, the type expected, and the line to write where it is
//! obvious.

use toml::de::DeValue;

use crate::options::Shape;

/// The expectation for numbers.
pub(super) const NUMBER: &str = "a whole number";

/// The expectation for booleans.
pub(super) const BOOLEAN: &str = "`true` or `false`";

/// Keys with text values that are often written as numbers.
const NUMERIC_TEXTS: &[&str] = &["group", "loop", "metrics", "owner", "secret", "workers"];

/// Returns the message for `value` at `key`.
pub(super) fn message(key: &str, value: &DeValue<'_>, expected: &str) -> String {
    let found = format!("`{key}` is {}; expected {expected}", article(value.type_str()));
    match remedy(key, value, expected) {
        Some(right) => format!("{found}: write `{key} = {right}`"),
        None => found,
    }
}

/// Returns the expectation for a port type's own option.
pub(super) fn expected(key: &str, shape: Shape) -> &'static str {
    match shape {
        Shape::Number => NUMBER,
        Shape::Boolean => BOOLEAN,
        Shape::List => "a list of texts",
        Shape::Text if key == "mode" => "an octal mode as text",
        Shape::Text => "a text",
    }
}

/// Returns the corrected value.
fn remedy(key: &str, value: &DeValue<'_>, expected: &str) -> Option<String> {
    match value {
        DeValue::String(text) if expected == NUMBER => {
            text.trim().parse::<i64>().ok().map(|number| number.to_string())
        }
        DeValue::String(text) if expected.starts_with(BOOLEAN) => match text.as_ref() {
            "true" | "on" | "yes" => Some("true".into()),
            "false" | "off" | "no" => Some("false".into()),
            _ => None,
        },
        DeValue::String(text) if expected.starts_with("a list of") => {
            let plain = !text.contains(['"', '\\']) && !text.chars().any(char::is_control);
            plain.then(|| format!("[\"{text}\"]"))
        }
        DeValue::Integer(digits) if key == "mode" => octal(digits.as_str(), digits.radix()),
        DeValue::Integer(_) if expected.starts_with(BOOLEAN) => match number(value)? {
            0 => Some("false".into()),
            1 => Some("true".into()),
            _ => None,
        },
        DeValue::Integer(_) if key == "vlan" => number(value).map(|vid| format!("\"access:{vid}\"")),
        DeValue::Integer(_) if NUMERIC_TEXTS.contains(&key) => number(value).map(|n| format!("\"{n}\"")),
        _ => None,
    }
}

/// Returns the value of a whole number.
pub(super) fn number(value: &DeValue<'_>) -> Option<i64> {
    let number = value.as_integer()?;
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Formats an access mode as text. Digits without `0o` are taken as octal too, because decimal modes are not in use.
pub(super) fn octal(digits: &str, radix: u32) -> Option<String> {
    let digits = digits.trim_start_matches('0');
    let is_mode = matches!(radix, 8 | 10) && (1..=3).contains(&digits.len());
    (is_mode && digits.bytes().all(|digit| (b'0'..b'8').contains(&digit)))
        .then(|| format!("\"0{digits:0>3}\""))
}

/// Prefixes a noun with its indefinite article.
pub(super) fn article(kind: &str) -> String {
    let an = kind.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {kind}", if an { "an" } else { "a" })
}
