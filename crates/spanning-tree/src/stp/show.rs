//! Status of a bridge and its ports: for the database, and as text as `stp/show` of Open vSwitch has it.

use std::fmt::Write;

use super::{Bridge, Port};
use crate::{BridgeId, Millis, PortId, PortState};

/// Role of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It leads to the root.
    Root,
    /// It leads its LAN to the root.
    Designated,
    /// Another port does either.
    Alternate,
    /// It takes no part.
    Disabled,
}

impl Role {
    /// The name that Open vSwitch has for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Designated => "designated",
            Self::Alternate => "alternate",
            Self::Disabled => "disabled",
        }
    }
}

/// Returns the name that Open vSwitch has for a state.
pub(super) fn state_name(state: PortState) -> &'static str {
    match state {
        PortState::Disabled => "disabled",
        PortState::Blocking => "blocking",
        PortState::Listening => "listening",
        PortState::Learning => "learning",
        PortState::Forwarding => "forwarding",
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
}

/// Status of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortStatus {
    /// The port's identifier.
    pub id: PortId,
    /// Its state.
    pub state: PortState,
    /// The state's name.
    pub state_name: &'static str,
    /// Its role.
    pub role: Role,
}

impl Bridge {
    fn role(&self, number: u8, port: &Port) -> Role {
        match port.state {
            PortState::Disabled => Role::Disabled,
            _ if self.root_port == Some(number) => Role::Root,
            _ if self.is_designated(port) => Role::Designated,
            _ => Role::Alternate,
        }
    }

    /// The bridge's status.
    pub fn status(&self) -> Status {
        Status { bridge: self.id, root: self.designated_root, root_path_cost: self.root_path_cost }
    }

    /// A port's status.
    pub fn port_status(&self, number: u8) -> Option<PortStatus> {
        let port = self.ports.get(&number)?;
        let (role, state) = (self.role(number, port), port.state);
        Some(PortStatus { id: port.id, state, state_name: state_name(state), role })
    }

    /// Returns the bridge as text; `name`: the bridge's.
    pub fn show(&self, name: &str) -> String {
        let own = self.settings.times();
        let mut text = format!("---- {name} ----\nRoot ID:\n");
        text += &details(
            self.designated_root,
            [self.times.hello_time, self.times.max_age, self.times.forward_delay],
        );
        match self.root_port.and_then(|port| self.ports.get(&port)) {
            None => text += "  This bridge is the root\n",
            Some(port) => {
                // Writing to a string does not fail.
                let _ = writeln!(text, "  root-port       {}", port.settings.name);
                let _ = writeln!(text, "  root-path-cost  {}", self.root_path_cost);
            }
        }
        text += "\nBridge ID:\n";
        text += &details(self.id, [own.hello_time, own.max_age, own.forward_delay]);
        let _ = writeln!(
            text,
            "\n  {:<11}{:<11}{:<11}{:<6}{:<8}",
            "Interface", "Role", "State", "Cost", "Pri.Nbr"
        );
        text += "  ---------- ---------- ---------- ----- -------\n";
        for (number, port) in self.ports.iter().filter(|(_, port)| port.state != PortState::Disabled) {
            let (role, state) = (self.role(*number, port).name(), state_name(port.state));
            let (name, cost) = (&port.settings.name, port.settings.cost);
            let priority = port.settings.priority;
            let _ = writeln!(text, "  {name:<11.10}{role:<11}{state:<11}{cost:<6}{priority}.{number}");
        }
        text + "\n"
    }
}

/// The lines of a bridge; `times`: of hellos, the greatest age, the delay.
fn details(id: BridgeId, times: [Millis; 3]) -> String {
    let [hello, age, delay] = times.map(|millis| millis / 1000);
    format!(
        "  stp-priority  {}\n  stp-system-id   {}\n  stp-hello-time  {hello}s\n  stp-max-age     {age}s\n  \
         stp-fwd-delay   {delay}s\n",
        id.priority(),
        id.address(),
    )
}
