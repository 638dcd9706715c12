//! Marking: the code points that queues of a port give to the IP packets that leave in them ([`QueueLimits::dscp`]).
//!
//! A port that marks gets each packet through `emit`, where its form for the port is made; others pay nothing.
//!
//! [`QueueLimits::dscp`]: crate::protection::QueueLimits::dscp

use std::sync::Arc;

use packet::dscp;

use crate::protect::protection::EgressLimits;
use crate::rx::RxBatch;

/// Code points of a port's queues, by class; the default queue has none, as packets are in it without being put there.
#[derive(Debug)]
pub(crate) struct Marks(Box<[(u16, u8)]>);

impl Marks {
    /// The code points that settings ask for, if any.
    pub(crate) fn of(limits: Option<&EgressLimits>) -> Option<Arc<Self>> {
        let queues = limits?.queues.iter().filter(|(number, _)| **number != 0);
        let marks: Box<[_]> = queues.filter_map(|(number, queue)| Some((*number, queue.dscp?))).collect();
        (!marks.is_empty()).then(|| Arc::new(Marks(marks)))
    }

    fn get(&self, class: u16) -> Option<u8> {
        let at = self.0.binary_search_by_key(&class, |(class, _)| *class).ok()?;
        self.0.get(at).map(|(_, dscp)| *dscp)
    }

    /// The form of version `v` with its queue's code point: itself, if it has none or cannot have it. `None` if the
    /// batch has no room for another version.
    pub(crate) fn marked(&self, rx: &mut RxBatch, v: usize) -> Option<usize> {
        let Some(code) = rx.records.get(v).and_then(|record| self.get(record.class)) else { return Some(v) };
        if dscp::of(rx.header(v)).is_none_or(|present| present == code) {
            return Some(v);
        }
        // Other ports may get the version as it is.
        let fresh = rx.copy_version(v)?;
        dscp::set(rx.header_mut(fresh)?, code);
        Some(fresh)
    }
}
