//! `middlebox`: sends TCP and UDP packets by port number to the ports where functions run.
//!
//! A function is a firewall, a proxy, an intrusion detector: a program behind a port. Ports with equal lists of port
//! numbers run instances of one function, which share its load conversation by conversation; both directions of a
//! conversation meet the same instance. Packets that no function asks for, and those that come from functions, go to
//! one port each, or to the next stage of a chain.
//!
//! | module    | idea                                              |
//! |-----------|---------------------------------------------------|
//! | `rules`   | the lists, and the function of a packet           |
//! | `buckets` | the instance of a conversation                    |
//! | `ports`   | the ports behind the names                        |
//!
//! Invariants: functions, instances and lists are fixed when the logic is made; workers read ports and buckets without
//! locks; a packet from a function is never sent to a function.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fabric::worker::{PerThread, Threads};
use fabric::{Batch, DropReason, Pattern, PortIndex, PortSettings, SwitchLogic, Value};
use packet::conversation::{Conversation, Front};
use packet::ether;

use crate::security::admits;
use crate::vlan::Vlans;
use crate::{
    Counter, Logic, LogicError, LogicInfo, ParamDescription, ParamKind, ParamValue, State, Table, TableSize,
    params,
};

mod buckets;
mod explain;
mod ports;
mod rules;

use buckets::{Bucket, Buckets, Slot};
use ports::Ports;
use rules::{Function, List, Rules};

pub(crate) const INFO: LogicInfo = LogicInfo {
    name: "middlebox",
    summary: "sends TCP and UDP packets by port number to the ports where functions run, and shares their load",
    params: param_descriptions,
    build: |params, _| Ok(Arc::new(Middlebox::new(params)?)),
};

fn param_descriptions() -> Vec<ParamDescription> {
    let (second, day) = (Duration::from_secs(1), Duration::from_secs(86_400));
    vec![
        ParamDescription::new("default", ParamKind::Port, "the port for packets that no function asks for")
            .optional("they are left to the next stage of a chain, else dropped"),
        ParamDescription::new(
            "return",
            ParamKind::Port,
            "the port for packets that come from functions, and for those from `default` that no function asks for",
        )
        .optional("packets from functions go to `default`"),
        ParamDescription::new(
            "idle",
            ParamKind::Duration { min: second, max: day },
            "silence after which conversations may move to another instance",
        )
        .or("300s"),
        ParamDescription::new(
            "without-instance",
            ParamKind::choice(&["drop", "default"]),
            "fate of packets while no instance of their function is up: dropped, or as if no function asked for them",
        )
        .or("drop"),
        ParamDescription::new(
            "PORT",
            ParamKind::Text { max: MAX_LIST },
            "the port numbers that the function behind PORT asks for, such as `80/tcp,8000-8099/tcp,53,dst:123/udp`; \
             ports with equal lists share the load",
        )
        .optional("no function runs there")
        .of_any_name(),
    ]
}

/// Longest list, bytes.
const MAX_LIST: u64 = 4096;

/// Most instances of all functions.
const MAX_INSTANCES: usize = 1024;

/// Most functions.
const MAX_FUNCTIONS: usize = 128;

/// Name of the state in which conversations are handed over: the key is the instance's port and the bucket (`u16`
/// each), the value the second of its last packet (`u32`).
const BUCKETS_STATE: &str = "middlebox-buckets";

/// Name of the state with the ports of instances that have their function for themselves, and so all of its
/// conversations: the key is the port (`u16`), the value the second of the hand-over (`u32`).
const SOLE_STATE: &str = "middlebox-sole-instances";

/// The logic `middlebox`. See the module's documentation.
pub struct Middlebox {
    given: Vec<(String, String)>,
    rules: Rules,
    functions: Vec<Running>,
    /// The function of each instance.
    function_of: Vec<Function>,
    ports: Ports,
    /// Seconds.
    idle: u32,
    drops_without_instance: bool,
    tallies: PerThread<Tally>,
    inherited: Mutex<Inherited>,
}

/// A function and the instances that run it.
struct Running {
    list: List,
    /// In the order of their ports' names.
    instances: Vec<Slot>,
    /// None while there is one instance.
    buckets: Buckets,
}

/// Packets counted by one thread.
#[derive(Default)]
struct Tally {
    matched: AtomicU64,
    unmatched: AtomicU64,
    returned: AtomicU64,
    without_instance: AtomicU64,
}

/// Packets of a batch.
#[derive(Default)]
struct Counts {
    matched: u16,
    unmatched: u16,
    returned: u16,
    without_instance: u16,
}

