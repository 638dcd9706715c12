//! The logic.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bpf_jit::Verdict as Found;
use fabric::worker::{PerThread, Threads};
use fabric::{Batch, DropReason, PortIndex, PortSettings, SwitchLogic, Text, Value, VersionId};
use logic::vlan::Vlans;
use logic::{
    Counter, Kind, Logic, LogicDescription, LogicError, ParamDescription, ParamKind, Table, admits, params,
};

use crate::edit::{self, Edit};
use crate::filters::{Filters, Refused};
use crate::hits::{Hit, Hits};
use crate::rule::{Rule, Verdict};
use logic::excerpt::{Mistake, show};

const NAME: &str = "pcap-filter";
const SUMMARY: &str = "tcpdump expressions with actions: drop, divert to a port, change";
const DEFAULT: &str = "default";

/// `pcap-filter`, for the control plane.
pub const KIND: Kind = Kind {
    prefix: NAME,
    ending: None,
    summary: SUMMARY,
    describe: |_| Ok(describe()),
    build: |_, params| Ok(Arc::new(PcapFilter::new(params)?)),
};

/// Longest text of a rule, bytes: bounds what libpcap takes for its expression.
const MAX_RULE: u64 = 1024;

/// Most rules.
const MAX_RULES: usize = 128;

/// Packets at a time.
const CHUNK: usize = 64;

/// Largest number of header bytes that a packet can have.
const MOST_HEADER: usize = 512;

/// Longest packet, bytes.
const LONGEST: usize = 65_535;

fn describe() -> LogicDescription {
    let rule = "a rule, numbered from 1 to at most 128: `EXPRESSION -> ACTION, ...`; the actions are `set vlan N`, \
                `set mac-src ADDRESS`, `set mac-dst ADDRESS`, `set ttl N`, `set dscp N`, then `drop`, `port NAME`, \
                `pass` or `next`";
    let default = "the port for packets that no expression keeps, or that a rule lets pass";
    LogicDescription {
        name: NAME.into(),
        summary: SUMMARY.into(),
        params: vec![
            ParamDescription::new(DEFAULT, ParamKind::Port, default).optional(
                "they stay undecided: the next stage of a chain has them, and alone they are dropped",
            ),
            ParamDescription::new("N", ParamKind::Text { max: MAX_RULE }, rule)
                .optional("the list ends before it")
                .of_any_name(),
        ],
        ..LogicDescription::default()
    }
}

/// The logic `pcap-filter`. See the crate's documentation.
pub struct PcapFilter {
    /// The parameters as given, `default` first, rules in order.
    given: Vec<(String, String)>,
    rules: Vec<Rule>,
    default: Option<String>,
    filters: Filters,
    hits: Hits,
    /// The port of each rule, then the default port.
    ports: Box<[AtomicU16]>,
    /// Room for a whole packet, for expressions that look far into it.
    whole: PerThread<Mutex<Box<[u8]>>>,
}

impl PcapFilter {
    /// Makes the logic.
    pub fn new(given: &[(String, String)]) -> Result<Self, LogicError> {
        params::check(&describe(), given)?;
        let texts = in_order(given)?;
        let refused = |number: usize, mistake: &Mistake| LogicError::Mistake {
            logic: NAME.into(),
            param: (number + 1).to_string(),
            message: show(texts.get(number).copied().unwrap_or_default(), mistake),
        };
        let read =
            |(number, text): (usize, &&str)| Rule::read(text).map_err(|mistake| refused(number, &mistake));
        let rules = texts.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
        let expressions: Vec<_> = rules.iter().map(|rule| rule.expression.as_str()).collect();
        let goes_on = |(_, rule): &(usize, &Rule)| rule.verdict == Verdict::Next;
        let resume: Vec<_> = rules.iter().enumerate().filter(goes_on).map(|(number, _)| number).collect();
        let filters = Filters::new(&expressions, &resume).map_err(|error| match error {
            Refused::Expression(number, mistake) => {
                // Places are those of the expression, which may follow blanks.
                let text = texts.get(number).copied().unwrap_or_default();
                let blanks = text.len() - text.trim_start().len();
                refused(number, &Mistake { at: mistake.at.map(|at| at + blanks), ..mistake })
            }
            Refused::List(message) => LogicError::Mistake { logic: NAME.into(), param: "N".into(), message },
        })?;
        let ports = (0..=rules.len()).map(|_| AtomicU16::new(PortIndex::NONE.0)).collect();
        let default = given.iter().find(|(name, _)| name == DEFAULT).map(|(_, port)| port.clone());
        let hits = Hits::new(rules.len());
        let texts = (1..).zip(&texts).map(|(number, text)| (number.to_string(), (*text).to_owned()));
        let given = default.iter().map(|port| (DEFAULT.to_owned(), port.clone())).chain(texts).collect();
        Ok(Self { given, rules, default, filters, hits, ports, whole: PerThread::default() })
    }

