//! Which parts of a packet a lookup depends on, the way that Open vSwitch's classifier finds flows.
//!
//! Flows with the same mask form a group. Groups are searched by their highest priority until no other could have a
//! better flow. Within a group, metadata are compared first, then the fields of each layer: where no flow of the group
//! agrees so far, the other layers do not matter. Prefixes of addresses and ports are compared only as far as they
//! decide.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use pipeline::bits::Bits;
use pipeline::ir::{Constant, KeyMatch, Match};

use crate::program::Layout;

/// Parts of keys that matter, by key.
pub(super) type Masks = Vec<Bits>;

/// No part of any key.
pub(super) fn nothing() -> Masks {
    Layout::get().keys.list.iter().map(|key| Bits::zero(key.width)).collect()
}

/// All of every key.
pub(super) fn everything() -> Masks {
    Layout::get().keys.list.iter().map(|key| Bits::ones(key.width)).collect()
}

/// Adds a part of a key.
pub(super) fn add(masks: &mut Masks, key: usize, mask: &Bits) {
    if let Some(place) = masks.get_mut(key) {
        *place = place.or(mask);
    }
}

/// Keys whose prefixes are compared bit by bit.
const PREFIXES: [&str; 4] = ["ip_dst", "ip_src", "ipv6_dst", "ipv6_src"];

/// Whether a key is a part of packets, and no metadata.
pub(super) fn is_in_packet(name: &str) -> bool {
    layer(name) > 0
}

/// The layer of a key: metadata, link, network, transport.
fn layer(name: &str) -> usize {
    match name {
        "eth_dst" | "eth_src" | "eth_type" | "vlan_tci" | "mpls" | "pbb_isid" | "pbb_uca" => 1,
        "ip_src" | "ip_dst" | "ipv6_src" | "ipv6_dst" | "ipv6_label" | "ipv6_exthdr" | "nw_proto"
        | "nw_tos" | "nw_ttl" | "ip_frag" | "arp_op" | "arp_spa" | "arp_tpa" | "arp_sha" | "arp_tha"
        | "nd_target" | "nd_reserved" | "nd_sll" | "nd_tll" | "nd_options_type" | "tcp_flags" => 2,
        "tp_src" | "tp_dst" => 3,
        _ => 0,
    }
}

/// A flow as lookups see it.
pub(super) struct Row<'a> {
    pub(super) priority: u16,
    pub(super) conditions: &'a [Match],
    /// Whether it decides; clauses of conjunctive matches do not.
    pub(super) decides: bool,
}

/// Flows with the same mask: rows, and conditions of each as key and value.
struct Group<'a> {
    mask: Vec<(usize, &'a Bits)>,
    highest: u16,
    rows: Vec<(u16, bool, Vec<&'a Bits>)>,
}

fn parts<'a>(conditions: &'a [Match]) -> Vec<(usize, &'a Bits, &'a Bits)> {
    let part = |condition: &'a Match| match &condition.is {
        KeyMatch::Mask(value, mask) => Some((condition.key as usize, value, mask)),
        _ => None,
    };
    conditions.iter().filter_map(part).collect()
}

/// The groups of flows, those with the highest priority first.
fn groups<'a>(rows: impl Iterator<Item = Row<'a>>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    let mut places: HashMap<Vec<(usize, &'a Bits)>, usize> = HashMap::new();
    for row in rows {
        let parts = parts(row.conditions);
        let mask: Vec<_> = parts.iter().map(|(key, _, mask)| (*key, *mask)).collect();
        let values = parts.iter().map(|(_, value, _)| *value).collect();
        let row = (row.priority, row.decides, values);
        match places.get(&mask).and_then(|place| groups.get_mut(*place)) {
            Some(group) => {
                group.highest = group.highest.max(row.0);
                group.rows.push(row);
            }
            None => {
                places.insert(mask.clone(), groups.len());
                groups.push(Group { mask, highest: row.0, rows: vec![row] });
            }
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.highest));
    groups
}

/// The length of a mask that is a prefix of its field.
fn prefix_len(mask: &Bits) -> Option<u16> {
    let width = mask.width();
    let len = (0..width).take_while(|i| mask.bit(width - 1 - i)).count() as u16;
    (*mask == prefix(width, len)).then_some(len)
}

fn prefix(width: u16, len: u16) -> Bits {
    Bits::ones(width).shl((width - len.min(width)).into())
}

/// The lengths of the prefixes that a value has, and the leading bits that decide this.
type Compared = (BTreeSet<u16>, u16);

/// Compares a value with prefixes.
fn compare(value: &Bits, prefixes: &[(&Bits, u16)]) -> Compared {
    let width = value.width();
    let common = |other: &Bits, len: u16| {
        (0..len).take_while(|i| value.bit(width - 1 - i) == other.bit(width - 1 - i)).count() as u16
    };
    let shared: Vec<(u16, u16)> = prefixes.iter().map(|(other, len)| (common(other, *len), *len)).collect();
    let found = shared.iter().filter(|(common, len)| common == len).map(|(_, len)| *len).collect();
    let most = shared.iter().map(|(common, _)| *common).max().unwrap_or(0);
    let differs = shared.iter().any(|(common, len)| *common == most && len > common);
    (found, if differs { most + 1 } else { most })
}

/// The prefixes of a key that flows have.
fn prefixes_of<'a>(groups: &[Group<'a>], key: usize) -> Vec<(&'a Bits, u16)> {
    let mut prefixes = Vec::new();
    for group in groups {
        let Some(at) = group.mask.iter().position(|(other, _)| *other == key) else { continue };
        let Some(len) = group.mask.get(at).and_then(|(_, mask)| prefix_len(mask)) else { continue };
        prefixes.extend(group.rows.iter().filter_map(|(_, _, values)| Some((*values.get(at)?, len))));
    }
    prefixes
}

