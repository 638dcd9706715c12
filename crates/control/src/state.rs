//! The running bridges and ports: names for the indexes of the fabric, and the client side of each port.
//!
//! [`crate::desired`] holds the desired configuration; this module holds the running state, and the steps by which
//! [`crate::reconcile`] changes it. Calls block (a port opens sockets, the fabric waits for its workers), so async
//! tasks make them on threads for blocking work.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use ::openflow::PortNo;
use ::openflow::action::Action;
use ::openflow::message::PacketOut;
use fabric::counters::QueueSnapshot;
use fabric::switch::{BridgeId, PortRef, PortSnapshot, WorkerReport};
use fabric::{Mirror, Switch, SwitchError, SwitchLogic};
use logic::Logic;
use ofagent::{ControllerState, SocketAccess};
use ofswitch::{Dependency, Effect, Failure};
use ports::bounded::within;
use ports::faults::{Alarm, Limit, Summary};
use ports::{Access, Environment, Link, Status};
use tokio::sync::watch;

use crate::accounting;
use crate::diff::Object;
use crate::events::Events;
use crate::host_port;
use crate::logics;
use crate::model::{BridgeConfig, DEFAULT_SOCKET, LogicConfig, Owner, PortConfig, StationConfig};
use crate::openflow::{self, Flows, LOGIC, Place, Running};
use crate::p4;
use crate::refusal::Refusal;
use crate::sflow;
use crate::share_warnings::{self, ShareWarnings};
use crate::stuck::{Stuck, Watched};
use crate::workers::Workers;

/// Time limit for opening a port. No other change is possible meanwhile.
const OPEN_LIMIT: Duration = Duration::from_secs(5);

/// Time limit for opening a port that moves the host's addresses, among them many routes.
const MOVE_LIMIT: Duration = Duration::from_secs(60);

/// A running bridge.
pub struct Bridge {
    /// Its id in the fabric.
    pub id: BridgeId,
    /// The lowest number, from 0, that was free when the bridge was added.
    pub number: u32,
    /// Its owner.
    pub owner: Owner,
    /// The configuration of its logic.
    pub config: LogicConfig,
    /// Its logic.
    pub logic: Arc<dyn Logic>,
    /// Its OpenFlow connections, with the logic `openflow`.
    pub(crate) openflow: Option<Arc<Running>>,
    /// Its P4Runtime server, with the logic `p4`.
    pub(crate) p4: Option<Arc<p4::Running>>,
    /// Its ports by name.
    pub ports: BTreeMap<String, Port>,
    /// The static stations in its logic's MAC table.
    pub stations: Vec<StationConfig>,
    /// Its mirrors.
    pub mirrors: Vec<Mirror>,
    /// Whether the next pass rebuilds its logic, because a file of the logic has changed.
    pub rebuild: bool,
    /// Notes about its last change: tables of the previous logic that its logic could not take over.
    pub not_taken_over: Vec<String>,
}

/// Steps of a packet through flow tables, and what would leave.
pub type Rehearsed = (Vec<String>, Vec<Effect>);

impl State {
    /// Takes a packet through the flow tables of a bridge with the logic `openflow`, as if it came in at a port that
    /// need not exist; changes nothing. Returns the steps, and what would leave.
    pub fn rehearse(&self, bridge: &str, port: PortNo, packet: &[u8]) -> Option<Rehearsed> {
        // The bridges are not locked while the switch is waited for.
        let running = self.bridges().get(bridge)?.openflow.clone()?;
        Some(running.logic().switch().with(|switch, now| switch.foresee(port, packet, now)))
    }

    /// Does the same with a packet that a controller would send with these actions; the error of actions that the
    /// bridge refuses is its name.
    pub fn rehearse_packet_out(
        &self,
        bridge: &str,
        port: PortNo,
        packet: &[u8],
        actions: Vec<Action>,
    ) -> Option<Result<Rehearsed, String>> {
        let running = self.bridges().get(bridge)?.openflow.clone()?;
        let request = PacketOut {
            buffer_id: ::openflow::version::NO_BUFFER,
            in_port: port,
            actions,
            data: packet.to_vec(),
            ..PacketOut::default()
        };
        let foreseen = running.logic().switch().with(|switch, now| switch.foresee_packet_out(&request, now));
        Some(foreseen.map_err(|code| code.name().to_owned()))
    }

    /// Returns the limit that a packet would exceed in the flow tables of a bridge.
    pub fn foresee_failure(&self, bridge: &str, port: PortNo, packet: &[u8]) -> Option<Failure> {
        let running = self.bridges().get(bridge)?.openflow.clone()?;
        running.logic().switch().with(|switch, now| switch.foresee_failure(port, packet, now))
    }

    /// Returns what the way of a packet through the flow tables of a bridge depends on; nothing for a bridge without
    /// them.
    pub fn dependencies(&self, bridge: &str, port: PortNo, packet: &[u8]) -> Vec<Dependency> {
        let running = self.bridges().get(bridge).and_then(|bridge| bridge.openflow.clone());
        let of = |running: Arc<Running>| {
            running.logic().switch().with(|switch, now| switch.dependencies(port, packet, now))
        };
        running.map(of).unwrap_or_default()
    }
}

