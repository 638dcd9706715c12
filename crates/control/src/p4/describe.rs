//! The description of the logic, and its name in messages about unknown ones.

use logic::{LogicDescription, LogicError};

use super::{LOGIC, is_p4};
use crate::suggest;

/// Describes the logic.
pub(crate) fn describe() -> LogicDescription {
    LogicDescription {
        name: LOGIC.into(),
        summary: "a P4 program, of a file (p4:FILE) or from a P4Runtime controller; set up by `[bridge.p4]`".into(),
        ..LogicDescription::default()
    }
}

/// Adds the logic to the known ones of an error, or says why it cannot be used there.
pub(crate) fn with_p4(error: LogicError) -> LogicError {
    match error {
        LogicError::UnknownLogic { name, nearest, mut known } => {
            known.insert((logic::LIST.len() + 1).min(known.len()), LOGIC.into());
            let nearest = nearest.or_else(|| suggest::nearest(&name, &[LOGIC]).map(str::to_owned));
            LogicError::UnknownLogic { name, nearest, known }
        }
        LogicError::Stage { number, error } => {
            let error = match *error {
                LogicError::UnknownLogic { name, .. } if is_p4(&name) => LogicError::Module {
                    file: name,
                    message: "it cannot be a stage of a chain; set it as the logic of a bridge of its own"
                        .into(),
                },
                other => other,
            };
            LogicError::Stage { number, error: Box::new(error) }
        }
        other => other,
    }
}