impl Counts {
    #[inline(always)]
    fn add(&mut self, verdict: Verdict, packets: u16) {
        // A batch has fewer packets than that.
        *match verdict {
            Verdict::To(_) => &mut self.matched,
            Verdict::Unmatched => &mut self.unmatched,
            Verdict::Returned => &mut self.returned,
            Verdict::WithoutInstance => &mut self.without_instance,
        } += packets;
    }
}

/// States of the logic before, until the ports are known.
#[derive(Default)]
struct Inherited {
    are_ports_known: bool,
    waiting: Vec<State>,
}

/// What is found about a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// An instance of its function is at this port.
    To(PortIndex),
    /// It comes from a function.
    Returned,
    /// No function asks for it.
    Unmatched,
    /// No instance of its function is up.
    WithoutInstance,
}

/// Where a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Destination {
    /// To a port.
    Port(PortIndex),
    /// To the next stage of a chain; without one it is dropped.
    Open,
    /// Nowhere.
    Drop,
}

impl Middlebox {
    /// Makes the logic. Parameters: a list of port numbers for each port where a function runs, and those of
    /// `mswitch logic list middlebox`.
    pub fn new(given: &[(String, String)]) -> Result<Self, LogicError> {
        let values = params::check(&INFO.describe(), given)?;
        let fixed = param_descriptions();
        let is_list = |name: &str| fixed.iter().all(|param| param.any_name || param.name != name);
        let lists: BTreeMap<&str, String> = values
            .iter()
            .filter(|(name, _)| is_list(name))
            .map(|(name, list)| (name, list.to_string()))
            .collect();
        let (mut rules, mut functions, mut function_of) =
            (Rules::default(), Vec::<Running>::new(), Vec::new());
        for (slot, (port, text)) in (0..).zip(&lists) {
            let refused = |expected: &str| LogicError::bad_value(INFO.name, port, text, expected);
            if usize::from(slot) >= MAX_INSTANCES {
                return Err(refused(&format!("at most {MAX_INSTANCES} ports with functions")));
            }
            let list = rules::read(text).ok_or_else(|| refused(rules::EXPECTED))?;
            let same = (0..).zip(&mut functions).find(|(_, function)| function.list == list);
            if let Some((number, function)) = same {
                function.instances.push(slot);
                function_of.push(number);
                if function.instances.len() == 2 {
                    function.buckets = Buckets::new();
                }
                continue;
            }
            let number = Function::try_from(functions.len()).unwrap_or(rules::NONE);
            if usize::from(number) >= MAX_FUNCTIONS {
                return Err(refused(&format!("at most {MAX_FUNCTIONS} different lists")));
            }
            for item in &list.0 {
                let holder = |held: Function| {
                    let first = functions.get(usize::from(held)).and_then(|held| held.instances.first());
                    let holder = first.and_then(|slot| lists.keys().nth(usize::from(*slot))).unwrap_or(port);
                    refused(&format!(
                        "a list equal to that of `{holder}`, which has some of `{item}`, or one without them,"
                    ))
                };
                rules.add(item, number).map_err(holder)?;
            }
            function_of.push(number);
            functions.push(Running { list, instances: vec![slot], buckets: Buckets::none() });
        }
        let of = |name| values.get(name).map(ParamValue::to_string);
        for role in ["default", "return"] {
            if let Some((port, list)) = of(role).and_then(|port| lists.get_key_value(port.as_str())) {
                let expected = format!("a port without functions (`{port}` has {list})");
                return Err(LogicError::bad_value(INFO.name, role, port, expected));
            }
        }
        let idle = match values.get("idle") {
            Some(ParamValue::Duration(idle)) => idle.as_secs(),
            _ => 0,
        };
        Ok(Self {
            given: values.to_text(),
            rules,
            ports: Ports::new(
                lists.keys().map(|name| (*name).to_owned()),
                functions.iter().map(|function| match function.instances[..] {
                    [only] => Some(only),
                    _ => None,
                }),
                of("default"),
                of("return"),
            ),
            functions,
            function_of,
            idle: u32::try_from(idle).unwrap_or(u32::MAX).max(1),
            drops_without_instance: values.text("without-instance") == "drop",
            tallies: PerThread::default(),
            inherited: Mutex::default(),
        })
    }

