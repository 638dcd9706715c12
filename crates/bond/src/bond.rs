//! A bond: its members, the active one, and the buckets of its load.
//!
//! Invariants: the active member is enabled; a bucket belongs to an enabled member while there is one; a bucket that
//! has carried packets changes its member only when that is disabled, by [`Bond::migrate`], or for balance.

use std::collections::BTreeMap;
use std::sync::Arc;

use packet::MacAddr;

use crate::lacp::{Lacp, Status};
use crate::view::{Admission, Loads, MemberView, Output, View};
use crate::{BUCKETS, MemberSettings, Millis, Mode, Settings};

/// A member.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    /// Whether it may be chosen for packets.
    pub(crate) is_enabled: bool,
    /// Whether its link and LACP let it be chosen.
    pub(crate) may_enable: bool,
    has_link: bool,
    pub(crate) address: MacAddr,
    /// When it is enabled or disabled, unless its link changes before.
    pub(crate) changes: Option<Millis>,
}

/// A hash bucket.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bucket {
    pub(crate) member: Option<String>,
    /// Bytes sent recently: half of what it was counts after each look.
    pub(crate) load: u64,
    /// Whether it has carried packets.
    is_used: bool,
}

/// State of LACP of a bond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Negotiation {
    Off,
    Configured,
    Negotiated,
}

/// What has to be done after a [`Bond::run`].
#[derive(Debug, Default)]
pub struct Outcome {
    /// Frames to send, with the members that send them.
    pub frames: Vec<(String, Vec<u8>)>,
    /// Whether stations outside the bond are to be announced through it: its peer may have learned them at another
    /// member.
    pub announce: bool,
    /// Events for the log.
    pub events: Vec<String>,
}

/// A bond. See the crate's documentation.
#[derive(Debug)]
pub struct Bond {
    pub(crate) name: String,
    pub(crate) settings: Settings,
    pub(crate) members: BTreeMap<String, Member>,
    pub(crate) lacp: Option<Lacp>,
    pub(crate) active: Option<String>,
    /// Address of the member that was active last.
    pub(crate) last_active: MacAddr,
    pub(crate) negotiation: Negotiation,
    pub(crate) buckets: Vec<Bucket>,
    pub(crate) loads: Arc<Loads>,
    pub(crate) next_rebalance: Millis,
    pub(crate) announces: bool,
    pub(crate) events: Vec<String>,
    /// The next member that gets a bucket.
    turn: usize,
}