    #[inline(always)]
    fn switch<const EXPLAINED: bool>(&self, batch: &mut Batch<'_>) {
        let hits = if batch.is_rehearsal() { &[] } else { self.hits.of(batch.worker()) };
        if let Some(security) = batch.security() {
            for v in batch.packets() {
                admits(security, batch, v);
            }
        }
        let mut packets = batch.packets();
        loop {
            let mut versions = [VersionId::FIRST; CHUNK];
            let mut found = [None; CHUNK];
            let mut count = 0;
            let chunk = packets.by_ref().take(CHUNK).zip(&mut versions).map(|(v, place)| {
                *place = v;
                count += 1;
                (batch.header(v), batch.len(v))
            });
            self.filters.run(chunk, |number, verdict| {
                if let Some(place) = found.get_mut(number) {
                    *place = Some(verdict);
                }
            });
            for (v, found) in versions.iter().zip(found).take(count) {
                if batch.security().is_none() || batch.is_open(*v) {
                    self.decide::<EXPLAINED>(batch, *v, found, hits);
                }
            }
            if count < CHUNK {
                return;
            }
        }
    }

    /// Applies rules to a packet, from the first one that keeps it on.
    #[inline(always)]
    fn decide<const EXPLAINED: bool>(
        &self,
        batch: &mut Batch<'_>,
        mut v: VersionId,
        mut found: Option<Found>,
        hits: &[Hit],
    ) {
        let mut is_kept = false;
        loop {
            if let Some(Found::NeedsMore(number)) = found {
                found = self.look_further(batch, v, number);
            }
            let Some(Found::Match(number, _)) = found else {
                count(hits, self.rules.len(), batch.len(v));
                if EXPLAINED {
                    let text =
                        if is_kept { "no further expression keeps it" } else { "no expression keeps it" };
                    batch.remark(v, text, &[]);
                }
                return self.leave::<EXPLAINED>(batch, v);
            };
            is_kept = true;
            let Some(rule) = self.rules.get(number) else { return };
            count(hits, number, batch.len(v));
            if EXPLAINED {
                let values = [
                    Value::Number(number as u64 + 1),
                    Value::Text(Text::of(&rule.expression)),
                    Value::Text(Text::of(&rule.actions)),
                ];
                batch.remark(v, "expression {}, `{}`, keeps it: {}", &values);
            }
            match rule.verdict {
                Verdict::Drop => return batch.discard(v, DropReason::Logic),
                Verdict::Port(_) => return self.send(batch, v, rule, number),
                Verdict::Pass => {
                    if let Some(v) = changed(batch, v, rule.edits.iter()) {
                        self.leave::<EXPLAINED>(batch, v);
                    }
                    return;
                }
                Verdict::Next => {
                    let Some(edited) = changed(batch, v, rule.edits.iter()) else { return };
                    v = edited;
                    found = self.filters.resume(number, batch.header(v), batch.len(v));
                    debug_assert!(
                        found.is_none_or(|found| found.number() > number),
                        "a packet meets a rule once"
                    );
                }
            }
        }
    }

