//! Spanning trees of the database's bridges: the crate `spanning-tree` with links, frames and a clock.
//!
//! One thread, which exists once there is a spanning tree, runs all of them when something is due, when a port's link
//! changes and when a BPDU has come. It needs no lock of the control plane, so that a link that fails is replaced while
//! a port is being opened.
//!
//! - `commands`: `stp/*` and `rstp/*`; `rows`: what the database is told.
//!
//! Invariants:
//! - Packets meet the states of ports before neighbours are told of them.
//! - Locks are taken in this order: the trees', the OpenFlow switch's, the logic's ports'. A logic's thread never takes
//!   the first, so that a logic may end while it is held.

mod commands;
mod rows;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use control::desired::Desired;
use oflogic::{OpenFlow, TreeView};
use ovsdb::Uuid;
use packet::MacAddr;
use spanning_tree::{Bridge, Flush, Millis, Protocol, rstp, stp};

pub(crate) use self::commands::add;
use self::rows::Told;
use crate::inbox::{Inbox, Received};
use crate::news::News;
use crate::plan::{Plan, PlannedTree, TreeSettings, tree_numbers};

/// The module of messages about states of ports, after that of Open vSwitch.
const OFPROTO_DPIF: &str = "ofproto_dpif";
/// The longest time for which the thread waits: a clock that was stopped or moved by hand wakes nobody.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// Rounds of BPDUs and answers in one step of the clock, and the time that a round may take.
const MOST_ROUNDS: usize = 16;
const ROUND_LIMIT: Duration = Duration::from_secs(1);

/// The spanning trees of all bridges. See the module.
pub(crate) struct Trees {
    desired: Arc<Desired>,
    bridges: Mutex<BTreeMap<String, Running>>,
    inbox: Arc<Inbox>,
    told: Mutex<Told>,
    news: News,
}

/// A bridge that takes part in a spanning tree.
struct Running {
    logic: Arc<OpenFlow>,
    tree: Bridge,
    ports: BTreeMap<String, RunningPort>,
    /// The states that packets meet.
    view: Option<TreeView>,
}

/// A port that takes part.
struct RunningPort {
    /// The row of the table `Port`.
    uuid: Uuid,
    number: u8,
    /// Its state's name, and the time since which it has it.
    state: &'static str,
    since: Millis,
    other_config: BTreeMap<String, String>,
    /// The speed by which its cost was chosen, Mbit/s.
    speed: u64,
}

/// Milliseconds on OpenFlow's clock.
fn now() -> Millis {
    ofagent::clock::now() / 1_000_000
}

/// Logs a change of a port's state.
fn log_state(protocol: Protocol, port: &str, before: &str, state: &str) {
    let name = if protocol == Protocol::Stp { "STP" } else { "RSTP" };
    tracing::debug!(target: OFPROTO_DPIF, "port {port}: {name} state changed from {before} to {state}");
}

/// The state of a port that takes no part.
fn no_state(protocol: Protocol) -> &'static str {
    if protocol == Protocol::Stp { "disabled" } else { "Disabled" }
}

impl Trees {
    pub(crate) fn new(desired: Arc<Desired>) -> Arc<Self> {
        Arc::new(Self {
            desired,
            bridges: Mutex::default(),
            inbox: Arc::default(),
            told: Mutex::default(),
            news: News::default(),
        })
    }

    fn bridges(&self) -> MutexGuard<'_, BTreeMap<String, Running>> {
        self.bridges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a plan whose bridges and ports have been applied. Returns once packets meet its trees.
    pub(crate) fn configure(self: &Arc<Self>, plan: &Plan) {
        let wanted = plan.bridges.iter().filter(|bridge| bridge.error.is_none()).filter_map(|bridge| {
            let tree = bridge.tree.as_ref()?;
            let logic = self.desired.state().flow_logic(&bridge.name)?;
            Some((bridge.name.as_str(), (logic, tree)))
        });
        let wanted: BTreeMap<_, _> = wanted.collect();
        let mut bridges = self.bridges();
        bridges.retain(|name, running| {
            let stays = wanted.get(name.as_str()).is_some_and(|(logic, tree)| {
                Arc::ptr_eq(logic, &running.logic) && running.tree.protocol() == tree.settings.protocol()
            });
            if !stays {
                running.end();
            }
            stays
        });
        for (name, (logic, tree)) in wanted {
            let running = bridges.entry(name.to_owned()).or_insert_with(|| {
                self.listen(name, &logic);
                Running::new(logic, tree)
            });
            running.configure(tree);
        }
        let any = !bridges.is_empty();
        drop(bridges);
        if any {
            self.run();
            self.start();
        }
    }

