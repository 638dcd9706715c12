//! The daemon, its bystanders, and the attackers' port.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bench::pace::Rate;
use bench::session::{Background, Options};
use e2e::{Daemon, config, until};
use vhost_user::features::device::{PROTOCOL_FEATURES, VERSION_1};
use vhost_user::frontend::{Connection, DeviceConfig, NetDevice};

pub(crate) const LIMIT: Duration = Duration::from_secs(20);
/// Packet rate of each memif bystander.
const BYSTANDER_PPS: f64 = 2000.0;
/// Features that every attacker negotiates.
pub(crate) const BASIC: u64 = VERSION_1 | PROTOCOL_FEATURES;

/// A daemon with bystanders on two bridges; on a third, the attacker's port `bad` is connected to `peer`.
pub(crate) struct Rig {
    pub(crate) daemon: Daemon,
    /// A correct front-end, connected to the attacker's port.
    pub(crate) peer: NetDevice,
    memif: Background,
    vhost: Pair,
}

/// A frame of `len` bytes with its number and content derived from both.
pub(crate) fn frame(number: u64, len: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len as u64).map(|i| i.wrapping_mul(31).wrapping_add(number) as u8).collect();
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    frame[14..22].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Discards received packets.
pub(crate) fn drain(device: &mut NetDevice) {
    while device.receive(0).unwrap().is_some() {}
}

/// Receives the next packet.
pub(crate) fn next(device: &mut NetDevice) -> Vec<u8> {
    until("a packet", LIMIT, || Ok(device.receive(0).unwrap())).unwrap().1
}

/// Sends one frame and asserts that it arrives next.
pub(crate) fn pass(from: &mut NetDevice, to: &mut NetDevice, number: u64) {
    drain(to);
    let frame = frame(number, 60 + number as usize % 1000);
    assert!(from.send(0, &[0; 12], &frame).unwrap());
    assert!(next(to) == frame);
}

impl Rig {
    pub(crate) fn start() -> Rig {
        let ports = config::bridge("br0", "learning")
            + &config::memif("left", 0, "")
            + &config::memif("right", 1, "")
            + &config::bridge("br1", "static")
            + &config::vhost_user("bad", "")
            + &config::vhost_user("peer", "")
            + &config::bridge("br2", "static")
            + &config::vhost_user("vleft", "")
            + &config::vhost_user("vright", "");
        let daemon = Daemon::start(&ports).unwrap();
        let mut options = Options::new(vec![daemon.memif("memif", 0), daemon.memif("memif", 1)]);
        options.sizes = "60-1514".parse().unwrap();
        options.rate = Rate::Pps(BYSTANDER_PPS);
        options.duration = Duration::from_secs(3600);
        let memif = Background::start(options).unwrap();
        let socket = |name: &str| PathBuf::from(daemon.path(&format!("{name}.sock")));
        let start = |name| {
            let connection = Connection::dial(&socket(name)).unwrap();
            NetDevice::start(connection, DeviceConfig::default()).unwrap()
        };
        let vhost = Pair::start(start("vleft"), start("vright"));
        let peer = start("peer");
        Rig { daemon, peer, memif, vhost }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.daemon.path("bad.sock").into()
    }

    /// A connection to the attacker's port.
    pub(crate) fn dial(&self) -> Connection {
        until("the socket to accept a connection", LIMIT, || Ok(Connection::dial(&self.socket()).ok()))
            .unwrap()
    }

    /// A correct front-end on the attacker's port, with packets passing in both directions.
    pub(crate) fn good(&mut self, config: DeviceConfig) -> NetDevice {
        let mut device = NetDevice::start(self.dial(), config).unwrap();
        pass(&mut device, &mut self.peer, 1);
        pass(&mut self.peer, &mut device, 2);
        device
    }

