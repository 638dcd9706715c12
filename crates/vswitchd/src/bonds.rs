//! Bonds and LACP of the database's bridges: the crate `bond` with links, frames and a clock.
//!
//! One thread, which exists once there is a bond, runs the bonds when something is due, when a port's link changes and
//! when an LACPDU has come. It needs no lock of the control plane, so that a link that fails is replaced while a port
//! is being opened.
//!
//! - `commands`: `bond/*` and `lacp/*`; `rows`: what the database is told.
//!
//! Invariant: locks are taken in this order: the bonds', the OpenFlow switch's, the logic's ports'. A logic's thread
//! never takes the first, so that a logic may end while it is held.

mod commands;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bond::{Bond, Millis, View};
use control::desired::Desired;
use oflogic::OpenFlow;
use ovsdb::Uuid;
use packet::MacAddr;

pub(crate) use self::commands::add;
use crate::inbox::{Inbox, Received};
use crate::line_limit::LineLimit;
use crate::news::News;
use crate::plan::Plan;

/// The longest time for which the thread waits: a clock that was stopped or moved by hand wakes nobody.
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// Time between two portions of announcements, and their frames: the switch takes 256 at once.
const PORTION_WAIT: Duration = Duration::from_millis(10);
const PORTION: usize = 128;
/// Rounds of LACPDUs and answers in one step of the clock, and the time that a round may take.
const MOST_ROUNDS: usize = 4;
const ROUND_LIMIT: Duration = Duration::from_secs(1);
/// Longest wait for LACPDUs that bonds of this process have sent each other at the same time: short beside the time in
/// which a link's failure shows. A bond that takes one without the others sees, for a moment, members that lead to
/// different partners, and tells controllers of ports that go down and come back.
const GATHERING: Duration = Duration::from_millis(5);
/// Time between two looks whether they have arrived.
const LOOKS: Duration = Duration::from_micros(50);

/// The bonds of all bridges.
pub(crate) struct Bonds {
    desired: Arc<Desired>,
    bridges: Mutex<BTreeMap<String, BondedBridge>>,
    inbox: Arc<Inbox>,
    /// Interfaces whose rows tell of LACP; `None` before the first look.
    told: Mutex<Option<BTreeSet<Uuid>>>,
    news: News,
}

/// The bonds of a bridge.
struct BondedBridge {
    logic: Arc<OpenFlow>,
    bonds: BTreeMap<String, Numbered>,
    /// Views that packets meet.
    views: Vec<View>,
}

/// A bond with the number by which Open vSwitch's texts name it.
struct Numbered {
    number: u32,
    bond: Bond,
    /// What the database was told: the active member's address, and which partners are known.
    told: (MacAddr, Vec<bool>),
    /// Announcements that are still to be sent, with their ports.
    pending: Vec<(String, Vec<u8>)>,
    /// The log's lines about it, whose pace a partner may set.
    lines: LineLimit,
}

impl Numbered {
    fn log(&mut self, event: &str, now: Millis) {
        match self.lines.take(now) {
            Some(0) => tracing::info!("{event}"),
            Some(left_out) => {
                tracing::info!("{event}; {left_out} lines about bond {} were left out", self.bond.name());
            }
            None => {}
        }
    }
}

/// Milliseconds on OpenFlow's clock.
fn now() -> Millis {
    ofagent::clock::now() / 1_000_000
}

impl Bonds {
    pub(crate) fn new(desired: Arc<Desired>) -> Arc<Self> {
        Arc::new(Self {
            desired,
            bridges: Mutex::default(),
            inbox: Arc::default(),
            told: Mutex::default(),
            news: News::default(),
        })
    }

