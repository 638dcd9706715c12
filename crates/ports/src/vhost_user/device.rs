//! The rings that a front-end has started, attached to the switch.
//!
//! Ring 2 × pair carries packets to the driver, the ring after it packets from the driver. All rings of a device are
//! attached at once; after any change they are detached and attached again.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use fabric::rx::MAX_PACKET;
use fabric::switch::PortRef;
use fabric::{AttachOptions, Attachment, Caps, Egress, Fault, RxQueue, SharedMemory, Switch, Tools};
use tokio::sync::{mpsc, watch};
use vhost_user::dirty_log::DirtyLog;
use vhost_user::features::device;
use vhost_user::memory::GuestMemory;
use vhost_user::session::{Device, Rings, Running};

use super::rx::Rx;
use super::tx;
use crate::first_touch::FirstTouchLimit;
use crate::guard::attach;
use crate::numa::{self, Topology};

/// Connection of a device to its port of the switch.
pub(super) struct Plug {
    switch: Arc<Switch>,
    at: PortRef,
    report: mpsc::Sender<Fault>,
    closing: watch::Receiver<bool>,
    fault_reason: Arc<FaultReason>,
    first_touch: Arc<FirstTouchLimit>,
    plugged: Option<Plugged>,
    /// Whether rings were stopped and the link is kept up in case they start again.
    suspended: bool,
    /// Starts and stops of rings since the last [`Plug::take_changes`].
    changes: u32,
}

/// Memory that a driver shares.
struct Memory {
    guest: Option<Arc<GuestMemory>>,
    log: Option<Arc<DirtyLog>>,
}

impl SharedMemory for Memory {
    fn take_away(&self) {
        self.guest.iter().for_each(|guest| guest.void());
        self.log.iter().for_each(|log| log.void());
    }

    fn wait_for_holes(&self) {
        self.guest.iter().for_each(|guest| guest.wait_for_holes());
        self.log.iter().for_each(|log| log.wait_for_holes());
    }
}

struct Plugged {
    positions: Vec<(usize, Arc<AtomicU32>)>,
    calls: BTreeMap<usize, (Arc<Call>, Option<Arc<OwnedFd>>)>,
    facts: Vec<(String, String)>,
    log: Option<Arc<DirtyLog>>,
}

/// Description of a driver's fault; the fabric's [`Fault`] has no room for it.
#[derive(Debug, Default)]
pub(super) struct FaultReason(OnceLock<String>);

impl FaultReason {
    /// Records a violation, and returns the fault. The first violation is the reason; later ones are ignored.
    #[cold]
    pub(super) fn set(&self, ring: usize, what: impl std::fmt::Display) -> Fault {
        let _ = self.0.set(format!("ring {ring}: {what}"));
        Fault::Protocol
    }
}

/// Format of packets in the rings of a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    /// Length of the header in front of each packet.
    pub(super) header: u32,
    /// Whether a packet to the driver may take several buffers.
    pub(super) mergeable: bool,
    /// Whether the driver's offload metadata is read.
    pub(super) reads_metadata: bool,
    /// Whether the driver is told that checksums are right.
    pub(super) verified: bool,
    /// Whether the driver takes large packets with CWR set as such.
    pub(super) ecn: bool,
}

impl Form {
    fn of(features: u64) -> Form {
        let has = |bit| features & bit != 0;
        Form {
            // Legacy devices without mergeable buffers leave out the number of buffers (virtio 1.2 §5.1.6.1).
            header: if has(device::VERSION_1 | device::MRG_RXBUF) { 12 } else { 10 },
            mergeable: has(device::MRG_RXBUF),
            reads_metadata: has(device::CSUM),
            verified: has(device::GUEST_CSUM),
            ecn: has(device::GUEST_ECN),
        }
    }
}

/// The descriptor that signals a ring's driver; it can change while workers use it.
#[derive(Debug)]
pub(super) struct Call(AtomicI32);

impl Call {
    fn new(fd: Option<&OwnedFd>) -> Self {
        Self(AtomicI32::new(fd.map_or(-1, OwnedFd::as_raw_fd)))
    }

    /// Returns the descriptor, for use until the batch ends: after replacing it, the old one is closed only then.
    #[inline]
    pub(super) fn fd(&self) -> Option<RawFd> {
        let fd = self.0.load(Ordering::Acquire);
        (fd >= 0).then_some(fd)
    }

    /// Has the driver signalled after the batch.
    #[inline]
    pub(super) fn tell(&self, tools: &mut Tools) {
        if let Some(fd) = self.fd() {
            tools.notifier.add(fd);
        }
    }
}

impl Plug {
    pub(super) fn new(
        switch: Arc<Switch>,
        at: PortRef,
        report: mpsc::Sender<Fault>,
        closing: watch::Receiver<bool>,
        first_touch: Arc<FirstTouchLimit>,
    ) -> Self {
        let (fault_reason, plugged, suspended, changes) = Default::default();
        Self { switch, at, report, closing, fault_reason, first_touch, plugged, suspended, changes }
    }

    /// Describes a fault.
    pub(super) fn describe_fault(&self, fault: Fault) -> String {
        match (fault, self.fault_reason.0.get()) {
            (Fault::Protocol, Some(what)) => what.clone(),
            (Fault::Memory, _) if let Some(reason) = self.first_touch.reason() => reason,
            (Fault::Memory, _) if self.log().is_some_and(DirtyLog::faulted) => {
                "the dirty log of a migration was truncated or punched (SIGBUS)".into()
            }
            (fault, _) => fault.to_string(),
        }
    }

