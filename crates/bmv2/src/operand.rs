//! Values with a type: `{"type": …, "value": …}`, and numbers in hexadecimal.

use pipeline::bits::{Bits, MAX_WIDTH};
use serde_json::Value;

use crate::refusal::{Refusal, Result};

/// The type and the value of an operand.
pub(crate) fn typed(operand: &Value) -> Result<(&str, &Value)> {
    let kind = operand.get("type").and_then(Value::as_str);
    let kind = kind.ok_or_else(|| Refusal::of("an operand has no type"))?;
    let value =
        operand.get("value").ok_or_else(|| Refusal::of(format!("an operand of type {kind} has no value")))?;
    Ok((kind, value))
}

/// The name in an operand of one of these types.
pub(crate) fn name<'v>(operand: &'v Value, kinds: &[&str]) -> Result<&'v str> {
    let (kind, value) = typed(operand)?;
    if !kinds.contains(&kind) {
        return Err(Refusal::of(format!("expected an operand of type {}, found {kind}", kinds.join(" or "))));
    }
    value.as_str().ok_or_else(|| Refusal::of(format!("the value of a {kind} is not a name")))
}

/// The two names of a field.
pub(crate) fn pair(value: &Value) -> Result<(&str, &str)> {
    match value.as_array().map(Vec::as_slice) {
        Some([Value::String(header), Value::String(field)]) => Ok((header, field)),
        _ => Err(Refusal::of("a field is not written as a header and a name")),
    }
}

/// Inner expressions stand in any number of `{"type": "expression", "value": …}`.
pub(crate) fn unwrapped(mut operand: &Value) -> &Value {
    while operand.get("type").and_then(Value::as_str) == Some("expression") {
        match operand.get("value") {
            Some(value) => operand = value,
            None => break,
        }
    }
    operand
}

/// A number in hexadecimal: whether it is negative, and its magnitude in as few bits as it needs, at least one.
pub(crate) fn hex(text: &str) -> Result<(bool, Bits)> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let digits = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")).unwrap_or(digits);
    let bytes =
        bytes_of(digits).ok_or_else(|| Refusal::of(format!("{text:?} is no number in hexadecimal")))?;
    let leading = bytes.iter().take_while(|byte| **byte == 0).count();
    let bytes = bytes.get(leading..).unwrap_or_default();
    let unused = bytes.first().map_or(0, |byte| byte.leading_zeros() as usize);
    let width = (bytes.len() * 8).saturating_sub(unused).max(1);
    match u16::try_from(width) {
        Ok(width) if width <= MAX_WIDTH => Ok((negative, Bits::from_bytes(width, bytes))),
        _ => Err(Refusal::of(format!("a number of {width} bits; at most {MAX_WIDTH} are supported"))),
    }
}

/// The width of a value that the pipeline can have.
pub(crate) fn width(bits: u64, of: impl std::fmt::Display) -> Result<u16> {
    let width = u16::try_from(bits).ok().filter(|width| (1..=MAX_WIDTH).contains(width));
    width.ok_or_else(|| Refusal::of(format!("{of} has {bits} bits; 1 to {MAX_WIDTH} are supported")))
}

/// A number that is not negative, in so many bits.
pub(crate) fn unsigned(text: &str, width: u16) -> Result<Bits> {
    let (negative, value) = hex(text)?;
    if negative || value.width() > width && !value.is_zero() {
        return Err(Refusal::of(format!("{text} does not fit into {width} bits")));
    }
    Ok(value.resize(width))
}

/// A small number that is not negative.
pub(crate) fn small(operand: &Value) -> Result<u64> {
    let text = name(operand, &["hexstr"])?;
    Ok(unsigned(text, 64)?.low_u64())
}

/// The bytes of digits, of which there may be an odd number.
pub(crate) fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let digit = |c: &u8| char::from(*c).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let nibbles =
        digits.as_bytes().iter().map(digit).collect::<Option<Vec<u8>>>().filter(|list| !list.is_empty())?;
    let (odd, even) = nibbles.split_at(nibbles.len() % 2);
    let pairs = even.chunks_exact(2).map(|pair| pair.iter().fold(0, |byte, nibble| byte << 4 | nibble));
    Some(odd.iter().copied().chain(pairs).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_as_few_bits_as_they_need() {
        let of = |text| hex(text).map(|(negative, bits)| (negative, bits.width(), bits.low_u64()));
        assert_eq!(of("0x0800"), Ok((false, 12, 0x800)));
        assert_eq!(of("-0x1"), Ok((true, 1, 1)));
        assert_eq!((of("0x0"), of("0x000f")), (Ok((false, 1, 0)), Ok((false, 4, 15))));
        assert!(of("0x").is_err() && of("").is_err() && of("0xg").is_err());
        assert!(of(&format!("0x1{}", "0".repeat(512))).is_err());
        assert_eq!(unsigned("0x01ff", 9).map(|bits| bits.low_u64()), Ok(511));
        assert!(unsigned("0x0200", 9).is_err() && unsigned("-0x1", 9).is_err());
    }
}
