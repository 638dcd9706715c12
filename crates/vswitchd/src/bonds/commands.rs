//! Commands of bonds and LACP (ovs-vswitchd(8)), with their words for members of before version 2.15, too.

use std::sync::Arc;

use packet::MacAddr;
use unixctl::{Commands, Reply};

use super::{Bonds, Numbered, now};

/// Adds the commands.
pub(crate) fn add(commands: &mut Commands, bonds: &Arc<Bonds>) {
    let subject = bonds.clone();
    commands.add("bond/list", "", 0..=0, move |_| Ok(subject.list()));
    let subject = bonds.clone();
    commands.add("bond/show", "[port]", 0..=1, move |words| {
        subject.each(words.first(), "no such bond", |it| {
            it.bond.is_bond().then(|| it.bond.show(it.number, now()))
        })
    });
    let subject = bonds.clone();
    commands.add("lacp/show", "[port]", 0..=1, move |words| {
        subject.each(words.first(), "no such lacp object", |it| it.bond.show_lacp())
    });
    let subject = bonds.clone();
    commands.add("lacp/show-stats", "[port]", 0..=1, move |words| {
        subject.each(words.first(), "no such lacp object", |it| it.bond.show_lacp_counters())
    });
    for name in ["bond/set-active-member", "bond/set-active-slave"] {
        let subject = bonds.clone();
        commands.add(name, "port member", 2..=2, move |words| {
            subject.on_member(words, |it, member| {
                let is_change = it.bond.choose(member).map_err(|error| error.to_string())?;
                Ok(if is_change { "done" } else { "no change" }.into())
            })
        });
    }
    for (name, enable) in [
        ("bond/enable-member", true),
        ("bond/enable-slave", true),
        ("bond/disable-member", false),
        ("bond/disable-slave", false),
    ] {
        let subject = bonds.clone();
        commands.add(name, "port member", 2..=2, move |words| {
            subject.on_member(words, |it, member| {
                it.bond.force(member, enable).map_err(|error| error.to_string())?;
                Ok(if enable { "enabled" } else { "disabled" }.into())
            })
        });
    }
    let subject = bonds.clone();
    commands.add("bond/migrate", "port hash member", 3..=3, move |words| {
        let [port, hash, member] = words else { return Err("expected a port, a hash and a member".into()) };
        subject.on_bond(port, |it| {
            it.bond.migrate(hash, member).map_err(|error| error.to_string())?;
            Ok("migrated".into())
        })
    });
    commands.add("bond/hash", "mac [vlan] [basis]", 1..=3, hash);
}

impl Bonds {
    fn list(&self) -> String {
        let bridges = self.bridges();
        let bonds = bridges.values().flat_map(|bridge| bridge.bonds.values());
        let lines = bonds.filter(|it| it.bond.is_bond()).map(|it| it.bond.list(it.number));
        "bond\ttype\trecircID\tmembers\n".to_owned() + &lines.collect::<String>()
    }

    /// Returns the texts of all bonds that have one, or of the one called `name`.
    fn each(
        &self,
        name: Option<&String>,
        missing: &str,
        text: impl Fn(&Numbered) -> Option<String>,
    ) -> Reply {
        let bridges = self.bridges();
        let bonds = bridges.values().flat_map(|bridge| &bridge.bonds);
        let found = bonds.filter(|(other, _)| name.is_none_or(|name| name == *other));
        let texts: Vec<_> = found.filter_map(|(_, it)| text(it)).collect();
        match name {
            Some(_) if texts.is_empty() => Err(missing.into()),
            _ => Ok(texts.concat()),
        }
    }

    /// Does something to a bond; packets meet it on return.
    fn on_bond(&self, name: &str, act: impl FnOnce(&mut Numbered) -> Reply) -> Reply {
        let mut bridges = self.bridges();
        let mut bonds = bridges.values_mut().filter_map(|bridge| bridge.bonds.get_mut(name));
        let bond = bonds.find(|it| it.bond.is_bond()).ok_or("no such bond")?;
        let done = act(bond);
        drop(bridges);
        self.run();
        done
    }

    fn on_member(&self, words: &[String], act: impl FnOnce(&mut Numbered, &str) -> Reply) -> Reply {
        let [port, member] = words else { return Err("expected a port and a member".into()) };
        self.on_bond(port, |it| act(it, member))
    }
}

fn hash(words: &[String]) -> Reply {
    let number = |at: usize, wrong: &str| match words.get(at) {
        None => Ok(0),
        Some(text) => text.parse::<u32>().map_err(|_| wrong.to_owned()),
    };
    let vlan = number(1, "invalid vlan")?;
    let basis = number(2, "invalid basis")?;
    let mac: MacAddr = words.first().and_then(|text| text.parse().ok()).ok_or("invalid mac")?;
    // As Open vSwitch does, bits that no VLAN has are ignored.
    Ok(bond::hash::source(mac, vlan as u16, basis).to_string())
}
