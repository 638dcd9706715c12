//! Interfaces of a scenario: veth pairs, the switch's ends in one namespace and the clients' in another.

use std::process::Command;

use crate::error::Result;
use crate::generator::client_interface;
use crate::lab::{Lab, Namespace, output};
use crate::scenarios::{Attachment, Topology};

/// MTU of the pairs: for frames of 1,518 bytes without frame check sequence, and within a buffer of AF_XDP.
const MTU: &str = "1600";

/// Namespaces with the pairs. Dropping it removes them.
#[derive(Debug)]
pub struct Network {
    /// The switch's namespace.
    pub switch: Namespace,
    /// The clients' namespace.
    pub clients: Namespace,
}

impl Network {
    /// Makes a pair for each port that needs one; `None` if none does.
    pub fn of(lab: &Lab, topology: &Topology) -> Result<Option<Network>> {
        if !topology.has(Attachment::Veth) {
            return Ok(None);
        }
        let network = Network { switch: lab.namespace("switch")?, clients: lab.namespace("clients")? };
        for port in
            (0..topology.ports.len()).filter(|port| topology.ports.get(*port) == Some(&Attachment::Veth))
        {
            let (ours, theirs) = (format!("v{port}"), client_interface(port));
            let (switch, clients) = (network.switch.name(), network.clients.name());
            // As many as the clients' ports have.
            let queues = topology.queues().to_string();
            let queues = ["numrxqueues", &queues, "numtxqueues", &queues];
            let mut add = Command::new("ip");
            add.args(["link", "add", &ours, "netns", switch, "mtu", MTU]).args(queues);
            add.args(["type", "veth", "peer", "name", &theirs, "netns", clients, "mtu", MTU]).args(queues);
            output(&mut add)?;
            for (namespace, interface) in [(switch, &ours), (clients, &theirs)] {
                output(Command::new("ip").args(["-n", namespace, "link", "set", interface, "up"]))?;
            }
        }
        Ok(Some(network))
    }
}
