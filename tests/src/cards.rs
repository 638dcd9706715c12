//! Interfaces that run a bridge's P4 program in XDP: hosts behind veth interfaces, and what `mswitch` shows of the card.

use std::time::Duration;

use crate::{Daemon, Error, Netns, Result, config, until};

/// Time allowed for the program to run at the interfaces.
const LIMIT: Duration = Duration::from_secs(20);

/// Makes an interface of the machine whose other end is `eth0` of a host, with an address.
pub fn connect(machine: &Netns, end: &str, host: &Netns, address: &str) -> Result<()> {
    machine.run(&["ip", "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", host.name()])?;
    machine.run(&["ip", "link", "set", end, "up"])?;
    host.run(&["ip", "addr", "add", &format!("{address}/24"), "dev", "eth0"])?;
    // Router solicitations and the like would pass the worker.
    host.run(&["sysctl", "-q", "-w", "net.ipv6.conf.eth0.disable_ipv6=1"])?;
    host.run(&["ip", "link", "set", "eth0", "up"])?;
    // A veth takes packets from XDP only while its other end collects them, and XDP completes no checksums.
    host.run(&["ethtool", "-K", "eth0", "gro", "on", "tx", "off"])?;
    Ok(())
}

/// A port with this number in P4 for an interface of the machine.
pub fn port(machine: &Netns, interface: &str, number: u32) -> String {
    let more = format!("driver = \"af-xdp\"\np4-port = {number}\n");
    config::netdev(interface, interface, machine.name(), &more)
}

/// A figure of a bridge's card, in `logic show`; `None` if it is not shown.
pub fn figure(daemon: &Daemon, bridge: &str, name: &str) -> Result<Option<String>> {
    let shown = daemon.json(&["logic", "show", bridge])?;
    let tables = shown["tables"].as_array();
    let card = tables.into_iter().flatten().find(|table| table["name"] == "card");
    let rows = card.and_then(|card| card["rows"].as_array()).into_iter().flatten();
    let found = rows.map(|row| &row["cells"]).find(|cells| cells[0] == name);
    Ok(found.and_then(|cells| cells[1].as_str()).map(str::to_owned))
}

/// Waits until a bridge's program runs at these ports.
pub fn until_runs(daemon: &Daemon, bridge: &str, ports: &str) -> Result<()> {
    let wanted = format!("yes, ports: {ports}");
    until("the program at the interfaces", LIMIT, || {
        Ok((figure(daemon, bridge, "runs in XDP")?.as_ref() == Some(&wanted)).then_some(()))
    })
}

/// Packets that workers took in from a port.
pub fn taken(daemon: &Daemon, bridge: &str, port: &str) -> Result<u64> {
    let shown = daemon.json(&["port", "show", bridge, port])?;
    let packets = shown["totals"]["rx"]["packets"].as_u64();
    packets.ok_or_else(|| Error::new(format!("no packets received in {shown}")))
}
