//! What the monitoring of links needs of running bridges: frames that it takes from ports ahead of the flow tables, the
//! way of its own frames to ports, and ports that it calls faulty.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use fabric::switch::PortRef;
use fabric::{Injection, Injector, PortIndex};
use oflogic::Selector;
use packet::{MacAddr, Offload};

use super::facts_of;
use crate::state::State;

/// Time after which frames between dummy ports count as lost.
const LOST: Duration = Duration::from_millis(100);

/// A monitored port.
#[derive(Clone)]
pub struct MonitoredPort {
    /// Its place in the fabric.
    pub at: PortRef,
    /// Its Ethernet address.
    pub address: MacAddr,
    injector: Injector,
}

impl std::fmt::Debug for MonitoredPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MonitoredPort").field("at", &self.at).finish_non_exhaustive()
    }
}

impl MonitoredPort {
    /// Sends a frame out of the port, past tables and VLAN settings. Returns whether it was queued.
    pub fn send(&self, frame: &[u8]) -> bool {
        self.injector.inject(frame, Offload::NONE, Injection::To(vec![self.at.port])).is_ok()
    }
}

impl State {
    /// Takes the selected frames of a bridge's ports ahead of its tables, in place of those before. They go to `sink`,
    /// which is called on a thread of the bridge. Returns the ports that exist; none of a bridge without the logic
    /// `openflow`.
    pub fn intercept(
        &self,
        bridge: &str,
        selected: BTreeMap<String, Vec<Selector>>,
        sink: impl Fn(PortIndex, &[u8]) + Send + Sync + 'static,
    ) -> BTreeMap<String, MonitoredPort> {
        let bridges = self.bridges();
        let Some(bridge_now) = bridges.get(bridge) else { return BTreeMap::new() };
        let Some(running) = &bridge_now.openflow else { return BTreeMap::new() };
        let Ok(injector) = self.switch().injector(bridge_now.id) else { return BTreeMap::new() };
        let mut frames = BTreeMap::new();
        let mut monitored = BTreeMap::new();
        for (name, what) in selected {
            let Some(port) = bridge_now.ports.get(&name) else { continue };
            let facts = facts_of(
                self.switch(),
                bridge,
                bridge_now.owner,
                port,
                running.datapath_id(),
                &BTreeSet::new(),
            );
            let (at, injector) = (port.at, injector.clone());
            frames.insert(at.port, what);
            monitored.insert(name, MonitoredPort { at, address: MacAddr(facts.address), injector });
        }
        running.logic().set_sink(sink);
        running.logic().intercept(frames);
        monitored
    }

    /// Sets the ports that monitoring calls faulty, by bridge and name, whether they exist yet or not: they stay up,
    /// but are not live to controllers and groups. On return controllers have been told.
    pub fn set_faulty(&self, faulty: BTreeSet<(String, String)>) {
        let before = std::mem::replace(&mut *self.lock_faulty(), faulty.clone());
        let bridges = self.bridges();
        for (bridge, port) in before.symmetric_difference(&faulty) {
            let Some(bridge_now) = bridges.get(bridge) else { continue };
            let (Some(running), Some(port)) = (&bridge_now.openflow, bridge_now.ports.get(port)) else {
                continue;
            };
            let facts =
                facts_of(self.switch(), bridge, bridge_now.owner, port, running.datapath_id(), &faulty);
            running.logic().set_ports(&[facts]);
        }
    }

    pub(crate) fn lock_faulty(&self) -> std::sync::MutexGuard<'_, BTreeSet<(String, String)>> {
        self.faulty.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, up to `limit`, until bridges with the logic `openflow` have forwarded every packet that the control plane
    /// sent, and have processed what came of it. Returns whether they have. For tests with a stopped clock: a new
    /// packet from elsewhere may follow at once.
    pub fn settle(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let running: Vec<_> = self.bridges().values().filter_map(|bridge| bridge.openflow.clone()).collect();
        let (mut passes, mut quiet) = (0u32, 0u32);
        let lost_at = Instant::now() + LOST;
        loop {
            // Packets of one bridge may end in another that was looked at before: all are looked at twice.
            let is_settled = running.iter().all(|bridge| bridge.logic().is_settled());
            if is_settled && Instant::now() >= lost_at {
                self.dummies().give_up();
            }
            quiet = if is_settled && self.dummies().are_idle() { quiet + 1 } else { 0 };
            if quiet == 2 {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            passes += 1;
            if passes > 100 {
                std::thread::sleep(Duration::from_micros(20));
            } else {
                std::thread::yield_now();
            }
        }
    }
}
