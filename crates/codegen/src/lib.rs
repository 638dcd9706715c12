//! Match-action programs as machine code.
//!
//! [`pipeline`] says what programs mean; this crate executes them. [`Engine`] compiles the program of a state and
//! follows the state's changes; a [`Worker`] runs packets against the current [`View`] and appends [`Effects`]. What
//! the code does agrees with [`pipeline::interp`] on every input, effects and counts alike.
//!
//! | module    | room for                                                                                     |
//! |-----------|----------------------------------------------------------------------------------------------|
//! | `compile` | from a program to machine code; what is refused, and why                                       |
//! | `emit`    | emission: expressions, statements, parsers                                                     |
//! | `layout`  | the frame: where a packet's headers and variables are                                          |
//! | `keys`    | the words in which tables are looked up                                                        |
//! | `code`    | compiled programs and actions                                                                  |
//! | `runtime` | what runs around the code: passes, and the statements that are calls                           |
//! | `form`    | structures in which tables are looked up                                                       |
//! | `special` | code for the entries that are there; what they leave of a program                             |
//! | `view`    | what packets see; `records`: its parts; `shards`: maps that views share                        |
//! | `engine`  | the control side that makes views                                                              |
//! | `flow`    | how functions of code end, as numbers                                                          |
//!
//! An environment ([`pipeline::env::Env`]) must not panic: below generated code there is no unwinding, and the process
//! would abort.
//!
//! Unsafe code is in these places, each block with its argument: `code` (addresses become functions),
//! `runtime` (the frame, calls in both directions, hits to be counted, slots of remembered ways), `view` (addresses of
//! arguments) and `form/slab.rs` (records in chunks). What generated code may touch is argued in `emit`.

mod code;
mod compile;
mod emit;
mod engine;
mod flow;
mod form;
mod keys;
mod layout;
mod records;
mod runtime;
mod shards;
mod shortcut;
mod special;
mod view;

pub use code::Code;
pub use compile::{Options, Unsupported, compile};
pub use engine::{Engine, TableInfo};
pub use form::{Form, Rebuild};
pub use runtime::{Effect, Effects, Fate, Found, Packet, Worker};
pub use shortcut::Leaves;
pub use special::Specialisation;
pub use view::{View, Views};