impl Bridge {
    /// Returns its controllers, with the logic `openflow`.
    pub fn controllers(&self) -> Vec<ControllerState> {
        self.openflow.as_ref().map(|openflow| openflow.controllers()).unwrap_or_default()
    }
}

/// A running port.
pub struct Port {
    /// Its place in the fabric.
    pub at: PortRef,
    /// Its configuration.
    pub config: PortConfig,
    /// The client side; `None` if it is not open.
    pub open: Option<Box<dyn ports::Port>>,
    /// The failure to open it, if any.
    pub failure: Option<OpenFailure>,
}

/// A failure to open a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenFailure {
    /// The last error, with a remedy.
    pub message: String,
    /// Number of failed attempts.
    pub attempts: u32,
    /// Time of the next attempt.
    pub next: Instant,
}

impl Port {
    /// Returns its status.
    pub fn status(&self) -> Status {
        match (&self.open, &self.failure) {
            (Some(open), _) => open.status(),
            (None, Some(failure)) => {
                let attempts = match failure.attempts {
                    1 => "1 failed attempt; retrying".into(),
                    attempts => format!("{attempts} failed attempts; retrying"),
                };
                Status {
                    link: Link::Down(failure.message.clone()),
                    details: vec![("attempts".into(), attempts)],
                }
            }
            (None, None) => {
                Status { link: Link::Down("the port is being opened".into()), details: Vec::new() }
            }
        }
    }
}

/// The bridges by name.
pub type Bridges = BTreeMap<String, Bridge>;

/// The running state. See the module.
pub struct State {
    switch: Arc<Switch>,
    environment: Environment,
    bridges: Mutex<Bridges>,
    share_warnings: Mutex<ShareWarnings>,
    /// The last reported fault of each port: its number and its time.
    reported_faults: Mutex<BTreeMap<PortRef, (u64, SystemTime)>>,
    /// Objects that do not run as configured, with the reasons. Existing ports have their own ([`Port::failure`]).
    unmet: Mutex<BTreeMap<Object, String>>,
    /// Counters of the ports that were removed, all queues of a direction in one.
    removed: Mutex<[QueueSnapshot; 2]>,
    watched: Watched,
    /// Ports that monitoring calls faulty, by bridge and name.
    pub(crate) faulty: Mutex<BTreeSet<(String, String)>>,
    sflow: sflow::Exports,
    accounting: accounting::Exports,
    place: Place,
    /// The switch ends: ports are closed, and not removed from the configuration.
    ending: AtomicBool,
    pub(crate) workers: Workers,
}

/// A bridge's logic, and its connections if it speaks OpenFlow.
struct BuiltLogic {
    logic: Arc<dyn Logic>,
    openflow: Option<Arc<Running>>,
    p4: Option<Arc<p4::Running>>,
}

impl BuiltLogic {
    fn join(&self, bridge: BridgeId) -> Result<(), SwitchError> {
        self.openflow.iter().try_for_each(|openflow| openflow.join(bridge))?;
        self.p4.iter().try_for_each(|p4| p4.join(bridge))
    }
}

impl State {
    /// Starts without bridges, on a running switch.
    pub fn new(environment: Environment) -> Self {
        let switch = environment.switch.clone();
        let place = Place {
            runtime: environment.runtime.clone(),
            switch: switch.clone(),
            interfaces: environment.interfaces.clone(),
            control: DEFAULT_SOCKET.into(),
            access: SocketAccess::default(),
            changed: watch::Sender::new(()),
        };
        Self {
            place,
            sflow: sflow::Exports::new(switch.clone()),
            accounting: accounting::Exports::new(switch.clone()),
            switch,
            environment,
            bridges: Mutex::default(),
            share_warnings: Mutex::default(),
            reported_faults: Mutex::default(),
            unmet: Mutex::default(),
            removed: Mutex::default(),
            watched: Watched::default(),
            faulty: Mutex::default(),
            ending: AtomicBool::new(false),
            workers: Workers::default(),
        }
    }

    /// Sets the path of the control socket, beside which bridges have theirs, and access to those.
    pub fn at(mut self, control: &Path, access: Access) -> Self {
        let default = SocketAccess::default();
        let mode = access.mode.unwrap_or(default.mode);
        self.place.access = SocketAccess { owner: access.owner, group: access.group, mode };
        // Bridges do not depend on the daemon's directory.
        self.place.control = std::path::absolute(control).unwrap_or_else(|_| control.into());
        self
    }

