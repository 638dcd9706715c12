//! Operation of the protocol (IEEE 802.1D-1998 §8.7) and management (§8.8): what happens on messages, when timers
//! expire, and when the configuration or a link changes.

use std::collections::BTreeMap;

use packet::MacAddr;

use super::{Bridge, Port, PortSettings, Settings};
use crate::bpdu::{Bpdu, Fault, Message};
use crate::{BridgeId, Millis, Outcome, PortId, PortState};

impl Bridge {
    /// Follows the settings of the bridge and of its ports, by their numbers.
    pub fn configure(&mut self, settings: Settings, ports: BTreeMap<u8, PortSettings>, now: Millis) {
        self.now = now;
        let gone = self.ports.keys().filter(|number| !ports.contains_key(number));
        for number in gone.copied().collect::<Vec<_>>() {
            self.disable(number);
            self.ports.remove(&number);
        }
        self.settings = settings;
        self.set_id(BridgeId::new(self.settings.priority, self.settings.address));
        if self.is_root() {
            self.times = self.settings.times();
        }
        for (number, wanted) in ports {
            match self.ports.get(&number).map(|port| port.settings.clone()) {
                None => _ = self.ports.insert(number, Port::new(wanted, number)),
                Some(present) => {
                    if let Some(port) = self.ports.get_mut(&number) {
                        port.settings = wanted.clone();
                    }
                    if present.priority != wanted.priority {
                        self.set_port_id(number, PortId::new(wanted.priority, number));
                    }
                    if present.cost != wanted.cost {
                        self.update_configuration();
                        self.select_port_states();
                    }
                }
            }
        }
    }

    /// §8.8.4 Set Bridge Priority.
    fn set_id(&mut self, id: BridgeId) {
        if id == self.id {
            return;
        }
        let was_root = self.is_root();
        let designated = self.ports.iter().filter(|(_, port)| self.is_designated(port));
        for number in designated.map(|(number, _)| *number).collect::<Vec<_>>() {
            if let Some(port) = self.ports.get_mut(&number) {
                port.designated_bridge = id;
            }
        }
        self.id = id;
        self.settle(was_root);
    }

    /// §8.8.5 Set Port Priority.
    fn set_port_id(&mut self, number: u8, id: PortId) {
        let own = self.id;
        let Some(is_designated) = self.ports.get(&number).map(|port| self.is_designated(port)) else {
            return;
        };
        let Some(port) = self.ports.get_mut(&number) else { return };
        if is_designated {
            port.designated_port = id;
        }
        port.id = id;
        if port.designated_bridge == own && port.id < port.designated_port {
            self.become_designated(number);
        }
        self.update_configuration();
        self.select_port_states();
    }

    /// Selects the root and the states of ports anew. `was_root`: whether the bridge was the root before.
    fn settle(&mut self, was_root: bool) {
        self.update_configuration();
        self.select_port_states();
        if self.is_root() && !was_root {
            self.become_root();
        }
    }

    /// What a bridge does that becomes the root (§8.7.4).
    fn become_root(&mut self) {
        self.times = self.settings.times();
        self.detect_topology_change();
        self.tcn_timer.stop();
        self.generate_config();
        self.start_hello_timer();
    }

    /// Sets whether a port has a link, and the address that it sends from.
    pub fn set_link(&mut self, number: u8, is_up: bool, address: MacAddr, now: Millis) {
        self.now = now;
        let Some(port) = self.ports.get_mut(&number) else { return };
        port.address = address;
        match (port.state == PortState::Disabled, is_up) {
            (true, true) => self.enable(number),
            (false, false) => self.disable(number),
            _ => {}
        }
    }

    /// §8.8.2 Enable Port.
    fn enable(&mut self, number: u8) {
        self.become_designated(number);
        self.set_state(number, PortState::Blocking);
        if let Some(port) = self.ports.get_mut(&number) {
            port.topology_change_acknowledge = false;
            port.configuration_pending = false;
            port.message_age = None;
            port.forward_delay_timer.stop();
            port.hold_timer.stop();
        }
        self.select_port_states();
    }

    /// §8.8.3 Disable Port.
    fn disable(&mut self, number: u8) {
        let (was_root, state) = (self.is_root(), self.state(number));
        if state == PortState::Disabled {
            return;
        }
        self.become_designated(number);
        self.set_state(number, PortState::Disabled);
        if let Some(port) = self.ports.get_mut(&number) {
            port.topology_change_acknowledge = false;
            port.configuration_pending = false;
            port.message_age = None;
            port.forward_delay_timer.stop();
        }
        self.settle(was_root);
        if state.forwards() && self.detects_change(number) {
            self.detect_topology_change();
        }
    }

