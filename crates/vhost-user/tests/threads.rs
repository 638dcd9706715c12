//! Driver and device in separate threads that sleep when idle: neither signals nor chains are lost.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use support::{BUFFERS, Pair, pair};
use vhost_user::Chain;
use vhost_user::driver::Buffer;
use vhost_user::virtqueue::{Features, Format};

const CHAINS: u64 = 20_000;

fn signal(fd: &OwnedFd) {
    rustix::io::write(fd, &1u64.to_ne_bytes()).unwrap();
}

/// Sleeps until signalled. A lost signal shows as a timeout.
fn sleep(fd: BorrowedFd<'_>, who: &str) {
    let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)), Ok(1), "{who} was not woken");
    rustix::io::read(fd, &mut [0; 8]).unwrap();
}

/// The driver writes a number to each buffer, the device checks and answers it, the driver checks the answer.
fn exchange(format: Format, size: u16, features: Features) {
    let Pair { shared, memory, mut driver, mut device } = pair(format, size, features);
    let (kick, call) =
        (eventfd(0, EventfdFlags::CLOEXEC).unwrap(), eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut chain = Chain::new();
            let mut next = 0u64;
            device.set_kicks(false);
            while next < CHAINS {
                let mut taken = 0;
                while taken < 7 && device.take(&memory, &mut chain).unwrap() {
                    let (from, to) = (chain.readable()[0].at, chain.writable()[0].at);
                    // SAFETY: 8 bytes each, by the lengths checked, within `memory`; the driver does not access them
                    // now.
                    unsafe {
                        assert_eq!((chain.readable_bytes(), chain.writable_bytes()), (8, 8));
                        assert_eq!(from.cast::<u64>().read_volatile(), next);
                        to.cast::<u64>().write_volatile(!next);
                    }
                    device.give_back(chain.id(), chain.slots(), 8);
                    (taken, next) = (taken + 1, next + 1);
                }
                if taken > 0 {
                    device.publish();
                    if device.wants_call() {
                        signal(&call);
                    }
                } else {
                    device.set_kicks(true);
                    if device.available().unwrap() == 0 {
                        sleep(kick.as_fd(), "the device");
                    }
                    device.set_kicks(false);
                }
            }
        });
        let (mut sent, mut received) = (0u64, 0u64);
        let place = |number: u64| BUFFERS + number % (2 * u64::from(size)) * 16;
        while received < CHAINS {
            let mut staged = 0;
            while staged < 5 && sent < CHAINS {
                let address = place(sent);
                let [read, write] = [address, address + 8].map(|address| Buffer { address, len: 8 });
                if driver.add(&[read], &[write], None).is_none() {
                    break;
                }
                assert!(shared.write(address, &sent.to_ne_bytes()));
                (staged, sent) = (staged + 1, sent + 1);
            }
            if staged > 0 {
                driver.publish();
                if driver.wants_kick() {
                    signal(&kick);
                }
                continue;
            }
            // No room, or all sent.
            let before = received;
            driver.set_calls(true);
            while let Some(used) = driver.pop().unwrap() {
                assert_eq!(used.len, 8);
                let mut answer = [0; 8];
                assert!(shared.read(place(received) + 8, &mut answer));
                assert_eq!(u64::from_ne_bytes(answer), !received);
                received += 1;
            }
            if received == before {
                sleep(call.as_fd(), "the driver");
            }
            driver.set_calls(false);
        }
    });
}

#[test]
fn split() {
    for event_idx in [false, true] {
        exchange(Format::Split, 16, Features { event_idx, ..Features::default() });
    }
}

#[test]
fn packed() {
    for event_idx in [false, true] {
        for in_order in [false, true] {
            exchange(Format::Packed, 15, Features { event_idx, in_order, ..Features::default() });
        }
    }
}
