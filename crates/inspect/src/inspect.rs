//! The logic.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::Duration;

use fabric::worker::Threads;
use fabric::{Batch, DropReason, PortIndex, PortSettings, SwitchLogic, Text, Value, VersionId};
use logic::excerpt::Mistake;
use logic::fragments::Fragments;
use logic::vlan::Vlans;
use logic::{
    Counter, Kind, Logic, LogicDescription, LogicError, ParamDescription, ParamKind, ParamValue, State,
    Table, TableSize, admits, params,
};
use packet::headers::protocol;

use crate::automaton::{Automaton, Refused};
use crate::flows::Flows;
use crate::frame::{Key, Kind as Payload, View};
use crate::list::{self, List, mistake};
use crate::rule::{Action, Rule, Transport};
use crate::scan::{self, Found, Scanner, Tracked};
use crate::stream::Position;
use crate::tally::{COUNTERS, Counts, Own};

pub(crate) const NAME: &str = "inspect";
const SUMMARY: &str = "patterns in payloads of TCP and UDP: drop, divert or count flows";

const DEFAULT: &str = "default";
const FILE: &str = "file";
const FLOWS: &str = "flows";
const IDLE: &str = "idle";
const GAPS: &str = "gaps";
const MEMORY: &str = "memory";

/// `inspect`, for the control plane.
pub const KIND: Kind = Kind {
    prefix: NAME,
    ending: None,
    summary: SUMMARY,
    describe: |_| Ok(describe()),
    build: |_, params| Ok(Arc::new(Inspect::new(params)?)),
};

/// Largest number of header bytes that a packet can have.
const MOST_HEADER: usize = 512;

/// Length of a flow in a hand-over: ends, ports, protocol and VLAN; then the rule and the time.
const KEY_LEN: u32 = 40;
const VALUE_LEN: u32 = 6;

fn describe() -> LogicDescription {
    let rule = "a rule, numbered from 1 to at most 128: `[tcp|udp] [port N|port N-M] /EXPRESSION/[i] -> ACTION`; the \
                actions are `drop`, `port NAME` and `count`";
    let default = "the port for packets about which no rule decides";
    let undecided = "they stay undecided: the next stage of a chain has them, and alone they are dropped";
    let text = ParamKind::Text { max: list::MAX_RULE };
    LogicDescription {
        name: NAME.into(),
        summary: SUMMARY.into(),
        params: vec![
            ParamDescription::new(DEFAULT, ParamKind::Port, default).optional(undecided),
            ParamDescription::new(FILE, text.clone(), "a file with further rules, one a line; `#` begins a comment")
                .optional("there are no further rules"),
            ParamDescription::new(FLOWS, ParamKind::number(8..=1 << 20, ""), "flows whose state is kept").or(65_536),
            ParamDescription::new(
                IDLE,
                ParamKind::Duration { min: Duration::from_secs(1), max: Duration::from_secs(86_400) },
                "time without a packet after which a flow is forgotten",
            )
            .or("5m"),
            ParamDescription::new(
                GAPS,
                ParamKind::choice(&["pass", "drop"]),
                "what happens to TCP segments in front of which bytes are missing: `pass` scans them by themselves",
            )
            .or("pass"),
            ParamDescription::new(MEMORY, ParamKind::number(1..=1024, "MiB"), "largest table of the patterns").or(64),
            ParamDescription::new("N", text, rule).optional("the list ends before it").of_any_name(),
        ],
        ..LogicDescription::default()
    }
}

/// The logic `inspect`. See the crate's documentation.
pub struct Inspect {
    /// The parameters in effect, rules in order.
    given: Vec<(String, String)>,
    default: Option<String>,
    drops_gaps: bool,
    pub(crate) list: List,
    automaton: Automaton,
    wanted: Wanted,
    pub(crate) flows: Flows,
    fragments: Fragments,
    pub(crate) counts: Counts,
    /// The port of each rule, then the default port.
    ports: Box<[AtomicU16]>,
}

/// The ports that rules ask for.
struct Wanted {
    /// Of TCP and of UDP: a bit for each port.
    ports: [Box<[u64]>; 2],
    /// Of TCP and of UDP: whether a rule asks for any port.
    any: [bool; 2],
}

