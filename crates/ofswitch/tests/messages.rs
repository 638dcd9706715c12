//! Any messages in any order: those that Open vSwitch was recorded to accept, as they are and changed, among packets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::Path;

use ofswitch::Limits;
use openflow::message::{Body, Header};
use openflow::{Message, PortNo, Version};
use proptest::prelude::*;
use support::{SECOND, World, udp};

/// The recorded messages of a version.
fn recorded(version: Version) -> Vec<Vec<u8>> {
    let name = format!("../openflow/tests/corpus/openflow1{}.hex", version as u8);
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();
    text.lines().map(support::unhex).collect()
}

const SMALL: Limits = Limits {
    flows_per_table: 8,
    flows: 24,
    groups: 4,
    buckets: 4,
    all_buckets: 6,
    bytes: 6000,
    meters: 4,
    bands: 2,
    bundles: 2,
    bundle_messages: 4,
    bundle_bytes: 4096,
    all_bundle_bytes: 4096,
    monitors: 2,
    backlog: 10_000,
    replies: 100_000,
    connections: 2,
    buffers: 4,
    ports: 8,
    conjunctions: 16,
};

#[test]
fn recorded_messages_are_processed() {
    for version in Version::ALL {
        let mut world = World::new(version);
        for bytes in recorded(version) {
            let message = Message::decode(&bytes).unwrap();
            world.switch.receive(world.connection, &bytes, 0);
            let replies = world.messages();
            // The answer of a request for a list is a list, or an error.
            if let Body::MultipartRequest(_) = message.body {
                assert!(!replies.is_empty(), "{message:?}");
            }
            // A request of another version is refused in its own.
            assert!(
                replies.iter().all(|reply| [version, message.version].contains(&reply.version)),
                "{replies:?}"
            );
        }
        assert!(world.switch.is_consistent(), "{version}");
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// A recorded message, with some bytes changed.
    Message(prop::sample::Index, Vec<(prop::sample::Index, u8)>),
    Packet(u32, Vec<u8>),
    Tick(u64),
    Port(u32, bool),
}

fn steps() -> impl Strategy<Value = Step> {
    let change = (any::<prop::sample::Index>(), any::<u8>());
    let message = (any::<prop::sample::Index>(), prop::collection::vec(change, 0..3))
        .prop_map(|(which, changes)| Step::Message(which, changes));
    let packet = (1u32..5, prop::collection::vec(any::<u8>(), 0..80))
        .prop_map(|(port, bytes)| Step::Packet(port, bytes));
    let known = (1u32..5).prop_map(|port| Step::Packet(port, udp()));
    let port = (1u32..6, any::<bool>()).prop_map(|(port, there)| Step::Port(port, there));
    prop_oneof![20 => message, 2 => packet, 2 => known, 1 => (0u64..100).prop_map(Step::Tick), 1 => port]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics_or_exceeds_its_limits(
        version in prop::sample::select(Version::ALL.to_vec()),
        steps in prop::collection::vec(steps(), 1..150),
    ) {
        let messages = recorded(version);
        let mut world = World::with(version, SMALL);
        for step in steps {
            match step {
                Step::Message(which, changes) => {
                    let mut bytes = which.get(&messages).clone();
                    for (at, byte) in changes {
                        // The header says how long it is: a stream has no other messages.
                        let at = at.index(bytes.len());
                        if !(2..4).contains(&at) {
                            bytes[at] = byte;
                        }
                    }
                    prop_assert_eq!(Header::peek(&bytes).unwrap().length as usize, bytes.len());
                    world.switch.receive(world.connection, &bytes, world.now);
                }
                Step::Packet(port, bytes) => drop(world.switch.packet(PortNo(port), &bytes, world.now)),
                Step::Tick(seconds) => {
                    world.now += seconds * SECOND;
                    world.switch.tick(world.now);
                }
                Step::Port(port, true) => {
                    let info = ofswitch::PortInfo::new(PortNo(port), "p", [2; 6]);
                    let _ = world.switch.set_port(info, world.now);
                }
                Step::Port(port, false) => world.switch.remove_port(PortNo(port)),
            }
            prop_assert!(world.switch.flow_count() <= 24);
            prop_assert!(world.switch.is_consistent());
            world.switch.take_effects();
            // All that is sent can be read.
            while let Some(bytes) = world.switch.next_message(world.connection) {
                prop_assert!(Message::decode(&bytes).is_ok(), "{bytes:02x?}");
            }
        }
    }

    #[test]
    fn a_controller_that_reads_nothing_costs_no_more_than_its_limit(count in 1usize..400) {
        let mut world = World::with(Version::V1_0, SMALL);
        for _ in 0..count {
            world.packet(1, &udp());
        }
        let waiting: usize = std::iter::from_fn(|| world.switch.next_message(world.connection)).map(|m| m.len()).sum();
        prop_assert!(waiting <= SMALL.backlog + 200);
        prop_assert!(count < 200 || world.switch.dropped_messages(world.connection) > 0);
    }
}
