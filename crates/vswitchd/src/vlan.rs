//! VLAN settings of a port, from the columns `tag`, `trunks`, `vlan_mode` and `cvlans` (ovs-vswitchd.conf.db(5)).

use fabric::VlanMode;
use fabric::port::VidSet;
use ovsdb::vswitch::Port;

/// Returns the settings, or why there are none here.
pub(crate) fn mode(port: &Port) -> Result<VlanMode, String> {
    let tag = port.tag.filter(|tag| *tag != 0);
    let vid = |tag: i64| {
        let vid = u16::try_from(tag).ok().and_then(|tag| tag.try_into().ok());
        vid.ok_or_else(|| format!("tag {tag} is not a VLAN id; expected 1 to 4094"))
    };
    match (port.vlan_mode.as_deref(), tag) {
        _ if has_priority_tags(port) => {
            Err("other_config:priority-tags is not supported; expected `never`".into())
        }
        (None | Some("access"), Some(tag)) => Ok(VlanMode::Access(vid(tag)?)),
        // A member of no VLAN.
        (None | Some("access"), None) if port.tag == Some(0) => {
            let mut allowed = VidSet::empty();
            allowed.insert(0);
            Ok(VlanMode::Trunk { native: None, allowed })
        }
        (Some("trunk"), _) | (None | Some("native-untagged" | "native-tagged"), None)
            if port.trunks.is_empty() =>
        {
            Ok(VlanMode::Transparent)
        }
        (None | Some("trunk"), _) => Ok(VlanMode::Trunk { native: None, allowed: allowed(port) }),
        (Some(mode @ ("native-untagged" | "native-tagged")), tag) => {
            let native = tag.map(vid).transpose()?;
            let mut allowed = allowed(port);
            // Frames of no VLAN belong to the native one.
            allowed.remove(0);
            if let Some(native) = native {
                allowed.insert(native.get());
            }
            Ok(match native {
                Some(native) if mode == "native-tagged" => VlanMode::NativeTagged { native, allowed },
                native => VlanMode::Trunk { native, allowed },
            })
        }
        (Some("dot1q-tunnel"), tag) => {
            let vid = vid(tag.ok_or("vlan_mode `dot1q-tunnel` needs a tag")?)?;
            if port.other_config.get("qinq-ethtype").map(String::as_str) != Some("802.1q") {
                return Err(
                    "vlan_mode `dot1q-tunnel` is supported with other_config:qinq-ethtype=802.1q".into()
                );
            }
            if !port.cvlans.is_empty() {
                return Err("cvlans is not supported; expected none, for all VLANs of the customer".into());
            }
            Ok(VlanMode::Tunnel(vid))
        }
        (Some("access"), None) => Ok(VlanMode::Transparent),
        (Some(other), _) => Err(format!("vlan_mode `{other}` is not supported")),
    }
}

/// Whether frames without a tag are to leave with a priority tag.
fn has_priority_tags(port: &Port) -> bool {
    let value = port.other_config.get("priority-tags").map(String::as_str);
    matches!(value, Some("if-nonzero" | "true" | "always"))
}

fn allowed(port: &Port) -> VidSet {
    if port.trunks.is_empty() {
        return VidSet::all();
    }
    let mut allowed = VidSet::empty();
    for vid in &port.trunks {
        allowed.insert(u16::try_from(*vid).unwrap_or_default());
    }
    allowed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(tag: Option<i64>, trunks: &[i64], vlan_mode: Option<&str>) -> Port {
        let trunks = trunks.iter().copied().collect();
        Port { tag, trunks, vlan_mode: vlan_mode.map(Into::into), ..Port::default() }
    }

    #[test]
    fn columns_become_settings() {
        let text = |port: Port| match mode(&port) {
            Ok(VlanMode::Transparent) => "all".into(),
            Ok(VlanMode::Access(vid)) => format!("access {vid}"),
            Ok(VlanMode::Trunk { native, allowed }) => {
                format!(
                    "native {:?}, 1 {}, 5 {}",
                    native.map(|vid| vid.to_string()),
                    allowed.contains(1),
                    allowed.contains(5)
                )
            }
            Ok(VlanMode::NativeTagged { native, allowed }) => {
                format!("native-tagged {native}, 1 {}, 5 {}", allowed.contains(1), allowed.contains(5))
            }
            Ok(VlanMode::Tunnel(vid)) => format!("tunnel {vid}"),
            Err(error) => error,
        };
        assert_eq!(text(port(None, &[], None)), "all");
        assert_eq!(text(port(Some(5), &[], None)), "access 5");
        assert_eq!(text(port(Some(5), &[], Some("access"))), "access 5");
        let untagged = |mode| match super::mode(&port(Some(0), &[7], mode)) {
            Ok(VlanMode::Trunk { native: None, allowed }) => allowed.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!((untagged(None), untagged(Some("access"))), ("0".into(), "0".into()));
        assert_eq!(untagged(Some("native-untagged")), "7");
        assert_eq!(text(port(Some(5), &[], Some("trunk"))), "all", "of all VLANs, and of none");
        assert_eq!(text(port(None, &[0, 5], None)), "native None, 1 false, 5 true");
        assert_eq!(text(port(None, &[5], None)), "native None, 1 false, 5 true");
        assert_eq!(text(port(Some(5), &[1], Some("trunk"))), "native None, 1 true, 5 false");
        assert_eq!(text(port(Some(5), &[], Some("native-untagged"))), "native Some(\"5\"), 1 true, 5 true");
        assert_eq!(text(port(Some(5), &[1], Some("native-untagged"))), "native Some(\"5\"), 1 true, 5 true");
        assert_eq!(text(port(Some(5), &[1], Some("native-tagged"))), "native-tagged 5, 1 true, 5 true");
        assert_eq!(text(port(None, &[1], Some("native-tagged"))), "native None, 1 true, 5 false");
        assert_eq!(text(port(Some(5), &[], Some("other"))), "vlan_mode `other` is not supported");
        let tunnel = |tag, ethtype: &str, cvlans: &[i64]| {
            let mut port = port(tag, &[], Some("dot1q-tunnel"));
            port.other_config.insert("qinq-ethtype".into(), ethtype.into());
            port.cvlans = cvlans.iter().copied().collect();
            text(port)
        };
        assert_eq!(tunnel(Some(5), "802.1q", &[]), "tunnel 5");
        assert_eq!(tunnel(None, "802.1q", &[]), "vlan_mode `dot1q-tunnel` needs a tag");
        assert!(tunnel(Some(5), "802.1ad", &[]).contains("qinq-ethtype=802.1q"));
        assert!(tunnel(Some(5), "802.1q", &[7]).starts_with("cvlans is not supported"));
        let priority = |value: &str| {
            let other_config = [("priority-tags".to_owned(), value.to_owned())].into();
            text(Port { other_config, ..port(Some(5), &[], None) })
        };
        assert_eq!(priority("never"), "access 5");
        assert!(priority("always").starts_with("other_config:priority-tags is not supported"));
        assert_eq!(text(port(Some(4095), &[], None)), "tag 4095 is not a VLAN id; expected 1 to 4094");
    }
}
