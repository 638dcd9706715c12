//! `static`: every port is wired to exactly one other port.
//!
//! A wire forwards everything, addresses reserved for bridges (IEEE 802.1Q table 8-1) included, so that link protocols
//! work through it; VLAN settings of its two ends apply as in a bridge (IEEE 802.1Q §8.6).
//!
//! Invariants: the partners are named once, when the logic is made; names are resolved to indexes whenever the ports
//! change, into a table that workers read without locks; each packet meets a partner that was or is right.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use fabric::port::MAX_PORTS;
use fabric::{Batch, PortIndex, PortSettings, SwitchLogic, Text, Value};
use packet::ether;

use crate::security::admits;
use crate::vlan::Vlans;
use crate::{Logic, LogicError, LogicInfo, ParamDescription, ParamKind, params};

pub(crate) const INFO: LogicInfo = LogicInfo {
    name: "static",
    summary: "wires: every port goes to exactly one other port",
    params: param_descriptions,
    build: |params, _| Ok(Arc::new(StaticPairs::new(params)?)),
};

fn param_descriptions() -> Vec<ParamDescription> {
    let help = "the port that PORT sends to; wired back too unless that port is given a partner of its own";
    let otherwise = "ports are paired by their indexes: 0 and 1, 2 and 3, ...";
    vec![ParamDescription::new("PORT", ParamKind::Port, help).optional(otherwise).of_any_name()]
}

/// No partner. Not an index: bridges have fewer ports.
const NONE: u16 = u16::MAX;

/// The logic `static`. See the module's documentation.
pub struct StaticPairs {
    given: Vec<(String, String)>,
    /// Partner of each port, by name.
    partners: BTreeMap<String, String>,
    table: Box<[AtomicU16]>,
}

impl StaticPairs {
    /// Makes the logic. Parameters: pairs of port names; without any, neighbouring indexes are paired.
    pub fn new(given: &[(String, String)]) -> Result<Self, LogicError> {
        params::check(&INFO.describe(), given)?;
        for (port, partner) in given {
            if port.is_empty() {
                return Err(LogicError::bad_value(
                    INFO.name,
                    port,
                    partner,
                    "PORT=PARTNER, two names of ports,",
                ));
            }
            if port == partner {
                return Err(LogicError::bad_value(INFO.name, port, partner, "a port other than itself"));
            }
        }
        let table = (0..MAX_PORTS).map(|_| AtomicU16::new(NONE)).collect();
        Ok(Self { given: given.to_vec(), partners: both_ways(given)?, table })
    }
}

/// Adds the way back of pairs where none was given.
fn both_ways(given: &[(String, String)]) -> Result<BTreeMap<String, String>, LogicError> {
    let forth: BTreeMap<_, _> = given.iter().cloned().collect();
    let mut both = forth.clone();
    for (port, partner) in given.iter().filter(|(_, partner)| !forth.contains_key(partner)) {
        if let Some(first) = both.insert(partner.clone(), port.clone()) {
            let (partner, second) = (partner.clone(), port.clone());
            return Err(LogicError::AmbiguousPartner { partner, first, second });
        }
    }
    Ok(both)
}

impl StaticPairs {
    #[inline(always)]
    fn switch<const EXPLAINED: bool>(&self, batch: &mut Batch<'_>) {
        let partner = self.table.get(usize::from(batch.ingress().0)).map_or(NONE, |to| to.load(Relaxed));
        if partner == NONE {
            if EXPLAINED {
                self.remark_loose_end(batch);
            }
            return; // packets without a decision are dropped and counted as `no-destination`
        }
        let vlans = Vlans::of(batch);
        let security = batch.security();
        if !EXPLAINED && security.is_none() && !vlans.are_aware() {
            return batch.send_all(PortIndex(partner));
        }
        for v in batch.packets() {
            if let Some(security) = security
                && !ether::addresses(batch.header(v)).is_some_and(|(_, src)| admits(security, batch, v, src))
            {
                continue;
            }
            if let Some(frame) = vlans.enter(batch, v) {
                if EXPLAINED {
                    let wire = [Value::Port(batch.ingress()), Value::Port(PortIndex(partner))];
                    batch.remark(v, "{} is wired to {}", &wire);
                }
                frame.send(batch, PortIndex(partner));
            }
        }
    }
}

