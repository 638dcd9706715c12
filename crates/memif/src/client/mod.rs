//! The client's role: the client provides the memory.
//!
//! From the bottom up: [`Layout`] places rings and buffers, [`Handshake`] decides on messages without I/O,
//! [`Attaching`] drives it on a non-blocking socket for an event loop, and [`Client`] combines all for tools and tests:
//! it blocks until the connection is up and gives [`TxQueue`]s and [`RxQueue`]s.
//!
//! Invariants:
//! - All memory is one region, index 0, made here and sealed against changes of size.
//! - The server's writes to the rings are checked like a client's writes on the other side: a lying server makes the
//!   queues deliver garbage or nothing, but never access other memory.

mod attach;
mod config;
mod handshake;
mod layout;
mod queue;
mod tool;

pub use attach::{Advance, Attached, Attaching, ConnectError, Control};
pub use config::ClientConfig;
pub use handshake::{Attachment, Handshake, HandshakeError, Outgoing, Progress};
pub use layout::{Direction, Layout, LayoutError};
pub use queue::{RxQueue, TxQueue};
pub use tool::Client;
