//! Port Transmit machine (§17.26).

use super::port::Port;
use super::{Bridge, HELLO_TIME, Role};
use crate::Millis;
use crate::bpdu::{self, Bpdu, Message, Rapid};

impl Bridge {
    /// Sends what is due.
    pub(super) fn step_transmit(&mut self, number: u8) {
        let (now, most) = (self.now, self.settings.transmit_hold_count);
        let Some(port) = self.ports.get_mut(&number) else { return };
        if !port.is_settled() || !port.is_enabled() {
            return;
        }
        if !port.hello_when.runs(now) {
            let reports = port.role == Role::Root && port.tc_while.runs(now);
            port.new_info |= port.role == Role::Designated || reports;
            port.hello_when.start(now, HELLO_TIME);
        }
        port.count_down(now);
        if !port.new_info || port.tx_count >= most {
            return;
        }
        if let Some(bpdu) = port.bpdu(now) {
            if port.tx_count == 0 {
                port.tx_since = now;
            }
            port.tx_count += 1;
            port.hello_when.start(now, HELLO_TIME);
            self.out.push((number, bpdu));
        }
        if let Some(port) = self.ports.get_mut(&number) {
            port.new_info = false;
        }
    }
}

impl Port {
    /// Each second, one message less counts.
    fn count_down(&mut self, now: Millis) {
        let seconds = now.saturating_sub(self.tx_since) / 1000;
        self.tx_count = self.tx_count.saturating_sub(seconds);
        self.tx_since = self.tx_since.saturating_add(seconds * 1000);
    }

    /// The message to be sent (`txRstp`, `txConfig`, `txTcn`), if the role has one.
    fn bpdu(&mut self, now: Millis) -> Option<Bpdu> {
        let priority = self.designated_priority;
        let mut message = Message {
            root: priority.root,
            cost: priority.cost,
            bridge: priority.bridge,
            port: priority.port,
            topology_change: self.tc_while.runs(now),
            ..Message::default()
        };
        self.designated_times.write(&mut message);
        if self.send_rstp {
            let role = match self.role {
                Role::Disabled => return None,
                Role::Root => bpdu::Role::Root,
                Role::Designated => bpdu::Role::Designated,
                Role::Alternate | Role::Backup => bpdu::Role::Alternate,
            };
            self.tc_ack = false;
            let Self { proposing, agree, learning, forwarding, .. } = *self;
            let rapid = Rapid { role, proposal: proposing, agreement: agree, learning, forwarding };
            return Some(Bpdu::Rst(message, rapid));
        }
        match self.role {
            Role::Root => Some(Bpdu::Tcn),
            Role::Designated => {
                message.acknowledgement = std::mem::take(&mut self.tc_ack);
                Some(Bpdu::Config(message))
            }
            Role::Disabled | Role::Alternate | Role::Backup => None,
        }
    }
}
