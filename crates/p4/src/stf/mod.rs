//! Test cases in the Simple Test Framework's language (STF): commands that fill tables, packets, and those expected.
//!
//! [`Case::parse`] reads a case, [`run()`] runs it on a program: in the interpreter and, in lockstep, as machine code,
//! without and with specialisation. Names are those of the control plane; a suffix of one is enough.
//!
//! ```text
//! file      = (command? ("#" comment)? "\n")*
//! command   = "add" table priority? (key ":" match)* call ("=" handle)?
//!           | "setdefault" table call | "remove" "$" handle
//!           | "packet" port hex | "expect" port pattern? | "no_packet" | "wait"
//!           | "mc_mgrp_create" group | "mc_node_create" replica port* | "mc_node_update" node port*
//!           | "mc_node_associate" group node
//!           | "mirroring_add" session port | "mirroring_add_mc" session group | "mirroring_delete" session
//!           | "mirroring_get" session
//!           | "check_counter" name "(" cell ")" (("packets" | "bytes") ("==" | "!=" | "<" | "<=" | ">" | ">=") n)?
//!           | "counter_read" name index | "counter_write" name index packets bytes
//!           | "register_read" name index | "register_write" name index value | "register_reset" name
//!           | "check_register" name index value
//!           | "meter_set_rates" name cell rates | "meter_array_set_rates" name rates | "meter_get_rates" name index
//!           | "member" profile n call | "group" profile n (member ("*" weight)?)*
//!           | "value_set" name match*
//!           | "expect_digest" name number*
//! call      = action "(" (param ":" number),* ")"
//! match     = number | pattern with "*" for digits | number "/" n | number "&&&" number | number ".." number
//! cell      = index | "$" handle
//! rates     = (units per microsecond ":" burst){1,2}
//! pattern   = (hex digit | "*")* "$"?
//! ```
//!
//! The rules of p4c's runner for the behavioural model hold:
//! - Outputs are compared when all commands are done: for each port that a `packet` or `expect` names, in order, and
//!   as many as expected. Other ports are not watched unless the case has `no_packet`.
//! - A pattern is a prefix of the packet unless it ends in `$`; `*` is any digit; without one, any packet is right.
//! - The larger priority wins. In tables without priorities, a priority is ignored.
//! - A key that is left out is 0 if it is matched exactly, else it matches anything.
//! - Of a ternary key, only the digits given are matched. A number of an lpm key is a prefix of as many bits as it has
//!   digits.
//! - Entries of a table with an action profile have the action `member(id:n)` or `group(id:n)`.
//! - `x$0.f` means `x[0].f`; a header's name, with or without `.valid`, means its validity.
//! - A second passes before the first packet behind commands, and with `wait`; a microsecond before any other packet.
//!
//! Commands that p4c's runner ignores are carried out here: `check_counter`, `remove`. `no_packet`, `check_register`,
//! `member`, `group`, `value_set`, `expect_digest`, masks and bounds are this runner's own.
//!
//! - `parse.rs`: cases; `literal.rs`: numbers and conditions; `names.rs`: what a name means;
//! - `configure.rs`: commands become updates of a state; `replication.rs`: multicast and mirroring;
//! - `lane.rs`: one execution of a program; `run.rs`: all of them; `compare.rs`: outputs against expectations;
//! - `cards.rs`: a program beside what it was split into; `kernel.rs`: beside itself as XDP;
//! - `random/`: random packets and entries instead of a case's; `stack.rs`: the thread of a run.

pub mod cards;
mod compare;
mod configure;
pub mod kernel;
mod lane;
mod literal;
mod names;
mod parse;
pub mod random;
mod replication;
mod run;
mod stack;

pub use compare::{Difference, Output};
pub use literal::{Literal, Pattern};
pub use parse::{
    Action, Case, Cell, Command, Comparison, Digits, Problem, Quantity, Rate, Step, UNITS_PER_MICROSECOND,
};
pub use run::{Options, Report, run};