    fn log(&self) -> Option<&DirtyLog> {
        self.plugged.as_ref()?.log.as_deref()
    }

    /// Returns the number of starts and stops of rings since the last call.
    pub(super) fn take_changes(&mut self) -> u32 {
        std::mem::take(&mut self.changes)
    }

    /// Ends the handling of a front-end's message: if its rings were stopped and not started again, the link goes down
    /// now.
    pub(super) fn conclude(&mut self) {
        if std::mem::take(&mut self.suspended) && self.plugged.is_none() {
            // Fails only if the port is gone.
            let _ = self.switch.detach(self.at);
        }
    }

    /// Returns the details of the running rings; `None` if none run.
    pub(super) fn facts(&self) -> Option<Vec<(String, String)>> {
        Some(self.plugged.as_ref()?.facts.clone())
    }
}

impl Rings for Plug {
    fn start(&mut self, device: Device) -> Result<(), String> {
        let Device { features, mtu, rings, regions, announce, log } = device;
        self.changes += 1;
        let (form, mut announce) = (Form::of(features), announce);
        let (mut rx_queues, mut egresses) = (Vec::<Box<dyn RxQueue>>::new(), Vec::<Arc<dyn Egress>>::new());
        let (mut positions, mut calls) = (Vec::new(), BTreeMap::new());
        let memory = rings.first().map(|running| running.queue.memory().clone());
        let sizes = rings.iter().filter(|ring| ring.enabled).map(|ring| (ring.ring, ring.size));
        let mut facts = facts(&sizes.collect::<Vec<_>>(), regions, mtu);
        facts.extend(
            log.as_ref().map(|_| ("migration".to_owned(), "in progress: writes are logged".to_owned())),
        );
        let node = Topology::host().of_memory(rings.iter().map(|running| running.queue.device_area().0));
        facts.extend(numa::detail(node));
        for running in rings {
            let Running { ring, size, queue, kick, call, enabled } = running;
            let position = Arc::new(AtomicU32::new(queue.base()));
            positions.push((ring, position.clone()));
            let told = Arc::new(Call::new(call.as_deref()));
            calls.insert(ring, (told.clone(), call));
            let fault_reason = self.fault_reason.clone();
            if ring % 2 == 0 {
                // A ring that is not enabled is ignored: the only visible effect is that it gets no packets.
                if enabled {
                    egresses.push(tx::egress(ring, size, queue, form, told, position, fault_reason));
                }
            } else if let Some(kick) = kick {
                let announce = if enabled { announce.take() } else { None };
                let queue = Rx::new(ring, queue, kick, told, form, enabled, announce, position, fault_reason);
                rx_queues.push(Box::new(queue));
            }
        }
        let has = |bit| features & bit != 0;
        let caps = Caps {
            csum: has(device::GUEST_CSUM),
            tso4: has(device::GUEST_TSO4),
            tso6: has(device::GUEST_TSO6),
            uso: has(device::GUEST_USO4) && has(device::GUEST_USO6),
        };
        let report = self.report.clone();
        let on_fault = Arc::new(move |fault| {
            // The first fault is the reason; later ones are ignored.
            let _ = report.try_send(fault);
        });
        let mtu = mtu.map_or(MAX_PACKET, u32::from);
        let attachment = Attachment { rx: rx_queues, tx: egresses, caps, mtu, on_fault };
        let memory: Arc<dyn SharedMemory> = Arc::new(Memory { guest: memory, log: log.clone() });
        let placement = numa::near(node);
        let options = AttachOptions { memory: Some(memory), placement };
        attach(&self.switch, self.at, attachment, options, &self.closing)?;
        self.plugged = Some(Plugged { positions, calls, facts, log });
        Ok(())
    }

    fn stop(&mut self) -> Vec<(usize, u32)> {
        let Some(plugged) = self.plugged.take() else { return Vec::new() };
        self.changes += 1;
        // Most often they start again at once, in another form. Fails only if the port is gone, and thus detached.
        let _ = self.switch.suspend(self.at);
        self.suspended = true;
        self.switch.retire(plugged.calls);
        // Queues stored their positions when they were dropped or closed.
        let place = |(ring, position): (usize, Arc<AtomicU32>)| (ring, position.load(Ordering::Acquire));
        plugged.positions.into_iter().map(place).collect()
    }

    fn set_call(&mut self, ring: usize, call: Option<Arc<OwnedFd>>) {
        let Some(plugged) = &mut self.plugged else { return };
        if let Some((told, held)) = plugged.calls.get_mut(&ring) {
            told.0.store(call.as_deref().map_or(-1, OwnedFd::as_raw_fd), Ordering::Release);
            self.switch.retire(std::mem::replace(held, call));
        }
    }
}

fn facts(sizes: &[(usize, u16)], regions: usize, mtu: Option<u16>) -> Vec<(String, String)> {
    let of = |odd: usize| {
        let sizes: Vec<_> =
            sizes.iter().filter(|(ring, _)| ring % 2 == odd).map(|(_, size)| size.to_string()).collect();
        format!(
            "{} (ring size {})",
            sizes.len(),
            if sizes.is_empty() { "-".into() } else { sizes.join(", ") }
        )
    };
    let mut facts = vec![
        ("rx-queues".to_owned(), of(1)),
        ("tx-queues".to_owned(), of(0)),
        ("memory-regions".to_owned(), regions.to_string()),
    ];
    facts.extend(mtu.map(|mtu| ("guest-mtu".to_owned(), mtu.to_string())));
    facts
}
