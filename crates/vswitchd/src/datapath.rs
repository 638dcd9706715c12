//! The datapath as Open vSwitch's commands show it: one for all bridges, with numbers of its own for ports.
//!
//! A port's number comes from the digits of its name, counted from 100 on for bridges' own ports, so that tests can
//! foresee it; a port without digits gets the lowest that is free.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use control::desired::Desired;
use openflow::PortNo;
use ports::Spec;
use ports::netdev::Driver;
use unixctl::Commands;

use crate::follow::Numbers;
use crate::numbers::LOCAL;

/// A port of the datapath.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DatapathPort {
    pub(crate) bridge: String,
    pub(crate) name: String,
    /// `None` for patch ports, which are no ports of the datapath.
    pub(crate) number: Option<u32>,
    /// OpenFlow number.
    pub(crate) openflow: Option<i64>,
    pub(crate) kind: String,
    /// The other end of a patch port.
    pub(crate) peer: Option<String>,
    received: u64,
}

impl DatapathPort {
    /// A port with an OpenFlow number that no port of the bridge has.
    pub(crate) fn absent(bridge: &str, openflow: i64) -> Self {
        let (name, kind, bridge) = (String::new(), String::new(), bridge.to_owned());
        Self { bridge, name, number: None, openflow: Some(openflow), kind, peer: None, received: 0 }
    }

    pub(crate) fn is_absent(&self) -> bool {
        self.name.is_empty() && !self.is_nowhere()
    }

    /// No port: where packets come from that no port received.
    pub(crate) fn nowhere(bridge: &str) -> Self {
        Self { openflow: None, ..Self::absent(bridge, 0) }
    }

    /// Its number, as flows have it.
    pub(crate) fn openflow_number(&self) -> PortNo {
        match self.openflow {
            None => PortNo::ANY,
            Some(LOCAL) => PortNo::LOCAL,
            Some(number) => u32::try_from(number).map_or(PortNo::ANY, PortNo),
        }
    }

    pub(crate) fn is_nowhere(&self) -> bool {
        self.name.is_empty() && self.openflow.is_none()
    }
}

/// First number of bridges' own ports.
const OWN: u32 = 100;

/// Returns the number that a name asks for.
fn wish(name: &str) -> Option<u32> {
    let digits: String =
        name.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    let start = if name.starts_with("br") { OWN } else { 0 };
    digits.parse::<u32>().ok()?.checked_add(start).filter(|number| (1..=65_534).contains(number))
}

/// Numbers of the datapath's ports, by bridge and name. A port keeps its own as long as it is there.
pub(crate) type Given = BTreeMap<(String, String), u32>;

/// Gives the ports of a configuration their numbers, in their order, and takes those of ports that have gone.
pub(crate) fn give(given: &mut Given, ports: &[(String, String)]) {
    let present: BTreeSet<_> = ports.iter().collect();
    given.retain(|port, _| present.contains(port));
    let mut taken: BTreeSet<u32> = given.values().copied().collect();
    // Those below are taken.
    let mut lowest = 1;
    for port in ports {
        if given.contains_key(port) {
            continue;
        }
        let wish = wish(&port.1).filter(|number| !taken.contains(number));
        let free = || {
            lowest = (lowest..=65_534).find(|number| !taken.contains(number))?;
            Some(lowest)
        };
        if let Some(number) = wish.or_else(free) {
            taken.insert(number);
            given.insert(port.clone(), number);
        }
    }
}

