//! VLAN settings of a port, from the columns `tag`, `trunks` and `vlan_mode` (ovs-vswitchd.conf.db(5)).

use fabric::VlanMode;
use ovsdb::vswitch::Port;

/// Returns the settings, or why there are none here.
pub(crate) fn mode(port: &Port) -> Result<VlanMode, String> {
    let tag = port.tag.filter(|tag| *tag != 0);
    let vid = |tag: i64| {
        let vid = u16::try_from(tag).ok().and_then(|tag| tag.try_into().ok());
        vid.ok_or_else(|| format!("tag {tag} is not a VLAN id; expected 1 to 4094"))
    };
    match (port.vlan_mode.as_deref(), tag) {
        (None | Some("access"), Some(tag)) => Ok(VlanMode::Access(vid(tag)?)),
        (None | Some("trunk" | "native-untagged" | "native-tagged"), None) if port.trunks.is_empty() => {
            Ok(VlanMode::Transparent)
        }
        (None | Some("trunk"), _) => Ok(VlanMode::Trunk { native: None, allowed: allowed(port) }),
        (Some("native-untagged"), tag) => {
            let mut allowed = allowed(port);
            if let Some(tag) = tag {
                allowed.insert(u16::try_from(tag).unwrap_or_default());
            }
            Ok(VlanMode::Trunk { native: tag.map(vid).transpose()?, allowed })
        }
        (Some("access"), None) => Ok(VlanMode::Transparent),
        (Some(other), _) => Err(format!("vlan_mode `{other}` is not supported")),
    }
}

fn allowed(port: &Port) -> fabric::port::VidSet {
    if port.trunks.is_empty() {
        return fabric::port::VidSet::all();
    }
    let mut allowed = fabric::port::VidSet::empty();
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
            Err(error) => error,
        };
        assert_eq!(text(port(None, &[], None)), "all");
        assert_eq!(text(port(Some(5), &[], None)), "access 5");
        assert_eq!(text(port(Some(5), &[], Some("access"))), "access 5");
        assert_eq!(text(port(None, &[5], None)), "native None, 1 false, 5 true");
        assert_eq!(text(port(Some(5), &[1], Some("trunk"))), "native None, 1 true, 5 false");
        assert_eq!(text(port(Some(5), &[], Some("native-untagged"))), "native Some(\"5\"), 1 true, 5 true");
        assert_eq!(text(port(Some(5), &[1], Some("native-untagged"))), "native Some(\"5\"), 1 true, 5 true");
        assert_eq!(
            text(port(Some(5), &[], Some("native-tagged"))),
            "vlan_mode `native-tagged` is not supported"
        );
        assert_eq!(text(port(Some(4095), &[], None)), "tag 4095 is not a VLAN id; expected 1 to 4094");
    }
}
