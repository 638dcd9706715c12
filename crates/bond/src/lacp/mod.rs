//! LACP (IEEE 802.1AX clause 6, formerly IEEE 802.3 clause 43) for the members of one bond, as Open vSwitch speaks it.
//!
//! The machines of the standard are simplified: a member is current, expired or defaulted (the receive machine); it is
//! attached if it leads to the same partner as the other members (selection and mux); it sends when its information
//! changes, or when the partner's timeout asks for it (periodic and transmit machines).
//!
//! - [`pdu`]: the frames; `select`: which members are attached.
//!
//! Invariant: a member is attached only if all attached members have the same partner system and partner key.

pub mod pdu;
mod select;

use std::collections::BTreeMap;

use packet::MacAddr;

use crate::{LacpSettings, MemberSettings, Millis};
use pdu::{Frame, Info, Pdu, State};

/// Interval of LACPDUs if the receiver asks for a short timeout, and if not.
const FAST: Millis = 1_000;
const SLOW: Millis = 30_000;
/// LACPDUs that a member sends within [`FAST`] at most (IEEE 802.1AX §6.4.16): its partner decides how often something
/// is to be answered.
const MOST: usize = 3;
/// Intervals without an LACPDU after which information is out of date.
const TIMEOUT: Millis = 3;

/// What is known of a member's partner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It has been heard.
    Current,
    /// It has not been heard in time, and is asked to hurry.
    Expired,
    /// Nothing.
    Defaulted,
}

impl Status {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Expired => "expired",
            Self::Defaulted => "defaulted",
        }
    }
}

/// Counters of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Frames sent.
    pub sent: u64,
    /// Frames of Slow Protocols received, all included.
    pub received: u64,
    /// Those that cannot be read.
    pub bad: u64,
    /// Those of the Marker protocol.
    pub markers: u64,
    /// Times that information went out of date.
    pub expired: u64,
    /// Times that information was given up.
    pub defaulted: u64,
    /// Changes of the link.
    pub link_changes: u64,
}

/// A member.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its settings.
    pub settings: MemberSettings,
    /// What is known of its partner.
    pub status: Status,
    /// Whether it is part of the aggregate.
    pub is_attached: bool,
    /// The partner's port.
    pub partner: Info,
    /// Counters.
    pub counters: Counters,
    has_link: bool,
    /// This port as the partner knows it.
    known: Info,
    /// When information goes out of date.
    until: Millis,
    /// When the next LACPDU is due.
    next: Millis,
    /// When the last ones were sent, the oldest first.
    sent: [Option<Millis>; MOST],
}

/// LACP of a bond.
#[derive(Debug, Clone)]
pub struct Lacp {
    settings: LacpSettings,
    members: BTreeMap<String, Member>,
    /// The member whose key, or else number, is the aggregation key.
    key_of: Option<String>,
    /// System and key of the partner that attached members lead to.
    aggregate: Option<(MacAddr, u16)>,
    /// Whether members have to be attached or detached.
    is_stale: bool,
}

impl Lacp {
    /// Makes it without members.
    pub fn new(settings: LacpSettings) -> Self {
        Self { settings, members: BTreeMap::new(), key_of: None, aggregate: None, is_stale: true }
    }

    /// Changes the settings. Members that are not named are removed.
    pub fn configure(&mut self, settings: LacpSettings, members: &[MemberSettings], now: Millis) {
        self.is_stale |= self.settings != settings;
        self.settings = settings;
        let before = self.members.len();
        self.members.retain(|name, _| members.iter().any(|member| member.name == *name));
        self.is_stale |= self.members.len() != before;
        if self.key_of.as_ref().is_none_or(|name| !self.members.contains_key(name)) {
            let mut there = members.iter().map(|member| &member.name);
            let kept = self.members.keys().next().cloned();
            self.key_of = kept.or_else(|| there.next().cloned());
        }
        for wanted in members {
            let is_started = self.settings.active || self.is_negotiated();
            match self.members.get_mut(&wanted.name) {
                Some(member) if member.settings == *wanted => {}
                Some(member) => {
                    member.settings = wanted.clone();
                    self.is_stale = true;
                    if is_started {
                        member.expire(now);
                    }
                }
                None => {
                    let mut member = Member::new(wanted.clone());
                    self.is_stale = true;
                    if is_started {
                        member.expire(now);
                    }
                    self.members.insert(wanted.name.clone(), member);
                }
            }
        }
    }

    /// Returns the settings.
    pub fn settings(&self) -> &LacpSettings {
        &self.settings
    }

    /// Returns the members by name.
    pub fn members(&self) -> &BTreeMap<String, Member> {
        &self.members
    }

    /// Whether some member leads to a partner, or is not known not to.
    pub fn is_negotiated(&self) -> bool {
        self.aggregate.is_some()
    }

    /// Returns the aggregation key; `None` without members.
    pub fn key(&self) -> Option<u16> {
        let first = &self.members.get(self.key_of.as_ref()?)?.settings;
        Some(if first.key == 0 { first.port_id } else { first.key })
    }

    /// Whether a member may carry packets.
    pub fn may_enable(&self, name: &str) -> bool {
        self.members.get(name).is_some_and(|member| self.may_enable_member(member))
    }

    fn may_enable_member(&self, member: &Member) -> bool {
        let falls_back = self.settings.fallback && member.status == Status::Defaulted;
        member.is_attached && (member.partner.state.contains(State::SYNCHRONIZATION) || falls_back)
    }

