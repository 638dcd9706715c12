//! Breaks every rule of the rings and checks the resulting error.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use support::{BUFFERS, Pair, RINGS, SEAM, TABLES, descriptor, pair};
use vhost_user::driver::{DriverConfig, DriverMemory};
use vhost_user::virtqueue::{Addresses, Areas, Config, Features, Format, MAX_CHAIN};
use vhost_user::{Chain, GuestMemory, RegionSpec, Virtqueue};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// Packed: available in the first lap.
const LAP: u16 = 1 << 7;

const ALL: Features = Features { event_idx: false, indirect: true, in_order: false };
const NONE: Features = Features { event_idx: false, indirect: false, in_order: false };

fn split(features: Features) -> Pair {
    pair(Format::Split, 256, features)
}

fn packed(features: Features) -> Pair {
    pair(Format::Packed, 256, features)
}

fn refusal(pair: &mut Pair) -> String {
    let mut chain = Chain::new();
    let error = pair.device.take(&pair.memory, &mut chain).unwrap_err();
    // The error repeats; the device neither spins nor panics.
    assert_eq!(pair.device.take(&pair.memory, &mut chain), Err(error));
    error.to_string()
}

#[test]
fn the_split_index_jumps() {
    let mut p = split(NONE);
    p.offer(&[], 300);
    assert_eq!(
        p.device.available().unwrap_err().to_string(),
        "ring index jumped: 300 chains offered in a ring of 256"
    );
    assert_eq!(refusal(&mut p), "ring index jumped: 300 chains offered in a ring of 256");
    p.offer(&[], 256);
    assert_eq!(p.device.available(), Ok(256));
    // A step back is a jump far ahead.
    let mut p = split(NONE);
    p.offer(&[], 0xffff);
    assert_eq!(refusal(&mut p), "ring index jumped: 65535 chains offered in a ring of 256");
}

#[test]
fn a_split_chain_starts_or_continues_out_of_range() {
    let mut p = split(ALL);
    p.offer(&[256], 1);
    assert_eq!(refusal(&mut p), "chain starts at descriptor 256 of a ring of 256");
    p.put(3, descriptor(BUFFERS, 10, NEXT, 256));
    p.offer(&[3], 1);
    assert_eq!(refusal(&mut p), "chain continues at descriptor 256 of a table of 256");
    p.shared.write(TABLES, &descriptor(BUFFERS, 10, NEXT, 2));
    p.put(3, descriptor(TABLES, 32, INDIRECT, 0));
    assert_eq!(refusal(&mut p), "chain continues at descriptor 2 of a table of 2");
}

#[test]
fn endless_chains() {
    let message = "chain has more than 66 descriptors or does not end";
    let mut p = split(ALL);
    // Descriptors that refer to themselves, also with length 0.
    for len in [10, 0] {
        p.put(3, descriptor(BUFFERS, len, NEXT, 3));
        p.offer(&[3], 1);
        assert_eq!(refusal(&mut p), message);
        p.shared.write(TABLES, &descriptor(BUFFERS, len, NEXT, 0));
        p.put(3, descriptor(TABLES, 16, INDIRECT, 0));
        assert_eq!(refusal(&mut p), message);
    }
    let mut p = packed(ALL);
    (0..256).for_each(|slot| p.put(slot, descriptor(BUFFERS, 10, 0, LAP | NEXT)));
    assert_eq!(refusal(&mut p), message);
    p.put(0, descriptor(TABLES, 67 * 16, 0, LAP | INDIRECT));
    assert_eq!(refusal(&mut p), message);
    // In a short ring, a chain that spans the ring and continues.
    let mut p = pair(Format::Packed, 4, ALL);
    (0..4).for_each(|slot| p.put(slot, descriptor(BUFFERS, 10, 0, LAP | NEXT)));
    assert_eq!(refusal(&mut p), message);
}

#[test]
fn the_longest_chain_and_one_more() {
    for (count, fits) in [(MAX_CHAIN, true), (MAX_CHAIN + 1, false)] {
        let last = count as u16 - 1;
        for indirect in [false, true] {
            let (mut s, mut p) = (split(ALL), packed(ALL));
            for slot in 0..=last {
                let next = if slot == last { 0 } else { NEXT };
                let (split, packed) = (
                    descriptor(BUFFERS + u64::from(slot), 1, next, slot + 1),
                    descriptor(BUFFERS + u64::from(slot), 1, 9, next | LAP),
                );
                if indirect {
                    let at = TABLES + u64::from(slot) * 16;
                    assert!(s.shared.write(at, &split) && p.shared.write(at, &packed));
                } else {
                    s.put(slot, split);
                    p.put(slot, packed);
                }
            }
            if indirect {
                let len = count as u32 * 16;
                s.put(0, descriptor(TABLES, len, INDIRECT, 0));
                p.put(0, descriptor(TABLES, len, 9, INDIRECT | LAP));
            }
            s.offer(&[0], 1);
            for p in [&mut s, &mut p] {
                let mut chain = Chain::new();
                let taken = p.device.take(&p.memory, &mut chain);
                assert_eq!(taken.is_ok(), fits, "{count} {indirect}: {taken:?}");
                assert!(!fits || chain.readable().len() == MAX_CHAIN);
            }
        }
    }
}