    /// Finds the destination of a conversation's packet. Does not change a bucket in a rehearsal.
    #[inline(always)]
    fn find(&self, batch: &Batch<'_>, packet: &Conversation) -> Verdict {
        let number = self.rules.find(packet);
        if let Some(port) = self.ports.only(number)
            && batch.reaches(port)
        {
            return Verdict::To(port);
        }
        let Some(function) = self.functions.get(usize::from(number)) else { return Verdict::Unmatched };
        let number = buckets::number(packet.hash());
        let now = batch.now();
        if let Some(bucket) = function.buckets.get(number)
            && bucket.heard == now
            && let Some(port) = self.ports.instance(bucket.slot)
            && batch.reaches(port)
        {
            return Verdict::To(port);
        }
        self.choose(batch, function, number, now)
    }

    /// Finds the destination of a bucket's first packet in this second, and remembers it.
    #[inline(never)]
    fn choose(&self, batch: &Batch<'_>, function: &Running, number: u16, now: u32) -> Verdict {
        let reached = |slot: Slot| self.ports.instance(slot).filter(|port| batch.reaches(*port));
        let mut old = function.buckets.get(number);
        // Another thread can be faster a few times at most: as many as there are threads.
        loop {
            let active = old.filter(|bucket| bucket.is_active(now, self.idle));
            let up = |slot: &Slot| reached(*slot).is_some();
            let candidates = || (0..).zip(&function.instances).filter(|(_, slot)| up(slot));
            let kept = active.map(|bucket| bucket.slot).filter(up);
            let chosen =
                kept.or_else(|| buckets::choose(number, candidates().map(|(rank, slot)| (*slot, rank))));
            let Some((slot, port)) = chosen.and_then(|slot| Some((slot, reached(slot)?))) else {
                return Verdict::WithoutInstance;
            };
            if batch.is_rehearsal() {
                return Verdict::To(port);
            }
            match function.buckets.replace(number, old, Bucket { slot, heard: now }) {
                Ok(()) => return Verdict::To(port),
                Err(newer) => old = newer,
            }
        }
    }

    /// Notes that a conversation's packet comes from an instance: it is alive, and if it is new here, the other
    /// direction meets the same instance.
    #[inline(always)]
    fn note(&self, batch: &Batch<'_>, packet: &Conversation, slot: Slot) {
        let own = self.function_of.get(usize::from(slot)).copied().unwrap_or(rules::NONE);
        let Some(function) = self.functions.get(usize::from(own)) else { return };
        // Functions may send other packets, too.
        if self.rules.find(packet) != own || batch.is_rehearsal() {
            return;
        }
        let (number, now) = (buckets::number(packet.hash()), batch.now());
        let old = function.buckets.get(number);
        if old.is_some_and(|bucket| bucket.slot == slot && bucket.heard == now) {
            return;
        }
        let is_up =
            |bucket: &Bucket| self.ports.instance(bucket.slot).is_some_and(|port| batch.reaches(port));
        let keeper = old.filter(|bucket| bucket.is_active(now, self.idle) && is_up(bucket));
        let slot = keeper.map_or(slot, |bucket| bucket.slot);
        // If another thread is faster, it has noted the same second.
        let _ = function.buckets.replace(number, old, Bucket { slot, heard: now });
    }

    /// Returns the destination of packets that no function asks for.
    fn unmatched(&self, batch: &Batch<'_>) -> Option<PortIndex> {
        match self.ports.default() {
            Some(default) if default == batch.ingress() => self.ports.back(),
            default => default,
        }
    }

    /// Switches packets one by one.
    fn switch<const EXPLAINED: bool>(&self, batch: &mut Batch<'_>, came_from: Option<Slot>) {
        let (back, unmatched) = (self.ports.back().or(self.ports.default()), self.unmatched(batch));
        let vlans = Vlans::of(batch);
        let mut counts = Counts::default();
        for v in batch.packets() {
            if let Some(security) = batch.security()
                && !ether::addresses(batch.header(v)).is_some_and(|(_, src)| admits(security, batch, v, src))
            {
                continue;
            }
            let Some(frame) = vlans.enter(batch, v) else { continue };
            let v = frame.version();
            let packet = Conversation::of(batch.header(v));
            let verdict = self.judge(batch, packet.as_ref(), came_from);
            counts.add(verdict, 1);
            if EXPLAINED {
                self.remark(batch, v, packet.as_ref(), verdict);
            }
            match self.destination(verdict, back, unmatched) {
                Destination::Port(port) => {
                    if EXPLAINED {
                        batch.remark(v, "it goes to {}", &[Value::Port(port)]);
                    }
                    frame.send(batch, port);
                }
                Destination::Drop => batch.discard(v, DropReason::Logic),
                Destination::Open => {}
            }
        }
        self.count(batch, &counts);
    }

