//! Bonds and LACP of the database's bridges: the crate `bond` with links, frames and a clock.
//!
//! One thread, which exists once there is a bond, runs the bonds when something is due, when a port's link changes and
//! when an LACPDU has come. It needs no lock of the control plane, so that a link that fails is replaced while a port is
//! being opened.
//!
//! - `commands`: `bond/*` and `lacp/*`; `rows`: what the database is told.
//!
//! Invariant: locks are taken in this order: the bonds', the OpenFlow switch's, the logic's ports'. A logic's thread holds
//! none of them when it passes an LACPDU.

mod commands;
mod rows;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

use bond::{Bond, Millis, View};
use control::desired::Desired;
use oflogic::OpenFlow;
use packet::MacAddr;

pub(crate) use self::commands::add;
pub(crate) use self::rows::write;
use crate::plan::Plan;

/// The longest time for which the thread waits: a clock that was stopped or moved by hand wakes nobody.
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// Time between two portions of announcements, and their frames: the switch takes 256 at once.
const PORTION_WAIT: Duration = Duration::from_millis(10);
const PORTION: usize = 128;
/// Rounds of LACPDUs and answers in one step of the clock, and the time that a round may take.
const MOST_ROUNDS: usize = 4;
const ROUND_LIMIT: Duration = Duration::from_secs(1);

/// The bonds of all bridges.
pub(crate) struct Bonds {
    desired: Arc<Desired>,
    bridges: Mutex<BTreeMap<String, BondedBridge>>,
    thread: OnceLock<Thread>,
}

/// The bonds of a bridge.
struct BondedBridge {
    logic: Arc<OpenFlow>,
    bonds: BTreeMap<String, Numbered>,
    /// Views that packets meet.
    views: Vec<View>,
    /// Announcements that are still to be sent, with their ports.
    pending: Vec<(String, Vec<u8>)>,
}

/// A bond with the number by which Open vSwitch's texts name it.
struct Numbered {
    number: u32,
    bond: Bond,
}

/// Milliseconds on OpenFlow's clock.
fn now() -> Millis {
    ofagent::clock::now() / 1_000_000
}

impl Bonds {
    pub(crate) fn new(desired: Arc<Desired>) -> Arc<Self> {
        Arc::new(Self { desired, bridges: Mutex::default(), thread: OnceLock::new() })
    }

    fn bridges(&self) -> MutexGuard<'_, BTreeMap<String, BondedBridge>> {
        self.bridges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Follows a plan whose bridges and ports have been applied. Returns once packets meet its bonds.
    pub(crate) fn configure(self: &Arc<Self>, plan: &Plan) {
        let wanted = plan.bridges.iter().filter(|bridge| !bridge.bonds.is_empty());
        let wanted: BTreeMap<_, _> = wanted
            .filter_map(|bridge| {
                let logic = self.desired.state().flow_logic(&bridge.name)?;
                Some((bridge.name.as_str(), (logic, &bridge.bonds)))
            })
            .collect();
        let mut bridges = self.bridges();
        bridges.retain(|name, bridge| {
            let stays = wanted.contains_key(name.as_str());
            if !stays {
                bridge.logic.set_bonds(Vec::new());
            }
            stays
        });
        let mut numbers: Vec<u32> =
            bridges.values().flat_map(|bridge| bridge.bonds.values()).map(|it| it.number).collect();
        for (name, (logic, bonds)) in wanted {
            let bridge = bridges.entry(name.to_owned()).or_insert_with(|| BondedBridge {
                logic: logic.clone(),
                bonds: BTreeMap::new(),
                views: Vec::new(),
                pending: Vec::new(),
            });
            if bridge.views.is_empty() || !Arc::ptr_eq(&bridge.logic, &logic) {
                (bridge.logic, bridge.views) = (logic, Vec::new());
                self.listen(name, &bridge.logic);
            }
            bridge.bonds.retain(|name, _| bonds.iter().any(|bond| bond.name == *name));
            for planned in bonds {
                let numbered = bridge.bonds.entry(planned.name.clone()).or_insert_with(|| {
                    let number = (1..).find(|number| !numbers.contains(number)).unwrap_or_default();
                    numbers.push(number);
                    Numbered { number, bond: Bond::new(&planned.name, planned.settings.clone()) }
                });
                numbered.bond.configure(planned.settings.clone(), &planned.members, now());
            }
        }
        let any = !bridges.is_empty();
        drop(bridges);
        if any {
            self.run();
            self.start();
        }
    }

