//! Faults when the process has no mappings left. In its own process, since no other test could map memory meanwhile.
#![allow(clippy::unwrap_used)]

use std::os::fd::AsFd;

use clientmem::Region;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

#[test]
fn more_faults_than_a_process_may_have_mappings_are_survived() {
    let most: u64 = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap().trim().parse().unwrap();
    let fd = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    // Every second window: each fault adds two mappings.
    let step = 2 * (64 << 10);
    let size = (most / 2 + 1000) * step;
    ftruncate(&fd, size).unwrap();
    let region = Region::map(fd.as_fd(), size).unwrap();
    ftruncate(&fd, 0).unwrap();
    for offset in (0..size).step_by(step as usize) {
        // SAFETY: `at` checked the byte; the region outlives the access.
        assert_eq!(unsafe { region.at(offset, 1).unwrap().as_ptr().read_volatile() }, 0);
    }
    assert!(region.faulted());
    drop(region);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count() as u64;
    assert!(maps < most / 2, "{maps} mappings are left");
}
