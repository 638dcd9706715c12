//! Clients that load a switch through memif or vhost-user and verify what it does.
//!
//! | module | idea |
//! | --- | --- |
//! | [`packet`](mod@packet) | packets whose every byte follows from flow and number |
//! | [`shape`] | how long they are, and in how many pieces |
//! | [`pace`] | when the next one is due |
//! | [`tracker`] | what has arrived of a flow: late, twice, never |
//! | [`port`] | one client: memif, or vhost-user |
//! | [`session`] | ports that send to each other and verify what arrives |
//! | `steady` | what arrived in each tenth of a second |
//! | [`report`] | what was found |
//! | [`echo`] | a client that sends everything back |
//! | [`host`] | a client with an IP stack: answers pings, serves TCP |
//! | [`idle`] | many clients that do nothing |
//! | [`cpu`] | the CPU time of a process |
//!
//! Invariant: no verdict depends on what another tool printed; everything that is verified was computed here twice.

pub mod cpu;
pub mod echo;
pub mod host;
pub mod idle;
pub mod pace;
pub mod packet;
pub mod port;
pub mod report;
pub mod session;
pub mod shape;
mod steady;
pub mod tracker;
