//! Errors of logics: each message names the fault and the remedy.

use crate::{CommandInfo, Kind, LIST, LogicDescription, ParamDescription};

/// Reasons for not making a logic, or for refusing its command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogicError {
    /// No logic has this name.
    #[error("there is no logic `{name}`{}", choice(.nearest, "the logics are", .known))]
    UnknownLogic {
        /// The name requested.
        name: String,
        /// The known name closest to it.
        nearest: Option<String>,
        /// The known names.
        known: Vec<String>,
    },
    /// The logic takes no parameter of this name.
    #[error("logic `{logic}` has no parameter `{param}`{}", choice(.nearest, "its parameters are", .known))]
    UnknownParam {
        /// The logic.
        logic: String,
        /// The parameter's name as given.
        param: String,
        /// The known name closest to it.
        nearest: Option<String>,
        /// The known names.
        known: Vec<String>,
    },
    /// A parameter that has no default was not given.
    #[error(
        "logic `{logic}` needs parameter `{param}` ({help}): {expected} is expected; add it as {param}=VALUE"
    )]
    Missing {
        /// The logic.
        logic: String,
        /// The parameter.
        param: String,
        /// Its meaning.
        help: String,
        /// The accepted values.
        expected: String,
    },
    /// The parameter does not accept this value.
    #[error("parameter `{param}` of logic `{logic}` cannot be `{value}`: {expected} is expected")]
    BadValue {
        /// The logic.
        logic: String,
        /// The parameter.
        param: String,
        /// Its value as given.
        value: String,
        /// The accepted values.
        expected: String,
    },
    /// A parameter's value has a mistake that takes more than its expected kind to explain.
    #[error("parameter `{param}` of logic `{logic}`: {message}")]
    Mistake {
        /// The logic.
        logic: String,
        /// The parameter.
        param: String,
        /// The reason.
        message: String,
    },
    /// The logic has no command of this name.
    #[error("logic `{logic}` has no {}", command_or_none(.command, .known))]
    UnknownCommand {
        /// The logic.
        logic: String,
        /// The command's name as given.
        command: String,
        /// The known commands.
        known: Vec<String>,
    },
    /// A command of a chain names a stage only.
    #[error("the command is missing after stage {stage}{}", commands(.known))]
    MissingCommand {
        /// The stage's number.
        stage: usize,
        /// The known commands.
        known: Vec<String>,
    },
    /// A command failed.
    #[error("`{command}`: {message}")]
    Command {
        /// The command's name.
        command: String,
        /// The reason.
        message: String,
    },
    /// A module's file could not be made into a logic.
    #[error("{file}: {message}")]
    Module {
        /// The file.
        file: String,
        /// The reason.
        message: String,
    },
    /// A module is named without its file.
    #[error("logic `{prefix}:` names no file: give one, as {prefix}:FILE")]
    MissingFile {
        /// The prefix.
        prefix: String,
    },
    /// A parameter of a chain is not the number of a stage.
    #[error(
        "logic `chain` has no parameter `{name}`: its stages are numbered from 1 to {}, such as 1=learning",
        crate::MAX_STAGES
    )]
    StageNumber {
        /// The parameter's name as given.
        name: String,
    },
    /// A word of a stage is not a parameter.
    #[error("stage {number}: expected `KEY=VALUE`, found `{word}`{}", if *.is_file {
        "; quote a path that has blanks"
    } else {
        ""
    })]
    StageWord {
        /// The stage's number.
        number: usize,
        /// The word.
        word: String,
        /// Whether the stage is a file, whose path may have blanks.
        is_file: bool,
    },
    /// A quote in a stage is not closed.
    #[error("stage {number}: the quote {quote} before `{rest}` is not closed")]
    OpenQuote {
        /// The stage's number.
        number: usize,
        /// The quote.
        quote: char,
        /// The text behind it.
        rest: String,
    },
    /// A parameter was given more than once.
    #[error("parameter `{param}` of logic `{logic}` is given twice; give it once")]
    Repeated {
        /// The logic.
        logic: String,
        /// The parameter.
        param: String,
    },
    /// A number is missing among a chain's stages.
    #[error("logic `chain` has no stage {number}; number its stages from 1 on, such as 1=learning")]
    MissingStage {
        /// The first number without a stage.
        number: usize,
    },
    /// A stage of a chain could not be made.
    #[error("stage {number}: {error}")]
    Stage {
        /// The stage's number.
        number: usize,
        /// The reason.
        error: Box<LogicError>,
    },
    /// Two ports name the same partner, which names none itself.
    #[error(
        "ports `{first}` and `{second}` both go to `{partner}`, so the destination of `{partner}` is ambiguous: \
         add {partner}={first} or {partner}={second}"
    )]
    AmbiguousPartner {
        /// The port without a clear destination.
        partner: String,
        /// One port that names it.
        first: String,
        /// The other port that names it.
        second: String,
    },
}

