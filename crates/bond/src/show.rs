//! Texts of bonds and LACP, letter by letter those of Open vSwitch 3.1, which tools read.

use std::fmt::Write;

use packet::MacAddr;

use crate::bond::Negotiation;
use crate::lacp::Lacp;
use crate::lacp::pdu::{Info, State};
use crate::{Bond, Millis, Mode};

impl Bond {
    /// Returns the line of `bond/list`. A bond that spreads load has `number` there.
    pub fn list(&self, number: u32) -> String {
        let number = if self.settings.mode == Mode::ActiveBackup { 0 } else { number };
        let members: Vec<_> = self.members().collect();
        format!("{}\t{}\t{number}\t{}\n", self.name, self.settings.mode.name(), members.join(", "))
    }

    /// Returns the text of `bond/show`. A bond that Open vSwitch would balance by recirculation has `number` there.
    pub fn show(&self, number: u32, now: Millis) -> String {
        let mut text = format!("---- {} ----\n", self.name);
        // Writing to a string does not fail.
        let _ = self.write(&mut text, number, now);
        text
    }

    fn write(&self, to: &mut String, number: u32, now: Millis) -> std::fmt::Result {
        let it = &self.settings;
        let recirculates = it.mode == Mode::BalanceTcp && !self.falls_back();
        let with = |there: bool| if there { i64::from(number) } else { -1 };
        writeln!(to, "bond_mode: {}", it.mode.name())?;
        let yes = if recirculates { "yes" } else { "no" };
        writeln!(to, "bond may use recirculation: {yes}, Recirc-ID : {}", with(recirculates))?;
        writeln!(to, "bond-hash-basis: {}", it.basis)?;
        let direct = recirculates && it.lb_output;
        let able = if direct { "enabled" } else { "disabled" };
        writeln!(to, "lb_output action: {able}, bond-id: {}", with(direct))?;
        if it.mode == Mode::BalanceSlb {
            writeln!(to, "all members active: {}", it.all_members_active)?;
        }
        writeln!(to, "updelay: {} ms\ndowndelay: {} ms", it.updelay, it.downdelay)?;
        if self.is_balanced() {
            writeln!(to, "next rebalance: {} ms", until(self.next_rebalance, now))?;
        }
        let status = match self.negotiation {
            Negotiation::Off => "off",
            Negotiation::Configured => "configured",
            Negotiation::Negotiated => "negotiated",
        };
        writeln!(to, "lacp_status: {status}\nlacp_fallback_ab: {}", it.fallback)?;
        let primary = match &it.primary {
            None => "<none>".into(),
            Some(name) if self.members.contains_key(name) => name.clone(),
            Some(name) => format!("{name} (no such member)"),
        };
        writeln!(to, "active-backup primary: {primary}")?;
        let mut members = self.members.iter();
        let found =
            members.find(|(_, it)| it.address == self.last_active && self.last_active != MacAddr::ZERO);
        let name = found.map_or("none", |(name, _)| name);
        writeln!(to, "active member mac: {}({name})", self.last_active)?;
        for (name, member) in &self.members {
            writeln!(to, "\nmember {name}: {}", if member.is_enabled { "enabled" } else { "disabled" })?;
            if self.active.as_ref() == Some(name) {
                writeln!(to, "  active member")?;
            }
            if let Some(time) = member.changes {
                let delay = if member.is_enabled { "downdelay" } else { "updelay" };
                writeln!(to, "  {delay} expires in {} ms", until(time, now))?;
            }
            writeln!(to, "  may_enable: {}", member.may_enable)?;
            if !self.is_balanced() {
                continue;
            }
            for (hash, bucket) in self.buckets.iter().enumerate() {
                if bucket.member.as_ref() == Some(name) && bucket.load >= 1024 {
                    writeln!(to, "  hash {hash}: {} kB load", bucket.load / 1024)?;
                }
            }
        }
        writeln!(to)
    }

    /// Returns the text of `lacp/show`; `None` without LACP.
    pub fn show_lacp(&self) -> Option<String> {
        let mut text = format!("---- {} ----\n", self.name);
        // Writing to a string does not fail.
        let _ = write_lacp(self.lacp.as_ref()?, &mut text);
        Some(text)
    }

    /// Returns the text of `lacp/show-stats`; `None` without LACP.
    pub fn show_lacp_counters(&self) -> Option<String> {
        let mut text = format!("---- {} statistics ----\n", self.name);
        for (name, member) in self.lacp.as_ref()?.members() {
            let it = &member.counters;
            let _ = write!(
                text,
                "\nmember: {name}:\n  TX PDUs: {}\n  RX PDUs: {}\n  RX Bad PDUs: {}\n  RX Marker Request PDUs: {}\n  \
                 Link Expired: {}\n  Link Defaulted: {}\n  Carrier Status Changed: {}\n",
                it.sent, it.received, it.bad, it.markers, it.expired, it.defaulted, it.link_changes
            );
        }
        Some(text)
    }
}

fn until(time: Millis, now: Millis) -> i128 {
    i128::from(time) - i128::from(now)
}

fn write_lacp(lacp: &Lacp, to: &mut String) -> std::fmt::Result {
    let it = lacp.settings();
    write!(to, "  status: {}", if it.active { "active" } else { "passive" })?;
    writeln!(to, "{}", if lacp.is_negotiated() { " negotiated" } else { "" })?;
    writeln!(to, "  sys_id: {}\n  sys_priority: {}", it.system, it.priority)?;
    let key = lacp.key().map_or_else(|| "none".into(), |key| key.to_string());
    writeln!(to, "  aggregation key: {key}\n  lacp_time: {}", if it.fast { "fast" } else { "slow" })?;
    for (name, member) in lacp.members() {
        let attached = if member.is_attached { "attached" } else { "detached" };
        writeln!(to, "\nmember: {name}: {} {attached}", member.status.name())?;
        let settings = &member.settings;
        writeln!(to, "  port_id: {}\n  port_priority: {}", settings.port_id, settings.port_priority)?;
        writeln!(to, "  may_enable: {}", lacp.may_enable(name))?;
        write_info("actor", &lacp.actor(member), to)?;
        write_info("partner", &member.partner, to)?;
    }
    Ok(())
}

fn write_info(side: &str, info: &Info, to: &mut String) -> std::fmt::Result {
    writeln!(to, "\n  {side} sys_id: {}\n  {side} sys_priority: {}", info.system, info.system_priority)?;
    writeln!(to, "  {side} port_id: {}\n  {side} port_priority: {}", info.port, info.port_priority)?;
    write!(to, "  {side} key: {}\n  {side} state:", info.key)?;
    for (state, name) in [
        (State::ACTIVITY, "activity"),
        (State::TIMEOUT, "timeout"),
        (State::AGGREGATION, "aggregation"),
        (State::SYNCHRONIZATION, "synchronized"),
        (State::COLLECTING, "collecting"),
        (State::DISTRIBUTING, "distributing"),
        (State::DEFAULTED, "defaulted"),
        (State::EXPIRED, "expired"),
    ] {
        if info.state.contains(state) {
            write!(to, " {name}")?;
        }
    }
    writeln!(to)
}