    /// Has a bridge's logic tell of LACPDUs and links.
    fn listen(self: &Arc<Self>, bridge: &str, logic: &OpenFlow) {
        let (bonds, name) = (Arc::downgrade(self), bridge.to_owned());
        logic.set_pdu_sink(move |port, frame| {
            if let Some(bonds) = bonds.upgrade() {
                bonds.receive(&name, port, frame);
            }
        });
        let bonds = Arc::downgrade(self);
        logic.set_port_watch(move || {
            if let Some(bonds) = bonds.upgrade() {
                bonds.wake();
            }
        });
    }

    /// Takes a frame of Slow Protocols.
    fn receive(&self, bridge: &str, port: &str, frame: &[u8]) {
        let mut bridges = self.bridges();
        let bonds = bridges.get_mut(bridge).into_iter().flat_map(|bridge| bridge.bonds.values_mut());
        for Numbered { bond, .. } in bonds {
            if bond.members().any(|member| member == port) {
                bond.receive(port, frame, now());
            }
        }
        drop(bridges);
        self.wake();
    }

    /// Starts the thread if it does not run.
    fn start(self: &Arc<Self>) {
        if self.thread.get().is_some() {
            return;
        }
        let bonds = Arc::downgrade(self);
        let started = std::thread::Builder::new().name("bonds".into()).spawn(move || follow(&bonds));
        match started {
            // A second one that another thread has started meanwhile does nothing but look.
            Ok(thread) => _ = self.thread.set(thread.thread().clone()),
            Err(error) => tracing::error!("bonds are not looked after: {error}"),
        }
    }

    /// Does what is due. Returns whether frames were sent.
    fn run(&self) -> bool {
        let mut bridges = self.bridges();
        let (mut any, mut is_change) = (false, false);
        for bridge in bridges.values_mut() {
            let (sent, changed) = bridge.run(now());
            any |= sent;
            is_change |= changed;
        }
        drop(bridges);
        if is_change {
            self.desired.state().note_change();
        }
        any
    }

    /// Does what is due after the clock was moved by hand, answers to LACPDUs included.
    pub(crate) fn step(&self) {
        for _ in 0..MOST_ROUNDS {
            if !self.run() {
                break;
            }
            self.settle();
        }
    }

    /// Waits until the frames that were sent have been received within this process.
    fn settle(&self) {
        let logics: Vec<_> = self.bridges().values().map(|bridge| bridge.logic.clone()).collect();
        let start = Instant::now();
        while !logics.iter().all(|logic| logic.is_settled()) && start.elapsed() < ROUND_LIMIT {
            // Workers and the logics' threads have no end to announce.
            std::thread::yield_now();
        }
    }

    /// Returns how long nothing is due.
    fn wait(&self) -> Duration {
        let bridges = self.bridges();
        if bridges.values().any(|bridge| !bridge.pending.is_empty()) {
            return PORTION_WAIT;
        }
        let bonds = bridges.values().flat_map(|bridge| bridge.bonds.values());
        let due = bonds.filter_map(|it| it.bond.next_due()).min();
        // A due time that has passed already waits for a clock that is stopped, or for another thread.
        let left = due.map(|due| Duration::from_millis(due.saturating_sub(now()).max(1)));
        left.map_or(LONGEST_WAIT, |left| left.min(LONGEST_WAIT))
    }
}

/// Looks after bonds as long as they exist.
fn follow(bonds: &Weak<Bonds>) {
    loop {
        let Some(bonds) = bonds.upgrade() else { return };
        bonds.run();
        let wait = bonds.wait();
        drop(bonds);
        std::thread::park_timeout(wait);
    }
}

impl BondedBridge {
    /// Does what is due. Returns whether frames were sent, and whether the database has to be told something.
    fn run(&mut self, now: Millis) -> (bool, bool) {
        let links = self.logic.links();
        let mut frames = Vec::new();
        for (name, Numbered { bond, .. }) in &mut self.bonds {
            let members: Vec<String> = bond.members().map(str::to_owned).collect();
            for member in members {
                let (address, up) = links.get(&member).copied().unwrap_or_default();
                bond.set_link(&member, up, MacAddr(address), now);
            }
            let outcome = bond.run(now);
            outcome.events.iter().for_each(|event| tracing::info!("{event}"));
            frames.extend(outcome.frames);
            if outcome.announce {
                // Older announcements of the bridge say the same, or what is no longer so.
                self.pending = self.logic.announcements(name);
            }
        }
        let views: Vec<View> = self.bonds.values().map(|it| it.bond.view()).collect();
        let is_same = views.len() == self.views.len()
            && views.iter().zip(&self.views).all(|(view, before)| view.is_equal(before));
        if !is_same {
            self.logic.set_bonds(views.clone());
            self.views = views;
        }
        let portion = self.pending.len().min(PORTION);
        let announcements = self.pending.drain(..portion);
        let sent =
            frames.into_iter().chain(announcements).filter(|(port, frame)| self.logic.send(port, frame));
        (sent.count() > 0, !is_same)
    }
}
