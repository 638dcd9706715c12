//! The logic as the fabric and the control plane see it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::JoinHandle;

use arc_swap::{ArcSwap, ArcSwapOption};
use bond::View;
use fabric::doorbell::{Doorbell, ThreadBell};
use fabric::switch::PortSnapshot;
use fabric::worker::{MAX_WORKERS, PerThread, Threads};
use fabric::{Batch, Injection, Injector, PortIndex, PortSettings, SwitchLogic};
use logic::{Counter, Learning, Logic, LogicError, SnoopingSettings, State, Table, TableSize, Views};
use match_action::Compiled;
use ofagent::SharedSwitch;
use ofswitch::{Limit, Settings, Switch};
use openflow::PortNo;

use crate::intercept::{Selector, Sink};
use crate::plane::{Local, Plane};
use crate::ports::{Link, NumberedPort, PortFacts, PortMap};
use crate::program::TABLES;
use crate::samples::Sampler;
use crate::shared::{Core, Following, PduSink, PortWatch, Statistics};
use crate::tree::TreeView;
use crate::{bonds, explain, show};

/// Reasons why the logic cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its thread does not start.
    #[error("the thread for controllers' packets does not start: {0}")]
    Thread(#[from] std::io::Error),
    /// Its learning bridge cannot be made.
    #[error(transparent)]
    Learning(#[from] LogicError),
}

/// The logic `openflow`. See the crate's documentation.
pub struct OpenFlow {
    core: Arc<Core>,
    switch: Arc<SharedSwitch>,
    seed: u64,
    thread: Option<JoinHandle<()>>,
}

/// The machine code that a logic has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Code {
    /// A thread specialises it.
    Tended,
    /// Ticks specialise it.
    Untended,
    Nothing,
}

impl OpenFlow {
    /// Makes the logic, without ports and flows.
    ///
    /// # Errors
    /// Its thread does not start.
    pub fn new(settings: Settings) -> Result<Arc<Self>, StartError> {
        Self::make(settings, Code::Tended, None)
    }

    /// Makes the logic with memory for so many stations, if that is more than by default; see
    /// [`OpenFlow::set_stations`].
    ///
    /// # Errors
    /// As [`OpenFlow::new`].
    pub fn with_stations(settings: Settings, stations: Option<u32>) -> Result<Arc<Self>, StartError> {
        Self::make(settings, Code::Tended, stations)
    }

    /// Makes the logic without the thread that specialises code, which [`Logic::tick`] alone does. For comparisons.
    ///
    /// # Errors
    /// As [`OpenFlow::new`].
    pub fn untended(settings: Settings) -> Result<Arc<Self>, StartError> {
        Self::make(settings, Code::Untended, None)
    }

    /// Makes the logic without machine code: the reference interpreter runs the tables, slowly. For comparisons.
    ///
    /// # Errors
    /// As [`OpenFlow::new`].
    pub fn interpreted(settings: Settings) -> Result<Arc<Self>, StartError> {
        Self::make(settings, Code::Nothing, None)
    }

    fn make(settings: Settings, code: Code, stations: Option<u32>) -> Result<Arc<Self>, StartError> {
        let seed = settings.seed;
        let compiled = match code {
            Code::Tended => Compiled::tended(TABLES)?,
            Code::Untended => Compiled::untended(TABLES),
            Code::Nothing => Compiled::none(TABLES),
        };
        let plane = Plane {
            ports: Arc::new(ArcSwap::from_pointee(PortMap::default())),
            compiled,
            flags: AtomicU64::new(0),
            standalone: AtomicBool::new(false),
            intercepts: AtomicBool::new(false),
            restricts_all: AtomicBool::new(false),
            only_normal: Arc::default(),
            learning: Learning::with_room(stations)?,
            sampler: ArcSwapOption::empty(),
            locals: PerThread::default(),
            bell: Doorbell::new(ThreadBell::new()),
        };
        let core = Arc::new(Core::new(plane));
        let executor = core.clone();
        let switch = SharedSwitch::new(Switch::new(settings), move |effects| executor.execute(effects));
        switch.with(|switch, _| Following::start(core.clone(), switch));
        let thread = std::thread::Builder::new().name("openflow".into()).spawn({
            let (core, switch) = (core.clone(), switch.clone());
            move || run(&core, &switch)
        })?;
        Ok(Arc::new(Self { core, switch, seed, thread: Some(thread) }))
    }