/// How the prefixes of keys compare with a lookup's values. Each key is compared once, when it is first asked for.
struct Prefixes<'a> {
    groups: &'a [Group<'a>],
    values: &'a [Constant],
    compared: BTreeMap<usize, Compared>,
}

impl Prefixes<'_> {
    /// Whether no flow with this mask has the value's prefix, as a few bits of it tell; these are added.
    fn skip(&mut self, key: usize, mask: &Bits, masks: &mut Masks) -> bool {
        let (Some(len), Some(value)) = (prefix_len(mask), self.values.get(key)) else { return false };
        let compared = || compare(&value.value, &prefixes_of(self.groups, key));
        let (found, decide) = self.compared.entry(key).or_insert_with(compared);
        if found.contains(&len) || *decide > len {
            return false;
        }
        add(masks, key, &prefix(mask.width(), *decide));
        true
    }
}

/// Adds the parts of keys that the lookup of `values` among flows depends on.
pub(super) fn consult<'a>(rows: impl Iterator<Item = Row<'a>>, values: &[Constant], masks: &mut Masks) {
    let groups = groups(rows);
    let mut prefixes = Prefixes { groups: &groups, values, compared: BTreeMap::new() };
    let mut best: Option<u16> = None;
    for group in &groups {
        if best.is_some_and(|best| best >= group.highest) {
            break;
        }
        let found = search(&mut prefixes, group, values, masks);
        best = best.max(found);
    }
}

/// Searches a group; returns the priority of the flow found.
fn search(
    prefixes: &mut Prefixes<'_>,
    group: &Group<'_>,
    values: &[Constant],
    masks: &mut Masks,
) -> Option<u16> {
    let names = &Layout::get().keys.list;
    let name = |key: usize| names.get(key).map_or("", |key| key.name);
    let agrees = |row: &[&Bits], at: usize| {
        let (Some((key, mask)), Some(wanted)) = (group.mask.get(at), row.get(at)) else { return false };
        values.get(*key).is_some_and(|value| value.value.and(mask) == **wanted)
    };
    let mut layers: Vec<usize> = group.mask.iter().map(|(key, _)| layer(name(*key))).collect();
    layers.sort_unstable();
    layers.dedup();
    let last = layers.last().copied().unwrap_or(0);
    let in_layer = |of: usize| (0..group.mask.len()).filter(move |at| layer_at(group, *at, &name) == of);
    let mut left: Vec<_> = group.rows.iter().collect();
    let mut used: Vec<usize> = Vec::new();
    for of in layers {
        for at in in_layer(of) {
            let Some((key, mask)) = group.mask.get(at) else { continue };
            if PREFIXES.contains(&name(*key)) && prefixes.skip(*key, mask, masks) {
                used.iter().for_each(|at| fold(group, *at, masks));
                return None;
            }
        }
        used.extend(in_layer(of));
        left.retain(|(_, _, row)| in_layer(of).all(|at| agrees(row, at)));
        if left.is_empty() && of != last {
            used.iter().for_each(|at| fold(group, *at, masks));
            return None;
        }
    }
    if left.is_empty() && last == 3 {
        used.retain(|at| layer_at(group, *at, &name) != 3);
        used.iter().for_each(|at| fold(group, *at, masks));
        ports(group, values, masks);
        return None;
    }
    used.iter().for_each(|at| fold(group, *at, masks));
    left.iter().filter(|(_, decides, _)| *decides).map(|(priority, ..)| *priority).max()
}

fn layer_at<'n>(group: &Group<'_>, at: usize, name: &impl Fn(usize) -> &'n str) -> usize {
    group.mask.get(at).map_or(0, |(key, _)| layer(name(*key)))
}

/// Adds a part of a group's mask.
fn fold(group: &Group<'_>, at: usize, masks: &mut Masks) {
    if let Some((key, mask)) = group.mask.get(at) {
        add(masks, *key, mask);
    }
}

/// Adds the leading bits of the ports that tell that no flow of a group has them.
fn ports(group: &Group<'_>, values: &[Constant], masks: &mut Masks) {
    let names = &Layout::get().keys.list;
    let key = |name: &str| names.iter().position(|key| key.name == name);
    let (Some(src), Some(dst)) = (key("tp_src"), key("tp_dst")) else { return };
    let both = |of: &dyn Fn(usize, usize) -> Option<Bits>| {
        let part = |key: usize| {
            let at = group.mask.iter().position(|(other, _)| *other == key);
            at.and_then(|at| of(key, at)).unwrap_or_else(|| Bits::zero(16))
        };
        part(src).concat(&part(dst))
    };
    let mask = both(&|_, at| Some((*group.mask.get(at)?.1).clone()));
    let value = both(&|key, _| Some(values.get(key)?.value.clone()));
    // Only this group's ports count.
    let len = 32 - (0..32).take_while(|i| !mask.bit(*i)).count() as u16;
    let rows: Vec<Bits> = group
        .rows
        .iter()
        .map(|(_, _, row)| both(&|_, at| row.get(at).map(|value| (*value).clone())))
        .collect();
    let prefixes: Vec<_> = rows.iter().map(|row| (row, len)).collect();
    let (_, decide) = compare(&value, &prefixes);
    let decisive = prefix(32, decide).and(&mask);
    add(masks, src, &decisive.slice(31, 16));
    add(masks, dst, &decisive.slice(15, 0));
}