    /// Acts as if the topology had changed.
    pub fn change_topology(&mut self, now: Millis) {
        self.now = now;
        self.detect_topology_change();
    }

    /// Processes a frame that a port has received.
    ///
    /// # Errors
    /// It is ignored: it is faulty.
    pub fn receive(&mut self, number: u8, frame: &[u8], now: Millis) -> Result<(), Fault> {
        self.now = now;
        let Some(port) = self.ports.get_mut(&number) else { return Ok(()) };
        if port.state == PortState::Disabled {
            return Ok(());
        }
        port.counters.received += 1;
        match Bpdu::of_frame(frame).inspect_err(|_| port.counters.errors += 1)? {
            Bpdu::Config(message) => self.received_config(number, &message),
            Bpdu::Tcn => self.received_tcn(number),
            // Its sender notices that it is not understood (IEEE 802.1D-2004 §17.4).
            Bpdu::Rst(..) => {}
        }
        Ok(())
    }

    /// §8.7.1 Received Configuration BPDU.
    fn received_config(&mut self, number: u8, message: &Message) {
        // What has come back from the port's own LAN, and what is too old (§9.3.3).
        let is_own =
            self.ports.get(&number).is_some_and(|it| (message.bridge, message.port) == (self.id, it.id));
        if is_own || message.message_age >= message.max_age {
            return;
        }
        let was_root = self.is_root();
        if self.supersedes(number, message) {
            self.record_config_information(number, message);
            self.update_configuration();
            self.select_port_states();
            if !self.is_root() && was_root {
                self.hello_timer.stop();
                if self.topology_change_detected {
                    self.topology_change_timer.stop();
                    self.transmit_tcn();
                    self.tcn_timer.start(self.now, self.settings.hello_time);
                }
            }
            if self.root_port == Some(number) {
                self.record_config_timeout_values(message);
                self.generate_config();
                if message.acknowledgement {
                    // §8.6.15 Topology Change Acknowledged.
                    self.topology_change_detected = false;
                    self.tcn_timer.stop();
                }
            }
        } else if self.ports.get(&number).is_some_and(|port| self.is_designated(port)) {
            // §8.6.5 Reply.
            self.transmit_config(number);
        }
    }

    /// §8.7.2 Received Topology Change Notification BPDU.
    fn received_tcn(&mut self, number: u8) {
        if self.ports.get(&number).is_some_and(|port| self.is_designated(port)) {
            self.detect_topology_change();
            self.acknowledge_topology_change(number);
        }
    }

    /// Does what is due.
    pub fn run(&mut self, now: Millis) -> Outcome {
        self.now = now;
        if self.hello_timer.expires(now) {
            // §8.7.3.
            self.generate_config();
            self.start_hello_timer();
        }
        if self.tcn_timer.expires(now) {
            // §8.7.6.
            self.transmit_tcn();
            self.tcn_timer.start(now, self.settings.hello_time);
        }
        if self.topology_change_timer.expires(now) {
            // §8.7.7.
            self.topology_change_detected = false;
            self.set_topology_change(false);
        }
        if self.flush_timer.expires(now) {
            self.flush_again();
        }
        for number in self.enabled() {
            let age = self.ports.get(&number).and_then(|port| port.age(now));
            if age.is_some_and(|age| age >= self.times.max_age) {
                self.message_age_expired(number);
            }
        }
        for number in self.enabled() {
            let expires = |port: &mut Port| port.forward_delay_timer.expires(now);
            if self.ports.get_mut(&number).is_some_and(expires) {
                self.forward_delay_expired(number);
            }
            let is_due = |port: &mut Port| port.hold_timer.expires(now) && port.configuration_pending;
            if self.ports.get_mut(&number).is_some_and(is_due) {
                // §8.7.8.
                self.transmit_config(number);
            }
        }
        self.outcome()
    }

    /// §8.7.4 Message Age Timer Expiry.
    fn message_age_expired(&mut self, number: u8) {
        let was_root = self.is_root();
        self.become_designated(number);
        if let Some(port) = self.ports.get_mut(&number) {
            port.message_age = None;
        }
        self.settle(was_root);
    }

    /// §8.7.5 Forward Delay Timer Expiry.
    fn forward_delay_expired(&mut self, number: u8) {
        match self.state(number) {
            PortState::Listening => {
                self.set_state(number, PortState::Learning);
                self.start_forward_delay(number);
            }
            PortState::Learning => {
                self.set_state(number, PortState::Forwarding);
                let is_designated_somewhere = self
                    .ports
                    .values()
                    .any(|port| port.state != PortState::Disabled && port.designated_bridge == self.id);
                if is_designated_somewhere && self.detects_change(number) {
                    self.detect_topology_change();
                }
            }
            PortState::Disabled | PortState::Blocking | PortState::Forwarding => {}
        }
    }
}
