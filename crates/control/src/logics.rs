//! The logics that bridges of this switch can have: those that ship with it, and those of the kinds that come from outside.

use std::sync::Arc;

use logic::{Kind, Logic, LogicDescription, LogicError};

/// Kinds of logics that come from outside.
pub(crate) const KINDS: &[Kind] = modules::KINDS;

/// Makes the logic called `name`.
pub(crate) fn build(name: &str, params: &[(String, String)]) -> Result<Arc<dyn Logic>, LogicError> {
    logic::build(name, params, KINDS)
}

/// What can be said about the logic called `name`.
pub(crate) fn describe(name: &str) -> Result<LogicDescription, LogicError> {
    logic::describe(name, KINDS)
}