    /// Returns a receiver that is told when a port goes up or down, and when controllers come, go, or change roles.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.place.changed.subscribe()
    }

    /// Returns the switch.
    pub fn switch(&self) -> &Switch {
        &self.switch
    }

    /// Returns a handle to the switch that may outlive the call.
    pub fn switch_handle(&self) -> Arc<Switch> {
        self.switch.clone()
    }

    /// Returns the dummy ports, which exist for tests.
    pub fn dummies(&self) -> &ports::dummy::Dummies {
        &self.environment.dummies
    }

    /// Does what is due on the clocks of OpenFlow and of ageing, which were moved by hand ([`ofagent::clock`],
    /// [`fabric::clock::warp_seconds`]).
    pub fn look_at_clock(&self) {
        let bridges = self.bridges();
        let running: Vec<_> = bridges.values().map(|it| (it.logic.clone(), it.openflow.clone())).collect();
        drop(bridges);
        for (logic, openflow) in running {
            logic.tick(fabric::clock::seconds());
            if let Some(bridge) = openflow {
                bridge.logic().switch().with(|switch, now| switch.tick(now));
            }
        }
    }

    /// Returns the logic of a bridge with the logic `openflow`.
    pub fn flow_logic(&self, bridge: &str) -> Option<Arc<oflogic::OpenFlow>> {
        let running = self.bridges().get(bridge)?.openflow.clone()?;
        Some(running.logic().clone())
    }

    /// Tells receivers of [`State::changes`] that something else about ports has changed, such as LACP.
    pub fn note_change(&self) {
        self.place.changed.send_replace(());
    }

    /// Returns sFlow export.
    pub fn sflow(&self) -> &sflow::Exports {
        &self.sflow
    }

    /// Returns NetFlow and IPFIX.
    pub fn accounting(&self) -> &accounting::Exports {
        &self.accounting
    }

    /// Returns the objects that do not run as configured, with the reasons. Existing ports have their own reason
    /// ([`Port::failure`]).
    pub fn unmet(&self) -> BTreeMap<Object, String> {
        self.unmet.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_unmet(&self, unmet: BTreeMap<Object, String>) {
        *self.unmet.lock().unwrap_or_else(PoisonError::into_inner) = unmet;
    }

    /// Adds the reason to a refusal for a bridge that is configured but could not be created.
    pub(crate) fn explain(&self, refusal: Refusal) -> Refusal {
        let Refusal::NoBridge(name) = refusal else { return refusal };
        match self.unmet().remove(&Object::Bridge(name.clone())) {
            Some(reason) => Refusal::Unmet { object: Object::Bridge(name).to_string(), reason },
            None => Refusal::NoBridge(name),
        }
    }

    /// Locks the bridges: they do not change while the guard exists.
    pub fn bridges(&self) -> MutexGuard<'_, Bridges> {
        self.bridges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an empty bridge. `others` are the existing bridges.
    pub(crate) fn add_bridge(&self, config: &BridgeConfig, others: &Bridges) -> Result<Bridge, Refusal> {
        let built = self.build_logic(config)?;
        self.watched.add(&config.name, &built.logic);
        let id = self.switch.add_bridge(&config.name, built.logic.clone() as Arc<dyn SwitchLogic>)?;
        built.join(id)?;
        let BuiltLogic { logic, openflow, p4 } = built;
        let (ports, stations, mirrors, not_taken_over) = Default::default();
        let taken: BTreeSet<u32> = others.values().map(|bridge| bridge.number).collect();
        let number = (0..).find(|number| !taken.contains(number)).unwrap_or_default();
        let (owner, config) = (config.owner, config.logic.clone());
        Ok(Bridge {
            id,
            number,
            owner,
            config,
            logic,
            openflow,
            p4,
            ports,
            stations,
            mirrors,
            rebuild: false,
            not_taken_over,
        })
    }

    /// Builds the logic of a bridge, with its connections if it has some.
    fn build_logic(&self, config: &BridgeConfig) -> Result<BuiltLogic, Refusal> {
        let LogicConfig { name, params } = &config.logic;
        let failed = |error: String| Refusal::Other(format!("logic `{name}`: {error}"));
        if p4::is_p4(name) {
            let loaded = logics::load_p4(name, params)?;
            let running =
                p4::Running::start(&self.place, &config.name, &config.p4, loaded).map_err(failed)?;
            return Ok(BuiltLogic { logic: running.logic().clone(), openflow: None, p4: Some(running) });
        }
        if name != LOGIC {
            return Ok(BuiltLogic { logic: logics::build(name, params)?, openflow: None, p4: None });
        }
        logics::check(name, params)?;
        let running = Running::start(&self.place, &config.name, &config.openflow).map_err(failed)?;
        Ok(BuiltLogic { logic: running.logic().clone(), openflow: Some(running), p4: None })
    }

    /// Tells the logic of a bridge about its ports, and applies its settings of OpenFlow or P4Runtime. Returns the
    /// result if these changed.
    pub(crate) fn follow_connections(
        &self,
        bridge: &Bridge,
        wanted: &BridgeConfig,
    ) -> Option<Result<(), String>> {
        if let Some(p4) = &bridge.p4 {
            p4.tell_ports(bridge);
            return p4.follow(&wanted.p4);
        }
        let openflow = bridge.openflow.as_ref()?;
        self.tell_ports(openflow, &wanted.name, bridge);
        openflow.follow(&wanted.openflow)
    }

    fn tell_ports(&self, openflow: &Running, name: &str, bridge: &Bridge) {
        let facts = openflow::facts(&self.switch, name, bridge, openflow.datapath_id(), &self.lock_faulty());
        openflow.logic().set_ports(&facts);
    }

    /// Tells the logic of a bridge that the link of a port changed.
    pub(crate) fn tell_link(&self, bridge: &str, port: &str) {
        self.place.changed.send_replace(());
        let bridges = self.bridges();
        if let Some((found, p4)) = bridges.get(bridge).and_then(|it| Some((it, it.p4.as_ref()?))) {
            return p4.tell_ports(found);
        }
        let found = bridges.get(bridge).and_then(|bridge| Some((bridge.owner, bridge.openflow.as_ref()?)));
        let Some((owner, openflow)) = found else { return };
        if let Ok(port) = find_port(&bridges, bridge, port) {
            let id = openflow.datapath_id();
            let facts = openflow::facts_of(&self.switch, bridge, owner, port, id, &self.lock_faulty());
            openflow.logic().set_ports(&[facts]);
        }
    }

    /// Removes a bridge and its ports.
    pub(crate) fn remove_bridge(&self, bridge: Bridge) -> Result<(), Refusal> {
        bridge.ports.values().filter_map(|port| port.open.as_ref()).for_each(|open| open.begin_close());
        bridge.ports.values().for_each(|port| self.close_or_remove(port));
        let counted: Vec<_> =
            bridge.ports.values().filter_map(|port| self.switch.counters(port.at).ok()).collect();
        self.switch.remove_bridge(bridge.id)?;
        if let Some(openflow) = &bridge.openflow {
            let ends = self.ending.load(Relaxed);
            openflow.stop(if ends { Flows::Stay } else { Flows::Go });
        }
        if let Some(p4) = &bridge.p4 {
            p4.stop();
        }
        counted.iter().for_each(|counters| self.keep(counters));
        Ok(())
    }

    /// Adds the counters of a removed port to the totals.
    fn keep(&self, counters: &PortSnapshot) {
        let mut removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        for (sum, queues) in removed.iter_mut().zip([&counters.rx, &counters.tx]) {
            for queue in queues {
                sum.packets += queue.packets;
                sum.bytes += queue.bytes;
                sum.batches += queue.batches;
                sum.drops.iter_mut().zip(queue.drops).for_each(|(sum, dropped)| *sum += dropped);
            }
        }
    }

    /// Returns the counters of the ports that were removed, all queues of a direction in one.
    pub fn removed(&self) -> PortSnapshot {
        let [rx, tx] = self.removed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        PortSnapshot { rx: vec![rx], tx: vec![tx], ..PortSnapshot::default() }
    }

    /// Replaces a bridge's logic. The new logic takes over the state of the old one and gets the static stations of
    /// `wanted`. If these do not fit, the old logic stays in use.
    pub(crate) fn set_logic(&self, bridge: &mut Bridge, wanted: &BridgeConfig) -> Result<(), Refusal> {
        // Another logic would need the addresses of the one before.
        if let (Some(p4), true) = (&bridge.p4, p4::is_p4(&wanted.logic.name)) {
            let loaded = logics::load_p4(&wanted.logic.name, &wanted.logic.params)?;
            p4.replace(loaded).map_err(Refusal::Other)?;
            bridge.config = wanted.logic.clone();
            return Ok(());
        }
        let built = self.build_logic(wanted)?;
        built.join(bridge.id)?;
        let BuiltLogic { logic, openflow, p4 } = built;
        // The first packets meet a logic that knows its ports.
        if let Some(openflow) = &openflow {
            self.tell_ports(openflow, &wanted.name, bridge);
        }
        if let Some(p4) = &p4 {
            p4.tell_ports(bridge);
        }
        for station in &wanted.stations {
            if let (Some(table), Some(port)) = (logic.views().stations, bridge.ports.get(&station.port)) {
                table
                    .add_static(station.vlan, station.mac, port.at.port)
                    .map_err(|error| Refusal::Other(format!("static station {}: {error}", station.mac)))?;
            }
        }
        self.watched.add(&wanted.name, &logic);
        bridge.not_taken_over = logic::replace(&*bridge.logic, &*logic, || {
            self.switch.set_logic(bridge.id, logic.clone() as Arc<dyn SwitchLogic>)
        })?;
        bridge.p4.iter().for_each(|before| before.leave_interfaces());
        for note in &bridge.not_taken_over {
            tracing::warn!(bridge = wanted.name, logic = logic.name(), "{note}");
        }
        self.discard_stale(bridge, &*logic, &wanted.stations);
        if logic.views().stations.is_none() {
            bridge.stations.clear();
        }
        bridge.logic = logic;
        bridge.config = wanted.logic.clone();
        if let Some(before) = std::mem::replace(&mut bridge.openflow, openflow) {
            before.stop(Flows::Go);
        }
        if let Some(before) = std::mem::replace(&mut bridge.p4, p4) {
            before.stop();
        }
        Ok(())
    }

    /// Lets the next pass rebuild a bridge's logic if one of its files has changed.
    pub(crate) fn rebuild_logic(&self, bridge: &str) {
        if let Some(bridge) = self.bridges().get_mut(bridge) {
            bridge.rebuild = bridge.logic.is_outdated();
        }
    }

    /// After a take-over, discards inherited state that is no longer valid: stations at ports that went down meanwhile,
    /// and static stations that are not in `wanted`.
    fn discard_stale(&self, bridge: &Bridge, logic: &dyn Logic, wanted: &[StationConfig]) {
        for port in bridge.ports.values() {
            if self.switch.counters(port.at).is_ok_and(|counters| !counters.up) {
                logic.port_down(port.at.port);
            }
        }
        let Some(table) = logic.views().stations else { return };
        for station in table.entries().into_iter().filter(|station| station.is_static) {
            if !wanted.iter().any(|other| other.is(station.mac, station.vid)) {
                table.remove(station.vid, station.mac);
            }
        }
    }

    /// Opens the client side of a port.
    pub(crate) fn open(&self, port: &Port) -> Result<Box<dyn ports::Port>, String> {
        let (spec, at, environment) = (port.config.spec.clone(), port.at, self.environment.clone());
        // Paths may be on a file system that blocks. A port that opens after the time limit is closed there
        // immediately.
        let limit = if host_port::of(&port.config).is_some() { MOVE_LIMIT } else { OPEN_LIMIT };
        match within(limit, "mswitch-open", move || ports::open(&spec, at, &environment)) {
            Ok(opened) => opened.map_err(|error| error.to_string()),
            Err(error) => Err(format!("opening the port: {error}")),
        }
    }

    /// Ends the hold-off of a port, if there is one.
    pub(crate) fn lift_hold_off(&self, bridge: &str, port: &str) {
        let bridges = self.bridges();
        let open = find_port(&bridges, bridge, port).ok().and_then(|port| port.open.as_ref());
        if let Some(faults) = open.and_then(|open| open.faults()) {
            faults.lift();
        }
    }

    /// Closes a port that is no longer configured. When the switch ends, what outlives the port stays for the next
    /// start.
    fn close_or_remove(&self, port: &Port) {
        match (&port.open, self.ending.load(Relaxed)) {
            (Some(open), true) => open.close(),
            (Some(open), false) => open.remove(None),
            (None, true) => {}
            (None, false) => discard(port, None),
        }
    }

    /// Begins to close all ports, because the switch ends: closing them in sequence takes as long as closing the
    /// slowest.
    pub(crate) fn begin_close(&self) {
        self.ending.store(true, Relaxed);
        self.workers.leave();
        let bridges = self.bridges();
        for openflow in bridges.values().filter_map(|bridge| bridge.openflow.as_ref()) {
            openflow.begin_stop();
        }
        for p4 in bridges.values().filter_map(|bridge| bridge.p4.as_ref()) {
            p4.begin_stop();
        }
        for open in every(&bridges).filter_map(|(_, _, port)| port.open.as_ref()) {
            open.begin_close();
        }
    }

    /// Returns the modules that have not returned from a batch for more than a second.
    pub fn stuck(&self) -> Vec<Stuck> {
        self.watched.stuck(&self.switch)
    }

    /// Returns the modules that have become stuck since the last call, and those that have returned.
    pub(crate) fn stuck_changes(&self) -> (Vec<Stuck>, Vec<Stuck>) {
        self.watched.changes(self.stuck())
    }

    /// Returns the modules that have failed since the last call, with their bridges.
    pub(crate) fn new_module_faults(&self) -> Vec<(String, logic::Faults)> {
        self.watched.new_faults()
    }

    /// Returns the alarm that is rung when a port has a new fault.
    pub(crate) fn alarm(&self) -> &Alarm {
        &self.environment.alarm
    }

    /// Returns the ports with faults that were not reported yet, with the names of bridge and port.
    pub(crate) fn new_faults(&self) -> Vec<(String, String, Summary)> {
        let bridges = self.bridges();
        let mut reported = self.reported_faults.lock().unwrap_or_else(PoisonError::into_inner);
        let mut now = BTreeMap::new();
        let mut new = Vec::new();
        for (bridge, name, port) in every(&bridges) {
            let faults = port.open.as_ref().and_then(|open| open.faults());
            let Some(summary) = faults.and_then(|faults| faults.summary()) else { continue };
            // The count of a reopened port restarts at 0 and may reach the same value: compare the time too.
            let last = (summary.total, summary.last.at);
            now.insert(port.at, last);
            if reported.get(&port.at) != Some(&last) {
                new.push((bridge.into(), name.into(), summary));
            }
        }
        *reported = now;
        new
    }

    /// Closes and removes a port.
    pub(crate) fn remove_port(&self, port: Port) -> Result<(), Refusal> {
        self.close_or_remove(&port);
        let counters = self.switch.counters(port.at);
        self.switch.remove_port(port.at)?;
        counters.iter().for_each(|counters| self.keep(counters));
        Ok(())
    }

    /// Removes a running port that the configuration keeps: its next change adds the port again. For tests of just
    /// that.
    ///
    /// # Errors
    /// There is no such port, or the switch does not remove it.
    pub fn lose_port(&self, bridge: &str, name: &str) -> Result<(), Refusal> {
        let mut bridges = self.bridges();
        find_port(&bridges, bridge, name)?;
        let Some(running) = bridges.get_mut(bridge) else { return Ok(()) };
        let Some(port) = running.ports.remove(name) else { return Ok(()) };
        if let Some(openflow) = &running.openflow {
            openflow.logic().forget_port(port.at.port);
        }
        if let Some(p4) = &running.p4 {
            p4.logic().forget_port(port.at.port);
        }
        self.remove_port(port)
    }

    /// Moves a receive queue to the worker on `cpu`. Returns the CPU of its previous worker, if that was pinned.
    pub fn pin(&self, bridge: &str, name: &str, queue: u16, cpu: usize) -> Result<Option<usize>, Refusal> {
        let bridges = self.bridges();
        let port = find_port(&bridges, bridge, name)?;
        let before = self.cpu_of(port.at, queue);
        let refused = |message: String| Refusal::Port { bridge: bridge.into(), port: name.into(), message };
        let pinned = self.switch.pin(port.at, queue, cpu).map_err(|error| match error {
            SwitchError::Gone("client") => refused(
                "the port has no client and therefore no queue to pin; connect the client first".into(),
            ),
            SwitchError::Gone("queue") => refused(format!("the port has no receive queue {queue}")),
            SwitchError::NoWorker(_, cpus) if cpus.is_empty() => Refusal::Other(
                "the worker is not pinned to a CPU; `mswitch worker add CPULIST` replaces it by workers that are"
                    .into(),
            ),
            SwitchError::HeldUp => match self.stuck().first() {
                Some(stuck) => refused(stuck.to_string()),
                None => SwitchError::HeldUp.into(),
            },
            other => other.into(),
        });
        pinned.map(|()| before)
    }

    /// Lets a pinned receive queue follow load again. Returns the CPU of its worker.
    pub fn unpin(&self, bridge: &str, name: &str, queue: u16) -> Result<Option<usize>, Refusal> {
        let bridges = self.bridges();
        let at = find_port(&bridges, bridge, name)?.at;
        if !self.switch.unpin(at, queue)? {
            let message = format!("receive queue {queue} is not pinned");
            return Err(Refusal::Port { bridge: bridge.into(), port: name.into(), message });
        }
        Ok(self.cpu_of(at, queue))
    }

    /// Moves receive queues to less busy workers, and reports that.
    pub(crate) fn balance(&self, events: &Events) {
        let moved = self.switch.balance();
        if moved.is_empty() {
            return;
        }
        let bridges = self.bridges();
        for moved in moved {
            // A port that has just been removed needs no report.
            let Some((bridge, port, _)) = every(&bridges).find(|(.., port)| port.at == moved.port) else {
                continue;
            };
            tracing::debug!(
                bridge,
                port,
                queue = moved.queue,
                from = moved.from,
                to = moved.to,
                "queue moved"
            );
            events.queue_moved(bridge, port, &moved);
        }
    }

    /// Returns the CPU of a receive queue's worker.
    fn cpu_of(&self, at: PortRef, queue: u16) -> Option<usize> {
        let serves = |report: &WorkerReport| {
            report.queues.iter().any(|there| (there.port, there.queue) == (at, queue))
        };
        self.switch.workers().into_iter().find(serves)?.cpu
    }

    /// Calls the ticks of the logics, and warns of ports that reached their share of a MAC table.
    pub fn tick(&self) {
        let logics: Vec<Arc<dyn Logic>> =
            self.bridges().values().map(|bridge| bridge.logic.clone()).collect();
        for logic in logics {
            logic.tick(fabric::clock::seconds());
        }
        let bridges = self.bridges();
        let at_limit = share_warnings::list(&bridges);
        let mut warnings = self.share_warnings.lock().unwrap_or_else(PoisonError::into_inner);
        for port in warnings.due(at_limit, Instant::now()) {
            tracing::warn!("{port}");
            let open = find_port(&bridges, &port.bridge, &port.port).ok().and_then(|port| port.open.as_ref());
            let Some((open, faults)) = open.and_then(|open| Some((open, open.faults()?))) else { continue };
            let details = open.status().details;
            let client = details.iter().find(|(name, _)| name == "client").map_or("", |(_, value)| value);
            let limit = Limit { option: "port-share", value: port.limit.into() };
            faults.reached(client, limit, &port.reason());
        }
    }
}

