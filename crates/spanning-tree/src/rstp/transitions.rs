//! Port Role Transitions machine (§17.29) and Port State Transition machine (§17.30).

use super::port::{Port, Transition};
use super::{Bridge, Role};
use crate::Millis;

impl Bridge {
    /// A step of the machines; returns whether something has changed.
    pub(super) fn step_role(&mut self, number: u8) -> bool {
        let Some(port) = self.ports.get_mut(&number) else { return false };
        let mut any = port.step_state();
        if !port.is_settled() {
            return any;
        }
        if port.role != port.selected_role {
            port.enter_role(self.now);
            return true;
        }
        any |= match port.transition {
            Transition::Disabling if !port.learning && !port.forwarding => {
                port.enter_disabled(self.now);
                true
            }
            Transition::Blocking if !port.learning && !port.forwarding => {
                port.enter_alternate(self.now);
                true
            }
            Transition::Disabling | Transition::Blocking => false,
            Transition::Disabled => {
                let wants = port.sync || port.re_root || !port.synced;
                if wants {
                    port.enter_disabled(self.now);
                }
                wants
            }
            Transition::Root => self.step_root(number),
            Transition::Designated => self.step_designated(number),
            Transition::Alternate => self.step_alternate(number),
        };
        any
    }

    /// Handshake of root and alternate ports with their designated bridge.
    fn step_agreement(&mut self, number: u8) -> bool {
        let all_synced = self.all_synced();
        let Some(port) = self.ports.get_mut(&number) else { return false };
        if port.proposed && !port.agree {
            // `ROOT_PROPOSED`, `ALTERNATE_PROPOSED`
            port.proposed = false;
            self.set_sync_tree();
            return true;
        }
        if all_synced && !port.agree || port.proposed && port.agree {
            // `ROOT_AGREED`, `ALTERNATE_AGREED`
            port.proposed = false;
            port.sync &= port.role != Role::Root;
            port.agree = true;
            port.new_info = true;
            return true;
        }
        false
    }

    /// Root ports (figure 17-21).
    fn step_root(&mut self, number: u8) -> bool {
        if self.step_agreement(number) {
            return true;
        }
        let (now, is_rapid, re_rooted) = (self.now, self.settings.is_rapid, self.re_rooted(number));
        let Some(port) = self.ports.get_mut(&number) else { return false };
        if port.agreed && !port.synced || port.sync && port.synced {
            // `ROOT_SYNCED`
            (port.synced, port.sync) = (true, false);
            return true;
        }
        if !port.forward && !port.re_root {
            // `REROOT`
            self.set_re_root_tree();
            return true;
        }
        if port.re_root && port.forward {
            // `REROOTED`
            port.re_root = false;
            return true;
        }
        let may = !port.fd_while.runs(now) || re_rooted && !port.rb_while.runs(now) && is_rapid;
        if may && !port.learn {
            // `ROOT_LEARN`
            port.learn = true;
            port.fd_while.start(now, port.forward_delay());
            return true;
        }
        if may && !port.forward {
            // `ROOT_FORWARD`
            port.forward = true;
            port.fd_while.stop();
            return true;
        }
        false
    }

    /// Designated ports (figure 17-22).
    fn step_designated(&mut self, number: u8) -> bool {
        let now = self.now;
        let Some(port) = self.ports.get_mut(&number) else { return false };
        if !port.forward && !port.agreed && !port.proposing && !port.oper_edge {
            // `DESIGNATED_PROPOSE`
            port.proposing = true;
            port.edge_delay_while.start(now, port.edge_delay());
            port.new_info = true;
            return true;
        }
        let is_still = !port.learning && !port.forwarding;
        if (is_still || port.agreed || port.oper_edge) && !port.synced || port.sync && port.synced {
            // `DESIGNATED_SYNCED`
            port.rr_while.stop();
            (port.synced, port.sync) = (true, false);
            return true;
        }
        let was_root = port.rr_while.runs(now);
        if !was_root && port.re_root {
            // `DESIGNATED_RETIRED`
            port.re_root = false;
            return true;
        }
        let must_stop = port.sync && !port.synced || port.re_root && was_root || port.disputed;
        if must_stop && !port.oper_edge && (port.learn || port.forward) {
            // `DESIGNATED_DISCARD`
            (port.learn, port.forward, port.disputed) = (false, false, false);
            port.fd_while.start(now, port.forward_delay());
            return true;
        }
        let may = (!port.fd_while.runs(now) || port.agreed || port.oper_edge)
            && (!was_root || !port.re_root)
            && !port.sync;
        if may && !port.learn {
            // `DESIGNATED_LEARN`
            port.learn = true;
            port.fd_while.start(now, port.forward_delay());
            return true;
        }
        if may && !port.forward {
            // `DESIGNATED_FORWARD`
            port.forward = true;
            port.fd_while.stop();
            port.agreed = port.send_rstp;
            return true;
        }
        false
    }

    /// Alternate and backup ports (figure 17-20).
    fn step_alternate(&mut self, number: u8) -> bool {
        if self.step_agreement(number) {
            return true;
        }
        let Some(port) = self.ports.get_mut(&number) else { return false };
        let wants = port.sync || port.re_root || !port.synced;
        if wants {
            port.enter_alternate(self.now);
        }
        wants
    }
}

impl Port {
    /// Takes the role that was selected. Timers of the former state run from now on.
    fn enter_role(&mut self, now: Millis) {
        self.role = self.selected_role;
        self.transition = match self.role {
            Role::Disabled => Transition::Disabling,
            Role::Root => Transition::Root,
            Role::Designated => Transition::Designated,
            Role::Alternate | Role::Backup => Transition::Blocking,
        };
        if matches!(self.transition, Transition::Disabling | Transition::Blocking) {
            (self.learn, self.forward) = (false, false);
        }
        self.renew_timers(now);
    }

    /// `DISABLED_PORT`
    fn enter_disabled(&mut self, now: Millis) {
        self.transition = Transition::Disabled;
        self.rr_while.stop();
        self.renew_timers(now);
        (self.synced, self.sync, self.re_root) = (true, false, false);
    }

    /// `ALTERNATE_PORT`
    fn enter_alternate(&mut self, now: Millis) {
        self.transition = Transition::Alternate;
        self.rr_while.stop();
        self.renew_timers(now);
        (self.synced, self.sync, self.re_root) = (true, false, false);
    }

    /// Port State Transition machine.
    fn step_state(&mut self) -> bool {
        let before = (self.learning, self.forwarding);
        self.learning = self.learn;
        self.forwarding = self.learn && self.forward;
        (self.learning, self.forwarding) != before
    }
}