    /// Asserts that the attacker's port goes down for this reason (a prefix if it ends in `…`), and its peer stays up.
    pub(crate) fn assert_down(&self, reason: &str) {
        let mut last = String::new();
        let found = until("the port to go down", LIMIT, || {
            let ports = self.daemon.ports("br1")?;
            let port = |name| ports.iter().find(|port| port.json()["name"] == name).unwrap();
            assert!(port("peer").is_up(), "{reason}: {}", port("peer").reason());
            last = if port("bad").is_up() { "it is up".into() } else { port("bad").reason().to_string() };
            let fits = match reason.strip_suffix('…') {
                Some(start) => last.starts_with(start),
                None => last == reason,
            };
            Ok((!port("bad").is_up() && fits).then_some(()))
        });
        assert!(found.is_ok(), "expected `{reason}`, found `{last}`");
    }

    /// Asserts that a new connection's fault takes the port down, which a correct front-end had just before.
    pub(crate) fn assert_refused(&mut self, reason: &str, fault: impl FnOnce(&mut Connection)) {
        drop(self.good(DeviceConfig::default()));
        let mut connection = self.dial();
        fault(&mut connection);
        self.assert_down(reason);
    }

    /// Asserts that the fault of a working front-end takes its port down.
    pub(crate) fn assert_broken(
        &mut self,
        features: u64,
        reason: &str,
        fault: impl FnOnce(&mut NetDevice, &mut NetDevice),
    ) {
        let mut device = self.good(DeviceConfig { features, ..DeviceConfig::default() });
        fault(&mut device, &mut self.peer);
        self.assert_down(reason);
        device.connection().wait_closed().unwrap();
    }

    /// Waits until the bystanders have exchanged more packets.
    pub(crate) fn wait_bystanders(&self) {
        let left = || self.daemon.port("br0", "left").map(|port| port.received());
        let (before, exchanged) = (left().unwrap(), self.vhost.exchanged());
        until("the bystanders to continue", LIMIT, || {
            Ok((left()? > before + 200 && self.vhost.exchanged() > exchanged + 20).then_some(()))
        })
        .unwrap();
    }

    /// Asserts that a correct front-end can use the attacker's port and the bystanders lost nothing.
    pub(crate) fn finish(mut self) {
        drop(self.good(DeviceConfig::default()));
        assert!(self.daemon.is_running().unwrap(), "the daemon ended: {}", self.daemon.log());
        self.wait_bystanders();
        assert!(self.memif.is_running(), "the bystanders ended");
        let report = self.memif.stop().unwrap();
        assert!(report.ok, "{report}");
        for direction in &report.directions {
            let pps = direction.sustained_pps();
            assert!(pps > 0.8 * BYSTANDER_PPS, "the rate dropped to {pps} packets/s: {report}");
        }
        self.vhost.stop();
        for name in ["vleft", "vright"] {
            let port = self.daemon.port("br2", name).unwrap();
            assert_eq!(port.dropped(), 0, "{:?}", port.json());
        }
    }
}

/// Two correct front-ends on their own thread that send to each other and verify each packet.
struct Pair {
    stop: Arc<AtomicBool>,
    exchanged: Arc<AtomicU64>,
    thread: JoinHandle<(NetDevice, NetDevice)>,
}

impl Pair {
    fn start(mut left: NetDevice, mut right: NetDevice) -> Pair {
        let (stop, exchanged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (seen, count) = (stop.clone(), exchanged.clone());
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                let first = count.load(Ordering::Relaxed);
                let frames: Vec<_> =
                    (first..first + 8).map(|number| frame(number, 60 + number as usize * 7 % 1400)).collect();
                for frame in &frames {
                    assert!(left.send(0, &[0; 12], frame).unwrap());
                }
                let (mut received, start) = (0, Instant::now());
                while received < frames.len() {
                    match right.receive(0).unwrap() {
                        Some((_, packet)) => {
                            assert!(packet == frames[received], "packet {received} after {first}");
                            received += 1;
                        }
                        None => {
                            assert!(start.elapsed() < LIMIT, "{received} of 8 packets arrived");
                            std::thread::sleep(Duration::from_micros(200));
                        }
                    }
                }
                count.fetch_add(8, Ordering::Relaxed);
                std::mem::swap(&mut left, &mut right);
            }
            (left, right)
        });
        Pair { stop, exchanged, thread }
    }

    fn exchanged(&self) -> u64 {
        self.exchanged.load(Ordering::Relaxed)
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}
