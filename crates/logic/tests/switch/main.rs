//! The logics end to end: a real switch with in-memory ports.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod chain;
mod changes;
mod flood;
mod frames;
mod handover;
mod hub;
mod learning;
mod middlebox;
mod model;
mod protection;
mod rig;
mod snooping;
mod three_tuple;
mod three_tuple_clients;
mod trace;
mod vlans;
mod wires;
