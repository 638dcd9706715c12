//! Procedures (§17.21) and conditions (§17.20) that several machines have.

use super::port::{Migration, Port, Transition};
use super::{Bridge, MIGRATE_TIME, Role};
use crate::Millis;

impl Bridge {
    /// Starts the timers that the standard sets again as long as a state lasts.
    pub(super) fn renew_timers(&mut self) {
        for port in self.ports.values_mut() {
            port.renew_timers(self.now);
        }
    }

    /// `setSyncTree` (§17.21.15)
    pub(super) fn set_sync_tree(&mut self) {
        self.ports.values_mut().for_each(|port| port.sync = true);
    }

    /// `setReRootTree` (§17.21.14)
    pub(super) fn set_re_root_tree(&mut self) {
        self.ports.values_mut().for_each(|port| port.re_root = true);
    }

    /// `setTcPropTree` (§17.21.18)
    pub(super) fn set_tc_prop_tree(&mut self, from: u8) {
        for (_, port) in self.ports.iter_mut().filter(|(number, _)| **number != from) {
            port.tc_prop = true;
        }
    }

    /// `allSynced` (§17.20.1)
    pub(super) fn all_synced(&self) -> bool {
        let is_synced = |port: &Port| {
            port.selected && port.role == port.selected_role && (port.synced || port.role == Role::Root)
        };
        self.ports.values().all(is_synced)
    }

    /// `reRooted` (§17.20.10): no other port was a root port a moment ago.
    pub(super) fn re_rooted(&self, number: u8) -> bool {
        let mut others = self.ports.iter().filter(|(other, _)| **other != number);
        others.all(|(_, port)| !port.rr_while.runs(self.now))
    }

    /// `newTcWhile` (§17.21.7)
    pub(super) fn new_tc_while(&mut self, number: u8) {
        let (now, root) = (self.now, self.root_times);
        let Some(port) = self.ports.get_mut(&number) else { return };
        if port.tc_while.runs(now) {
            return;
        }
        if port.send_rstp {
            port.tc_while.start(now, port.designated_times.hello_time.saturating_add(1));
            port.new_info = true;
        } else {
            port.tc_while.start(now, root.max_age.saturating_add(root.forward_delay));
        }
    }
}

impl Port {
    /// Starts the timers that the standard sets again as long as a state lasts.
    pub(super) fn renew_timers(&mut self, now: Millis) {
        let times = self.designated_times;
        if !self.is_enabled() {
            self.edge_delay_while.start(now, MIGRATE_TIME);
            if self.migration == Migration::Checking {
                self.mdelay_while.start(now, MIGRATE_TIME);
            }
        }
        match self.transition {
            Transition::Disabling | Transition::Disabled => self.fd_while.start(now, times.max_age),
            Transition::Root => self.rr_while.start(now, times.forward_delay),
            Transition::Blocking | Transition::Alternate => {
                self.fd_while.start(now, self.forward_delay());
                if self.role == Role::Backup {
                    self.rb_while.start(now, times.hello_time.saturating_mul(2));
                }
            }
            Transition::Designated => {}
        }
    }
}
