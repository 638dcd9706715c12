//! What neighbours say: machines of migration (§17.24), bridge detection (§17.25) and information (§17.27).

use super::port::{Migration, Port, Source};
use super::vector::{Priority, Times};
use super::{Bridge, MIGRATE_TIME, Role};
use crate::Millis;
use crate::bpdu::{self, Bpdu, Message, Rapid};

/// Result of `rcvInfo` (§17.21.8).
enum Info {
    SuperiorDesignated,
    RepeatedDesignated,
    InferiorDesignated,
    InferiorRootAlternate,
    Other,
}

impl Bridge {
    /// A step of the machines; returns whether something has changed.
    pub(super) fn step_information(&mut self, number: u8) -> bool {
        let (now, is_rapid) = (self.now, self.settings.is_rapid);
        let Some(port) = self.ports.get_mut(&number) else { return false };
        let migrated = port.step_migration(is_rapid, now);
        let detected = port.step_detection(now);
        port.step_information(is_rapid, now) || migrated || detected
    }
}

impl Port {
    /// Port Protocol Migration machine.
    fn step_migration(&mut self, is_rapid: bool, now: Millis) -> bool {
        let before = self.migration;
        match before {
            Migration::Checking if !self.mdelay_while.runs(now) => self.sense(),
            Migration::Selecting if !self.mdelay_while.runs(now) || !self.is_enabled() || self.mcheck => {
                self.sense();
            }
            Migration::Sensing => {
                let is_answered = is_rapid && !self.send_rstp && self.rcvd_rstp;
                if !self.is_enabled() || self.mcheck || is_answered {
                    self.migration = Migration::Checking;
                    (self.mcheck, self.send_rstp) = (false, is_rapid);
                    self.mdelay_while.start(now, MIGRATE_TIME);
                } else if self.send_rstp && self.rcvd_stp {
                    self.migration = Migration::Selecting;
                    self.send_rstp = false;
                    self.mdelay_while.start(now, MIGRATE_TIME);
                }
            }
            Migration::Checking | Migration::Selecting => {}
        }
        self.migration != before
    }

    fn sense(&mut self) {
        self.migration = Migration::Sensing;
        (self.rcvd_rstp, self.rcvd_stp) = (false, false);
    }

    /// Bridge Detection machine: whether the port is at the network's edge.
    fn step_detection(&mut self, now: Millis) -> bool {
        let before = self.oper_edge;
        if !self.is_enabled() {
            self.oper_edge = self.settings.admin_edge;
        } else if self.settings.auto_edge && self.send_rstp && self.proposing {
            self.oper_edge |= !self.edge_delay_while.runs(now);
        }
        self.oper_edge != before
    }

    /// Port Information machine.
    fn step_information(&mut self, is_rapid: bool, now: Millis) -> bool {
        if !self.is_enabled() {
            self.message = None;
            if self.info_is == Source::Disabled {
                return false;
            }
            (self.proposing, self.proposed, self.agree, self.agreed) = (false, false, false, false);
            self.rcvd_info_while.stop();
            self.info_is = Source::Disabled;
            self.reselect();
            return true;
        }
        if self.info_is == Source::Disabled {
            self.age();
            return true;
        }
        if self.selected && self.updt_info {
            self.update();
            return true;
        }
        if self.info_is == Source::Aged || self.updt_info {
            return false;
        }
        if let Some(bpdu) = self.message.take() {
            self.process(&bpdu, is_rapid, now);
            return true;
        }
        if self.info_is == Source::Received && !self.rcvd_info_while.runs(now) {
            self.age();
            return true;
        }
        false
    }

    /// `AGED`
    fn age(&mut self) {
        self.info_is = Source::Aged;
        self.reselect();
    }

    /// `UPDATE`
    fn update(&mut self) {
        (self.proposing, self.proposed) = (false, false);
        let stays = self.info_is == Source::Mine && self.designated_priority <= self.port_priority;
        self.agreed &= stays;
        self.synced &= self.agreed;
        self.port_priority = self.designated_priority;
        self.port_times = self.designated_times;
        self.updt_info = false;
        self.info_is = Source::Mine;
        self.new_info = true;
    }

    /// `RECEIVE` and the states behind it.
    fn process(&mut self, bpdu: &Bpdu, is_rapid: bool, now: Millis) {
        let (message, rapid) = match bpdu {
            Bpdu::Tcn => {
                self.rcvd_tcn = true;
                return;
            }
            Bpdu::Config(message) => (message, None),
            Bpdu::Rst(message, rapid) => (message, Some(rapid)),
        };
        match self.compare(message, rapid) {
            Info::SuperiorDesignated => {
                let priority = Priority::of(message);
                (self.agreed, self.proposing) = (false, false);
                self.record_proposal(rapid);
                self.set_tc_flags(message);
                self.agree &= self.info_is == Source::Received && priority <= self.port_priority;
                self.port_priority = priority;
                self.port_times = Times::of(message);
                self.renew_information(now);
                self.info_is = Source::Received;
                self.reselect();
            }
            Info::RepeatedDesignated => {
                self.record_proposal(rapid);
                self.set_tc_flags(message);
                self.renew_information(now);
            }
            Info::InferiorDesignated => {
                // `recordDispute`: the other port believes to be the designated one, too, and already learns.
                if rapid.is_some_and(|rapid| rapid.learning) {
                    (self.disputed, self.agreed) = (true, false);
                }
            }
            Info::InferiorRootAlternate => {
                // `recordAgreement`
                let agrees = rapid.is_some_and(|rapid| rapid.agreement);
                self.agreed = is_rapid && self.settings.is_point_to_point && agrees;
                self.proposing &= !self.agreed;
                self.set_tc_flags(message);
            }
            Info::Other => {}
        }
    }

    /// `rcvInfo`
    fn compare(&self, message: &Message, rapid: Option<&Rapid>) -> Info {
        let (priority, times) = (Priority::of(message), Times::of(message));
        match rapid.map_or(bpdu::Role::Designated, |rapid| rapid.role) {
            bpdu::Role::Designated => {
                let is_same = priority == self.port_priority;
                if priority.is_superior(&self.port_priority) || is_same && times != self.port_times {
                    Info::SuperiorDesignated
                } else if is_same && self.info_is == Source::Received {
                    Info::RepeatedDesignated
                } else if is_same {
                    Info::Other
                } else {
                    Info::InferiorDesignated
                }
            }
            bpdu::Role::Root | bpdu::Role::Alternate if priority >= self.port_priority => {
                Info::InferiorRootAlternate
            }
            _ => Info::Other,
        }
    }

    /// `recordProposal`
    fn record_proposal(&mut self, rapid: Option<&Rapid>) {
        self.proposed |= rapid.is_some_and(|rapid| rapid.proposal);
    }

    /// `setTcFlags`
    fn set_tc_flags(&mut self, message: &Message) {
        self.rcvd_tc |= message.topology_change;
        self.rcvd_tc_ack |= message.acknowledgement;
    }

    /// `updtRcvdInfoWhile`
    fn renew_information(&mut self, now: Millis) {
        let Times { message_age, max_age, hello_time, .. } = self.port_times;
        match message_age.saturating_add(1) <= max_age {
            true => self.rcvd_info_while.start(now, hello_time.saturating_mul(3)),
            false => self.rcvd_info_while.stop(),
        }
    }

    /// Whether the role leads packets somewhere.
    pub(super) fn is_active(&self) -> bool {
        matches!(self.role, Role::Root | Role::Designated)
    }
}
