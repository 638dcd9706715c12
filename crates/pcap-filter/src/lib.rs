//! The logic `pcap-filter`: an ordered list of tcpdump expressions with actions.
//!
//! libpcap compiles the expressions, as for tcpdump; [`bpf_jit`] makes machine code of the list; the code finds the
//! first expression that keeps each packet of a batch, and the expression's actions follow. docs/pcap-filter.md is for
//! users.
//!
//! - `rule.rs`: reads rules;
//! - `filters.rs`: compiles their expressions, within bounds; runs them over packets;
//! - `edit.rs`: changes packets; `hits.rs`: counts;
//! - `pcap_filter.rs`: the logic.
//!
//! Invariants: what a list decides depends on the bytes of the packet as received or as changed by earlier rules of the
//! list, never on whether it is compiled; a packet meets each expression at most once. Bytes behind the first 512 are
//! read from the sender's memory, which may change before they are sent on.
#![forbid(unsafe_code)]

mod edit;
mod filters;
mod hits;
mod pcap_filter;
mod rule;

pub use pcap_filter::{KIND, PcapFilter};
