//! Bridges and their logics: adding, replacing, removing.

use std::sync::Arc;

use super::{Bridge, BridgeId, PortRef, Switch, SwitchError, next};
use crate::bridge::published::PublishedBridge;
use crate::bridge::state::BridgeState;
use crate::counters::QueueSnapshot;
use crate::decide::logic::SwitchLogic;
use crate::worker::tasks::alarm::Alarm;
use crate::worker::tasks::{Task, Token};

impl Switch {
    /// Adds an empty bridge.
    pub fn add_bridge(&self, name: &str, logic: Arc<dyn SwitchLogic>) -> Result<BridgeId, SwitchError> {
        let state = &mut *self.lock();
        if state.bridges.values().any(|b| b.name == name) {
            return Err(SwitchError::BridgeExists(name.into()));
        }
        logic.prepare(self.threads()).map_err(SwitchError::Logic)?;
        let id = BridgeId(state.next_bridge);
        state.next_bridge += 1;
        let published =
            Arc::new(PublishedBridge::new(BridgeState::new(logic.clone(), Vec::new(), Vec::new())));
        let (ports, observers, mirrors, originated) = Default::default();
        let mut bridge = Bridge {
            name: name.into(),
            published,
            logic,
            alarm: None,
            injector: None,
            originated,
            ports,
            observers,
            mirrors,
        };
        let alarms = self.alarms(&bridge, &bridge.logic, next(&mut state.next_token));
        self.set_alarms(&mut bridge, alarms);
        state.bridges.insert(id, bridge);
        Ok(id)
    }

    /// Removes a bridge and its ports.
    pub fn remove_bridge(&self, id: BridgeId) -> Result<(), SwitchError> {
        let ports = self.ports(id)?;
        for port in ports {
            self.remove_port(PortRef { bridge: id, port })?;
        }
        let bridge = self.lock().bridges.remove(&id).ok_or(SwitchError::Gone("bridge"))?;
        self.remove_alarms(bridge.alarm);
        if let Some((injector, worker, token)) = &bridge.injector {
            if let Ok(Some(Task::Inject(task))) = self.take(*worker, *token) {
                task.discard();
            }
            injector.close();
        }
        self.settle();
        for (_, observer) in &bridge.observers {
            observer.bridge_removed();
        }
        self.group.reclaim.retire(bridge);
        Ok(())
    }

    /// A bridge's name.
    pub fn bridge_name(&self, id: BridgeId) -> Result<String, SwitchError> {
        Ok(self.lock().bridges.get(&id).ok_or(SwitchError::Gone("bridge"))?.name.clone())
    }

    /// Replaces a bridge's logic: batches in flight finish with the old one, the next meet the new one.
    pub fn set_logic(&self, id: BridgeId, logic: Arc<dyn SwitchLogic>) -> Result<(), SwitchError> {
        let state = &mut *self.lock();
        let bridge = state.bridges.get_mut(&id).ok_or(SwitchError::Gone("bridge"))?;
        logic.prepare(self.threads()).map_err(SwitchError::Logic)?;
        let alarms = self.alarms(bridge, &logic, next(&mut state.next_token));
        let old = std::mem::replace(&mut bridge.logic, logic);
        self.publish(bridge);
        self.set_alarms(bridge, alarms);
        drop(old);
        Ok(())
    }

    /// Alarms of a logic that is about to be the bridge's: one for each worker, or none.
    fn alarms(&self, bridge: &Bridge, logic: &Arc<dyn SwitchLogic>, token: Token) -> Vec<Alarm> {
        let Some(period) = logic.period() else { return Vec::new() };
        let alarm = |_| Alarm::every(period, bridge.published.clone(), bridge.originated.clone(), token);
        self.workers.iter().map(alarm).collect()
    }

    /// Replaces the bridge's alarms.
    fn set_alarms(&self, bridge: &mut Bridge, alarms: Vec<Alarm>) {
        self.remove_alarms(bridge.alarm.take());
        bridge.alarm = alarms.first().map(Alarm::token);
        for (worker, alarm) in self.workers.iter().zip(alarms) {
            worker.add(Task::Alarm(Box::new(alarm)));
        }
    }

    fn remove_alarms(&self, token: Option<Token>) {
        if let Some(token) = token {
            self.workers.iter().for_each(|worker| drop(worker.take(token)));
        }
    }

    /// Counters of packets that a bridge's logic originated in [`SwitchLogic::wake`] and that went nowhere.
    pub fn originated(&self, id: BridgeId) -> Result<QueueSnapshot, SwitchError> {
        Ok(self.lock().bridges.get(&id).ok_or(SwitchError::Gone("bridge"))?.originated.snapshot())
    }
}
