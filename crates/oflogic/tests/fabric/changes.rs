//! Changes under traffic.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use openflow::message::{
    Body, BundleAdd, BundleControl, BundleControlKind, BundleFlags, FlowModCommand, SwitchConfig,
};
use openflow::{Message, text};

use crate::frames::{plain, udp};
use crate::rig::{By, Rig, VERSION, wait_for};

#[test]
fn after_a_change_no_packet_meets_the_old_flow() {
    let rig = Rig::new(By::Code);
    for round in 0..50u8 {
        let (now, before) = if round % 2 == 0 { (2, 3) } else { (3, 2) };
        rig.add(&[&format!("priority=7,dl_type=0x88b5,actions=output:{now}")]);
        // The change has been acknowledged: what is sent from here on meets it.
        rig.at(1).send([plain(2, 1, round)]);
        assert_eq!(rig.at(now).take(1), [plain(2, 1, round)]);
        rig.at(1).settle();
        assert_eq!(rig.at(before).delivered(), 0);
    }
}

#[test]
fn every_packet_meets_the_old_flow_or_the_new_one() {
    let rig = Rig::new(By::Code);
    rig.add(&["actions=goto_table:1", "table=1,actions=output:2"]);
    let done = AtomicBool::new(false);
    let mut sent = 0usize;
    std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            for round in 0..300 {
                let port = 2 + round % 2;
                rig.flow_mod(FlowModCommand::Modify, &format!("table=1,actions=output:{port}"));
                // Other flows come and go, so that the table changes its form.
                let other = format!(
                    "table=1,priority=9,dl_type=0x88b6,dl_src=02:00:00:00:01:{:02x},actions=drop",
                    round % 64
                );
                let command = if round % 3 == 2 { FlowModCommand::DeleteStrict } else { FlowModCommand::Add };
                let text = if round % 3 == 2 { other.replace(",actions=drop", "") } else { other };
                rig.flow_mod(command, &text);
            }
            done.store(true, Relaxed);
        });
        while !done.load(Relaxed) {
            rig.at(1).send((0..32).map(|n| plain(2, 1, n)));
            rig.at(1).settle();
            sent += 32;
        }
        changes.join().unwrap();
    });
    assert_eq!(rig.at(2).delivered() + rig.at(3).delivered(), sent);
}

#[test]
fn a_bundle_swaps_all_flows_between_two_batches() {
    const FLOWS: u8 = 200;
    const BUNDLES: u32 = 20;
    let rig = Rig::new(By::Itself);
    let flow = |number: u8, port: u32| format!("dl_dst=02:00:00:00:00:{number:02x},actions=output:{port}");
    rig.add(&["priority=1,actions=drop"]);
    (0..FLOWS).for_each(|number| rig.add(&[&flow(number, 2)]));
    let done = AtomicBool::new(false);
    let mut sent = 0u32;
    std::thread::scope(|scope| {
        let bundles = scope.spawn(|| {
            for bundle in 0..BUNDLES {
                let flags = BundleFlags::ATOMIC | BundleFlags::ORDERED;
                let control = |kind| {
                    let control = BundleControl { bundle, kind, flags, ..BundleControl::default() };
                    rig.ask(Body::BundleControl(control));
                };
                control(BundleControlKind::OpenRequest);
                for number in 0..FLOWS {
                    let flow = flow(number, 3 - bundle % 2);
                    let flow = text::parse_flow(&flow, FlowModCommand::ModifyStrict, VERSION).unwrap();
                    // All messages of a rig have this transaction id.
                    let message = Message::new(VERSION, 9, Body::FlowMod(Box::new(flow))).encode().unwrap();
                    rig.ask(Body::BundleAdd(BundleAdd { bundle, flags, message, trailing: vec![] }));
                }
                control(BundleControlKind::CommitRequest);
            }
            done.store(true, Relaxed);
        });
        while !done.load(Relaxed) {
            rig.at(1).send((0..64).map(|i| {
                let number = sent + i;
                let mut frame = plain((number % u32::from(FLOWS)) as u8, 250, 0);
                frame[20..24].copy_from_slice(&number.to_be_bytes());
                frame
            }));
            rig.at(1).settle();
            sent += 64;
        }
        bundles.join().unwrap();
    });
    let number = |frame: &Vec<u8>| u32::from_be_bytes(frame[20..24].try_into().unwrap());
    let of_port = |port: usize| {
        let frames = rig.at(port).take(rig.at(port).delivered());
        frames.iter().map(|frame| (number(frame), port)).collect::<Vec<_>>()
    };
    let mut ways = [of_port(2), of_port(3)].concat();
    ways.sort_unstable();
    assert_eq!(ways.len(), sent as usize);
    let swaps = ways.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
    assert!((1..=BUNDLES as usize).contains(&swaps), "{swaps} swaps by {BUNDLES} bundles");
}

