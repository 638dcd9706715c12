//! Random flows and groups.

use fastrand::Rng;
use openflow::field::{FIELDS, Field, FieldId, Prerequisite};

use crate::actions::{self, Place};
use crate::case::{Rule, TABLES};
use crate::packets::Protocol;
use crate::values;

/// Fields that flows do not match here.
const LEFT_OUT: &[FieldId] = &[
    // Another form of a field in the list, or matched through the protocol.
    FieldId::InPortOxm,
    FieldId::EthType,
    FieldId::VlanTci,
    FieldId::NwTos,
    // What the datapath makes of packets: hashes, recirculation.
    FieldId::DpHash,
    FieldId::RecircId,
    // Only flows with conjunctions have it.
    FieldId::ConjId,
    // Only Ethernet packets come.
    FieldId::PacketType,
];

/// Whether a field belongs to tunnels, connection tracking or network service headers, which are not compared.
fn is_elsewhere(field: &Field) -> bool {
    let by_name = |prefix: &str| field.name.starts_with(prefix);
    (by_name("tun_") && field.id != FieldId::TunId) || by_name("ct_") || by_name("nsh_")
}

/// What a match says besides fields of its own choice, and which prerequisites that fulfils.
pub fn context(random: &mut Rng, protocol: Protocol) -> (Vec<String>, Vec<Prerequisite>) {
    use Prerequisite as P;
    let mut fields = vec![];
    let mut fulfilled = vec![P::None];
    match protocol {
        Protocol::Other => {}
        Protocol::Arp => {
            fields.push("eth_type=0x806".to_owned());
            fulfilled.push(P::Arp);
        }
        Protocol::Rarp => {
            fields.push("eth_type=0x8035".to_owned());
            fulfilled.push(P::Arp);
        }
        Protocol::Mpls(ethertype) => {
            fields.push(format!("eth_type={ethertype:#x}"));
            fulfilled.push(P::Mpls);
        }
        Protocol::Ip(v6, number) => {
            fields.push(format!("eth_type={}", if v6 { "0x86dd" } else { "0x800" }));
            fulfilled.extend([P::Ip, if v6 { P::Ipv6 } else { P::Ipv4 }]);
            if random.u8(..3) > 0 {
                fields.push(format!("nw_proto={number}"));
                match (number, v6) {
                    (6, _) => fulfilled.push(P::Tcp),
                    (17, _) => fulfilled.push(P::Udp),
                    (132, _) => fulfilled.push(P::Sctp),
                    (1, false) => fulfilled.push(P::Icmpv4),
                    (58, true) => {
                        fulfilled.push(P::Icmpv6);
                        let kind = values::of(random, &[0, 135, 136]);
                        if kind > 0 {
                            fields.push(format!("icmpv6_type={kind}"));
                            fields.push("icmpv6_code=0".to_owned());
                            fulfilled.push(P::Nd);
                            fulfilled.push(if kind == 135 { P::NdSolicit } else { P::NdAdvert });
                        }
                    }
                    _ => {}
                }
            }
        }
    }
    if random.u8(..5) == 0 {
        fields.push(format!("vlan_vid={:#x}/0x1000", 0x1000));
        fulfilled.push(P::VlanVid);
    }
    (fields, fulfilled)
}

/// A random match, and the prerequisites that it fulfils.
fn matches(random: &mut Rng, protocol: Protocol) -> (Vec<String>, Vec<Prerequisite>) {
    let (mut fields, fulfilled) = context(random, protocol);
    let eligible: Vec<&Field> = FIELDS
        .iter()
        .filter(|field| fulfilled.contains(&field.prerequisite) && !LEFT_OUT.contains(&field.id))
        .filter(|field| !is_elsewhere(field))
        .collect();
    // Fields of the protocol before registers, of which there are many.
    let specific: Vec<&Field> =
        eligible.iter().copied().filter(|field| field.prerequisite != Prerequisite::None).collect();
    let named = |fields: &[String], field: &Field| fields.iter().any(|text| is_named(text, field));
    for _ in 0..values::of(random, &[0, 0, 1, 1, 2, 3]) {
        let pool = if specific.is_empty() || random.u8(..3) == 0 { &eligible } else { &specific };
        let field = pool[random.usize(..pool.len())];
        if named(&fields, field) {
            continue;
        }
        let text = values::value_text(random, field);
        fields.push(format!("{}={text}", field.name));
    }
    (fields, fulfilled)
}

/// Whether `text` matches this field.
fn is_named(text: &str, field: &Field) -> bool {
    text.split_once('=').is_some_and(|(name, _)| name == field.name)
}

/// Random groups and flows about protocols.
pub fn random(random: &mut Rng, protocols: &[Protocol]) -> (Vec<String>, Vec<Rule>) {
    let groups: Vec<String> = match random.u8(..3) {
        0 => (1..=random.u32(1..4)).map(|id| actions::group(random, id, protocols)).collect(),
        _ => vec![],
    };
    let mut rules = vec![];
    for _ in 0..random.usize(1..16) {
        let protocol = match random.u8(..6) {
            0 => Protocol::Other,
            _ => protocols[random.usize(..protocols.len())],
        };
        let table = random.u8(..TABLES) * random.u8(..2);
        let (matches, fulfilled) = matches(random, protocol);
        let place = Place { table, groups: groups.len() as u32, fulfilled };
        let actions = actions::instructions(random, &place);
        rules.push(Rule { table, priority: random.u16(..6), cookie: 0, matches, actions });
    }
    // Later tables are reached more often than a match in them.
    for table in 0..TABLES {
        if random.u8(..8) > 0 {
            let place = Place { table, groups: groups.len() as u32, fulfilled: vec![Prerequisite::None] };
            let actions = actions::instructions(random, &place);
            rules.push(Rule { table, priority: 0, cookie: 0, matches: vec![], actions });
        }
    }
    if random.u8(..12) == 0 {
        rules.extend(conjunction(random, protocols[0]));
    }
    (groups, distinct(rules))
}

/// Rules of a conjunctive match of two clauses.
fn conjunction(random: &mut Rng, protocol: Protocol) -> Vec<Rule> {
    let clause = |matches: Vec<String>, n: u8| Rule {
        table: 0,
        priority: 9,
        cookie: 0,
        matches,
        actions: vec![format!("conjunction(7,{n}/2)")],
    };
    let mut rules = vec![];
    for n in [1, 1, 2, 2] {
        let (matches, _) = matches(random, protocol);
        rules.push(clause(matches, n));
    }
    let place = Place { table: 0, groups: 0, fulfilled: vec![Prerequisite::None] };
    let actions = actions::instructions(random, &place);
    rules.push(Rule { table: 0, priority: 9, cookie: 0, matches: vec!["conj_id=7".to_owned()], actions });
    rules
}

/// Gives flows cookies, and priorities of their own in their table: of two that overlap, switches choose any.
fn distinct(rules: Vec<Rule>) -> Vec<Rule> {
    let mut priorities: Vec<(u8, u16)> = vec![];
    let mut kept = vec![];
    for mut rule in rules {
        let is_conjunctive = rule.priority == 9;
        while !is_conjunctive && priorities.contains(&(rule.table, rule.priority)) {
            rule.priority += 10;
        }
        priorities.push((rule.table, rule.priority));
        rule.cookie = priorities.len() as u64;
        kept.push(rule);
    }
    kept
}