impl Wanted {
    fn new(rules: &[Rule]) -> Self {
        let asks = |protocol: u8, port: Option<u16>| {
            let to = Transport { protocol: Some(protocol), ports: port.map(|port| [port, port]) };
            rules.iter().any(|rule| rule.applies(to))
        };
        let protocols = [protocol::TCP, protocol::UDP];
        let any = protocols.map(|protocol| asks(protocol, None));
        let ports = [0, 1].map(|kind| {
            let (Some(protocol), Some(any)) = (protocols.get(kind), any.get(kind)) else {
                return Box::default();
            };
            let mut words = vec![if *any { u64::MAX } else { 0 }; 1024].into_boxed_slice();
            for rule in rules.iter().filter(|_| !any) {
                for port in rule.ports_of(*protocol) {
                    if let Some(word) = words.get_mut(usize::from(port / 64)) {
                        *word |= 1 << (port % 64);
                    }
                }
            }
            words
        });
        Self { ports, any }
    }

    /// Returns whether any rule may apply.
    #[inline]
    fn has(&self, to: Transport) -> bool {
        let kind = match to.protocol {
            Some(protocol::TCP) => 0,
            Some(_) => 1,
            None => return true,
        };
        match (to.ports, self.ports.get(kind)) {
            (Some(ports), Some(words)) => ports.iter().any(|port| {
                words.get(usize::from(port / 64)).is_some_and(|word| word >> (port % 64) & 1 == 1)
            }),
            _ => self.any.get(kind).copied().unwrap_or(true),
        }
    }
}

/// Why a rule decides about a packet.
#[derive(Clone, Copy)]
enum Why {
    /// Its match ends at this byte of the payload.
    Match(usize),
    /// It has decided about the flow before.
    Flow,
    /// It has decided about another fragment.
    Fragment,
}

impl Inspect {
    /// Makes the logic.
    pub fn new(given: &[(String, String)]) -> Result<Self, LogicError> {
        let values = params::check(&describe(), given)?;
        let is_named =
            |name: &str| describe().params.iter().any(|param| !param.any_name && param.name == name);
        let text = |name: &str| Some(values.text(name).to_owned()).filter(|text| !text.is_empty());
        let numbered = given.iter().filter(|(name, _)| !is_named(name));
        let list = List::read(
            numbered.clone().map(|(name, text)| (name.as_str(), text.as_str())),
            text(FILE).as_deref(),
        )?;
        let patterns: Vec<_> = list.rules.iter().map(|rule| &rule.pattern).collect();
        let memory = usize::try_from(values.number(MEMORY)).unwrap_or(1);
        let automaton = Automaton::new(&patterns, memory).map_err(|refused| match refused {
            Refused::Pattern(number, message) => {
                let at = list.rules.get(number).map(|rule| rule.pattern_at);
                list.refused(number, &Mistake { at, message })
            }
            Refused::List(message) => mistake("N", message),
        })?;
        let idle = match values.get(IDLE) {
            Some(ParamValue::Duration(time)) => u32::try_from(time.as_secs()).unwrap_or(u32::MAX),
            _ => 300,
        };
        let flows = Flows::new(usize::try_from(values.number(FLOWS)).unwrap_or(8), idle);
        let rules = values.iter().filter(|(name, _)| !is_named(name));
        let rules: BTreeMap<usize, String> =
            rules.filter_map(|(name, text)| Some((name.parse().ok()?, text.to_string()))).collect();
        let named = values.to_text().into_iter().filter(|(name, _)| is_named(name));
        let given = named.chain(rules.into_iter().map(|(number, text)| (number.to_string(), text))).collect();
        let ports = (0..=list.rules.len()).map(|_| AtomicU16::new(PortIndex::NONE.0)).collect();
        Ok(Self {
            given,
            default: text(DEFAULT),
            drops_gaps: values.text(GAPS) == "drop",
            automaton,
            wanted: Wanted::new(&list.rules),
            flows,
            fragments: Fragments::default(),
            counts: Counts::new(list.rules.len()),
            ports,
            list,
        })
    }

    #[inline(always)]
    fn switch<const EXPLAINED: bool>(&self, batch: &mut Batch<'_>) {
        let own = self.counts.of(batch.worker(), batch.is_rehearsal());
        let security = batch.security();
        for v in batch.packets() {
            if security.is_some_and(|security| !admits(security, batch, v)) || !batch.is_open(v) {
                continue;
            }
            self.packet::<EXPLAINED>(batch, v, own);
        }
    }

