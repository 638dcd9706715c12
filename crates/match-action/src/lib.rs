//! Match-action programs on the fabric: what the logics `openflow` and `p4` share.
//!
//! [`pipeline`] has the meaning of programs and [`codegen`] their machine code; this crate gives them packets of the
//! fabric. It knows no control protocol.
//!
//! | module        | room for                                                                                   |
//! |---------------|--------------------------------------------------------------------------------------------|
//! | `compiled`    | machine code that follows a state, and the fallback to the interpreter                      |
//! | `specialiser` | when code is made faster                                                                    |
//! | `front`       | packets with new headers: their bytes, and checksums that a receiver is to complete         |
//! | `run`         | consecutive packets to one port                                                             |
//! | `slots`       | packets on their way from a worker to a logic's thread                                      |
#![forbid(unsafe_code)]

mod compiled;
mod front;
mod run;
mod slots;
mod specialiser;

pub use compiled::{CodeFigures, Compiled, MOST_CODE, Subject};
pub use front::{Form, WINDOW, append, replace};
pub use run::Run;
pub use slots::{SLOTS, Slots};
