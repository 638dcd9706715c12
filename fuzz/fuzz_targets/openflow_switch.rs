//! A switch: messages of two controllers, packets, ports and time, in any order.
//!
//! Invariants:
//! - No panic.
//! - The pipeline has exactly the entries that the flows need, whatever was refused.
//! - Flows stay within the limit, and so do messages that nobody reads.
//! - What the switch sends can be decoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ofswitch::{ConnectionKind, Limits, PortInfo, Settings, Switch};
use openflow::message::{Body, Hello, Versions};
use openflow::{Message, PortNo, Version};
use support::Bytes;

const LIMITS: Limits = Limits {
    flows_per_table: 16,
    flows: 32,
    groups: 8,
    buckets: 8,
    all_buckets: 6,
    bytes: 6000,
    meters: 8,
    bands: 3,
    bundles: 3,
    bundle_messages: 16,
    bundle_bytes: 1 << 16,
    all_bundle_bytes: 1 << 16,
    monitors: 3,
    backlog: 20_000,
    replies: 100_000,
    connections: 2,
    buffers: 4,
    ports: 6,
    conjunctions: 32,
};

fuzz_target!(|data: &[u8]| {
    let mut input = Bytes::new(data);
    let version = Version::ALL[input.below(Version::ALL.len())];
    let mut switch = Switch::new(Settings { limits: LIMITS, ..Settings::default() });
    let connections: Vec<_> = [ConnectionKind::Controller, ConnectionKind::Service]
        .into_iter()
        .filter_map(|kind| switch.connect(kind))
        .collect();
    for connection in &connections {
        let hello = Message::new(version, 0, Body::Hello(Hello::new(Versions::from_iter([version]))));
        switch.receive(*connection, &hello.encode().unwrap(), 0);
    }
    let mut now = 0;
    while !input.is_empty() {
        match input.u8() % 8 {
            0 => {
                let port = u32::from(input.u8() % 8);
                let len = input.below(128);
                switch.packet(PortNo(port), input.slice(len), now);
            }
            1 => {
                now += u64::from(input.u8()) * 500_000_000;
                switch.tick(now);
            }
            2 => {
                let number = PortNo(input.u8().into());
                let info = PortInfo { is_up: input.flag(), ..PortInfo::new(number, "port", [2; 6]) };
                let _ = switch.set_port(info, now);
            }
            3 => switch.remove_port(PortNo(input.u8().into())),
            kind => {
                let connection = connections[usize::from(kind == 4) % connections.len()];
                let message_type = input.u8();
                let len = usize::from(input.u16() % 2048);
                let body = input.slice(len);
                let mut message = vec![version.number(), message_type];
                message.extend(((body.len() + 8) as u16).to_be_bytes());
                message.extend([0, 0, 0, 1]);
                message.extend_from_slice(body);
                switch.receive(connection, &message, now);
            }
        }
        assert!(switch.flow_count() <= LIMITS.flows as usize);
        switch.take_effects();
    }
    assert!(switch.is_consistent());
    for connection in connections {
        while let Some(message) = switch.next_message(connection) {
            Message::decode(&message).unwrap();
        }
    }
});
