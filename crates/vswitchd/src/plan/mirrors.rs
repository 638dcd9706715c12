//! From rows of the table `Mirror` to mirrors of the model.

use std::collections::BTreeMap;

use fabric::port::VidSet;
use fabric::{Interest, Mirror};
use ovsdb::Uuid;
use ovsdb::vswitch::{self, Bridge};
use packet::ether::Vid;

use super::Rows;

/// The `snaplen` with which copies are whole.
const WHOLE: u32 = 65_535;

/// A mirror of a bridge in the database.
#[derive(Debug, PartialEq)]
pub(crate) struct PlannedMirror {
    pub(crate) uuid: Uuid,
    pub(crate) name: String,
    /// The mirror, or why it is not configured.
    pub(crate) mirror: Result<Mirror, String>,
}

/// Returns the mirrors of a bridge.
pub(super) fn of(rows: &Rows<'_>, bridge: &Bridge) -> Vec<PlannedMirror> {
    let found = bridge.mirrors.iter().filter_map(|uuid| rows.mirrors.get(uuid));
    found
        .map(|row| {
            let unreadable = rows.faults.get(&row.uuid).cloned();
            let mirror = unreadable.map_or_else(|| mirror(rows, bridge, row), Err);
            PlannedMirror { uuid: row.uuid, name: row.name.clone(), mirror }
        })
        .collect()
}

fn mirror(rows: &Rows<'_>, bridge: &Bridge, row: &vswitch::Mirror) -> Result<Mirror, String> {
    // The model's ports are the interfaces of a port.
    let interfaces = |port: &Uuid| {
        let port =
            Some(port).filter(|uuid| bridge.ports.contains(uuid)).and_then(|uuid| rows.ports.get(uuid));
        let uuids = port.into_iter().flat_map(|port| &port.interfaces);
        uuids.filter_map(|uuid| rows.interfaces.get(uuid)).map(|interface| interface.name.clone())
    };
    let (to, into_vlan) = match (&row.output_port, row.output_vlan) {
        (Some(port), _) => (interfaces(port).next().ok_or("output_port is not a port of the bridge")?, None),
        (None, Some(vlan)) => {
            let vid = u16::try_from(vlan).ok().and_then(Vid::new);
            (String::new(), Some(vid.ok_or_else(|| format!("output_vlan {vlan} is not a VLAN"))?))
        }
        (None, None) => return Err("it has neither output_port nor output_vlan".into()),
    };
    let mut by_port = BTreeMap::<String, Interest>::new();
    for name in row.select_src_port.iter().flat_map(interfaces) {
        by_port.entry(name).or_default().received = true;
    }
    for name in row.select_dst_port.iter().flat_map(interfaces) {
        by_port.entry(name).or_default().sent = true;
    }
    let vlans = (!row.select_vlan.is_empty()).then(|| {
        let mut vlans = VidSet::empty();
        row.select_vlan.iter().filter_map(|vid| u16::try_from(*vid).ok()).for_each(|vid| vlans.insert(vid));
        vlans
    });
    Ok(Mirror {
        name: row.name.clone(),
        what: Interest { received: true, sent: true, explained: false },
        by_port: (!row.select_all).then(|| by_port.into_iter().collect()),
        vlans,
        to,
        into_vlan,
        cut: row.snaplen.and_then(|bytes| u32::try_from(bytes).ok()).filter(|bytes| *bytes < WHOLE),
        ..Mirror::default()
    })
}