/// Writes a chain of two direct descriptors at the start of either ring.
fn two(one: (u64, u32, u16), other: (u64, u32, u16)) -> [Pair; 2] {
    let (s, p) = (split(ALL), packed(ALL));
    s.put(0, descriptor(one.0, one.1, one.2 | NEXT, 1));
    s.put(1, descriptor(other.0, other.1, other.2, 0));
    s.offer(&[0], 1);
    p.put(1, descriptor(other.0, other.1, 0, other.2 | LAP));
    p.put(0, descriptor(one.0, one.1, 0, one.2 | LAP | NEXT));
    [s, p]
}

#[test]
fn descriptors_outside_the_memory() {
    for (address, len) in
        [(0, 1), (SEAM + 0xffff, 2), (u64::MAX, 1), (u64::MAX, 2), (BUFFERS - 1, 4), (RINGS, u32::MAX)]
    {
        for p in &mut two((BUFFERS, 1, 0), (address, len, 0)) {
            assert_eq!(
                refusal(p),
                format!(
                    "descriptor names {len} bytes at guest address {address:#x}, outside the memory table"
                )
            );
        }
    }
}

#[test]
fn unsorted_and_endless_lengths() {
    for p in &mut two((BUFFERS, 1, WRITE), (BUFFERS, 1, 0)) {
        assert_eq!(refusal(p), "chain has a readable descriptor after a writable one");
    }
    // Lengths overflow only with that much memory: a sparse file, which takes no space.
    let size = 1 << 32;
    for format in [Format::Split, Format::Packed] {
        let config = DriverConfig::at(0, format, 8, NONE);
        let shared = DriverMemory::create("large", &[(0, size)]).unwrap();
        let memory = GuestMemory::from_regions(shared.specs().unwrap()).unwrap();
        for slot in 0..2u16 {
            let bytes = match format {
                Format::Split => descriptor(0, 1 << 31, NEXT * (1 - slot), 1),
                Format::Packed => descriptor(0, 1 << 31, 0, LAP | (NEXT * (1 - slot))),
            };
            assert!(shared.write(config.addresses.descriptors + 16 * u64::from(slot), &bytes));
        }
        if format == Format::Split {
            assert!(shared.write(config.addresses.driver + 2, &[1, 0]));
        }
        let mut device = support::device(&memory, &config, config.base);
        let error = device.take(&memory, &mut Chain::new()).unwrap_err();
        assert_eq!(error.to_string(), "chain has 4 GiB or more");
    }
}

/// Writes one indirect descriptor at the start of either ring.
fn table(features: Features, address: u64, len: u32, flags: u16) -> [Pair; 2] {
    let (s, p) = (split(features), packed(features));
    s.put(0, descriptor(address, len, INDIRECT | flags, 1));
    s.offer(&[0], 1);
    p.put(0, descriptor(address, len, 0, INDIRECT | LAP | flags));
    [s, p]
}

#[test]
fn invalid_indirect_tables() {
    for p in &mut table(NONE, TABLES, 16, 0) {
        assert_eq!(refusal(p), "indirect descriptor, but the feature was not negotiated");
    }
    for len in [0, 8, 17] {
        for p in &mut table(ALL, TABLES, len, 0) {
            assert_eq!(
                refusal(p),
                format!("indirect table has {len} bytes, expected a multiple of 16 above 0")
            );
        }
    }
    for p in &mut table(ALL, TABLES, 16, NEXT) {
        assert_eq!(refusal(p), "misplaced indirect descriptor in a chain");
    }
    for address in [0x10, u64::MAX - 15, u64::MAX - 7] {
        for p in &mut table(ALL, address, 16, 0) {
            assert_eq!(
                refusal(p),
                format!("descriptor names 16 bytes at guest address {address:#x}, outside the memory table")
            );
        }
    }
    let [mut s, mut p] = table(ALL, TABLES, 16, 0);
    s.shared.write(TABLES, &descriptor(TABLES, 16, INDIRECT, 0));
    p.shared.write(TABLES, &descriptor(TABLES, 16, 0, INDIRECT));
    for p in [&mut s, &mut p] {
        assert_eq!(refusal(p), "descriptor of an indirect table is itself indirect");
    }
    // After direct descriptors: a split ring allows it, a packed ring does not.
    let [mut s, mut p] = two((BUFFERS, 1, 0), (TABLES, 16, INDIRECT));
    s.shared.write(TABLES, &descriptor(BUFFERS + 1, 7, WRITE, 0));
    let mut chain = Chain::new();
    assert_eq!(s.device.take(&s.memory, &mut chain), Ok(true));
    assert_eq!((chain.readable_bytes(), chain.writable_bytes()), (1, 7));
    assert_eq!(refusal(&mut p), "misplaced indirect descriptor in a chain");
}

