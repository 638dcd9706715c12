//! The switch against a naive model of a VLAN-aware learning bridge: for any ports and any frames, every port gets the
//! same frames in the same order, and every frame is accounted for.

use std::collections::HashMap;

use fabric::port::VidSet;
use fabric::{DropReason, VlanMode};
use packet::{MacAddr, Vid, VlanTag};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::frames::build;
use crate::rig::{Rig, make};

/// A frame as its fields.
#[derive(Debug, Clone)]
struct Parts {
    dst: MacAddr,
    src: MacAddr,
    tag: Option<VlanTag>,
    /// The tag of a tunnel's customer, behind `tag`.
    inner: Option<VlanTag>,
    number: u32,
    len: usize,
}

impl Parts {
    fn bytes(&self) -> Vec<u8> {
        let Some(inner) = self.inner else {
            return build(self.dst, self.src, self.tag, self.number, self.len);
        };
        let mut bytes = build(self.dst, self.src, Some(inner), self.number, self.len);
        if let Some(tag) = self.tag {
            let [high, low] = tag.to_tci().to_be_bytes();
            bytes.splice(12..12, [0x81, 0, high, low]);
        }
        bytes
    }
}

/// IEEE 802.1Q §8.6 by the book: one frame, one table, no optimization.
struct Model<'a> {
    ports: &'a [VlanMode],
    stations: HashMap<(u16, MacAddr), usize>,
    delivered: Vec<Vec<Vec<u8>>>,
    drops: HashMap<(usize, DropReason), u64>,
}

impl Model<'_> {
    fn dropped(&mut self, from: usize, reason: DropReason) {
        *self.drops.entry((from, reason)).or_default() += 1;
    }

    fn frame(&mut self, from: usize, frame: &Parts) {
        let frame = match &self.ports[from] {
            VlanMode::Tunnel(_) => &Parts { tag: None, inner: frame.tag, ..frame.clone() },
            _ => frame,
        };
        let aware = self.ports.iter().any(|mode| *mode != VlanMode::Transparent);
        let on_wire = frame.tag.map_or(0, |tag| tag.vid);
        let vid = match &self.ports[from] {
            VlanMode::Transparent => Some(on_wire),
            VlanMode::Access(vid) => (on_wire == 0).then_some(vid.get()),
            VlanMode::Trunk { native, .. } if on_wire == 0 => native.map(Vid::get),
            VlanMode::NativeTagged { native, .. } if on_wire == 0 => Some(native.get()),
            VlanMode::Trunk { allowed, .. } | VlanMode::NativeTagged { allowed, .. } => {
                allowed.contains(on_wire).then_some(on_wire)
            }
            VlanMode::Tunnel(vid) => Some(vid.get()),
        };
        let Some(vid) = vid else { return self.dropped(from, DropReason::Vlan) };
        if frame.src.0[0] & 1 == 0 {
            self.stations.insert((vid, frame.src), from);
        }
        if frame.dst.0[..5] == [0x01, 0x80, 0xc2, 0, 0] && frame.dst.0[5] < 16 {
            return self.dropped(from, DropReason::ReservedGroup);
        }
        let known = self.stations.get(&(vid, frame.dst)).copied();
        if known == Some(from) {
            return self.dropped(from, DropReason::SamePort);
        }
        let mut delivered = false;
        for to in 0..self.ports.len() {
            if to == from || known.is_some_and(|known| known != to) {
                continue;
            }
            let with_tag = Some(VlanTag { vid, ..frame.tag.unwrap_or_default() });
            let tag = match &self.ports[to] {
                _ if !aware || vid == 0 && self.ports[to] == VlanMode::Transparent => frame.tag,
                VlanMode::Transparent => with_tag,
                VlanMode::Access(own) | VlanMode::Tunnel(own) if own.get() == vid => None,
                VlanMode::Trunk { native: Some(native), .. } if native.get() == vid => None,
                VlanMode::Trunk { allowed, .. } | VlanMode::NativeTagged { allowed, .. }
                    if allowed.contains(vid) =>
                {
                    with_tag
                }
                _ => continue,
            };
            self.delivered[to].push(Parts { tag, ..frame.clone() }.bytes());
            delivered = true;
        }
        if !delivered {
            self.dropped(from, if known.is_some() { DropReason::Vlan } else { DropReason::NoDestination });
        }
    }
}

