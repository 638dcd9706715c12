//! Monitoring of interfaces by BFD and CFM: the sessions ([`oam`]) with their clock, the data path and the database.
//!
//! - `link`: a monitored port; `commands`: `bfd/*` and `cfm/*`; `columns`: those of the database.
//!
//! A thread does what time asks for, on OpenFlow's clock ([`ofagent::clock`]); frames come on the threads of bridges.
//! With a stopped clock, [`Monitor::advance`] follows each step of it.
//!
//! Invariants: the sessions' lock is held while nothing is waited for; bridges are told of faulty ports without it, in
//! the order in which they were found.

pub(crate) mod columns;
pub(crate) mod commands;
mod link;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use control::desired::Desired;
use fabric::PortIndex;
use fabric::switch::PortSnapshot;
use oam::{Millis, Moment};
use tokio::sync::watch;

use crate::plan::{Monitoring, Plan};
use link::Link;
pub(crate) use link::Status;

/// Time for packets of one step of the stopped clock.
const STEP_LIMIT: Duration = Duration::from_secs(5);
/// Exchanges of packets within one step: a poll and its answer in both directions, and some to spare.
const EXCHANGES: usize = 16;
/// Shortest sleep of the thread, so that many sessions have their turn together.
const SHORTEST: Duration = Duration::from_millis(1);

/// A port, by its bridge and its name.
type Key = (String, String);

/// The monitored ports. See the module.
pub(crate) struct Monitor {
    desired: Arc<Desired>,
    links: Mutex<Links>,
    /// Wakes the thread.
    due: Condvar,
    /// Held while bridges are told of faulty ports.
    telling: Mutex<()>,
    /// Told when a status has changed.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct Links {
    all: BTreeMap<Key, Link>,
    by_port: BTreeMap<(String, PortIndex), Key>,
    /// Bridges that hand over frames.
    bridges: BTreeSet<String>,
    /// BFD sessions made so far.
    made: u32,
    /// Frames sent and received so far.
    exchanged: u64,
    /// The last status of each port.
    told: BTreeMap<Key, Status>,
    /// The ports that bridges were last told to be faulty.
    faulty: BTreeSet<Key>,
    has_ended: bool,
}

fn now() -> Millis {
    ofagent::clock::now() / 1_000_000
}

impl Monitor {
    /// Makes the monitor, with a thread that ends with it.
    pub(crate) fn start(desired: Arc<Desired>) -> std::io::Result<Arc<Self>> {
        let monitor = Arc::new(Self {
            desired,
            links: Mutex::default(),
            due: Condvar::new(),
            telling: Mutex::default(),
            changed: watch::Sender::new(()),
        });
        let its = Arc::downgrade(&monitor);
        std::thread::Builder::new().name("monitor".into()).spawn(move || {
            while let Some(monitor) = Weak::upgrade(&its) {
                if !monitor.turn() {
                    return;
                }
            }
        })?;
        Ok(monitor)
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        self.lock().has_ended = true;
        self.due.notify_all();
    }

    /// Returns a receiver that is told when a status has changed.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a plan that is about to be applied: ports that it adds are faulty until their sessions are up.
    pub(crate) fn prepare(&self, plan: &Plan) {
        let mut wanted: BTreeMap<Key, &Monitoring> = BTreeMap::new();
        for bridge in plan.bridges.iter().filter(|bridge| bridge.error.is_none()) {
            let monitored = bridge.interfaces.iter().filter(|it| it.port.is_ok() && !it.monitoring.is_none());
            wanted.extend(monitored.map(|it| ((bridge.name.clone(), it.name.clone()), &it.monitoring)));
        }
        let mut links = self.lock();
        let links = &mut *links;
        links.all.retain(|key, _| wanted.contains_key(key));
        for (key, monitoring) in wanted {
            let link = links.all.entry(key).or_default();
            let at = self.moment(link);
            let made = &mut links.made;
            let identity = || {
                *made = made.wrapping_add(1);
                // The number makes it unique, the rest hard to guess (RFC 5880 §6.8.1); neither part is 0.
                (fastrand::u32(1..1 << 16) << 16 | *made & 0xffff, *made)
            };
            link.configure(monitoring, identity, at);
        }
        links.by_port.retain(|_, key| links.all.contains_key(key));
    }