    /// Finds the first expression from `number` on that keeps a packet of which the header is not enough.
    #[cold]
    fn look_further(&self, batch: &mut Batch<'_>, v: VersionId, number: usize) -> Option<Found> {
        batch.pull(v, MOST_HEADER);
        let found = self.filters.interpret(number, batch.header(v), batch.len(v));
        let Some(Found::NeedsMore(number)) = found else { return found };
        let interpret = |bytes: &mut [u8]| {
            let read = batch.read(v, 0, bytes);
            self.filters.interpret(number, bytes.get(..read).unwrap_or_default(), batch.len(v))
        };
        let own = if batch.is_rehearsal() { None } else { self.whole.get(batch.worker()) };
        // A thread has its own, so that it never waits for another.
        match own.and_then(|whole| whole.try_lock().ok()) {
            Some(mut whole) => interpret(&mut whole),
            None => interpret(&mut vec![0; LONGEST]),
        }
    }

    /// Sends a packet to the port of a rule.
    fn send(&self, batch: &mut Batch<'_>, v: VersionId, rule: &Rule, number: usize) {
        let vlan = rule.edits.iter().rev().find_map(|edit| match edit {
            Edit::Vlan(vid) => Some(*vid),
            _ => None,
        });
        let others = rule.edits.iter().filter(|edit| !matches!(edit, Edit::Vlan(_)));
        let Some(v) = changed(batch, v, others) else { return };
        // The frame enters in the VLAN that it came with, and goes on in the rule's.
        let Some(mut frame) = Vlans::of(batch).enter(batch, v) else { return };
        if vlan.is_none_or(|vid| frame.retag(batch, vid)) {
            frame.send(batch, self.port(number));
        }
    }

    /// Leaves a packet to the default port or to the next stage.
    #[inline(always)]
    fn leave<const EXPLAINED: bool>(&self, batch: &mut Batch<'_>, v: VersionId) {
        if self.default.is_none() {
            return; // packets without a decision are dropped and counted as `no-destination`
        }
        let port = self.port(self.rules.len());
        if EXPLAINED {
            batch.remark(v, "it goes to the default port, {}", &[Value::Port(port)]);
        }
        if let Some(frame) = Vlans::of(batch).enter(batch, v) {
            frame.send(batch, port);
        }
    }

    #[inline]
    fn port(&self, place: usize) -> PortIndex {
        self.ports.get(place).map_or(PortIndex::NONE, |port| PortIndex(port.load(Relaxed)))
    }

    /// The names of the ports, in the order of `ports`.
    fn names(&self) -> impl Iterator<Item = Option<&str>> {
        let of_rule = self.rules.iter().map(|rule| match &rule.verdict {
            Verdict::Port(name) => Some(name.as_str()),
            _ => None,
        });
        of_rule.chain([self.default.as_deref()])
    }
}

/// Returns the texts of rules in the order of their numbers.
fn in_order(given: &[(String, String)]) -> Result<Vec<&str>, LogicError> {
    let mut texts = BTreeMap::new();
    for (name, text) in given.iter().filter(|(name, _)| name != DEFAULT) {
        let number = name.parse().ok().filter(|number| (1..=MAX_RULES).contains(number));
        let Some(number) = number.filter(|number| number.to_string() == *name) else {
            let message =
                format!("rules are numbered from 1 to {MAX_RULES}, such as 1='tcp port 23 -> drop'");
            return Err(LogicError::Mistake { logic: NAME.into(), param: name.clone(), message });
        };
        texts.insert(number, text.as_str());
    }
    for (number, expected) in texts.keys().zip(1..) {
        if *number != expected {
            let message =
                format!("the rule is missing, but there is a rule {number}: number rules from 1 on");
            return Err(LogicError::Mistake { logic: NAME.into(), param: expected.to_string(), message });
        }
    }
    Ok(texts.into_values().collect())
}

#[inline]
fn count(hits: &[Hit], number: usize, bytes: u32) {
    if let Some(hit) = hits.get(number) {
        hit.add(bytes);
    }
}

/// Changes a packet; `None` if it was dropped for lack of room.
fn changed<'a>(
    batch: &mut Batch<'_>,
    v: VersionId,
    mut edits: impl Iterator<Item = &'a Edit>,
) -> Option<VersionId> {
    edits.try_fold(v, |v, edit| edit::apply(*edit, batch, v))
}

