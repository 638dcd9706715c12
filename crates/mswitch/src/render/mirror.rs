//! `mswitch mirror list`.

use control::proto;

use super::table::{Column, table};
use super::units;

/// One row per mirror.
pub(crate) fn list(mirrors: &[proto::Mirror]) -> String {
    let columns = [
        Column::Left("BRIDGE"),
        Column::Left("MIRROR"),
        Column::Left("FROM"),
        Column::Left("DIRECTION"),
        Column::Left("TO"),
        Column::Right("VLAN"),
        Column::Right("PACKETS"),
        Column::Right("BYTES"),
    ];
    let row = |mirror: &proto::Mirror| {
        vec![
            mirror.bridge.clone(),
            mirror.name.clone(),
            if mirror.from.is_empty() { "all".into() } else { mirror.from.join(", ") },
            mirror.direction.clone(),
            mirror.to.clone(),
            if mirror.vlan == 0 { "-".into() } else { mirror.vlan.to_string() },
            units::count(mirror.packets),
            units::count(mirror.bytes),
        ]
    };
    table(&columns, mirrors.iter().map(row).collect(), "no mirrors")
}