    /// Decides about a packet.
    #[inline]
    fn packet<const EXPLAINED: bool>(&self, batch: &mut Batch<'_>, v: VersionId, own: Own<'_>) {
        let view = view(batch, v).filter(|view| self.wanted.has(view.transport));
        let Some(view) = view.filter(|_| !self.list.rules.is_empty()) else {
            own.add(|tally| &tally.uninspected, 1);
            if EXPLAINED {
                batch.remark(v, "it is not inspected: no rule asks for its protocol and ports", &[]);
            }
            return self.leave::<EXPLAINED>(batch, v);
        };
        let now = batch.now();
        let key = view.key.map(|key| (key, self.flows.tag(&key)));
        let flow = key.and_then(|(_, tag)| self.flows.find(tag, now));
        let is_rehearsal = batch.is_rehearsal();
        if let Some(flow) = flow.filter(|_| !is_rehearsal) {
            flow.touch(now);
        }
        if let Some(rule) = flow.and_then(|flow| flow.verdict()) {
            self.note_fragment(&view, rule, now, is_rehearsal);
            return self.apply::<EXPLAINED>(batch, v, own, rule, Why::Flow);
        }
        if let Payload::Fragment(of) = &view.kind {
            own.add(|tally| &tally.fragments, 1);
            if let Some(rule) = self.fragments.find(of, now).map(usize::from) {
                return self.apply::<EXPLAINED>(batch, v, own, rule, Why::Fragment);
            }
        }
        own.add(|tally| &tally.odd, u64::from(view.kind == Payload::Odd));
        // No byte is scanned that its sender could change before it is delivered.
        if view.end > batch.header(v).len() && view.len() > 0 && !batch.keep(v) {
            return;
        }
        let mut tracked = Tracked { flows: &self.flows, key, flow, now, own, is_rehearsal };
        let scanner =
            Scanner { rules: &self.list.rules, automaton: &self.automaton, drops_gaps: self.drops_gaps };
        let found = scanner.packet(&view, payload(batch, v, &view), &mut tracked);
        own.add(|tally| &tally.scanned_packets, u64::from(view.len() > 0));
        own.add(|tally| &tally.scanned_bytes, view.len() as u64);
        if EXPLAINED {
            self.explain_scan(batch, v, &view, &found);
        }
        if found.is_refused {
            own.add(|tally| &tally.dropped_gaps, 1);
            return batch.discard(v, DropReason::Logic);
        }
        match found.decision {
            Some((rule, end)) => {
                tracked.decide(rule);
                self.note_fragment(&view, rule, now, is_rehearsal);
                self.apply::<EXPLAINED>(batch, v, own, rule, Why::Match(end));
            }
            None => self.leave::<EXPLAINED>(batch, v),
        }
    }

    /// Remembers a verdict for the other fragments of a packet.
    fn note_fragment(&self, view: &View, rule: usize, now: u32, is_rehearsal: bool) {
        if let Payload::Fragment(of) = &view.kind
            && !is_rehearsal
        {
            self.fragments.note(of, u16::try_from(rule).ok(), now);
        }
    }

    /// Drops or diverts a packet.
    fn apply<const EXPLAINED: bool>(
        &self,
        batch: &mut Batch<'_>,
        v: VersionId,
        own: Own<'_>,
        number: usize,
        why: Why,
    ) {
        let Some(rule) = self.list.rules.get(number) else { return };
        if EXPLAINED {
            let [name, expression, action] = [&self.list.name(number), &rule.expression, &rule.action_text()]
                .map(|text| Value::Text(Text::of(text)));
            match why {
                Why::Match(end) => {
                    let values = [name, expression, Value::Number(end as u64), action];
                    batch.remark(v, "rule {}, `{}`, matches up to byte {} of the payload: {}", &values);
                }
                Why::Flow => {
                    let values = [name, expression, action];
                    batch.remark(v, "rule {}, `{}`, has matched earlier in this flow: {}", &values);
                }
                Why::Fragment => {
                    let values = [name, expression, action];
                    batch.remark(v, "rule {}, `{}`, has decided about this fragmented packet: {}", &values);
                }
            }
        }
        match rule.action {
            Action::Port(_) => {
                own.add(|tally| &tally.diverted, 1);
                if let Some(frame) = Vlans::of(batch).enter(batch, v) {
                    frame.send(batch, self.port(number));
                }
            }
            Action::Drop | Action::Count => {
                own.add(|tally| &tally.dropped, 1);
                batch.discard(v, DropReason::Logic);
            }
        }
    }

    /// Leaves a packet to the default port or to the next stage.
    #[inline]
    fn leave<const EXPLAINED: bool>(&self, batch: &mut Batch<'_>, v: VersionId) {
        if self.default.is_none() {
            return; // packets without a decision are dropped and counted as `no-destination`
        }
        let port = self.port(self.list.rules.len());
        if EXPLAINED {
            batch.remark(v, "it goes to the default port, {}", &[Value::Port(port)]);
        }
        if let Some(frame) = Vlans::of(batch).enter(batch, v) {
            frame.send(batch, port);
        }
    }

