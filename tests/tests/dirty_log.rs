//! The dirty log of a live migration, with our own front-end that knows all writes to its memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use e2e::{Daemon, config, long, memfd, until};
use vhost_user::features::device;
use vhost_user::frontend::{Connection, DeviceConfig, HEADER_LEN, NetDevice};
use vhost_user::message::{Answer, Request, RingNumber};
use vhost_user::virtqueue::{Areas, Format};

const PAGE: u64 = 4096;
/// Guest address of our front-end's memory, and size of a log for it and for more.
const START: u64 = 1 << 28;
const LOG: u64 = (START + (16 << 20)) / PAGE / 8;
const PATIENCE: Duration = Duration::from_secs(20);

const PLAIN: u64 = device::VERSION_1 | device::PROTOCOL_FEATURES;

fn daemon() -> Daemon {
    let ports = config::vhost_user("a", "") + &config::vhost_user("b", "");
    Daemon::start(&(config::bridge("br0", "static") + &ports)).unwrap()
}

fn connect(daemon: &Daemon, port: &str, config: DeviceConfig) -> NetDevice {
    let path = daemon.path(&format!("{port}.sock"));
    // The previous client may not have gone yet.
    let started = until("the port to be free", PATIENCE, || {
        let connection = Connection::dial(path.as_ref()).unwrap();
        Ok(NetDevice::start(connection, config).ok())
    });
    daemon.wait_up("br0", port).unwrap();
    started.unwrap()
}

fn page(number: u8, len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(number.into());
    let mut packet: Vec<u8> = (0..len).map(|_| random.u8(1..)).collect();
    packet[..6].fill(0xff);
    packet
}

/// Content of the memory, page by page.
fn memory(device: &NetDevice) -> Vec<Vec<u8>> {
    let mut pages = Vec::new();
    let mut bytes = vec![0; PAGE as usize];
    while device.memory().read(START + pages.len() as u64 * PAGE, &mut bytes) {
        pages.push(bytes.clone());
    }
    pages
}

/// Changed pages, counted from the start of the memory.
fn changed(before: &[Vec<u8>], after: &[Vec<u8>]) -> BTreeSet<u64> {
    (0..).zip(before.iter().zip(after)).filter(|(_, (a, b))| a != b).map(|(page, _)| page).collect()
}

/// Pages marked in the log.
fn marked(log: &OwnedFd) -> BTreeSet<u64> {
    let mut bytes = vec![0; LOG as usize];
    assert_eq!(rustix::io::pread(log, &mut bytes, 0).unwrap(), bytes.len());
    let bits = (0..).zip(bytes).flat_map(|(at, byte)| {
        (0..8u64).filter(move |bit| byte & 1 << bit != 0).map(move |bit| at * 8 + bit)
    });
    bits.map(|page: u64| page.checked_sub(START / PAGE).expect("a page below the memory is marked")).collect()
}

/// Pages of a ring that the device may write.
fn ring_pages(device: &mut NetDevice, ring: usize) -> BTreeSet<u64> {
    let config = *device.queue(ring).unwrap().config();
    let [descriptors, _, area] = Areas::lengths(config.format, config.size).map(|len| len as u64);
    let mut ranges = vec![(config.addresses.device, area)];
    if config.format == Format::Packed {
        ranges.push((config.addresses.descriptors, descriptors));
    }
    let pages = |(at, len): (u64, u64)| (at - START) / PAGE..=(at - START + len - 1) / PAGE;
    ranges.into_iter().flat_map(pages).collect()
}

/// Sends packets and waits for their delivery.
fn send(daemon: &Daemon, from: &mut NetDevice, (port, to): (&str, &str), packets: &[Vec<u8>]) {
    let before = daemon.port("br0", to).unwrap().delivered();
    for packet in packets {
        assert!(from.send(0, &[0; HEADER_LEN], packet).unwrap());
    }
    let all = before + packets.len() as u64;
    until("packets to be delivered", PATIENCE, || {
        Ok((daemon.port("br0", to).unwrap().delivered() == all).then_some(()))
    })
    .unwrap();
    assert_eq!(daemon.port("br0", port).unwrap().dropped(), 0);
}

