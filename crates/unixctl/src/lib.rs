//! The control socket and the pidfile by which Open vSwitch's tools find and command a daemon (`ovs-appctl`, `ovs-ctl`).
//!
//! `ovs-appctl -t NAME COMMAND` reads `NAME.pid` in the run directory, asks the kernel which process has locked that
//! file, and connects to `NAME.PID.ctl` beside it. A request is JSON-RPC 1.0: the method is the command, parameters and
//! result are strings (`appctl(8)`).
//!
//! # Rooms
//! - `command`: commands with their arguments; `server`: the socket; `pidfile`: the file.
//!
//! # Invariants
//! - No input ends more than the connection that it came from.
//! - A client that does not read is disconnected; the number of connections is bounded.
#![forbid(unsafe_code)]

mod command;
mod pidfile;
mod server;

pub use command::{Commands, Reply};
pub use pidfile::{Pidfile, PidfileError};
pub use server::Server;
pub use socket_file::SocketError;
