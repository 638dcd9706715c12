//! Variables of a port (§17.19) and its timers (§17.17).

use packet::MacAddr;

use super::vector::{Priority, Times};
use super::{MIGRATE_TIME, PortSettings, Role};
use crate::bpdu::Bpdu;
use crate::timer::Timer;
use crate::{BridgeId, Counters, Millis, PortId, PortState};

/// Where the information about a port's LAN comes from (`infoIs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Source {
    #[default]
    Disabled,
    /// Nobody: it was received, and has expired.
    Aged,
    /// The bridge itself.
    Mine,
    Received,
}

/// State of the Port Protocol Migration machine (§17.24).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Migration {
    Checking,
    Selecting,
    Sensing,
}

/// State of the Port Role Transitions machine (§17.29), as far as it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transition {
    /// `DISABLE_PORT`
    Disabling,
    /// `DISABLED_PORT`
    Disabled,
    /// `ROOT_PORT`
    Root,
    /// `DESIGNATED_PORT`
    Designated,
    /// `BLOCK_PORT`
    Blocking,
    /// `ALTERNATE_PORT`
    Alternate,
}

/// State of the Topology Change machine (§17.31), as far as it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Inactive,
    Learning,
    Active,
}

/// A port.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) settings: PortSettings,
    pub(super) address: MacAddr,
    pub(super) has_link: bool,
    pub(super) counters: Counters,
    /// When it became a port.
    pub(super) since: Millis,
    pub(super) id: PortId,

    pub(super) role: Role,
    pub(super) selected_role: Role,
    pub(super) info_is: Source,
    pub(super) port_priority: Priority,
    pub(super) port_times: Times,
    pub(super) designated_priority: Priority,
    pub(super) designated_times: Times,
    /// The message that is to be processed (`rcvdMsg`).
    pub(super) message: Option<Bpdu>,

    pub(super) agree: bool,
    pub(super) agreed: bool,
    pub(super) disputed: bool,
    pub(super) forward: bool,
    pub(super) forwarding: bool,
    pub(super) learn: bool,
    pub(super) learning: bool,
    pub(super) mcheck: bool,
    pub(super) new_info: bool,
    pub(super) oper_edge: bool,
    pub(super) proposed: bool,
    pub(super) proposing: bool,
    pub(super) rcvd_rstp: bool,
    pub(super) rcvd_stp: bool,
    pub(super) rcvd_tc: bool,
    pub(super) rcvd_tc_ack: bool,
    pub(super) rcvd_tcn: bool,
    pub(super) re_root: bool,
    pub(super) reselect: bool,
    pub(super) selected: bool,
    pub(super) send_rstp: bool,
    pub(super) sync: bool,
    pub(super) synced: bool,
    pub(super) tc_ack: bool,
    pub(super) tc_prop: bool,
    pub(super) updt_info: bool,

    pub(super) migration: Migration,
    pub(super) transition: Transition,
    pub(super) change: Change,

    pub(super) edge_delay_while: Timer,
    pub(super) fd_while: Timer,
    pub(super) hello_when: Timer,
    pub(super) mdelay_while: Timer,
    pub(super) rb_while: Timer,
    pub(super) rcvd_info_while: Timer,
    pub(super) rr_while: Timer,
    pub(super) tc_while: Timer,
    /// Messages that count for the limit, and when they last became one fewer (`txCount`).
    pub(super) tx_count: u64,
    pub(super) tx_since: Millis,
}

impl Port {
    /// Makes a port whose machines begin.
    pub(super) fn new(settings: PortSettings, number: u8, is_rapid: bool, now: Millis) -> Self {
        let id = PortId::new(settings.priority, number);
        let oper_edge = settings.admin_edge;
        let timer = Timer::default();
        Self {
            settings,
            address: MacAddr::ZERO,
            has_link: false,
            counters: Counters::default(),
            since: now,
            id,
            role: Role::Disabled,
            selected_role: Role::Disabled,
            info_is: Source::Disabled,
            port_priority: Priority::default(),
            port_times: Times::default(),
            designated_priority: Priority::default(),
            designated_times: Times::default(),
            message: None,
            agree: false,
            agreed: false,
            disputed: false,
            forward: false,
            forwarding: false,
            learn: false,
            learning: false,
            mcheck: false,
            new_info: true,
            oper_edge,
            proposed: false,
            proposing: false,
            rcvd_rstp: false,
            rcvd_stp: false,
            rcvd_tc: false,
            rcvd_tc_ack: false,
            rcvd_tcn: false,
            re_root: true,
            reselect: true,
            selected: false,
            send_rstp: is_rapid,
            sync: true,
            synced: false,
            tc_ack: false,
            tc_prop: false,
            updt_info: false,
            migration: Migration::Checking,
            transition: Transition::Disabling,
            change: Change::Inactive,
            edge_delay_while: timer,
            fd_while: timer,
            hello_when: timer,
            mdelay_while: timer,
            rb_while: timer,
            rcvd_info_while: timer,
            rr_while: timer,
            tc_while: timer,
            tx_count: 0,
            tx_since: 0,
        }
    }