impl LogicError {
    pub(crate) fn unknown_logic(name: &str, kinds: &[Kind]) -> Self {
        let ours = LIST.iter().map(|info| info.name.to_owned());
        let known: Vec<_> = ours.clone().chain(kinds.iter().map(Kind::label)).collect();
        // A stage or parameters written into the name.
        if let Some((logic, rest)) =
            name.split_once(' ').filter(|(logic, _)| ours.clone().any(|own| own == *logic))
        {
            let rest = rest.trim();
            let nearest = match logic {
                "chain" => format!("chain --param 1={}", shell_words::quote(rest)),
                _ => format!("{logic} --param {}", rest.replace(' ', " --param ")),
            };
            return Self::UnknownLogic { name: name.into(), nearest: Some(nearest), known };
        }
        let kind = kinds.iter().find(|kind| kind.ending.is_some_and(|ending| name.ends_with(ending)));
        // The text before the colon may be a mistyped prefix.
        let file =
            name.split_once(':').filter(|(prefix, _)| !prefix.contains('/')).map_or(name, |(_, file)| file);
        let nearest = kind.map(|kind| format!("{}:{file}", kind.prefix)).or_else(|| nearest(name, &known));
        Self::UnknownLogic { name: name.into(), nearest, known }
    }

    pub(crate) fn unknown_param(logic: &LogicDescription, param: &str) -> Self {
        let known: Vec<_> = logic.params.iter().map(|info| info.name.clone()).collect();
        let nearest = nearest(param, &known);
        Self::UnknownParam { logic: logic.name.clone(), param: param.into(), nearest, known }
    }

    pub(crate) fn missing(logic: &LogicDescription, param: &ParamDescription) -> Self {
        Self::Missing {
            logic: logic.name.clone(),
            param: param.name.clone(),
            help: param.help.clone(),
            expected: param.kind.to_string(),
        }
    }

    /// Makes the error for a `command` whose first word is none of the known ones.
    pub fn unknown_command(logic: &str, command: &[String], known: &[CommandInfo]) -> Self {
        Self::UnknownCommand {
            logic: logic.into(),
            command: command.first().cloned().unwrap_or_default(),
            known: known.iter().map(|info| info.name.clone()).collect(),
        }
    }

    /// Makes the error for a value that a parameter does not accept; `expected` describes the values that it does.
    pub fn bad_value(logic: &str, param: &str, value: &str, expected: impl Into<String>) -> Self {
        let expected = expected.into();
        Self::BadValue { logic: logic.into(), param: param.into(), value: value.into(), expected }
    }
}

fn command_or_none(command: &str, known: &[String]) -> String {
    if known.is_empty() { "commands".into() } else { format!("command `{command}`{}", commands(known)) }
}

fn commands(known: &[String]) -> String {
    if known.is_empty() {
        "; it has none".into()
    } else {
        format!("; its commands are: {}", known.join(", "))
    }
}

fn choice(nearest: &Option<String>, intro: &str, known: &[String]) -> String {
    if known.is_empty() {
        return "; it has none".into();
    }
    let known = known.join(", ");
    match nearest {
        None => format!("; {intro}: {known}"),
        Some(nearest) => {
            let (first, rest) = intro.split_at(1);
            format!(", did you mean `{nearest}`? {}{rest}: {known}", first.to_uppercase())
        }
    }
}

/// Returns the known name closest to the typed one, if at most a third of its letters differ.
fn nearest(typed: &str, known: &[String]) -> Option<String> {
    let near = known.iter().map(|name| (distance(typed, name), name));
    near.filter(|(edits, name)| *edits <= name.len().div_ceil(3)).min().map(|(_, name)| name.clone())
}

/// Returns the Levenshtein distance: the number of letters to insert, delete or replace.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, to) in row.iter_mut().skip(1).zip(b.chars()) {
            let up = *cell;
            left = (diagonal + usize::from(from != to)).min(up + 1).min(left + 1);
            diagonal = up;
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, edits) in
            [("", "", 0), ("", "ab", 2), ("abc", "", 3), ("kitten", "sitting", 3), ("flaw", "lawn", 2)]
        {
            assert_eq!(distance(a, b), edits, "{a} {b}");
        }
    }

    #[test]
    fn near_misses_only() {
        let nearest = |typed, known: [&str; 2]| nearest(typed, &known.map(str::to_owned));
        assert_eq!(nearest("statik", ["learning", "static"]).as_deref(), Some("static"));
        assert_eq!(nearest("stations", ["ageing", "max-stations"]).as_deref(), Some("max-stations"));
        assert_eq!(nearest("openflow", ["learning", "static"]), None);
    }
}
