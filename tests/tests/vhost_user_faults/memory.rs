//! Memory that disappears while packets pass, and eventfds that block.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use e2e::{memfd, seconds, until};
use rustix::fs::{FallocateFlags, OFlags, fallocate, fcntl_getfl, fcntl_setfl, ftruncate};
use vhost_user::driver::DriverMemory;
use vhost_user::features::device::RING_PACKED;
use vhost_user::frontend::{DeviceConfig, NetDevice};

use crate::rig::{BASIC, LIMIT, Rig, frame, pass};

/// Sends and receives as fast as possible until stopped, or until the memory is invalid.
fn load(mut device: NetDevice, stop: &AtomicBool) -> NetDevice {
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

/// Attacks a front-end's memory file while it sends and receives. Returns the reason that its port went down, or `None`
/// if it stayed up for `patience`.
fn attack_memory(
    rig: &mut Rig,
    features: u64,
    patience: Duration,
    attack: impl Fn(&OwnedFd, u64),
) -> Option<String> {
    drop(rig.good(DeviceConfig::default()));
    let (mut file, mut size) = (None, 0);
    let config = DeviceConfig { features, send_buffers: 32, ..DeviceConfig::default() };
    let device = NetDevice::start_in(rig.dial(), config, |start, bytes| {
        DriverMemory::create_in(&[(start, bytes)], |bytes| {
            let created = memfd(bytes).map_err(std::io::Error::other)?;
            (file, size) = (Some(created.try_clone()?), bytes);
            Ok(created)
        })
    });
    let (device, file) = (device.unwrap(), file.unwrap());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| load(device, &stop));
        let received = || rig.daemon.port("br1", "bad").map(|port| port.received());
        let before = received().unwrap();
        until("some load", LIMIT, || Ok((received()? > before + 2000).then_some(()))).unwrap();
        attack(&file, size);
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
        sender.join().unwrap();
        reason
    })
}

const TRUNCATED: &str = "shared memory was truncated or punched (SIGBUS)";

#[test]
fn memory_truncated_while_packets_pass() {
    let mut rig = Rig::start();
    for features in [BASIC, BASIC | RING_PACKED] {
        let reason = attack_memory(&mut rig, features, LIMIT, |file, _| ftruncate(file, 0).unwrap());
        assert_eq!(reason.as_deref(), Some(TRUNCATED));
        // One ring and some of its buffers stay, so only copies hit the hole.
        let reason = attack_memory(&mut rig, features, LIMIT, |file, _| ftruncate(file, 65_536).unwrap());
        assert_eq!(reason.as_deref(), Some(TRUNCATED));
    }
    rig.finish();
}

#[test]
fn memory_punched_while_packets_pass() {
    let mut rig = Rig::start();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    // In a tmpfs a hole reads as zeros and can be written again: the front-end harms only its own packets, so the port
    // may stay up.
    let reason =
        attack_memory(&mut rig, BASIC, seconds(2, 20), |file, size| fallocate(file, punch, 0, size).unwrap());
    let known = [
        TRUNCATED,
        "ring 1: ring index jumped",
        "ring 0: ring index jumped",
        "ring 1: packet of 0 bytes",
        "ring 0: receive buffer of 0 bytes",
    ];
    assert!(reason.iter().all(|reason| known.iter().any(|known| reason.starts_with(known))), "{reason:?}");
    rig.wait_bystanders();
    rig.finish();
}

/// Fills an eventfd and makes writes to it block.
fn clog(event: BorrowedFd<'_>) {
    // It may already hold a value.
    let _ = rustix::io::read(event, &mut [0; 8]);
    rustix::io::write(event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let flags = fcntl_getfl(event).unwrap();
    fcntl_setfl(event, flags - OFlags::NONBLOCK).unwrap();
}

#[test]
fn eventfds_that_block() {
    let mut rig = Rig::start();
    let mut device = rig.good(DeviceConfig::default());
    // Signals are requested and the counters are full: a plain write of the switch would block forever.
    for ring in [0, 1] {
        device.queue(ring).unwrap().set_calls(true);
        clog(device.call(ring).unwrap());
    }
    for number in 0..50 {
        pass(&mut device, &mut rig.peer, number);
        pass(&mut rig.peer, &mut device, number);
    }
    rig.wait_bystanders();
    // The other eventfd becomes readable and empty again, which would block a plain read of the switch.
    let kick = device.kick(1).unwrap().try_clone_to_owned().unwrap();
    let flags = fcntl_getfl(&kick).unwrap();
    for _ in 0..300 {
        // The next packet does not wait for this one.
        let _ = device.send(0, &[0; 12], &frame(9, 60)).unwrap();
        fcntl_setfl(&kick, flags | OFlags::NONBLOCK).unwrap();
        let _ = rustix::io::read(&kick, &mut [0; 8]);
        fcntl_setfl(&kick, flags - OFlags::NONBLOCK).unwrap();
        std::thread::sleep(Duration::from_micros(100));
    }
    fcntl_setfl(&kick, flags | OFlags::NONBLOCK).unwrap();
    clog(kick.as_fd());
    rig.wait_bystanders();
    assert!(rig.daemon.port("br1", "bad").unwrap().is_up());
    drop(device);
    rig.assert_down("the front-end closed the connection");
    rig.finish();
}
