//! The grammar of rates in the file and on the command line.
//!
//! ```text
//! 100Mbit                  bits per second: bit, kbit, Mbit, Gbit, with or without `/s`
//! 1000pps                  packets per second: pps, kpps, Mpps
//! 100Mbit burst 64KiB      burst size in bytes: B, kB, KiB, MB, MiB
//! 1000pps burst 200        burst size in packets
//! off                      no limit
//! ```

use fabric::protection::{Limit, Unit};

/// Reason for refusing a rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; expected `off`, `100Mbit`, `100Mbit burst 64KiB`, `1000pps` or `1000pps burst 200`")]
pub struct RateError {
    problem: String,
}

impl RateError {
    /// What is wrong, without what is expected.
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

fn error(problem: String) -> RateError {
    RateError { problem }
}

const RATES: &[(&str, Unit, u64)] = &[
    ("bit", Unit::Bits, 1),
    ("kbit", Unit::Bits, 1_000),
    ("mbit", Unit::Bits, 1_000_000),
    ("gbit", Unit::Bits, 1_000_000_000),
    ("pps", Unit::Packets, 1),
    ("kpps", Unit::Packets, 1_000),
    ("mpps", Unit::Packets, 1_000_000),
];

const SIZES: &[(&str, u64)] =
    &[("b", 1), ("kb", 1_000), ("kib", 1 << 10), ("mb", 1_000_000), ("mib", 1 << 20)];

/// Range of rates in bits per second: from one packet of maximum length in 9 minutes to more than the fabric can move.
const BITS: std::ops::RangeInclusive<u64> = 1_000..=1_000_000_000_000;
/// Range of rates in packets per second.
const PACKETS: std::ops::RangeInclusive<u64> = 1..=1_000_000_000;
/// Range of bursts in bytes: from a packet of minimum length to more than any buffer.
const BURST_BYTES: std::ops::RangeInclusive<u64> = 64..=1 << 32;
/// Range of bursts in packets.
const BURST_PACKETS: std::ops::RangeInclusive<u64> = 1..=1_000_000_000;

/// Parses the grammar above; `None` means `off`.
pub fn parse(text: &str) -> Result<Option<Limit>, RateError> {
    let mut words = text.split_whitespace();
    let rate = words.next().ok_or_else(|| error("a rate is missing".into()))?;
    let rest: Vec<&str> = words.collect();
    if rate == "off" && rest.is_empty() {
        return Ok(None);
    }
    if rest.first().is_some_and(|word| *word != "burst") {
        return Err(error(format!("`{text}` is not a rate")));
    }
    let (rate, unit) = self::rate(rate)?;
    let burst = match rest.as_slice() {
        [] => None,
        ["burst", size] => Some(burst(size, unit)?),
        _ => return Err(error(format!("`{text}` is not a rate"))),
    };
    Ok(Some(Limit { unit, rate, burst }))
}

/// The same rate with another burst.
pub fn with_burst(limit: Limit, size: &str) -> Result<Limit, RateError> {
    Ok(Limit { burst: Some(burst(size, limit.unit)?), ..limit })
}

fn rate(text: &str) -> Result<(u64, Unit), RateError> {
    let (number, name) = split(text);
    let name = name.strip_suffix("/s").unwrap_or(&name);
    let known = RATES.iter().find(|(known, ..)| *known == name);
    let (_, unit, factor) = *known.ok_or_else(|| error(format!("`{text}` is not a rate")))?;
    let rate = scaled(number, factor).ok_or_else(|| error(format!("`{text}` is not a rate")))?;
    let (range, min, max) = match unit {
        Unit::Bits => (BITS, "1kbit", "1000Gbit"),
        Unit::Packets => (PACKETS, "1pps", "1000Mpps"),
    };
    if !range.contains(&rate) {
        return Err(error(format!("a rate of `{text}` is out of range, {min} to {max}")));
    }
    Ok((rate, unit))
}

fn burst(text: &str, unit: Unit) -> Result<u64, RateError> {
    let (number, name) = split(text);
    let (expected, range, min, max) = match unit {
        Unit::Bits => ("a number of bytes such as 64KiB", BURST_BYTES, "64B", "4096MiB"),
        Unit::Packets => ("a number of packets", BURST_PACKETS, "1", "1000000000"),
    };
    let factor = match unit {
        Unit::Bits => SIZES.iter().find(|(known, _)| *known == name).map(|(_, factor)| *factor),
        Unit::Packets => name.is_empty().then_some(1),
    };
    let size = factor.and_then(|factor| scaled(number, factor));
    let size = size.ok_or_else(|| error(format!("the burst `{text}` is not {expected}")))?;
    if !range.contains(&size) {
        return Err(error(format!("a burst of `{text}` is out of range, {min} to {max}")));
    }
    Ok(size)
}

/// Splits a text into its leading decimal number and the rest in lower case.
fn split(text: &str) -> (&str, String) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, name) = text.split_at(end);
    (number, name.to_ascii_lowercase())
}

/// Returns `number * factor`, if that is a whole number.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || (fraction.is_empty() && number.contains('.')) || fraction.len() > 9 {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(factor)?;
    let parts = 10u64.pow(u32::try_from(fraction.len()).ok()?);
    let fraction = if fraction.is_empty() { 0 } else { fraction.parse::<u64>().ok()? }.checked_mul(factor)?;
    (fraction % parts == 0).then_some(())?;
    whole.checked_add(fraction / parts)
}

