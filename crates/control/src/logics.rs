//! The logics of this switch: built-in ones, and those loaded from modules.

use std::sync::Arc;
use std::time::Duration;

use logic::{Kind, Logic, LogicDescription, LogicError};
use ports::bounded::within;

/// The kinds of modules that contain logics.
pub(crate) const KINDS: &[Kind] = modules::KINDS;

/// Time limit for building a logic: a large module compiles for seconds, and reading its file may block.
const BUILD_LIMIT: Duration = Duration::from_secs(30);

/// Builds the logic called `name`.
pub(crate) fn build(name: &str, params: &[(String, String)]) -> Result<Arc<dyn Logic>, LogicError> {
    let (file, params) = (name.to_owned(), params.to_vec());
    within(BUILD_LIMIT, "mswitch-logic", move || logic::build(&file, &params, KINDS))
        .unwrap_or_else(|error| Err(LogicError::Module { file: name.into(), message: error.to_string() }))
}

/// Describes the logic called `name`.
pub(crate) fn describe(name: &str) -> Result<LogicDescription, LogicError> {
    logic::describe(name, KINDS)
}
