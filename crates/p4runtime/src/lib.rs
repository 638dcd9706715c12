//! The server of P4Runtime 1.5: connections, calls and streams of the controllers of one P4 device.
//!
//! A [`Server`] serves one [`p4switch::Device`] on Unix sockets and TCP ports, with TLS where that is configured. It
//! decides which controllers may write; what the entities of a write mean is the device's business.
//!
//! Invariants:
//! - Writes and changes of the program run one after the other, each for a controller that is primary when it starts.
//! - The device never waits for a controller's stream, and waits for the reader of a `Read` only for a bounded time.
//! - Everything that a controller makes the server keep is bounded by [`Limits`].
//!
//! | module        | room for                                                         |
//! |---------------|------------------------------------------------------------------|
//! | `listen`      | addresses to listen on                                           |
//! | `settings`    | settings and limits                                              |
//! | `tls`         | certificates and keys                                            |
//! | `connection`  | accepted connections: handshakes, limits                         |
//! | `server`      | start and shutdown                                               |
//! | `gate`        | reception of requests within the memory for them                 |
//! | `service`     | the calls                                                        |
//! | `write_error` | the status of a failed write                                     |
//! | `stream`      | one controller's stream                                          |
//! | `sessions`    | all controllers' streams: notifications, packets to primaries    |
//! | `arbitration` | rules by which a role's primary is chosen                        |
//! | `role`        | names of roles                                                   |
//! | `limited_role`| limits of a role                                                 |
//! | `outbox`      | bounded queue of messages to a controller                        |
#![forbid(unsafe_code)]

mod arbitration;
mod connection;
mod gate;
mod limited_role;
mod listen;
mod outbox;
mod role;
mod server;
mod service;
mod sessions;
mod settings;
mod stream;
mod tls;
mod write_error;

pub use limited_role::LimitedRole;
pub use listen::{Listen, ListenError};
pub use server::{Server, StartError};
pub use sessions::Counters;
pub use settings::{Limits, Settings};
pub use tls::{TlsError, TlsFiles};