    /// Explains how a packet was scanned, and what was counted.
    #[cold]
    fn explain_scan(&self, batch: &mut Batch<'_>, v: VersionId, view: &View, found: &Found) {
        let len = Value::Number(view.len() as u64);
        let text = match (view.kind, found.position) {
            (Payload::Fragment(_), _) => "{} bytes of a fragment are scanned by themselves",
            (Payload::Odd, _) => {
                "its lengths contradict each other, or it hides its ports: {} bytes are scanned"
            }
            (_, Some(Position::Next { skip: 0, .. })) => "{} bytes are scanned where the stream was",
            (_, Some(Position::Next { .. } | Position::Old | Position::Between)) => {
                "{} bytes, of which some were scanned before, are scanned"
            }
            (_, Some(Position::Gap { .. })) if found.is_refused => {
                "bytes are missing in front of these {}: dropped"
            }
            (_, Some(Position::Gap { .. })) => {
                "bytes are missing in front of these {}, which are scanned alone"
            }
            _ => "{} bytes are scanned",
        };
        batch.remark(v, text, &[len]);
        if let Some((number, end)) = found.counted
            && let Some(rule) = self.list.rules.get(number)
        {
            let name = Value::Text(Text::of(self.list.name(number)));
            let values = [name, Value::Text(Text::of(&rule.expression)), Value::Number(end as u64)];
            batch.remark(v, "rule {}, `{}`, matches up to byte {} of the payload and counts it", &values);
        }
        if found.decision.is_none() && !found.is_refused {
            batch.remark(v, "no rule decides", &[]);
        }
    }

    #[inline]
    fn port(&self, place: usize) -> PortIndex {
        self.ports.get(place).map_or(PortIndex::NONE, |port| PortIndex(port.load(Relaxed)))
    }

    /// The names of the ports, in the order of `ports`.
    fn names(&self) -> impl Iterator<Item = Option<&str>> {
        let of_rule = self.list.rules.iter().map(|rule| match &rule.action {
            Action::Port(name) => Some(name.as_str()),
            _ => None,
        });
        of_rule.chain([self.default.as_deref()])
    }

    /// Name of the state with verdicts: that of another list has another one.
    fn state_name(&self) -> String {
        format!("inspect-verdicts-{:016x}", self.list.fingerprint())
    }
}

/// Finds the payload of a packet; brings more of it into its header if that is not enough.
#[inline]
fn view(batch: &mut Batch<'_>, v: VersionId) -> Option<View> {
    let len = batch.len(v) as usize;
    let vid = match batch.vlan_aware() {
        true => {
            let tag = packet::ether::vlan_tag(batch.header(v));
            batch.vlan(batch.ingress()).and_then(|mode| mode.ingress(tag))
        }
        false => None,
    };
    let found = View::of(batch.header(v), len, vid);
    let is_clear = |view: &View| view.kind != Payload::Odd && view.start <= batch.header(v).len();
    if found.as_ref().is_some_and(is_clear) || batch.header(v).len() >= len.min(MOST_HEADER) {
        return found;
    }
    // Neither TCP nor UDP, or headers that go on behind the private ones.
    batch.pull(v, MOST_HEADER);
    View::of(batch.header(v), len, vid)
}

/// The bytes of a packet's payload, those behind its header after [`Batch::keep`].
#[inline]
fn payload<'a>(batch: &'a Batch<'_>, v: VersionId, view: &View) -> scan::Payload<'a> {
    let header = batch.header(v);
    let front = header.get(view.start..view.end.min(header.len())).unwrap_or_default();
    let kept = batch.kept(v).unwrap_or_default();
    let from = view.start.saturating_sub(header.len());
    let back = view.end.checked_sub(header.len()).and_then(|to| kept.get(from..to)).unwrap_or_default();
    scan::Payload { front, back }
}

impl SwitchLogic for Inspect {
    fn forward(&self, batch: &mut Batch<'_>) {
        self.switch::<false>(batch);
    }

    fn explain(&self, batch: &mut Batch<'_>) -> bool {
        self.switch::<true>(batch);
        true
    }

    fn prepare(&self, threads: Threads) -> Result<(), String> {
        self.counts.prepare(threads)
    }

