//! State that the data path, the switch and the logic's thread share.
//!
//! Locks are taken in this order: the fabric's (it holds it when it calls the logic), the OpenFlow switch's, those
//! here. A caller of the fabric that holds the switch's lock does not wait for the fabric's.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use fabric::switch::PortSnapshot;
use fabric::{Injection, Injector, PortIndex, SwitchLogic};
use ofagent::SharedSwitch;
use ofswitch::{Effect, Follower, OnlyFlow, PortCounters, PortInfo, QueueCounters, Rehearsal, Switch};
use openflow::PortNo;
use openflow::message::PortConfig;
use openflow::multipart::IpfixStats;
use packet::{MacAddr, Offload, ether};
use pipeline::ir::ActionId;
use pipeline::state::{Bundle, State};

use crate::bonds::Bonds;
use crate::intercept::Sink;
use crate::plane::{NORMAL, Plane};
use crate::ports::Ports;
use crate::samples::{FRONT, Sampled};
use crate::tree::is_bpdu;
use crate::upcalls::{Purpose, Upcall};

/// Statistics of a port, if they can be read now.
pub(crate) type Statistics = Box<dyn Fn(PortIndex) -> Option<PortSnapshot> + Send + Sync>;

/// Receiver of frames of Slow Protocols, or of BPDUs, by the name of the port that they came in at.
pub(crate) type PduSink = Box<dyn Fn(&str, &[u8]) + Send + Sync>;

/// Called after ports have come, gone or changed.
pub(crate) type PortWatch = Box<dyn Fn() + Send + Sync>;

/// Upcalls processed before other users of the switch have their turn.
const TURN: usize = 32;

/// The shared state.
pub(crate) struct Core {
    pub(crate) plane: Plane,
    pub(crate) ports: Mutex<Ports>,
    /// Ports as the switch was told of them; only used with the switch's lock.
    told: Mutex<BTreeMap<u32, PortInfo>>,
    /// Set when the switch has to be told of ports.
    is_stale: AtomicBool,
    pub(crate) is_ending: AtomicBool,
    pub(crate) injector: ArcSwapOption<Injector>,
    pub(crate) statistics: ArcSwapOption<Statistics>,
    /// Takes intercepted frames.
    pub(crate) sink: ArcSwapOption<Sink>,
    pub(crate) pdus: ArcSwapOption<PduSink>,
    pub(crate) bpdus: ArcSwapOption<PduSink>,
    pub(crate) watch: ArcSwapOption<PortWatch>,
    pub(crate) tree_watch: ArcSwapOption<PortWatch>,
    pub(crate) figures: Figures,
}

/// Counters of injected packets, and of those sampled on no worker.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Packets sent to ports, and those that were not.
    pub(crate) injected: AtomicU64,
    pub(crate) not_injected: AtomicU64,
    pub(crate) samples: AtomicU64,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}

impl Core {
    pub(crate) fn new(plane: Plane) -> Self {
        Self {
            plane,
            ports: Mutex::default(),
            told: Mutex::default(),
            is_stale: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            injector: ArcSwapOption::empty(),
            statistics: ArcSwapOption::empty(),
            sink: ArcSwapOption::empty(),
            pdus: ArcSwapOption::empty(),
            bpdus: ArcSwapOption::empty(),
            watch: ArcSwapOption::empty(),
            tree_watch: ArcSwapOption::empty(),
            figures: Figures::default(),
        }
    }

    pub(crate) fn ports(&self) -> MutexGuard<'_, Ports> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the ports, lets packets see it, and leaves it to the thread to tell the switch.
    pub(crate) fn change_ports(&self, change: impl FnOnce(&mut Ports)) {
        let mut ports = self.ports();
        change(&mut ports);
        self.publish(&mut ports);
        drop(ports);
        self.is_stale.store(true, Release);
        self.plane.bell.ring();
    }

