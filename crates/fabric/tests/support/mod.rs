//! Ports in memory: clients whose every buffer and index the test controls, and which check the switch's accesses.
#![allow(dead_code, reason = "every test binary uses its own part")]

pub(crate) mod feed;
pub(crate) mod mem_ring;
pub(crate) mod pair;
pub(crate) mod rig;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use fabric::{Egress, Fault, OutputList, QueueCounters, Tools};
use packet::offload::Offload;

/// A packet as a call port received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Called {
    pub(crate) bytes: Vec<u8>,
    pub(crate) offload: Offload,
}

/// A call port: copies the packets that it is given.
#[derive(Default)]
pub(crate) struct CallPort {
    pub(crate) got: Mutex<Vec<Called>>,
}

impl CallPort {
    pub(crate) fn take(&self) -> Vec<Called> {
        std::mem::take(&mut *self.got.lock().unwrap())
    }
}

impl Egress for CallPort {
    fn deliver(
        &self,
        list: &mut OutputList<'_>,
        counters: &QueueCounters,
        _: &mut Tools,
    ) -> Result<(), Fault> {
        let (mut packets, mut total) = (0, 0);
        let mut called = Vec::new();
        list.for_each(|output| {
            let mut bytes = output.header().to_vec();
            output.for_each_payload(|at, n| {
                // SAFETY: the test's feeds keep their memory until `complete`.
                bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(at, n) });
            });
            assert_eq!(bytes.len() as u32, output.len());
            packets += 1;
            total += u64::from(output.len());
            called.push(Called { bytes, offload: output.offload() });
        });
        self.got.lock().unwrap().append(&mut called);
        counters.add_batch(packets, total);
        Ok(())
    }
}

/// Longest time that any step of these tests may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `done`; panics with `what` on a timeout.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "timed out after {PATIENCE:?}, waiting until {what}");
        std::thread::yield_now();
    }
}

/// A small generator of contents, so that a failing case can be rebuilt from its seed.
pub(crate) struct Lcg(pub(crate) u64);

impl Lcg {
    pub(crate) fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as u32
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n.max(1)
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// A frame of `len` bytes with `id` as its source address.
pub(crate) fn frame(id: u64, len: usize) -> Vec<u8> {
    let mut bytes = Lcg(id ^ 0x5EED).bytes(len.max(14));
    bytes[6..12].copy_from_slice(&id.to_be_bytes()[2..]);
    bytes
}

/// The number that [`frame`] put into a frame.
pub(crate) fn id_of(frame: &[u8]) -> u64 {
    frame.get(6..12).map_or(u64::MAX, |id| id.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
}