/// Formats a limit in the grammar that [`parse`] reads.
pub fn format(limit: &Limit) -> String {
    let Limit { unit, rate, burst } = *limit;
    let mut text = match unit {
        Unit::Bits => {
            shortest(rate, &[(1_000_000_000, "Gbit"), (1_000_000, "Mbit"), (1_000, "kbit"), (1, "bit")])
        }
        Unit::Packets => shortest(rate, &[(1_000_000, "Mpps"), (1_000, "kpps"), (1, "pps")]),
    };
    if let Some(burst) = burst {
        text += " burst ";
        text += &format_burst(unit, burst);
    }
    text
}

/// A limit with the burst in effect: `20Mbit (burst 625kB, default)`.
pub fn describe(limit: &Limit) -> String {
    let rate = format(&Limit { burst: None, ..*limit });
    let default = if limit.burst.is_none() { ", default" } else { "" };
    format!("{rate} (burst {}{default})", format_burst(limit.unit, limit.burst()))
}

fn format_burst(unit: Unit, burst: u64) -> String {
    let sizes = [(1 << 20, "MiB"), (1 << 10, "KiB"), (1_000_000, "MB"), (1_000, "kB"), (1, "B")];
    match unit {
        Unit::Bits => shortest(burst, &sizes),
        Unit::Packets => burst.to_string(),
    }
}

/// Formats a value in the largest unit of which it is a multiple.
fn shortest(value: u64, units: &[(u64, &str)]) -> String {
    let fits = units.iter().find(|(factor, _)| value > 0 && value.is_multiple_of(*factor));
    let (factor, name) = fits.or(units.last()).copied().unwrap_or((1, ""));
    format!("{}{name}", value / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_rates_parse_back() {
        for text in [
            "1kbit",
            "1500kbit",
            "100Mbit",
            "10Gbit",
            "1001bit",
            "1pps",
            "1500pps",
            "20kpps",
            "2Mpps",
            "100Mbit burst 64KiB",
            "1Gbit burst 1MiB",
            "1Mbit burst 1500B",
            "1Mbit burst 10kB",
            "1kpps burst 200",
        ] {
            let limit = parse(text).unwrap().unwrap();
            assert_eq!(format(&limit), text);
        }
        assert_eq!(parse("off"), Ok(None));
    }

    #[test]
    fn case_fractions_and_suffixes_of_units() {
        let bits = |rate, burst| Ok(Some(Limit { unit: Unit::Bits, rate, burst }));
        assert_eq!(parse("100mbit"), bits(100_000_000, None));
        assert_eq!(parse("2.5Gbit/s"), bits(2_500_000_000, None));
        assert_eq!(parse("  1.5Mbit   burst 10kB "), bits(1_500_000, Some(10_000)));
        assert_eq!(parse("1000000000kbit"), bits(1_000_000_000_000, None));
        let packets = Limit { unit: Unit::Packets, rate: 1500, burst: Some(7) };
        assert_eq!(parse("1.5kpps burst 7"), Ok(Some(packets)));
    }

    #[test]
    fn the_burst_in_effect_is_shown() {
        for (text, shown) in [
            ("20Mbit", "20Mbit (burst 625kB, default)"),
            ("1Mbit", "1Mbit (burst 64KiB, default)"),
            ("20Mbit burst 64KiB", "20Mbit (burst 64KiB)"),
            ("1kpps", "1kpps (burst 250, default)"),
        ] {
            assert_eq!(describe(&parse(text).unwrap().unwrap()), shown);
        }
    }

    #[test]
    fn errors_name_the_problem_and_the_expected_forms() {
        for (text, problem) in [
            ("", "a rate is missing"),
            ("fast", "`fast` is not a rate"),
            ("100", "`100` is not a rate"),
            ("100Mbyte", "`100Mbyte` is not a rate"),
            ("-1Mbit", "`-1Mbit` is not a rate"),
            ("1.Mbit", "`1.Mbit` is not a rate"),
            ("1.2.3Mbit", "`1.2.3Mbit` is not a rate"),
            ("0.0005kbit", "`0.0005kbit` is not a rate"),
            ("99999999999999999999Gbit", "`99999999999999999999Gbit` is not a rate"),
            ("999bit", "a rate of `999bit` is out of range, 1kbit to 1000Gbit"),
            ("0pps", "a rate of `0pps` is out of range, 1pps to 1000Mpps"),
            ("1Mbit 64KiB", "`1Mbit 64KiB` is not a rate"),
            ("20 Mbit/s", "`20 Mbit/s` is not a rate"),
            ("1Mbit burst", "`1Mbit burst` is not a rate"),
            ("off burst 3", "`off` is not a rate"),
            ("1Mbit burst 64", "the burst `64` is not a number of bytes such as 64KiB"),
            ("1Mbit burst 1B", "a burst of `1B` is out of range, 64B to 4096MiB"),
            ("1pps burst 64KiB", "the burst `64KiB` is not a number of packets"),
            ("1pps burst 0", "a burst of `0` is out of range, 1 to 1000000000"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.starts_with(problem), "{text}: {message}");
            assert!(message.ends_with("`1000pps` or `1000pps burst 200`"), "{message}");
        }
    }
}
