//! The grammar of VLAN settings in the file and on the command line. [`VlanMode`]'s `Display` formats them.
//!
//! ```text
//! transparent             frames pass as they are
//! access:10               untagged member of VLAN 10
//! trunk:10,20-29          tagged member of VLANs 10 and 20 to 29
//! trunk:all,native:1      tagged member of all VLANs; untagged frames belong to VLAN 1
//! ```

use fabric::VlanMode;
use fabric::port::VidSet;
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
    match text.split_once(':') {
        Some(("access", number)) => Ok(VlanMode::Access(vid(number)?)),
        Some(("trunk", list)) => trunk(list),
        _ => Err(error(format!("`{text}` is not a VLAN setting"))),
    }
}

fn trunk(list: &str) -> Result<VlanMode, VlanError> {
    let (mut native, mut allowed) = (None, VidSet::empty());
    for item in list.split(',') {
        if item == "all" {
            allowed = VidSet::all();
        } else if let Some(number) = item.strip_prefix("native:") {
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
        allowed.insert(native.get());
    }
    Ok(VlanMode::Trunk { native, allowed })
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
            "trunk:all",
            "trunk:all,native:1",
            "trunk:7,native:7",
        ] {
            let mode = parse(text).unwrap();
            assert_eq!(mode.to_string(), text);
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
            ("acess:10", "`acess:10` is not a VLAN setting"),
            ("access:0", "`0` is not a VLAN id from 1 to 4094"),
            ("access:4095", "`4095` is not a VLAN id from 1 to 4094"),
            ("trunk:", "`` is not a VLAN id from 1 to 4094"),
            ("trunk:20-10", "the range `20-10` ends before it starts"),
            ("trunk:all,native:1,native:2", "a trunk can have only one native VLAN"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.starts_with(problem), "{message}");
            assert!(message.ends_with("`trunk:10,20-29` or `trunk:all,native:1`"), "{message}");
        }
    }
}
