//! Observers, mirrors and traces of a bridge.

use std::sync::Arc;

use packet::offload::Offload;

use super::{BridgeId, ObserverId, PortRef, Switch, SwitchError, port_mut};
use crate::bridge::port::PortIndex;
use crate::observe::mirror::{Mirror, MirrorSnapshot};
use crate::observe::observer::Observer;
use crate::observe::trace::{self, TraceError, Traced};
use crate::worker::per_thread::Threads;

impl Switch {
    /// Adds an observer, which sees the packets of a bridge from the next batch on.
    pub fn observe(&self, id: BridgeId, observer: Arc<dyn Observer>) -> Result<ObserverId, SwitchError> {
        let mut state = self.lock();
        let added = ObserverId(state.next_observer);
        state.next_observer += 1;
        let threads = Threads::of(state.workers.len());
        let bridge = state.bridges.get_mut(&id).ok_or(SwitchError::Gone("bridge"))?;
        observer.prepare(threads);
        bridge.observers.push((added, observer));
        self.publish(bridge);
        Ok(added)
    }

    /// Number of observers of a bridge.
    pub fn observers(&self, id: BridgeId) -> Result<usize, SwitchError> {
        let state = self.lock();
        Ok(state.bridges.get(&id).ok_or(SwitchError::Gone("bridge"))?.observers.len())
    }

    /// Removes an observer. On return no worker will call it again.
    pub fn unobserve(&self, id: BridgeId, observer: ObserverId) -> Result<(), SwitchError> {
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&id).ok_or(SwitchError::Gone("bridge"))?;
        let at = bridge.observers.iter().position(|(other, _)| *other == observer);
        let gone = bridge.observers.remove(at.ok_or(SwitchError::Gone("observer"))?);
        self.publish(bridge);
        drop(gone);
        Ok(())
    }

    /// Replaces a bridge's mirrors; an unchanged mirror keeps its counters.
    pub fn set_mirrors(&self, id: BridgeId, mirrors: Vec<Mirror>) -> Result<(), SwitchError> {
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&id).ok_or(SwitchError::Gone("bridge"))?;
        let before = std::mem::take(&mut bridge.mirrors);
        let copied = |mirror: &Mirror| {
            before
                .iter()
                .find(|(other, _)| other == mirror)
                .map(|(_, copied)| copied.clone())
                .unwrap_or_default()
        };
        bridge.mirrors = mirrors.into_iter().map(|mirror| (mirror.clone(), copied(&mirror))).collect();
        self.publish(bridge);
        Ok(())
    }

    /// The mirrors of a bridge and their counters.
    pub fn mirrors(&self, id: BridgeId) -> Result<Vec<(Mirror, MirrorSnapshot)>, SwitchError> {
        let state = self.lock();
        let bridge = state.bridges.get(&id).ok_or(SwitchError::Gone("bridge"))?;
        Ok(bridge.mirrors.iter().map(|(mirror, copied)| (mirror.clone(), copied.snapshot())).collect())
    }

    /// Predicts and explains the fate of a packet received at a port now, or with [`PortIndex::NONE`] of one from no
    /// port. Nothing is sent, counted or learned.
    pub fn trace(&self, at: PortRef, packet: &[u8], offload: Offload) -> Result<Traced, TraceError> {
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        if at.port != PortIndex::NONE {
            port_mut(bridge, at.port)?;
        }
        // SAFETY: states are replaced by `publish` only, which needs the lock that is held until the end.
        let picture = unsafe { bridge.published.get() };
        trace::rehearse(picture, at.port, packet, offload)
    }
}
