//! Trouble with modules: those that do not return from a batch, with their bridge, their thread and the start of the
//! batch, and those that failed, with the number of their faults and the latest reason.
//!
//! The fabric reports threads ([`fabric::worker::Overrun`]); a logic knows the module that a thread executes. A
//! replaced module can still be stuck or fail, so logics are tracked as long as they are referenced.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use fabric::Switch;
use logic::{Faults, Logic};
use modules::LateCall;

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
            function: String::new(),
        }
    }
}

impl From<&LateCall> for proto::StuckModule {
    fn from(call: &LateCall) -> Self {
        Self {
            bridge: call.bridge.as_deref().unwrap_or_default().into(),
            module: call.module.to_string(),
            seconds: call.since.elapsed().as_secs(),
            function: call.function.into(),
            ..Self::default()
        }
    }
}

impl proto::StuckModule {
    /// Describes the module and the remedy in a sentence.
    pub fn text(&self) -> String {
        let Self { bridge, module, seconds, port, queue, function, .. } = self;
        if !function.is_empty() {
            let of = if bridge.is_empty() { String::new() } else { format!(" of bridge {bridge}") };
            return format!(
                "{module}{of} has not returned from `{function}` for {seconds} s; restart the daemon to free its thread"
            );
        }
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

impl proto::ModuleFaults {
    /// Builds the reply for a module that has failed.
    pub(crate) fn of(bridge: &str, faults: Faults) -> Self {
        Self {
            bridge: bridge.into(),
            seconds_since_last: faults.last.elapsed().as_secs(),
            module: faults.module,
            count: faults.count,
            reason: faults.reason,
            restarting: faults.restarting,
        }
    }

    /// Describes the faults in a sentence.
    pub fn text(&self) -> String {
        let Self { bridge, module, count, reason, seconds_since_last: seconds, restarting } = self;
        let times = match count {
            1 => format!("once, {seconds} s ago"),
            count => format!("{count} times, most recently {seconds} s ago"),
        };
        let restarting = match restarting {
            true => "; its packets are dropped as logic-fault until it restarts",
            false => "",
        };
        format!("{module} of bridge {bridge} has failed {times}: {reason}{restarting}")
    }
}

/// A logic with its bridge, and the number of faults already reported of each of its modules.
struct WatchedLogic {
    bridge: String,
    logic: Weak<dyn Logic>,
    faults: BTreeMap<String, u64>,
}

/// Logics with their bridges, and the stuck modules already reported.
#[derive(Default)]
pub(crate) struct Watched {
    logics: Mutex<Vec<WatchedLogic>>,
    reported: Mutex<Vec<Stuck>>,
}

impl Watched {
    /// Tracks a logic that a bridge is about to use.
    pub(crate) fn add(&self, bridge: &str, logic: &Arc<dyn Logic>) {
        logic.set_bridge(bridge);
        let mut logics = self.logics();
        logics.retain(|watched| watched.logic.strong_count() > 0);
        let (bridge, logic, faults) = (bridge.into(), Arc::downgrade(logic), BTreeMap::new());
        logics.push(WatchedLogic { bridge, logic, faults });
    }

    fn logics(&self) -> MutexGuard<'_, Vec<WatchedLogic>> {
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
            .filter_map(|watched| Some((watched.bridge.clone(), watched.logic.upgrade()?)))
            .collect();
        let stuck = overruns.iter().filter_map(|overrun| {
            let called = |(bridge, logic): &(String, Arc<dyn Logic>)| {
                Some((bridge.clone(), logic.called_on(overrun.thread)?))
            };
            let (bridge, module) = logics.iter().find_map(called)?;
            let worker = overrun.worker();
            let queue = switch.queue_of(overrun);
            Some(Stuck { bridge, module, worker, thread: overrun.thread, since: overrun.since, queue })
        });
        stuck.collect()
    }

    /// Returns the modules that have failed since the last call, with their bridges.
    pub(crate) fn new_faults(&self) -> Vec<(String, Faults)> {
        let mut new = Vec::new();
        for WatchedLogic { bridge, logic, faults: reported } in self.logics().iter_mut() {
            for faults in logic.upgrade().map(|logic| logic.faults()).unwrap_or_default() {
                let before = reported.insert(faults.module.clone(), faults.count).unwrap_or_default();
                if faults.count != before {
                    new.push((bridge.clone(), faults));
                }
            }
        }
        new
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
            function: String::new(),
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
        let starting = proto::StuckModule { function: "msw_start".into(), ..elsewhere };
        let rest = "has not returned from `msw_start` for 12 s; restart the daemon to free its thread";
        assert_eq!(starting.text(), format!("native:/m.so of bridge br0 {rest}"));
        let alone = proto::StuckModule { bridge: String::new(), ..starting };
        assert_eq!(alone.text(), format!("native:/m.so {rest}"));
    }

    #[test]
    fn text_of_faults_has_module_bridge_count_time_and_reason() {
        let faults = proto::ModuleFaults {
            bridge: "br0".into(),
            module: "stage 2, wasm:/m.wasm".into(),
            count: 1,
            reason: "it ran for too long".into(),
            seconds_since_last: 3,
            restarting: false,
        };
        assert_eq!(
            faults.text(),
            "stage 2, wasm:/m.wasm of bridge br0 has failed once, 3 s ago: it ran for too long"
        );
        assert_eq!(
            proto::ModuleFaults { count: 1200, restarting: true, ..faults }.text(),
            "stage 2, wasm:/m.wasm of bridge br0 has failed 1200 times, most recently 3 s ago: it ran for too long; its packets \
            are dropped as logic-fault until it restarts"
        );
    }

    /// A logic of a module that fails whenever it is asked.
    struct Failing(std::sync::atomic::AtomicU64);

    impl fabric::SwitchLogic for Failing {
        fn forward(&self, _: &mut fabric::Batch<'_>) {}
    }

    impl Logic for Failing {
        fn name(&self) -> &str {
            "failing"
        }

        fn params(&self) -> Vec<(String, String)> {
            Vec::new()
        }

        fn faults(&self) -> Vec<Faults> {
            let count = self.0.load(std::sync::atomic::Ordering::Relaxed);
            let (module, reason) = ("wasm:/m.wasm".into(), "trap".into());
            vec![Faults { module, count, reason, last: Instant::now(), restarting: true }]
        }
    }

    #[test]
    fn faults_are_reported_once_with_their_sum() {
        let failing = Arc::new(Failing(0.into()));
        let watched = Watched::default();
        watched.add("br0", &(failing.clone() as Arc<dyn Logic>));
        let new = || -> Vec<_> {
            watched.new_faults().into_iter().map(|(bridge, faults)| (bridge, faults.count)).collect()
        };
        assert_eq!(new(), []);
        for count in [1, 40] {
            failing.0.store(count, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(new(), [("br0".to_owned(), count)]);
            assert_eq!(new(), []);
        }
        drop(failing);
        assert_eq!(new(), []);
    }
}
