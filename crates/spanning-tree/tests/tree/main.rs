//! Networks of bridges, on a clock of the tests' own.
#![allow(clippy::unwrap_used, clippy::panic)]

mod failures;
mod figures;
mod hostile;
mod network;
mod random;
mod shown;
