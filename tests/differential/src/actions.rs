//! Random actions, instructions and groups, as text.

use fastrand::Rng;
use openflow::field::{Access, FIELDS, Field, FieldId, Prerequisite};

use crate::case::{PORTS, TABLES};
use crate::packets::Protocol;
use crate::rules;
use crate::values::{self, of};

/// Where actions are.
#[derive(Debug, Clone)]
pub struct Place {
    /// The flow's table; [`TABLES`] in groups, which resubmit nothing.
    pub table: u8,
    /// Groups that there are, numbered from 1.
    pub groups: u32,
    /// Prerequisites that the match fulfils.
    pub fulfilled: Vec<Prerequisite>,
}

/// Fields that actions neither read nor write here.
fn is_left_out(field: &Field) -> bool {
    let elsewhere = ["tun_", "ct_", "nsh_"].iter().any(|prefix| field.name.starts_with(prefix));
    // What the datapath makes of packets differs; a new ingress port is told by `resubmit`.
    let internal = matches!(
        field.id,
        FieldId::DpHash | FieldId::RecircId | FieldId::ConjId | FieldId::PacketType | FieldId::InPortOxm
    );
    elsewhere && field.id != FieldId::TunId || internal
}

/// A field whose prerequisites are fulfilled, of those that `wanted` picks.
fn field(random: &mut Rng, place: &Place, wanted: impl Fn(&Field) -> bool) -> &'static Field {
    let fits = |field: &&Field| {
        place.fulfilled.contains(&field.prerequisite) && !is_left_out(field) && wanted(field)
    };
    let all: Vec<&Field> = FIELDS.iter().filter(fits).collect();
    let specific: Vec<&Field> =
        all.iter().copied().filter(|field| field.prerequisite != Prerequisite::None).collect();
    let pool = if specific.is_empty() || random.u8(..3) == 0 { all } else { specific };
    pool[random.usize(..pool.len())]
}

/// A field's name in NXM, or else in OXM, with a range of bits.
fn part(random: &mut Rng, field: &Field, bits: Option<u16>) -> (String, u16) {
    let name = field.numbers.first().map_or("", |number| number.name);
    let bits = bits.filter(|bits| *bits <= field.bits).unwrap_or_else(|| match random.u8(..3) {
        0 => field.bits.min(32),
        _ => random.u16(1..=field.bits.min(32)),
    });
    let first = random.u16(..=field.bits - bits);
    (format!("{name}[{first}..{}]", first + bits - 1), bits)
}

fn output(random: &mut Rng) -> String {
    match random.u8(..16) {
        0 => "IN_PORT".to_owned(),
        1 => "ALL".to_owned(),
        2 => "FLOOD".to_owned(),
        3 => "CONTROLLER".to_owned(),
        4 => {
            format!(
                "controller(reason={},max_len=65535)",
                of(random, &["action", "action", "no_match", "invalid_ttl"])
            )
        }
        5 => format!("output(port={},max_len={})", random.u32(1..=PORTS), random.u16(14..80)),
        6 => "output:NXM_NX_REG0[0..15]".to_owned(),
        _ => format!("output:{}", random.u32(1..=PORTS)),
    }
}

fn set_field(random: &mut Rng, place: &Place) -> String {
    let settable = |field: &Field| field.access != Access::ReadOnly && field.id != FieldId::InPort;
    let field = field(random, place, settable);
    format!("set_field:{}->{}", values::value_text(random, field), field.name)
}

fn load(random: &mut Rng, place: &Place) -> String {
    let to = field(random, place, |field| field.access == Access::Settable);
    let (part, bits) = part(random, to, None);
    let value = values::value(random, to) as u64 & (u64::MAX >> (64 - bits));
    format!("load:{value:#x}->{part}")
}

fn copy(random: &mut Rng, place: &Place) -> String {
    let from = field(random, place, |_| true);
    let (source, bits) = part(random, from, None);
    let to = field(random, place, |field| field.access == Access::Settable && field.bits >= bits);
    let (destination, _) = part(random, to, Some(bits));
    format!("move:{source}->{destination}")
}

