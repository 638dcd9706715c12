//! `mswitch openflow controllers`: connections, and limits.

use std::fmt::Write;
use std::time::Duration;

use control::proto;

use super::table::{Column, table};
use super::units;

/// The bridge's id and sockets, a row for each controller's address, and one for each limit.
pub(crate) fn controllers(openflow: &proto::OpenFlow) -> String {
    let or_none = |path: &str| if path.is_empty() { "none".to_owned() } else { path.to_owned() };
    let mode = match openflow.standalone {
        true => format!("{}, forwarding without a controller", openflow.fail_mode),
        false => openflow.fail_mode.clone(),
    };
    let mut text = String::new();
    for (name, value) in [
        ("datapath id", openflow.datapath_id.clone()),
        ("versions", openflow.versions.join(", ")),
        ("fail mode", mode),
        ("flows", units::count(openflow.flows)),
        (
            "kept in",
            if openflow.kept.is_empty() {
                "none, flows go with the daemon".into()
            } else {
                openflow.kept.clone()
            },
        ),
        ("management", or_none(&openflow.management)),
        ("snoop", or_none(&openflow.snoop)),
    ] {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<12} {value}");
    }
    let columns = [
        Column::Left("CONTROLLER"),
        Column::Left("STATE"),
        Column::Left("PEER"),
        Column::Left("VERSION"),
        Column::Left("ROLE"),
        Column::Right("SINCE"),
        Column::Left("LAST ERROR"),
    ];
    let rows = openflow.controllers.iter().flat_map(rows).collect();
    text.push('\n');
    text += &table(&columns, rows, "no controllers");
    text.push('\n');
    text + &limits(&openflow.limits)
}

/// A row for each limit.
fn limits(limits: &[proto::OpenFlowLimit]) -> String {
    let columns = [Column::Left("LIMIT"), Column::Left("PER"), Column::Right("USED"), Column::Right("MOST")];
    let row = |limit: &proto::OpenFlowLimit| {
        let (name, number): (_, fn(u64) -> String) = match limit.bytes {
            true => (format!("bytes of {}", limit.name), units::bytes),
            false => (limit.name.clone(), units::count),
        };
        vec![name, limit.per.clone(), number(limit.used), number(limit.most)]
    };
    table(&columns, limits.iter().map(row).collect(), "no limits")
}

/// A row for each connection, or one for an address without any.
fn rows(controller: &proto::OpenFlowController) -> Vec<Vec<String>> {
    let since = |seconds: f64| units::duration(Duration::try_from_secs_f64(seconds).unwrap_or_default());
    let dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let state = |version: &str| if version.is_empty() { "connecting" } else { "connected" }.to_owned();
    let row = |peer: &proto::OpenFlowPeer| {
        vec![
            controller.target.clone(),
            state(&peer.version),
            peer.peer.clone(),
            dash(&peer.version),
            peer.role.clone(),
            since(peer.since_seconds),
            dash(&controller.last_error),
        ]
    };
    if !controller.connections.is_empty() {
        return controller.connections.iter().map(row).collect();
    }
    let state = match controller.listens.as_str() {
        "" => "not connected".to_owned(),
        address => format!("listens on {address}"),
    };
    let [none, version, role] = ["-"; 3].map(str::to_owned);
    let row = vec![
        controller.target.clone(),
        state,
        none,
        version,
        role,
        since(controller.since_seconds),
        dash(&controller.last_error),
    ];
    vec![row]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_has_a_row() {
        let peer = proto::OpenFlowPeer {
            peer: "tcp:10.0.0.9:6653".into(),
            version: "1.3".into(),
            role: "primary".into(),
            since_seconds: 61.0,
            dropped: 0,
        };
        let connected = proto::OpenFlowController {
            target: "tcp:10.0.0.9:6653".into(),
            connected: true,
            connections: vec![peer],
            ..Default::default()
        };
        let listening = proto::OpenFlowController {
            target: "ptcp:6634".into(),
            listens: "0.0.0.0:6634".into(),
            ..Default::default()
        };
        let lost = proto::OpenFlowController {
            target: "tcp:10.0.0.8:6653".into(),
            last_error: "Connection refused (os error 111)".into(),
            ..Default::default()
        };
        let limit = |name: &str, per: &str, used, most| proto::OpenFlowLimit {
            name: name.into(),
            per: per.into(),
            used,
            most,
            bytes: false,
        };
        let bundles = proto::OpenFlowLimit { bytes: true, ..limit("bundles", "bridge", 1536, 1 << 30) };
        let openflow = proto::OpenFlow {
            datapath_id: "00000242ac110002".into(),
            versions: vec!["1.3".into()],
            fail_mode: "standalone".into(),
            standalone: true,
            management: "/run/mswitch/br0.mgmt".into(),
            flows: 1200,
            controllers: vec![connected, listening, lost],
            limits: vec![limit("flows", "table", 1000, 1_000_000), bundles],
            ..Default::default()
        };
        let text = controllers(&openflow);
        for part in [
            "datapath id  00000242ac110002\n",
            "fail mode    standalone, forwarding without a controller\n",
            "flows        1,200\n",
            "kept in      none, flows go with the daemon\n",
            "snoop        none\n",
            "tcp:10.0.0.9:6653  connected",
            "ptcp:6634          listens on 0.0.0.0:6634",
            "Connection refused",
            "flows             table      1,000  1,000,000\n",
            "bytes of bundles  bridge  1.50 KiB   1.00 GiB\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
