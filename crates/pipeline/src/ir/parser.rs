//! Parser graphs.
//!
//! A parser starts in state 0. Each cycle of states consumes bytes (validated), so a parser ends with the packet at the
//! latest; [`crate::interp::Limits::parser_states`] bounds it besides. Rejecting a packet does not drop it: control
//! runs with [`super::Slot::ParserError`] set and with the headers extracted so far.

use super::{Constant, ErrorId, Expr, HeaderRef, Stmt, ValueSetId};

/// A parser.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Parser {
    /// Name.
    pub name: String,
    /// States; the first is the start.
    pub states: Vec<ParserState>,
}

/// A state: operations, then a transition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ParserState {
    /// Name.
    pub name: String,
    /// Operations.
    pub ops: Vec<ParserOp>,
    /// Transition.
    pub next: Transition,
}

/// An operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ParserOp {
    /// Reads a header at the parser's position and makes it valid. With a variable field: its length in bits, a
    /// `Bit(32)`.
    Extract(HeaderRef, Option<Expr>),
    /// Skips so many bits, a `Bit(32)`, a multiple of 8.
    Advance(Expr),
    /// Ends the parser with an error unless the condition holds.
    Verify(Expr, ErrorId),
    /// A statement: an assignment, a header's validity, a hash, an extern or a branch over these.
    Do(Stmt),
}

impl ParserOp {
    /// Steps that the operation counts as.
    pub fn steps(&self) -> u32 {
        match self {
            ParserOp::Do(stmt) => stmt.steps(),
            _ => 1,
        }
    }
}

/// A transition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Transition {
    /// Always to this state.
    To(Target),
    /// To the first matching case; [`ErrorId::NO_MATCH`] if there is none.
    Select(Select),
}

/// A choice by values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Select {
    /// Values.
    pub on: Vec<Expr>,
    /// Cases in order, each with as many sets as there are values.
    pub cases: Vec<Case>,
}

/// A case: each value in its set.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Case {
    /// Sets.
    pub sets: Vec<Keyset>,
    /// Next state.
    pub to: Target,
}

/// A set of values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Keyset {
    /// All values.
    Any,
    /// This value.
    Value(Constant),
    /// Values equal to the first under the mask.
    Mask(Constant, Constant),
    /// Values between these, both included.
    Range(Constant, Constant),
    /// The whole tuple is in a value set; the case has this set only.
    Set(ValueSetId),
}

/// Where a transition leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// To a state.
    State(u32),
    /// The parser ends.
    Accept,
    /// The parser ends; the error is whatever was set, none by itself.
    Reject,
}
