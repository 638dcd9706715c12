//! Observers, mirrors and traces of a bridge.

use std::sync::Arc;

use packet::offload::Offload;

use super::{BridgeId, ObserverId, PortRef, Switch, SwitchError, port_mut};
use crate::observe::mirror::{Mirror, MirrorSnapshot};
use crate::observe::observer::Observer;
use crate::observe::trace::{self, TraceError, Traced};

impl Switch {
    /// Lets `observer` see the packets of a bridge from its next batch on.
    pub fn observe(&self, id: BridgeId, observer: Arc<dyn Observer>) -> Result<ObserverId, SwitchError> {
        let mut state = self.lock();
        let added = ObserverId(state.next_observer);
        state.next_observer += 1;
        let bridge = state.bridges.get_mut(&id).ok_or(SwitchError::Gone("bridge"))?;
        bridge.observers.push((added, observer));
        self.publish(bridge);
        Ok(added)
    }

    /// How many observers a bridge has.
    pub fn observers(&self, id: BridgeId) -> Result<usize, SwitchError> {
        let state = self.lock();
        Ok(state.bridges.get(&id).ok_or(SwitchError::Gone("bridge"))?.observers.len())
    }

    /// Takes an observer away. When this returns no worker will call it again.
    pub fn unobserve(&self, id: BridgeId, observer: ObserverId) -> Result<(), SwitchError> {
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&id).ok_or(SwitchError::Gone("bridge"))?;
        let at = bridge.observers.iter().position(|(other, _)| *other == observer);
        let gone = bridge.observers.remove(at.ok_or(SwitchError::Gone("observer"))?);
        self.publish(bridge);
        drop(gone);
        Ok(())
    }

    /// Gives a bridge these mirrors in place of those it has; one that stays as it is goes on counting.
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

    /// A bridge's mirrors and what they have copied.
    pub fn mirrors(&self, id: BridgeId) -> Result<Vec<(Mirror, MirrorSnapshot)>, SwitchError> {
        let state = self.lock();
        let bridge = state.bridges.get(&id).ok_or(SwitchError::Gone("bridge"))?;
        Ok(bridge.mirrors.iter().map(|(mirror, copied)| (mirror.clone(), copied.snapshot())).collect())
    }

    /// What would become of a packet that came from a port now, and why. Nothing is sent, counted or learned.
    pub fn trace(&self, at: PortRef, packet: &[u8], offload: Offload) -> Result<Traced, TraceError> {
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        port_mut(bridge, at.port)?;
        // SAFETY: pictures are replaced by `publish` only, which needs the lock that is held until the end.
        let picture = unsafe { bridge.cell.get() };
        trace::rehearse(picture, at.port, packet, offload)
    }
}
