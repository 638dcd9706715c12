//! Bridges.

use control::proto;

use super::logic::printable;
use super::table::{Column, table};
use super::{pairs, port, units};

/// `mswitch bridge list`.
pub(crate) fn list(bridges: &[proto::Bridge]) -> String {
    let columns = [
        Column::Left("BRIDGE"),
        Column::Left("LOGIC"),
        Column::Right("PORTS UP"),
        Column::Right("MAC TABLE"),
        Column::Right("RECEIVED"),
        Column::Right("SENT"),
        Column::Right("DROPPED"),
    ];
    let row = |bridge: &proto::Bridge| {
        let totals = bridge.totals.clone().unwrap_or_default();
        let (rx, tx) = (totals.rx.unwrap_or_default(), totals.tx.unwrap_or_default());
        vec![
            bridge.name.clone(),
            bridge.logic.as_ref().map(|logic| logic.name.clone()).unwrap_or_default(),
            format!("{} of {}", bridge.ports_up, bridge.ports),
            bridge.fdb_entries.map_or_else(|| "-".into(), units::count),
            units::count(rx.packets),
            units::count(tx.packets),
            units::count(rx.dropped + tx.dropped),
        ]
    };
    table(&columns, bridges.iter().map(row).collect(), "no bridges; `mswitch bridge add NAME` adds one")
}

/// `mswitch bridge groups`.
pub(crate) fn groups(entries: &[proto::Group]) -> String {
    let columns = [
        Column::Left("GROUP"),
        Column::Left("FAMILY"),
        Column::Right("VLAN"),
        Column::Left("PORT"),
        Column::Right("EXPIRES"),
    ];
    let row = |entry: &proto::Group| {
        vec![
            if entry.mac.is_empty() { "all (router)".into() } else { entry.mac.clone() },
            entry.family.clone(),
            if entry.vlan == 0 { "-".into() } else { entry.vlan.to_string() },
            entry.port.clone(),
            format!("{} s", entry.expires_seconds),
        ]
    };
    table(&columns, entries.iter().map(row).collect(), "no groups and no multicast router")
}

/// `mswitch bridge show`.
pub(crate) fn show(bridge: &proto::Bridge, ports: &[proto::Port]) -> String {
    let logic = bridge.logic.clone().unwrap_or_default();
    let mut out = format!("bridge    {}\nlogic     {}", bridge.name, logic.name);
    if !logic.params.is_empty() {
        out += &format!(" ({})", pairs(&logic.params));
    }
    out.push('\n');
    if bridge.owner == "database" {
        out += "owner     the database of Open vSwitch (`ovs-vsctl` changes the bridge)\n";
    }
    if let (Some(entries), Some(stats)) = (bridge.fdb_entries, &bridge.fdb) {
        out += &format!(
            "MAC table {} addresses; {} learned, {} moved, {} expired, {} evicted, {} refused\n",
            units::count(entries),
            units::count(stats.learned),
            units::count(stats.moved),
            units::count(stats.expired),
            units::count(stats.evicted),
            units::count(stats.refused),
        );
        if stats.limit_evicted + stats.limited > 0 {
            out += &format!(
                "          port shares: {} of the evicted, {} not learned\n",
                units::count(stats.limit_evicted),
                units::count(stats.limited),
            );
        }
        if stats.conflicts > 0 {
            let conflicts = units::count(stats.conflicts);
            out += &format!("          conflicts: addresses heard {conflicts} times at ports of others\n");
        }
    }
    for stuck in &bridge.stuck {
        out += &format!("stuck     {}\n", printable(&stuck.text()));
    }
    for faults in &bridge.module_faults {
        out += &format!("faults    {}\n", printable(&faults.text()));
    }
    for unmet in &bridge.unmet {
        out += &format!("failed    {}: {}\n", unmet.object, printable(&unmet.reason));
    }
    if bridge.observers > 0 {
        out += &format!("observed  by {} captures and live traces\n", bridge.observers);
    }
    out + &format!("ports     {} of {} up\n\n", bridge.ports_up, bridge.ports) + &port::list(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_are_shown_once_there_are_any() {
        let fdb = proto::FdbStats { learned: 3, ..Default::default() };
        let mut bridge = proto::Bridge { fdb_entries: Some(2), fdb: Some(fdb), ..Default::default() };
        let table = "MAC table 2 addresses; 3 learned, 0 moved, 0 expired, 0 evicted, 0 refused\n";
        assert!(show(&bridge, &[]).contains(&format!("{table}ports ")));
        bridge.fdb.as_mut().unwrap().conflicts = 1234;
        let conflicts = "          conflicts: addresses heard 1,234 times at ports of others\n";
        assert!(show(&bridge, &[]).contains(&format!("{table}{conflicts}ports ")));
    }
}
