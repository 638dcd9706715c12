//! Spanning trees of bridges: [`stp`], the Spanning Tree Protocol of IEEE 802.1D-1998 (clause 8), and [`rstp`], the
//! Rapid Spanning Tree Protocol of IEEE 802.1D-2004 (clause 17), which falls back to the former's messages for old
//! neighbours. Configuration and status are those of Open vSwitch.
//!
//! A bridge has neither ports that send nor a clock: the caller passes received frames, changes of links and the time;
//! [`Bridge::run`] returns the frames to send and the ports whose stations are to be forgotten. [`Bridge::state`] tells
//! what a port may do.
//!
//! - `bpdu`: the messages; `id`: identifiers of bridges and ports; `timer`: deadlines; `settings`: keys of the
//!   database.
//!
//! Invariants:
//! - No frame makes a bridge panic, allocate without bound, or send more than its limits of transmission allow.
//! - Times may be any; a clock that goes back delays, and breaks nothing.
#![forbid(unsafe_code)]

pub mod bpdu;
mod bridge;
mod id;
pub mod rstp;
mod settings;
pub mod stp;
mod timer;

pub use bridge::{Bridge, Counters, Flush, MAX_PORTS, Outcome, PortState, Protocol};
pub use id::{BridgeId, PortId};

/// Milliseconds on the caller's clock.
pub type Millis = u64;