/// Returns the ports of all bridges.
pub(crate) fn ports(desired: &Desired, numbers: &Numbers) -> Vec<DatapathPort> {
    let bridges = desired.state().bridges();
    let mut ports = Vec::new();
    let mut taken: BTreeSet<u32> = numbers.datapath.values().copied().collect();
    for (bridge, running) in bridges.iter() {
        for (name, port) in &running.ports {
            let is_own = name == bridge;
            let (kind, peer) = match &port.config.spec {
                Spec::Patch(options) => ("patch", Some(options.peer.port.clone())),
                Spec::Dummy(options) if is_own || options.internal => ("dummy-internal", None),
                Spec::Dummy(_) => ("dummy", None),
                Spec::Tap(_) => ("internal", None),
                Spec::Netdev(options) if options.driver == Driver::AfXdp => ("afxdp", None),
                Spec::Netdev(_) => ("system", None),
                other => (other.type_name(), None),
            };
            let key = (bridge.clone(), name.clone());
            // Ports of other owners than the database have what is free.
            let given = numbers.datapath.get(&key).copied();
            let counters = desired.state().switch().counters(port.at).ok();
            let received = counters.map_or(0, |it| it.rx.iter().map(|queue| queue.packets).sum());
            ports.push(DatapathPort {
                bridge: bridge.clone(),
                name: name.clone(),
                number: given.filter(|_| peer.is_none()),
                openflow: numbers.openflow.get(&key).copied(),
                kind: kind.into(),
                peer,
                received,
            });
        }
    }
    for port in ports.iter_mut().filter(|port| port.number.is_none() && port.peer.is_none()) {
        port.number = (1..=65_534).find(|number| taken.insert(*number));
    }
    ports
}

/// Adds the commands that show the datapath.
pub(crate) fn add(
    commands: &mut Commands,
    desired: &Arc<Desired>,
    numbers: &Arc<Mutex<Numbers>>,
    name: &'static str,
) {
    let list = {
        let (desired, numbers) = (desired.clone(), numbers.clone());
        move || ports(&desired, &numbers.lock().unwrap_or_else(PoisonError::into_inner))
    };
    let found = list.clone();
    commands.add("dpif/show", "", 0..=0, move |_| Ok(show(name, &found())));
    let (subject, found) = (desired.clone(), list.clone());
    commands.add("dpctl/del-if", "dp port...", 2..=usize::MAX, move |words| {
        for name in words.iter().skip(1) {
            let all = found();
            let port = all.iter().find(|port| port.name == *name && port.number.is_some());
            let port = port.ok_or_else(|| format!("no port named {name}"))?;
            subject.state().lose_port(&port.bridge, name).map_err(|error| error.to_string())?;
        }
        Ok(String::new())
    });
    let found = list.clone();
    commands.add("dpctl/show", "[dp...]", 0..=usize::MAX, move |_| Ok(show_ports(name, &found())));
    commands.add("dpctl/dump-dps", "", 0..=0, move |_| Ok(name.into()));
    let found = list;
    commands.add("dpif/dump-dps", "", 0..=0, move |_| {
        let bridges: BTreeSet<String> = found().into_iter().map(|port| port.bridge).collect();
        let kind = name.split('@').next().unwrap_or_default();
        Ok(bridges.iter().fold(String::new(), |all, bridge| all + kind + "@" + bridge + "\n"))
    });
}

/// Adds the command of tests that gives a port another number.
pub(crate) fn add_for_tests(
    commands: &mut Commands,
    desired: &Arc<Desired>,
    numbers: &Arc<Mutex<Numbers>>,
    name: &'static str,
) {
    let (desired, numbers) = (desired.clone(), numbers.clone());
    commands.add("dpif-dummy/change-port-number", "dp port new-number", 3..=3, move |words| {
        let [datapath, port, number] = words else { return Err("expected datapath, port and number".into()) };
        if !is_named(name, datapath) {
            return Err(format!("unknown datapath {datapath}"));
        }
        let number: u32 = number.parse().map_err(|_| "port number must be in range 1 to 65534")?;
        let mut numbers = numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let all = ports(&desired, &numbers);
        let port = all.iter().find(|it| it.name == *port && it.number.is_some()).ok_or("unknown port")?;
        if !(1..=65_534).contains(&number) || all.iter().any(|it| it.number == Some(number)) {
            return Err("port number is in use or out of range (1 to 65534)".into());
        }
        numbers.datapath.insert((port.bridge.clone(), port.name.clone()), number);
        Ok(String::new())
    });
}

