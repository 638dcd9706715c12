//! Settings of a maintenance point, from the columns of Open vSwitch's table `Interface`.

use std::collections::BTreeMap;

use crate::Millis;

/// Intervals of IEEE 802.1Q §21.6.1.3, by their code from 1, in milliseconds; the first stands for 3⅓.
const INTERVALS: [Millis; 7] = [3, 10, 100, 1000, 10_000, 60_000, 600_000];
/// Interval unless another is configured, milliseconds.
const DEFAULT: Millis = 1000;

/// The VLAN of sent messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vlan {
    /// None; with a priority: VLAN 0.
    Untagged,
    /// This one.
    Id(u16),
    /// Another one for each message.
    Random,
}

/// Settings of a maintenance point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Its number, from 1; up to 8191 unless extended.
    pub point: u64,
    /// Open vSwitch's extensions: numbers of 64 bits, any interval, operational state.
    pub extended: bool,
    /// Whether received data keeps the port good.
    pub demand: bool,
    /// Whether it tells that it is operationally up.
    pub is_up: bool,
    /// Milliseconds between messages.
    pub interval: Millis,
    /// Code of the interval; 0: only milliseconds are sent.
    pub(super) code: u8,
    /// VLAN of sent messages.
    pub vlan: Vlan,
    /// Priority of sent messages, 0 to 7.
    pub priority: u8,
}

impl Settings {
    /// Reads the settings of a row: its column `cfm_mpid`, and the keys `cfm_*` of `other_config`.
    ///
    /// # Errors
    /// The number of the maintenance point cannot be used.
    pub fn read(point: i64, other_config: &BTreeMap<String, String>) -> Result<Self, String> {
        let get = |key: &str| other_config.get(key).map(String::as_str);
        let is_true = |key: &str| get(key).is_some_and(|text| text.eq_ignore_ascii_case("true"));
        let extended = is_true("cfm_extended");
        let number = u64::try_from(point).ok().filter(|point| *point > 0 && (extended || *point <= 8191));
        let Some(number) = number else {
            let range = if extended { "1 or more" } else { "1 to 8191" };
            return Err(format!("cfm_mpid is {point}; expected {range}"));
        };
        let asked = get("cfm_interval").and_then(|text| text.parse::<Millis>().ok()).filter(|it| *it > 0);
        let (code, interval) = interval(asked.unwrap_or(DEFAULT), extended);
        let vlan = match get("cfm_ccm_vlan") {
            Some(text) if text.eq_ignore_ascii_case("random") => Vlan::Random,
            Some(text) => {
                text.parse().ok().filter(|id| (1..4095).contains(id)).map_or(Vlan::Untagged, Vlan::Id)
            }
            None => Vlan::Untagged,
        };
        let priority = get("cfm_ccm_pcp").and_then(|text| text.parse::<u8>().ok()).filter(|pcp| *pcp < 8);
        Ok(Self {
            point: number,
            extended,
            demand: extended && is_true("cfm_demand"),
            is_up: get("cfm_opstate").is_none_or(|text| text.eq_ignore_ascii_case("up")),
            interval,
            code,
            vlan,
            priority: priority.unwrap_or(0),
        })
    }
}

/// Returns the code and the milliseconds of an interval: the longest of the standard that is not longer, or with
/// extensions the interval itself.
fn interval(asked: Millis, extended: bool) -> (u8, Millis) {
    let fits = |(code, interval): &(u8, Millis)| *code == 1 || *interval <= asked;
    let (code, milliseconds) = (1u8..).zip(INTERVALS).take_while(fits).last().unwrap_or((1, 3));
    if extended && milliseconds != asked { (0, asked.min(u16::MAX.into())) } else { (code, milliseconds) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(point: i64, text: &[(&str, &str)]) -> Result<Settings, String> {
        let row = text.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        Settings::read(point, &row)
    }

    #[test]
    fn intervals_are_those_of_the_standard_unless_extended() {
        let of = |text: &str, extended: &str| {
            let settings = read(1, &[("cfm_interval", text), ("cfm_extended", extended)]).unwrap();
            (settings.code, settings.interval)
        };
        for (asked, standard, extended) in [
            ("1", (1, 3), (0, 1)),
            ("100", (3, 100), (3, 100)),
            ("300", (3, 100), (0, 300)),
            ("0", (4, 1000), (4, 1000)),
            ("x", (4, 1000), (4, 1000)),
            ("70000", (6, 60_000), (0, 65_535)),
            ("99999999", (7, 600_000), (0, 65_535)),
        ] {
            assert_eq!((of(asked, "false"), of(asked, "true")), (standard, extended), "{asked}");
        }
    }

    #[test]
    fn points_and_tags_are_bounded() {
        assert_eq!(read(8192, &[]).unwrap_err(), "cfm_mpid is 8192; expected 1 to 8191");
        assert_eq!(read(0, &[("cfm_extended", "true")]).unwrap_err(), "cfm_mpid is 0; expected 1 or more");
        assert_eq!(read(8192, &[("cfm_extended", "true")]).unwrap().point, 8192);
        let vlan = |text: &str| read(1, &[("cfm_ccm_vlan", text)]).unwrap().vlan;
        assert_eq!([vlan("7"), vlan("RANDOM")], [Vlan::Id(7), Vlan::Random]);
        assert_eq!([vlan("0"), vlan("4095"), vlan("x")], [Vlan::Untagged; 3]);
        let settings = read(1, &[("cfm_ccm_pcp", "8"), ("cfm_demand", "true"), ("cfm_opstate", "down")]);
        let settings = settings.unwrap();
        assert_eq!((settings.priority, settings.demand, settings.is_up), (0, false, false));
    }
}