/// Removes what a port that is not open has kept for its next start, unless `successor` goes on with it.
pub(crate) fn discard(port: &Port, successor: Option<&ports::Spec>) {
    let (spec, name) = (&port.config.spec, &port.config.settings.name);
    if let Err(error) = ports::discard(spec, name, successor) {
        tracing::warn!(port = name, "what the port has kept for its next start remains: {error}");
    }
}

/// Iterates over all ports, with the names of bridge and port.
pub fn every(bridges: &Bridges) -> impl Iterator<Item = (&str, &str, &Port)> {
    bridges.iter().flat_map(|(bridge, there)| {
        there.ports.iter().map(move |(name, port)| (bridge.as_str(), name.as_str(), port))
    })
}

/// Returns the bridge with this name.
pub fn find<'a>(bridges: &'a Bridges, name: &str) -> Result<&'a Bridge, Refusal> {
    bridges.get(name).ok_or_else(|| Refusal::NoBridge(name.into()))
}

/// Returns the port with this name.
pub fn find_port<'a>(bridges: &'a Bridges, bridge: &str, name: &str) -> Result<&'a Port, Refusal> {
    let no_port = || Refusal::NoPort { bridge: bridge.into(), port: name.into() };
    find(bridges, bridge)?.ports.get(name).ok_or_else(no_port)
}