    /// Has a bridge's logic tell of BPDUs and links.
    fn listen(&self, bridge: &str, logic: &OpenFlow) {
        let (inbox, name) = (self.inbox.clone(), bridge.to_owned());
        logic.set_bpdu_sink(move |port, frame| inbox.leave(&name, port, frame));
        let inbox = self.inbox.clone();
        logic.set_tree_watch(move || inbox.wake());
    }

    /// Starts the thread if it does not run, and has it look at what is due.
    fn start(self: &Arc<Self>) {
        let trees = Arc::downgrade(self);
        self.inbox.start("spanning trees", move || follow(&trees));
    }

    /// Does what is due. Returns whether frames were sent.
    fn run(&self) -> bool {
        let mut bridges = self.bridges();
        for Received { bridge, port, frame } in self.inbox.take() {
            let Some(running) = bridges.get_mut(&bridge) else { continue };
            let Some(number) = running.ports.get(&port).map(|port| port.number) else { continue };
            if let Err(error) = running.tree.receive(number, &frame, now()) {
                tracing::debug!(bridge, port, "a BPDU is ignored: {error}");
            }
        }
        let (mut any, mut is_change) = (false, false);
        for running in bridges.values_mut() {
            let (sent, changed) = running.run(now());
            any |= sent;
            is_change |= changed;
        }
        drop(bridges);
        if self.news.are_due(is_change) {
            self.desired.state().note_change();
        }
        any
    }

    /// Does what is due after the clock was moved by hand, answers to BPDUs included.
    pub(crate) fn step(&self) {
        for _ in 0..MOST_ROUNDS {
            if self.bridges().is_empty() || !self.run() {
                break;
            }
            self.desired.state().settle(ROUND_LIMIT);
        }
    }

    /// Returns how long nothing is due.
    fn wait(&self) -> Duration {
        let longest = self.news.wait(LONGEST_WAIT);
        let due = self.bridges().values().filter_map(|running| running.tree.next_due()).min();
        // A due time that has passed already waits for a clock that is stopped, or for another thread.
        let left = due.map(|due| Duration::from_millis(due.saturating_sub(now()).max(1)));
        left.map_or(longest, |left| left.min(longest))
    }
}

/// Looks after spanning trees as long as they exist.
fn follow(trees: &Weak<Trees>) {
    loop {
        let Some(trees) = trees.upgrade() else { return };
        trees.run();
        let wait = trees.wait();
        drop(trees);
        std::thread::park_timeout(wait);
    }
}

impl Running {
    fn new(logic: Arc<OpenFlow>, tree: &PlannedTree) -> Self {
        let tree = match &tree.settings {
            TreeSettings::Stp(settings) => Bridge::Stp(stp::Bridge::new(settings.clone(), now())),
            TreeSettings::Rstp(settings) => Bridge::Rstp(rstp::Bridge::new(settings.clone(), now())),
        };
        Self { logic, tree, ports: BTreeMap::new(), view: None }
    }

    /// Ends the tree: all ports forward.
    fn end(&mut self) {
        let protocol = self.tree.protocol();
        self.logic.set_tree(None);
        for (name, port) in &self.ports {
            log_state(protocol, name, port.state, no_state(protocol));
        }
    }