    /// Lets packets see the ports.
    pub(crate) fn publish(&self, ports: &mut Ports) {
        let (before, now) = (self.plane.ports.load(), Arc::new(ports.map()));
        self.plane.ports.store(now.clone());
        self.plane.restricts_all.store(now.restricts_all(), Relaxed);
        self.plane.intercepts.store(ports.has_selected() || now.has_tree(), Relaxed);
        // Stations that were learned for another port than the bond, or for the bond, are to be heard again.
        let has_bonds = before.bonds().is_some() || now.bonds().is_some();
        for port in now.all().iter().filter(|_| has_bonds) {
            if before.number(*port).is_some() && before.is_bonded(*port) != now.is_bonded(*port) {
                self.plane.learning.port_down(*port);
            }
        }
    }

    /// Tells the switch of ports that have come, gone or changed.
    pub(crate) fn tell(&self, switch: &SharedSwitch) {
        self.is_stale.store(false, Relaxed);
        switch.with(|switch, now| {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            let wanted = self.ports().infos();
            let gone = told.keys().filter(|number| !wanted.contains_key(*number));
            // A number with another name is another port.
            let other = |number: &&u32| {
                let name = |ports: &BTreeMap<u32, PortInfo>| ports.get(*number).map(|info| info.name.clone());
                wanted.contains_key(*number) && name(&told) != name(&wanted)
            };
            let renamed = told.keys().filter(other);
            let gone: Vec<u32> = gone.chain(renamed).copied().collect();
            for number in gone {
                switch.remove_port(PortNo(number));
            }
            for info in wanted.values() {
                if let Err(error) = switch.set_port(info.clone(), now) {
                    tracing::warn!(port = %info.name, %error, "OpenFlow does not have a port");
                }
            }
            *told = wanted;
        });
        for watch in [&self.watch, &self.tree_watch] {
            if let Some(watch) = &*watch.load() {
                watch();
            }
        }
    }

    /// Processes pending work of the thread; returns whether there was any.
    pub(crate) fn work(&self, switch: &SharedSwitch) -> bool {
        let stale = self.is_stale.swap(false, Acquire);
        if stale {
            self.tell(switch);
        }
        let mut any = stale;
        for (_, local) in self.plane.locals.iter() {
            let calls: Vec<_> = std::iter::from_fn(|| local.upcalls.pop()).take(TURN).collect();
            if calls.is_empty() {
                continue;
            }
            any = true;
            let (mut effects, mut failures) = (Vec::new(), Vec::new());
            switch.with(|switch, now| {
                for call in &calls {
                    match &call.purpose {
                        Purpose::Controllers { reason, limit } => {
                            let arrived = (PortNo(call.port), call.received.as_slice());
                            let arrived = Some(arrived).filter(|_| Switch::is_pause(*reason));
                            switch.send_to_controllers(
                                *reason,
                                *limit,
                                &call.data,
                                &call.packet,
                                arrived,
                                now,
                            );
                        }
                        Purpose::Digest(id, values) => {
                            switch.process_digest(*id, values, now);
                        }
                        // Outside of the switch's lock.
                        Purpose::Intercepted(_) | Purpose::Pdu | Purpose::Bpdu => {}
                        Purpose::Failed => {
                            failures.push((switch.name().to_owned(), rehearsed(switch, call, now)))
                        }
                        Purpose::Run => effects.extend(switch.packet(PortNo(call.port), &call.packet, now)),
                    }
                }
            });
            failures.iter().for_each(|(bridge, failure)| log_failure(bridge, failure));
            for call in &calls {
                match (&call.purpose, &*self.sink.load()) {
                    (Purpose::Intercepted(port), Some(sink)) => sink(*port, &call.packet),
                    (Purpose::Pdu, _) => self.pass_pdu(call, &self.pdus),
                    (Purpose::Bpdu, _) => self.pass_pdu(call, &self.bpdus),
                    _ => {}
                }
            }
            self.execute(effects);
            // Only now nothing of them is on its way.
            calls.into_iter().for_each(|call| local.upcalls.release(call));
        }
        any
    }

    /// Passes a frame of a link protocol to the control side. The switch's lock is not held.
    fn pass_pdu(&self, call: &Upcall, sink: &ArcSwapOption<PduSink>) {
        let Some(port) = self.plane.ports.load().index(call.port) else { return };
        let name = self.ports().name(port).map(str::to_owned);
        if let (Some(name), Some(sink)) = (name, &*sink.load()) {
            sink(&name, &call.packet);
        }
    }

