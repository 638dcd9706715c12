//! Elements of procedure (IEEE 802.1D-1998 §8.6), by their names.

use super::{Bridge, HOLD_TIME, MESSAGE_AGE_INCREMENT, Times};
use crate::PortState;
use crate::bpdu::{Bpdu, Message, Ticks};

/// Milliseconds as the whole seconds that timers have, rounded up.
fn seconds(millis: u64) -> u16 {
    u16::try_from(millis.div_ceil(1000)).unwrap_or(u16::MAX)
}

impl Bridge {
    /// §8.6.1 Transmit Configuration BPDU.
    pub(super) fn transmit_config(&mut self, number: u8) {
        let (now, is_root) = (self.now, self.is_root());
        let root_age = self.root_port.and_then(|root| self.ports.get(&root)).and_then(|port| port.age(now));
        let Some(port) = self.ports.get_mut(&number) else { return };
        if port.hold_timer.runs(now) {
            port.configuration_pending = true;
            return;
        }
        let age = if is_root { 0 } else { root_age.unwrap_or(0).saturating_add(MESSAGE_AGE_INCREMENT) };
        if age >= self.times.max_age {
            return;
        }
        let message = Message {
            root: self.designated_root,
            cost: self.root_path_cost,
            bridge: self.id,
            port: port.id,
            message_age: Ticks::of_millis(age),
            max_age: Ticks::of_millis(self.times.max_age),
            hello_time: Ticks::of_millis(self.times.hello_time),
            forward_delay: Ticks::of_millis(self.times.forward_delay),
            topology_change: self.topology_change,
            acknowledgement: std::mem::take(&mut port.topology_change_acknowledge),
        };
        port.configuration_pending = false;
        port.hold_timer.start(now, HOLD_TIME);
        self.out.push((number, Bpdu::Config(message)));
    }

