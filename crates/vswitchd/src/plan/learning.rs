//! How bridges learn stations and groups: columns and keys of the table `Bridge`.

use std::collections::BTreeMap;

use logic::SnoopingSettings;
use ovsdb::vswitch::Bridge;

/// Seconds after which a silent station is forgotten, and after which a group's member is.
const AGEING: u32 = 300;

fn seconds(other_config: &BTreeMap<String, String>, key: &str, range: std::ops::RangeInclusive<u32>) -> u32 {
    let given = other_config.get(key).and_then(|text| text.parse().ok());
    given.map_or(AGEING, |seconds: u32| seconds.clamp(*range.start(), *range.end()))
}

/// Returns the seconds after which a bridge forgets a silent station (`mac-aging-time`).
pub(super) fn ageing(bridge: &Bridge) -> u32 {
    // As in Open vSwitch.
    seconds(&bridge.other_config, "mac-aging-time", 15..=3600)
}

/// Returns the most stations that a bridge knows (`mac-table-size`); `None`: not configured.
pub(super) fn stations(bridge: &Bridge) -> Option<u32> {
    let given: i64 = bridge.other_config.get("mac-table-size")?.parse().ok()?;
    // As in Open vSwitch.
    u32::try_from(given.clamp(10, 1_000_000)).ok()
}

/// Returns the settings of multicast snooping, if the bridge has it (`mcast_snooping_enable`).
pub(super) fn snooping(bridge: &Bridge) -> Option<SnoopingSettings> {
    let drops = bridge.other_config.get("mcast-snooping-disable-flood-unregistered");
    bridge.mcast_snooping_enable.then(|| SnoopingSettings {
        timeout: seconds(&bridge.other_config, "mcast-snooping-aging-time", 15..=3600),
        flood_unregistered: drops.is_none_or(|text| !text.eq_ignore_ascii_case("true")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_bounded() {
        let bridge = |more: &[(&str, &str)]| Bridge {
            mcast_snooping_enable: true,
            other_config: more.iter().map(|(key, text)| (key.to_string(), text.to_string())).collect(),
            ..Bridge::default()
        };
        assert_eq!((ageing(&bridge(&[])), snooping(&Bridge::default())), (300, None));
        let settings = bridge(&[
            ("mac-aging-time", "1"),
            ("mcast-snooping-aging-time", "99999"),
            ("mcast-snooping-disable-flood-unregistered", "true"),
        ]);
        assert_eq!((ageing(&settings), stations(&settings)), (15, None));
        let size = |text| stations(&bridge(&[("mac-table-size", text)]));
        assert_eq!(["3", "2048", "9999999", "many"].map(size), [Some(10), Some(2048), Some(1_000_000), None]);
        let expected = SnoopingSettings { timeout: 3600, flood_unregistered: false };
        assert_eq!(snooping(&settings), Some(expected));
    }
}
