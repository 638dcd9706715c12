//! Invalid rings: indices, heads, chains, indirect tables, buffers.

use e2e::until;
use vhost_user::driver::{Buffer, DriverConfig};
use vhost_user::features::device::{INDIRECT_DESC, MRG_RXBUF, RING_PACKED};
use vhost_user::frontend::NetDevice;

use crate::rig::{BASIC, LIMIT, Rig, frame};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// Packed: available in the first lap.
const AVAILABLE: u16 = 1 << 7;

/// A descriptor: address, length, flags, and the next descriptor (split) or the buffer id (packed).
#[derive(Clone, Copy)]
struct Descriptor(u64, u32, u16, u16);

impl Descriptor {
    fn bytes(self, packed: bool) -> Vec<u8> {
        let Descriptor(address, len, flags, other) = self;
        let (third, fourth) = if packed { (other, flags) } else { (flags, other) };
        [&address.to_le_bytes()[..], &len.to_le_bytes(), &third.to_le_bytes(), &fourth.to_le_bytes()].concat()
    }
}

fn config(device: &mut NetDevice, ring: usize) -> DriverConfig {
    *device.queue(ring).unwrap().config()
}

/// Guest address of almost a page of unused memory.
fn spare(device: &NetDevice) -> u64 {
    let spec = device.memory().specs().unwrap().pop().unwrap();
    spec.guest_address + spec.size - 4000
}

fn write(device: &NetDevice, at: u64, bytes: &[u8]) {
    assert!(device.memory().write(at, bytes));
}

fn kick(device: &NetDevice, ring: usize) {
    rustix::io::write(device.kick(ring).unwrap(), &1u64.to_ne_bytes()).unwrap();
}

/// Writes descriptors to a split ring's table from its start and makes a head available.
fn offer(device: &mut NetDevice, descriptors: &[Descriptor], head: u16) {
    let DriverConfig { addresses, size, .. } = config(device, 1);
    for (slot, descriptor) in (0u64..).zip(descriptors) {
        write(device, addresses.descriptors + slot * 16, &descriptor.bytes(false));
    }
    let mut index = [0; 2];
    assert!(device.memory().read(addresses.driver + 2, &mut index));
    let index = u16::from_le_bytes(index);
    write(device, addresses.driver + 4 + u64::from(index % size) * 2, &head.to_le_bytes());
    write(device, addresses.driver + 2, &index.wrapping_add(1).to_le_bytes());
    kick(device, 1);
}

/// Writes descriptors to a packed ring that has carried one packet, the first descriptor last.
fn offer_packed(device: &mut NetDevice, descriptors: &[Descriptor]) {
    let at = config(device, 1).addresses.descriptors;
    for (i, Descriptor(address, len, flags, id)) in
        (0u64..).zip(descriptors.iter().copied()).collect::<Vec<_>>().into_iter().rev()
    {
        let descriptor = Descriptor(address, len, flags | AVAILABLE, id);
        write(device, at + (1 + i) * 16, &descriptor.bytes(true));
    }
    kick(device, 1);
}

