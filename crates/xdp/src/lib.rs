//! Match-action programs in the kernel: lowered into XDP, where the driver hands packets over, with tables in BPF maps.
//!
//! - [`lower()`] makes instructions from a program, and says which of its constructs have no counterpart ([`Refusal`]):
//!   packets that come to one go to the CPU as they came;
//! - [`Card`] loads them, keeps maps as the program's [`pipeline::state::State`] is, reads counts back, and runs packets
//!   for tests;
//! - [`Finished`] is what a program says of a packet that it has finished for the CPU;
//! - [`mod@reference`] tells whether a card does what the interpreter does;
//! - `tables.rs` says which maps there are, `entries.rs` and `held.rs` what they hold, `layout.rs` where headers and variables are.
//!
//! What a program does is what [`pipeline::interp`] says. The kernel's verifier checks that it does no harm: nothing here
//! has to be trusted with more than its result.
#![forbid(unsafe_code)]

mod card;
mod entries;
mod held;
mod layout;
mod lower;
mod note;
pub mod reference;
mod refusal;
mod tables;
mod types;

pub use card::{Card, CardError, Figures, Mark, Passed, Verdict};
pub use entries::EntryError;
pub use lower::{Lowered, Setting, lower};
pub use note::Finished;
pub use refusal::Refusal;
