//! Selection of members (IEEE 802.1AX §6.4.14): those that lead to one partner are attached.

use packet::MacAddr;

use super::{Lacp, Member, Status};

impl Lacp {
    /// Attaches and detaches members.
    pub(super) fn select(&mut self) {
        // A partner that works is kept: another one has to wait until it has gone.
        let before = self.aggregate;
        let working = self.first(|member| {
            let partner = Some((member.partner.system, member.partner.key));
            member.status == Status::Current && member.is_attached && partner == before
        });
        let kept = working.map(|member| member.partner.system);
        let own = self.settings.system;
        // A link to a port of the same system is a loop.
        let may_lead = |member: &Member| {
            member.status != Status::Defaulted
                && member.partner.system != own
                && kept.is_none_or(|kept| kept == member.partner.system)
        };
        let leader = working.or_else(|| self.first(may_lead));
        let aggregate = leader.map(|member| (member.partner.system, member.partner.key));
        let fallback = self.settings.fallback;
        self.aggregate = aggregate;
        for member in self.members.values_mut() {
            let partner = (member.partner.system, member.partner.key);
            member.is_attached = match aggregate {
                Some(aggregate) => may_lead(member) && partner == aggregate,
                None => fallback && member.status == Status::Defaulted,
            };
        }
    }

    /// Returns the first of some members by rank.
    fn first(&self, which: impl Fn(&Member) -> bool) -> Option<&Member> {
        self.members.values().filter(|member| which(member)).min_by_key(|member| self.rank(member))
    }

    /// Ranks by the information of the system with the higher priority, so that both systems agree.
    fn rank(&self, member: &Member) -> (u16, MacAddr, u16, u16) {
        let (own, partner) = (self.actor(member), member.partner);
        let is_first = (own.system_priority, own.system) < (partner.system_priority, partner.system);
        if is_first { own.rank() } else { partner.rank() }
    }
}
