//! Stuck modules: modules that do not return from a batch, with their bridge, their thread and the start of the batch.
//!
//! The fabric reports threads ([`fabric::worker::Overrun`]); a logic knows the module that a thread executes. A
//! replaced module can still be stuck, so logics are tracked as long as they are referenced.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use fabric::Switch;
use logic::Logic;

use crate::proto;

/// A module that has not returned from a batch for more than a second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck {
    /// Its bridge.
    pub bridge: String,
    /// The module, as the bridge's logic names it.
    pub module: String,
    /// The worker that waits for it; `None` for a stand-in thread.
    pub worker: Option<usize>,
    /// Index of the thread that waits for it.
    pub thread: usize,
    /// Start of the batch.
    pub since: Instant,
    /// The receive queue that is not served meanwhile: port and queue number.
    pub queue: Option<(String, u16)>,
}

impl Stuck {
    /// Whether `other` is the same batch.
    fn is_same(&self, other: &Self) -> bool {
        (self.thread, self.since) == (other.thread, other.since)
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&proto::StuckModule::from(self).text())
    }
}

impl From<&Stuck> for proto::StuckModule {
    fn from(stuck: &Stuck) -> Self {
        let (port, queue) = stuck.queue.clone().unwrap_or_default();
        Self {
            port,
            queue: queue.into(),
            bridge: stuck.bridge.clone(),
            module: stuck.module.clone(),
            worker: stuck.worker.and_then(|worker| u32::try_from(worker).ok()),
            seconds: stuck.since.elapsed().as_secs(),
        }
    }
}

impl proto::StuckModule {
    /// Describes the module and the remedy in a sentence.
    pub fn text(&self) -> String {
        let Self { bridge, module, seconds, port, queue, .. } = self;
        let thread =
            self.worker.map_or_else(|| "a stand-in thread".into(), |worker| format!("worker {worker}"));
        let (unserved, kept) = match port.as_str() {
            "" => (String::new(), "its work"),
            port => (format!(", so queue {queue} of port {port} is not served"), "the queue"),
        };
        format!(
            "{module} of bridge {bridge} has not returned on {thread} for {seconds} s{unserved}; set another logic, then \
            restart the daemon to free the thread and {kept}"
        )
    }
}

impl proto::StuckModule {
    /// Describes in a sentence that the module has returned.
    pub(crate) fn returned(&self) -> String {
        let Self { bridge, module, seconds, .. } = self;
        format!("{module} of bridge {bridge} has returned after {seconds} s")
    }
}

/// Logics with their bridges, and the stuck modules already reported.
#[derive(Default)]
pub(crate) struct Watched {
    logics: Mutex<Vec<(String, Weak<dyn Logic>)>>,
    reported: Mutex<Vec<Stuck>>,
}

impl Watched {
    /// Tracks a logic that a bridge is about to use.
    pub(crate) fn add(&self, bridge: &str, logic: &Arc<dyn Logic>) {
        logic.set_bridge(bridge);
        let mut logics = self.logics();
        logics.retain(|(_, logic)| logic.strong_count() > 0);
        logics.push((bridge.into(), Arc::downgrade(logic)));
    }

    fn logics(&self) -> MutexGuard<'_, Vec<(String, Weak<dyn Logic>)>> {
        self.logics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the modules that are stuck now.
    pub(crate) fn stuck(&self, switch: &Switch) -> Vec<Stuck> {
        let overruns = switch.overruns();
        if overruns.is_empty() {
            return Vec::new();
        }
        let logics: Vec<_> = self
            .logics()
            .iter()
            .filter_map(|(bridge, logic)| Some((bridge.clone(), logic.upgrade()?)))
            .collect();
        let workers = switch.workers().len();
        let stuck = overruns.iter().filter_map(|overrun| {
            let called = |(bridge, logic): &(String, Arc<dyn Logic>)| {
                Some((bridge.clone(), logic.called_on(overrun.thread)?))
            };
            let (bridge, module) = logics.iter().find_map(called)?;
            let worker = Some(overrun.thread).filter(|thread| *thread < workers);
            let queue = switch.queue_of(overrun);
            Some(Stuck { bridge, module, worker, thread: overrun.thread, since: overrun.since, queue })
        });
        stuck.collect()
    }

    /// Returns the modules that have become stuck since the last call, and those that have returned.
    pub(crate) fn changes(&self, now: Vec<Stuck>) -> (Vec<Stuck>, Vec<Stuck>) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let begun =
            now.iter().filter(|stuck| !reported.iter().any(|it| it.is_same(stuck))).cloned().collect();
        let returned =
            reported.iter().filter(|stuck| !now.iter().any(|it| it.is_same(stuck))).cloned().collect();
        *reported = now;
        (begun, returned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_module_bridge_thread_time_and_remedy() {
        let stuck = proto::StuckModule {
            bridge: "br0".into(),
            module: "native:/m.so".into(),
            worker: Some(1),
            seconds: 12,
            port: "vm1".into(),
            queue: 3,
        };
        assert_eq!(
            stuck.text(),
            "native:/m.so of bridge br0 has not returned on worker 1 for 12 s, so queue 3 of port vm1 is not served; set another \
            logic, then restart the daemon to free the thread and the queue"
        );
        let elsewhere = proto::StuckModule { worker: None, port: String::new(), ..stuck };
        assert_eq!(
            elsewhere.text(),
            "native:/m.so of bridge br0 has not returned on a stand-in thread for 12 s; set another logic, then restart the \
            daemon to free the thread and its work"
        );
    }
}
