//! A switch with ports in memory, and their faults.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fabric::switch::{BridgeId, PortRef};
use fabric::worker::Pace;
use fabric::{
    Attachment, Batch, Caps, DropReason, Egress, Fault, OnFault, PortIndex, PortSettings, RxQueue, Switch,
    SwitchLogic, SwitchOptions,
};

/// Faults that were reported to a port.
#[derive(Clone, Default)]
pub(crate) struct Faults(Arc<Mutex<Vec<Fault>>>);

impl Faults {
    /// The callback that reports a fault.
    pub(crate) fn listener(&self) -> OnFault {
        let told = self.clone();
        Arc::new(move |fault| told.0.lock().unwrap().push(fault))
    }

    pub(crate) fn seen(&self) -> Vec<Fault> {
        self.0.lock().unwrap().clone()
    }
}

pub(crate) fn attachment(rx: Vec<Box<dyn RxQueue>>, tx: Vec<Arc<dyn Egress>>) -> (Attachment, Faults) {
    let faults = Faults::default();
    (Attachment { rx, tx, caps: Caps::default(), mtu: 65_535, on_fault: faults.listener() }, faults)
}

/// A pace that makes workers sleep soon.
pub(crate) fn quick() -> Pace {
    Pace { linger: Duration::from_micros(20), watch: Duration::from_micros(20), ..Pace::default() }
}

/// A switch of `workers` workers that the scheduler places.
pub(crate) fn switch(workers: usize) -> Switch {
    let options = SwitchOptions { workers: vec![None; workers], pace: quick(), ..SwitchOptions::default() };
    Switch::start(&options).unwrap()
}

/// Adds a port with one client.
pub(crate) fn plug(
    switch: &Switch,
    bridge: BridgeId,
    name: &str,
    rx: Vec<Box<dyn RxQueue>>,
    tx: Vec<Arc<dyn Egress>>,
) -> (PortRef, Faults) {
    let port = switch.add_port(bridge, PortSettings::new(name)).unwrap();
    let (attachment, faults) = attachment(rx, tx);
    switch.attach(port, attachment).unwrap();
    (port, faults)
}

/// Drops of a port in both directions, for one reason.
pub(crate) fn drops(switch: &Switch, port: PortRef, reason: DropReason) -> u64 {
    let counters = switch.counters(port).unwrap();
    counters.rx.iter().chain(&counters.tx).map(|queue| queue.drops[reason as usize]).sum()
}

/// All drops of a port.
pub(crate) fn all_drops(switch: &Switch, port: PortRef) -> u64 {
    DropReason::ALL.iter().map(|reason| drops(switch, port, *reason)).sum()
}

/// Packets taken from a port and packets delivered to it.
pub(crate) fn packets(switch: &Switch, port: PortRef) -> (u64, u64) {
    let counters = switch.counters(port).unwrap();
    (counters.rx.iter().map(|q| q.packets).sum(), counters.tx.iter().map(|q| q.packets).sum())
}

/// Sends everything to all other ports.
pub(crate) struct Hub;

impl SwitchLogic for Hub {
    fn forward(&self, batch: &mut Batch<'_>) {
        for v in batch.packets() {
            batch.broadcast(v);
        }
    }
}

/// Sends everything to the port that the packet's first byte names.
pub(crate) struct ByFirstByte;

impl SwitchLogic for ByFirstByte {
    fn forward(&self, batch: &mut Batch<'_>) {
        for v in batch.packets() {
            let to = PortIndex(u16::from(batch.header(v)[0]));
            batch.send(v, to);
        }
    }
}
