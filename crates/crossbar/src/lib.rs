//! Scheduling of a crossbar between line cards: in each slot, which card sends to which.
//!
//! A card has a queue for each other card and class (virtual output queues), so no packet waits behind one for another
//! card. In a slot, a card sends to at most one card and receives from at most one: a [`Matching`]. The [`Scheduler`]
//! finds it from the [`Demand`] of each class, the highest class first, as HyMoS does (Aghdai, Xu and Chao, "Design of a
//! Hybrid Modular Switch", section II-D). An [`Arbiter`] matches one class:
//!
//! | arbiter       | ports   | chooses                                                              |
//! |---------------|---------|----------------------------------------------------------------------|
//! | [`Lookup`]    | 2 to 5  | as many pairs as possible, from a table of all demands               |
//! | [`Heaviest`]  | 2 to 6  | the pairs whose weights have the largest sum, from all [`Patterns`]  |
//! | [`Diagonals`] | 2 to 64 | pairs that nothing can be added to, by diagonals that take turns     |
//! | [`Islip`]     | 2 to 64 | pairs of round-robin arbiters, in a few iterations                   |
//!
//! [`simulate`] runs an arbiter slot by slot on synthetic traffic, beside queues at the outputs, which no scheduler beats,
//! and one queue for each input, which needs none.
//!
//! ```
//! use std::sync::Arc;
//!
//! use crossbar::{Arbiter, Demand, Hairpins, Heaviest, Patterns, Scheduler, weight};
//!
//! let patterns = Arc::new(Patterns::new(3, Hairpins::Forbidden).unwrap());
//! let arbiter = || Box::new(Heaviest::new(patterns.clone())) as Box<dyn Arbiter + Send>;
//! let mut scheduler = Scheduler::new((0..8).map(|_| arbiter()).collect());
//!
//! let mut demands = vec![Demand::new(3); 8];
//! // 1,500 bytes of class 7 wait for 10 µs at card 0 for card 2, whose link has 10 Gbit/s.
//! demands[7].set(0, 2, weight(1500, 10_000, 10_000_000_000));
//! let mut pairs = Vec::new();
//! scheduler.schedule(&demands, |pair| pairs.push((pair.class, pair.input, pair.output)));
//! assert_eq!(pairs, [(7, 0, 2)]);
//! ```
//!
//! Invariants: a matching uses each input and each output once at most; it has only pairs with demand.
#![forbid(unsafe_code)]

mod demand;
mod diagonals;
mod heaviest;
mod islip;
mod lookup;
mod matching;
mod patterns;
mod scheduler;
pub mod simulate;

pub use demand::{Demand, MAX_PORTS, weight};
pub use diagonals::Diagonals;
pub use heaviest::Heaviest;
pub use islip::Islip;
pub use lookup::Lookup;
pub use matching::Matching;
pub use patterns::{Hairpins, Patterns};
pub use scheduler::{Pair, Scheduler};

/// Matches the inputs and outputs of one class.
pub trait Arbiter {
    /// Adds pairs with demand to a matching, of inputs and outputs that are free in it.
    fn extend(&mut self, demand: &Demand, matching: &mut Matching);
}
