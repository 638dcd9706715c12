//! Parsing and printing of numbers, MAC addresses, IPv4 and IPv6 prefixes, for parameters, arguments and answers.

use core::fmt;
use core::str::FromStr;

/// Error: the text does not have the expected form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unexpected;

/// Parses a 64-bit number, decimal or hexadecimal with `0x`.
pub fn parse_number(text: &str) -> Result<u64, Unexpected> {
    let (digits, base) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    // The standard library accepts a sign.
    if digits.starts_with('+') {
        return Err(Unexpected);
    }
    u64::from_str_radix(digits, base).map_err(|_| Unexpected)
}

/// A MAC address, its bytes as in packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mac(pub [u8; 6]);

impl FromStr for Mac {
    type Err = Unexpected;

    /// Parses six hexadecimal bytes, separated by colons or hyphens.
    fn from_str(text: &str) -> Result<Mac, Unexpected> {
        let (mut mac, text) = ([0; 6], text.as_bytes());
        if text.len() != 17 {
            return Err(Unexpected);
        }
        for (i, byte) in mac.iter_mut().enumerate() {
            let digit = |at: usize| (text[at] as char).to_digit(16).ok_or(Unexpected);
            *byte = (digit(3 * i)? << 4 | digit(3 * i + 1)?) as u8;
            if i < 5 && !matches!(text[3 * i + 2], b':' | b'-') {
                return Err(Unexpected);
            }
        }
        Ok(Mac(mac))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", a, b, c, d, e, g)
    }
}

/// An IPv4 or IPv6 prefix, such as `192.0.2.0/24`, or an address, which is a prefix of full length. Bits after the
/// prefix are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    address: [u8; 16],
    bytes: u8,
    length: u8,
}

impl Prefix {
    /// The prefix of this length that contains an IPv4 address, given as in packets.
    pub fn v4(address: [u8; 4], length: u8) -> Prefix {
        let mut wide = [0; 16];
        wide[..4].copy_from_slice(&address);
        Prefix { address: wide, bytes: 4, length: 32 }.shortened(length)
    }

    /// The prefix of this length that contains an IPv6 address, given as in packets.
    pub fn v6(address: [u8; 16], length: u8) -> Prefix {
        Prefix { address, bytes: 16, length: 128 }.shortened(length)
    }

    /// The address: 4 bytes of IPv4, 16 of IPv6.
    pub fn address(&self) -> &[u8] {
        &self.address[..self.bytes.into()]
    }

    /// The length in bits.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// The prefix shortened to this length, unless it is shorter already.
    pub fn shortened(mut self, length: u8) -> Prefix {
        self.length = self.length.min(length);
        for (i, byte) in self.address.iter_mut().enumerate() {
            let kept = (self.length as usize).saturating_sub(8 * i).min(8);
            *byte &= (0xff00u16 >> kept) as u8;
        }
        self
    }

    /// Whether this prefix contains another prefix or an address.
    pub fn contains(&self, other: &Prefix) -> bool {
        self.bytes == other.bytes && self.length <= other.length && other.shortened(self.length) == *self
    }
}

impl FromStr for Prefix {
    type Err = Unexpected;

    fn from_str(text: &str) -> Result<Prefix, Unexpected> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) if length.len() <= 3 && length.bytes().all(|b| b.is_ascii_digit()) => {
                (address, Some(length.parse::<u16>().map_err(|_| Unexpected)?))
            }
            Some(_) => return Err(Unexpected),
            None => (text, None),
        };
        let whole = match parse_v4(address) {
            Some(address) => Prefix::v4(address, 32),
            None => Prefix::v6(parse_v6(address).ok_or(Unexpected)?, 128),
        };
        match length {
            Some(length) if length > whole.length.into() => Err(Unexpected),
            Some(length) => Ok(whole.shortened(length as u8)),
            None => Ok(whole),
        }
    }
}

fn parse_v4(text: &str) -> Option<[u8; 4]> {
    let (mut address, mut parts) = ([0; 4], text.split('.'));
    for byte in &mut address {
        let part = parts.next()?;
        let plain = part.bytes().all(|b| b.is_ascii_digit()) && (part.len() == 1 || !part.starts_with('0'));
        *byte = Some(part).filter(|_| plain)?.parse().ok()?;
    }
    match parts.next() {
        Some(_) => None,
        None => Some(address),
    }
}

/// Parses an IPv6 address (RFC 4291, section 2.2).
fn parse_v6(text: &str) -> Option<[u8; 16]> {
    let (before, after) = match text.split_once("::") {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    };
    let (mut address, mut tail) = ([0; 16], [0; 16]);
    let front = groups(before, after.is_none(), &mut address)?;
    let back = groups(after.unwrap_or(""), true, &mut tail)?;
    match after {
        None if front != 16 => return None,
        // `::` stands for at least one group.
        Some(_) if front + back > 14 => return None,
        _ => {}
    }
    address[16 - back..].copy_from_slice(&tail[..back]);
    Some(address).filter(|_| front + back <= 16)
}

