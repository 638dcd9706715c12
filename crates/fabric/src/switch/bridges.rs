//! Bridges and their logics: adding, replacing, removing.

use std::sync::Arc;

use super::{Bridge, BridgeId, PortRef, Switch, SwitchError, Workers, next};
use crate::bridge::published::PublishedBridge;
use crate::bridge::state::BridgeState;
use crate::counters::QueueSnapshot;
use crate::decide::logic::SwitchLogic;
use crate::worker::handle::ThreadExit;
use crate::worker::per_thread::Threads;
use crate::worker::request::PendingTask;
use crate::worker::tasks::alarm::Alarm;
use crate::worker::tasks::{Task, Token};

impl Switch {
    /// Adds an empty bridge.
    pub fn add_bridge(&self, name: &str, logic: Arc<dyn SwitchLogic>) -> Result<BridgeId, SwitchError> {
        let state = &mut *self.lock();
        if state.bridges.values().any(|b| b.name == name) {
            return Err(SwitchError::BridgeExists(name.into()));
        }
        logic.prepare(Threads::of(state.workers.len())).map_err(SwitchError::Logic)?;
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
        set_alarms(&mut bridge, &state.workers, next(&mut state.next_token));
        state.bridges.insert(id, bridge);
        Ok(id)
    }

    /// Removes a bridge and its ports.
    pub fn remove_bridge(&self, id: BridgeId) -> Result<(), SwitchError> {
        let ports = self.ports(id)?;
        for port in ports {
            self.remove_port(PortRef { bridge: id, port })?;
        }
        let mut state = self.lock();
        let bridge = state.bridges.remove(&id).ok_or(SwitchError::Gone("bridge"))?;
        let alarms = ask_for_alarms(&state.workers, bridge.alarm);
        let injecting = bridge.injector.as_ref();
        let injecting = injecting.and_then(|(_, worker, token)| state.workers.ask((*worker, *token)));
        drop(state);
        let deadline = ThreadExit::deadline();
        alarms.into_iter().for_each(|alarm| drop(alarm.answer(deadline)));
        if let Some(Ok(Some(Task::Inject(task)))) = injecting.map(|asked| asked.answer(deadline)) {
            task.discard();
        }
        if let Some((injector, ..)) = &bridge.injector {
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
        logic.prepare(Threads::of(state.workers.len())).map_err(SwitchError::Logic)?;
        let old = std::mem::replace(&mut bridge.logic, logic);
        self.publish(bridge);
        set_alarms(bridge, &state.workers, next(&mut state.next_token));
        drop(old);
        Ok(())
    }

    /// Counters of packets that a bridge's logic originated in [`SwitchLogic::wake`] and that went nowhere.
    pub fn originated(&self, id: BridgeId) -> Result<QueueSnapshot, SwitchError> {
        Ok(self.lock().bridges.get(&id).ok_or(SwitchError::Gone("bridge"))?.originated.snapshot())
    }
}

/// The alarm that wakes a bridge's logic on one more worker, if the logic wants that.
pub(super) fn alarm(bridge: &Bridge, token: Token) -> Option<Task> {
    let period = bridge.logic.period()?;
    let alarm = Alarm::every(period, bridge.published.clone(), bridge.originated.clone(), token);
    Some(Task::Alarm(Box::new(alarm)))
}

/// Replaces the alarms of a bridge's previous logic by those of its logic.
fn set_alarms(bridge: &mut Bridge, workers: &Workers, token: Token) {
    let deadline = ThreadExit::deadline();
    for alarm in ask_for_alarms(workers, bridge.alarm.take()) {
        drop(alarm.answer(deadline));
    }
    for worker in workers.iter() {
        if let Some(alarm) = alarm(bridge, token) {
            worker.handle.add(alarm);
            bridge.alarm = Some(token);
        }
    }
}

/// Asks the workers for the alarms with this token.
fn ask_for_alarms(workers: &Workers, token: Option<Token>) -> Vec<PendingTask> {
    token.map_or_else(Vec::new, |token| workers.iter().map(|worker| worker.handle.ask(token)).collect())
}
