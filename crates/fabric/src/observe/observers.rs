//! The observers in the state of a bridge, and their interest in each port.

use std::sync::Arc;

use crate::bridge::port::PortIndex;
use crate::bridge::state::PortEntry;
use crate::observe::interest::Interest;
use crate::observe::observer::Observer;

/// An observer, and its interest in each port.
pub(crate) struct ObserverSlot {
    pub(crate) observer: Arc<dyn Observer>,
    interests: Box<[Interest]>,
}

impl ObserverSlot {
    pub(crate) fn interest(&self, port: PortIndex) -> Interest {
        self.interests.get(usize::from(port.0)).copied().unwrap_or_default()
    }
}

/// The observers in the state of a bridge.
pub(crate) struct Observers {
    slots: Box<[ObserverSlot]>,
    /// The port of each queue.
    ports_of_lanes: Box<[PortIndex]>,
    /// Combined interest of all observers, by port.
    interests: Box<[Interest]>,
}

impl Observers {
    /// `None` without observers.
    pub(crate) fn new<'a>(
        observers: impl Iterator<Item = &'a Arc<dyn Observer>>,
        ports: &[Option<PortEntry>],
    ) -> Option<Self> {
        let interest = |observer: &Arc<dyn Observer>, index, entry: &Option<PortEntry>| {
            entry
                .as_ref()
                .map_or(Interest::default(), |e| observer.interest(PortIndex(index), &e.settings.name))
        };
        let slots: Box<[ObserverSlot]> = observers
            .map(|observer| ObserverSlot {
                observer: observer.clone(),
                interests: (0..).zip(ports).map(|(index, entry)| interest(observer, index, entry)).collect(),
            })
            .collect();
        let any = |index: u16| {
            let of_port = slots.iter().map(|slot| slot.interest(PortIndex(index)));
            of_port.fold(Interest::default(), Interest::or)
        };
        let interests = (0..).zip(ports).map(|(index, _)| any(index)).collect();
        // Queues are numbered in the order of their ports.
        let lanes = (0..).zip(ports).flat_map(|(index, entry)| {
            let count = entry.as_ref().map_or(0, |entry| entry.lanes as usize);
            std::iter::repeat_n(PortIndex(index), count)
        });
        (!slots.is_empty()).then(|| Self { ports_of_lanes: lanes.collect(), interests, slots })
    }

    #[inline]
    pub(crate) fn port_of(&self, lane: u32) -> Option<PortIndex> {
        self.ports_of_lanes.get(lane as usize).copied()
    }

    #[inline]
    fn interest(&self, port: PortIndex) -> Interest {
        self.interests.get(usize::from(port.0)).copied().unwrap_or_default()
    }

    /// Whether an observer wants to see packets from a port, or the logic's remarks on them.
    #[inline]
    pub(crate) fn shows_received(&self, port: PortIndex) -> bool {
        let Interest { received, sent: _, explained } = self.interest(port);
        received || explained
    }

    /// Whether an observer wants to see packets that queue `lane` sends.
    #[inline]
    pub(crate) fn shows_sent(&self, lane: u32) -> bool {
        self.port_of(lane).is_some_and(|port| self.interest(port).sent)
    }

    /// The observers.
    pub(crate) fn slots(&self) -> &[ObserverSlot] {
        &self.slots
    }

    /// Asks each observer whether it picks a batch, notes the answers in `picked`, and returns the combined interest in
    /// its ingress port. `None` if no observer picks it.
    pub(crate) fn ask(
        &self,
        worker: usize,
        ingress: PortIndex,
        packets: usize,
        picked: &mut Vec<bool>,
    ) -> Option<Interest> {
        picked.clear();
        picked.reserve(self.slots.len());
        let mut wanted = None;
        for slot in &self.slots {
            let picks = slot.observer.picks(worker, ingress, packets);
            picked.push(picks);
            if picks {
                wanted = Some(slot.interest(ingress).or(wanted.unwrap_or_default()));
            }
        }
        wanted
    }
}