impl SwitchLogic for PcapFilter {
    fn forward(&self, batch: &mut Batch<'_>) {
        self.switch::<false>(batch);
    }

    fn explain(&self, batch: &mut Batch<'_>) -> bool {
        self.switch::<true>(batch);
        true
    }

    fn prepare(&self, threads: Threads) -> Result<(), String> {
        self.hits.prepare(threads)?;
        self.whole.prepare(threads, |_| Ok(Mutex::new(vec![0; LONGEST].into_boxed_slice())))
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

impl Logic for PcapFilter {
    fn name(&self) -> &str {
        NAME
    }

    fn params(&self) -> Vec<(String, String)> {
        self.given.clone()
    }

    fn named_ports(&self) -> Vec<String> {
        self.names().flatten().map(str::to_owned).collect()
    }

    fn counters(&self) -> Vec<Counter> {
        let (packets, bytes) = self.hits.unmatched();
        let counter = |name: &str, help: &str, value| Counter { name: name.into(), help: help.into(), value };
        vec![
            counter("unmatched", "packets about which no rule decided", packets),
            counter("unmatched_bytes", "their bytes", bytes),
            counter(
                "code_bytes",
                "machine code; 0: expressions are interpreted",
                self.filters.code_len() as u64,
            ),
        ]
    }

    fn tables(&self) -> Vec<Table> {
        let row = |(number, rule): (usize, &Rule)| {
            let (packets, bytes) = self.hits.sum(number);
            vec![
                (number + 1).to_string(),
                packets.to_string(),
                bytes.to_string(),
                rule.expression.clone(),
                rule.actions.clone(),
            ]
        };
        let columns = ["rule", "packets", "bytes", "expression", "actions"];
        vec![Table {
            name: "rules".into(),
            columns: columns.map(str::to_owned).to_vec(),
            rows: self.rules.iter().enumerate().map(row).collect(),
            capacity: MAX_RULES as u64,
        }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(given: &[(&str, &str)]) -> Result<PcapFilter, String> {
        let given: Vec<_> = given.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect();
        PcapFilter::new(&given).map_err(|error| error.to_string())
    }

    fn refused(given: &[(&str, &str)]) -> String {
        made(given).err().unwrap_or_else(|| panic!("{given:?} was accepted"))
    }

    #[test]
    fn parameters_are_rules_by_number() {
        let given =
            (1..=12).map(|number| (number.to_string(), format!("tcp port {number} -> port p{number}")));
        let given: Vec<_> = given.rev().chain([("default".into(), "d".into())]).collect();
        let logic = PcapFilter::new(&given).unwrap_or_else(|error| panic!("{error}"));
        let params = logic.params();
        assert_eq!(params[0], ("default".into(), "d".into()));
        assert_eq!(params[12], ("12".into(), "tcp port 12 -> port p12".into()));
        assert_eq!(logic.named_ports().len(), 13);
        assert_eq!(logic.tables()[0].rows[1], ["2", "0", "0", "tcp port 2", "port p2"]);
        let again = PcapFilter::new(&params).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(again.params(), params);
        assert_eq!(params::check_description(&describe()), Ok(()));
        assert!(made(&[]).is_ok(), "no rule at all");
    }

    #[test]
    fn mistakes_name_the_rule() {
        let said = refused(&[("1", "arp -> drop"), ("2", "  tcp prot 5 -> drop")]);
        let expected =
            "parameter `2` of logic `pcap-filter`: syntax error\n    tcp prot 5 -> drop\n        ^";
        assert_eq!(said, expected);
        assert!(
            refused(&[("2", "arp -> drop")]).starts_with("parameter `1` of logic `pcap-filter`: the rule is")
        );
        for name in ["0", "129", "01", "x", ""] {
            assert!(refused(&[(name, "arp -> drop")]).contains("rules are numbered from 1 to 128"), "{name}");
        }
        assert!(refused(&[("default", "")]).contains("the name of a port is expected"));
        assert!(refused(&[("1", &"x".repeat(1025))]).contains("a text of up to 1024 bytes"));
    }
}
