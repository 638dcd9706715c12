//! The memory table: refusals and translation of addresses.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::fd::OwnedFd;

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vhost_user::driver::DriverMemory;
use vhost_user::{GuestMemory, MemoryError, RegionSpec};

fn file(size: u64) -> OwnedFd {
    let fd = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, size).unwrap();
    fd
}

fn spec(guest_address: u64, size: u64, user_address: u64, mmap_offset: u64) -> RegionSpec {
    RegionSpec { guest_address, size, user_address, mmap_offset, fd: file(1 << 16).into() }
}

fn refusal(specs: Vec<RegionSpec>) -> String {
    GuestMemory::from_regions(specs).unwrap_err().to_string()
}

#[test]
fn invalid_regions_are_refused() {
    assert_eq!(refusal(vec![spec(0x1000, 0, 0, 0)]), "memory region at guest address 0x1000 has size 0");
    for (spec, space) in [
        (spec(u64::MAX - 4095, 8192, 0, 0), "guest addresses"),
        (spec(0, 8192, u64::MAX - 4095, 0), "user addresses"),
        (spec(0, 8192, 0, u64::MAX - 4095), "file offsets"),
    ] {
        let guest = spec.guest_address;
        assert_eq!(
            refusal(vec![spec]),
            format!("memory region at guest address {guest:#x} of 8192 bytes wraps around in its {space}")
        );
    }
    assert_eq!(
        refusal(vec![spec(0x1000, 0x1000, 0, 0xf001)]),
        "memory region at guest address 0x1000: region size 4096 at offset 61441 is larger than its file of 65536 bytes"
    );
    let socket = rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None);
    let lie = RegionSpec { fd: socket.unwrap().into(), ..spec(0x1000, 0x1000, 0, 0) };
    assert_eq!(
        refusal(vec![lie]),
        "memory region at guest address 0x1000: memory file is a socket, not a regular file on tmpfs or hugetlbfs"
    );
}

#[test]
fn regions_that_overlap_are_refused() {
    // One common byte, from either side, in either order.
    assert_eq!(
        refusal(vec![spec(0x1000, 0x1001, 0, 0), spec(0x2000, 0x1000, 0x9000, 0)]),
        "memory regions at guest addresses 0x1000 and 0x2000 overlap in their guest addresses"
    );
    assert_eq!(
        refusal(vec![spec(0x8000, 0x1000, 0x1fff, 0), spec(0x2000, 0x1000, 0x1000, 0)]),
        "memory regions at guest addresses 0x8000 and 0x2000 overlap in their user addresses"
    );
    // One within the other.
    assert!(matches!(
        GuestMemory::from_regions(vec![spec(0x2000, 0x1000, 0, 0), spec(0, 0x8000, 0x10000, 0)]),
        Err(MemoryError::Overlap { first: 0x2000, second: 0, space: "guest addresses" })
    ));
    // Adjacent regions do not overlap.
    let memory = GuestMemory::from_regions(vec![spec(0x1000, 0x1000, 0x1000, 0), spec(0x2000, 0x1000, 0, 0)]);
    assert_eq!(memory.unwrap().regions(), 2);
}

#[test]
fn as_many_regions_as_can_be_plugged_in() {
    let specs = |count: u64| -> Vec<RegionSpec> {
        let fd = file(1 << 16);
        (0..count)
            .map(|i| RegionSpec { fd: fd.try_clone().unwrap().into(), ..spec(i << 12, 1 << 12, i << 12, 0) })
            .collect()
    };
    let memory = GuestMemory::from_regions(specs(509)).unwrap();
    assert!((0..509).all(|i| memory.guest(i << 12, 4096).is_some()));
    assert_eq!(refusal(specs(510)), "memory table has 510 regions (at most 509)");
    let one_more = memory.with_region(spec(1 << 40, 4096, 1 << 40, 0));
    assert!(matches!(one_more, Err(MemoryError::TooMany { count: 510 })));
}

