//! Two bridges with three ports each, some of them in one LAN, and an attacker on it: BPDUs are passed on, changed, or
//! made up, links and settings change, and time passes.
//!
//! Invariants:
//! - No panic; what a bridge sends can be read.
//! - Whatever a bridge receives, it sends a bounded number of frames without time passing.
//! - A bridge that has run is due again later than now.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use packet::MacAddr;
use spanning_tree::bpdu::Bpdu;
use spanning_tree::{Bridge, rstp, stp};
use support::Bytes;

/// Ports of a bridge.
const PORTS: u8 = 3;
/// Frames of a bridge at one time: those of the hold count, of each port.
const MOST: usize = 11 * PORTS as usize;

fuzz_target!(|data: &[u8]| {
    let mut from = Bytes::new(data);
    let protocols = from.u8();
    let mut now = 0;
    let mut bridges = [0, 1].map(|number| match protocols >> number & 1 {
        0 => Bridge::Stp(stp::Bridge::new(stp::Settings::read("", &BTreeMap::new(), address(number)).0, now)),
        _ => Bridge::Rstp(rstp::Bridge::new(
            rstp::Settings::read("", &BTreeMap::new(), address(number)).0,
            now,
        )),
    });
    for (number, bridge) in bridges.iter_mut().enumerate() {
        configure(bridge, number as u8, &BTreeMap::new(), now);
    }
    let mut sent = [0, 0];
    while !from.is_empty() {
        let passes = u64::from(from.u16());
        if passes > 0 {
            (now, sent) = (now + passes, [0, 0]);
        }
        let one = from.below(2);
        match from.below(8) {
            0 => _ = bridges[one].receive(from.u8() % 5, from.slice(100), now),
            1 => bridges[one].change_topology(now),
            2 => {
                let (other, port, is_up) = (from.below(2), from.u8() % PORTS + 1, from.flag());
                bridges[other].set_link(port, is_up, address(other as u8), now);
            }
            3 => {
                let keys = keys(&mut from);
                configure(&mut bridges[one], one as u8, &keys, now);
            }
            _ => {}
        }
        for i in 0..2 {
            let outcome = bridges[i].run(now);
            for (port, frame) in outcome.frames {
                let bpdu = Bpdu::of_frame(&frame).expect("a BPDU of its own");
                // Notifications of changes have no limit but that of what causes them.
                sent[i] += usize::from(bpdu != Bpdu::Tcn);
                let frame = tampered(frame, &mut from);
                let _ = bridges[1 - i].receive(port, &frame, now);
            }
            assert!(sent[i] <= MOST, "{} frames at once", sent[i]);
            let _ = bridges[i].show("br0");
        }
        for bridge in &mut bridges {
            bridge.run(now);
            assert!(bridge.next_due().is_none_or(|due| due > now));
        }
    }
});

fn address(number: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, number])
}

fn configure(bridge: &mut Bridge, number: u8, keys: &BTreeMap<String, String>, now: u64) {
    match bridge {
        Bridge::Stp(it) => {
            let port = stp::PortSettings::read("p", keys, 0).0;
            let ports = (1..=PORTS).map(|number| (number, port.clone())).collect();
            it.configure(stp::Settings::read("", keys, address(number)).0, ports, now);
        }
        Bridge::Rstp(it) => {
            let port = rstp::PortSettings::read("p", keys, 0).0;
            let ports = (1..=PORTS).map(|number| (number, port.clone())).collect();
            it.configure(rstp::Settings::read("", keys, address(number)).0, ports, now);
        }
    }
}

fn keys(from: &mut Bytes<'_>) -> BTreeMap<String, String> {
    let mut keys = BTreeMap::new();
    for key in ["priority", "max-age", "forward-delay", "hello-time", "path-cost", "port-priority"] {
        let value = from.u16() >> from.below(16);
        for protocol in ["stp", "rstp"] {
            keys.insert(format!("{protocol}-{key}"), value.to_string());
        }
    }
    keys.insert("rstp-force-protocol-version".into(), (from.u8() & 2).to_string());
    keys.insert("rstp-transmit-hold-count".into(), from.u8().to_string());
    for key in ["rstp-port-admin-edge", "rstp-port-mcheck", "rstp-admin-port-state"] {
        keys.insert(key.into(), from.flag().to_string());
    }
    keys
}

/// A frame as the attacker lets it pass: most of the time as it is.
fn tampered(mut frame: Vec<u8>, from: &mut Bytes<'_>) -> Vec<u8> {
    let [change, at, bits] = from.array();
    match change {
        1..8 => frame.truncate(at.into()),
        8..64 => {
            let at = usize::from(at) % frame.len().max(1);
            frame.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= bits);
        }
        _ => {}
    }
    frame
}