    /// Tells of a member's link. Its partner has to be heard again after each change, and is asked at once: it answers
    /// a member that no longer trusts it, so that the link carries packets without waiting for the next interval.
    pub fn set_link(&mut self, name: &str, up: bool, now: Millis) {
        let is_active = self.settings.active;
        let Some(member) = self.members.get_mut(name).filter(|member| member.has_link != up) else { return };
        if member.status == Status::Current || is_active {
            member.expire(now);
        }
        if up {
            member.next = now;
        }
        member.has_link = up;
        member.counters.link_changes += 1;
    }

    /// Takes a frame that a member received.
    pub fn receive(&mut self, name: &str, frame: &[u8], now: Millis) {
        let interval = if self.settings.fast { FAST } else { SLOW };
        let Some(member) = self.members.get_mut(name) else { return };
        member.counters.received += 1;
        let pdu = match Frame::parse(frame) {
            Frame::Pdu(pdu) => pdu,
            Frame::Marker => return member.counters.markers += 1,
            Frame::Unknown => return member.counters.bad += 1,
        };
        // A link that is down receives nothing: the frame is from before.
        if !member.has_link {
            return;
        }
        self.is_stale |= member.status != Status::Current || member.partner != pdu.actor;
        member.status = Status::Current;
        member.until = now + TIMEOUT * interval;
        member.known = pdu.partner;
        member.partner = pdu.actor;
    }

    /// Does what is due. Returns the members that send, with their LACPDUs.
    pub fn run(&mut self, now: Millis) -> Vec<(String, Pdu)> {
        for member in self.members.values_mut().filter(|member| now >= member.until) {
            match member.status {
                Status::Current => {
                    member.expire(now);
                    member.counters.expired += 1;
                }
                Status::Expired => {
                    member.status = Status::Defaulted;
                    member.partner = Info::default();
                    member.counters.defaulted += 1;
                    self.is_stale = true;
                }
                Status::Defaulted => {}
            }
        }
        if std::mem::take(&mut self.is_stale) {
            self.select();
        }
        let due: Vec<_> = self
            .members
            .iter()
            .filter(|(_, member)| {
                member.has_link && (self.settings.active || member.status != Status::Defaulted)
            })
            .map(|(name, member)| (name.clone(), self.actor(member)))
            .filter(|(name, actor)| {
                self.members
                    .get(name)
                    .is_some_and(|member| now >= member.next || differs(actor, &member.known))
            })
            .collect();
        let sent = due.into_iter().filter_map(|(name, actor)| {
            let member = self.members.get_mut(&name)?;
            let earliest = member.earliest();
            if now < earliest {
                member.next = earliest;
                return None;
            }
            member.known = actor;
            member.counters.sent += 1;
            member.sent.rotate_left(1);
            member.sent.iter_mut().rev().take(1).for_each(|last| *last = Some(now));
            let is_fast = member.partner.state.contains(State::TIMEOUT);
            member.next = now + if is_fast { FAST } else { SLOW };
            Some((name, Pdu { actor, partner: member.partner }))
        });
        sent.collect()
    }

    /// Returns the time at which something is due; `None` while nothing is.
    pub fn next_due(&self) -> Option<Millis> {
        if self.is_stale {
            return Some(0);
        }
        let active = self.settings.active;
        let due = self.members.values().flat_map(|member| {
            let listens = member.status != Status::Defaulted;
            let sends = member.has_link && (active || listens);
            [listens.then_some(member.until), sends.then_some(member.next)]
        });
        due.flatten().min()
    }

    /// Returns what a member says of itself.
    pub fn actor(&self, member: &Member) -> Info {
        let carries = member.is_attached || !self.is_negotiated();
        let mut state = State::empty();
        state.set(State::ACTIVITY, self.settings.active);
        state.set(State::TIMEOUT, self.settings.fast);
        state.set(State::AGGREGATION, self.members.len() > 1);
        state.set(State::SYNCHRONIZATION, member.is_attached);
        state.set(State::COLLECTING | State::DISTRIBUTING, carries);
        state.set(State::DEFAULTED, member.status == Status::Defaulted);
        state.set(State::EXPIRED, member.status == Status::Expired);
        Info {
            system_priority: self.settings.priority,
            system: self.settings.system,
            key: self.key().unwrap_or_default(),
            port_priority: member.settings.port_priority,
            port: member.settings.port_id,
            state,
        }
    }
}

impl Member {
    fn new(settings: MemberSettings) -> Self {
        Self {
            settings,
            status: Status::Defaulted,
            is_attached: false,
            partner: Info::default(),
            counters: Counters::default(),
            has_link: false,
            known: Info::default(),
            until: 0,
            next: 0,
            sent: [None; MOST],
        }
    }

    /// The time before which no LACPDU is sent.
    fn earliest(&self) -> Millis {
        self.sent.first().copied().flatten().map_or(0, |oldest| oldest + FAST)
    }

    /// Asks the partner to hurry, and no longer trusts it.
    fn expire(&mut self, now: Millis) {
        self.status = Status::Expired;
        self.partner.state.insert(State::TIMEOUT);
        self.partner.state.remove(State::SYNCHRONIZATION);
        self.until = now + TIMEOUT * FAST;
    }
}

/// Whether a partner has to be told what has changed (IEEE 802.1AX §6.4.16).
fn differs(actor: &Info, known: &Info) -> bool {
    const TOLD: State =
        State::ACTIVITY.union(State::TIMEOUT).union(State::SYNCHRONIZATION).union(State::AGGREGATION);
    let told = |info: &Info| Info { state: info.state & TOLD, ..*info };
    told(actor) != told(known)
}

#[cfg(test)]
mod tests;