#[test]
fn indirect_tables_anywhere() {
    // Aligned, unaligned, and across two regions in the middle of a descriptor.
    for address in [TABLES, TABLES + 1, SEAM - 16, SEAM - 24] {
        let [mut s, mut p] = table(ALL, address, 32, WRITE);
        for p in [&s, &p] {
            p.shared.write(address, &descriptor(BUFFERS, 5, NEXT, 1));
            p.shared.write(address + 16, &descriptor(BUFFERS + 8, 6, WRITE, 0));
        }
        // A packed table has flags in place of a split table's next descriptor.
        p.shared.write(address, &descriptor(BUFFERS, 5, 0, NEXT | LAP));
        p.shared.write(address + 16, &descriptor(BUFFERS + 8, 6, 0, WRITE | LAP));
        for p in [&mut s, &mut p] {
            let mut chain = Chain::new();
            assert_eq!(p.device.take(&p.memory, &mut chain), Ok(true));
            let guest = |segment| p.guest(segment);
            assert_eq!(chain.readable().iter().map(guest).collect::<Vec<_>>(), [(BUFFERS, 5)]);
            assert_eq!(chain.writable().iter().map(guest).collect::<Vec<_>>(), [(BUFFERS + 8, 6)]);
        }
    }
}

#[test]
fn more_than_the_packed_ring_holds() {
    let mut p = pair(Format::Packed, 4, NONE);
    let mut chain = Chain::new();
    (0..3).for_each(|slot| p.put(slot, descriptor(BUFFERS, 1, slot, LAP)));
    for _ in 0..3 {
        assert_eq!(p.device.take(&p.memory, &mut chain), Ok(true));
    }
    // A chain of two slots, the second of which still belongs to the device.
    p.put(0, descriptor(BUFFERS, 1, 0, 1 << 15));
    p.put(3, descriptor(BUFFERS, 1, 0, LAP | NEXT));
    assert_eq!(refusal(&mut p), "chain takes 2 slots more than the 3 in flight, in a ring of 4");
    // Slots given back but not yet published do not count as free either.
    p.device.give_back(0, 1, 0);
    assert_eq!(refusal(&mut p), "chain takes 2 slots more than the 3 in flight, in a ring of 4");
    p.device.publish();
    assert_eq!(p.device.take(&p.memory, &mut chain), Ok(true));
}

#[test]
fn invalid_queues() {
    let shared = DriverMemory::create("test", &[(0, 0x1000)]).unwrap();
    let memory = GuestMemory::from_regions(shared.specs().unwrap()).unwrap();
    let at = |format, size, descriptors, driver, device| {
        let addresses = DriverMemory::user_addresses(&Addresses { descriptors, driver, device });
        let areas = Areas::locate(&memory, format, size, &addresses)?;
        let config = Config { format, size, areas, features: NONE, base: DriverConfig::start(format) };
        // SAFETY: located in `memory`, which outlives the queue.
        unsafe { Virtqueue::new(&config) }
    };
    let refusal = |format, size, descriptors, driver, device| {
        at(format, size, descriptors, driver, device).unwrap_err().to_string()
    };
    let (split, packed) = (Format::Split, Format::Packed);
    for size in [0, 3, 40000] {
        let message = format!("ring size {size} is not a power of two up to 32768");
        assert_eq!(refusal(split, size, 0, 0x100, 0x200), message);
    }
    for size in [0, 32769] {
        let message = format!("ring size {size} is not within 1 and 32768");
        assert_eq!(refusal(packed, size, 0, 0x100, 0x200), message);
    }
    assert_eq!(
        refusal(split, 8, 8, 0x100, 0x200),
        "the ring's descriptor area does not start at a multiple of 16 bytes"
    );
    assert_eq!(
        refusal(split, 8, 0, 0x101, 0x200),
        "the ring's driver area does not start at a multiple of 2 bytes"
    );
    assert_eq!(
        refusal(packed, 8, 0, 0x100, 0x202),
        "the ring's device area does not start at a multiple of 4 bytes"
    );
    assert_eq!(
        refusal(split, 128, 0x810, 0x100, 0x200),
        "the ring's descriptor area of 2048 bytes at user address 0x700000000810 is outside the memory table"
    );
    // Up to the last byte, and one byte beyond.
    assert!(at(packed, 8, 0xf80, 0x100, 0xffc).is_ok());
    assert!(at(packed, 8, 0xf90, 0x100, 0x200).is_err());
    assert!(at(split, 8, 0, 0x1000 - 22, 0x200).is_ok());
    assert!(at(split, 8, 0, 0x1000 - 20, 0x200).is_err());
    assert!(at(split, 8, 0, 0x100, 0x1000 - 72).is_ok());
    assert!(at(split, 8, 0, 0x100, 0x1000 - 68).is_err());
}

