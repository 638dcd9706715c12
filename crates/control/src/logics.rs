//! The logics that bridges of this switch can have: those that ship with it, and those of the kinds that come from outside.

use std::sync::Arc;
use std::time::Duration;

use logic::{Kind, Logic, LogicDescription, LogicError};
use ports::bounded::within;

/// Kinds of logics that come from outside.
pub(crate) const KINDS: &[Kind] = modules::KINDS;

/// The longest that making a logic may take: a large module is compiled in seconds, and its file may not answer.
const LIMIT: Duration = Duration::from_secs(30);

/// Makes the logic called `name`.
pub(crate) fn build(name: &str, params: &[(String, String)]) -> Result<Arc<dyn Logic>, LogicError> {
    let (file, params) = (name.to_owned(), params.to_vec());
    within(LIMIT, "mswitch-logic", move || logic::build(&file, &params, KINDS))
        .unwrap_or_else(|error| Err(LogicError::Module { file: name.into(), message: error.to_string() }))
}

/// What can be said about the logic called `name`.
pub(crate) fn describe(name: &str) -> Result<LogicDescription, LogicError> {
    logic::describe(name, KINDS)
}
