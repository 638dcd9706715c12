//! The grammar of VLAN settings in the file and on the command line. [`VlanMode`]'s `Display` formats them.
//!
//! ```text
//! transparent             frames pass as they are
//! access:10               untagged member of VLAN 10
//! trunk:10,20-29          tagged member of VLANs 10 and 20 to 29
//! trunk:0,10              tagged member of VLAN 10; frames of no VLAN pass, too
//! trunk:all,native:1      tagged member of all VLANs; untagged frames belong to VLAN 1
//! trunk:all,native-tagged:1  the same, but VLAN 1 is sent tagged
//! tunnel:10               untagged member of VLAN 10, to which all frames belong: their tags are payload
//! ```

use fabric::VlanMode;
use fabric::port::{VidSet, VlanEgress};
use packet::ether::Vid;

/// Reason for refusing a VLAN setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; expected `transparent`, `access:10`, `trunk:10,20-29` or `trunk:all,native:1`")]
pub struct VlanError {
    problem: String,
}

fn error(problem: String) -> VlanError {
    VlanError { problem }
}

/// Parses the grammar above.
pub fn parse(text: &str) -> Result<VlanMode, VlanError> {
    if text == "transparent" {
        return Ok(VlanMode::Transparent);
    }
    if text.contains(char::is_whitespace) {
        return Err(error(format!("`{text}`: spaces are not allowed in a VLAN list")));
    }
    if text.ends_with(',') {
        return Err(error(format!("`{text}` ends with a comma")));
    }
    match text.split_once(':') {
        Some(("access", number)) => Ok(VlanMode::Access(vid(number)?)),
        Some(("tunnel", number)) => Ok(VlanMode::Tunnel(vid(number)?)),
        Some(("trunk", list)) => trunk(list),
        _ if vid(text).is_ok() => {
            Err(error(format!("`{text}` is not a VLAN setting (an access port has `access:{text}`)")))
        }
        _ => Err(error(format!("`{text}` is not a VLAN setting"))),
    }
}

/// Returns the note about a static station in VLAN `vid` (0: none) at a port that does not carry the VLAN.
pub fn station_note(port: &str, mode: &VlanMode, vid: u16) -> Option<String> {
    let vlan = if vid == 0 { "without a VLAN".into() } else { format!("in VLAN {vid}") };
    let refused = mode.egress(vid) == VlanEgress::Refused;
    refused.then(|| format!("port {port} is {mode}, so packets to the station {vlan} are dropped"))
}

fn trunk(list: &str) -> Result<VlanMode, VlanError> {
    let (mut native, mut is_tagged, mut allowed) = (None, false, VidSet::empty());
    for item in list.split(',') {
        if item == "all" {
            (1..=4094).for_each(|vid| allowed.insert(vid));
        } else if item == "0" {
            allowed.insert(0);
        } else if let Some((kind @ ("native" | "native-tagged"), number)) = item.split_once(':') {
            is_tagged = kind == "native-tagged";
            if native.replace(vid(number)?).is_some() {
                return Err(error("a trunk can have only one native VLAN".into()));
            }
        } else if let Some((first, last)) = item.split_once('-') {
            let (first, last) = (vid(first)?.get(), vid(last)?.get());
            if first > last {
                return Err(error(format!("the range `{item}` ends before it starts")));
            }
            (first..=last).for_each(|vid| allowed.insert(vid));
        } else {
            allowed.insert(vid(item)?.get());
        }
    }
    if let Some(native) = native {
        if allowed.contains(0) {
            return Err(error(
                "frames of no VLAN belong to the native VLAN: 0 and `native` exclude each other".into(),
            ));
        }
        allowed.insert(native.get());
    }
    Ok(match native {
        Some(native) if is_tagged => VlanMode::NativeTagged { native, allowed },
        _ => VlanMode::Trunk { native, allowed },
    })
}

fn vid(text: &str) -> Result<Vid, VlanError> {
    text.parse()
        .ok()
        .and_then(Vid::new)
        .ok_or_else(|| error(format!("`{text}` is not a VLAN id from 1 to 4094")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_settings_parse_back() {
        for text in [
            "transparent",
            "access:10",
            "access:4094",
            "trunk:10,20-29",
            "trunk:0",
            "trunk:0,10-11",
            "trunk:0,all",
            "trunk:all",
            "trunk:all,native:1",
            "trunk:7,native:7",
            "trunk:1-7,native-tagged:7",
            "tunnel:10",
        ] {
            let mode = parse(text).unwrap();
            assert_eq!(mode.to_string(), text);
        }
    }

    #[test]
    fn a_station_in_a_vlan_that_its_port_does_not_carry_is_noted() {
        let note = |mode: &str, vid| station_note("t1", &parse(mode).unwrap(), vid);
        let text = |what: &str| Some(format!("port t1 is {what} are dropped"));
        assert_eq!(note("access:10", 20), text("access:10, so packets to the station in VLAN 20"));
        assert_eq!(note("trunk:10", 0), text("trunk:10, so packets to the station without a VLAN"));
        for (mode, vid) in [("access:10", 10), ("trunk:10,20", 20), ("transparent", 0), ("transparent", 20)] {
            assert_eq!(note(mode, vid), None);
        }
    }

    #[test]
    fn the_native_vlan_is_allowed_on_its_trunk() {
        let VlanMode::Trunk { native, allowed } = parse("trunk:10,native:5").unwrap() else { panic!() };
        assert_eq!(native, Vid::new(5));
        assert!(allowed.contains(5) && allowed.contains(10) && !allowed.contains(6));
    }

    #[test]
    fn errors_name_the_problem_and_the_expected_forms() {
        for (text, problem) in [
            ("10", "`10` is not a VLAN setting (an access port has `access:10`); expected "),
            ("acess:10", "`acess:10` is not a VLAN setting"),
            ("trunk:10, 20", "`trunk:10, 20`: spaces are not allowed in a VLAN list; expected "),
            ("trunk:10,", "`trunk:10,` ends with a comma; expected "),
            ("access:0", "`0` is not a VLAN id from 1 to 4094"),
            ("access:4095", "`4095` is not a VLAN id from 1 to 4094"),
            ("trunk:", "`` is not a VLAN id from 1 to 4094"),
            ("trunk:20-10", "the range `20-10` ends before it starts"),
            ("trunk:0,native:1", "frames of no VLAN belong to the native VLAN"),
            ("trunk:0-5", "`0` is not a VLAN id from 1 to 4094"),
            ("trunk:all,native:1,native:2", "a trunk can have only one native VLAN"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.starts_with(problem), "{message}");
            assert!(message.ends_with("`trunk:10,20-29` or `trunk:all,native:1`"), "{message}");
        }
    }
}
