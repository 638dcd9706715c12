//! The control side of `three-tuple`: parameters, counters, tables and commands.

use super::ledger::Client;
use super::office::Office;
use super::request::Request;
use super::statistics::Refused;
use super::{INFO, ThreeTuple};
use crate::{CommandInfo, Counter, Logic, LogicError, Table};

const ENDPOINTS: &str = "PORT PROTOCOL ADDRESS LOCAL-PORTS";

impl Logic for ThreeTuple {
    fn name(&self) -> &str {
        INFO.name
    }

    fn params(&self) -> Vec<(String, String)> {
        self.values.to_text()
    }

    fn named_ports(&self) -> Vec<String> {
        vec![self.terms.host.clone(), self.terms.uplink.clone()]
    }

    fn set_bridge(&self, bridge: &str) {
        // Only the first name counts: a logic serves one bridge.
        let _ = self.office.set(Office::of(bridge));
    }

    fn counters(&self) -> Vec<Counter> {
        let counter = |why: Refused| Counter {
            name: why.name().into(),
            help: why.help().into(),
            value: self.statistics.total(why),
        };
        Refused::ALL.into_iter().map(counter).collect()
    }

    fn tables(&self) -> Vec<Table> {
        vec![self.reservations(), self.stacks()]
    }

    fn commands(&self) -> Vec<CommandInfo> {
        let command = |name: &str, usage: &str, help: &str| CommandInfo {
            name: name.into(),
            usage: usage.into(),
            help: help.into(),
        };
        vec![
            command(
                "reserve",
                ENDPOINTS,
                "reserves endpoints for a port until its client goes, such as: stack1 tcp 192.0.2.1 80-90",
            ),
            command("release", ENDPOINTS, "ends a reservation, whoever made it"),
            command("mac", "", "prints the host's MAC address, which stacks use too"),
        ]
    }

    fn call(&self, command: &[String]) -> Result<String, LogicError> {
        let name = command.first().map_or("", String::as_str);
        if !self.commands().iter().any(|info| info.name == name) {
            return Err(LogicError::unknown_command(self.name(), command, &self.commands()));
        }
        let failed = |message: String| LogicError::Command { command: name.into(), message };
        let request =
            Request::parse(command.join(" ").as_bytes()).map_err(|error| failed(error.to_string()))?;
        let operator = Client::operator();
        let done = match request {
            Request::Reserve { port, endpoints } => self.ledger().reserve(&operator, &port, endpoints),
            Request::Release { port, endpoints } => self.ledger().release(&operator, &port, endpoints),
            Request::Mac => {
                let unknown = || failed("it is not known yet: the host's port has sent nothing".into());
                return self.ledger().mac().map(|mac| mac.to_string()).ok_or_else(unknown);
            }
        };
        done.map(|()| String::new()).map_err(|error| failed(error.to_string()))
    }
}

impl ThreeTuple {
    fn reservations(&self) -> Table {
        let row = |entry: super::ledger::Entry| {
            let endpoints = entry.endpoints;
            let held = if entry.is_held { "yes" } else { "no: the kernel lacks the protocol" };
            vec![
                entry.port,
                endpoints.protocol.name().into(),
                endpoints.address.to_string(),
                endpoints.ports.to_string(),
                entry.client,
                held.into(),
            ]
        };
        Table {
            name: "reservations".into(),
            columns: ["port", "protocol", "address", "ports", "client", "held"].map(String::from).into(),
            rows: self.ledger().entries().into_iter().map(row).collect(),
            capacity: super::ledger::MAX_RESERVATIONS as u64,
        }
    }

    /// Ports that are stacks, with the packets that they may not send.
    fn stacks(&self) -> Table {
        let reserved = self.ledger().ports_reserved();
        let ports = self.ledger().ports();
        let is_stack = |name: &String| *name != self.terms.host && *name != self.terms.uplink;
        let row = |(name, at): (&String, &fabric::PortIndex)| {
            let count = reserved.get(name).copied().unwrap_or_default();
            let refused = self.statistics.of(*at).into_iter().map(|count| count.to_string());
            [name.clone(), count.to_string()].into_iter().chain(refused).collect()
        };
        let refused = Refused::ALL.map(|why| why.name().to_owned());
        Table {
            name: "stacks".into(),
            columns: ["port", "reserved"].map(String::from).into_iter().chain(refused).collect(),
            rows: ports.iter().filter(|(name, _)| is_stack(name)).map(row).collect(),
            capacity: 0,
        }
    }
}