    /// The OpenFlow switch, for an [`ofagent::Agent`] and for commands.
    pub fn switch(&self) -> &Arc<SharedSwitch> {
        &self.switch
    }

    /// Sets how packets of controllers reach ports: the bridge's injector ([`fabric::Switch::injector`]).
    pub fn set_injector(&self, injector: Injector) {
        self.core.injector.store(Some(Arc::new(injector)));
    }

    /// Sets how `NORMAL` learns: seconds after which a silent station is forgotten (0: never), and snooping of groups.
    ///
    /// # Errors
    /// The thread of the groups does not start.
    pub fn set_learning(&self, ageing: u32, snooping: Option<SnoopingSettings>) -> Result<(), String> {
        self.core.plane.learning.set_ageing(ageing);
        self.core.plane.learning.set_snooping(snooping)
    }

    /// Sets the largest number of stations that `NORMAL` knows, all of which may be at one port; `None`: the default of
    /// the logic `learning`, and its share of a port. Returns the number in effect, which the memory of the table
    /// bounds.
    pub fn set_stations(&self, stations: Option<u32>) -> u32 {
        self.core.plane.learning.limit_stations(stations)
    }

    /// Makes the bridge forward like a learning switch, past its flows (fail mode `standalone`), or no more.
    pub fn set_standalone(&self, standalone: bool) {
        self.core.plane.standalone.store(standalone, Relaxed);
    }

    /// Whether the bridge forwards like a learning switch.
    pub fn is_standalone(&self) -> bool {
        self.core.plane.standalone.load(Relaxed)
    }

    /// Passes the control plane's facts about ports. To be called whenever links or addresses change, and after ports
    /// were added or removed: a port takes part, and has a number, once its facts are known. Ports that are not named
    /// keep theirs. Facts that are passed before a bridge has the logic hold from its first packet on. On return
    /// controllers have been told.
    pub fn set_ports(&self, facts: &[PortFacts]) {
        self.core.change_ports(|ports| ports.set_facts(facts));
        self.core.tell(&self.switch);
    }

    /// Forgets a port that is about to be removed. On return controllers have been told.
    pub fn forget_port(&self, index: PortIndex) {
        self.core.change_ports(|ports| ports.remove(index));
        self.core.tell(&self.switch);
    }

    /// Sets where statistics of ports come from. It is called when a controller asks, under the switch's lock: it must
    /// not use [`OpenFlow::switch`], nor wait for the fabric's lock ([`fabric::Switch::try_counters`] does not).
    /// Without statistics the controller gets those of the last call.
    pub fn set_statistics(&self, source: impl Fn(PortIndex) -> Option<PortSnapshot> + Send + Sync + 'static) {
        self.core.statistics.store(Some(Arc::new(Box::new(source) as Statistics)));
    }

    /// Sets the frames that the control plane takes from ports ahead of the tables, in place of those before. Ports
    /// that the bridge does not have are ignored; a port that is removed loses its own.
    pub fn intercept(&self, selected: BTreeMap<PortIndex, Vec<Selector>>) {
        let selected = selected.into_iter().map(|(port, what)| (port, what.into())).collect();
        let mut ports = self.core.ports();
        ports.select(selected);
        self.core.publish(&mut ports);
    }

    /// Sets where such frames go, with the port that received them. It is called on the logic's thread, without locks.
    pub fn set_sink(&self, sink: impl Fn(PortIndex, &[u8]) + Send + Sync + 'static) {
        self.core.sink.store(Some(Arc::new(Box::new(sink) as Sink)));
    }

    /// Sets the bonds, in place of all before. Ports that their facts put into a bond ([`PortFacts::bond`]) carry
    /// nothing for `NORMAL` as long as the bond is not among them. On return packets meet them, and controllers have
    /// been told.
    pub fn set_bonds(&self, bonds: Vec<View>) {
        self.core.change_ports(|ports| ports.set_bonds(bonds));
        self.core.tell(&self.switch);
    }

