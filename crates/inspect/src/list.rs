//! The list of rules: those of numbered parameters, then those of a file, one a line.
//!
//! Invariant: the rules of a list are in order, at most [`MOST`], and each mistake names its parameter, or its file and
//! line.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::SystemTime;

use logic::LogicError;
use logic::excerpt::{Mistake, show};

use crate::inspect::NAME;
use crate::rule::Rule;

/// Longest text of a rule, bytes.
pub(crate) const MAX_RULE: u64 = 1024;

/// Most rules that are parameters.
const MOST_NUMBERED: usize = 128;

/// Most rules.
pub(crate) const MOST: usize = 16_384;

/// Largest file, bytes.
const MAX_FILE: u64 = 4 << 20;

/// Where a rule is from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    /// The parameter of this number.
    Parameter(usize),
    /// This line of the file, from 1.
    Line(usize),
}

/// Rules and their origins.
pub(crate) struct List {
    pub(crate) rules: Vec<Rule>,
    origins: Vec<(Origin, String)>,
    file: Option<(String, Stamp)>,
}

/// Tells whether a file has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    len: u64,
}

impl Stamp {
    fn of(path: &str) -> Option<Self> {
        let metadata = Path::new(path).metadata().ok()?;
        Some(Self { modified: metadata.modified().ok(), len: metadata.len() })
    }
}

impl List {
    /// Reads rules by number, and those of a file.
    pub(crate) fn read<'a>(
        numbered: impl Iterator<Item = (&'a str, &'a str)>,
        file: Option<&str>,
    ) -> Result<Self, LogicError> {
        let mut list = Self { rules: Vec::new(), origins: Vec::new(), file: None };
        for (number, text) in in_order(numbered)? {
            list.add(Origin::Parameter(number), text)?;
        }
        if let Some(path) = file {
            let stamp = Stamp::of(path).unwrap_or(Stamp { modified: None, len: 0 });
            list.file = Some((path.to_owned(), stamp));
            let text = read_file(path).map_err(|message| mistake("file", format!("{path}: {message}")))?;
            for (number, line) in (1..).zip(text.lines()) {
                if !line.trim().is_empty() && !line.trim_start().starts_with('#') {
                    list.add(Origin::Line(number), line)?;
                }
            }
        }
        Ok(list)
    }

    fn add(&mut self, origin: Origin, text: &str) -> Result<(), LogicError> {
        self.origins.push((origin, text.to_owned()));
        let number = self.rules.len();
        if number == MOST {
            let message = format!("this is one rule more than {MOST}: remove rules, or join some by `|`");
            return Err(self.refused(number, &Mistake { at: None, message }));
        }
        if text.len() as u64 > MAX_RULE {
            let message = format!("the rule has {} bytes, more than {MAX_RULE}", text.len());
            return Err(self.refused(number, &Mistake { at: None, message }));
        }
        let rule = Rule::read(text).map_err(|mistake| self.refused(number, &mistake))?;
        self.rules.push(rule);
        Ok(())
    }

    /// Returns the error for a mistake in a rule, by its place in the list.
    pub(crate) fn refused(&self, number: usize, what: &Mistake) -> LogicError {
        let Some((origin, text)) = self.origins.get(number) else {
            return mistake("N", what.message.clone());
        };
        let shown = show(text, what);
        match (origin, &self.file) {
            (Origin::Line(line), Some((path, _))) => mistake("file", format!("{path}:{line}: {shown}")),
            (Origin::Parameter(number), _) => mistake(&number.to_string(), shown),
            (Origin::Line(line), None) => mistake("file", format!("line {line}: {shown}")),
        }
    }

    /// Returns how users name a rule: its number, or its line.
    pub(crate) fn name(&self, number: usize) -> String {
        match self.origins.get(number) {
            Some((Origin::Parameter(number), _)) => number.to_string(),
            Some((Origin::Line(line), _)) => format!("line {line}"),
            None => String::new(),
        }
    }

    /// Returns whether the file has changed since.
    pub(crate) fn is_outdated(&self) -> bool {
        self.file.as_ref().is_some_and(|(path, stamp)| Stamp::of(path).is_some_and(|now| now != *stamp))
    }

    /// Returns a number that differs, but for chance, from that of any other list (FNV-1a).
    pub(crate) fn fingerprint(&self) -> u64 {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let texts = self.origins.iter().flat_map(|(_, text)| text.trim().bytes().chain([b'\n']));
        texts.fold(0xcbf2_9ce4_8422_2325, step)
    }
}

pub(crate) fn mistake(param: &str, message: String) -> LogicError {
    LogicError::Mistake { logic: NAME.into(), param: param.into(), message }
}

/// Reads a file of rules.
fn read_file(path: &str) -> Result<String, String> {
    let metadata = Path::new(path).metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is no regular file".into());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(format!("it has more than {} MiB", MAX_FILE >> 20));
    }
    String::from_utf8(bytes).map_err(|error| {
        let front = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = front.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line} is no UTF-8; write bytes as `\\xNN`")
    })
}

/// Returns rules in the order of their numbers.
fn in_order<'a>(
    numbered: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<BTreeMap<usize, &'a str>, LogicError> {
    let mut texts = BTreeMap::new();
    for (name, text) in numbered {
        let number = name.parse().ok().filter(|number| (1..=MOST_NUMBERED).contains(number));
        let Some(number) = number.filter(|number| number.to_string() == *name) else {
            let message = format!(
                "rules are numbered from 1 to {MOST_NUMBERED}, such as 1='tcp /evil/ -> drop'; more go to a file"
            );
            return Err(mistake(name, message));
        };
        texts.insert(number, text);
    }
    for (number, expected) in texts.keys().zip(1..) {
        if *number != expected {
            let message =
                format!("the rule is missing, but there is a rule {number}: number rules from 1 on");
            return Err(mistake(&expected.to_string(), message));
        }
    }
    Ok(texts)
}