    fn bridges(&self) -> MutexGuard<'_, BTreeMap<String, BondedBridge>> {
        self.bridges.lock().unwrap_or_else(PoisonError::into_inner)
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
                    let bond = Bond::new(&planned.name, planned.settings.clone());
                    Numbered {
                        number,
                        bond,
                        told: Default::default(),
                        pending: Vec::new(),
                        lines: LineLimit::default(),
                    }
                });
                numbered.bond.configure(planned.settings.clone(), &planned.members, now());
            }
        }
        let any = !bridges.is_empty();
        drop(bridges);
        if any {
            if self.run() {
                self.settle(GATHERING);
            }
            self.start();
        }
    }

    /// Has a bridge's logic tell of LACPDUs and links.
    fn listen(&self, bridge: &str, logic: &OpenFlow) {
        let (inbox, name) = (self.inbox.clone(), bridge.to_owned());
        logic.set_pdu_sink(move |port, frame| inbox.leave(&name, port, frame));
        let inbox = self.inbox.clone();
        logic.set_port_watch(move || inbox.wake());
    }

    /// Starts the thread if it does not run, and has it look at what is due.
    fn start(self: &Arc<Self>) {
        let bonds = Arc::downgrade(self);
        self.inbox.start("bonds", move || follow(&bonds));
    }

    /// Does what is due. Returns whether frames were sent.
    fn run(&self) -> bool {
        let mut bridges = self.bridges();
        for Received { bridge, port, frame } in self.inbox.take() {
            let bonds = bridges.get_mut(&bridge).into_iter().flat_map(|bridge| bridge.bonds.values_mut());
            bonds.filter(|it| it.bond.has(&port)).for_each(|it| it.bond.receive(&port, &frame, now()));
        }
        let (mut any, mut is_change) = (false, false);
        for bridge in bridges.values_mut() {
            let (sent, changed) = bridge.run(now());
            any |= sent;
            is_change |= changed;
        }
        drop(bridges);
        if self.news.are_due(is_change) {
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
            self.settle(ROUND_LIMIT);
        }
    }

    /// Waits until the frames that were sent have been received within this process, but not beyond `limit`.
    fn settle(&self, limit: Duration) {
        let logics: Vec<_> = self.bridges().values().map(|bridge| bridge.logic.clone()).collect();
        let start = Instant::now();
        while !logics.iter().all(|logic| logic.is_settled()) && start.elapsed() < limit {
            // Workers and the logics' threads have no end to announce.
            std::thread::sleep(LOOKS);
        }
    }

    /// Returns how long nothing is due.
    fn wait(&self) -> Duration {
        let longest = self.news.wait(LONGEST_WAIT);
        let bridges = self.bridges();
        let bonds = || bridges.values().flat_map(|bridge| bridge.bonds.values());
        if bonds().any(|it| !it.pending.is_empty()) {
            return PORTION_WAIT;
        }
        let due = bonds().filter_map(|it| it.bond.next_due()).min();
        // A due time that has passed already waits for a clock that is stopped, or for another thread.
        let left = due.map(|due| Duration::from_millis(due.saturating_sub(now()).max(1)));
        left.map_or(longest, |left| left.min(longest))
    }
}

/// Looks after bonds as long as they exist.
fn follow(bonds: &Weak<Bonds>) {
    loop {
        let Some(bonds) = bonds.upgrade() else { return };
        if bonds.run() {
            bonds.settle(GATHERING);
        }
        let wait = bonds.wait();
        drop(bonds);
        std::thread::park_timeout(wait);
    }
}

impl BondedBridge {
    /// Does what is due. Returns whether LACPDUs were sent, and whether the database has to be told something.
    fn run(&mut self, now: Millis) -> (bool, bool) {
        let links = self.logic.links();
        let (mut frames, mut announced) = (Vec::new(), Vec::new());
        let mut is_news = false;
        for (name, it) in &mut self.bonds {
            let members: Vec<String> = it.bond.members().map(str::to_owned).collect();
            for member in members {
                let link = links.get(&member).copied().unwrap_or_default();
                it.bond.set_link(&member, link.is_up, MacAddr(link.address), now);
            }
            let outcome = it.bond.run(now);
            outcome.events.iter().for_each(|event| it.log(event, now));
            frames.extend(outcome.frames);
            if outcome.announce {
                announced.push(name.clone());
            }
            let told = (it.bond.active_address(), it.bond.known_partners());
            is_news |= it.told != told;
            it.told = told;
        }
        let views: Vec<View> = self.bonds.values().map(|it| it.bond.view()).collect();
        let is_same = views.len() == self.views.len()
            && views.iter().zip(&self.views).all(|(view, before)| view.is_equal(before));
        if !is_same {
            self.logic.set_bonds(views.clone());
            self.views = views;
        }
        let sent = frames.iter().filter(|(port, frame)| self.logic.send(port, frame)).count();
        // They leave through the members that packets take from now on; older ones say what is no longer so.
        for name in announced {
            if let Some(it) = self.bonds.get_mut(&name) {
                it.pending = self.logic.announcements(&name);
            }
        }
        for it in self.bonds.values_mut() {
            let portion = it.pending.len().min(PORTION);
            for (port, frame) in it.pending.drain(..portion) {
                // Without room in the switch's queue the peer learns from the station's next packet.
                let _ = self.logic.send(&port, &frame);
            }
        }
        (sent > 0, is_news)
    }
}
