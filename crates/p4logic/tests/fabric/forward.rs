//! Where packets go.

use fabric::DropReason;
use fabric::port::Caps;

use crate::frames::{checksums_hold, op, plain, udp};
use crate::rig::{ALL, By, L3, OPS, Rig};

/// The numbers of the ports that got something.
fn ports(got: &[Vec<Vec<u8>>]) -> Vec<usize> {
    (1..).zip(got).filter(|(_, got)| !got.is_empty()).map(|(n, _)| n).collect()
}

#[test]
fn routes_lead_to_ports() {
    for by in ALL {
        let rig = Rig::new(by, L3);
        let got = rig.run(1, [udp([10, 0, 0, 1], 64, 30), udp([10, 0, 0, 129], 2, 1400)]);
        assert_eq!(ports(&got), [2, 3], "{by:?}");
        for (port, len) in [(2, 72), (3, 1442)] {
            let packet = &got[port - 1][0];
            assert_eq!(packet.len(), len);
            assert_eq!(packet[..12], [2, 0, 0, 0, 0, port as u8, 2, 0, 0, 0, 0, 9]);
            assert!(checksums_hold(packet), "{packet:02x?}");
        }
        // Neither a route nor a life left.
        let got = rig.run(1, [udp([11, 0, 0, 1], 64, 30), udp([10, 0, 0, 1], 1, 30)]);
        assert!(ports(&got).is_empty());
        assert_eq!(rig.counter("dropped_by_program"), 2, "{by:?}");
        assert_eq!(rig.counter("interpreted"), if by == By::Interpreter { 4 } else { 0 });
    }
}

#[test]
fn packets_may_go_back() {
    for by in ALL {
        let rig = Rig::new(by, L3);
        let packets = [udp([10, 1, 2, 3], 64, 30), udp([10, 1, 2, 4], 64, 30)];
        let got = rig.run(4, packets.clone());
        assert_eq!(got[3], packets, "{by:?}");
        assert_eq!(ports(&got), [4]);
    }
}

#[test]
fn a_port_that_does_not_exist_gets_nothing() {
    for by in [By::Code, By::Itself] {
        let rig = Rig::new(by, L3);
        assert!(ports(&rig.run(1, [udp([10, 3, 0, 1], 64, 30)])).is_empty());
        assert_eq!(rig.drops(1, DropReason::NoDestination), 1);
        assert_eq!(rig.counter("dropped_no_port"), 1);
    }
}

#[test]
fn without_a_program_everything_is_dropped() {
    let rig = Rig::with(By::Code, 1, Caps::default());
    assert!(ports(&rig.run(1, [plain(2, 1), op(0, 2, 0)])).is_empty());
    assert_eq!(rig.counter("dropped_no_program"), 2);
    assert_eq!(rig.drops(1, DropReason::Logic), 2);
}

#[test]
fn packets_change_their_length() {
    for by in ALL {
        let rig = Rig::new(by, OPS);
        let got = rig.run(1, [op(7, 2, 0), op(9, 3, 0), op(0, 4, 0)]);
        let mut tunnelled = op(7, 2, 0)[..12].to_vec();
        tunnelled.extend([0x12, 0x12, 1, 2, 3, 4]);
        tunnelled.extend(op(7, 2, 0));
        assert_eq!(
            got[1..],
            [vec![tunnelled], vec![op(9, 3, 0)[..20].to_vec()], vec![op(0, 4, 0)]],
            "{by:?}"
        );
        // The fabric forwards no runts.
        assert!(ports(&rig.run(1, [op(11, 2, 0)])).is_empty());
    }
}

#[test]
fn parsers_see_what_the_fabric_has_not_at_hand() {
    for by in ALL {
        let rig = Rig::new(by, OPS);
        let mut packet = op(10, 2, 0);
        packet.resize(1400, 0x11);
        packet[17 + 255] = 0x77;
        let got = rig.run(1, [packet.clone()]);
        packet[16] = 0x77;
        assert_eq!(got[1], [packet], "{by:?}");
        // Too short: the program goes on without the header.
        assert_eq!(rig.run(1, [op(10, 2, 5)])[1][0][16], 0, "{by:?}");
    }
}

#[test]
fn registers_are_shared_by_workers() {
    let rig = Rig::with(By::Code, 2, Caps::default());
    rig.install(OPS);
    const EACH: usize = 2000;
    std::thread::scope(|scope| {
        for from in 1..=4 {
            let rig = &rig;
            scope.spawn(move || {
                for _ in 0..EACH / 20 {
                    rig.at(from).send((0..20).map(|_| op(8, 1 + from as u8 % 4, 0)));
                    rig.at(from).settle();
                }
            });
        }
    });
    let all: Vec<_> = rig.clients.iter().flat_map(|client| client.take(EACH)).collect();
    let mut counts = [0usize; 256];
    all.iter().for_each(|packet| counts[usize::from(packet[16])] += 1);
    // Each number was drawn once.
    let expected: Vec<usize> =
        (0..256).map(|n| (4 * EACH).div_ceil(256) - usize::from(n >= 4 * EACH % 256)).collect();
    assert_eq!(counts.to_vec(), expected);
}