#[test]
fn code_is_specialised_without_a_tick() {
    let rig = Rig::new(By::Itself);
    for flow in ["actions=output:2", "priority=9,ip,nw_src=10.0.0.0/8,actions=set_queue:3,output:3"] {
        rig.add(&[flow]);
        wait_for("specialised code", || rig.is_specialised().then_some(()));
    }
    // Other flags of packets make it general.
    rig.ask(Body::SetConfig(SwitchConfig { flags: 1, miss_send_len: 128 }));
    wait_for("code for the flags", || rig.is_specialised().then_some(()));
    assert_eq!(rig.run(1, [plain(2, 1, 0)])[1].len(), 1);
}

#[test]
fn flows_change_while_code_is_specialised_for_those_before() {
    let rig = Rig::new(By::Code);
    rig.add(&["actions=goto_table:1", "table=1,actions=output:2"]);
    rig.specialise();
    assert!(rig.is_specialised());
    let done = AtomicBool::new(false);
    let mut sent = 0usize;
    std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            for round in 0..120u32 {
                if round % 6 == 0 {
                    wait_for("specialised code", || rig.is_specialised().then_some(()));
                }
                // An action that the code has never met, in a table that it looks up.
                let queue = if round % 2 == 0 { String::new() } else { format!("set_queue:{},", round / 2) };
                let port = 2 + round % 2;
                rig.flow_mod(FlowModCommand::Modify, &format!("table=1,actions={queue}output:{port}"));
                // A condition on a key that no other flow has one on; later flows of its kind are changes in place.
                let key = ["ip,nw_src=10.9.0.", "ip,nw_dst=10.9.0.", "udp,tp_dst=", "dl_vlan="];
                let key = format!("{}{}", key[round as usize / 30], 1 + round % 30);
                rig.add(&[&format!("table=1,priority=9,{key},actions=set_queue:{round},output:4")]);
            }
            done.store(true, Relaxed);
        });
        scope.spawn(|| {
            while !done.load(Relaxed) {
                rig.specialise();
            }
        });
        while !done.load(Relaxed) {
            rig.at(1).send((0..32).map(|n| plain(2, 1, n)));
            rig.at(1).settle();
            sent += 32;
        }
        changes.join().unwrap();
    });
    assert_eq!(rig.at(2).delivered() + rig.at(3).delivered(), sent);
}

#[test]
fn flags_of_packets_decide_which_code_runs() {
    let rig = Rig::new(By::Code);
    rig.add(&["priority=9,ip,ip_frag=later,actions=output:2", "priority=5,ip,actions=output:3"]);
    // With the flow of the marker, which is not to change the code between.
    rig.run(1, []);
    let fragment = |mut frame: Vec<u8>| {
        frame[21] = 1;
        frame
    };
    // Flags of the configuration: 1 drops fragments.
    for (flags, expected) in [(0, &[2][..]), (1, &[]), (0, &[2])] {
        rig.ask(Body::SetConfig(SwitchConfig { flags, miss_send_len: 128 }));
        for specialised in [false, true] {
            if specialised {
                rig.specialise();
            }
            assert_eq!(rig.is_specialised(), specialised);
            let got = rig.run(1, [fragment(udp())]);
            let ports: Vec<_> = (1..).zip(&got).filter(|(_, got)| !got.is_empty()).map(|(n, _)| n).collect();
            assert_eq!(ports, expected, "{flags}, specialised: {specialised}");
        }
    }
}

#[test]
fn each_of_many_flows_is_found() {
    let rig = Rig::new(By::Code);
    let flow =
        |n: u32| format!("dl_dst=02:00:00:00:{:02x}:{:02x},actions=output:{}", n >> 8, n & 255, 2 + n % 3);
    for n in 0..600 {
        rig.add(&[&flow(n)]);
    }
    let frame = |n: u32| {
        let mut frame = plain(2, 1, n as u8);
        frame[..6].copy_from_slice(&[2, 0, 0, 0, (n >> 8) as u8, n as u8]);
        frame
    };
    rig.at(1).send((0..600).map(frame));
    rig.at(1).settle();
    let counts = [2, 3, 4].map(|number| rig.at(number).delivered());
    assert_eq!(counts, [200; 3]);
}
