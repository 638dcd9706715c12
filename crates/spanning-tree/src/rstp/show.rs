//! Status of a bridge and its ports: for the database, and as text as `rstp/show` of Open vSwitch has it.

use std::fmt::Write;

use super::port::Port;
use super::{Bridge, Role, Times};
use crate::{BridgeId, Millis, PortId};

/// State of a port, as RSTP has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It neither learns nor forwards.
    Discarding,
    /// It learns addresses.
    Learning,
    /// It learns addresses and forwards.
    Forwarding,
}

impl State {
    /// The name that Open vSwitch has for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Discarding => "Discarding",
            Self::Learning => "Learning",
            Self::Forwarding => "Forwarding",
        }
    }
}

impl Role {
    /// The name that Open vSwitch has for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disabled => "Disabled",
            Self::Root => "Root",
            Self::Designated => "Designated",
            Self::Alternate => "Alternate",
            Self::Backup => "Backup",
        }
    }
}

/// Status of a bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// The bridge's identifier.
    pub bridge: BridgeId,
    /// The root's.
    pub root: BridgeId,
    /// Cost of the path to the root.
    pub root_path_cost: u32,
    /// The bridge through which the path leads.
    pub designated_bridge: BridgeId,
    /// The port of that bridge.
    pub designated_port: PortId,
    /// The own port through which the path leads.
    pub root_port: PortId,
}

/// Status of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortStatus {
    /// The port's identifier.
    pub id: PortId,
    /// Its role.
    pub role: Role,
    /// Its state.
    pub state: State,
    /// The designated bridge of its LAN.
    pub designated_bridge: BridgeId,
    /// The port of that bridge.
    pub designated_port: PortId,
    /// Cost of that bridge's path to the root.
    pub designated_path_cost: u32,
    /// When it became a port.
    pub since: Millis,
}

impl Port {
    fn shown_state(&self) -> State {
        match (self.forwarding, self.learning) {
            (true, _) => State::Forwarding,
            (_, true) => State::Learning,
            _ => State::Discarding,
        }
    }
}

impl Bridge {
    /// The bridge's status.
    pub fn status(&self) -> Status {
        Status {
            bridge: self.id,
            root: self.root_priority.root,
            root_path_cost: self.root_priority.cost,
            designated_bridge: self.root_priority.bridge,
            designated_port: self.root_priority.port,
            root_port: self.root_port,
        }
    }

    /// A port's status.
    pub fn port_status(&self, number: u8) -> Option<PortStatus> {
        let port = self.ports.get(&number)?;
        Some(PortStatus {
            id: port.id,
            role: port.role,
            state: port.shown_state(),
            designated_bridge: port.port_priority.bridge,
            designated_port: port.port_priority.port,
            designated_path_cost: port.port_priority.cost,
            since: port.since,
        })
    }

    /// Returns the bridge as text; `name`: the bridge's.
    pub fn show(&self, name: &str) -> String {
        let mut text = format!("---- {name} ----\nRoot ID:\n");
        text += &details(self.root_priority.root, &self.root_times);
        match self.ports.values().find(|port| port.role == Role::Root) {
            None => text += "  This bridge is the root\n",
            Some(port) => {
                // Writing to a string does not fail.
                let _ = writeln!(text, "  root-port       {}", port.settings.name);
                let _ = writeln!(text, "  root-path-cost  {}", self.root_priority.cost);
            }
        }
        text += "\nBridge ID:\n";
        text += &details(self.id, &self.settings.times());
        let _ = writeln!(
            text,
            "\n  {:<11}{:<11}{:<11}{:<9}{:<8}",
            "Interface", "Role", "State", "Cost", "Pri.Nbr"
        );
        text += "  ---------- ---------- ---------- -------- -------\n";
        for (number, port) in &self.ports {
            let (name, role, state) = (&port.settings.name, port.role.name(), port.shown_state().name());
            let (cost, priority) = (port.settings.cost, port.settings.priority);
            let _ = writeln!(text, "  {name:<11.10}{role:<11}{state:<11}{cost:<9}{priority}.{number}");
        }
        text + "\n"
    }
}

/// The lines of a bridge.
fn details(id: BridgeId, times: &Times) -> String {
    format!(
        "  stp-priority    {}\n  stp-system-id   {}\n  stp-hello-time  {}s\n  stp-max-age     {}s\n  \
         stp-fwd-delay   {}s\n",
        id.priority(),
        id.address(),
        times.hello_time,
        times.max_age,
        times.forward_delay,
    )
}
