//! Memory of a vhost-user port for a driver that posts long chains: little, and none once the driver has gone.
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fabric::{Batch, PortIndex, PortSettings, Switch, SwitchLogic, SwitchOptions};
use ports::{Environment, Link, Port, Spec, vhost_user as port};
use vhost_user::features::device::{INDIRECT_DESC, PROTOCOL_FEATURES, RING_PACKED, VERSION_1};
use vhost_user::frontend::{Connection, DeviceConfig, NetDevice};

/// Counts the bytes that this process has allocated and not freed.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls go to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PATIENCE: Duration = Duration::from_secs(60);
const KIB: usize = 1 << 10;
const RING: u16 = 1 << 15;
const LEN: usize = 1000;

struct Pair;

impl SwitchLogic for Pair {
    fn forward(&self, batch: &mut Batch<'_>) {
        let to = PortIndex(batch.ingress().0 ^ 1);
        for v in batch.packets() {
            batch.send(v, to);
        }
    }
}

fn held() -> usize {
    HELD.load(Ordering::Relaxed)
}

fn wait_for(what: &str, port: &dyn Port, up: bool) {
    let start = Instant::now();
    while (port.status().link == Link::Up) != up {
        assert!(start.elapsed() < PATIENCE, "waited for: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn frame(number: u32) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..LEN as u32).map(|i| i.wrapping_mul(31).wrapping_add(number) as u8).collect();
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    frame
}

/// Sends `count` frames in bursts, each of which must arrive unchanged.
fn carry(from: &mut NetDevice, to: &mut NetDevice, count: u32) {
    const BURST: u32 = 48;
    let start = Instant::now();
    for first in (0..count).step_by(BURST as usize) {
        let end = count.min(first + BURST);
        for number in first..end {
            // Buffers come back a little later than their packets arrive.
            while !from.push(0, &[0; 12], false, &[&frame(number)]).unwrap() {
                assert!(start.elapsed() < PATIENCE, "no room for packet {number}");
            }
        }
        from.flush(0).unwrap();
        let mut got = first;
        while got < end {
            match to.receive(0).unwrap() {
                Some((_, packet)) => {
                    assert!(packet == frame(got), "packet {got}");
                    got += 1;
                }
                None => assert!(start.elapsed() < PATIENCE, "{got} of {count} came"),
            }
        }
    }
}

/// A single test, since no other may allocate meanwhile.
#[test]
fn a_ring_full_of_long_chains_holds_little_and_nothing_once_its_driver_has_gone() {
    let dir = tempfile::tempdir().unwrap();
    let switch = Arc::new(Switch::start(&SwitchOptions::default()).unwrap());
    let bridge = switch.add_bridge("br0", Arc::new(Pair)).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let env = Environment::new(switch, runtime.handle().clone());
    let open = |name: &str| {
        let socket = dir.path().join(name);
        let options: port::Options = toml::from_str(&format!("path = {socket:?}")).unwrap();
        let at = env.switch.add_port(bridge, PortSettings::new(name)).unwrap();
        (ports::open(&Spec::VhostUser(options), at, &env).unwrap(), socket)
    };
    let ((a, left), (b, right)) = (open("a"), open("b"));
    let basic = VERSION_1 | PROTOCOL_FEATURES;
    let sender = DeviceConfig { features: basic, ..DeviceConfig::default() };
    let mut sender = NetDevice::start(Connection::dial(&left).unwrap(), sender).unwrap();
    wait_for("the sender's port", &*a, true);

    // Chains of one descriptor, then of a table of 64.
    let mut before = held();
    for (round, (pieces, more)) in [(1, 0), (64, 0), (64, RING_PACKED)].into_iter().enumerate() {
        let config = DeviceConfig {
            features: basic | INDIRECT_DESC | more,
            size: RING,
            receive_buffers: RING,
            receive_buffer: 1024,
            pieces,
            ..DeviceConfig::default()
        };
        let mut receiver = NetDevice::start(Connection::dial(&right).unwrap(), config).unwrap();
        wait_for("the receiver's port", &*b, true);
        carry(&mut sender, &mut receiver, 100);
        let few = held();
        // Each entry of the ring, and some a second time.
        carry(&mut sender, &mut receiver, u32::from(RING) + 100);
        let grown = held().saturating_sub(few);
        assert!(
            grown < 64 * KIB,
            "{} KiB more after a round through a ring with {pieces} pieces",
            grown / KIB
        );
        drop(receiver);
        wait_for("the receiver's end", &*b, false);
        if round == 0 {
            // Data made once, such as the log's buffers, exists by now.
            before = held();
        }
        let left = held().saturating_sub(before);
        assert!(left < 64 * KIB, "{} KiB are left of a driver that has gone", left / KIB);
    }
}
