//! Packets whose checksums or segments are left to the receiver.

use fabric::port::Caps;
use packet::{Gso, Offload};

use crate::frames::{checksums_hold, pseudo_header, tagged, udp};
use crate::rig::{By, Rig};

/// UDP whose checksum is to be completed.
fn partial() -> (Vec<u8>, Offload) {
    let mut packet = udp();
    let sum = pseudo_header(&packet);
    packet[40..42].copy_from_slice(&sum.to_be_bytes());
    (packet, Offload { needs_csum: true, csum_start: 34, csum_offset: 6, ..Offload::NONE })
}

const CHANGE: &str = "udp,actions=set_field:192.0.2.7->ip_dst,set_field:53->udp_dst,output:2";

#[test]
fn checksums_are_right_after_fields_were_set() {
    // The receiver completes checksums, or the fabric does.
    for takes in [true, false] {
        let rig = Rig::with(By::Code, 1, Caps { csum: takes, ..Caps::default() });
        rig.add(&[CHANGE]);
        let got = rig.run_with(1, vec![partial()]);
        let (packet, offload) = &got[1][0];
        assert_eq!(packet[30..34], [192, 0, 2, 7]);
        if takes {
            assert!(offload.needs_csum);
            assert_eq!(u16::from_be_bytes([packet[40], packet[41]]), pseudo_header(packet));
        } else {
            assert!(checksums_hold(packet), "{packet:02x?}");
        }
    }
}

#[test]
fn tags_move_the_offsets() {
    let rig = Rig::with(By::Code, 1, Caps { csum: true, ..Caps::default() });
    rig.add(&["udp,actions=push_vlan:0x8100,set_field:4103->vlan_vid,output:2,pop_vlan,output:3"]);
    let got = rig.run_with(1, vec![partial()]);
    let (sent, offload) = partial();
    assert_eq!(got[1], [(tagged(&sent, 7), Offload { csum_start: 38, ..offload })]);
    assert_eq!(got[2], [(sent, offload)]);
}

#[test]
fn controllers_get_complete_packets() {
    let rig = Rig::with(By::Code, 1, Caps { csum: true, ..Caps::default() });
    rig.add(&["udp,actions=set_field:192.0.2.7->ip_dst,CONTROLLER:65535"]);
    rig.at(1).send_with([partial()]);
    let [packet] = rig.packet_ins().map(|packet| packet.data);
    assert_eq!(packet[30..34], [192, 0, 2, 7]);
    assert!(checksums_hold(&packet), "{packet:02x?}");
}

#[test]
fn large_packets_stay_whole() {
    // TCP over IPv4 with 3,000 bytes, to be cut into segments of 1,000.
    let mut packet = udp()[..34].to_vec();
    packet[16..18].copy_from_slice(&3040u16.to_be_bytes());
    packet[23] = 6;
    packet.extend([0, 80, 0, 81, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    packet.extend((0..3000).map(|i| i as u8));
    // The IPv4 checksum, then the pseudo-header's sum.
    packet[24..26].fill(0);
    let words = packet[14..34].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
    let sum: u32 = words.sum();
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    packet[24..26].copy_from_slice(&sum.to_be_bytes());
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
    let caps = Caps { csum: true, tso4: true, ..Caps::default() };
    let rig = Rig::with(By::Code, 1, caps);
    rig.add(&["tcp,actions=set_field:192.0.2.7->ip_dst,output:2,CONTROLLER:65535"]);
    let got = rig.run_with(1, vec![(packet.clone(), offload)]);
    let (whole, kept) = &got[1][0];
    assert_eq!((whole.len(), *kept), (packet.len(), offload));
    assert_eq!(u16::from_be_bytes([whole[50], whole[51]]), pseudo_header(whole));
    // Controllers get the segments.
    for segment in rig.packet_ins::<3>() {
        assert_eq!(segment.data.len(), 1054);
        assert!(checksums_hold(&segment.data));
    }
}