#[test]
fn bases() {
    let made = |format, size, base| {
        let config = DriverConfig::at(0, format, size, NONE);
        let shared = DriverMemory::create("test", &[(0, 0x10000)]).unwrap();
        let memory = GuestMemory::from_regions(shared.specs().unwrap()).unwrap();
        let addresses = DriverMemory::user_addresses(&config.addresses);
        let areas = Areas::locate(&memory, format, size, &addresses).unwrap();
        let config = Config { format, size, areas, features: NONE, base };
        // SAFETY: located in `memory`, which outlives the queue.
        let queue = unsafe { Virtqueue::new(&config) };
        queue.map(|queue| queue.base()).map_err(|error| error.to_string())
    };
    assert_eq!(made(Format::Split, 8, 0xfffe), Ok(0xfffe));
    assert_eq!(
        made(Format::Split, 8, 0x1_0000),
        Err("ring base 0x10000 is not a position in a ring of 8".into())
    );
    for base in [0x8000_8000, 0x8003_8005, 0x8005_0003, 0x0005_0007, 0x0003_8002, 0x0003_8003, 0x0000_0004] {
        assert_eq!(made(Format::Packed, 8, base), Ok(base), "{base:#x}");
    }
    // Front-ends that omit the upper half.
    assert_eq!(made(Format::Packed, 8, 0x8000), Ok(0x8000_8000));
    assert_eq!(made(Format::Packed, 8, 0x8003), Ok(0x8003_8003));
    // Beyond the ring, and used ahead of available.
    for base in [0x8000_8008, 0x8008_8000, 0x8005_8003, 0x0003_8004, 0x8003_0004] {
        let message = format!("ring base {base:#x} is not a position in a ring of 8");
        assert_eq!(made(Format::Packed, 8, base), Err(message));
    }
}

#[test]
fn empty_descriptors_have_no_segment() {
    for p in &mut two((0, 0, 0), (BUFFERS, 3, 0)) {
        let mut chain = Chain::new();
        assert_eq!(p.device.take(&p.memory, &mut chain), Ok(true));
        assert_eq!((chain.readable().len(), chain.readable_bytes(), chain.writable().len()), (1, 3, 0));
    }
    for p in &mut two((BUFFERS, 0, 0), (u64::MAX, 0, WRITE)) {
        let mut chain = Chain::new();
        assert_eq!(p.device.take(&p.memory, &mut chain), Ok(true));
        assert!(chain.readable().is_empty() && chain.writable().is_empty());
    }
}

#[test]
fn truncated_rings() {
    for format in [Format::Split, Format::Packed] {
        let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, 0x8000).unwrap();
        let spec = RegionSpec {
            guest_address: 0,
            size: 0x8000,
            user_address: DriverMemory::user_address(0),
            mmap_offset: 0,
            fd: fd.try_clone().unwrap().into(),
        };
        let memory = GuestMemory::from_regions(vec![spec]).unwrap();
        let config = DriverConfig::at(0, format, 256, ALL);
        let mut device = support::device(&memory, &config, config.base);
        rustix::fs::ftruncate(&fd, 0).unwrap();
        assert!(!memory.faulted());
        // All zeros: no chain is available, and chains given back are lost.
        assert_eq!(device.take(&memory, &mut Chain::new()), Ok(false), "{format:?}");
        assert!(memory.faulted(), "{format:?}");
        device.give_back(0, 1, 10);
        device.publish();
        device.set_kicks(true);
        device.wants_call();
    }
}
