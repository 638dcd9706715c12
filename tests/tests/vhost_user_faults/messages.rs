//! Invalid messages: wrong content, wrong time, wrong descriptors, wrong memory.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};

use e2e::{Running, memfd, until};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{Shutdown, shutdown};
use vhost_user::driver::DriverMemory;
use vhost_user::features::device::{MRG_RXBUF, RING_PACKED};
use vhost_user::frontend::{Connection, DeviceConfig, NetDevice};
use vhost_user::message::{Answer, Region, Request, RingAddresses, RingDescriptor, RingNumber};
use vhost_user::socket::send;

use crate::rig::{BASIC, LIMIT, Rig};

/// User address of guest address 0 in the front-end.
const USER: u64 = 0x7000_0000_0000;
const SIZE: u64 = 1 << 20;

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

fn number(ring: u32, number: u32) -> RingNumber {
    RingNumber { ring, number }
}

fn kick(ring: u8) -> Request {
    Request::SetVringKick(RingDescriptor { ring, present: true })
}

fn region(guest: u64, size: u64) -> Region {
    Region { guest, size, user: USER + guest, offset: 0 }
}

fn send_request(to: &mut Connection, request: &Request, fds: &[BorrowedFd<'_>]) {
    to.tell(request, fds).unwrap();
}

/// Sends arbitrary bytes.
fn send_raw(to: &Connection, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    send(to.socket(), bytes, fds).unwrap();
}

#[test]
fn wrong_messages_and_orders_are_refused() {
    let mut rig = Rig::start();
    let features = Request::SetFeatures(BASIC);
    let table = Request::SetMemTable(vec![region(0, SIZE)]);
    let size = Request::SetVringNum(number(1, 256));
    let order = [&features, &table, &size];
    let missing = ["SET_FEATURES", "the memory table", "SET_VRING_NUM", "SET_VRING_ADDR"];
    for (sent, missing) in missing.iter().enumerate() {
        rig.assert_refused(&format!("SET_VRING_KICK of ring 1 before {missing}"), |c| {
            let file = memfd(SIZE).unwrap();
            for request in &order[..sent] {
                let fds = vec![file.as_fd(); request.descriptors().0];
                send_request(c, request, &fds);
            }
            send_request(c, &kick(1), &[event().as_fd()]);
        });
    }
    let owner = Request::SetOwner.encode(false);
    let edited = |at: usize, byte: u8| {
        let mut bytes = Request::SetFeatures(0).encode(false);
        bytes[at] = byte;
        bytes
    };
    let tables = |count: u8| {
        let mut bytes = Request::SetMemTable(vec![region(0, SIZE)]).encode(false);
        bytes[12] = count;
        bytes
    };
    let raw: [(&str, Vec<u8>); 9] = [
        ("message of protocol version 2, expected 1", edited(4, 2)),
        ("message of protocol version 0, expected 1", vec![0; 12]),
        ("unknown request 99", edited(0, 99)),
        ("SET_FEATURES with 7 bytes of payload, expected 8", edited(8, 7)),
        ("SET_FEATURES announces 4278190088 bytes (at most 264)", edited(11, 0xff)),
        ("SET_FEATURES with the wrong reply flag", edited(4, 5)),
        ("SET_MEM_TABLE with 0 regions, expected 1 to 8", tables(0)),
        ("SET_MEM_TABLE with 9 regions, expected 1 to 8", tables(9)),
        ("SET_OWNER with 8 bytes of payload, expected 0", [&owner[..8], &[8, 0, 0, 0], &[0; 8]].concat()),
    ];
    for (reason, bytes) in &raw {
        rig.assert_refused(reason, |c| send_raw(c, bytes, &[]));
    }
    rig.assert_refused("the control connection ended within a message", |c| {
        send_raw(c, &owner[..7], &[]);
        shutdown(c.socket(), Shutdown::Write).unwrap();
    });
    let invalid: [(&str, Request); 9] = [
        (
            "ring 99 does not exist: the device has 32 rings, two for each queue pair",
            Request::SetVringEnable(number(99, 1)),
        ),
        ("ring 0 of 0 entries, expected 1 to 32768", Request::SetVringNum(number(0, 0))),
        ("ring 0 of 65536 entries, expected 1 to 32768", Request::SetVringNum(number(0, 65_536))),
        ("SET_VRING_ENABLE of ring 0 with 2, expected 0 or 1", Request::SetVringEnable(number(0, 2))),
        ("SET_FEATURES with bits that were not offered: 63", Request::SetFeatures(1 << 63)),
        ("SET_FEATURES with bits that were not offered: 5, 62", Request::SetFeatures(1 << 5 | 1 << 62)),
        ("SET_PROTOCOL_FEATURES with bits that were not offered: 63", Request::SetProtocolFeatures(1 << 63)),
        (
            "no memory region has guest address 0x0, user address 0x700000000000 and 1048576 bytes",
            Request::RemMemReg(region(0, SIZE)),
        ),
        (
            "SET_VRING_KICK of ring 1 without an eventfd: drivers that do not signal are not supported",
            Request::SetVringKick(RingDescriptor { ring: 1, present: false }),
        ),
    ];
    for (reason, request) in &invalid {
        rig.assert_refused(reason, |c| send_request(c, request, &[]));
    }
    // On a running device.
    let started: [(&str, Request); 3] = [
        ("SET_VRING_NUM of ring 0 while it is started", Request::SetVringNum(number(0, 8))),
        ("SET_VRING_BASE of ring 1 while it is started", Request::SetVringBase(number(1, 8))),
        (
            "SET_FEATURES with different features while rings are started",
            Request::SetFeatures(BASIC | MRG_RXBUF),
        ),
    ];
    for (reason, request) in &started {
        rig.assert_broken(BASIC, reason, |device, _| send_request(device.connection(), request, &[]));
    }
    rig.assert_broken(BASIC, "SET_VRING_ADDR of ring 1 while it is started", |device, _| {
        let moved = RingAddresses { used: USER, ..addresses(device, 1) };
        send_request(device.connection(), &Request::SetVringAddr(moved), &[]);
    });
    rig.finish();
}

#[test]
fn wrong_descriptors() {
    let mut rig = Rig::start();
    let file = memfd(SIZE).unwrap();
    let (pipe, _writer) = rustix::pipe::pipe().unwrap();
    let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
    let table = Request::SetMemTable(vec![region(0, SIZE)]);
    let add = Request::AddMemReg(region(0, SIZE));
    let absent = Request::SetVringCall(RingDescriptor { ring: 1, present: false });
    let event = event();
    let wrong: [(&str, &Request, &[BorrowedFd<'_>]); 7] = [
        ("SET_MEM_TABLE with 0 file descriptors, expected 1", &table, &[]),
        ("SET_MEM_TABLE with 2 file descriptors, expected 1", &table, &[file.as_fd(); 2]),
        ("ADD_MEM_REG with 0 file descriptors, expected 1", &add, &[]),
        ("SET_OWNER with 1 file descriptor, expected 0", &Request::SetOwner, &[file.as_fd()]),
        ("SET_VRING_KICK with 0 file descriptors, expected 1", &kick(1), &[]),
        ("SET_VRING_KICK with 8 file descriptors, expected 1", &kick(1), &[event.as_fd(); 8]),
        ("SET_VRING_CALL with 1 file descriptor, expected 0", &absent, &[event.as_fd()]),
    ];
    for (reason, request, fds) in wrong {
        rig.assert_refused(reason, |c| send_request(c, request, fds));
    }
    rig.assert_refused("message with more than 8 file descriptors", |c| {
        for byte in Request::SetOwner.encode(false).chunks(6) {
            send_raw(c, byte, &[file.as_fd(); 5]);
        }
    });
    for fd in [file.as_fd(), pipe.as_fd(), socket.as_fd()] {
        let reason = "SET_VRING_KICK of ring 1 with a file descriptor that is not an eventfd";
        rig.assert_refused(reason, |c| send_request(c, &kick(1), &[fd]));
        let call = Request::SetVringCall(RingDescriptor { ring: 0, present: true });
        let reason = "SET_VRING_CALL of ring 0 with a file descriptor that is not an eventfd";
        rig.assert_broken(BASIC, reason, |device, _| send_request(device.connection(), &call, &[fd]));
    }
    rig.finish();
}

#[test]
fn wrong_memory() {
    let mut rig = Rig::start();
    let file = memfd(SIZE).unwrap();
    let at = |fault: &str| format!("memory region at guest address 0x0: {fault}");
    let disk = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    disk.set_len(SIZE).unwrap();
    let read_only = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    let (pipe, _writer) = rustix::pipe::pipe().unwrap();
    let zero = File::options().read(true).write(true).open("/dev/zero").unwrap();
    let folder = File::open("/").unwrap();
    let mut files: Vec<(String, BorrowedFd<'_>)> = vec![
        (at("memory file is not open for reading and writing"), read_only.as_fd()),
        (at("memory file is a pipe, not a regular file on tmpfs or hugetlbfs"), pipe.as_fd()),
        (at("memory file is a character device, not a regular file on tmpfs or hugetlbfs"), zero.as_fd()),
        (at("memory file is a directory, not a regular file on tmpfs or hugetlbfs"), folder.as_fd()),
    ];
    if rustix::fs::fstatfs(&disk).unwrap().f_type != 0x0102_1994 {
        files.push((at("memory file is not on tmpfs (memfd) or hugetlbfs"), disk.as_fd()));
    }
    for (reason, fd) in files {
        rig.assert_refused(&reason, |c| send_request(c, &Request::SetMemTable(vec![region(0, SIZE)]), &[fd]));
    }
    let invalid: Vec<(String, Vec<Region>)> = vec![
        ("memory region at guest address 0x0 has size 0".into(), vec![region(0, 0)]),
        (at("region size 1048577 is larger than its file of 1048576 bytes"), vec![region(0, SIZE + 1)]),
        (
            at("region size 1048576 at offset 1 is larger than its file of 1048576 bytes"),
            vec![Region { offset: 1, ..region(0, SIZE) }],
        ),
        (
            "memory region at guest address 0xfffffffffffff000 of 8192 bytes wraps around in its guest addresses"
                .into(),
            vec![Region { guest: u64::MAX - 4095, user: 0, ..region(0, 8192) }],
        ),
        (
            "memory region at guest address 0x0 of 8192 bytes wraps around in its user addresses".into(),
            vec![Region { user: u64::MAX - 4095, ..region(0, 8192) }],
        ),
        (
            "memory region at guest address 0x0 of 8192 bytes wraps around in its file offsets".into(),
            vec![Region { offset: u64::MAX - 4095, ..region(0, 8192) }],
        ),
        (
            "memory regions at guest addresses 0x0 and 0xfffff overlap in their guest addresses".into(),
            vec![region(0, SIZE), Region { user: 0, ..region(SIZE - 1, 4096) }],
        ),
        (
            "memory regions at guest addresses 0x0 and 0x10000000 overlap in their user addresses".into(),
            vec![region(0, SIZE), Region { user: USER + 4096, ..region(1 << 28, 4096) }],
        ),
        ("more than 1099511627776 bytes of memory".into(), vec![region(0, 1 << 41)]),
        ("more than 1099511627776 bytes of memory".into(), vec![region(0, u64::MAX); 8]),
    ];
    for (reason, regions) in &invalid {
        let fds = vec![file.as_fd(); regions.len()];
        rig.assert_refused(reason, |c| send_request(c, &Request::SetMemTable(regions.clone()), &fds));
    }
    // Regions until the limit is reached.
    rig.assert_refused("more memory regions than the limit of 32", |c| {
        for i in 0..33 {
            send_request(c, &Request::AddMemReg(region(i * SIZE, SIZE)), &[file.as_fd()]);
        }
    });
    // The memory of the rings is removed.
    let gone = "ring 0: the ring's descriptor area of 4096 bytes at user address 0x700010000000 is outside the memory table";
    rig.assert_broken(BASIC, gone, |device, _| {
        let spec = device.memory().specs().unwrap().pop().unwrap();
        let Region { guest, size, user, offset } =
            Region { guest: spec.guest_address, size: spec.size, user: spec.user_address, offset: 0 };
        send_request(device.connection(), &Request::RemMemReg(Region { guest, size, user, offset }), &[]);
    });
    rig.finish();
}

/// Addresses of a device's ring, as its front-end reports them.
fn addresses(device: &mut NetDevice, ring: u32) -> RingAddresses {
    let user = DriverMemory::user_addresses(&device.queue(ring as usize).unwrap().config().addresses);
    RingAddresses {
        ring,
        flags: 0,
        descriptors: user.descriptors,
        used: user.device,
        available: user.driver,
        log: 0,
    }
}

#[test]
fn rings_at_invalid_addresses_are_refused() {
    let mut rig = Rig::start();
    type Move = fn(RingAddresses) -> RingAddresses;
    let outside = |part: &str, len: u32, at: u64| {
        format!(
            "ring 1: the ring's {part} area of {len} bytes at user address {at:#x} is outside the memory table"
        )
    };
    let misaligned = |part: &str, by: u32| {
        format!("ring 1: the ring's {part} area does not start at a multiple of {by} bytes")
    };
    let split: [(String, Move); 6] = [
        (outside("descriptor", 4096, 0x1000), |a| RingAddresses { descriptors: 0x1000, ..a }),
        (outside("driver", 518, u64::MAX - 15), |a| RingAddresses { available: u64::MAX - 15, ..a }),
        (outside("device", 2054, 0), |a| RingAddresses { used: 0, ..a }),
        (misaligned("descriptor", 16), |a| RingAddresses { descriptors: a.descriptors + 8, ..a }),
        (misaligned("driver", 2), |a| RingAddresses { available: a.available + 1, ..a }),
        (misaligned("device", 4), |a| RingAddresses { used: a.used + 2, ..a }),
    ];
    let packed: [(String, Move); 2] = [
        (outside("device", 4, 0), |a| RingAddresses { used: 0, ..a }),
        (misaligned("driver", 4), |a| RingAddresses { available: a.available + 2, ..a }),
    ];
    let stop = |device: &mut NetDevice| {
        device.connection().ask(&Request::GetVringBase(number(1, 0)), &[], false).unwrap();
    };
    let cases = split.iter().map(|case| (0, case)).chain(packed.iter().map(|case| (RING_PACKED, case)));
    for (format, (reason, place)) in cases {
        rig.assert_broken(BASIC | format, reason, |device, _| {
            stop(device);
            let moved = Request::SetVringAddr(place(addresses(device, 1)));
            send_request(device.connection(), &moved, &[]);
            send_request(device.connection(), &kick(1), &[event().as_fd()]);
        });
    }
    rig.assert_broken(BASIC, "ring 1: ring size 100 is not a power of two up to 32768", |device, _| {
        stop(device);
        send_request(device.connection(), &Request::SetVringNum(number(1, 100)), &[]);
        send_request(device.connection(), &kick(1), &[event().as_fd()]);
    });
    let base = "ring 1: ring base 0x81008100 is not a position in a ring of 256";
    rig.assert_broken(BASIC | RING_PACKED, base, |device, _| {
        stop(device);
        send_request(device.connection(), &Request::SetVringBase(number(1, 0x8100)), &[]);
        send_request(device.connection(), &kick(1), &[event().as_fd()]);
    });
    rig.finish();
}

#[test]
fn front_ends_that_stop_midway_release_the_port() {
    let mut rig = Rig::start();
    // Killed while packets pass.
    for _ in 0..3 {
        drop(rig.good(DeviceConfig::default()));
        let received = || rig.daemon.port("br1", "bad").map(|port| port.received());
        let before = received().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_vhost-load"));
        command.arg(rig.socket()).stdin(Stdio::null()).stdout(Stdio::null());
        let mut load = Running::start(&mut command).unwrap();
        until("full load", LIMIT, || Ok((received()? > before + 5000).then_some(()))).unwrap();
        load.kill().unwrap();
        rig.assert_down("the front-end closed the connection");
    }
    // Sends requests without reading the answers.
    rig.assert_refused("the front-end does not read the replies that it requests", |c| {
        // Until the switch closes the connection.
        while c.tell(&Request::GetFeatures, &[]).is_ok() {}
    });
    // Half a message, then silence.
    rig.assert_refused("the control connection stopped within a message", |c| {
        send_raw(c, &Request::SetFeatures(BASIC).encode(false)[..15], &[]);
        c.wait_closed().unwrap();
    });
    // A silent connection blocks no other port, and the next connection can use this one after its end.
    let silent = rig.dial();
    let answer = rig.dial().ask(&Request::GetFeatures, &[], false);
    assert!(answer.is_err(), "{answer:?}");
    drop(silent);
    let answer = rig.dial().ask(&Request::GetFeatures, &[], false).unwrap();
    assert!(matches!(answer, Answer::Number(features) if features & BASIC == BASIC));
    rig.finish();
}
