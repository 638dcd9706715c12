//! Clients with sparse memory files: pages that the switch allocates by touching them are charged to its memory cgroup,
//! so they are limited. A pair of bystanders keeps sending meanwhile and loses nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::{Duration, Instant};

use bench::pace::Rate;
use bench::session::{Background, Options};
use e2e::{Cgroup, Daemon, Hostile, HostileConfig, config, memfd, until};
use memif::Descriptor;
use rustix::fs::{FallocateFlags, fallocate};
use vhost_user::driver::DriverMemory;
use vhost_user::frontend::{Connection, DeviceConfig, HEADER_LEN, NetDevice};

const LIMIT: Duration = Duration::from_secs(20);
const PAGE: u32 = 4096;
const MIB: u64 = 1 << 20;
/// Limit of the switch's cgroup.
const ALLOWED: u64 = 256 * MIB;
/// Size of the sparse files.
const SPARSE: u64 = 2 << 30;
const BYSTANDER_PPS: f64 = 2000.0;
/// The attacker's interface.
const BAD: u32 = 2;

/// A daemon in a cgroup, with bystanders on one bridge and the attacker's ports on the others.
struct Rig {
    bystanders: Background,
    daemon: Daemon,
    cgroup: Cgroup,
}

impl Rig {
    fn start(more: &str) -> Rig {
        let ports = config::bridge("br0", "learning")
            + &config::memif("left", 0, "")
            + &config::memif("right", 1, "")
            + &config::bridge("br1", "static")
            + &config::memif("bad", BAD, more)
            + &config::vhost_user("peer", "")
            + &config::bridge("br2", "static")
            + &config::vhost_user("guest", more)
            + &config::vhost_user("other", "");
        let cgroup = Cgroup::new(ALLOWED).unwrap();
        let daemon = Daemon::start_in(&cgroup, &ports).unwrap();
        let mut options = Options::new(vec![daemon.memif("memif", 0), daemon.memif("memif", 1)]);
        options.sizes = "60-1514".parse().unwrap();
        options.rate = Rate::Pps(BYSTANDER_PPS);
        options.duration = Duration::from_secs(3600);
        Rig { bystanders: Background::start(options).unwrap(), daemon, cgroup }
    }

    fn config(&self) -> HostileConfig {
        HostileConfig::new(&self.daemon.path("memif"), BAD)
    }

    /// A memif client with a file without pages except those of its rings.
    fn sparse(&self) -> Hostile {
        let file = memfd(SPARSE).unwrap();
        let config = HostileConfig { file: Some(file), region_size: Some(SPARSE), ..self.config() };
        let hostile = config.connect().unwrap();
        self.daemon.wait_up("br1", "bad").unwrap();
        hostile
    }

    fn front_end(&self, port: &str, config: DeviceConfig) -> NetDevice {
        let socket = self.daemon.path(&format!("{port}.sock"));
        let connection = || Ok(Connection::dial(socket.as_ref()).ok());
        let connection = until("the socket to accept a connection", LIMIT, connection).unwrap();
        // Unsealed memory whose pages are all untouched.
        let memory = |start, bytes| {
            DriverMemory::create_in(&[(start, bytes)], |bytes| memfd(bytes).map_err(std::io::Error::other))
        };
        let device = NetDevice::start_in(connection, config, memory).unwrap();
        self.daemon.wait_up("br2", port).unwrap();
        device
    }

    /// Value of `first-touch` in `port show`.
    fn shown(&self, bridge: &str, port: &str) -> String {
        let port = self.daemon.port(bridge, port).unwrap();
        let details = port.json()["details"].as_array().unwrap().clone();
        let found = details.iter().find(|detail| detail["name"] == "first-touch").unwrap();
        found["value"].as_str().unwrap().into()
    }

    /// Asserts that the daemon is running and the bystanders lost nothing.
    fn finish(mut self) {
        let left = || self.daemon.port("br0", "left").map(|port| port.received());
        let before = left().unwrap();
        until("the bystanders to continue", LIMIT, || Ok((left()? > before + 200).then_some(()))).unwrap();
        assert!(self.daemon.is_running().unwrap(), "the daemon ended: {}", self.daemon.log());
        assert_eq!(self.cgroup.killed().unwrap(), 0);
        assert!(self.bystanders.is_running(), "the bystanders ended");
        let report = self.bystanders.stop().unwrap();
        assert!(report.ok, "{report}");
    }
}

/// Sends packets in untouched pages, one a page from `offset` on, for up to 20 ms. Returns the next offset.
fn send_some(client: &mut Hostile, sent: &mut u16, mut offset: u32, end: u64) -> u32 {
    let stop = Instant::now() + Duration::from_millis(20);
    while Instant::now() < stop && u64::from(offset) + u64::from(PAGE) <= end {
        if sent.wrapping_sub(client.tx.tail()) >= client.tx.size() {
            std::thread::yield_now();
            continue;
        }
        client.put(&Descriptor { flags: 0, region: 0, length: 60, offset, metadata: 0 });
        client.publish();
        (*sent, offset) = (sent.wrapping_add(1), offset + PAGE);
    }
    offset
}

/// Offset of a client's untouched memory.
fn untouched(client: &Hostile) -> u32 {
    (client.layout.total_size() as u32).next_multiple_of(PAGE)
}

/// Sends packets in untouched pages until the switch disconnects the client. Returns the reason and the largest charge
/// to the switch's cgroup meanwhile.
fn send_from_holes(rig: &Rig, client: &mut Hostile) -> (String, u64) {
    let (end, mut most, mut sent) = (Instant::now() + LIMIT, 0, 0);
    let mut offset = untouched(client);
    while rig.daemon.port("br1", "bad").unwrap().is_up() {
        assert!(Instant::now() < end, "{} allocated: {}", rig.shown("br1", "bad"), rig.daemon.log());
        offset = send_some(client, &mut sent, offset, SPARSE);
        most = most.max(rig.cgroup.used().unwrap());
    }
    (rig.daemon.port("br1", "bad").unwrap().reason().to_string(), most)
}

