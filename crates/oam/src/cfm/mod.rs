//! Continuity check of Connectivity Fault Management (IEEE 802.1Q clauses 18 to 22, formerly 802.1ag; ITU-T Y.1731),
//! one maintenance point per port.
//!
//! - [`Settings`]: what the operator configures; `packet`: continuity checks; `show`: status as text.
//! - [`Point`]: sends continuity checks, and looks every three and a half intervals whether others were heard.
//!
//! Not there: levels and associations other than those of Open vSwitch, loopback and linktrace.

mod packet;
mod settings;
mod show;

use std::collections::BTreeMap;

use ::packet::MacAddr;

use crate::{Millis, Moment};
use packet::Check;
pub use packet::{ETHERTYPE, EXTENDED_GROUP, Fault, GROUP};
pub use settings::{Settings, Vlan};
pub use show::Status;

/// Remote maintenance points that are remembered.
const REMOTES: usize = 256;
/// Looks for faults after which the health is computed.
const HEALTH_LOOKS: u32 = 6;
/// Shortest interval that looks for faults go by with demand: counters are not read more often.
const DEMAND: Millis = 500;
/// Intervals after which one continuity check must have come with demand.
const DEMAND_CHECKS: Millis = 100;

/// Kinds of faults, as bits.
mod fault {
    pub(super) const RECEIVE: u8 = 1;
    pub(super) const REMOTE_DEFECT: u8 = 1 << 1;
    pub(super) const ASSOCIATION: u8 = 1 << 2;
    pub(super) const LOOPBACK: u8 = 1 << 3;
    pub(super) const OVERFLOW: u8 = 1 << 4;
    pub(super) const OVERRIDE: u8 = 1 << 5;
}

/// A remote maintenance point.
#[derive(Debug, Clone, Copy)]
struct Remote {
    /// A continuity check came since the last look.
    heard: bool,
    is_up: bool,
    /// Good continuity checks since the health was computed.
    checks: u32,
}

/// A maintenance point. See the module.
#[derive(Debug, Clone)]
pub struct Point {
    settings: Settings,
    random: fastrand::Rng,
    /// The port's counter at the last look, with demand.
    received: u64,
    /// With demand: until when data is enough.
    demand_until: Millis,
    /// Faults at the last look, and since then.
    faults: u8,
    new_faults: u8,
    forced: Option<bool>,
    /// Whether it has looked for faults once.
    has_looked: bool,
    remotes: BTreeMap<u64, Remote>,
    /// Those heard at the last look.
    heard: Vec<u64>,
    remote_is_up: bool,
    /// Percentage of continuity checks that came; `None`: several remote points, or not known yet.
    health: Option<u8>,
    looks: u32,
    flaps: u64,
    sequence: u32,
    next_tx: Millis,
    look_at: Millis,
}

impl Point {
    /// Makes a maintenance point that has heard nothing. `seed` is that of random VLANs.
    pub fn new(settings: Settings, seed: u64, at: Moment) -> Self {
        let mut point = Self {
            settings,
            random: fastrand::Rng::with_seed(seed),
            received: at.received,
            demand_until: 0,
            faults: 0,
            new_faults: 0,
            forced: None,
            has_looked: false,
            remotes: BTreeMap::new(),
            heard: Vec::new(),
            remote_is_up: true,
            health: None,
            looks: 0,
            flaps: 0,
            sequence: 0,
            next_tx: at.now,
            look_at: 0,
        };
        point.look_at = at.now.saturating_add(point.look_interval());
        point
    }

    /// Changes the settings.
    pub fn configure(&mut self, settings: Settings, at: Moment) {
        let before = std::mem::replace(&mut self.settings, settings);
        if self.settings.demand && !before.demand {
            self.received = at.received;
        }
        if (before.code, before.interval) != (self.settings.code, self.settings.interval) {
            self.next_tx = at.now;
            self.look_at = at.now.saturating_add(self.look_interval());
        }
    }

    /// Sets whether there is a fault in any case; `None`: what it finds.
    pub fn force(&mut self, faulty: Option<bool>) {
        self.forced = faulty;
    }

    /// The group address of its messages.
    pub fn group(&self) -> MacAddr {
        if self.settings.extended { EXTENDED_GROUP } else { GROUP }
    }

    fn look_interval(&self) -> Millis {
        let interval = self.settings.interval;
        let interval = if self.settings.demand { interval.max(DEMAND) } else { interval };
        interval * 7 / 2
    }

    /// Time of the next call of [`Point::run`] and [`Point::transmit`].
    pub fn next_call(&self) -> Millis {
        self.next_tx.min(self.look_at)
    }