    /// Whether no injected packet and no upcall is on its way.
    pub(crate) fn is_settled(&self) -> bool {
        let injector = self.injector.load();
        injector.as_ref().is_none_or(|injector| injector.is_idle())
            && self.plane.locals.iter().all(|(_, local)| local.upcalls.are_idle())
    }

    /// Executes the effects of packet-outs and upcalls.
    pub(crate) fn execute(&self, effects: Vec<Effect>) {
        let map = self.plane.ports.load();
        let mut effects = effects.into_iter().peekable();
        while let Some(effect) = effects.next() {
            match effect {
                Effect::Output { port, packet, queue } => {
                    // Controllers may send BPDUs of their own.
                    let sends = |port: &PortIndex| map.blocks(*port).is_none() || is_bpdu(&packet);
                    let mut to: Vec<PortIndex> = map.index(port.0).into_iter().filter(&sends).collect();
                    // Copies for several ports are one packet of the injector.
                    let is_same = |next: &Effect| {
                        matches!(next, Effect::Output { packet: other, queue: its, .. }
                            if *its == queue && *other == packet)
                    };
                    while let Some(Effect::Output { port, .. }) = effects.next_if(is_same) {
                        to.extend(map.index(port.0).filter(&sends));
                    }
                    if !to.is_empty() {
                        _ = self.inject(&packet, queue, Injection::To(to));
                    }
                }
                Effect::Normal { in_port, packet, queue } => match map.index(in_port.0) {
                    Some(port) => _ = self.inject(&packet, queue, Injection::Marked(port, NORMAL)),
                    None => self.inject_from_nowhere(&packet, queue),
                },
                Effect::Sample { sample, in_port, packet } => {
                    self.figures.samples.fetch_add(1, Relaxed);
                    if let Some(sampler) = &*self.plane.sampler.load() {
                        let ingress = map.index(in_port.0).unwrap_or(PortIndex::NONE);
                        let length = u32::try_from(packet.len()).unwrap_or(u32::MAX);
                        let front = packet.get(..FRONT).unwrap_or(&packet);
                        sampler.sample(None, &Sampled::new(&sample, ingress, &map, front, length));
                    }
                }
                Effect::Drop(_) => {}
            }
        }
    }

    /// Forwards a packet that came from no port like a learning bridge.
    fn inject_from_nowhere(&self, packet: &[u8], queue: u16) {
        let Some((dst, _)) = ether::addresses(packet) else { return };
        let known = |dst: MacAddr| {
            let vid = ether::vlan_tag(packet).map_or(0, |tag| tag.vid);
            self.plane.learning.fdb().lookup(logic::Key::new(vid, dst))
        };
        let map = self.plane.ports.load();
        let vid = ether::vlan_tag(packet).map_or(0, |tag| tag.vid);
        let choose = |bonds: &Bonds, bond| bonds.choose(bond, packet, vid, packet.len() as u32, true);
        let member = |port| map.bonds().and_then(|bonds| Some((bonds, bonds.member(port)?.bond)));
        let to: Vec<PortIndex> = match known(dst).filter(|_| !dst.is_multicast()) {
            Some(port) => match member(port) {
                Some((bonds, bond)) => choose(bonds, bond).into_iter().collect(),
                None if map.blocks(port).is_some() => Vec::new(),
                None => vec![port],
            },
            None => {
                let bonds = map.bonds().into_iter();
                let chosen = bonds.flat_map(|bonds| bonds.numbers().filter_map(|bond| choose(bonds, bond)));
                let own = map.all().iter().copied().filter(|port| member(*port).is_none());
                own.chain(chosen).filter(|port| map.floods(*port)).collect()
            }
        };
        if !to.is_empty() {
            _ = self.inject(packet, queue, Injection::To(to));
        }
    }

    /// Sends a packet into the bridge, in a queue; returns whether there was room.
    pub(crate) fn inject(&self, packet: &[u8], queue: u16, to: Injection) -> bool {
        let injector = self.injector.load();
        let inject = |injector: &Injector| injector.inject_in_class(packet, Offload::NONE, queue, to);
        let sent = injector.as_deref().is_some_and(|injector| inject(injector).is_ok());
        let counter = if sent { &self.figures.injected } else { &self.figures.not_injected };
        counter.fetch_add(1, Relaxed);
        sent
    }
}

