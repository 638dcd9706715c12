//! Numbers: decimal, with `0x` or `0b`, and addresses.

use std::net::{Ipv4Addr, Ipv6Addr};

use pipeline::bits::Bits;

/// Reads a number of `width` bits.
pub(super) fn parse(text: &str, width: u16) -> Result<Bits, String> {
    let text = text.trim();
    let value = match text {
        "true" if width == 1 => Some(Bits::from_bool(true)),
        "false" if width == 1 => Some(Bits::from_bool(false)),
        _ if width == 48 && text.contains([':', '-']) => mac(text),
        _ if width == 32 && text.contains('.') => {
            text.parse::<Ipv4Addr>().ok().map(|address| Bits::from_u64(32, u32::from(address).into()))
        }
        _ if width == 128 && text.contains(':') => {
            text.parse::<Ipv6Addr>().ok().map(|address| Bits::from_u128(128, u128::from(address)))
        }
        _ => digits(text, width),
    };
    value.ok_or_else(|| format!("`{text}` is no {} (expected {})", described(width), examples(width)))
}

fn described(width: u16) -> String {
    format!("number of {width} bit{}", if width == 1 { "" } else { "s" })
}

fn examples(width: u16) -> String {
    match width {
        1 => "0, 1, false or true".to_owned(),
        32 => "such as 10.0.0.1, 7 or 0x1f".to_owned(),
        48 => "such as 08:00:00:00:01:11 or 0x1f".to_owned(),
        128 => "such as 2001:db8::1 or 0x1f".to_owned(),
        2..=16 => format!("0 to {}, or hexadecimal such as 0x1f", (1_u32 << width) - 1),
        _ => "such as 7 or 0x1f".to_owned(),
    }
}

fn mac(text: &str) -> Option<Bits> {
    let parts: Vec<&str> = text.split([':', '-']).collect();
    if parts.len() != 6 {
        return None;
    }
    let byte = |part: &str| u8::from_str_radix(part, 16).ok().filter(|_| part.len() <= 2);
    let bytes = parts.into_iter().map(byte).collect::<Option<Vec<u8>>>()?;
    Some(Bits::from_bytes(48, &bytes))
}

/// Digits in a base, of any length.
fn digits(text: &str, width: u16) -> Option<Bits> {
    let (base, digits) = match text.get(..2) {
        Some("0x" | "0X") => (16, text.get(2..)?),
        Some("0b" | "0B") => (2, text.get(2..)?),
        _ => (10, text),
    };
    let digits: Vec<u32> =
        digits.chars().filter(|c| *c != '_').map(|c| c.to_digit(base)).collect::<Option<_>>()?;
    if digits.is_empty() || digits.len() > 2 * usize::from(pipeline::bits::MAX_WIDTH) {
        return None;
    }
    // One limb more than fits tells what is too large.
    let wide = usize::from(width).div_ceil(64) + 1;
    let mut limbs = vec![0_u64; wide];
    for digit in digits {
        let mut carry = u128::from(digit);
        for limb in &mut limbs {
            let next = u128::from(*limb) * u128::from(base) + carry;
            *limb = next as u64;
            carry = next >> 64;
        }
        if carry != 0 {
            return None;
        }
    }
    let value = Bits::from_limbs(width, &limbs);
    let fits = value.limbs().iter().chain(std::iter::repeat(&0)).zip(&limbs).all(|(kept, limb)| kept == limb);
    fits.then_some(value)
}

/// Writes a number in the form that its width and name suggest.
pub(super) fn print(bytes: &[u8], width: u16, name: &str) -> String {
    let value = Bits::from_bytes(width, bytes);
    let name = name.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| name.contains(word));
    match width {
        48 if !says(&["time", "stamp"]) => {
            let bytes = value.to_bytes();
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
        }
        32 if says(&["addr", "ip", "dst", "src", "hop", "gateway"]) => {
            Ipv4Addr::from(u32::try_from(value.low_u64()).unwrap_or(0)).to_string()
        }
        128 if says(&["addr", "ip", "dst", "src", "hop", "gateway"]) => {
            Ipv6Addr::from(value.low_u128()).to_string()
        }
        0..=16 => value.low_u64().to_string(),
        _ if says(&["port", "id", "index", "count", "len", "time"]) && width <= 64 => {
            value.low_u64().to_string()
        }
        _ => {
            let digits: String = value.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
            let digits = digits.trim_start_matches('0');
            format!("0x{}", if digits.is_empty() { "0" } else { digits })
        }
    }
}

/// A time in nanoseconds: a number with `ns`, `us`, `ms` or `s`.
pub(super) fn parse_time(text: &str) -> Result<i64, String> {
    let units = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let found = units.into_iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)));
    let time = found.and_then(|(number, scale)| number.parse::<i64>().ok()?.checked_mul(scale));
    time.filter(|time| *time >= 0)
        .ok_or_else(|| format!("`{text}` is no time (expected such as 500ms or 30s)"))
}

/// Writes a time in the largest unit that needs no fraction.
pub(super) fn print_time(time: i64) -> String {
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    let unit = units.into_iter().find(|(_, scale)| time != 0 && time % scale == 0);
    unit.map_or_else(|| format!("{time}ns"), |(unit, scale)| format!("{}{unit}", time / scale))
}
