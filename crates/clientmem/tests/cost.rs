//! Cost of a fault to the faulting thread: no higher in a large mapping than in a small one, nor while another mapping
//! is unmapped. `cargo test -p mswitch-clientmem --test cost -- --nocapture` prints the figures.
#![allow(clippy::unwrap_used)]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clientmem::{MAX_REGION_SIZE, Region};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

const PAGE: u64 = 4096;
const SMALL: u64 = 4 << 20;
const LARGE: u64 = 1 << 30;
const ROUNDS: usize = 9;

/// One measurement at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file with all of its pages.
fn populated(size: u64) -> OwnedFd {
    let fd = memfd_create("cost", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::empty(), 0, size).unwrap();
    fd
}

/// A mapping of the whole file with every page touched.
fn touched(fd: &OwnedFd, size: u64) -> Region {
    let region = Region::map(fd.as_fd(), size).unwrap();
    (0..size).step_by(PAGE as usize).for_each(|offset| read(&region, offset));
    region
}

fn read(region: &Region, offset: u64) {
    // SAFETY: `at` checked the byte; the region outlives the call.
    let _ = unsafe { region.at(offset, 1).unwrap().as_ptr().read_volatile() };
}

/// The slowest of many accesses spread over a touched mapping whose file has just lost its last page.
fn worst(fd: &OwnedFd, size: u64) -> Duration {
    let region = touched(fd, size);
    ftruncate(fd, size - PAGE).unwrap();
    let access = |offset| {
        let start = Instant::now();
        read(&region, offset);
        start.elapsed()
    };
    // The lost page first.
    let worst = (0..64).map(|i| access(size - PAGE - i * (size / 64))).max().unwrap();
    assert!(region.faulted());
    ftruncate(fd, size).unwrap();
    worst
}

fn median(mut of: Vec<Duration>) -> Duration {
    of.sort();
    of[of.len() / 2]
}

#[test]
fn a_fault_costs_as_much_in_a_large_mapping_as_in_a_small_one() {
    let _alone = alone();
    let (small, large) = (populated(SMALL), populated(LARGE));
    let rounds = (0..ROUNDS).map(|_| (worst(&small, SMALL), worst(&large, LARGE)));
    let (in_small, in_large): (Vec<_>, Vec<_>) = rounds.unzip();
    println!("worst access when the last page is gone, 4 MiB: {in_small:?}, 1 GiB: {in_large:?}");
    // 256 times as large; replacing all of it takes more than 100 times as long.
    let (in_small, in_large) = (median(in_small), median(in_large));
    assert!(in_large < 10 * in_small, "{in_large:?} in 1 GiB, {in_small:?} in 4 MiB");
}

#[test]
fn a_fault_does_not_wait_for_a_large_mapping_to_go() {
    let _alone = alone();
    let (small, large) = (populated(SMALL), populated(LARGE));
    let mut waits = Vec::new();
    let mut drops = Vec::new();
    for _ in 0..ROUNDS {
        let mapped = touched(&large, LARGE);
        let dropping = std::thread::spawn(move || {
            let start = Instant::now();
            drop(mapped);
            start.elapsed()
        });
        let mut worst_wait = Duration::ZERO;
        while !dropping.is_finished() {
            worst_wait = worst_wait.max(worst(&small, SMALL));
        }
        waits.push(worst_wait);
        drops.push(dropping.join().unwrap());
    }
    println!("worst access while 1 GiB is unmapped: {waits:?}, unmapping: {drops:?}");
    let (wait, unmapping) = (median(waits), median(drops));
    assert!(wait < unmapping / 2, "{wait:?}, while unmapping takes {unmapping:?}");
}

#[test]
fn a_mapping_without_pages_goes_at_once_however_large() {
    let _alone = alone();
    let fd = memfd_create("cost", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, MAX_REGION_SIZE).unwrap();
    let region = Region::map(fd.as_fd(), MAX_REGION_SIZE).unwrap();
    let start = Instant::now();
    region.void();
    let voiding = start.elapsed();
    drop(region);
    let both = start.elapsed();
    println!("1 TiB without pages is taken away in {voiding:?}, then unmapped in {:?}", both - voiding);
    assert!(both < Duration::from_secs(2), "{both:?}");
}