    /// Sets who receives frames of Slow Protocols from ports of bonds that speak LACP, with the port's name. It is
    /// called on the logic's thread and delays packets for controllers.
    pub fn set_pdu_sink(&self, sink: impl Fn(&str, &[u8]) + Send + Sync + 'static) {
        self.core.pdus.store(Some(Arc::new(Box::new(sink) as PduSink)));
    }

    /// Sets the states of ports in the bridge's spanning tree, in place of all before; `None`: there is none. Ports
    /// that their facts put into the tree ([`PortFacts::in_tree`]) are blocked as long as it does not tell their state.
    /// On return packets meet it, and controllers have been told.
    pub fn set_tree(&self, tree: Option<TreeView>) {
        self.core.change_ports(|ports| ports.set_tree(tree));
        self.core.tell(&self.switch);
    }

    /// Sets who receives BPDUs of ports in the spanning tree, with the port's name. As [`OpenFlow::set_pdu_sink`].
    pub fn set_bpdu_sink(&self, sink: impl Fn(&str, &[u8]) + Send + Sync + 'static) {
        self.core.bpdus.store(Some(Arc::new(Box::new(sink) as PduSink)));
    }

    /// Sets what is called after ports have come, gone or changed, beside that of [`OpenFlow::set_port_watch`]. It must
    /// not wait.
    pub fn set_tree_watch(&self, watch: impl Fn() + Send + Sync + 'static) {
        self.core.tree_watch.store(Some(Arc::new(Box::new(watch) as PortWatch)));
    }

    /// Forgets the stations that were learned at a port, or all, and with them the members of groups.
    pub fn forget_stations(&self, port: Option<&str>) {
        let index = match port {
            None => None,
            Some(name) => match self.core.ports().named(name) {
                Some(index) => Some(index),
                None => return,
            },
        };
        let views = self.views();
        views.stations.into_iter().for_each(|table| _ = table.flush(index, true));
        views.groups.into_iter().for_each(|table| table.flush());
    }

    /// Sets who takes packets that `sample` actions choose, and tells of IPFIX; `None`: nobody.
    pub fn set_sampler(&self, sampler: Option<Box<dyn Sampler>>) {
        self.core.plane.sampler.store(sampler.map(Arc::new));
        // A worker that comes meanwhile finds the sampler, or is found here.
        let workers = self.core.plane.locals.iter().filter(|(number, _)| *number < MAX_WORKERS).count();
        if let Some(sampler) = &*self.core.plane.sampler.load() {
            sampler.prepare(Threads::of(workers));
        }
    }

    /// Sets what is called after ports have come, gone or changed. It must not wait.
    pub fn set_port_watch(&self, watch: impl Fn() + Send + Sync + 'static) {
        self.core.watch.store(Some(Arc::new(Box::new(watch) as PortWatch)));
    }

    /// Returns the link of each port, by name.
    pub fn links(&self) -> BTreeMap<String, Link> {
        self.core.ports().links()
    }

    /// Sends a frame through a port, past flows and VLANs; false if it could not be queued.
    pub fn send(&self, port: &str, frame: &[u8]) -> bool {
        let index = self.core.ports().named(port);
        index.is_some_and(|index| self.core.inject(frame, 0, Injection::To(vec![index])))
    }

    /// Returns frames that announce the stations outside a bond to the bond's peer, which may have learned them at
    /// another member; each with the port that sends it.
    pub fn announcements(&self, bond: &str) -> Vec<(String, Vec<u8>)> {
        let stations = self.views().stations.map(|table| table.entries()).unwrap_or_default();
        let (map, ports) = (self.core.plane.ports.load(), self.core.ports());
        let Some((bonds, number)) = map.bonds().and_then(|bonds| Some((bonds, bonds.number(bond)?))) else {
            return Vec::new();
        };
        let outside =
            stations.into_iter().filter(|it| bonds.member(it.port).is_none_or(|it| it.bond != number));
        let frames = outside.filter_map(|station| {
            let frame = bonds::announcement(station.mac, None);
            let port = bonds.choose(number, &frame, station.vid, frame.len() as u32, false)?;
            let frame = match ports.tag(port, station.vid)? {
                None => frame,
                tag => bonds::announcement(station.mac, tag),
            };
            Some((ports.name(port)?.to_owned(), frame))
        });
        frames.collect()
    }

