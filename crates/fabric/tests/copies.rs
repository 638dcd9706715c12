//! Each payload byte is copied once on its way into a ring: `cargo test --features count-copies --test copies`.
//!
//! The counters are process-wide, so everything is in one test.
#![cfg(test)]
#![cfg(all(feature = "count-copies", not(loom)))]

mod support;

use std::sync::Arc;

use fabric::Egress;
use support::feed::{Feed, Sent};
use support::mem_ring::MemRing;
use support::rig::{self, Hub};
use support::{Lcg, frame, wait_until};

/// Bytes that the fabric copies into private memory before it decides; the rest is payload.
const HEADER: usize = fabric::rx::HEADER_COPY;

#[test]
fn payload_is_copied_once_into_each_ring() {
    let random = &mut Lcg(1);
    let mut lens: Vec<usize> = vec![14, 60, 127, 128, 129, 255, 256, 257, 1514, 2048, 9018, 65_534, 65_535];
    lens.extend((0..100).map(|_| 14 + random.below(65_522)));
    // One buffer, chains of buffers that match no packet size, chains of the smallest; one receiver and three.
    let shapes: [&[&[u32]]; 4] = [
        &[&[65_540; 256]],
        &[&[100; 32_768]],
        &[&[1; 1 << 17]],
        &[&[2048; 8192], &[65_535; 256], &[997; 16_384]],
    ];
    for rings in shapes {
        let switch = rig::switch(1);
        let bridge = switch.add_bridge("b", Arc::new(Hub)).unwrap();
        let feed = Feed::new();
        let home: Arc<dyn Egress> = MemRing::new(0, &[2048; 4]).tx();
        rig::plug(&switch, bridge, "from", vec![feed.queue()], vec![home]);
        let rings: Vec<_> =
            rings.iter().map(|capacities| (MemRing::new(0, capacities), capacities[0])).collect();
        for (i, (ring, _)) in rings.iter().enumerate() {
            rig::plug(&switch, bridge, &format!("to{i}"), vec![], vec![ring.tx()]);
        }
        for (id, len) in (0..).zip(&lens) {
            let (copied_before, delivered_before) = fabric::copied();
            let packet = frame(id, *len);
            let cuts: Vec<_> = (0..random.below(64)).map(|_| random.below(*len)).collect();
            feed.send([Sent::cut(&packet, &cuts)]);
            wait_until("it is returned", || feed.returned() == id + 1);
            let mut arrived = 0;
            for (ring, capacity) in &rings {
                for got in ring.take(|| *capacity) {
                    assert_eq!(got, packet);
                    arrived += got.len().saturating_sub(HEADER) as u64;
                }
            }
            let (copied, delivered) = fabric::copied();
            let (copied, delivered) = (copied - copied_before, delivered - delivered_before);
            assert_eq!(copied, delivered, "{len} bytes: copied, delivered");
            assert_eq!(delivered, arrived, "{len} bytes: delivered, arrived");
        }
    }
    let (copied, delivered) = fabric::copied();
    assert!(delivered > 10_000_000);
    assert_eq!(copied as f64 / delivered as f64, 1.0);
}
