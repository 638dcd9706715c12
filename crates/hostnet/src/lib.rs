//! Moves the host's configuration from a network interface to a host port, and back.
//!
//! When a switch takes over an interface that the host uses itself, the host's addresses, routes, neighbours and
//! policy rules move to the switch's host port, a TAP interface in the same network namespace. Established
//! connections survive the move in both directions, and nobody is cut off who is logged in through the interface.
//!
//! * [`Snapshot`]: the configuration of an interface, read by rtnetlink.
//! * [`Plan`]: the ordered operations that move it. A plan makes before it breaks, and may be repeated.
//! * [`Handover`]: what a daemon uses: journal and guardian first, then the move, and a rollback if it fails.
//! * [`journal`]: the configuration on disk, from before the first change until everything is back.
//! * [`guardian`]: a process that gives the configuration back when the daemon dies.
//!
//! The daemon's order:
//!
//! 1. At its start, [`recover`] for each journal that exists: daemon and guardian may have died together.
//! 2. Create the host port, attach it to the bridge, and call [`Handover::begin`]. The host port now receives the
//!    interface's packets, and nothing has left the interface.
//! 3. Attach the interface to the bridge: the host's stack receives nothing more from it.
//! 4. [`Handover::commit`]: addresses and routes move. On an error everything is as before: detach the interface.
//! 5. While it is attached: [`Handover::follow`] when [`Handover::changes`] reports something and after
//!    [`Handover::next_follow`], and [`Handover::guard_again`] when the guardian has died.
//! 6. To detach: [`Handover::release`], detach the interface from the bridge, then [`Released::finish`].
//!
//! All functions work in the network namespace of the calling thread.

pub mod attributes;
mod changes;
mod error;
pub mod guardian;
mod handover;
pub mod journal;
mod link;
mod netlink;
mod objects;
mod plan;
mod recovery;
mod snapshot;

pub use changes::Changes;
pub use error::Error;
pub use handover::{Handover, Released};
pub use link::{Change, Interface, Link, Mac};
pub use netlink::{Connection, Refusal};
pub use objects::{Address, How, Key, Neighbour, Nexthop, Object, Rank, Route, Rule};
pub use plan::{Operation, Plan};
pub use recovery::{Recovered, recover};
pub use snapshot::Snapshot;