    /// §8.6.2.2: whether a message is to take the place of what is known of a port's LAN.
    pub(super) fn supersedes(&self, number: u8, message: &Message) -> bool {
        let Some(port) = self.ports.get(&number) else { return false };
        let known = (port.designated_root, port.designated_cost, port.designated_bridge);
        match (message.root, message.cost, message.bridge).cmp(&known) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => message.bridge != self.id || message.port <= port.designated_port,
            std::cmp::Ordering::Greater => false,
        }
    }

    /// §8.6.2 Record Configuration Information.
    pub(super) fn record_config_information(&mut self, number: u8, message: &Message) {
        let now = self.now;
        let Some(port) = self.ports.get_mut(&number) else { return };
        port.designated_root = message.root;
        port.designated_cost = message.cost;
        port.designated_bridge = message.bridge;
        port.designated_port = message.port;
        port.message_age = Some((message.message_age.millis(), now));
    }

    /// §8.6.3 Record Configuration Timeout Values.
    pub(super) fn record_config_timeout_values(&mut self, message: &Message) {
        self.times = Times::of(message);
        self.set_topology_change(message.topology_change);
    }

    /// Sets whether the topology changes, and has stations forgotten as long as it does.
    pub(super) fn set_topology_change(&mut self, changes: bool) {
        if changes && !self.topology_change {
            self.flushes = true;
            self.flush_timer.start(self.now, seconds(self.times.forward_delay).max(1));
        } else if !changes {
            self.flush_timer.stop();
        }
        self.topology_change = changes;
    }

    /// Forgets stations again while the topology changes.
    pub(super) fn flush_again(&mut self) {
        self.flushes = true;
        self.flush_timer.start(self.now, seconds(self.times.forward_delay).max(1));
    }

    /// §8.6.4 Configuration BPDU Generation.
    pub(super) fn generate_config(&mut self) {
        for number in self.enabled() {
            if self.ports.get(&number).is_some_and(|port| self.is_designated(port)) {
                self.transmit_config(number);
            }
        }
    }

    /// §8.6.6 Transmit Topology Change Notification BPDU.
    pub(super) fn transmit_tcn(&mut self) {
        self.out.extend(self.root_port.map(|port| (port, Bpdu::Tcn)));
    }

    /// §8.6.7 Configuration Update.
    pub(super) fn update_configuration(&mut self) {
        self.select_root();
        self.select_designated_ports();
    }

    /// §8.6.8 Root Selection.
    fn select_root(&mut self) {
        let candidates = self.ports.iter().filter(|(_, port)| {
            port.state != PortState::Disabled
                && !self.is_designated(port)
                && port.designated_root < self.id
                && port.designated_bridge != self.id
        });
        let best = candidates.min_by_key(|(_, port)| {
            let cost = port.designated_cost.saturating_add(port.settings.cost);
            (port.designated_root, cost, port.designated_bridge, port.designated_port, port.id)
        });
        (self.root_port, self.designated_root, self.root_path_cost) = match best {
            Some((number, port)) => {
                let cost = port.designated_cost.saturating_add(port.settings.cost);
                (Some(*number), port.designated_root, cost)
            }
            None => (None, self.id, 0),
        };
    }

    /// §8.6.9 Designated Port Selection.
    fn select_designated_ports(&mut self) {
        for number in self.enabled() {
            let Some(port) = self.ports.get(&number) else { continue };
            let becomes = self.is_designated(port) || port.designated_root != self.designated_root || {
                let own = (self.root_path_cost, self.id, port.id);
                own < (port.designated_cost, port.designated_bridge, port.designated_port)
            };
            if becomes {
                self.become_designated(number);
            }
        }
    }

    /// §8.6.10 Become Designated Port.
    pub(super) fn become_designated(&mut self, number: u8) {
        let (root, cost, bridge) = (self.designated_root, self.root_path_cost, self.id);
        let Some(port) = self.ports.get_mut(&number) else { return };
        port.designated_root = root;
        port.designated_cost = cost;
        port.designated_bridge = bridge;
        port.designated_port = port.id;
    }

    /// §8.6.11 Port State Selection.
    pub(super) fn select_port_states(&mut self) {
        for number in self.enabled() {
            if self.root_port == Some(number) {
                if let Some(port) = self.ports.get_mut(&number) {
                    (port.configuration_pending, port.topology_change_acknowledge) = (false, false);
                }
                self.make_forwarding(number);
            } else if self.ports.get(&number).is_some_and(|port| self.is_designated(port)) {
                if let Some(port) = self.ports.get_mut(&number) {
                    port.message_age = None;
                }
                self.make_forwarding(number);
            } else {
                if let Some(port) = self.ports.get_mut(&number) {
                    (port.configuration_pending, port.topology_change_acknowledge) = (false, false);
                }
                self.make_blocking(number);
            }
        }
    }

    /// §8.6.12 Make Forwarding.
    fn make_forwarding(&mut self, number: u8) {
        if self.state(number) == PortState::Blocking {
            self.set_state(number, PortState::Listening);
            self.start_forward_delay(number);
        }
    }

    pub(super) fn start_forward_delay(&mut self, number: u8) {
        let (now, delay) = (self.now, seconds(self.times.forward_delay));
        if let Some(port) = self.ports.get_mut(&number) {
            port.forward_delay_timer.start(now, delay);
        }
    }

    /// §8.6.13 Make Blocking.
    fn make_blocking(&mut self, number: u8) {
        let state = self.state(number);
        if state == PortState::Disabled || state == PortState::Blocking {
            return;
        }
        if state.learns() && self.detects_change(number) {
            self.detect_topology_change();
        }
        self.set_state(number, PortState::Blocking);
        if let Some(port) = self.ports.get_mut(&number) {
            port.forward_delay_timer.stop();
        }
    }

    /// Whether changes of a port change the topology (§8.5.5.10).
    pub(super) fn detects_change(&self, number: u8) -> bool {
        self.ports.get(&number).is_some_and(|port| port.settings.detects_change)
    }

    /// §8.6.14 Topology Change Detection.
    pub(super) fn detect_topology_change(&mut self) {
        if self.is_root() {
            self.set_topology_change(true);
            let period = seconds(self.times.max_age.saturating_add(self.times.forward_delay));
            self.topology_change_timer.start(self.now, period);
        } else if !self.topology_change_detected {
            self.transmit_tcn();
            self.tcn_timer.start(self.now, self.settings.hello_time);
        }
        self.flushes = true;
        self.topology_change_detected = true;
    }

    /// §8.6.16 Acknowledge Topology Change.
    pub(super) fn acknowledge_topology_change(&mut self, number: u8) {
        if let Some(port) = self.ports.get_mut(&number) {
            port.topology_change_acknowledge = true;
        }
        self.transmit_config(number);
    }
}
