//! Memory that is taken away while packets are under way, and eventfds that block.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use e2e::{memfd, seconds, until};
use rustix::fs::{FallocateFlags, OFlags, fallocate, fcntl_getfl, fcntl_setfl, ftruncate};
use vhost_user::driver::DriverMemory;
use vhost_user::features::device::RING_PACKED;
use vhost_user::frontend::{DeviceConfig, NetDevice};

use crate::rig::{BASIC, LIMIT, Rig, frame, pass};

/// Sends and receives as fast as it goes until told to stop, or until nothing in the memory makes sense any more.
fn under_load(mut device: NetDevice, stop: &AtomicBool) -> NetDevice {
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..16 {
            if device.send(0, &[0; 12], &frame(5, 1000)).is_err() || device.receive(0).is_err() {
                return device;
            }
        }
        std::thread::yield_now();
    }
    device
}

/// Does something to a front-end's memory file while it sends and is sent to. Returns why its port went down; if it did not
/// within `patience`, nothing.
fn memory_taken(
    rig: &mut Rig,
    features: u64,
    patience: Duration,
    take: impl Fn(&OwnedFd, u64),
) -> Option<String> {
    drop(rig.good(DeviceConfig::default()));
    let (mut file, mut size) = (None, 0);
    let config = DeviceConfig { features, send_buffers: 32, ..DeviceConfig::default() };
    let device = NetDevice::start_in(rig.dial(), config, |start, bytes| {
        DriverMemory::create_in(&[(start, bytes)], |bytes| {
            let made = memfd(bytes).map_err(std::io::Error::other)?;
            (file, size) = (Some(made.try_clone()?), bytes);
            Ok(made)
        })
    });
    let (device, file) = (device.unwrap(), file.unwrap());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| under_load(device, &stop));
        let received = || rig.daemon.port("br1", "bad").map(|port| port.received());
        let before = received().unwrap();
        until("some load", LIMIT, || Ok((received()? > before + 2000).then_some(()))).unwrap();
        take(&file, size);
        let end = Instant::now() + patience;
        let mut reason = None;
        while reason.is_none() && Instant::now() < end {
            for _ in 0..20 {
                let _ = rig.peer.send(0, &[0; 12], &frame(6, 500)).unwrap();
                while rig.peer.receive(0).unwrap().is_some() {}
            }
            let port = rig.daemon.port("br1", "bad").unwrap();
            reason = (!port.is_up()).then(|| port.reason().to_string());
        }
        stop.store(true, Ordering::Relaxed);
        load.join().unwrap();
        reason
    })
}

const TAKEN: &str = "shared memory was truncated or punched (SIGBUS)";

#[test]
fn memory_truncated_while_packets_pass() {
    let mut rig = Rig::start();
    for features in [BASIC, BASIC | RING_PACKED] {
        let reason = memory_taken(&mut rig, features, LIMIT, |file, _| ftruncate(file, 0).unwrap());
        assert_eq!(reason.as_deref(), Some(TAKEN));
        // One ring stays and some of its buffers: copying meets the hole.
        let reason = memory_taken(&mut rig, features, LIMIT, |file, _| ftruncate(file, 65_536).unwrap());
        assert_eq!(reason.as_deref(), Some(TAKEN));
    }
    rig.finish();
}

#[test]
fn memory_punched_while_packets_pass() {
    let mut rig = Rig::start();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    // In a tmpfs a hole reads as zeros and can be written again: the front-end harms its own packets, and may get away with it.
    let reason =
        memory_taken(&mut rig, BASIC, seconds(2, 20), |file, size| fallocate(file, punch, 0, size).unwrap());
    let known = [
        TAKEN,
        "ring 1: ring index jumped",
        "ring 0: ring index jumped",
        "ring 1: packet of 0 bytes",
        "ring 0: receive buffer of 0 bytes",
    ];
    assert!(reason.iter().all(|reason| known.iter().any(|known| reason.starts_with(known))), "{reason:?}");
    rig.bystanders_go_on();
    rig.finish();
}

/// Lets writes to an eventfd block, and fills it.
fn clog(event: BorrowedFd<'_>) {
    // It may hold something already.
    let _ = rustix::io::read(event, &mut [0; 8]);
    rustix::io::write(event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let flags = fcntl_getfl(event).unwrap();
    fcntl_setfl(event, flags - OFlags::NONBLOCK).unwrap();
}

#[test]
fn eventfds_that_block() {
    let mut rig = Rig::start();
    let mut device = rig.good(DeviceConfig::default());
    // Signals are wanted, and the counters are full: a plain write of the switch would never return.
    for ring in [0, 1] {
        device.queue(ring).unwrap().set_calls(true);
        clog(device.call(ring).unwrap());
    }
    for number in 0..50 {
        pass(&mut device, &mut rig.peer, number);
        pass(&mut rig.peer, &mut device, number);
    }
    rig.bystanders_go_on();
    // The other one: it becomes readable and empty again, in the hope that the switch reads when there is nothing.
    let kick = device.kick(1).unwrap().try_clone_to_owned().unwrap();
    let flags = fcntl_getfl(&kick).unwrap();
    for _ in 0..300 {
        // Nobody waits for what is sent: it may or may not have come when the next one does.
        let _ = device.send(0, &[0; 12], &frame(9, 60)).unwrap();
        fcntl_setfl(&kick, flags | OFlags::NONBLOCK).unwrap();
        let _ = rustix::io::read(&kick, &mut [0; 8]);
        fcntl_setfl(&kick, flags - OFlags::NONBLOCK).unwrap();
        std::thread::sleep(Duration::from_micros(100));
    }
    fcntl_setfl(&kick, flags | OFlags::NONBLOCK).unwrap();
    clog(kick.as_fd());
    rig.bystanders_go_on();
    assert!(rig.daemon.port("br1", "bad").unwrap().is_up());
    drop(device);
    rig.down("the front-end closed the connection");
    rig.finish();
}