    /// The port with machines that begin anew.
    pub(super) fn begin(&self, is_rapid: bool, now: Millis) -> Self {
        let [_, number] = self.id.0.to_be_bytes();
        Self {
            address: self.address,
            has_link: self.has_link,
            counters: self.counters,
            since: self.since,
            // Timers begin with them.
            designated_times: self.designated_times,
            ..Self::new(self.settings.clone(), number, is_rapid, now)
        }
    }

    /// Follows the settings.
    pub(super) fn configure(&mut self, wanted: PortSettings, number: u8, is_rapid: bool) {
        let id = PortId::new(wanted.priority, number);
        if id != self.id || wanted.cost != self.settings.cost {
            self.id = id;
            self.reselect();
        }
        // §17.19.13: set when the operator asks for it.
        self.mcheck |= wanted.mcheck && !self.settings.mcheck && is_rapid;
        if wanted.admin_edge != self.settings.admin_edge {
            self.oper_edge = wanted.admin_edge;
        }
        self.settings = wanted;
    }

    /// Has its role be selected anew.
    pub(super) fn reselect(&mut self) {
        self.reselect = true;
        self.selected = false;
    }

    /// `portEnabled`
    pub(super) fn is_enabled(&self) -> bool {
        self.has_link && self.settings.is_on
    }

    /// `EdgeDelay` (§17.20.4), seconds.
    pub(super) fn edge_delay(&self) -> u16 {
        if self.settings.is_point_to_point { MIGRATE_TIME } else { self.designated_times.max_age }
    }

    /// `forwardDelay` (§17.20.5), seconds.
    pub(super) fn forward_delay(&self) -> u16 {
        if self.send_rstp { self.designated_times.hello_time } else { self.designated_times.forward_delay }
    }

    /// Whether the machines of roles may act on what was selected.
    pub(super) fn is_settled(&self) -> bool {
        self.selected && !self.updt_info
    }

    /// Whether a BPDU is to be ignored (§9.3.4): it is the port's own, or too old.
    pub(super) fn is_invalid(&self, bpdu: &Bpdu, own: BridgeId) -> bool {
        match bpdu {
            Bpdu::Config(message) => {
                message.message_age >= message.max_age || (message.bridge, message.port) == (own, self.id)
            }
            Bpdu::Tcn | Bpdu::Rst(..) => false,
        }
    }

    /// Port Receive machine (§17.23), with `updtBPDUVersion` (§17.21.22).
    pub(super) fn hear(&mut self, bpdu: Bpdu, now: Millis) {
        match bpdu {
            Bpdu::Rst(..) => self.rcvd_rstp = true,
            Bpdu::Config(_) | Bpdu::Tcn => self.rcvd_stp = true,
        }
        self.oper_edge = false;
        self.message = Some(bpdu);
        self.edge_delay_while.start(now, MIGRATE_TIME);
    }

    /// The state, by the role where RSTP has only one.
    pub(super) fn state(&self) -> PortState {
        match (self.forwarding, self.learning, self.role) {
            (true, ..) => PortState::Forwarding,
            (_, true, _) => PortState::Learning,
            (.., Role::Disabled) => PortState::Disabled,
            (.., Role::Root | Role::Designated) => PortState::Listening,
            (.., Role::Alternate | Role::Backup) => PortState::Blocking,
        }
    }

    /// Time at which one of its timers expires.
    pub(super) fn next_due(&self, now: Millis) -> Option<Millis> {
        if !self.is_enabled() {
            return None;
        }
        let timers = [
            &self.edge_delay_while,
            &self.fd_while,
            &self.hello_when,
            &self.mdelay_while,
            &self.rb_while,
            &self.rcvd_info_while,
            &self.rr_while,
            &self.tc_while,
        ];
        let held = (self.new_info && self.tx_count > 0).then(|| self.tx_since.saturating_add(1000));
        timers.iter().filter(|timer| timer.runs(now)).filter_map(|timer| timer.end()).chain(held).min()
    }
}