impl StaticPairs {
    /// Explains why packets from a port go nowhere.
    fn remark_loose_end(&self, batch: &mut Batch<'_>) {
        let here = batch.ingress();
        let partner = batch.name(here).and_then(|name| self.partners.get(name));
        let (text, value) = match (partner, self.given.is_empty()) {
            (Some(partner), _) => {
                let text = "{} is wired to `{}`, which is not a port of this bridge";
                (text, Value::Text(Text::new(partner.as_bytes())))
            }
            (None, true) => {
                let text = "{} is wired to the port of index {}, which does not exist";
                (text, Value::Number((here.0 ^ 1).into()))
            }
            (None, false) => ("{} is wired to no port: no parameter of the logic names it", Value::None),
        };
        batch.packets().for_each(|v| batch.remark(v, text, &[Value::Port(here), value]));
    }
}

impl SwitchLogic for StaticPairs {
    fn forward(&self, batch: &mut Batch<'_>) {
        self.switch::<false>(batch);
    }

    fn explain(&self, batch: &mut Batch<'_>) -> bool {
        self.switch::<true>(batch);
        true
    }

    fn ports_changed(&self, ports: &[(PortIndex, Arc<PortSettings>)]) {
        let by_name: BTreeMap<&str, u16> = ports.iter().map(|(i, port)| (port.name.as_str(), i.0)).collect();
        let present: BTreeSet<u16> = ports.iter().map(|(i, _)| i.0).collect();
        let mut table = vec![NONE; self.table.len()];
        for (i, port) in ports {
            let partner = match self.given.is_empty() {
                true => present.get(&(i.0 ^ 1)),
                false => self.partners.get(&port.name).and_then(|name| by_name.get(name.as_str())),
            };
            if let (Some(entry), Some(partner)) = (table.get_mut(usize::from(i.0)), partner) {
                *entry = *partner;
            }
        }
        // Workers need each entry only by itself.
        for (entry, partner) in self.table.iter().zip(table) {
            entry.store(partner, Relaxed);
        }
    }
}

impl Logic for StaticPairs {
    fn named_ports(&self) -> Vec<String> {
        self.partners.keys().cloned().collect()
    }

    fn name(&self) -> &str {
        INFO.name
    }

    fn params(&self) -> Vec<(String, String)> {
        self.given.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(given: &[(&str, &str)], ports: &[(u16, &str)]) -> Vec<(u16, u16)> {
        let given: Vec<_> = given.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
        let logic = StaticPairs::new(&given).unwrap();
        let ports: Vec<_> =
            ports.iter().map(|(i, name)| (PortIndex(*i), Arc::new(PortSettings::new(*name)))).collect();
        logic.ports_changed(&ports);
        let entries = (0..).zip(logic.table.iter().map(|to| to.load(Relaxed)));
        entries.filter(|(_, to)| *to != NONE).collect()
    }

    #[test]
    fn neighbours_by_default() {
        let ports = [(0, "a"), (1, "b"), (2, "c"), (5, "f"), (4, "e")];
        assert_eq!(table(&[], &ports), [(0, 1), (1, 0), (4, 5), (5, 4)]);
    }

    #[test]
    fn named_pairs_go_both_ways_unless_given_otherwise() {
        let ports = [(0, "a"), (1, "b"), (2, "c")];
        assert_eq!(table(&[("c", "a")], &ports), [(0, 2), (2, 0)]);
        assert_eq!(table(&[("a", "b"), ("b", "c"), ("c", "a")], &ports), [(0, 1), (1, 2), (2, 0)]);
        assert_eq!(table(&[("a", "b"), ("c", "b"), ("b", "c")], &ports), [(0, 1), (1, 2), (2, 1)]);
        assert_eq!(table(&[("a", "later")], &ports), []);
    }
}
