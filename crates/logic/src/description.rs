//! What can be said about a logic: what it does, which parameters it takes and what these can be.
//!
//! Logics from outside describe themselves when they are loaded, so everything here owns its texts. Users see it in
//! `mswitch logic list` and in errors; [`crate::params`] reads parameters by it.

use std::fmt;
use std::time::Duration;

use crate::CommandInfo;

/// What can be said about a logic without making one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogicDescription {
    /// The name it is chosen by.
    pub name: String,
    /// What it does, in one line.
    pub summary: String,
    /// The parameters it takes.
    pub params: Vec<ParamDescription>,
    /// What it can be asked to do.
    pub commands: Vec<CommandInfo>,
}

/// A parameter of a logic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamDescription {
    /// Its name: lower case letters, digits and dashes; in capitals where the user supplies the name.
    pub name: String,
    /// What it can be.
    pub kind: ParamKind,
    /// What it means, in a line.
    pub help: String,
    /// What holds when it is not given.
    pub default: ParamDefault,
    /// Whether there may be any number of them, whose names the user supplies.
    pub any_name: bool,
}

impl ParamDescription {
    /// A parameter that must be given.
    pub fn new(name: impl Into<String>, kind: ParamKind, help: impl Into<String>) -> Self {
        let default = ParamDefault::Required;
        Self { name: name.into(), kind, help: help.into(), default, any_name: false }
    }

    /// It has this value when it is not given.
    pub fn or(self, value: impl ToString) -> Self {
        Self { default: ParamDefault::Value(value.to_string()), ..self }
    }

    /// It need not be given; this says what holds then.
    pub fn optional(self, otherwise: impl Into<String>) -> Self {
        Self { default: ParamDefault::Words(otherwise.into()), ..self }
    }

    /// There may be any number of them, whose names the user supplies.
    pub fn of_any_name(self) -> Self {
        Self { any_name: true, ..self }
    }
}

/// What holds when a parameter is not given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParamDefault {
    /// It has this value, written as users write it.
    Value(String),
    /// It has no value; what holds then, in words.
    Words(String),
    /// It must be given.
    Required,
}

impl fmt::Display for ParamDefault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Value(text) | Self::Words(text) => text,
            Self::Required => "none: it must be given",
        })
    }
}

/// What a parameter can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParamKind {
    /// A whole number.
    Number {
        /// The least.
        min: u64,
        /// The greatest.
        max: u64,
        /// What is counted, such as `seconds`; may be empty.
        unit: String,
    },
    /// One of these words.
    Choice(Vec<String>),
    /// `on` or `off`.
    Switch,
    /// Any text.
    Text {
        /// Its greatest length, bytes.
        max: u64,
    },
    /// The name of a port. The port need not be there yet.
    Port,
    /// A time, such as `500ms`, `30s`, `5m` or `2h`; a number alone is in seconds.
    Duration {
        /// The shortest.
        min: Duration,
        /// The longest.
        max: Duration,
    },
    /// A MAC address.
    Mac,
    /// An IPv4 or IPv6 address.
    Ip,
}

impl ParamKind {
    /// A whole number in a range.
    pub fn number(range: std::ops::RangeInclusive<u64>, unit: &str) -> Self {
        Self::Number { min: *range.start(), max: *range.end(), unit: unit.into() }
    }

    /// One of these words.
    pub fn choice(words: &[&str]) -> Self {
        Self::Choice(words.iter().map(|word| (*word).to_owned()).collect())
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Number { .. } => "number",
            Self::Choice(_) => "choice",
            Self::Switch => "switch",
            Self::Text { .. } => "text",
            Self::Port => "port",
            Self::Duration { .. } => "duration",
            Self::Mac => "mac",
            Self::Ip => "ip",
        }
    }
}

/// What would be accepted, as errors and lists say it: `a whole number from 1 to 10`.
impl fmt::Display for ParamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { min, max, unit } => {
                let of = if unit.is_empty() { "" } else { " of " };
                write!(f, "a whole number{of}{unit} ")?;
                if *max == u64::MAX { write!(f, "from {min}") } else { write!(f, "from {min} to {max}") }
            }
            Self::Choice(words) => write_words(f, words),
            Self::Switch => f.write_str("`on` or `off`"),
            Self::Text { max } => write!(f, "a text of up to {max} bytes"),
            Self::Port => f.write_str("the name of a port"),
            Self::Duration { min, max } => {
                write!(f, "a time from {} to {}, such as 500ms, 30s or 5m", written(*min), written(*max))
            }
            Self::Mac => f.write_str("a MAC address such as 02:00:00:00:00:01"),
            Self::Ip => f.write_str("an IPv4 or IPv6 address"),
        }
    }
}

/// Words as a sentence has them: `a`, `b` or `c`.
fn write_words(f: &mut fmt::Formatter<'_>, words: &[String]) -> fmt::Result {
    for (i, word) in words.iter().enumerate() {
        let before = match i {
            0 => "",
            _ if i + 1 == words.len() => " or ",
            _ => ", ",
        };
        write!(f, "{before}`{word}`")?;
    }
    Ok(())
}

/// A time as parameters have it: in the largest unit that it is a whole number of.
pub(crate) fn written(time: Duration) -> String {
    let ms = time.as_millis();
    for (unit, length) in [("h", 3_600_000), ("m", 60_000), ("s", 1000)] {
        if ms > 0 && ms.is_multiple_of(length) {
            return format!("{}{unit}", ms / length);
        }
    }
    if ms == 0 { "0s".into() } else { format!("{ms}ms") }
}
