//! Match-action programs: what OpenFlow tables and P4 programs are lowered into.
//!
//! A program parses packets, looks fields up in tables, runs the actions found and sends packets on. This crate has its
//! typed representation and its meaning; it knows no control protocol, no source language and no fabric.
//!
//! | module       | room for                                                                                     |
//! |--------------|----------------------------------------------------------------------------------------------|
//! | [`bits`]     | values of 1 to 2,048 bits, and reading and writing them at any bit of a packet                |
//! | [`ir`]       | programs: types, headers, parsers, expressions, statements, tables, stages                     |
//! | `build`      | methods of [`ir::Program`] for front ends                                                      |
//! | [`mod@validate`] | which programs may run: a [`Checked`] program has passed                                   |
//! | [`text`]     | the text form: printer and parser of programs, actions and entries, with its grammar           |
//! | [`state`]    | what changes while a program runs: entries, groups, registers, counters, meters; transactions  |
//! | [`mod@env`]  | what surrounds a program: ports, clock, random numbers, functions                              |
//! | [`hash`]     | hashes and checksums of bit strings                                                            |
//! | [`interp`]   | the reference interpreter, which is the meaning of programs                                    |
//!
//! Three things are apart: the *program* is immutable; the *state* is what control planes and packets change; the
//! *environment* is a trait that the fabric's side implements and tests fake.
//!
//! Invariants of the crate:
//! - No program is invalid behind [`Checked::new`], and no entry behind [`state::State::apply`]; what runs need not
//!   check types again.
//! - Everything is total: no packet, no entry and no state makes a program fail, loop or panic. Where a language leaves
//!   something undefined, [`interp`] says what happens.
//! - Everything is bounded: programs by validation, packets by [`interp::Limits`].
//! - Equal programs, states, environments and packets have equal effects.
//!
//! ```
//! use pipeline::{Checked, interp, state::State, text};
//! # struct Nothing;
//! # impl pipeline::env::Env for Nothing {
//! #     fn now(&mut self) -> u64 { 0 }
//! #     fn random(&mut self) -> u64 { 0 }
//! #     fn is_live(&self, _: u32) -> bool { true }
//! #     fn ports(&self, _: u32, _: bool) -> Vec<u32> { vec![] }
//! # }
//! let program = text::parse("program p { block out { send current port 9w7; } stage s { control out; } }").unwrap();
//! let state = State::new(Checked::new(program).unwrap());
//! let packet = interp::Received::whole(&[1, 2, 3], 0);
//! let outcome = interp::run(&state, &mut Nothing, &packet, &interp::Limits::default(), false);
//! assert_eq!(outcome.effects[0].text(&state), "output to port 7, 3 bytes");
//! ```
#![forbid(unsafe_code)]

pub mod bits;
mod build;
pub mod env;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod hash;
pub mod interp;
pub mod ir;
pub mod state;
pub mod text;
pub mod validate;

pub use validate::{Checked, validate};
