//! Topology Change machine (§17.31).

use super::port::{Change, Port};
use super::{Bridge, Role};

impl Bridge {
    /// A step of the machine; returns whether something has changed.
    pub(super) fn step_topology(&mut self, number: u8) -> bool {
        let Some(port) = self.ports.get_mut(&number) else { return false };
        match port.change {
            Change::Inactive if port.learn => {
                port.change = Change::Learning;
                port.clear_changes();
            }
            Change::Inactive => {
                // Nothing that is received matters, so that no flag is left for later.
                return port.clear_changes();
            }
            Change::Learning if port.is_active() && port.forward && !port.oper_edge => {
                // `DETECTED`
                port.change = Change::Active;
                port.new_info = true;
                self.new_tc_while(number);
                self.set_tc_prop_tree(number);
            }
            Change::Learning if !port.is_active() && !port.learn && !port.learning => {
                port.change = Change::Inactive;
                port.tc_while.stop();
                port.tc_ack = false;
                self.flush.insert(number);
            }
            Change::Learning => return port.clear_changes(),
            Change::Active if !port.is_active() || port.oper_edge => {
                port.change = Change::Learning;
                port.clear_changes();
            }
            Change::Active if port.rcvd_tcn || port.rcvd_tc => {
                // `NOTIFIED_TCN`, `NOTIFIED_TC`
                let is_tcn = port.rcvd_tcn;
                (port.rcvd_tcn, port.rcvd_tc) = (false, false);
                port.tc_ack |= port.role == Role::Designated;
                if is_tcn {
                    self.new_tc_while(number);
                }
                self.set_tc_prop_tree(number);
            }
            Change::Active if port.tc_prop => {
                // `PROPAGATING`
                port.tc_prop = false;
                self.new_tc_while(number);
                self.flush.insert(number);
            }
            Change::Active if port.rcvd_tc_ack => {
                // `ACKNOWLEDGED`
                port.tc_while.stop();
                port.rcvd_tc_ack = false;
            }
            Change::Active => return false,
        }
        true
    }

    /// Has a port that forwards detect a change once more.
    pub(super) fn detect_again(&mut self, number: u8) {
        if let Some(port) = self.ports.get_mut(&number).filter(|port| port.change == Change::Active) {
            port.change = Change::Learning;
        }
    }
}

impl Port {
    /// Clears what was received or is to be passed on; returns whether there was something.
    fn clear_changes(&mut self) -> bool {
        let any = self.rcvd_tc || self.rcvd_tcn || self.rcvd_tc_ack || self.tc_prop;
        (self.rcvd_tc, self.rcvd_tcn, self.rcvd_tc_ack, self.tc_prop) = (false, false, false, false);
        any
    }
}