    #[inline(always)]
    fn judge(&self, batch: &Batch<'_>, packet: Option<&Conversation>, came_from: Option<Slot>) -> Verdict {
        match (came_from, packet) {
            (Some(slot), packet) => {
                packet.iter().for_each(|packet| self.note(batch, packet, slot));
                Verdict::Returned
            }
            (None, Some(packet)) => self.find(batch, packet),
            (None, None) => Verdict::Unmatched,
        }
    }

    fn destination(
        &self,
        verdict: Verdict,
        back: Option<PortIndex>,
        unmatched: Option<PortIndex>,
    ) -> Destination {
        let port = match verdict {
            Verdict::To(port) => Some(port),
            Verdict::Returned => back,
            Verdict::Unmatched => unmatched,
            Verdict::WithoutInstance if self.drops_without_instance => return Destination::Drop,
            Verdict::WithoutInstance => unmatched,
        };
        port.map_or(Destination::Open, Destination::Port)
    }

    /// [`Middlebox::switch`] in the plain case: no port security at the ingress port, no VLAN settings at any port.
    /// Consecutive packets of one conversation are looked up once, and consecutive packets to one port are sent
    /// together.
    // A function of its own, so that the other cases do not change how this loop is compiled.
    #[inline(never)]
    fn switch_plain(&self, batch: &mut Batch<'_>, came_from: Option<Slot>) {
        let (back, unmatched) = (self.ports.back().or(self.ports.default()), self.unmatched(batch));
        // The packets `first..end` go to `port` by the verdict `found`, and are not sent yet. Without such packets, no
        // packet has the number `end`.
        const NO_PACKET: u16 = u16::MAX;
        let (mut found, mut port) = (Verdict::Unmatched, PortIndex::NONE);
        let (mut first, mut end) = (NO_PACKET, NO_PACKET);
        let mut counts = Counts::default();
        let mut packets = batch.packets();
        while let Some(v) = packets.next() {
            let (number, front) = (v.number() as u16, Front::of(batch.header(v)));
            let plain = front.and_then(Front::conversation);
            let packet = plain.or_else(|| Conversation::of(batch.header(v)));
            let verdict = self.judge(batch, packet.as_ref(), came_from);
            let to = match self.destination(verdict, back, unmatched) {
                Destination::Port(to) => to,
                nowhere => {
                    if nowhere == Destination::Drop {
                        batch.discard(v, DropReason::Logic);
                    }
                    counts.add(verdict, 1);
                    continue;
                }
            };
            if to != port || number != end || verdict != found {
                counts.add(found, end - first);
                send(batch, first, end, port);
                (found, first, port) = (verdict, number, to);
            }
            end = number + 1;
            // Other packets can be of one conversation although their fronts differ, and the reverse.
            if let Some(front) = plain.and(front) {
                let [same, of_any_length] = [Front::CONVERSATION_AND_LENGTH, Front::CONVERSATION]
                    .map(|bits| Pattern::new(*front.bytes(), bits));
                end += packets.pass_alike(batch, |header| {
                    let Some(next) = Front::of(header) else { return false };
                    same.fits(next.bytes()) || next.has_ports() && of_any_length.fits(next.bytes())
                });
            }
        }
        counts.add(found, end - first);
        send(batch, first, end, port);
        self.count(batch, &counts);
    }

    /// Adds the packets of a batch to the counters of its thread.
    fn count(&self, batch: &Batch<'_>, counts: &Counts) {
        if let (false, Some(tally)) = (batch.is_rehearsal(), self.tallies.get(batch.worker())) {
            for (counter, packets) in [
                (&tally.matched, counts.matched),
                (&tally.unmatched, counts.unmatched),
                (&tally.returned, counts.returned),
                (&tally.without_instance, counts.without_instance),
            ] {
                // Only this thread writes it.
                counter.store(counter.load(Relaxed).wrapping_add(packets.into()), Relaxed);
            }
        }
    }

    fn total(&self, counter: impl Fn(&Tally) -> &AtomicU64) -> u64 {
        self.tallies.iter().map(|(_, tally)| counter(tally).load(Relaxed)).fold(0, u64::wrapping_add)
    }

