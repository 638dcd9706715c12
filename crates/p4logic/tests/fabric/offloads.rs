//! Packets whose checksums or segments are left to the receiver.

use fabric::port::Caps;
use packet::{Gso, Offload};

use crate::frames::{checksums_hold, fill_ip_checksum, op, pseudo_header, udp};
use crate::rig::{By, L3, Rig};

/// The program of routes, with a tunnel of its own kind in front of what goes to port 3, new addresses at port 4, and
/// 10.1.0.0/16 unchanged at port 2.
fn program() -> String {
    let tunnel = "header tunnel_t { bit<48> dst; bit<48> src; bit<16> type; bit<32> id; }\nstruct headers {\n    tunnel_t tunnel;";
    L3.replace("struct headers {", tunnel)
        .replace(
            "            routes.apply();\n",
            "            routes.apply();
            if (std.egress_spec == 3) {
                hdr.tunnel.setValid();
                hdr.tunnel.type = 0x1212;
            } else if (std.egress_spec == 4) {
                hdr.ip.src = 0xc6336401;
            }\n",
        )
        .replace("route(77, 0x02000000004d)", "route(4, 0x020000000004)")
        .replace("std.egress_spec = std.ingress_port;", "std.egress_spec = 2;")
}

/// UDP whose checksum is to be completed.
fn partial(dst: [u8; 4]) -> (Vec<u8>, Offload) {
    let mut packet = udp(dst, 64, 100);
    let sum = pseudo_header(&packet);
    packet[40..42].copy_from_slice(&sum.to_be_bytes());
    (packet, Offload { needs_csum: true, csum_start: 34, csum_offset: 6, ..Offload::NONE })
}

/// TCP with 3,000 bytes, to be cut into segments of 1,000.
fn large(dst: [u8; 4]) -> (Vec<u8>, Offload) {
    let mut packet = udp(dst, 64, 0)[..34].to_vec();
    packet[16..18].copy_from_slice(&3040u16.to_be_bytes());
    packet[23] = 6;
    packet.extend([0, 80, 0, 81, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    packet.extend((0..3000).map(|i| i as u8));
    fill_ip_checksum(&mut packet);
    let sum = pseudo_header(&packet);
    packet[50..52].copy_from_slice(&sum.to_be_bytes());
    let offload = Offload {
        gso: Gso::Tcp4,
        gso_size: 1000,
        needs_csum: true,
        csum_start: 34,
        csum_offset: 16,
        hdr_len: 54,
        ..Offload::NONE
    };
    (packet, offload)
}

fn rig(by: By, takes: bool) -> Rig {
    let rig = Rig::with(by, 1, Caps { csum: takes, tso4: takes, ..Caps::default() });
    rig.install(&program());
    rig
}

#[test]
fn checksums_are_left_to_receivers_that_complete_them() {
    for takes in [true, false] {
        let rig = rig(By::Code, takes);
        for dst in [[10, 0, 0, 1], [10, 3, 0, 1]] {
            let port = if dst[1] == 0 { 2 } else { 4 };
            let got = rig.run_with(1, vec![partial(dst)]);
            let (packet, offload) = &got[port - 1][0];
            assert_eq!(offload.needs_csum, takes);
            match takes {
                true => assert_eq!(packet[40..42], pseudo_header(packet).to_be_bytes()),
                false => assert!(checksums_hold(packet), "{packet:02x?}"),
            }
        }
    }
}

#[test]
fn large_packets_stay_whole() {
    let rig = rig(By::Code, true);
    let got = rig.run_with(1, vec![large([10, 0, 0, 1])]);
    let (packet, offload) = &got[1][0];
    assert_eq!((packet.len(), *offload), (3054, large([10, 0, 0, 1]).1));
    assert_eq!(packet[50..52], pseudo_header(packet).to_be_bytes());
}

#[test]
fn packets_are_complete_behind_headers_that_hide_them() {
    for by in [By::Code, By::Itself, By::Interpreter] {
        let rig = rig(by, true);
        let inner = |packet: &[u8]| packet[18..].to_vec();
        // The first such packet finds that out.
        for round in 0..3 {
            let got = rig.run_with(
                1,
                vec![partial([10, 0, 0, 129]), large([10, 0, 0, 130]), partial([10, 0, 0, 131])],
            );
            assert_eq!(got[2].len(), 5, "{by:?}, round {round}");
            for (packet, offload) in &got[2] {
                assert!(offload.is_none());
                assert_eq!(packet[12..14], [0x12, 0x12]);
                assert!(checksums_hold(&inner(packet)), "{packet:02x?}");
            }
            let mut lens: Vec<_> = got[2].iter().map(|(packet, _)| packet.len()).collect();
            lens.sort_unstable();
            assert_eq!(lens, [160, 160, 1072, 1072, 1072]);
        }
        // Others get through as well, complete.
        let got = rig.run_with(1, vec![partial([10, 1, 0, 1]), large([10, 1, 0, 1])]);
        assert_eq!(got[1].len(), 4, "{by:?}");
        assert!(got[1].iter().all(|(packet, _)| checksums_hold(packet)));
        let is_code = by != By::Interpreter;
        assert_eq!(rig.figure("gets packets without offloads"), if is_code { "yes" } else { "no" });
    }
}

#[test]
fn controllers_get_complete_checksums() {
    for by in [By::Code, By::Interpreter] {
        let rig = rig(by, true);
        rig.run_with(1, vec![partial([10, 9, 0, 1])]);
        let [packet] = rig.packet_ins();
        assert!(checksums_hold(&packet.payload), "{:02x?}", packet.payload);
    }
    // In front of it is a header of the program's own.
    let rig = Rig::new(By::Code, crate::rig::OPS);
    let mut packet = op(5, 0, 0);
    packet.resize(200, 3);
    let offload = Offload { needs_csum: true, csum_start: 100, csum_offset: 6, ..Offload::NONE };
    rig.run_with(1, vec![(packet.clone(), offload)]);
    // Nobody knows what is in there: the fabric refuses such work, or it is done.
    let dropped = rig.drops(1, fabric::DropReason::BadOffload);
    if dropped == 0 {
        assert_eq!(rig.packet_ins::<1>()[0].payload.len(), packet.len());
    }
}