#[test]
fn each_changed_page_is_marked() {
    let daemon = daemon();
    let mut a = connect(&daemon, "a", DeviceConfig { features: PLAIN, ..DeviceConfig::default() });
    for combination in 0..16 {
        let with = |bit: u32, feature: u64| if combination >> bit & 1 == 1 { feature } else { 0 };
        let mergeable = with(2, device::MRG_RXBUF);
        let features = PLAIN
            | with(0, device::RING_PACKED)
            | with(1, device::INDIRECT_DESC)
            | mergeable
            | with(3, device::EVENT_IDX);
        let config = DeviceConfig { features, pieces: 2, ..DeviceConfig::default() };
        let mut b = connect(&daemon, "b", config);
        let log = memfd(LOG).unwrap();
        b.log(log.as_fd(), LOG).unwrap();
        let shown = daemon.port("br0", "b").unwrap();
        assert!(
            shown.is_up() && shown.json()["details"].to_string().contains("are logged"),
            "{:?}",
            shown.json()
        );

        // To the driver, which writes nothing meanwhile: all changes are the device's.
        let before = memory(&b);
        let longest = if mergeable != 0 { 9000 } else { 2000 };
        let packets: Vec<_> =
            (0..20u8).map(|i| page(i, if i % 3 == 0 { longest } else { 60 + usize::from(i) })).collect();
        send(&daemon, &mut a, ("a", "b"), &packets);
        let (changed, marks) = (changed(&before, &memory(&b)), marked(&log));
        assert!(changed.is_subset(&marks), "{combination:#b}: {changed:?} changed, {marks:?} are marked");
        // Only ring pages may be marked without a change: a rewrite of the same value.
        let rings = &ring_pages(&mut b, 0) | &ring_pages(&mut b, 1);
        let others = &(&marks - &changed) - &rings;
        assert!(others.is_empty(), "{combination:#b}: {others:?} are marked and have not changed");
        for expected in &packets {
            let (_, packet) = until("a packet", PATIENCE, || Ok(b.receive(0).unwrap())).unwrap();
            assert!(packet == *expected, "{combination:#b}: a packet is altered");
        }

        // From the driver, which writes memory too, but not a split ring's used entries.
        rustix::io::pwrite(&log, &vec![0; LOG as usize], 0).unwrap();
        let packets: Vec<_> = (0..20).map(|i| page(i, 100)).collect();
        send(&daemon, &mut b, ("b", "a"), &packets);
        for _ in &packets {
            until("a packet", PATIENCE, || Ok(a.receive(0).unwrap())).unwrap();
        }
        let marks = marked(&log);
        let config = *b.queue(1).unwrap().config();
        let first = match config.format {
            Format::Split => config.addresses.device,
            Format::Packed => config.addresses.descriptors,
        };
        assert!(marks.contains(&((first - START) / PAGE)), "{combination:#b}: {marks:?}");
        assert!(
            marks.is_subset(&rings),
            "{combination:#b}: {marks:?} are marked, outside the rings {rings:?}"
        );
    }
}

/// Sets its flag on drop.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn stopped_rings_are_not_written() {
    let daemon = daemon();
    for features in [PLAIN, PLAIN | device::RING_PACKED] {
        let plain = DeviceConfig { features: PLAIN, ..DeviceConfig::default() };
        let (mut a, mut b) =
            (connect(&daemon, "a", plain), connect(&daemon, "b", DeviceConfig { features, ..plain }));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let flood = scope.spawn(|| {
                let (packet, mut sent) = (page(1, 200), 0u64);
                while !stop.load(Ordering::SeqCst) {
                    sent += u64::from(a.send(0, &[0; HEADER_LEN], &packet).unwrap());
                }
                sent
            });
            // Stops the flood also after a failure below.
            let running = Stop(&stop);
            for _ in 0..if long() { 50 } else { 10 } {
                until("a packet", PATIENCE, || Ok(b.receive(0).unwrap())).unwrap();
                while b.receive(0).unwrap().is_some() {}
                // A running ring enables or disables signals.
                for ring in [1, 0] {
                    let asked = Request::GetVringBase(RingNumber { ring, number: 0 });
                    let answer = b.connection().ask(&asked, &[], false).unwrap();
                    assert!(matches!(answer, Answer::Ring(base) if base.ring == ring), "{answer:?}");
                }
                let then = memory(&b);
                let received = || daemon.port("br0", "a").unwrap().received();
                let before = received();
                until("more packets", PATIENCE, || Ok((received() > before + 100).then_some(()))).unwrap();
                assert_eq!(changed(&then, &memory(&b)), BTreeSet::new());
                b.restart(1).unwrap();
                b.restart(0).unwrap();
            }
            drop(running);
            assert!(flood.join().unwrap() > 0);
        });
    }
}

#[test]
fn a_faulty_log_costs_only_its_port() {
    let daemon = daemon();
    let plain = DeviceConfig { features: PLAIN, ..DeviceConfig::default() };
    let mut a = connect(&daemon, "a", plain);
    let mut b = connect(&daemon, "b", plain);
    let log = memfd(LOG).unwrap();
    b.log(log.as_fd(), LOG).unwrap();
    send(&daemon, &mut a, ("a", "b"), &[page(1, 100)]);
    rustix::fs::ftruncate(&log, 0).unwrap();
    assert!(a.send(0, &[0; HEADER_LEN], &page(2, 100)).unwrap());
    daemon.wait_down("br0", "b", "the dirty log of a migration was truncated or punched (SIGBUS)").unwrap();
    drop(b);

    let mut b = connect(&daemon, "b", plain);
    let small = memfd(PAGE).unwrap();
    b.log(small.as_fd(), 16).unwrap_err();
    let reason =
        daemon.wait_down("br0", "b", "dirty log of 16 bytes covers guest addresses below 0x80000").unwrap();
    assert!(reason.contains(", but memory extends to 0x1"), "{reason}");
    drop(b);

    let mut b = connect(&daemon, "b", plain);
    assert!(daemon.port("br0", "a").unwrap().is_up());
    send(&daemon, &mut a, ("a", "b"), &[page(3, 100)]);
    let (_, packet) = until("a packet", PATIENCE, || Ok(b.receive(0).unwrap())).unwrap();
    assert!(packet == page(3, 100));
}