fn vlan_mode() -> impl Strategy<Value = VlanMode> {
    let allowed = vec(1u16..5, 0..4).prop_map(|vids| {
        let mut set = VidSet::empty();
        vids.iter().for_each(|vid| set.insert(*vid));
        set
    });
    prop_oneof![
        Just(VlanMode::Transparent),
        (1u16..4).prop_filter_map("a VLAN", Vid::new).prop_map(VlanMode::Access),
        (1u16..4).prop_filter_map("a VLAN", Vid::new).prop_map(VlanMode::Tunnel),
        (0u16..4, allowed).prop_map(|(native, mut allowed)| {
            // Documented: the native VLAN is one of those carried.
            allowed.insert(native);
            let mut without_zero = VidSet::empty();
            allowed.iter().filter(|vid| *vid > 0).for_each(|vid| without_zero.insert(vid));
            VlanMode::Trunk { native: Vid::new(native), allowed: without_zero }
        }),
        (1u16..4, vec(1u16..5, 0..4)).prop_map(|(native, vids)| {
            let mut allowed = VidSet::empty();
            vids.into_iter().chain([native]).for_each(|vid| allowed.insert(vid));
            VlanMode::NativeTagged { native: Vid::new(native).unwrap(), allowed }
        }),
    ]
}

fn ports() -> impl Strategy<Value = Vec<VlanMode>> {
    prop_oneof![1 => vec(Just(VlanMode::Transparent), 2..6), 3 => vec(vlan_mode(), 2..6)]
}

fn station() -> impl Strategy<Value = MacAddr> {
    (0u8..6).prop_map(|n| MacAddr([2, 0, 0, 0, 0, n]))
}

fn group() -> impl Strategy<Value = MacAddr> {
    prop_oneof![
        Just(MacAddr::BROADCAST),
        Just(MacAddr([0x33, 0x33, 0, 0, 0, 1])),
        (0u8..0x12).prop_map(|n| MacAddr([0x01, 0x80, 0xc2, 0, 0, n])),
    ]
}

fn frame() -> impl Strategy<Value = Parts> {
    let vid = prop_oneof![4 => 1u16..5, 2 => Just(0u16), 1 => Just(4095u16)];
    let tag = (0u8..8, any::<bool>(), vid).prop_map(|(pcp, dei, vid)| VlanTag { pcp, dei, vid });
    let dst = prop_oneof![4 => station(), 1 => group()];
    let src = prop_oneof![20 => station(), 1 => group()];
    let len = prop_oneof![3 => Just(46usize), 2 => 4usize..400, 1 => 1000usize..5000];
    (dst, src, proptest::option::of(tag), any::<u32>(), len).prop_map(|(dst, src, tag, number, len)| Parts {
        dst,
        src,
        tag,
        inner: None,
        number,
        len,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn delivers_as_the_standard_requires(
        ports in ports(),
        bursts in vec((any::<prop::sample::Index>(), vec(frame(), 1..40)), 1..12),
        workers in 1usize..3,
    ) {
        let rig = Rig::new(workers, make("learning", &[]));
        let clients: Vec<_> =
            ports.iter().enumerate().map(|(i, vlan)| rig.port(&format!("p{i}"), vlan.clone())).collect();
        let mut model = Model {
            ports: &ports,
            stations: HashMap::new(),
            delivered: vec![Vec::new(); ports.len()],
            drops: HashMap::new(),
        };
        for (from, frames) in &bursts {
            let from = from.index(ports.len());
            frames.iter().for_each(|frame| model.frame(from, frame));
            clients[from].send_and_settle(frames.iter().map(Parts::bytes));
        }
        for (i, client) in clients.iter().enumerate() {
            prop_assert_eq!(client.take(), &model.delivered[i][..], "port {}", i);
            for reason in DropReason::ALL {
                let expected = model.drops.get(&(i, *reason)).copied().unwrap_or(0);
                prop_assert_eq!(rig.drops(client, *reason), expected, "port {}: {}", i, reason.name());
            }
        }
    }
}
