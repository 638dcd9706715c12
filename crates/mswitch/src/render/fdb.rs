//! `mswitch fdb show`.

use control::proto;

use super::table::{Column, table};

/// One row per address.
pub(crate) fn list(entries: &[proto::FdbEntry]) -> String {
    let columns = [
        Column::Left("MAC"),
        Column::Right("VLAN"),
        Column::Left("PORT"),
        Column::Right("AGE"),
        Column::Left("KIND"),
    ];
    let row = |entry: &proto::FdbEntry| {
        vec![
            entry.mac.clone(),
            if entry.vlan == 0 { "-".into() } else { entry.vlan.to_string() },
            entry.port.clone(),
            if entry.r#static || entry.sticky { "-".into() } else { format!("{} s", entry.age_seconds) },
            match (entry.r#static, entry.sticky) {
                (true, _) => "static",
                (false, true) => "sticky",
                (false, false) => "learned",
            }
            .into(),
        ]
    };
    table(&columns, entries.iter().map(row).collect(), "no addresses")
}
