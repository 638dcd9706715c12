//! Numbers with units.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// 1,234,567
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// 12.3 KiB
pub(crate) fn bytes(n: u64) -> String {
    scaled(n as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

/// 1.24 Mpps
pub(crate) fn packet_rate(per_second: f64) -> String {
    scaled(per_second, 1000.0, &["pps", "kpps", "Mpps", "Gpps"])
}

/// 9.8 Gbit/s
pub(crate) fn bit_rate(per_second: f64) -> String {
    scaled(per_second, 1000.0, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// 1.24 M, without the unit, which the column's title has.
pub(crate) fn short(per_second: f64) -> String {
    scaled(per_second, 1000.0, &["", "k", "M", "G", "T"]).trim_end().into()
}

/// Three significant digits with the largest unit that gives at least 1.
fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    // A value that rounds up to a whole step gets the next unit.
    while value >= step - 0.5 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let name = units.get(unit).copied().unwrap_or_default();
    let decimals = match value {
        _ if unit == 0 && value.fract() == 0.0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {name}")
}

/// 31.4 %
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// One decimal, or a dash for 0.
pub(crate) fn ratio(value: f64) -> String {
    if value > 0.0 { format!("{value:.1}") } else { "-".into() }
}

/// 13:05:09.123, the time of day (UTC) of nanoseconds since 1970-01-01.
pub(crate) fn time_of_day(unix_nanoseconds: u64) -> String {
    let (seconds, millis) = (unix_nanoseconds / 1_000_000_000, unix_nanoseconds / 1_000_000 % 1000);
    let (h, m, s) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{h:02}:{m:02}:{s:02}.{millis:03}")
}

/// 13:05:09.123 UTC, 3 min 12 s ago
pub(crate) fn time_and_age(unix_nanoseconds: u64, now: SystemTime) -> String {
    let at = UNIX_EPOCH + Duration::from_nanos(unix_nanoseconds);
    let ago = now.duration_since(at).unwrap_or_default();
    format!("{} UTC, {} ago", time_of_day(unix_nanoseconds), duration(ago))
}

/// 12.3 µs, 4.56 ms
pub(crate) fn delay(seconds: f64) -> String {
    let (scaled, unit) = match seconds {
        s if s < 1e-3 => (s * 1e6, "µs"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    let digits = if scaled < 9.995 { 2 } else { usize::from(scaled < 99.95) };
    format!("{scaled:.digits$} {unit}")
}

/// 3 min 12 s
pub(crate) fn duration(d: Duration) -> String {
    let s = d.as_secs();
    match (s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m} min {s} s"),
        (0, h, m, _) => format!("{h} h {m} min"),
        (d, h, _, _) => format!("{d} d {h} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        assert_eq!(
            ["0", "999", "1,000", "1,234,567"],
            [0, 999, 1000, 1_234_567].map(count).each_ref().map(|s| &**s)
        );
    }

    #[test]
    fn delays() {
        let texts = [0.0, 1.234e-6, 123.4e-6, 0.0456, 2.5, 250.0].map(delay);
        assert_eq!(texts, ["0.00 µs", "1.23 µs", "123 µs", "45.6 ms", "2.50 s", "250 s"]);
    }

    #[test]
    fn three_digits_and_a_unit() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(12_600), "12.3 KiB");
        assert_eq!(packet_rate(1_240_000.0), "1.24 Mpps");
        assert_eq!(packet_rate(999_999.0), "1.00 Mpps");
        assert_eq!(packet_rate(12.5), "12.5 pps");
        assert_eq!(bit_rate(9_800_000_000.0), "9.80 Gbit/s");
        assert_eq!(bit_rate(123_400_000.0), "123 Mbit/s");
    }

    #[test]
    fn durations() {
        assert_eq!(duration(Duration::from_secs(59)), "59 s");
        assert_eq!(duration(Duration::from_secs(192)), "3 min 12 s");
        assert_eq!(duration(Duration::from_secs(7320)), "2 h 2 min");
        assert_eq!(duration(Duration::from_secs(90_000)), "1 d 1 h");
    }
}
