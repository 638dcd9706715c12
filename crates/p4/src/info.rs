//! P4Info (P4Runtime 1.5): what of a program a controller can address.
//!
//! Names, ids and aliases follow from the program alone, and are those that p4c gives: controllers find what they know.
//! So tables and actions that no package object uses are left out, and names are those of controls and parsers as they
//! are instantiated. An error leaves out what it is about.

mod annotations;
mod arch;
mod form;
mod ids;
mod inventory;
mod key_name;
mod message;
mod types;

pub use form::{Form, print, read};
pub use proto::P4Info;

use crate::diagnostic::Diagnostics;
use crate::hir::Program;
use crate::instantiate::Objects;
use crate::source::Sources;

/// Messages of P4Runtime's package `p4.config.v1`, as crates/p4/proto declares them.
#[allow(missing_docs, clippy::doc_markdown, clippy::large_enum_variant, clippy::derive_partial_eq_without_eq)]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/p4.config.v1.rs"));
}

/// The P4Info of a checked program. The files tell how constants in keys are written, which are part of names.
pub fn of(program: &Program, sources: &Sources, diagnostics: &mut Diagnostics) -> P4Info {
    let objects = Objects::of(program, diagnostics);
    message::build(program, sources, &objects, diagnostics)
}

#[cfg(test)]
mod tests;