/// Parses groups into bytes; returns the number of bytes. The last group may be an IPv4 address.
fn groups(text: &str, last: bool, to: &mut [u8; 16]) -> Option<usize> {
    let (mut at, mut rest) = (0, text);
    while !rest.is_empty() {
        let (group, more) = match rest.split_once(':') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (rest, ""),
        };
        if group.contains('.') {
            if !last || !more.is_empty() {
                return None;
            }
            to.get_mut(at..at + 4)?.copy_from_slice(&parse_v4(group)?);
            return Some(at + 4);
        }
        if group.is_empty() || group.len() > 4 || !group.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let group = u16::from_str_radix(group, 16).ok()?;
        to.get_mut(at..at + 2)?.copy_from_slice(&group.to_be_bytes());
        at += 2;
        rest = more;
    }
    Some(at)
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [a, b, c, d] = *self.address() {
            write!(f, "{}.{}.{}.{}", a, b, c, d)?;
        } else {
            self.fmt_v6(f)?;
        }
        match self.length == self.bytes * 8 {
            true => Ok(()),
            false => write!(f, "/{}", self.length),
        }
    }
}

impl Prefix {
    /// Prints as RFC 5952 recommends: `::` replaces the longest run of zeroes, the first of equally long ones.
    fn fmt_v6(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] = self.address {
            return write!(f, "::ffff:{}.{}.{}.{}", a, b, c, d);
        }
        let group = |i: usize| u16::from_be_bytes([self.address[2 * i], self.address[2 * i + 1]]);
        let (mut from, mut longest) = (8, 1);
        for i in 0..8 {
            let run = (i..8).take_while(|i| group(*i) == 0).count();
            if run > longest {
                (from, longest) = (i, run);
            }
        }
        for i in (0..8).filter(|i| !(from + 1..from + longest).contains(i)) {
            if i == from {
                f.write_str("::")?;
            } else {
                let separator = if i > 0 && i != from + longest { ":" } else { "" };
                write!(f, "{}{:x}", separator, group(i))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::format;
    use std::net::IpAddr;
    use std::string::{String, ToString};

    use super::*;

    #[test]
    fn numbers() {
        for (text, number) in [
            ("0", Ok(0)),
            ("007", Ok(7)),
            ("0x1F", Ok(31)),
            ("18446744073709551615", Ok(u64::MAX)),
            ("18446744073709551616", Err(Unexpected)),
        ] {
            assert_eq!(parse_number(text), number, "{}", text);
        }
        for wrong in ["", "0x", "+1", "-1", "1 ", "0x+1", "ten"] {
            assert_eq!(parse_number(wrong), Err(Unexpected), "{}", wrong);
        }
    }

    #[test]
    fn macs() {
        let mac: Mac = "02:00-5e:AB:cd:0f".parse().unwrap();
        assert_eq!(
            (mac, mac.to_string().as_str()),
            (Mac([2, 0, 0x5e, 0xab, 0xcd, 0xf]), "02:00:5e:ab:cd:0f")
        );
        for wrong in [
            "",
            "02:00:5e:ab:cd:0",
            "02:00:5e:ab:cd:0g",
            "02:00:5e:ab:cd 0f",
            "02:00:5e:ab:cd:0ff",
            "0€:00:5e:ab:cd:0",
        ] {
            assert_eq!(wrong.parse::<Mac>(), Err(Unexpected), "{}", wrong);
        }
    }

    #[test]
    fn prefixes() {
        let prefix = |text: &str| text.parse::<Prefix>();
        assert_eq!(prefix("10.1.2.3/8").unwrap().to_string(), "10.0.0.0/8");
        assert_eq!(prefix("2001:db8:ffff::/33").unwrap().to_string(), "2001:db8:8000::/33");
        assert_eq!(prefix("::/0").unwrap().to_string(), "::/0");
        assert!(prefix("10.0.0.0/8").unwrap().contains(&prefix("10.255.0.1").unwrap()));
        assert!(!prefix("10.0.0.0/8").unwrap().contains(&prefix("11.0.0.1").unwrap()));
        assert!(!prefix("10.0.0.0/8").unwrap().contains(&prefix("10.0.0.0/7").unwrap()));
        assert!(!prefix("::/0").unwrap().contains(&prefix("10.0.0.1").unwrap()));
        for wrong in [
            "",
            "/8",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/0x8",
            "10.0.0.0/+8",
            "::/129",
            "::1/1/1",
            "::/0001",
        ] {
            assert_eq!(prefix(wrong), Err(Unexpected), "{}", wrong);
        }
    }

    /// Random texts that resemble addresses are parsed and printed as by the standard library.
    #[test]
    fn addresses_agree_with_the_standard_library() {
        let mut random = 1u64;
        let mut below = |n: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % n
        };
        let mut valid = 0;
        for _ in 0..200_000 {
            let mut text: String = (0..1 + below(8))
                .map(|i| match below(8) {
                    0 => ":".to_string(),
                    1 if i > 0 => "::".to_string(),
                    2 => format!("{}.{}.{}.{}", below(256), below(12), below(300), below(256)),
                    3 => "0".to_string(),
                    _ => format!("{}{:x}", if i > 0 { ":" } else { "" }, below(1 << 16)),
                })
                .collect();
            if below(3) == 0 {
                text.insert_str(0, "::");
            }
            let standard = text.parse::<IpAddr>().map(|address| address.to_string());
            let ours = text.parse::<Prefix>().map(|prefix| prefix.to_string());
            assert_eq!(ours.clone().ok(), standard.ok(), "{}", text);
            valid += u32::from(ours.is_ok());
        }
        assert!(valid > 2_000, "{}", valid);
    }
}