#[test]
fn regions_come_and_go_and_addresses_stay() {
    let first = GuestMemory::from_regions(vec![spec(0x10_0000, 0x1000, 0x70_0000, 0)]).unwrap();
    let at = first.guest(0x10_0010, 1).unwrap();
    let both = first.with_region(spec(0, 0x1000, 0x60_0000, 0)).unwrap();
    drop(first);
    assert_eq!(both.guest(0x10_0010, 1), Some(at));
    assert_eq!(
        both.without_region(0, 0x60_0000, 0x2000).unwrap_err().to_string(),
        "no memory region has guest address 0x0, user address 0x600000 and 8192 bytes"
    );
    let last = both.without_region(0, 0x60_0000, 0x1000).unwrap();
    drop(both);
    assert_eq!((last.regions(), last.guest(0, 1)), (1, None));
    assert_eq!(last.guest(0x10_0010, 1), Some(at));
    // The region is still mapped and writable.
    // SAFETY: one byte within a region of `last`; no other access.
    unsafe { at.as_ptr().write_volatile(7) };
    assert!(!last.faulted());
    assert_eq!(last.without_region(0x10_0000, 0x70_0000, 0x1000).unwrap().regions(), 0);
}

#[test]
fn offsets_in_the_file_are_kept() {
    let shared = DriverMemory::create("test", &[(0, 0x1000), (0x5000, 0x800), (0x5800, 0x1000)]).unwrap();
    let memory = GuestMemory::from_regions(shared.specs().unwrap()).unwrap();
    assert!(shared.write(0x57fe, &[1, 2, 3, 4]));
    let (at, len) = memory.guest_prefix(0x57fe, 4).unwrap();
    assert_eq!((len, memory.guest(0x57fe, 4)), (2, None));
    let rest = memory.guest(0x5800, 2).unwrap();
    // SAFETY: two bytes each within regions of `memory`; no concurrent writes.
    let bytes = unsafe {
        [at.read_volatile(), at.add(1).read_volatile(), rest.read_volatile(), rest.add(1).read_volatile()]
    };
    assert_eq!(bytes, [1, 2, 3, 4]);
    assert_eq!(memory.user(DriverMemory::user_address(0x5800), 2), Some(rest));
    assert_eq!(memory.user(0x5800, 2), None);
    assert_eq!(memory.guest_address(rest), Some(0x5800));
    let mut back = [0; 4];
    assert!(shared.read(0x57fe, &mut back) && back == [1, 2, 3, 4]);
    assert!(!shared.read(0x67fe, &mut back));
}

#[test]
fn a_truncated_file_is_noticed() {
    let fd = file(1 << 16);
    let truncated = fd.try_clone().unwrap();
    let memory =
        GuestMemory::from_regions(vec![RegionSpec { fd: fd.into(), ..spec(0, 1 << 16, 0, 0) }]).unwrap();
    let at = memory.guest(0x8000, 1).unwrap();
    ftruncate(&truncated, 0).unwrap();
    assert!(!memory.faulted());
    // SAFETY: within a region of `memory`; the fault is caught.
    assert_eq!(unsafe { at.as_ptr().read_volatile() }, 0);
    assert!(memory.faulted());
}

proptest! {
    /// Whatever the regions and the hint, an address translates to its offset in its region, and to nothing else.
    #[test]
    fn addresses_translate_to_their_offset(
        parts in prop::collection::vec((0u64..3, 1u64..0x1800), 1..8),
        asked in prop::collection::vec((0u64..0x10000, 0u64..0x2000, 0usize..10), 1..50),
    ) {
        // A gap of 0 makes adjacent regions.
        let mut next = 0;
        let mut regions = Vec::new();
        for (gap, size) in parts {
            next += gap * 0x500;
            regions.push((next, size));
            next += size;
        }
        let shared = DriverMemory::create("test", &regions).unwrap();
        let memory = GuestMemory::from_regions(shared.specs().unwrap()).unwrap();
        for (address, len, hint) in asked {
            let within = regions.iter().find(|(start, size)| (*start..start + size).contains(&address));
            let room = within.map(|(start, size)| start + size - address);
            let mut hint = hint;
            let found = memory.guest_near(&mut hint, address, len);
            prop_assert_eq!(found, memory.guest(address, len));
            match room {
                Some(room) => {
                    let base = memory.guest(within.unwrap().0, 0).unwrap();
                    // SAFETY: within the region that `base` begins.
                    let at = unsafe { base.add((address - within.unwrap().0) as usize) };
                    prop_assert_eq!(found, (len <= room).then_some(at));
                    prop_assert_eq!(memory.guest_prefix(address, len), Some((at, len.min(room))));
                    prop_assert_eq!(memory.guest_address(at), Some(address));
                }
                None if len > 0 => {
                    prop_assert_eq!(found, None);
                    prop_assert_eq!(memory.guest_prefix(address, len), None);
                }
                None => {}
            }
            let user = memory.user(DriverMemory::user_address(address), len);
            prop_assert!(len == 0 || user == found);
        }
    }
}
