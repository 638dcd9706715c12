//! Networks of bridges, on a clock of the tests' own.

mod failures;
mod figures;
mod hostile;
mod network;
mod random;
mod shown;
