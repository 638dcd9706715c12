//! The logic end to end: frames through a real fabric with in-memory ports, flows as text, messages as controllers send
//! them. What follows from the tables is tested with both kinds of machine code and with the interpreter.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod actions;
mod bonds;
mod changes;
mod controllers;
mod frames;
mod normal;
mod offloads;
mod ports;
mod rig;
mod shown;
mod trees;