fn stack(random: &mut Rng, place: &Place, pops: bool) -> String {
    let one = field(random, place, |field| !pops || field.access == Access::Settable);
    let (part, _) = part(random, one, None);
    format!("{}:{part}", if pops { "pop" } else { "push" })
}

fn learn(random: &mut Rng) -> String {
    let fields = of(
        random,
        &[
            "NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]",
            "NXM_OF_VLAN_TCI[0..11]",
            "NXM_OF_ETH_SRC[]",
            "NXM_OF_IN_PORT[]",
        ],
    );
    let deed = of(
        random,
        &["output:NXM_OF_IN_PORT[]", "load:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15]", "load:5->NXM_NX_REG1[]"],
    );
    format!("learn(table={},priority={},{fields},{deed})", TABLES - 1, 100 + random.u8(..3))
}

/// An action for lists that are applied.
fn action(random: &mut Rng, place: &Place, depth: u8) -> String {
    match random.u8(..44) {
        0..=9 => output(random),
        10..=15 => set_field(random, place),
        16..=18 => load(random, place),
        19 | 20 => copy(random, place),
        21 => stack(random, place, false),
        22 => stack(random, place, true),
        // What new tags and labels have is set: it differs (`explained`).
        23 => format!(
            "push_vlan:{:#x},set_field:4101->vlan_vid,set_field:3->vlan_pcp",
            of(random, &[0x8100u16, 0x8100, 0x88a8])
        ),
        24 | 25 => "pop_vlan".to_owned(),
        26 => format!(
            "push_mpls:{:#x},set_field:7->mpls_label,set_field:3->mpls_tc,set_mpls_ttl:9",
            of(random, &[0x8847u16, 0x8847, 0x8848])
        ),
        27 => format!("pop_mpls:{:#x}", of(random, &[0x0800u16, 0x86dd, 0x8847, 0x88b5])),
        28 => of(random, &["dec_ttl", "dec_ttl", "dec_ttl(0)", "dec_ttl(0,1)"]).to_owned(),
        29 => "dec_mpls_ttl".to_owned(),
        30 => of(
            random,
            &[
                "mod_vlan_vid:5",
                "mod_vlan_pcp:3",
                "mod_nw_tos:40",
                "mod_nw_ecn:2",
                "mod_nw_ttl:9",
                "mod_tp_src:99",
            ],
        )
        .to_owned(),
        31 => of(
            random,
            &[
                "mod_dl_src:02:00:00:00:00:03",
                "mod_dl_dst:02:00:00:00:00:01",
                "mod_nw_src:10.0.0.2",
                "mod_nw_dst:10.1.0.3",
                "mod_tp_dst:80",
                "set_mpls_label:7",
                "set_mpls_tc:3",
                "set_mpls_ttl:2",
            ],
        )
        .to_owned(),
        32 | 33 if place.table + 1 < TABLES => {
            let table = random.u8(place.table + 1..TABLES);
            match random.u8(..3) {
                0 => format!("resubmit({},{table})", random.u32(1..=PORTS)),
                _ => format!("resubmit(,{table})"),
            }
        }
        34 if place.groups > 0 => format!("group:{}", random.u32(1..=place.groups)),
        35 if depth < 2 => format!("clone({})", list(random, place, depth + 1).join(",")),
        36 => of(
            random,
            &["note:01.02.03", "set_queue:0", "pop_queue", "set_tunnel:7", "set_tunnel64:0x100000007"],
        )
        .to_owned(),
        37 => "exit".to_owned(),
        38 if random.u8(..4) == 0 => format!("check_pkt_larger({})->NXM_NX_REG0[0]", random.u8(40..80)),
        39 if random.bool() => learn(random),
        40 => "controller(userdata=01.02.03,max_len=65535)".to_owned(),
        _ => output(random),
    }
}

fn list(random: &mut Rng, place: &Place, depth: u8) -> Vec<String> {
    (0..of(random, &[1, 1, 2, 2, 3, 4])).map(|_| action(random, place, depth)).collect()
}

