//! Frames of any bytes, and any times.

use spanning_tree::Protocol;
use spanning_tree::bpdu::Bpdu;

use crate::network::Network;

#[test]
fn no_frame_breaks_a_bridge() {
    let mut random = fastrand::Rng::with_seed(17);
    for protocol in [Protocol::Stp, Protocol::Rstp] {
        let mut network = Network::new(protocol, &["abc", "abc"]);
        network.pass(40.0);
        let good: Vec<Vec<u8>> = (0..60)
            .flat_map(|second| network.bridges[0].run(network.now + second * 2000).frames)
            .map(|(_, frame)| frame)
            .collect();
        assert!(!good.is_empty());
        let bridge = &mut network.bridges[1];
        let mut now = network.now;
        for _ in 0..40_000 {
            let mut frame = good[random.usize(..good.len())].clone();
            for _ in 0..random.usize(0..6) {
                let at = random.usize(..frame.len());
                frame[at] = random.u8(..);
            }
            frame.truncate(random.usize(..=frame.len()));
            now = if random.u8(..) == 0 {
                random.u64(..u64::MAX / 2)
            } else {
                now.saturating_add(random.u64(..2000))
            };
            let _ = bridge.receive(random.u8(..5), &frame, now);
            let outcome = bridge.run(now);
            assert!(outcome.frames.len() <= 3 * 7, "{}", outcome.frames.len());
            assert!(outcome.frames.iter().all(|(_, frame)| Bpdu::of_frame(frame).is_ok()));
            assert!(bridge.show("br0").ends_with('\n'));
            // What becomes due by what was due has its turn, too.
            bridge.run(now);
            assert!(bridge.next_due().is_none_or(|due| due > now), "{protocol:?}");
        }
    }
}

#[test]
fn a_frame_of_a_neighbour_costs_at_most_its_limit() {
    // Each message makes the bridge answer: the answers are limited.
    for protocol in [Protocol::Stp, Protocol::Rstp] {
        let mut network = Network::new(protocol, &["a", "a"]);
        network.pass(60.0);
        let now = network.now;
        let frames: Vec<_> = (0..6).flat_map(|n| network.bridges[1].run(now + n * 500).frames).collect();
        let frame = Bpdu::Tcn.frame(crate::network::address(1));
        let mut sent = 0;
        for _ in 0..1000 {
            network.bridges[0].receive(1, &frame, now).unwrap();
            for (_, frame) in &frames {
                network.bridges[0].receive(1, frame, now).unwrap();
            }
            sent += network.bridges[0].run(now).frames.len();
        }
        assert!(sent <= 7, "{protocol:?}: {sent}");
    }
}
