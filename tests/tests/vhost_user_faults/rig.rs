//! The daemon, its bystanders, and the port that culprits have one after another.

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
/// What each bystander on memif sends.
const BYSTANDER_PPS: f64 = 2000.0;
/// What every culprit agrees on.
pub(crate) const BASIC: u64 = VERSION_1 | PROTOCOL_FEATURES;

/// A daemon with bystanders on two bridges, and on a third the port `bad` of the culprit, wired to `peer`.
pub(crate) struct Rig {
    pub(crate) daemon: Daemon,
    /// A good front-end at the other end of the culprit's wire.
    pub(crate) peer: NetDevice,
    memif: Background,
    vhost: Pair,
}

/// A frame of `len` bytes with its number in it, and content that depends on both.
pub(crate) fn frame(number: u64, len: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len as u64).map(|i| i.wrapping_mul(31).wrapping_add(number) as u8).collect();
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    frame[14..22].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Takes what has come.
pub(crate) fn drain(device: &mut NetDevice) {
    while device.receive(0).unwrap().is_some() {}
}

/// The next packet.
pub(crate) fn next(device: &mut NetDevice) -> Vec<u8> {
    until("a packet", LIMIT, || Ok(device.receive(0).unwrap())).unwrap().1
}

/// Sends one frame, which must be the next that comes.
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

    /// A connection to the culprit's port.
    pub(crate) fn dial(&self) -> Connection {
        until("the socket to take a connection", LIMIT, || Ok(Connection::dial(&self.socket()).ok())).unwrap()
    }

    /// A front-end on the culprit's port, whose packets pass both ways: it has done nothing wrong yet.
    pub(crate) fn good(&mut self, config: DeviceConfig) -> NetDevice {
        let mut device = NetDevice::start(self.dial(), config).unwrap();
        pass(&mut device, &mut self.peer, 1);
        pass(&mut self.peer, &mut device, 2);
        device
    }

    /// The culprit's port goes down for exactly this reason, or one that begins so if it ends in `…`; its neighbour does not.
    pub(crate) fn down(&self, reason: &str) {
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
        assert!(found.is_ok(), "`{last}` instead of `{reason}`");
    }

    /// What a connection says costs it the port, which a good front-end had just before.
    pub(crate) fn refused(&mut self, reason: &str, crime: impl FnOnce(&mut Connection)) {
        drop(self.good(DeviceConfig::default()));
        let mut connection = self.dial();
        crime(&mut connection);
        self.down(reason);
    }

    /// What a front-end that has worked does costs it the port.
    pub(crate) fn broken(
        &mut self,
        features: u64,
        reason: &str,
        crime: impl FnOnce(&mut NetDevice, &mut NetDevice),
    ) {
        let mut device = self.good(DeviceConfig { features, ..DeviceConfig::default() });
        crime(&mut device, &mut self.peer);
        self.down(reason);
        device.connection().wait_closed().unwrap();
    }

    /// Waits until the bystanders have exchanged some more packets.
    pub(crate) fn bystanders_go_on(&self) {
        let left = || self.daemon.port("br0", "left").map(|port| port.received());
        let (before, carried) = (left().unwrap(), self.vhost.carried());
        until("the bystanders to go on", LIMIT, || {
            Ok((left()? > before + 200 && self.vhost.carried() > carried + 20).then_some(()))
        })
        .unwrap();
    }

    /// A good front-end has the culprit's port, and the bystanders lost nothing.
    pub(crate) fn finish(mut self) {
        drop(self.good(DeviceConfig::default()));
        assert!(self.daemon.is_running().unwrap(), "the daemon ended: {}", self.daemon.log());
        self.bystanders_go_on();
        assert!(self.memif.is_running(), "bystanders gave up");
        let report = self.memif.stop().unwrap();
        assert!(report.ok, "{report}");
        for direction in &report.directions {
            let pps = direction.sustained_pps();
            assert!(pps > 0.8 * BYSTANDER_PPS, "the rate was not kept, {pps} packets/s: {report}");
        }
        self.vhost.stop();
        for name in ["vleft", "vright"] {
            let port = self.daemon.port("br2", name).unwrap();
            assert_eq!(port.dropped(), 0, "{:?}", port.json());
        }
    }
}

/// Two good front-ends on a thread of their own that send to each other, each packet compared with what was sent.
struct Pair {
    stop: Arc<AtomicBool>,
    carried: Arc<AtomicU64>,
    thread: JoinHandle<(NetDevice, NetDevice)>,
}

impl Pair {
    fn start(mut left: NetDevice, mut right: NetDevice) -> Pair {
        let (stop, carried) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (seen, count) = (stop.clone(), carried.clone());
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                let first = count.load(Ordering::Relaxed);
                let frames: Vec<_> =
                    (first..first + 8).map(|n| frame(n, 60 + n as usize * 7 % 1400)).collect();
                for frame in &frames {
                    assert!(left.send(0, &[0; 12], frame).unwrap());
                }
                let (mut got, start) = (0, Instant::now());
                while got < frames.len() {
                    match right.receive(0).unwrap() {
                        Some((_, packet)) => {
                            assert!(packet == frames[got], "packet {got} after {first}");
                            got += 1;
                        }
                        None => {
                            assert!(start.elapsed() < LIMIT, "{got} of 8 packets came");
                            std::thread::sleep(Duration::from_micros(200));
                        }
                    }
                }
                count.fetch_add(8, Ordering::Relaxed);
                std::mem::swap(&mut left, &mut right);
            }
            (left, right)
        });
        Pair { stop, carried, thread }
    }

    fn carried(&self) -> u64 {
        self.carried.load(Ordering::Relaxed)
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}
