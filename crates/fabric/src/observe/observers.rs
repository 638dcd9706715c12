//! The observers in a picture of a bridge, and which ports each of them wants to see.

use std::sync::Arc;

use crate::bridge::picture::PortEntry;
use crate::bridge::port::PortIndex;
use crate::observe::interest::Interest;
use crate::observe::observer::Observer;

/// An observer, and what it wants to see of each port.
pub(crate) struct ObserverSlot {
    pub(crate) observer: Arc<dyn Observer>,
    interests: Box<[Interest]>,
}

impl ObserverSlot {
    pub(crate) fn interest(&self, port: PortIndex) -> Interest {
        self.interests.get(usize::from(port.0)).copied().unwrap_or_default()
    }
}

/// The observers in a picture of a bridge.
pub(crate) struct Watch {
    slots: Box<[ObserverSlot]>,
    /// The port of each queue.
    ports_of_lanes: Box<[PortIndex]>,
    /// What any of them wants to see.
    interests: Box<[Interest]>,
}

impl Watch {
    /// None without observers.
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

    /// Whether an observer wants to see what comes from a port, or what the logic has to say about it.
    #[inline]
    pub(crate) fn shows_received(&self, port: PortIndex) -> bool {
        let Interest { received, sent: _, explained } = self.interest(port);
        received || explained
    }

    /// Whether an observer wants to see what is sent by queue `lane`.
    #[inline]
    pub(crate) fn shows_sent(&self, lane: u32) -> bool {
        self.port_of(lane).is_some_and(|port| self.interest(port).sent)
    }

    /// The observers.
    pub(crate) fn slots(&self) -> &[ObserverSlot] {
        &self.slots
    }

    /// Asks who picks a batch, notes each answer in `picked`, and returns what they want to see of its ingress port.
    /// `None` if nobody picks it.
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
