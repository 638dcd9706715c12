//! A probe waits while holes are being punched into a client's file, and not otherwise.
#![allow(clippy::unwrap_used)]

use std::os::fd::AsFd;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use clientmem::Region;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};

const SIZE: u64 = 256 << 20;

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

#[test]
fn holes_are_waited_for() {
    let file = memfd_create("holes", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, SIZE).unwrap();
    let region = Region::map(file.as_fd(), SIZE).unwrap();
    // The probe may run before the kernel has begun.
    let seen = (0..50).any(|_| {
        fallocate(&file, FallocateFlags::empty(), 0, SIZE).unwrap();
        let calm = timed(|| region.wait_for_holes());
        let together = Barrier::new(2);
        let (punched, waited) = std::thread::scope(|scope| {
            let puncher = scope.spawn(|| {
                together.wait();
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                timed(|| fallocate(&file, flags, 0, SIZE).unwrap())
            });
            together.wait();
            std::thread::sleep(Duration::from_micros(200));
            let waited = timed(|| region.wait_for_holes());
            (puncher.join().unwrap(), waited)
        });
        println!("punched for {punched:?}, waited {waited:?}, undisturbed {calm:?}");
        waited > punched / 2 && calm < punched / 10
    });
    assert!(seen, "no probe waited for a hole");
    assert!(!region.faulted());
}
