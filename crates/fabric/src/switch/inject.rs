//! Injecting packets of the control plane into a bridge.

use packet::offload::Offload;

use super::{BridgeId, Placement, Switch, SwitchError, doorbell, next};
use crate::worker::tasks::Task;
use crate::worker::tasks::inject::{Inject, Injection, Injector};

impl Switch {
    /// Sends a packet of the control plane into a bridge; see [`Switch::injector`].
    pub fn inject(
        &self,
        id: BridgeId,
        packet: &[u8],
        offload: Offload,
        to: Injection,
    ) -> Result<(), SwitchError> {
        Ok(self.injector(id)?.inject(packet, offload, to)?)
    }

    /// The injector of a bridge, which sends packets into it without taking the switch's lock. One worker takes them,
    /// in order.
    pub fn injector(&self, id: BridgeId) -> Result<Injector, SwitchError> {
        let state = &mut *self.lock();
        let bridge = state.bridges.get_mut(&id).ok_or(SwitchError::Gone("bridge"))?;
        if let Some((injector, ..)) = &bridge.injector {
            return Ok(injector.clone());
        }
        let injector = Injector::new().map_err(doorbell)?;
        let token = next(&mut state.next_token);
        let worker = state.workers.place(Placement::default()).0;
        state
            .workers
            .add(worker, Task::Inject(Box::new(Inject::new(&injector, bridge.published.clone(), token))));
        bridge.injector = Some((injector.clone(), worker, token));
        Ok(injector)
    }
}
