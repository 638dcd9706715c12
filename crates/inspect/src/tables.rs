//! The tables of the logic: rules, and flows.

use std::net::Ipv6Addr;

use logic::Table;
use packet::headers::protocol;

use crate::flows::Listed;
use crate::inspect::Inspect;
use crate::list;

/// Most flows shown.
const MOST_SHOWN: usize = 256;

impl Inspect {
    /// Returns the table of rules, with matches and the flows that they were in.
    pub(crate) fn rule_table(&self) -> Table {
        let row = |(number, rule): (usize, &crate::rule::Rule)| {
            let (matches, flows) = self.counts.of_rule(number);
            vec![
                self.list.name(number),
                matches.to_string(),
                flows.to_string(),
                rule.expression.clone(),
                rule.action_text(),
            ]
        };
        let rows = self.list.rules.iter().enumerate().map(row).collect();
        table("rules", &["rule", "matches", "flows", "pattern", "action"], rows, list::MOST as u64)
    }

    /// Returns the table of flows: those with a verdict first, at most [`MOST_SHOWN`].
    pub(crate) fn flow_table(&self, now: u32) -> Table {
        let (mut decided, mut others) = (Vec::new(), Vec::new());
        for flow in self.flows.iter(now) {
            let list = if flow.verdict.is_some() { &mut decided } else { &mut others };
            if list.len() < MOST_SHOWN {
                list.push(flow);
            }
        }
        decided.append(&mut others);
        decided.truncate(MOST_SHOWN);
        let row = |flow: &Listed| {
            let rule = flow.verdict.and_then(|number| Some((number, self.list.rules.get(number)?)));
            let [a, b] = [0, 1].map(|side| end(flow, side));
            vec![
                flow.key.vlan.to_string(),
                if flow.key.protocol == protocol::TCP { "tcp".into() } else { "udp".into() },
                a,
                b,
                rule.map_or_else(|| "-".into(), |(number, _)| self.list.name(number)),
                rule.map_or_else(|| "-".into(), |(_, rule)| rule.action_text()),
                now.saturating_sub(flow.seen).to_string(),
            ]
        };
        let rows = decided.iter().map(row).collect();
        let columns = ["vlan", "protocol", "end", "other_end", "rule", "action", "idle"];
        table("flows", &columns, rows, self.flows.capacity())
    }
}

fn table(name: &str, columns: &[&str], rows: Vec<Vec<String>>, capacity: u64) -> Table {
    let columns = columns.iter().map(|column| (*column).to_owned()).collect();
    Table { name: name.into(), columns, rows, capacity }
}

/// Writes an end of a flow.
fn end(flow: &Listed, side: usize) -> String {
    let address = Ipv6Addr::from_bits(flow.key.ends.get(side).copied().unwrap_or_default());
    let port = flow.key.ports.get(side).copied().unwrap_or_default();
    match address.to_ipv4_mapped() {
        Some(address) => format!("{address}:{port}"),
        None => format!("[{address}]:{port}"),
    }
}