/// Rehearses a packet as it was received.
fn rehearsed(switch: &Switch, call: &Upcall, now: u64) -> Rehearsal {
    let len = u32::try_from(call.packet.len()).unwrap_or(u32::MAX);
    switch.rehearse(PortNo(call.port), &call.packet, len, now)
}

/// Logs how a packet exceeds a limit, with the flows that it meets; flows may have changed meanwhile.
fn log_failure(bridge: &str, rehearsal: &Rehearsal) {
    let Some(failure) = rehearsal.failure else { return };
    let mut way = String::new();
    for step in &rehearsal.steps {
        // Writing to a string does not fail.
        let _ = write!(way, "\n{}", step.what);
        step.actions.iter().for_each(|actions| _ = write!(way, "\n    {actions}"));
    }
    tracing::info!(
        "bridge {bridge}: {failure} ({}), packet is dropped; flows that it meets:{way}",
        failure.limit()
    );
}

/// Follows the switch for the data path.
#[derive(Debug)]
pub(crate) struct Following(Arc<Core>);

impl Following {
    /// Compiles the program and follows the switch from now on.
    pub(crate) fn start(core: Arc<Core>, switch: &mut Switch) {
        switch.set_follower(|state| {
            core.plane.compiled.start(state);
            Box::new(Self(core))
        });
    }
}

impl Follower for Following {
    fn applied(&mut self, state: &State, bundle: &Bundle) {
        self.0.plane.compiled.applied(state, bundle);
    }

    fn only_normal(&mut self, flow: Option<OnlyFlow>) {
        self.0.plane.compiled.rest(flow.is_some());
        self.0.plane.only_normal.store(flow.map(Arc::new));
    }

    fn forgotten(&mut self, actions: &[ActionId]) {
        self.0.plane.compiled.forgotten(actions);
    }

    fn configured(&mut self, configs: &[(PortNo, PortConfig)]) {
        let mut ports = self.0.ports();
        ports.set_configs(configs);
        self.0.publish(&mut ports);
    }

    fn flags(&mut self, flags: u64) {
        self.0.plane.flags.store(flags, Relaxed);
        self.0.plane.compiled.expect_flags(flags);
    }

    fn bridge_ipfix(&mut self) -> Option<IpfixStats> {
        self.0.plane.sampler.load().as_ref()?.bridge_statistics()
    }

    fn set_ipfix(&mut self) -> Vec<IpfixStats> {
        self.0.plane.sampler.load().as_ref().map(|sampler| sampler.set_statistics()).unwrap_or_default()
    }

    fn counters(&mut self, port: PortNo) -> Option<PortCounters> {
        let index = self.0.plane.ports.load().index(port.0)?;
        let statistics = self.0.statistics.load();
        let snapshot = (statistics.as_ref()?)(index)?;
        let drops = |queue: &fabric::counters::QueueSnapshot| queue.drops.iter().sum::<u64>();
        let each = |queue: &fabric::counters::QueueSnapshot| (queue.packets, queue.bytes);
        let (rx, tx) = (&snapshot.rx, &snapshot.tx);
        Some(PortCounters {
            rx_packets: rx.iter().map(|queue| queue.packets).sum(),
            rx_bytes: rx.iter().map(|queue| queue.bytes).sum(),
            tx_packets: tx.iter().map(|queue| queue.packets).sum(),
            tx_bytes: tx.iter().map(|queue| queue.bytes).sum(),
            rx_dropped: rx.iter().map(drops).sum(),
            tx_dropped: tx.iter().map(drops).sum(),
            rx_queues: rx.iter().map(each).collect(),
            tx_queues: tx.iter().map(each).collect(),
            egress: snapshot
                .egress
                .iter()
                .map(|it| QueueCounters {
                    queue: it.queue.into(),
                    packets: it.packets,
                    bytes: it.bytes,
                    errors: it.dropped(),
                    age: it.age,
                })
                .collect(),
        })
    }
}