    /// Joins the ports of the plan, which is applied now, to their bridges.
    pub(crate) fn join(self: &Arc<Self>) {
        let mut bridges: BTreeMap<String, BTreeMap<String, Vec<_>>> = BTreeMap::new();
        {
            let mut links = self.lock();
            let named = links.all.keys().map(|(bridge, _)| bridge.clone()).collect();
            // Bridges that no longer have monitored ports hand over nothing.
            let before = std::mem::replace(&mut links.bridges, named);
            bridges.extend(before.into_iter().map(|bridge| (bridge, BTreeMap::new())));
            for ((bridge, port), link) in &links.all {
                bridges.entry(bridge.clone()).or_default().insert(port.clone(), link.selectors());
            }
        }
        for (bridge, selected) in bridges {
            let (its, name) = (Arc::downgrade(self), bridge.clone());
            // A bridge owns its sink, and the daemon the bridges.
            let sink = move |port: PortIndex, frame: &[u8]| {
                if let Some(monitor) = its.upgrade() {
                    monitor.receive(&name, port, frame);
                }
            };
            let ports = self.desired.state().intercept(&bridge, selected, sink);
            let mut links = self.lock();
            let links = &mut *links;
            links.by_port.retain(|(its, _), _| *its != bridge);
            for ((_, name), link) in links.all.iter_mut().filter(|((its, _), _)| *its == bridge) {
                link.set_port(ports.get(name).cloned(), |link| self.moment(link));
                if let Some(port) = &link.port {
                    links.by_port.insert((bridge.clone(), port.at.port), (bridge.clone(), name.clone()));
                }
            }
        }
        self.run();
        // The thread has slept until what was due before.
        self.due.notify_one();
    }

    fn moment(&self, link: &Link) -> Moment {
        let counters =
            link.port.as_ref().and_then(|port| self.desired.state().switch().counters(port.at).ok());
        let packets = |counters: PortSnapshot| counters.rx.iter().map(|queue| queue.packets).sum();
        Moment { now: now(), received: counters.map_or(0, packets) }
    }

    /// Does what is due, and tells what has changed. Returns the frames exchanged so far.
    fn run(&self) -> u64 {
        let exchanged = {
            let mut links = self.lock();
            let links = &mut *links;
            let time = now();
            for link in links.all.values_mut() {
                let is_due = link.next_call().is_some_and(|next| next <= time);
                if !is_due && !link.wants_data() {
                    continue;
                }
                let at = self.moment(link);
                link.look_for_data(at);
                links.exchanged += link.run(at) as u64;
            }
            links.exchanged
        };
        self.tell();
        exchanged
    }

    /// Tells bridges and the database what has changed.
    pub(crate) fn tell(&self) {
        let _telling = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let (faulty, has_changed, differs) = {
            let mut links = self.lock();
            let statuses = links.all.iter().map(|(key, link)| (key.clone(), link.status())).collect();
            let has_changed = links.told != statuses;
            links.told = statuses;
            let faulty = links.all.iter().filter(|(_, link)| !link.forwards());
            let faulty: BTreeSet<_> = faulty.map(|(key, _)| key.clone()).collect();
            let differs = links.faulty != faulty;
            links.faulty = faulty.clone();
            (faulty, has_changed, differs)
        };
        if differs {
            self.desired.state().set_faulty(faulty);
        }
        if has_changed {
            self.changed.send_replace(());
        }
    }

    fn receive(&self, bridge: &str, port: PortIndex, frame: &[u8]) {
        let mut links = self.lock();
        let links = &mut *links;
        let Some(key) = links.by_port.get(&(bridge.to_owned(), port)) else { return };
        let Some(link) = links.all.get_mut(key) else { return };
        let at = self.moment(link);
        links.exchanged += 1;
        if let Err(error) = link.receive(frame, at) {
            tracing::debug!(bridge, port = key.1, "a packet is ignored: {error}");
        }
        // It may have to be answered, and what it changed to be told.
        self.due.notify_one();
    }

    /// One turn of the thread; returns whether there is another.
    fn turn(&self) -> bool {
        self.run();
        let links = self.lock();
        if links.has_ended {
            return false;
        }
        let next = links.all.values().filter_map(Link::next_call).min();
        match next.map(|next| Duration::from_millis(next.saturating_sub(now()))) {
            Some(sleep) => drop(self.due.wait_timeout(links, sleep.max(SHORTEST))),
            None => drop(self.due.wait(links)),
        }
        true
    }

    /// Does what is due after a step of the stopped clock, and what follows from it.
    pub(crate) fn advance(&self) {
        if self.lock().all.is_empty() {
            return;
        }
        for _ in 0..EXCHANGES {
            let exchanged = self.run();
            if !self.desired.state().settle(STEP_LIMIT) {
                tracing::warn!("packets of a step of the clock are not forwarded within {STEP_LIMIT:?}");
            }
            if self.lock().exchanged == exchanged {
                break;
            }
        }
        self.tell();
    }

    /// The status of all monitored ports.
    pub(crate) fn statuses(&self) -> BTreeMap<Key, Status> {
        self.lock().all.iter().map(|(key, link)| (key.clone(), link.status())).collect()
    }
}
