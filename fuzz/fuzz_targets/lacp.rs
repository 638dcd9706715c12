//! A hostile partner of a bond: frames of Slow Protocols with any contents, between links that come and go.
//!
//! Invariants:
//! - No panic; a partner makes the bond send one frame for each member and run at most, and each is a valid LACPDU.
//! - Attached members have one partner, system and key.
//! - Only members send, and the active one and those of buckets are members.
//! - Whatever is due next is due later than now.
#![no_main]

use std::collections::BTreeSet;

use bond::lacp::pdu::{FRAME_LEN, Frame, Info, Pdu, State};
use bond::view::Output;
use bond::{Bond, LacpSettings, MemberSettings, Mode, Settings};
use libfuzzer_sys::fuzz_target;
use packet::MacAddr;
use support::Bytes;

const NAMES: [&str; 3] = ["x", "y", "z"];

fuzz_target!(|data: &[u8]| {
    let mut from = Bytes::new(data);
    let settings = read_settings(&mut from);
    let mut bond = Bond::new("b", settings.clone());
    let mut now = 1;
    bond.configure(settings, &members(3, &mut from), now);
    while !from.is_empty() {
        now += u64::from(from.u16());
        let name = NAMES[from.below(3)];
        match from.below(6) {
            0 => bond.receive(name, from.slice(FRAME_LEN), now),
            1 | 2 => bond.receive(name, &pdu(&mut from).frame(MacAddr::ZERO), now),
            3 => bond.set_link(name, from.flag(), mac(from.u8()), now),
            4 => {
                let settings = read_settings(&mut from);
                bond.configure(settings, &members(1 + from.below(3), &mut from), now);
            }
            _ => bond.view().loads.add(from.u8().into(), from.u32()),
        }
        let outcome = bond.run(now);
        assert!(outcome.frames.len() <= bond.members().count());
        for (member, frame) in &outcome.frames {
            assert!(bond.has(member) && matches!(Frame::parse(frame), Frame::Pdu(_)));
        }
        assert!(bond.next_due().is_none_or(|due| due > now), "{:?} at {now}", bond.next_due());
        check(&bond);
    }
});

fn check(bond: &Bond) {
    let attached: BTreeSet<_> = bond
        .lacp()
        .into_iter()
        .flat_map(|lacp| lacp.members().values())
        .filter(|member| member.is_attached)
        .map(|member| (member.partner.system, member.partner.key))
        .collect();
    assert!(attached.len() <= 1);
    let view = bond.view();
    match &view.output {
        Output::Plain | Output::Nothing => {}
        Output::Member(member) => assert!(*member < view.members.len()),
        Output::BySource(_, buckets) | Output::ByFlow(_, buckets) => {
            // Either some member is enabled and has them all, or none has any.
            assert!(buckets.iter().all(|bucket| bucket.is_some() == buckets[0].is_some()));
            assert!(buckets.iter().flatten().all(|member| *member < view.members.len()));
        }
    }
    // Texts have no contents of a partner but numbers.
    assert!(bond.show(1, 0).is_ascii() && bond.show_lacp().is_none_or(|text| text.is_ascii()));
}

fn read_settings(from: &mut Bytes) -> Settings {
    let bits = from.u8();
    let lacp = LacpSettings {
        active: bits & 1 != 0,
        fast: bits & 2 != 0,
        system: mac(1),
        priority: 100,
        fallback: bits & 4 != 0,
    };
    Settings {
        mode: [Mode::ActiveBackup, Mode::BalanceSlb, Mode::BalanceTcp][from.below(3)],
        is_bond: bits & 8 == 0,
        updelay: u64::from(bits >> 6) * 100,
        downdelay: u64::from(bits >> 6) * 50,
        rebalance_interval: if bits & 16 != 0 { 1000 } else { 0 },
        lacp: (bits & 32 == 0).then_some(lacp),
        fallback: bits & 4 != 0,
        ..Settings::default()
    }
}

fn members(count: usize, from: &mut Bytes) -> Vec<MemberSettings> {
    let member = |name: &&str| MemberSettings {
        name: (*name).into(),
        port_id: u16::from(from.u8()),
        port_priority: 7,
        key: u16::from(from.u8() % 4),
    };
    NAMES[..count].iter().map(member).collect()
}

fn mac(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

fn pdu(from: &mut Bytes) -> Pdu {
    let mut info = || Info {
        system_priority: 99 + u16::from(from.u8() % 4),
        system: mac(from.u8() % 4),
        key: u16::from(from.u8() % 3),
        port_priority: u16::from(from.u8() % 4),
        port: u16::from(from.u8() % 4),
        state: State::from_bits_retain(from.u8()),
    };
    Pdu { actor: info(), partner: info() }
}