impl Bond {
    /// Makes a bond without members.
    pub fn new(name: impl Into<String>, settings: Settings) -> Self {
        Self {
            name: name.into(),
            last_active: settings.last_active.unwrap_or(MacAddr::ZERO),
            lacp: settings.lacp.clone().map(Lacp::new),
            settings,
            members: BTreeMap::new(),
            active: None,
            negotiation: Negotiation::Off,
            buckets: vec![Bucket::default(); BUCKETS],
            loads: Arc::default(),
            next_rebalance: 0,
            announces: false,
            events: Vec::new(),
            turn: 0,
        }
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is a bond, and not a port of one interface that speaks LACP.
    pub fn is_bond(&self) -> bool {
        self.settings.is_bond
    }

    /// Returns its members by name.
    pub fn members(&self) -> impl Iterator<Item = &str> {
        self.members.keys().map(String::as_str)
    }

    /// Whether it has a member.
    pub fn has(&self, name: &str) -> bool {
        self.members.contains_key(name)
    }

    /// Returns whether the partner of each member is known, with LACP.
    pub fn known_partners(&self) -> Vec<bool> {
        let members = self.lacp.iter().flat_map(|lacp| lacp.members().values());
        members.map(|member| member.status != Status::Defaulted).collect()
    }

    /// Returns LACP, if it is used.
    pub fn lacp(&self) -> Option<&Lacp> {
        self.lacp.as_ref()
    }

    /// Returns the address of the active member, or of the one that was active last; zero: none ever was.
    pub fn active_address(&self) -> MacAddr {
        self.last_active
    }

    /// Changes the settings. Members that are not named are removed.
    pub fn configure(&mut self, settings: Settings, members: &[MemberSettings], now: Millis) {
        match (&mut self.lacp, &settings.lacp) {
            (Some(lacp), Some(wanted)) => lacp.configure(wanted.clone(), members, now),
            (None, Some(wanted)) => {
                let mut lacp = Lacp::new(wanted.clone());
                lacp.configure(wanted.clone(), members, now);
                for (name, member) in &self.members {
                    lacp.set_link(name, member.has_link, now);
                }
                self.lacp = Some(lacp);
            }
            (_, None) => self.lacp = None,
        }
        let spread = |it: &Settings| (it.mode, it.basis, it.rebalance_interval, it.fallback);
        if spread(&self.settings) != spread(&settings) || self.next_rebalance == 0 {
            self.buckets = vec![Bucket::default(); BUCKETS];
            self.next_rebalance = now.saturating_add(settings.rebalance_interval);
        }
        self.settings = settings;
        let gone: Vec<_> =
            self.members.keys().filter(|name| !members.iter().any(|it| it.name == **name)).cloned().collect();
        for name in gone {
            self.enable(&name, false);
            self.members.remove(&name);
            if self.active.as_ref() == Some(&name) {
                self.active = None;
            }
        }
        for wanted in members {
            self.members.entry(wanted.name.clone()).or_insert_with(|| Member {
                is_enabled: false,
                may_enable: false,
                has_link: false,
                address: MacAddr::ZERO,
                changes: None,
            });
        }
    }

    /// Tells of a member's link and address.
    pub fn set_link(&mut self, name: &str, up: bool, address: MacAddr, now: Millis) {
        if let Some(lacp) = &mut self.lacp {
            lacp.set_link(name, up, now);
        }
        let Some(member) = self.members.get_mut(name) else { return };
        (member.has_link, member.address) = (up, address);
    }

    /// Takes a frame of Slow Protocols that a member received.
    pub fn receive(&mut self, name: &str, frame: &[u8], now: Millis) {
        if let Some(lacp) = &mut self.lacp {
            lacp.receive(name, frame, now);
        }
    }

    /// Does what is due.
    pub fn run(&mut self, now: Millis) -> Outcome {
        let pdus = self.lacp.as_mut().map(|lacp| lacp.run(now)).unwrap_or_default();
        let frames = pdus.into_iter().filter_map(|(name, pdu)| {
            let address = self.members.get(&name)?.address;
            Some((name, pdu.frame(address)))
        });
        let frames = frames.collect();
        let negotiation = match &self.lacp {
            None => Negotiation::Off,
            Some(lacp) if lacp.is_negotiated() => Negotiation::Negotiated,
            Some(_) => Negotiation::Configured,
        };
        self.negotiation = negotiation;
        let names: Vec<_> = self.members.keys().cloned().collect();
        names.iter().for_each(|name| self.follow_link(name, now));
        self.choose_active(now);
        self.count();
        self.rebalance(now);
        self.fill_buckets();
        let announce = std::mem::take(&mut self.announces) && self.may_announce();
        Outcome { frames, announce, events: std::mem::take(&mut self.events) }
    }

    /// Returns the time at which something is due; `None` while nothing is.
    pub fn next_due(&self) -> Option<Millis> {
        let changes = self.members.values().filter_map(|member| member.changes);
        let rebalance = self.is_balanced().then_some(self.next_rebalance);
        changes.chain(rebalance).chain(self.lacp.as_ref().and_then(Lacp::next_due)).min()
    }

    /// Enables or disables a member whose link has been up or down for long enough.
    fn follow_link(&mut self, name: &str, now: Millis) {
        let lacp = self.lacp.as_ref();
        let Some(member) = self.members.get_mut(name) else { return };
        member.may_enable = member.has_link && lacp.is_none_or(|lacp| lacp.may_enable(name));
        let up = member.may_enable;
        match (up == member.is_enabled, member.changes) {
            (true, _) => member.changes = None,
            (false, None) => {
                let delay = if up { self.settings.updelay } else { self.settings.downdelay };
                member.changes = Some(now.saturating_add(delay));
                let link = if up { "up" } else { "down" };
                self.events.push(format!("member {name}: link state {link}"));
            }
            (false, Some(_)) => {}
        }
        if member.changes.is_some_and(|time| now >= time) {
            self.enable(name, up);
        }
    }

    pub(crate) fn enable(&mut self, name: &str, enable: bool) {
        let Some(member) = self.members.get_mut(name) else { return };
        member.changes = None;
        if member.is_enabled == enable {
            return;
        }
        member.is_enabled = enable;
        self.announces |= !enable;
        self.events.push(format!("member {name}: {}", if enable { "enabled" } else { "disabled" }));
        for bucket in &mut self.buckets {
            let is_its = bucket.member.as_deref() == Some(name);
            // Those that carry nothing go round again.
            if !bucket.is_used || is_its && !enable {
                (bucket.member, bucket.is_used) = (None, false);
            }
        }
    }

    /// Whether a member that works is to be preferred.
    fn is_primary(&self, name: &str) -> bool {
        self.settings.primary.as_deref() == Some(name)
    }

    fn choose_active(&mut self, now: Millis) {
        let is_enabled = |name: &str| self.members.get(name).is_some_and(|member| member.is_enabled);
        let primary = self.settings.primary.as_deref().filter(|name| is_enabled(name));
        let is_backup = self.settings.mode == Mode::ActiveBackup && primary.is_some();
        if let Some(active) = self.active.as_deref()
            && is_enabled(active)
            && (!is_backup || self.is_primary(active))
        {
            return;
        }
        let enabled = || self.members.iter().filter(|(_, member)| member.is_enabled);
        let last = || enabled().find(|(_, member)| member.address == self.last_active);
        let soonest = || {
            let waiting = self.members.iter().filter(|(_, member)| member.may_enable);
            waiting.filter_map(|(name, member)| Some((member.changes?, name))).min().map(|(_, name)| name)
        };
        let chosen = primary.map(str::to_owned).or_else(|| {
            let enabled = last().or_else(|| enabled().next()).map(|(name, _)| name);
            enabled.or_else(soonest).cloned()
        });
        match chosen {
            Some(name) => {
                if !is_enabled(&name) {
                    let left = self.members.get(&name).and_then(|member| member.changes).unwrap_or(now);
                    let left = left.saturating_sub(now);
                    self.events.push(format!(
                        "bond {}: no member was enabled; {name} skips {left} ms of its updelay",
                        self.name
                    ));
                    self.enable(&name, true);
                }
                self.set_active(&name);
            }
            None if self.active.take().is_some() => {
                self.last_active = MacAddr::ZERO;
                self.events.push(format!("bond {}: all members disabled", self.name));
            }
            None => {}
        }
    }

    pub(crate) fn set_active(&mut self, name: &str) {
        self.announces = true;
        self.last_active = self.members.get(name).map_or(MacAddr::ZERO, |member| member.address);
        self.active = Some(name.to_owned());
        self.events.push(format!("bond {}: active member is now {name}", self.name));
    }

    /// Whether one member carries everything because LACP has found no partner.
    pub(crate) fn falls_back(&self) -> bool {
        self.settings.fallback
            && self.settings.mode != Mode::ActiveBackup
            && self.negotiation == Negotiation::Configured
    }

    /// Whether the peer learns where stations are: it does not know of the bond.
    fn may_announce(&self) -> bool {
        let is_unknown = self.negotiation == Negotiation::Off && self.settings.mode != Mode::BalanceTcp;
        let falls_back = self.settings.fallback && self.negotiation == Negotiation::Configured;
        self.is_bond() && (is_unknown || falls_back) && self.active.is_some()
    }

    /// Takes the loads that the data path has counted.
    fn count(&mut self) {
        let is_balanced = self.is_balanced();
        for (bucket, bytes) in self.buckets.iter_mut().zip(self.loads.take()) {
            bucket.is_used |= bytes > 0;
            if is_balanced {
                bucket.load += bytes;
            }
        }
    }

    /// Gives each bucket an enabled member.
    pub(crate) fn fill_buckets(&mut self) {
        let enabled = self.members.iter().filter(|(_, member)| member.is_enabled).map(|(name, _)| name);
        let enabled: Vec<_> = enabled.collect();
        for bucket in self.buckets.iter_mut().filter(|bucket| bucket.member.is_none()) {
            let Some(at) = self.turn.checked_rem(enabled.len()) else { return };
            bucket.member = enabled.get(at).map(|name| (*name).clone());
            self.turn = at + 1;
        }
    }

    /// Returns what packets need to know.
    pub fn view(&self) -> View {
        let member = |(name, it): (&String, &Member)| MemberView {
            name: name.clone(),
            is_live: self.lacp.as_ref().is_none_or(|lacp| lacp.may_enable(name)),
            admits: self.admits(name, it),
        };
        View {
            name: self.name.clone(),
            members: self.members.iter().map(member).collect(),
            output: self.output(),
            takes_pdus: self.lacp.is_some(),
            loads: self.loads.clone(),
        }
    }

    fn output(&self) -> Output {
        if !self.is_bond() {
            return Output::Plain;
        }
        let place = |name: &str| self.members.keys().position(|other| other == name);
        let active = || self.active.as_deref().and_then(place).map_or(Output::Nothing, Output::Member);
        let buckets = || {
            let mut members = Box::new([None; BUCKETS]);
            for (to, bucket) in members.iter_mut().zip(&self.buckets) {
                *to = bucket.member.as_deref().and_then(place);
            }
            members
        };
        match (self.settings.mode, self.negotiation) {
            (_, Negotiation::Configured) if self.settings.fallback => active(),
            (_, Negotiation::Configured) | (Mode::BalanceTcp, Negotiation::Off) => Output::Nothing,
            (Mode::ActiveBackup, _) => active(),
            (Mode::BalanceSlb, _) => Output::BySource(self.settings.basis, buckets()),
            (Mode::BalanceTcp, _) => Output::ByFlow(self.settings.basis, buckets()),
        }
    }

    fn admits(&self, name: &str, member: &Member) -> Admission {
        let is_active = self.active.as_deref() == Some(name);
        let all = |admits| Admission { stations: admits, groups: admits, unless_moved: false };
        match (self.negotiation, self.settings.mode) {
            // The partner knows which members take packets.
            (Negotiation::Negotiated, _) => all(member.is_enabled || member.may_enable),
            (Negotiation::Configured, _) if !self.settings.fallback => all(false),
            (Negotiation::Off, Mode::BalanceTcp) => all(false),
            (_, Mode::BalanceSlb) => {
                let groups = is_active || self.settings.all_members_active;
                Admission { stations: true, groups, unless_moved: true }
            }
            (_, Mode::ActiveBackup | Mode::BalanceTcp) => all(is_active),
        }
    }
}

#[cfg(test)]
mod tests;