#[cfg(test)]
mod tests {
    use fabric::{Batch, PortIndex, SwitchOptions};
    use logic::{Key, Station};
    use packet::ether::MacAddr;

    use super::*;
    use crate::author::Author;
    use crate::cpulist::Listed;
    use crate::desired::Desired;
    use crate::edit::{Edit, PortChange};
    use crate::file;
    use crate::reconcile::Retries;

    /// A logic that hands over made-up stations, some of which are not in the configuration.
    struct Module;

    impl SwitchLogic for Module {
        fn forward(&self, _: &mut Batch<'_>) {}
    }

    fn mac(last: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, last])
    }

    impl Logic for Module {
        fn name(&self) -> &str {
            "module"
        }

        fn params(&self) -> Vec<(String, String)> {
            Vec::new()
        }

        fn hand_over(&self) -> Vec<logic::State> {
            let seen = fabric::clock::seconds();
            let station = |last, port, is_static| {
                let key = Key::new(0, mac(last));
                Station { key, port: PortIndex(port), is_static, is_sticky: false, seen }
            };
            // The configuration has station 1 at port 0.
            let stations =
                [station(1, 1, true), station(2, 1, true), station(3, 1, false), station(4, 9, false)];
            vec![Station::hand_over(stations)]
        }
    }

    /// Starts a switch without bridges.
    fn started(runtime: &tokio::runtime::Runtime) -> State {
        let switch = Switch::start(&SwitchOptions::default()).unwrap();
        State::new(Environment::new(Arc::new(switch), runtime.handle().clone()))
    }

    #[test]
    fn inherited_stations_yield_to_configuration_and_ports() {
        let folder = tempfile::tempdir().unwrap();
        let port = |name: &str, id: u8| {
            let socket = folder.path().join("memif");
            format!("[[bridge.port]]\nname = \"{name}\"\ntype = \"memif\"\npath = {socket:?}\nid = {id}\n")
        };
        let station = "[[bridge.station]]\nmac = \"02:00:00:00:00:01\"\nport = \"a\"\n";
        let text = format!("[[bridge]]\nname = \"br0\"\n{}{}{station}", port("a", 0), port("b", 1));
        let wanted = file::parse(&text, "f.toml".as_ref(), file::Depth::Text).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let state = started(&runtime);
        let outcomes = state.reconcile(&wanted, Retries::All);
        assert!(outcomes.iter().all(|outcome| outcome.trouble.is_none()), "{outcomes:?}");

        let mut bridges = state.bridges();
        let bridge = bridges.get_mut("br0").unwrap();
        bridge.logic = Arc::new(Module);
        state.set_logic(bridge, &wanted.bridges[0]).unwrap();
        // The ports are down, so stations learned there are discarded.
        let left = bridge.logic.views().stations.unwrap().entries();
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!((left[0].mac, left[0].port, left[0].is_static), (mac(1), PortIndex(0), true));
        assert_eq!(bridge.stations, wanted.bridges[0].stations);

        // If the new logic cannot be built, or its table is full, the old one stays.
        let before = bridge.logic.clone();
        let mut other = wanted.bridges[0].clone();
        other.stations.push(StationConfig { mac: mac(5), ..other.stations[0].clone() });
        for (max, expected) in
            [("1", "static station 02:00:00:00:00:05: the table is full"), ("0", "cannot be `0`")]
        {
            other.logic.params = vec![("max-stations".into(), max.into())];
            let refusal = state.set_logic(bridge, &other).unwrap_err().to_string();
            assert!(refusal.contains(expected), "{refusal}");
            assert!(Arc::ptr_eq(&bridge.logic, &before));
        }
        drop(bridges);
        state.reconcile(&crate::model::Config::default(), Retries::All);
    }

    #[test]
    fn a_fault_is_reported_once_with_its_client() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("v");
        let text = format!(
            "[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"v\"\ntype = \"vhost-user\"\npath = {socket:?}\n"
        );
        let wanted = file::parse(&text, "f.toml".as_ref(), file::Depth::Text).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let state = started(&runtime);
        state.reconcile(&wanted, Retries::All);
        assert_eq!(state.new_faults(), []);
        for total in 1..=2 {
            let mut client = std::os::unix::net::UnixStream::connect(&socket).unwrap();
            std::io::Write::write_all(&mut client, &[0xff; 12]).unwrap();
            let rung = async { tokio::time::timeout(Duration::from_secs(20), state.alarm().rung()).await };
            runtime.block_on(rung).unwrap();
            let new = state.new_faults();
            let [(bridge, port, summary)] = new.as_slice() else { panic!("{new:?}") };
            assert_eq!((bridge.as_str(), port.as_str(), summary.total), ("br0", "v", total));
            assert_eq!(summary.last.reason, "message of protocol version 3, expected 1");
            let process = format!("process {} (", std::process::id());
            assert!(summary.last.client.starts_with(&process), "{summary:?}");
            assert_eq!(state.new_faults(), []);
        }
        let bridges = state.bridges();
        let port = find_port(&bridges, "br0", "v").unwrap();
        let shown = crate::convert::port(&state, &bridges, "br0", "v", port).unwrap().faults.unwrap();
        assert_eq!((shown.total, shown.kind.as_str(), shown.hold_off_seconds), (2, "protocol", 0.0));
        let at = port.at;
        drop(bridges);
        // A new port in its place counts its own faults.
        let mut without = wanted.clone();
        without.bridges[0].ports.clear();
        state.reconcile(&without, Retries::All);
        state.reconcile(&wanted, Retries::All);
        for total in 1..=2 {
            let mut client = std::os::unix::net::UnixStream::connect(&socket).unwrap();
            std::io::Write::write_all(&mut client, &[0xff; 12]).unwrap();
            let rung = async { tokio::time::timeout(Duration::from_secs(20), state.alarm().rung()).await };
            runtime.block_on(rung).unwrap();
            let bridges = state.bridges();
            let port = find_port(&bridges, "br0", "v").unwrap();
            assert_eq!(port.at, at);
            let faults = port.open.as_ref().unwrap().faults().unwrap();
            assert_eq!(faults.summary().unwrap().total, total);
        }
        assert_eq!(state.new_faults().len(), 1);
        state.reconcile(&crate::model::Config::default(), Retries::All);
    }

    #[test]
    fn a_worker_that_cannot_be_added_keeps_no_other_from_coming_and_going() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let state = Arc::new(started(&runtime));
        let cpu = rustix::thread::sched_getcpu();
        let mut wanted = crate::model::Config::default();
        wanted.daemon.workers = vec![usize::MAX, cpu];
        let desired = Desired::new(state.clone(), wanted.daemon.clone(), folder.path().join("control"));
        let applied = desired.replace(wanted, &Author::Start).unwrap();
        let refused = format!("worker 1 cannot run on CPU {}: no such CPU", usize::MAX);
        assert_eq!(applied.troubles().map(|(_, trouble)| trouble).collect::<Vec<_>>(), [refused]);
        assert_eq!(state.switch().worker_cpus(), [Some(cpu)]);
        // Commands are not refused because of that, and what they change is done.
        let by = Author::Caller(None);
        let add = |cpu, workers| Edit::AddWorkers(vec![Listed { cpu, workers, explicit: true }]);
        desired.edit(add(cpu, 2), &by).unwrap();
        assert_eq!(state.switch().worker_cpus(), [Some(cpu); 3]);
        desired.edit(Edit::RemoveWorkers(vec![cpu]), &by).unwrap();
        assert_eq!(state.switch().worker_cpus(), [Some(cpu); 2]);
        // One that fails for its own reason is refused with that, and nothing of it is left.
        let both = [(cpu, 1), (usize::MAX - 1, 1)];
        let both = both.map(|(cpu, workers)| Listed { cpu, workers, explicit: true });
        let refusal = desired.edit(Edit::AddWorkers(both.into()), &by).unwrap_err().to_string();
        assert!(refusal.ends_with(&format!(" CPU {}: no such CPU", usize::MAX - 1)), "{refusal}");
        assert!(!refusal.contains(&usize::MAX.to_string()), "{refusal}");
        assert_eq!(state.switch().worker_cpus(), [Some(cpu); 2]);
        assert_eq!(desired.config().daemon.workers, [usize::MAX, cpu, cpu]);
    }

    #[test]
    fn all_of_the_most_workers_are_replaced() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let state = started(&runtime);
        let cpu = rustix::thread::sched_getcpu();
        // They are on no CPU, and each makes room for another one.
        let most = fabric::worker::MAX_WORKERS;
        (1..most).for_each(|_| state.switch().add_worker(None).unwrap());
        assert_eq!(state.reconcile_workers(&vec![cpu; most]), Some(Ok(())));
        assert_eq!(state.switch().worker_cpus(), vec![Some(cpu); most]);
    }

    #[test]
    fn port_set_ends_the_hold_off() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"m\"\ntype = \"memif\"\npath = {:?}\n",
            folder.path().join("m")
        );
        let wanted = file::parse(&text, "f.toml".as_ref(), file::Depth::Text).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let state = Arc::new(started(&runtime));
        let desired = Desired::new(state.clone(), wanted.daemon.clone(), folder.path().join("control"));
        desired.replace(wanted, &Author::Start).unwrap();
        let held_off = || {
            let bridges = state.bridges();
            let faults = find_port(&bridges, "br0", "m").unwrap().open.as_ref().unwrap().faults().unwrap();
            faults.summary().unwrap().hold_off
        };
        {
            let bridges = state.bridges();
            let faults = find_port(&bridges, "br0", "m").unwrap().open.as_ref().unwrap().faults().unwrap();
            (0..10).for_each(|_| faults.found("process 1", fabric::Fault::Memory, "punched", None));
        }
        assert!(held_off() > Duration::from_secs(10));
        // Setting a value that it already has is enough.
        let change = PortChange { admin_up: Some(true), ..PortChange::default() };
        let set = Edit::SetPort { bridge: "br0".into(), port: "m".into(), change };
        desired.edit(set, &Author::Caller(None)).unwrap();
        assert_eq!(held_off(), Duration::ZERO);
        let change = PortChange::default();
        let set = Edit::SetPort { bridge: "br0".into(), port: "x".into(), change };
        assert!(desired.edit(set, &Author::Caller(None)).is_err());
        desired.replace(crate::model::Config::default(), &Author::Start).unwrap();
    }
}
