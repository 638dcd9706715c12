//! `mswitch status`: health in about ten lines.

use std::fmt::Write;
use std::time::Duration;

use control::proto;

use super::logic::printable;
use super::{drops, units};

/// Number of down ports that are listed.
const NAMED: usize = 4;

/// Renders `mswitch status`. `recent` has the workers over a short interval; the reply counts from the start.
pub(crate) fn status(status: &proto::Status, recent: &[proto::Worker]) -> String {
    let mut out = String::new();
    let uptime = units::duration(Duration::from_secs(status.uptime_seconds));
    let mut line = |name: &str, text: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{name:<9}{text}");
    };
    line("daemon", format!("mswitch {}, process {}, up {uptime}", status.version, status.pid));
    line("config", status.config_file.clone().unwrap_or_else(|| "no file".into()));
    if status.unsaved > 0 {
        let noun = if status.unsaved == 1 { "change" } else { "changes" };
        let count = units::count(status.unsaved.into());
        line("unsaved", format!("{count} {noun}; see `mswitch config diff`, `mswitch config save`"));
    }
    let workers: Vec<_> = recent.iter().map(worker).collect();
    line("workers", format!("{}: {}", recent.len(), workers.join(", ")));
    for stuck in &status.stuck {
        line("  stuck", printable(&stuck.text()));
    }
    line("bridges", status.bridges.to_string());
    for unmet in &status.unmet {
        line("  failed", printable(&format!("{}: {}", unmet.object, unmet.reason)));
    }
    for faults in &status.module_faults {
        line("  faults", printable(&faults.text()));
    }
    line("ports", format!("{} of {} up", status.ports_up, status.ports));
    for down in status.down.iter().take(NAMED) {
        line("  down", format!("{} {}: {}", down.bridge, down.port, down.reason));
    }
    if status.down.len() > NAMED {
        line("  down", format!("{} more; see `mswitch port list`", status.down.len() - NAMED));
    }
    let totals = status.totals.clone().unwrap_or_default();
    let (rx, tx) = (totals.rx.unwrap_or_default(), totals.tx.unwrap_or_default());
    line("received", format!("{} packets, {}", units::count(rx.packets), units::bytes(rx.bytes)));
    line("sent", format!("{} packets, {}", units::count(tx.packets), units::bytes(tx.bytes)));
    let mut reasons = rx.drops;
    for (reason, dropped) in tx.drops {
        *reasons.entry(reason).or_default() += dropped;
    }
    let reasons = if reasons.is_empty() { String::new() } else { format!(": {}", drops(&reasons)) };
    line("dropped", format!("{} packets{reasons}", units::count(rx.dropped + tx.dropped)));
    out
}

fn worker(worker: &proto::Worker) -> String {
    let place = worker.cpu.map_or_else(|| "any CPU".into(), |cpu| format!("CPU {cpu}"));
    format!("{place} {} busy", units::percent(worker.busy_share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_ten_lines() {
        let queue = |packets: u64, drops: &[(&str, u64)]| proto::QueueCounters {
            packets,
            bytes: packets * 60,
            dropped: drops.iter().map(|(_, n)| n).sum(),
            drops: drops.iter().map(|(reason, n)| ((*reason).into(), *n)).collect(),
            ..Default::default()
        };
        let reply = proto::Status {
            version: "0.1.0".into(),
            pid: 7,
            uptime_seconds: 65,
            bridges: 1,
            ports: 2,
            ports_up: 1,
            down: vec![proto::DownPort {
                bridge: "br0".into(),
                port: "vm1".into(),
                reason: "no client".into(),
            }],
            totals: Some(proto::PortTotals {
                rx: Some(queue(2000, &[("vlan", 3)])),
                tx: Some(queue(1000, &[("ring-full", 1000)])),
            }),
            ..Default::default()
        };
        let recent = [proto::Worker { cpu: Some(2), busy_share: 0.314, ..Default::default() }];
        assert_eq!(
            status(&reply, &recent),
            "daemon   mswitch 0.1.0, process 7, up 1 min 5 s\n\
             config   no file\n\
             workers  1: CPU 2 31.4 % busy\n\
             bridges  1\n\
             ports    1 of 2 up\n\
             \u{20} down   br0 vm1: no client\n\
             received 2,000 packets, 117 KiB\n\
             sent     1,000 packets, 58.6 KiB\n\
             dropped  1,003 packets: 1,000 ring-full, 3 vlan\n"
        );
        let unsaved = |unsaved| status(&proto::Status { unsaved, ..reply.clone() }, &recent);
        let line = "\nunsaved  1 change; see `mswitch config diff`, `mswitch config save`\n";
        assert!(unsaved(1).contains(line), "{}", unsaved(1));
        assert!(unsaved(3).contains("\nunsaved  3 changes; see "), "{}", unsaved(3));
        let faults = proto::ModuleFaults {
            bridge: "br0".into(),
            module: "wasm:/m.wasm".into(),
            count: 2,
            reason: "trap\u{1b}[2J".into(),
            seconds_since_last: 4,
            restarting: false,
        };
        let failed = status(&proto::Status { module_faults: vec![faults], ..reply.clone() }, &recent);
        let line = "\nbridges  1\n  faults wasm:/m.wasm of bridge br0 has failed 2 times, most recently 4 s ago: \
                    trap\\u{1b}[2J\n";
        assert!(failed.contains(line), "{failed}");
    }
}