#[test]
fn wrong_indices_and_chains_in_split_rings_are_faults() {
    let mut rig = Rig::start();
    for by in [257u16, 40_000, 0xffff] {
        let reason = format!("ring 1: ring index jumped: {by} chains offered in a ring of 256");
        rig.assert_broken(BASIC, &reason, |device, _| {
            let at = config(device, 1).addresses.driver + 2;
            // One packet was sent and received.
            write(device, at, &by.wrapping_add(1).to_le_bytes());
            kick(device, 1);
        });
    }
    let long = "ring 1: chain has more than 66 descriptors or does not end";
    type Case = (&'static str, u16, fn(u64) -> Vec<Descriptor>);
    let cases: [Case; 9] = [
        ("ring 1: chain starts at descriptor 256 of a ring of 256", 256, |_| vec![]),
        ("ring 1: chain starts at descriptor 65535 of a ring of 256", 65_535, |_| vec![]),
        ("ring 1: chain continues at descriptor 256 of a table of 256", 0, |at| {
            vec![Descriptor(at, 8, NEXT, 256)]
        }),
        (long, 0, |at| vec![Descriptor(at, 8, NEXT, 0)]),
        (long, 1, |at| vec![Descriptor(at, 8, NEXT, 1), Descriptor(at, 8, NEXT, 0)]),
        (long, 0, |at| (0..80).map(|i| Descriptor(at, 8, NEXT, i + 1)).collect()),
        ("ring 1: chain has a readable descriptor after a writable one", 0, |at| {
            vec![Descriptor(at, 8, NEXT | WRITE, 1), Descriptor(at, 80, 0, 0)]
        }),
        ("ring 1: indirect descriptor, but the feature was not negotiated", 0, |at| {
            vec![Descriptor(at, 16, INDIRECT, 0)]
        }),
        (
            "ring 1: descriptor names 4294967295 bytes at guest address 0x10000000, outside the memory table",
            0,
            |_| vec![Descriptor(1 << 28, u32::MAX, 0, 0)],
        ),
    ];
    for (reason, head, descriptors) in cases {
        rig.assert_broken(BASIC, reason, |device, _| {
            let descriptors = descriptors(spare(device));
            offer(device, &descriptors, head);
        });
    }
    rig.finish();
}

#[test]
fn wrong_indirect_tables_are_faults() {
    let mut rig = Rig::start();
    // The indirect descriptor and its table.
    type Case = (&'static str, fn(u64) -> Descriptor, fn(u64) -> Vec<Descriptor>);
    let long = "ring 1: chain has more than 66 descriptors or does not end";
    let cases: [Case; 7] = [
        (
            "ring 1: indirect table has 17 bytes, expected a multiple of 16 above 0",
            |at| Descriptor(at, 17, INDIRECT, 0),
            |_| vec![],
        ),
        (
            "ring 1: indirect table has 0 bytes, expected a multiple of 16 above 0",
            |at| Descriptor(at, 0, INDIRECT, 0),
            |_| vec![],
        ),
        (
            "ring 1: misplaced indirect descriptor in a chain",
            |at| Descriptor(at, 16, INDIRECT | NEXT, 1),
            |at| vec![Descriptor(at, 60, 0, 0)],
        ),
        (
            "ring 1: descriptor of an indirect table is itself indirect",
            |at| Descriptor(at, 16, INDIRECT, 0),
            |at| vec![Descriptor(at, 16, INDIRECT, 0)],
        ),
        (
            "ring 1: descriptor names 16 bytes at guest address 0x40, outside the memory table",
            |_| Descriptor(0x40, 160, INDIRECT, 0),
            |_| vec![],
        ),
        (
            "ring 1: descriptor names 100 bytes at guest address 0x2, outside the memory table",
            |at| Descriptor(at, 16, INDIRECT, 0),
            |_| vec![Descriptor(2, 100, 0, 0)],
        ),
        (
            long,
            |at| Descriptor(at, 70 * 16, INDIRECT, 0),
            |at| (0..70).map(|i| Descriptor(at, 8, NEXT, i + 1)).collect(),
        ),
    ];
    for packed in [false, true] {
        for (reason, named, table) in cases {
            let features = BASIC | INDIRECT_DESC | if packed { RING_PACKED } else { 0 };
            rig.assert_broken(features, reason, |device, _| {
                let at = spare(device);
                for (slot, descriptor) in (0..).zip(table(at)) {
                    write(device, at + slot * 16, &descriptor.bytes(packed));
                }
                match packed {
                    true => offer_packed(device, &[named(at)]),
                    false => offer(device, &[named(at)], 0),
                }
            });
        }
    }
    // Only split tables have a chain order.
    let cases: [Case; 2] = [
        (
            "ring 1: chain continues at descriptor 2 of a table of 2",
            |at| Descriptor(at, 32, INDIRECT, 0),
            |at| vec![Descriptor(at, 8, NEXT, 2)],
        ),
        (
            long,
            |at| Descriptor(at, 32, INDIRECT, 0),
            |at| vec![Descriptor(at, 8, NEXT, 1), Descriptor(at, 8, NEXT, 0)],
        ),
    ];
    for (reason, named, table) in cases {
        rig.assert_broken(BASIC | INDIRECT_DESC, reason, |device, _| {
            let at = spare(device);
            for (slot, descriptor) in (0..).zip(table(at)) {
                write(device, at + slot * 16, &descriptor.bytes(false));
            }
            offer(device, &[named(at)], 0);
        });
    }
    rig.finish();
}

#[test]
fn wrong_chains_in_packed_rings_are_faults() {
    let mut rig = Rig::start();
    type Case = (&'static str, fn(u64) -> Vec<Descriptor>);
    let cases: [Case; 5] = [
        ("ring 1: chain has more than 66 descriptors or does not end", |at| {
            vec![Descriptor(at, 8, NEXT, 0); 200]
        }),
        ("ring 1: indirect descriptor, but the feature was not negotiated", |at| {
            vec![Descriptor(at, 16, INDIRECT, 0)]
        }),
        ("ring 1: chain has a readable descriptor after a writable one", |at| {
            vec![Descriptor(at, 8, NEXT | WRITE, 0), Descriptor(at, 80, 0, 0)]
        }),
        (
            "ring 1: descriptor names 60 bytes at guest address 0xffffffffffffffff, outside the memory table",
            |_| vec![Descriptor(u64::MAX, 60, 0, 0)],
        ),
        ("ring 1: packet of 11 bytes, shorter than its header of 12", |at| vec![Descriptor(at, 11, 0, 0)]),
    ];
    for (reason, descriptors) in cases {
        rig.assert_broken(BASIC | RING_PACKED, reason, |device, _| {
            let descriptors = descriptors(spare(device));
            offer_packed(device, &descriptors);
        });
    }
    // A chain without readable bytes, published by the driver itself.
    for packed in [0, RING_PACKED] {
        let reason = "ring 1: packet of 0 bytes, shorter than its header of 12";
        rig.assert_broken(BASIC | packed, reason, |device, _| {
            let writable = Buffer { address: spare(device), len: 64 };
            let queue = device.queue(1).unwrap();
            queue.add(&[], &[writable], None).unwrap();
            queue.publish();
            kick(device, 1);
        });
    }
    rig.finish();
}

/// Sends more packets than the attacker has posted buffers, so that the switch reads the ring again.
fn feed(peer: &mut NetDevice) {
    for _ in 0..150 {
        until("room in the ring", LIMIT, || Ok(peer.send(0, &[0; 12], &frame(9, 60)).unwrap().then_some(())))
            .unwrap();
    }
}

#[test]
fn invalid_receive_buffers_are_faults() {
    let mut rig = Rig::start();
    for packed in [false, true] {
        // Replacement of all buffers.
        type Case = (&'static str, u64, fn(u64) -> Descriptor);
        let cases: [Case; 3] = [
            ("ring 0: descriptor names 2048 bytes at guest address 0x7, outside the memory table", 0, |_| {
                Descriptor(7, 2048, WRITE, 0)
            }),
            ("ring 0: receive buffer of 11 bytes, less than a header of 12", MRG_RXBUF, |at| {
                Descriptor(at, 11, WRITE, 0)
            }),
            ("ring 0: receive buffer of 0 bytes, less than a header of 12", 0, |at| {
                Descriptor(at, 2048, 0, 0)
            }),
        ];
        for (reason, features, buffer) in cases {
            let format = if packed { RING_PACKED } else { 0 };
            rig.assert_broken(BASIC | features | format, reason, |device, peer| {
                let at = config(device, 0).addresses.descriptors;
                let Descriptor(address, len, flags, other) = buffer(spare(device));
                for slot in 1..64 {
                    let flags = if packed { flags | AVAILABLE } else { flags };
                    write(device, at + slot * 16, &Descriptor(address, len, flags, other).bytes(packed));
                }
                if !packed {
                    write(device, at, &Descriptor(address, len, flags, other).bytes(false));
                }
                feed(peer);
            });
        }
    }
    for by in [400u16, 0x8000] {
        let reason = "ring 0: ring index jumped…";
        rig.assert_broken(BASIC, reason, |device, peer| {
            let at = config(device, 0).addresses.driver + 2;
            write(device, at, &by.to_le_bytes());
            feed(peer);
        });
    }
    rig.finish();
}