#[test]
fn a_sparse_file_loses_its_port_at_the_default_limit() {
    let rig = Rig::start("");
    let before = rig.cgroup.used().unwrap();
    let mut client = rig.sparse();
    assert_eq!(rig.shown("br1", "bad"), "0B of 64MiB");
    let (reason, most) = send_from_holes(&rig, &mut client);
    let expected = "the switch allocated 64MiB of the client's memory by touching it first, the limit (first-touch-limit)";
    assert_eq!(reason, expected);
    assert_eq!(rig.shown("br1", "bad"), "64MiB of 64MiB");
    assert!((before + 60 * MIB..before + 80 * MIB).contains(&most), "{before} bytes, then {most}");
    // The allocation is freed with the file, and a correct client can use the port next.
    drop(client);
    until("the memory to be freed", LIMIT, || Ok((rig.cgroup.used()? < before + 8 * MIB).then_some(())))
        .unwrap();
    let mut good = until("the port to be free", LIMIT, || Ok(rig.config().connect().ok())).unwrap();
    rig.daemon.wait_up("br1", "bad").unwrap();
    assert!(good.send(&[2; 60]));
    until("its packet to be received", LIMIT, || {
        Ok((rig.daemon.port("br1", "bad")?.is_up() && good.tx.tail() == 1).then_some(()))
    })
    .unwrap();
    rig.finish();
}

#[test]
fn the_memory_cgroup_never_fills_whatever_the_limit() {
    let rig = Rig::start("first-touch-limit = \"1TiB\"");
    let mut client = rig.sparse();
    let (reason, most) = send_from_holes(&rig, &mut client);
    assert!(
        reason.starts_with("the switch's memory cgroup has less than an eighth of its limit left"),
        "{reason}"
    );
    assert!(most < ALLOWED - 20 * MIB, "{most} bytes were charged");
    // The first client keeps its file, and the next one fails at the same limit.
    let mut other = until("the port to be free", LIMIT, || {
        let config = HostileConfig { file: Some(memfd(SPARSE)?), region_size: Some(SPARSE), ..rig.config() };
        Ok(config.connect().ok())
    })
    .unwrap();
    let (reason, most) = send_from_holes(&rig, &mut other);
    assert!(reason.starts_with("the switch's memory cgroup"), "{reason}");
    assert!(most < ALLOWED - 20 * MIB, "{most} bytes were charged");
    drop((client, other));
    rig.finish();
}

#[test]
fn untouched_receive_buffers_are_filled_up_to_the_limit() {
    let rig = Rig::start("first-touch-limit = \"512KiB\"");
    // 64 buffers on pages of their own, and some rings: below the limit.
    let config = DeviceConfig { receive_buffer: PAGE, ..DeviceConfig::default() };
    let (mut other, mut guest) = (rig.front_end("other", config), rig.front_end("guest", config));
    let mut pass = |number: u8, guest: &mut NetDevice| {
        let frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5][..], &[number; 100]].concat();
        assert!(other.send(0, &[0; HEADER_LEN], &frame).unwrap());
        until("a packet", LIMIT, || {
            let port = rig.daemon.port("br2", "guest")?;
            let received = guest.receive(0).ok().flatten().map(|(_, packet)| packet == frame);
            Ok(received.or((!port.is_up()).then_some(false)))
        })
        .unwrap()
    };
    for number in 0..200 {
        assert!(pass(number, &mut guest), "packet {number}: {}", rig.shown("br2", "guest"));
    }
    let shown = rig.shown("br2", "guest");
    let allocated: u64 =
        shown.strip_suffix("KiB of 512KiB").and_then(|allocated| allocated.parse().ok()).expect(&shown);
    assert!((64 * 4..512).contains(&allocated), "{shown}");
    drop(guest);

    // Four times as many buffers: above the limit.
    let mut guest = rig.front_end("guest", DeviceConfig { receive_buffers: 256, ..config });
    let passed = (0..=255).take_while(|number| pass(*number, &mut guest)).count();
    assert!((32..=128).contains(&passed), "{passed} packets passed");
    let reason = rig.daemon.port("br2", "guest").unwrap().reason().to_string();
    assert!(reason.starts_with("the switch allocated 512KiB of the client's memory"), "{reason}");
    rig.finish();
}

#[test]
fn released_memory_does_not_count_permanently() {
    const AT_ONCE: u64 = 4 * MIB;
    let rig = Rig::start("first-touch-limit = \"32MiB\"");
    let mut client = rig.sparse();
    let (start, mut sent) = (untouched(&client), 0);
    let end = u64::from(start) + AT_ONCE;
    // Like a guest with a balloon: three times the limit in all, and at most an eighth of it at once.
    for round in 0..24 {
        let mut offset = start;
        while u64::from(offset) < end {
            offset = send_some(&mut client, &mut sent, offset, end);
        }
        until("all packets to be received", LIMIT, || Ok((client.tx.tail() == sent).then_some(()))).unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&client.file, punch, start.into(), AT_ONCE).unwrap();
        let port = rig.daemon.port("br1", "bad").unwrap();
        assert!(port.is_up(), "round {round}: {}", port.reason());
    }
    let shown = rig.shown("br1", "bad");
    assert!(shown.ends_with(" of 32MiB") && shown != "32MiB of 32MiB", "{shown}");
    rig.finish();
}