/// An action of the action set.
fn of_set(random: &mut Rng, place: &Place) -> String {
    match random.u8(..12) {
        0..=3 => format!("output:{}", random.u32(1..=PORTS)),
        4 => output(random),
        5..=7 => set_field(random, place),
        8 => "pop_vlan".to_owned(),
        9 => "push_vlan:0x8100,set_field:4097->vlan_vid,set_field:0->vlan_pcp".to_owned(),
        10 if place.groups > 0 => format!("group:{}", random.u32(1..=place.groups)),
        10 => "push_mpls:0x8847,set_mpls_label:7,set_mpls_tc:3,set_mpls_ttl:9".to_owned(),
        _ => of(random, &["dec_ttl", "dec_mpls_ttl", "pop_mpls:0x800", "set_queue:0", "mod_nw_tos:40"])
            .to_owned(),
    }
}

/// Leaves out of a set, or a bucket, what switches do in their own ways (`explained`): TTLs that expire before new headers
/// are complete, TTLs of labels that are not there.
fn comparable(set: &mut Vec<String>, labelled: bool) {
    let pushes = set.iter().any(|action| action.contains("push_"));
    let labelled = labelled && !set.iter().any(|action| action.contains("pop_mpls"));
    set.retain(|action| {
        // Sets have outputs to ports only.
        if ["controller(", "output(", "output:NXM"].iter().any(|other| action.starts_with(other)) {
            return false;
        }
        let lost =
            action.contains("dec_ttl") && pushes || action.contains("dec_mpls_ttl") && (pushes || !labelled);
        !lost
    });
    if !set.iter().any(|action| is_output(action)) {
        set.push("output:1".to_owned());
    }
}

/// Whether an action sends the packet somewhere.
fn is_output(action: &str) -> bool {
    ["output", "group", "IN_PORT", "ALL", "FLOOD", "CONTROLLER"].iter().any(|word| action.starts_with(word))
}

/// Instructions of a flow.
pub fn instructions(random: &mut Rng, place: &Place) -> Vec<String> {
    let mut texts = vec![];
    if random.u8(..4) > 0 {
        texts.extend(list(random, place, 0));
    }
    if random.u8(..12) == 0 {
        texts.push("clear_actions".to_owned());
    }
    if random.u8(..4) == 0 {
        let mut set: Vec<_> = (0..random.u8(1..4)).map(|_| of_set(random, place)).collect();
        comparable(&mut set, place.fulfilled.contains(&Prerequisite::Mpls));
        texts.push(format!("write_actions({})", set.join(",")));
    }
    if random.u8(..6) == 0 {
        texts.push(of(random, &["write_metadata:0x1", "write_metadata:0x2/0xf"]).to_owned());
    }
    if place.table + 1 < TABLES && random.u8(..2) == 0 {
        texts.push(format!("goto_table:{}", random.u8(place.table + 1..TABLES)));
    }
    texts
}

/// A group. Groups of kind `select` have one bucket, since switches choose by hashes of their own.
pub fn group(random: &mut Rng, id: u32, protocols: &[Protocol]) -> String {
    let kind = of(random, &["all", "all", "select", "indirect", "ff"]);
    let protocol = protocols[random.usize(..protocols.len())];
    let (_, fulfilled) = rules::context(random, protocol);
    // Only groups before this one: there are no loops.
    let place = Place { table: TABLES, groups: id - 1, fulfilled };
    let buckets = match kind {
        "all" | "ff" => random.u8(..4),
        _ => 1,
    };
    let mut text = format!("group_id={id},type={kind}");
    for _ in 0..buckets {
        let mut actions: Vec<_> = (0..random.u8(1..4)).map(|_| of_set(random, &place)).collect();
        comparable(&mut actions, false);
        let actions = actions.join(",");
        let watch =
            if kind == "ff" { format!("watch_port:{},", random.u32(1..=PORTS + 1)) } else { String::new() };
        text += &format!(",bucket={watch}actions={actions}");
    }
    text
}
