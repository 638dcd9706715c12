//! Reasons for refusing a document.

use std::fmt::Display;

/// A refused document: the problem and the objects around it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct Refusal {
    /// Objects around it, the innermost first.
    places: Vec<String>,
    problem: String,
}

pub(crate) type Result<T> = std::result::Result<T, Refusal>;

impl Refusal {
    /// A problem, without its place.
    pub(crate) fn of(problem: impl Into<String>) -> Self {
        Self { places: Vec::new(), problem: problem.into() }
    }

    /// Something that exists in the format and not here.
    pub(crate) fn unsupported(what: impl Display) -> Self {
        Self::of(format!("{what} not supported"))
    }

    /// A name without an object.
    pub(crate) fn unknown(kind: &str, name: impl Display) -> Self {
        Self::of(format!("unknown {kind} {name}"))
    }

    pub(crate) fn in_place(mut self, place: impl Into<String>) -> Self {
        self.places.push(place.into());
        self
    }

    fn text(&self) -> String {
        let mut text: String = self.places.iter().rev().map(|place| format!("{place}: ")).collect();
        text.push_str(&self.problem);
        text
    }
}

/// Adds the object in which something failed.
pub(crate) trait At<T> {
    fn at(self, place: impl Into<String>) -> Result<T>;
    fn within(self, place: impl FnOnce() -> String) -> Result<T>;
}

impl<T> At<T> for Result<T> {
    fn at(self, place: impl Into<String>) -> Result<T> {
        self.map_err(|refusal| refusal.in_place(place))
    }

    fn within(self, place: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|refusal| refusal.in_place(place()))
    }
}
