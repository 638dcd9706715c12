//! Self-descriptions of logics: purpose, parameters and their accepted values.
//!
//! Logics from outside describe themselves when they are loaded, so descriptions own their texts. Users see them in
//! `mswitch logic list` and in errors; [`crate::params`] reads parameters by them.

use std::fmt;
use std::time::Duration;

use crate::CommandInfo;

/// Description of a logic, available without making one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogicDescription {
    /// Name that selects the logic.
    pub name: String,
    /// One line that says what the logic does.
    pub summary: String,
    /// Parameters of the logic.
    pub params: Vec<ParamDescription>,
    /// Commands of the logic.
    pub commands: Vec<CommandInfo>,
    /// Counters of a logic from outside.
    pub counters: Vec<CounterDescription>,
    /// Tables of a logic from outside.
    pub tables: Vec<TableDescription>,
}

/// A counter of a logic from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterDescription {
    /// Name.
    pub name: String,
    /// Meaning, in one line.
    pub help: String,
}

/// A table of a logic from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableDescription {
    /// Name.
    pub name: String,
    /// Columns of the key: name and type of each.
    pub key: Vec<(String, String)>,
    /// Columns of the value: name and type of each.
    pub value: Vec<(String, String)>,
    /// Bytes of a key and of a value.
    pub lengths: (u32, u32),
    /// Number of entries that fit, whatever their keys.
    pub capacity: u64,
    /// Name of the parameter with the age at which entries are removed.
    pub expires: Option<String>,
    /// Whether entries pass to the table of the same name of the next logic.
    pub hand_over: bool,
}

/// A parameter of a logic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamDescription {
    /// Name: lower-case letters, digits and dashes; in capitals where the user supplies the name.
    pub name: String,
    /// Kind of its value.
    pub kind: ParamKind,
    /// Meaning, in one line.
    pub help: String,
    /// Behaviour when it is not given.
    pub default: ParamDefault,
    /// Whether it may be given any number of times, under names that the user supplies.
    pub any_name: bool,
}

impl ParamDescription {
    /// Makes a parameter that must be given.
    pub fn new(name: impl Into<String>, kind: ParamKind, help: impl Into<String>) -> Self {
        let default = ParamDefault::Required;
        Self { name: name.into(), kind, help: help.into(), default, any_name: false }
    }

    /// Gives it a default value.
    pub fn or(self, value: impl ToString) -> Self {
        Self { default: ParamDefault::Value(value.to_string()), ..self }
    }

    /// Makes it optional, without a default value; `otherwise` describes the behaviour without it.
    pub fn optional(self, otherwise: impl Into<String>) -> Self {
        Self { default: ParamDefault::Words(otherwise.into()), ..self }
    }

    /// Allows any number of these, under names that the user supplies.
    pub fn of_any_name(self) -> Self {
        Self { any_name: true, ..self }
    }
}

/// Behaviour when a parameter is not given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParamDefault {
    /// This value, written as users write it.
    Value(String),
    /// No value; this text describes the behaviour.
    Words(String),
    /// An error: the parameter must be given.
    Required,
}

impl fmt::Display for ParamDefault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Value(text) | Self::Words(text) => text,
            Self::Required => "none (required)",
        })
    }
}

/// Kind of a parameter's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParamKind {
    /// A whole number.
    Number {
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
        /// Unit, such as `seconds`; may be empty.
        unit: String,
    },
    /// One of these words.
    Choice(Vec<String>),
    /// `on` or `off`.
    Switch,
    /// Any text.
    Text {
        /// Largest length, bytes.
        max: u64,
    },
    /// The name of a port, which need not exist yet.
    Port,
    /// A time, such as `500ms`, `30s`, `5m` or `2h`; a number alone is in seconds.
    Duration {
        /// Shortest time.
        min: Duration,
        /// Longest time.
        max: Duration,
    },
    /// A MAC address.
    Mac,
    /// An IPv4 or IPv6 address.
    Ip,
}

impl ParamKind {
    /// Makes the kind of whole numbers in a range.
    pub fn number(range: std::ops::RangeInclusive<u64>, unit: &str) -> Self {
        Self::Number { min: *range.start(), max: *range.end(), unit: unit.into() }
    }

    /// Makes the kind of these words.
    pub fn choice(words: &[&str]) -> Self {
        Self::Choice(words.iter().map(|word| (*word).to_owned()).collect())
    }

    /// Returns the name of the kind.
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

/// Writes the accepted values, for errors and lists: `a whole number from 1 to 10`.
impl fmt::Display for ParamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { min, max, unit } => {
                let of = if unit.is_empty() { "" } else { " of " };
                write!(f, "a whole number{of}{unit} ")?;
                if *max == u64::MAX { write!(f, "from {min}") } else { write!(f, "from {min} to {max}") }
            }
            Self::Choice(words) => write_alternatives(f, words),
            Self::Switch => f.write_str("`on` or `off`"),
            Self::Text { max } => write!(f, "a text of up to {max} bytes"),
            Self::Port => f.write_str("the name of a port"),
            Self::Duration { min, max } => {
                write!(
                    f,
                    "a time from {} to {}, such as 500ms, 30s or 5m",
                    format_duration(*min),
                    format_duration(*max)
                )
            }
            Self::Mac => f.write_str("a MAC address such as 02:00:00:00:00:01"),
            Self::Ip => f.write_str("an IPv4 or IPv6 address"),
        }
    }
}

/// Writes words as a list in a sentence: `a`, `b` or `c`.
fn write_alternatives(f: &mut fmt::Formatter<'_>, words: &[String]) -> fmt::Result {
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

/// Writes a time as parameters have it: in the largest unit of which it is a whole number.
pub(crate) fn format_duration(time: Duration) -> String {
    let ms = time.as_millis();
    for (unit, length) in [("h", 3_600_000), ("m", 60_000), ("s", 1000)] {
        if ms > 0 && ms.is_multiple_of(length) {
            return format!("{}{unit}", ms / length);
        }
    }
    if ms == 0 { "0s".into() } else { format!("{ms}ms") }
}