    fn ports_changed(&self, ports: &[(PortIndex, Arc<PortSettings>)]) {
        let by_name: BTreeMap<&str, u16> = ports.iter().map(|(i, port)| (port.name.as_str(), i.0)).collect();
        // Workers need each entry only by itself.
        for (entry, name) in self.ports.iter().zip(self.names()) {
            let port = name.and_then(|name| by_name.get(name)).copied();
            entry.store(port.unwrap_or(PortIndex::NONE.0), Relaxed);
        }
    }

    fn port_removed(&self, port: PortIndex) {
        for entry in &self.ports {
            let _ = entry.compare_exchange(port.0, PortIndex::NONE.0, Relaxed, Relaxed);
        }
    }
}

impl Logic for Inspect {
    fn name(&self) -> &str {
        NAME
    }

    fn params(&self) -> Vec<(String, String)> {
        self.given.clone()
    }

    fn named_ports(&self) -> Vec<String> {
        self.names().flatten().map(str::to_owned).collect()
    }

    fn is_outdated(&self) -> bool {
        self.list.is_outdated()
    }

    fn counters(&self) -> Vec<Counter> {
        let counter = |name: &str, help: &str, value| Counter { name: name.into(), help: help.into(), value };
        let counts = COUNTERS.iter().map(|(name, help, count)| counter(name, help, self.counts.sum(*count)));
        counts
            .chain([counter(
                "pattern_bytes",
                "memory of the patterns' table",
                self.automaton.memory() as u64,
            )])
            .collect()
    }

    fn tables(&self) -> Vec<Table> {
        vec![self.rule_table(), self.flow_table(fabric::clock::seconds())]
    }

    fn table_sizes(&self) -> Vec<TableSize> {
        let size = |name: &str, entries, capacity| TableSize { name: name.into(), entries, capacity };
        vec![
            size("rules", self.list.rules.len() as u64, list::MOST as u64),
            size("flows", self.flows.used(), self.flows.capacity()),
        ]
    }

    /// Hands over the flows with a verdict, for a successor with the same rules.
    fn hand_over(&self) -> Vec<State> {
        let flows = self.flows.iter(fabric::clock::seconds());
        let write = |flow: crate::flows::Listed| Some(write_flow(&flow.key, flow.verdict?, flow.seen));
        let entries: Vec<_> = flows.filter_map(write).flatten().collect();
        vec![State { name: self.state_name(), key_len: KEY_LEN, value_len: VALUE_LEN, entries }]
    }

    fn take_over(&self, states: &[State]) {
        let name = self.state_name();
        let lengths = (KEY_LEN, VALUE_LEN);
        let own =
            states.iter().filter(|state| state.name == name && (state.key_len, state.value_len) == lengths);
        for entry in own.flat_map(|state| state.entries.as_chunks::<{ (KEY_LEN + VALUE_LEN) as usize }>().0) {
            let Some((key, rule, seen)) = read_flow(entry) else { continue };
            if rule >= self.list.rules.len() {
                continue;
            }
            let tag = self.flows.tag(&key);
            let flow = self.flows.find(tag, seen).or_else(|| Some(self.flows.add(&key, tag, seen)?.0));
            if let Some(flow) = flow {
                flow.decide(rule);
            }
        }
    }

    fn tick(&self, now_seconds: u32) {
        self.flows.sweep(now_seconds);
    }
}

fn write_flow(key: &Key, rule: usize, seen: u32) -> Vec<u8> {
    let [a, b] = key.ends.map(u128::to_le_bytes);
    let [p, q] = key.ports.map(u16::to_le_bytes);
    let rest = (key.vlan << 8 | u32::from(key.protocol)).to_le_bytes();
    let rule = u16::try_from(rule).unwrap_or(u16::MAX).to_le_bytes();
    [&a[..], &b, &p, &q, &rest, &rule, &seen.to_le_bytes()].concat()
}

fn read_flow(entry: &[u8]) -> Option<(Key, usize, u32)> {
    let (a, rest) = entry.split_first_chunk()?;
    let (b, rest) = rest.split_first_chunk()?;
    let (p, rest) = rest.split_first_chunk()?;
    let (q, rest) = rest.split_first_chunk()?;
    let (more, rest) = rest.split_first_chunk()?;
    let (rule, rest) = rest.split_first_chunk()?;
    let more = u32::from_le_bytes(*more);
    let key = Key {
        ends: [u128::from_le_bytes(*a), u128::from_le_bytes(*b)],
        ports: [u16::from_le_bytes(*p), u16::from_le_bytes(*q)],
        protocol: more as u8,
        vlan: more >> 8,
    };
    Some((key, u16::from_le_bytes(*rule).into(), u32::from_le_bytes(*rest.first_chunk()?)))
}
