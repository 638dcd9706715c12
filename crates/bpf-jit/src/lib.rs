//! Lists of packet filters as machine code.
//!
//! [`packet::bpf`] says what a filter means; this crate runs a list of them over a batch of packets, and finds the
//! first filter that keeps each packet. [`compile()`] makes one function of the whole list; [`interpret`] is its
//! reference, and agrees with it on every input.
//!
//! The compiler follows each path through the list and remembers what the path has found out: which bytes are there,
//! and what comparisons said about values in the packet (`knowledge`). A comparison whose outcome is known costs
//! nothing: after `tcp port 23`, the filter `tcp port 80` neither reads the EtherType nor the protocol again. Code for
//! paths that know different things is emitted apart; beyond a budget, paths meet again and forget what they know.
//!
//! | module      | room for                                                    |
//! |-------------|-------------------------------------------------------------|
//! | `compile`   | from programs to machine code; bounds                       |
//! | `emit`      | emission, step by step; what the code may touch             |
//! | `flat`      | emission without branches, for short lists                  |
//! | `state`     | what a path knows at a step                                 |
//! | `knowledge` | what it knows about one value                               |
//! | `outlook`   | what the rest of the list may still need                    |
//! | `code`      | compiled lists: packets in, verdicts out                    |
//!
//! Unsafe code is in `code`, where an address becomes a function.

mod code;
mod compile;
mod emit;
mod flat;
mod knowledge;
mod outlook;
mod state;

pub use code::{Code, Packet, Verdict, interpret};
pub use compile::{Options, Unsupported, compile};
