//! A P4 program with its state, as P4Runtime 1.5 reads and writes it.
//!
//! [`Program`] is a program that can run, with its P4Info; [`Switch`] has its state in the words of P4Runtime: entities
//! in, entities out, by the ids of the P4Info. It knows neither connections nor packets on ports: `p4runtime` serves
//! controllers, `p4logic` runs packets, and meets here as a [`Device`].
//!
//! | module    | room for                                                    |
//! |-----------|-------------------------------------------------------------|
//! | `program` | programs: from source text or a bundle to what runs          |
//! | `switch`  | the state in P4Runtime's words                               |
//! | `device`  | what a server needs of a device                              |
//! | `failure` | refusals with their codes                                    |
#![forbid(unsafe_code)]

mod device;
mod failure;
mod program;
mod switch;

pub use device::{Device, InstallAction, Listener};
pub use failure::{Code, Failure, WriteFailure};
pub use program::{LoadError, Program};
pub use switch::{Follower, Switch};
