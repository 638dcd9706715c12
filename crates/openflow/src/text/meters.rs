//! Meters as text, and read from text.

use super::parse::split;
use super::parse_fields::small;
use super::{ParseError, duration_text};
use crate::message::{Band, BandKind, MeterConfig, MeterFlags, MeterMod, MeterModCommand};
use crate::multipart::MeterStats;
use crate::version::meter;

/// Numbers that stand for meters, and their names.
const METERS: [(u32, &str); 3] =
    [(meter::SLOWPATH, "slowpath"), (meter::CONTROLLER, "controller"), (meter::ALL, "all")];

/// Options and their names.
const FLAGS: [(MeterFlags, &str); 4] = [
    (MeterFlags::KBPS, "kbps"),
    (MeterFlags::PKTPS, "pktps"),
    (MeterFlags::BURST, "burst"),
    (MeterFlags::STATS, "stats"),
];

fn name(number: u32) -> String {
    let named = METERS.iter().find(|(meter, _)| *meter == number);
    named.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
}

/// A meter, as `ovs-ofctl dump-meters` writes it: a line, and one for each band.
pub fn meter_text(meter: &MeterConfig) -> String {
    let mut text = format!("meter={} ", name(meter.meter));
    for (_, name) in FLAGS.iter().filter(|(flag, _)| meter.flags.contains(*flag)) {
        text.push_str(name);
        text.push(' ');
    }
    text.push_str("bands=");
    for band in &meter.bands {
        let kind = match &band.kind {
            BandKind::Drop => "drop".to_owned(),
            BandKind::DscpRemark(_) => "dscp_remark".to_owned(),
            BandKind::Other(kind, _) => kind.to_string(),
        };
        text.push_str(&format!("\ntype={kind} rate={}", band.rate));
        if meter.flags.contains(MeterFlags::BURST) {
            text.push_str(&format!(" burst_size={}", band.burst));
        }
        if let BandKind::DscpRemark(levels) = band.kind {
            text.push_str(&format!(" prec_level={levels}"));
        }
    }
    text
}

/// A meter's statistics, as `ovs-ofctl meter-stats` writes them.
pub fn meter_stats_text(stats: &MeterStats) -> String {
    let mut text = format!(
        "meter:{} flow_count:{} packet_in_count:{} byte_in_count:{} duration:{} bands:",
        name(stats.meter),
        stats.flows,
        stats.total.packets,
        stats.total.bytes,
        duration_text(stats.duration_sec, stats.duration_nsec)
    );
    for (number, band) in stats.bands.iter().enumerate() {
        text.push_str(&format!("\n{number}: packet_count:{} byte_count:{}", band.packets, band.bytes));
    }
    text
}

/// Reads a change of a meter, as the argument of `ovs-ofctl add-meter` and the like. Rates are in kbit/s unless the text
/// says otherwise.
///
/// # Errors
/// The text is not a meter.
pub fn parse_meter(text: &str, command: MeterModCommand) -> Result<MeterMod, ParseError> {
    let deletes = command == MeterModCommand::Delete;
    let mut parsed = MeterMod { command, meter: meter::ALL, ..MeterMod::default() };
    let mut has_meter = false;
    let (head, bands) = match text.find("bands=") {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    for item in split(head, &[',', ' ', '\t', '\n']) {
        match item.split_once('=') {
            Some(("meter", value)) => (parsed.meter, has_meter) = (number(value)?, true),
            Some((name, _)) => return Err(ParseError::new("key of a meter", name)),
            None => match FLAGS.iter().find(|(_, name)| *name == item) {
                Some((flag, _)) => parsed.flags |= *flag,
                None => return Err(ParseError::new("`kbps`, `pktps`, `burst` or `stats`", item)),
            },
        }
    }
    if !has_meter && !deletes {
        return Err(ParseError::new("meter", text));
    }
    if !deletes && !parsed.flags.intersects(MeterFlags::KBPS | MeterFlags::PKTPS) {
        parsed.flags |= MeterFlags::KBPS;
    }
    for item in split(bands.strip_prefix("bands=").unwrap_or(bands), &[',', ' ', '\t', '\n']) {
        let (name, value) = item.split_once('=').unwrap_or((item, ""));
        if name == "type" {
            let kind = match value {
                "drop" => BandKind::Drop,
                "dscp_remark" => BandKind::DscpRemark(0),
                _ => return Err(ParseError::new("`drop` or `dscp_remark`", value)),
            };
            parsed.bands.push(Band { kind, ..Band::default() });
            continue;
        }
        let band = parsed.bands.last_mut().ok_or_else(|| ParseError::new("type of a band", item))?;
        match (name, &mut band.kind) {
            ("rate", _) => band.rate = small(value)?,
            ("burst_size", _) => {
                band.burst = small(value)?;
                parsed.flags |= MeterFlags::BURST;
            }
            ("prec_level", BandKind::DscpRemark(levels)) => *levels = small(value)?,
            _ => return Err(ParseError::new("key of this kind of band", name)),
        }
    }
    if !deletes && parsed.bands.is_empty() {
        return Err(ParseError::new("bands", text));
    }
    Ok(parsed)
}

fn number(text: &str) -> Result<u32, ParseError> {
    match METERS.iter().find(|(_, name)| *name == text) {
        Some((meter, _)) => Ok(*meter),
        None => small(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meters_read_and_print() {
        for (text, printed) in [
            ("meter=1,pktps,bands=type=drop,rate=100", "meter=1 pktps bands=\ntype=drop rate=100"),
            ("meter=1 bands=type=drop rate=100", "meter=1 kbps bands=\ntype=drop rate=100"),
            (
                "meter=2,kbps,burst,stats,bands=type=drop,rate=1000,burst_size=200,type=dscp_remark,rate=500,prec_level=1,burst_size=5",
                "meter=2 kbps burst stats bands=\ntype=drop rate=1000 burst_size=200\n\
                 type=dscp_remark rate=500 burst_size=5 prec_level=1",
            ),
            (
                "meter=controller,pktps,bands=type=drop,rate=9",
                "meter=controller pktps bands=\ntype=drop rate=9",
            ),
        ] {
            let MeterMod { flags, meter, bands, .. } = parse_meter(text, MeterModCommand::Add).unwrap();
            assert_eq!(meter_text(&MeterConfig { flags, meter, bands }), printed);
        }
    }

    #[test]
    fn errors_name_the_wrong_part() {
        for (text, expected) in [
            ("pktps,bands=type=drop,rate=1", "expected meter, found"),
            ("meter=1", "expected bands, found `meter=1`"),
            ("meter=1,fast,bands=type=drop", "expected `kbps`, `pktps`, `burst` or `stats`, found `fast`"),
            ("meter=1,bands=rate=1", "expected type of a band, found `rate=1`"),
            ("meter=1,bands=type=mark", "expected `drop` or `dscp_remark`, found `mark`"),
            ("meter=1,bands=type=drop,prec_level=1", "expected key of this kind of band, found `prec_level`"),
        ] {
            let error = parse_meter(text, MeterModCommand::Add).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        assert_eq!(parse_meter("", MeterModCommand::Delete).unwrap().meter, meter::ALL);
    }
}