/// Whether a word names the datapath, with its type or without.
pub(crate) fn is_named(datapath: &str, word: &str) -> bool {
    word == datapath || datapath.split_once('@').is_some_and(|(_, short)| short == word)
}

/// Each packet is handled by the tables; none misses.
fn hits(ports: &[DatapathPort]) -> u64 {
    ports.iter().map(|port| port.received).sum()
}

fn show(datapath: &str, ports: &[DatapathPort]) -> String {
    let mut text = format!("{datapath}: hit:{} missed:0\n", hits(ports));
    let mut last = "";
    let mut ports: Vec<_> = ports.iter().collect();
    ports.sort_by_key(|port| (&port.bridge, &port.name));
    for port in ports {
        if port.bridge != last {
            let _ = writeln!(text, "  {}:", port.bridge);
        }
        last = &port.bridge;
        let openflow = port.openflow.map_or_else(|| "?".to_owned(), |number| number.to_string());
        let number = port.number.map_or_else(|| "none".to_owned(), |number| number.to_string());
        let kind = match &port.peer {
            Some(peer) => format!("patch: peer={peer}"),
            None => port.kind.clone(),
        };
        let _ = writeln!(text, "    {} {openflow}/{number}: ({kind})", port.name);
    }
    text
}

fn show_ports(datapath: &str, ports: &[DatapathPort]) -> String {
    let mut text = format!("{datapath}:\n  lookups: hit:{} missed:0 lost:0\n  flows: 0\n", hits(ports));
    let mut numbered: Vec<_> = ports.iter().filter_map(|port| Some((port.number?, port))).collect();
    numbered.sort_by_key(|(number, _)| *number);
    for (number, port) in numbered {
        let _ = writeln!(text, "  port {number}: {} ({})", port.name, port.kind);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_from_names() {
        assert_eq!(
            ["p1", "eth12x3", "br0", "br7", "p0", "eth"].map(wish),
            [Some(1), Some(12), Some(100), Some(107), None, None]
        );
        assert_eq!(wish("p99999999999"), None);
        let port = |name: &str| ("br0".to_owned(), name.to_owned());
        let mut given = Given::new();
        give(&mut given, &[port("p0")]);
        give(&mut given, &[port("p1"), port("p0"), port("br0")]);
        let numbers = ["p0", "p1", "br0"].map(|name| given.get(&port(name)).copied());
        assert_eq!(numbers, [Some(1), Some(2), Some(100)], "p1 finds its number taken");
        give(&mut given, &[port("p1")]);
        assert_eq!(given, [(port("p1"), 2)].into());
        assert_eq!(
            ["ovs-dummy", "dummy@ovs-dummy", "dummy"].map(|word| is_named("dummy@ovs-dummy", word)),
            [true, true, false]
        );
    }

    #[test]
    fn ports_are_shown_by_bridge() {
        let port = |name: &str, number, openflow, kind: &str, peer: Option<&str>| DatapathPort {
            bridge: "br0".into(),
            name: name.into(),
            number,
            openflow: Some(openflow),
            kind: kind.into(),
            peer: peer.map(Into::into),
            received: 2,
        };
        let ports = [
            port("p1", Some(1), 1, "dummy", None),
            port("br0", Some(100), LOCAL, "dummy-internal", None),
            port("p2", None, 2, "patch", Some("p3")),
        ];
        assert_eq!(
            show("dummy@ovs-dummy", &ports),
            "dummy@ovs-dummy: hit:6 missed:0\n  br0:\n    br0 65534/100: (dummy-internal)\n    p1 1/1: (dummy)\n    \
             p2 2/none: (patch: peer=p3)\n"
        );
        assert!(
            show_ports("dummy@ovs-dummy", &ports)
                .ends_with("  port 1: p1 (dummy)\n  port 100: br0 (dummy-internal)\n")
        );
    }
}
