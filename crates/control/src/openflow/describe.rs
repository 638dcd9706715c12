//! The description of the logic, and its name in messages about unknown ones.

use logic::{LogicDescription, LogicError};

use super::LOGIC;
use crate::suggest;

/// Describes the logic.
pub(crate) fn describe() -> LogicDescription {
    LogicDescription {
        name: LOGIC.into(),
        summary: "flow tables that OpenFlow controllers and ovs-ofctl fill; set up by `[bridge.openflow]`"
            .into(),
        ..LogicDescription::default()
    }
}

/// Adds the logic to the known ones of an error, or says why it cannot be used there.
pub(crate) fn with_openflow(error: LogicError) -> LogicError {
    match error {
        LogicError::UnknownLogic { name, nearest, mut known } => {
            known.insert(logic::LIST.len().min(known.len()), LOGIC.into());
            let nearest = nearest.or_else(|| suggest::nearest(&name, &[LOGIC]).map(str::to_owned));
            LogicError::UnknownLogic { name, nearest, known }
        }
        LogicError::Stage { number, error } => {
            let error = match *error {
                LogicError::UnknownLogic { name, .. } if name == LOGIC => LogicError::Module {
                    file: LOGIC.into(),
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

#[cfg(test)]
mod tests {
    use crate::logics;

    fn refused(name: &str, params: &[(&str, &str)]) -> String {
        let params: Vec<_> = params.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        logics::check(name, &params).unwrap_err().to_string()
    }

    #[test]
    fn errors_know_the_logic() {
        assert_eq!(logics::check("openflow", &[]), Ok(()));
        let unknown = refused("openflo", &[]);
        assert!(unknown.starts_with("there is no logic `openflo`, did you mean `openflow`? "), "{unknown}");
        assert!(unknown.contains("middlebox, three-tuple, dummy, openflow, "), "{unknown}");
        assert_eq!(
            refused("openflow", &[("controllers", "tcp:10.0.0.1")]),
            "logic `openflow` has no parameter `controllers`; it has none"
        );
        assert_eq!(
            refused("chain", &[("1", "openflow")]),
            "stage 1: openflow: it cannot be a stage of a chain; set it as the logic of a bridge of its own"
        );
    }
}
