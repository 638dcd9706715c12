//! Random OpenFlow tables and packets, run by the reference interpreter, by generated code and by Open vSwitch's
//! userspace datapath, and compared.
//!
//! A [`case::Case`] is a set of groups and flows, as text in `ovs-ofctl`'s syntax, and packets. Each [`subject::Subject`]
//! gets the same bytes over an OpenFlow connection and the same packets, and says what it accepted, what left through
//! which port, what went to the controller, and what it counted.
//!
//! # Modules
//! - `case`, `rules`, `actions`, `values`, `packets`: random cases.
//! - `subject`: what is compared; `ours`, `ovs`: the switches.
//! - `compare`: the differences of a case; `explained`: those that are legitimate; `shrink`: the smallest case that
//!   still differs.
//!
//! # Invariants
//! - A case depends on its seed alone.
//! - No step waits for time: a packet's results are complete when the marker that follows it arrives.
#![forbid(unsafe_code)]

pub mod actions;
pub mod case;
pub mod compare;
pub mod explained;
pub mod ours;
pub mod ovs;
pub mod packets;
pub mod rules;
pub mod shrink;
pub mod subject;
pub mod values;