    /// Follows the settings.
    fn configure(&mut self, wanted: &PlannedTree) {
        let protocol = self.tree.protocol();
        let before = self.ports.iter().map(|(name, port)| (name.clone(), port.number)).collect();
        let numbers = tree_numbers(&wanted.ports, &before);
        self.ports.retain(|name, port| {
            let stays = numbers.contains_key(name);
            if !stays {
                log_state(protocol, name, port.state, no_state(protocol));
            }
            stays
        });
        for planned in &wanted.ports {
            let Some(number) = numbers.get(&planned.name) else { continue };
            let port = self.ports.entry(planned.name.clone()).or_insert_with(|| RunningPort {
                uuid: planned.uuid,
                number: *number,
                state: no_state(protocol),
                since: now(),
                other_config: BTreeMap::new(),
                speed: 0,
            });
            (port.uuid, port.number) = (planned.uuid, *number);
            port.other_config.clone_from(&planned.other_config);
        }
        let links = self.logic.links();
        for (name, port) in &mut self.ports {
            port.speed = links.get(name).map_or(0, |link| u64::from(link.speed) / 1000);
        }
        self.apply(&wanted.settings);
    }

    /// Passes the settings of the bridge and its ports to the protocol.
    fn apply(&mut self, settings: &TreeSettings) {
        let ports = self.ports.iter();
        match (&mut self.tree, settings) {
            (Bridge::Stp(tree), TreeSettings::Stp(settings)) => {
                let of = |name: &str, port: &RunningPort| {
                    stp::PortSettings::read(name, &port.other_config, port.speed).0
                };
                let ports = ports.map(|(name, port)| (port.number, of(name, port)));
                tree.configure(settings.clone(), ports.collect(), now());
            }
            (Bridge::Rstp(tree), TreeSettings::Rstp(settings)) => {
                let of = |name: &str, port: &RunningPort| {
                    rstp::PortSettings::read(name, &port.other_config, port.speed).0
                };
                let ports = ports.map(|(name, port)| (port.number, of(name, port)));
                tree.configure(settings.clone(), ports.collect(), now());
            }
            // A bridge whose protocol changes is made anew.
            (Bridge::Stp(_), TreeSettings::Rstp(_)) | (Bridge::Rstp(_), TreeSettings::Stp(_)) => {}
        }
    }

    /// The name of a port's state.
    fn state_name(&self, number: u8) -> &'static str {
        match &self.tree {
            Bridge::Stp(tree) => tree.port_status(number).map(|port| port.state_name),
            Bridge::Rstp(tree) => tree.port_status(number).map(|port| port.state.name()),
        }
        .unwrap_or(no_state(self.tree.protocol()))
    }

    /// Does what is due. Returns whether BPDUs were sent, and whether the database has to be told something.
    fn run(&mut self, now: Millis) -> (bool, bool) {
        let links = self.logic.links();
        for (name, port) in &self.ports {
            let link = links.get(name).copied().unwrap_or_default();
            self.tree.set_link(port.number, link.is_up, MacAddr(link.address), now);
        }
        let outcome = self.tree.run(now);
        let states = self.ports.iter().map(|(name, port)| (name.clone(), self.tree.state(port.number)));
        let view = TreeView { protocol: self.tree.protocol(), ports: states.collect() };
        let is_change = self.view.as_ref() != Some(&view);
        if is_change {
            self.logic.set_tree(Some(view.clone()));
            self.view = Some(view);
        }
        let names: Vec<_> = self.ports.values().map(|port| self.state_name(port.number)).collect();
        for ((name, port), state) in self.ports.iter_mut().zip(names) {
            if port.state != state {
                log_state(self.tree.protocol(), name, port.state, state);
                (port.state, port.since) = (state, now);
            }
        }
        match &outcome.flush {
            Flush::Nothing => {}
            Flush::All => self.logic.forget_stations(None),
            Flush::Ports(numbers) => {
                let ports = self.ports.iter().filter(|(_, port)| numbers.contains(&port.number));
                ports.for_each(|(name, _)| self.logic.forget_stations(Some(name)));
            }
        }
        let named = |number: u8| self.ports.iter().find(|(_, port)| port.number == number);
        let mut sent = false;
        for (number, frame) in &outcome.frames {
            // A queue that is full loses the frame, as the link may.
            sent |= named(*number).is_some_and(|(name, _)| self.logic.send(name, frame));
        }
        (sent, is_change)
    }
}
