//! The logic end to end: frames through a real fabric with in-memory ports, programs as controllers send them. What
//! follows from the program is tested with both kinds of machine code and with the interpreter.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod controllers;
mod depths;
mod entities;
mod forward;
mod frames;
mod imports;
mod offloads;
mod programs;
mod random;
mod rig;
mod shown;
