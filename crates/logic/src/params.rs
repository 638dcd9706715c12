//! Reading a logic's parameters: each known, each given once, each in range, or an error that says so.

use std::ops::RangeInclusive;

use crate::{LogicError, LogicInfo};

/// Refuses parameters that `logic` does not have.
pub(crate) fn known(logic: &LogicInfo, params: &[(String, String)]) -> Result<(), LogicError> {
    for (name, _) in params {
        if !logic.params.iter().any(|info| info.name == name) {
            return Err(LogicError::unknown_param(logic, name));
        }
    }
    once(logic, params)
}

/// Refuses parameters that are given twice.
pub(crate) fn once(logic: &LogicInfo, params: &[(String, String)]) -> Result<(), LogicError> {
    for (i, (name, _)) in params.iter().enumerate() {
        if params.iter().take(i).any(|(earlier, _)| earlier == name) {
            return Err(LogicError::Repeated { logic: logic.name, param: name.clone() });
        }
    }
    Ok(())
}

/// The one of these texts that parameter `name` has, the first if it is not given.
pub(crate) fn choice<const N: usize>(
    logic: &LogicInfo,
    params: &[(String, String)],
    name: &str,
    choices: [&'static str; N],
) -> Result<&'static str, LogicError> {
    let given = params.iter().find(|(given, _)| given == name).map(|(_, text)| text.as_str());
    let Some(text) = given.or(choices.first().copied()) else { return Ok("") };
    choices.into_iter().find(|choice| *choice == text).ok_or_else(|| {
        let quoted = choices.map(|choice| format!("`{choice}`")).join(" or ");
        LogicError::bad_value(logic, name, text, quoted)
    })
}

/// The number that parameter `name` has, `default` if it is not given.
pub(crate) fn number(
    logic: &LogicInfo,
    params: &[(String, String)],
    name: &str,
    default: u32,
    range: RangeInclusive<u32>,
) -> Result<u32, LogicError> {
    let Some((_, text)) = params.iter().find(|(given, _)| given == name) else { return Ok(default) };
    text.parse().ok().filter(|value| range.contains(value)).ok_or_else(|| {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        LogicError::bad_value(logic, name, text, expected)
    })
}
