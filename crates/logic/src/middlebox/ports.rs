//! The ports behind the names in the parameters.
//!
//! Invariant: workers read each port by itself; while the ports change, a packet meets one that was or is right.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use fabric::PortIndex;
use fabric::port::MAX_PORTS;

use super::buckets::Slot;
use super::rules::Function;

/// No port, and no slot: bridges have fewer ports, and the logic fewer instances.
const NONE: u16 = u16::MAX;

/// A port by its name, and the index that the bridge has for it now.
struct Named {
    name: String,
    index: AtomicU16,
}

impl Named {
    fn new(name: String) -> Self {
        Self { name, index: AtomicU16::new(NONE) }
    }

    #[inline(always)]
    fn port(&self) -> Option<PortIndex> {
        Some(self.index.load(Relaxed)).filter(|index| *index != NONE).map(PortIndex)
    }

    fn set(&self, by_name: &BTreeMap<&str, PortIndex>) {
        self.index.store(by_name.get(self.name.as_str()).map_or(NONE, |port| port.0), Relaxed);
    }
}

/// The ports of a logic. See the module.
pub(super) struct Ports {
    instances: Vec<Named>,
    default: Option<Named>,
    back: Option<Named>,
    /// The instance at each port.
    slots: Box<[AtomicU16]>,
    /// The only instance of each function that has no other.
    only: Vec<Option<Slot>>,
    /// Its port. Indexed by a byte, so that looking up needs no check.
    only_port: Box<[AtomicU16; 1 << u8::BITS]>,
}

impl Ports {
    pub(super) fn new(
        instances: impl Iterator<Item = String>,
        only: impl Iterator<Item = Option<Slot>>,
        default: Option<String>,
        back: Option<String>,
    ) -> Self {
        Self {
            instances: instances.map(Named::new).collect(),
            default: default.map(Named::new),
            back: back.map(Named::new),
            slots: (0..MAX_PORTS).map(|_| AtomicU16::new(NONE)).collect(),
            only: only.collect(),
            only_port: Box::new([const { AtomicU16::new(NONE) }; 1 << u8::BITS]),
        }
    }

    /// Returns the port of an instance, if the bridge has it.
    #[inline(always)]
    pub(super) fn instance(&self, slot: Slot) -> Option<PortIndex> {
        self.instances.get(usize::from(slot))?.port()
    }

    /// Returns the port of a function's only instance, if it has no other and the bridge has the port.
    #[inline(always)]
    pub(super) fn only(&self, function: Function) -> Option<PortIndex> {
        // Each byte is an index of the array.
        Some(self.only_port[usize::from(function)].load(Relaxed))
            .filter(|index| *index != NONE)
            .map(PortIndex)
    }

    /// Stores the ports of only instances again.
    fn set_only(&self) {
        for (place, only) in self.only_port.iter().zip(&self.only) {
            place.store(only.and_then(|slot| self.instance(slot)).map_or(NONE, |port| port.0), Relaxed);
        }
    }

    /// Returns the name of an instance's port.
    pub(super) fn name(&self, slot: Slot) -> &str {
        self.instances.get(usize::from(slot)).map_or("", |named| &named.name)
    }

    /// Returns the instance at a port.
    #[inline(always)]
    pub(super) fn slot(&self, port: PortIndex) -> Option<Slot> {
        Some(self.slots.get(usize::from(port.0))?.load(Relaxed)).filter(|slot| *slot != NONE)
    }

    /// Returns the port for packets that no function asks for.
    #[inline(always)]
    pub(super) fn default(&self) -> Option<PortIndex> {
        self.default.as_ref()?.port()
    }

    /// Returns the port for packets from functions.
    #[inline(always)]
    pub(super) fn back(&self) -> Option<PortIndex> {
        self.back.as_ref()?.port()
    }

    fn all(&self) -> impl Iterator<Item = &Named> {
        self.instances.iter().chain(&self.default).chain(&self.back)
    }

    /// Returns all names.
    pub(super) fn names(&self) -> Vec<String> {
        self.all().map(|named| named.name.clone()).collect()
    }

    /// Learns the ports of the bridge.
    pub(super) fn set<'a>(&self, ports: impl Iterator<Item = (&'a str, PortIndex)>) {
        let by_name: BTreeMap<_, _> = ports.collect();
        let mut slots = vec![NONE; self.slots.len()];
        for (slot, named) in (0..).zip(&self.instances) {
            let port = by_name.get(named.name.as_str());
            if let Some(place) = port.and_then(|port| slots.get_mut(usize::from(port.0))) {
                *place = slot;
            }
        }
        for (place, slot) in self.slots.iter().zip(slots) {
            place.store(slot, Relaxed);
        }
        self.all().for_each(|named| named.set(&by_name));
        self.set_only();
    }

    /// Forgets a port.
    pub(super) fn remove(&self, port: PortIndex) {
        if let Some(place) = self.slots.get(usize::from(port.0)) {
            place.store(NONE, Relaxed);
        }
        for named in self.all().filter(|named| named.port() == Some(port)) {
            named.index.store(NONE, Relaxed);
        }
        self.set_only();
    }
}
