//! The client's role: who brings the memory.
//!
//! From the bottom up: [`Layout`] says where rings and buffers lie, [`Handshake`] decides what to say without doing
//! any I/O, [`Attaching`] drives it on a non-blocking socket for an event loop, and [`Client`] is the whole for tools
//! and tests: it blocks until the connection is up and gives [`TxQueue`]s and [`RxQueue`]s.
//!
//! Invariants:
//! - All memory is one region, index 0, made here and sealed against changes of size.
//! - What the server writes to the rings is checked like what a client writes is on the other side: a server that
//!   lies makes the queues deliver nonsense or nothing, never touch other memory.

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
