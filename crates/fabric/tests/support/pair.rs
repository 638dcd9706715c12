//! A sender and a receiver of numbered packets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use fabric::switch::{BridgeId, PortRef};
use fabric::{Egress, Switch};

use super::CallPort;
use super::feed::{Feed, Sent};
use super::mem_ring::MemRing;

/// Bytes of a receiver's buffer.
pub(crate) const SIZE: u32 = 256;

/// A sender and a receiver that must lose nothing: at most as many packets are in flight as the ring holds.
pub(crate) struct Pair {
    pub(crate) feed: Arc<Feed>,
    pub(crate) ring: Arc<MemRing>,
    pub(crate) from: PortRef,
    pub(crate) to: u8,
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

impl Pair {
    pub(crate) fn plug(switch: &Switch, bridge: BridgeId, name: &str) -> Self {
        let (feed, ring) = (Feed::new(), MemRing::new(7, &[SIZE; 256]));
        let home: Arc<dyn Egress> = Arc::new(CallPort::default());
        let (from, _) =
            super::rig::plug(switch, bridge, &format!("{name}-from"), vec![feed.queue()], vec![home]);
        let (to, _) = super::rig::plug(switch, bridge, &format!("{name}-to"), vec![], vec![ring.tx()]);
        Self { feed, ring, from, to: to.port.0 as u8, sent: 0, received: 0 }
    }

    pub(crate) fn packet(&self, id: u64) -> Vec<u8> {
        let mut bytes = super::frame(id, 60 + (id % 190) as usize);
        bytes[0] = self.to;
        bytes
    }

    /// Sends a few packets, takes those that have arrived, and checks their sequence.
    pub(crate) fn step(&mut self) {
        let burst = (1 + self.sent % 16).min(200 - (self.sent - self.received).min(200));
        self.feed.send((self.sent..self.sent + burst).map(|id| Sent::whole(&self.packet(id))));
        self.sent += burst;
        self.take(|wanted, got| assert_eq!(wanted, got));
        if burst == 0 {
            std::thread::yield_now();
        }
    }

    pub(crate) fn take(&mut self, check: impl Fn(&[u8], &[u8])) {
        for got in self.ring.take(|| SIZE) {
            assert_eq!(super::id_of(&got), self.received, "packets lost, doubled or out of order");
            check(&self.packet(self.received), &got);
            self.received += 1;
        }
    }

    /// Waits for the packets in flight.
    pub(crate) fn settle(&mut self) {
        let deadline = Instant::now() + super::PATIENCE;
        while self.received < self.sent {
            assert!(Instant::now() < deadline, "{} of {} packets arrived", self.received, self.sent);
            self.step_receive();
        }
        self.ring.assert_no_wrongs();
    }

    pub(crate) fn step_receive(&mut self) {
        self.take(|wanted, got| assert_eq!(wanted, got));
        std::thread::yield_now();
    }
}

/// Ends the senders also when the test fails.
pub(crate) struct Stop<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Runs `control` while pairs exchange packets on other threads; they lose nothing.
pub(crate) fn while_traffic_flows(switch: &Switch, pairs: &mut [Pair], control: impl FnOnce(&dyn Fn())) {
    let (stop, steps) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for pair in pairs.iter_mut() {
            let (stop, steps) = (&stop, &steps);
            scope.spawn(move || {
                while !stop.load(Ordering::Acquire) {
                    let before = pair.received;
                    pair.step();
                    steps.fetch_add(pair.received - before, Ordering::AcqRel);
                }
                pair.settle();
            });
        }
        let _stop = Stop(&stop);
        // Returns after some more packets have passed.
        control(&|| {
            let now = steps.load(Ordering::Acquire);
            super::wait_until("packets pass", || steps.load(Ordering::Acquire) > now + 20);
        });
    });
    for pair in pairs {
        assert!(pair.received > 0);
        super::wait_until("the counters agree", || super::rig::packets(switch, pair.from).0 == pair.sent);
        assert_eq!(super::rig::all_drops(switch, pair.from), 0);
    }
}

/// Two CPUs that this process may use, if there are two.
pub(crate) fn two_cpus() -> Option<(usize, usize)> {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    let mut cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    Some((cpus.next()?, cpus.next()?))
}
