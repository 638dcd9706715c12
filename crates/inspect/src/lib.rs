//! The logic `inspect`: deep packet inspection with a list of patterns and the state of flows.
//!
//! All patterns become one automaton ([`regex_automata`]), which reads each byte once. Its state is kept for each
//! direction of a TCP connection, so a match may span segments. docs/inspect.md is for users.
//!
//! - `rule.rs`: reads rules; `pattern.rs`: their expressions; `list.rs`: rules of parameters and of a file;
//! - `trie.rs`, `automaton.rs`: compile the patterns, within bounds; scan bytes;
//! - `frame.rs`: finds flow and payload of a frame, also within carriers of line cards;
//! - `flows.rs`: the table of flows; `stream.rs`: places a segment in its stream;
//! - `scan.rs`: scans a packet with the state of its flow; `tally.rs`: counts;
//! - `inspect.rs`: the logic; `tables.rs`: the tables that it shows.
//!
//! Invariants: bytes are scanned as they are delivered, in memory that no client can change; nothing allocates, locks
//! or panics per packet; memory does not depend on the traffic; a verdict about a flow holds until the flow is idle or
//! evicted.
#![forbid(unsafe_code)]

mod automaton;
mod flows;
mod frame;
mod inspect;
mod list;
mod pattern;
mod rule;
mod scan;
mod stream;
mod tables;
mod tally;
mod trie;

pub use inspect::{Inspect, KIND};