    /// Looks for faults if that is due.
    pub fn run(&mut self, at: Moment) {
        if at.now >= self.look_at {
            self.look(at);
            self.look_at = at.now.saturating_add(self.look_interval());
        }
    }

    fn look(&mut self, at: Moment) {
        let before = self.faults;
        self.faults = std::mem::take(&mut self.new_faults);
        if self.looks == HEALTH_LOOKS {
            self.health = self.measure();
            self.looks = 0;
        }
        self.looks += 1;
        let has_data = self.settings.demand && at.received > self.received && at.now < self.demand_until;
        self.received = at.received;
        // With several others, data does not tell of each.
        let keeps = has_data && self.remotes.len() == 1;
        self.remotes.retain(|_, remote| remote.heard || keeps);
        self.heard.clear();
        let (mut any_up, mut any_down) = (false, false);
        for (point, remote) in &mut self.remotes {
            if std::mem::take(&mut remote.heard) {
                self.heard.push(*point);
                any_up |= remote.is_up;
                any_down |= !remote.is_up;
            }
        }
        if any_up || any_down {
            self.remote_is_up = !any_down;
        }
        if self.remotes.is_empty() {
            self.faults |= fault::RECEIVE;
        }
        if before != self.faults && (before == 0 || self.faults == 0) {
            self.flaps += 1;
        }
        self.has_looked = true;
    }

    /// Percentage of the continuity checks that came since the last time, of those that may be expected.
    fn measure(&mut self) -> Option<u8> {
        let expected = HEALTH_LOOKS * 7 / 2;
        let mut remotes = self.remotes.values_mut();
        match (remotes.next(), remotes.next()) {
            (None, _) => Some(0),
            (Some(_), Some(_)) => None,
            (Some(remote), None) => {
                let percent = u64::from(std::mem::take(&mut remote.checks)) * 100 / u64::from(expected);
                Some(percent.min(100) as u8)
            }
        }
    }

    /// Returns the frame that is due, if one is; `address` is that of the port.
    pub fn transmit(&mut self, address: MacAddr, now: Millis) -> Option<Vec<u8>> {
        if now < self.next_tx {
            return None;
        }
        self.next_tx = now.saturating_add(self.settings.interval);
        self.sequence = self.sequence.wrapping_add(1);
        let Settings { point, extended, is_up, interval, code, vlan, priority, .. } = self.settings;
        let vlan = match vlan {
            Vlan::Untagged => 0,
            Vlan::Id(id) => id,
            Vlan::Random => self.random.u16(1..4095),
        };
        let tag = u16::from(priority) << 13 | vlan;
        let check = Check {
            remote_defect: self.has_looked && self.remotes.is_empty(),
            interval: code,
            sequence: self.sequence,
            point,
            interval_ms: if code == 0 { u16::try_from(interval).unwrap_or(u16::MAX) } else { 0 },
            is_down: !is_up,
        };
        Some(check.frame(address, (tag != 0).then_some(tag), extended))
    }

    /// Processes a frame with a message. Errors say why it does not count.
    ///
    /// As in Open vSwitch, other intervals and unexpected points are no faults: whoever may send frames could cause
    /// them.
    pub fn receive(&mut self, frame: &[u8], now: Millis) -> Result<(), Fault> {
        let check = Check::of_frame(frame, self.settings.extended).inspect_err(|error| {
            if *error == Fault::Association {
                self.new_faults |= fault::ASSOCIATION;
            }
        })?;
        if self.remotes.len() >= REMOTES && !self.remotes.contains_key(&check.point) {
            self.new_faults |= fault::OVERFLOW;
            return Err(Fault::Room(check.point));
        }
        let new = Remote { heard: false, is_up: true, checks: 0 };
        let remote = self.remotes.entry(check.point).or_insert(new);
        (remote.heard, remote.is_up) = (true, !check.is_down);
        let mut faults = 0;
        if check.remote_defect {
            faults |= fault::REMOTE_DEFECT;
        }
        if check.point == self.settings.point {
            faults |= fault::LOOPBACK;
        }
        if faults == 0 {
            remote.checks = remote.checks.saturating_add(1);
            self.demand_until = now.saturating_add(self.settings.interval.saturating_mul(DEMAND_CHECKS));
        }
        self.new_faults |= faults;
        Ok(())
    }

    fn faults(&self) -> u8 {
        match self.forced {
            Some(true) => fault::OVERRIDE,
            Some(false) => 0,
            None => self.faults,
        }
    }

    /// Whether the port may be used.
    pub fn forwards(&self) -> bool {
        self.faults() == 0 && (!self.settings.extended || self.remote_is_up)
    }
}

#[cfg(test)]
mod tests;