    /// Whether no packet of the control side is on its way, and no received one is on its way to the control side.
    pub fn is_settled(&self) -> bool {
        self.core.is_settled()
    }

    /// Limits of what controllers and packets for them may cost, with their use; those of connections are the agent's.
    pub fn limits(&self) -> Vec<Limit> {
        let mut limits = self.switch.with(|switch, _| switch.limits());
        limits.extend(show::limits(&self.core));
        limits
    }

    /// The ports with their numbers.
    pub fn ports(&self) -> Vec<NumberedPort> {
        self.core.ports().numbered()
    }

    /// The port with a number.
    pub fn port(&self, number: PortNo) -> Option<PortIndex> {
        self.core.plane.ports.load().index(number.0)
    }
}

/// The logic's thread: packets for controllers, learned flows, changes of ports.
fn run(core: &Core, switch: &SharedSwitch) {
    while !core.is_ending.load(Acquire) {
        if !core.work(switch) {
            core.plane.bell.wait();
        }
    }
}

impl Drop for OpenFlow {
    fn drop(&mut self) {
        self.core.is_ending.store(true, Release);
        self.core.plane.bell.ring();
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has ended, too.
            let _ = thread.join();
        }
    }
}

impl SwitchLogic for OpenFlow {
    fn forward(&self, batch: &mut Batch<'_>) {
        self.core.plane.forward(batch, &self.switch);
    }

    fn explain(&self, batch: &mut Batch<'_>) -> bool {
        explain::explain(&self.core.plane, &self.switch, batch)
    }

    fn prepare(&self, threads: Threads) -> Result<(), String> {
        // Different workers draw different numbers.
        let plane = &self.core.plane;
        let local = |number| Ok(Local::new(plane, number, self.seed.wrapping_add(number as u64)));
        plane.locals.prepare::<String>(threads, local)?;
        if let Some(sampler) = &*plane.sampler.load() {
            sampler.prepare(threads);
        }
        plane.learning.prepare(threads)
    }

    fn ports_changed(&self, ports: &[(PortIndex, Arc<PortSettings>)]) {
        self.core.plane.learning.ports_changed(ports);
        self.core.change_ports(|known| known.set_existing(ports));
    }

    fn port_down(&self, port: PortIndex) {
        // The other members of a bond lead to its stations, too.
        if !self.core.plane.ports.load().is_bonded(port) {
            self.core.plane.learning.port_down(port);
        }
        self.core.change_ports(|ports| ports.link_lost(port));
    }

    fn port_removed(&self, port: PortIndex) {
        self.core.plane.learning.port_removed(port);
        self.core.change_ports(|ports| ports.remove(port));
    }
}

impl Logic for OpenFlow {
    fn name(&self) -> &str {
        "openflow"
    }

    fn params(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// The stations of its learning bridge.
    fn views(&self) -> Views<'_> {
        self.core.plane.learning.views()
    }

    fn counters(&self) -> Vec<Counter> {
        show::counters(&self.core)
    }

    fn tables(&self) -> Vec<Table> {
        vec![show::tables(&self.core, &self.switch), show::code(&self.core)]
    }

    fn table_sizes(&self) -> Vec<TableSize> {
        show::sizes(&self.switch)
    }

    fn hand_over(&self) -> Vec<State> {
        self.core.plane.learning.hand_over()
    }

    fn take_over(&self, states: &[State]) {
        self.core.plane.learning.take_over(states);
    }

    fn not_taken_over(&self, states: &[State]) -> Vec<String> {
        self.core.plane.learning.not_taken_over(states)
    }

    fn has_table(&self, name: &str) -> bool {
        self.core.plane.learning.has_table(name)
    }

    fn tick(&self, now_seconds: u32) {
        self.core.plane.learning.tick(now_seconds);
        self.core.plane.compiled.tidy();
    }
}
