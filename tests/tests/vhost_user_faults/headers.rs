//! Invalid packet headers: the packet is dropped and counted, and its port stays up.

use e2e::until;
use packet::offload::{Gso, Offload};
use packet::virtio_net;
use vhost_user::features::device::{CSUM, HOST_TSO4, HOST_TSO6, HOST_USO};
use vhost_user::frontend::{DeviceConfig, PacketHeader};

use crate::rig::{BASIC, LIMIT, Rig, drain, frame, next};

/// A TCP/IPv4 frame with this payload length, and a correct header for it.
fn large_tcp(payload: usize) -> (Vec<u8>, Offload) {
    let mut packet = frame(0, 60);
    packet.truncate(14);
    packet[12..14].copy_from_slice(&[8, 0]);
    packet.extend([0x45, 0]);
    packet.extend((40 + payload as u16).to_be_bytes());
    packet.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend([0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    packet.resize(54 + payload, 0xab);
    let offload = Offload {
        gso: Gso::Tcp4,
        needs_csum: true,
        gso_size: 1448,
        csum_start: 34,
        csum_offset: 16,
        hdr_len: 54,
        ..Offload::NONE
    };
    (packet, offload)
}

#[test]
fn invalid_headers_drop_their_packet() {
    let mut rig = Rig::start();
    let features = BASIC | CSUM | HOST_TSO4 | HOST_TSO6 | HOST_USO;
    let mut device = rig.good(DeviceConfig { features, ..DeviceConfig::default() });
    let bad = || {
        let port = rig.daemon.port("br1", "bad")?;
        let drops = &port.json()["totals"]["rx"]["drops"]["bad-offload"];
        Ok::<u64, e2e::Error>(
            drops.as_str().and_then(|count| count.parse().ok()).or(drops.as_u64()).unwrap_or(0),
        )
    };
    let (packet, right) = large_tcp(3000);
    let with = |change: &dyn Fn(&mut Offload)| {
        let mut offload = right;
        change(&mut offload);
        virtio_net::encode(&offload, 0)
    };
    let typed = |gso_type: u8| {
        let mut header = virtio_net::encode(&right, 0);
        header[1] = gso_type;
        header
    };
    let invalid: Vec<PacketHeader> = vec![
        with(&|o| o.gso_size = 0),
        with(&|o| o.gso_size = 1),
        with(&|o| o.csum_start = 60_000),
        with(&|o| o.csum_start = u16::MAX),
        with(&|o| o.csum_offset = u16::MAX),
        with(&|o| o.csum_offset = 3100),
        with(&|o| o.csum_start = 0),
        with(&|o| o.csum_start = 26),
        with(&|o| o.needs_csum = false),
        with(&|o| o.gso = Gso::Tcp6),
        with(&|o| o.gso = Gso::Udp),
        // Without segmentation, but with a checksum at an address.
        with(&|o| (o.gso, o.csum_start, o.csum_offset) = (Gso::None, 14, 16)),
        // IP fragmentation; unknown types; CWR without TCP.
        typed(3),
        typed(2),
        typed(0x7f),
        typed(0x80),
        typed(0x85),
    ];
    drain(&mut rig.peer);
    let before = bad().unwrap();
    for header in &invalid {
        until("room in the ring", LIMIT, || Ok(device.send(0, header, &packet).unwrap().then_some(())))
            .unwrap();
    }
    // The next packet is the first to arrive.
    let good = frame(3, 300);
    assert!(device.send(0, &[0; 12], &good).unwrap());
    assert!(next(&mut rig.peer) == good);
    until("the drops to be counted", LIMIT, || Ok((bad()? == before + invalid.len() as u64).then_some(())))
        .unwrap();

    // Fields without meaning in a packet from a driver, and hints, are not errors: the packet is segmented correctly.
    for change in [0usize, 2, 10] {
        let mut header = virtio_net::encode(&right, 0);
        // "Checksums were verified", another header length, another number of buffers.
        header[change] = header[change].wrapping_add(2);
        drain(&mut rig.peer);
        assert!(device.send(0, &header, &packet).unwrap());
        let mut payload = 0;
        while payload < 3000 {
            payload += next(&mut rig.peer).len() - 54;
        }
        assert_eq!(payload, 3000);
    }
    assert!(rig.daemon.port("br1", "bad").unwrap().is_up());
    drop(device);
    rig.finish();
}

#[test]
fn invalid_lengths_drop_their_packet() {
    let mut rig = Rig::start();
    let mut device = rig.good(DeviceConfig::default());
    let dropped = |rig: &Rig| rig.daemon.port("br1", "bad").map(|port| port.dropped());
    let before = dropped(&rig).unwrap();
    // Empty, shorter than an Ethernet header, and longer than any packet.
    for len in [0, 13, 65_536, 66_036] {
        let packet = frame(7, len.max(22));
        assert!(device.send(0, &[0; 12], &packet[..len]).unwrap());
    }
    let good = frame(4, 1000);
    assert!(device.send(0, &[0; 12], &good).unwrap());
    assert!(next(&mut rig.peer) == good);
    until("the drops to be counted", LIMIT, || Ok((dropped(&rig)? == before + 4).then_some(()))).unwrap();
    assert!(rig.daemon.port("br1", "bad").unwrap().is_up());
    drop(device);
    rig.finish();
}