    /// Takes over the conversations of instances that are instances here too. Those that have been used here already are
    /// newer.
    fn inherit(&self, states: &[State]) {
        let at = |port: [u8; 2]| {
            let slot = self.ports.slot(PortIndex(u16::from_le_bytes(port)))?;
            let function = self.function_of.get(usize::from(slot))?;
            Some((slot, &self.functions.get(usize::from(*function))?.buckets))
        };
        for [port, high, number, number_high, heard @ ..] in State::entries::<8>(states, BUCKETS_STATE, 4) {
            if let Some((slot, buckets)) = at([port, high]) {
                let heard = u32::from_le_bytes(heard);
                buckets.inherit(u16::from_le_bytes([number, number_high]), Bucket { slot, heard });
            }
        }
        for [port, high, heard @ ..] in State::entries::<6>(states, SOLE_STATE, 2) {
            if let Some((slot, buckets)) = at([port, high]) {
                let heard = u32::from_le_bytes(heard);
                (0..=u16::MAX).for_each(|number| buckets.inherit(number, Bucket { slot, heard }));
            }
        }
    }
}

/// Sends the packets `first..end`. A single one is not worth a range.
#[inline(always)]
fn send(batch: &mut Batch<'_>, first: u16, end: u16, port: PortIndex) {
    match batch.version(first.into()).filter(|_| end.wrapping_sub(first) == 1) {
        Some(single) => batch.send(single, port),
        None => batch.send_range(first, end, port),
    }
}

impl SwitchLogic for Middlebox {
    fn forward(&self, batch: &mut Batch<'_>) {
        let came_from = self.ports.slot(batch.ingress());
        match batch.security().is_none() && !batch.vlan_aware() {
            true => self.switch_plain(batch, came_from),
            false => self.switch::<false>(batch, came_from),
        }
    }

    fn explain(&self, batch: &mut Batch<'_>) -> bool {
        self.switch::<true>(batch, self.ports.slot(batch.ingress()));
        true
    }

    fn prepare(&self, threads: Threads) -> Result<(), String> {
        self.tallies.prepare(threads, |_| Ok(Tally::default()))
    }

    fn ports_changed(&self, ports: &[(PortIndex, Arc<PortSettings>)]) {
        self.ports.set(ports.iter().map(|(index, settings)| (settings.name.as_str(), *index)));
        let mut inherited = self.inherited.lock().unwrap_or_else(PoisonError::into_inner);
        inherited.are_ports_known = true;
        self.inherit(&std::mem::take(&mut inherited.waiting));
    }

    fn port_removed(&self, port: PortIndex) {
        self.ports.remove(port);
    }
}

impl Logic for Middlebox {
    fn name(&self) -> &str {
        INFO.name
    }

    fn params(&self) -> Vec<(String, String)> {
        self.given.clone()
    }

    fn named_ports(&self) -> Vec<String> {
        self.ports.names()
    }

    fn counters(&self) -> Vec<Counter> {
        let counter = |name: &str, help: &str, value| Counter { name: name.into(), help: help.into(), value };
        vec![
            counter("matched", "packets sent to a function", self.total(|tally| &tally.matched)),
            counter("unmatched", "packets that no function asks for", self.total(|tally| &tally.unmatched)),
            counter("returned", "packets that came from functions", self.total(|tally| &tally.returned)),
            counter(
                "without_instance",
                "packets whose function had no instance that was up",
                self.total(|tally| &tally.without_instance),
            ),
        ]
    }

    fn tables(&self) -> Vec<Table> {
        vec![self.instances()]
    }

    fn table_sizes(&self) -> Vec<TableSize> {
        let entries = self.functions.iter().map(|function| function.instances.len() as u64).sum();
        vec![TableSize { name: "instances".into(), entries, capacity: MAX_INSTANCES as u64 }]
    }

    fn hand_over(&self) -> Vec<State> {
        let port = |slot: Slot| Some(self.ports.instance(slot)?.0.to_le_bytes());
        let buckets = self.functions.iter().flat_map(|function| function.buckets.iter());
        let buckets = buckets.filter_map(|(number, Bucket { slot, heard })| {
            let ([port, high], [number, number_high], [a, b, c, d]) =
                (port(slot)?, number.to_le_bytes(), heard.to_le_bytes());
            Some([port, high, number, number_high, a, b, c, d])
        });
        let [a, b, c, d] = fabric::clock::seconds().to_le_bytes();
        let soles = self.functions.iter().filter_map(|function| match function.instances[..] {
            [slot] => port(slot).map(|[port, high]| [port, high, a, b, c, d]),
            _ => None,
        });
        vec![State::new(BUCKETS_STATE, 4, buckets), State::new(SOLE_STATE, 2, soles)]
    }

    fn take_over(&self, states: &[State]) {
        let mut inherited = self.inherited.lock().unwrap_or_else(PoisonError::into_inner);
        match inherited.are_ports_known {
            true => self.inherit(states),
            false => inherited.waiting = states.to_vec(),
        }
    }
}
