//! Moves the host's configuration from a network interface to a host port, and back.
//!
//! When a switch takes over an interface that the host uses itself, the host's addresses, routes, neighbours and
//! policy rules move to the switch's host port, a TAP interface in the same network namespace. Established
//! connections survive the move in both directions, and nobody is cut off who is logged in through the interface.
//!
//! * [`Snapshot`]: the configuration of an interface, read by rtnetlink.
//! * [`Plan`]: the ordered operations that move it. A plan makes before it breaks, and may be repeated.
//!
//! All functions work in the network namespace of the calling thread.

pub mod attributes;
mod error;
mod link;
mod netlink;
mod objects;
mod plan;
mod snapshot;

pub use error::Error;
pub use link::{Change, Interface, Link, Mac};
pub use netlink::{Connection, Refusal};
pub use objects::{Address, How, Neighbour, Nexthop, Object, Rank, Route, Rule};
pub use plan::{Operation, Plan};
pub use snapshot::Snapshot;
