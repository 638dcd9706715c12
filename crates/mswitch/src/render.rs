//! Replies as text for people: tables and sentences with units.

pub(crate) mod bridge;
pub(crate) mod config;
pub(crate) mod events;
pub(crate) mod fdb;
pub(crate) mod logic;
pub(crate) mod mirror;
pub(crate) mod openflow;
pub(crate) mod packet;
pub(crate) mod port;
pub(crate) mod rates;
pub(crate) mod sflow;
pub(crate) mod status;
pub(crate) mod table;
pub(crate) mod trace;
pub(crate) mod units;
pub(crate) mod worker;

use std::collections::BTreeMap;

/// `a=1, b=2`.
pub(crate) fn pairs(map: &BTreeMap<String, String>) -> String {
    map.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ")
}

/// `500 ring-full, 3 vlan`, most frequent first.
pub(crate) fn drops(map: &BTreeMap<String, u64>) -> String {
    let mut sorted: Vec<_> = map.iter().collect();
    sorted.sort_by_key(|(_, dropped)| std::cmp::Reverse(**dropped));
    sorted
        .into_iter()
        .map(|(reason, n)| format!("{} {reason}", units::count(*n)))
        .collect::<Vec<_>>()
        .join(", ")
}
