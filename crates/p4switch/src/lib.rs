//! A P4 program with its state, as P4Runtime 1.5 reads and writes it.
//!
//! [`Program`] is a program that can run, with its P4Info; [`Switch`] has its state in the words of P4Runtime: entities
//! in, entities out, by the ids of the P4Info. It knows neither connections nor packets on ports: `p4runtime` serves
//! controllers, `p4logic` runs packets, and meets here as a [`Device`].
//!
//! | module       | room for                                                    |
//! |--------------|-------------------------------------------------------------|
//! | `program`    | programs: from source text or a bundle to what runs          |
//! | `unused`     | what programs declare and never use                          |
//! | `schema`     | what a controller can address, by id                         |
//! | `switch`     | the state in P4Runtime's words                               |
//! | `journal`    | maps whose changes can be taken back                         |
//! | `bytestring` | numbers as bytes                                             |
//! | `data`       | values of P4 types                                           |
//! | `digests`    | digests on their way to controllers                          |
//! | `packets`    | packets from and to controllers                              |
//! | [`text`]     | entities as text, with names                                |
//! | `device`     | what a server needs of a device                              |
//! | `failure`    | refusals with their codes                                    |
//! | `access`     | what a role may change                                       |
#![forbid(unsafe_code)]

mod access;
mod bytestring;
mod data;
mod device;
mod digests;
mod failure;
mod journal;
mod packets;
mod program;
mod schema;
mod switch;
pub mod text;
mod unused;

pub use access::{Access, ObjectKind};
pub use device::{Device, InstallAction, Listener};
pub use failure::{Code, Failure, WriteFailure};
pub use p4::place::Places;
pub use program::{LoadError, Program};
pub use switch::{Cursor, Follower, Switch};
