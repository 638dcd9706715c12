//! Which programs may run.
//!
//! A [`Checked`] program has passed: every number refers to something that exists, every expression and assignment is
//! typed, statements are where they may be, every parser makes progress, and memory is bounded. The interpreter and the
//! code generator take nothing else. What depends on the packet or on entries (indices, depth of calls, rounds through
//! stages) is bounded at run time instead ([`crate::interp::Limits`]).
//!
//! Each error names the thing and its place; a program's errors come together, up to [`MAX_ERRORS`].
//!
//! - `program.rs`: declarations, tables, parsers, stages;
//! - `stmt.rs`: statements;
//! - `expr.rs`: types of expressions and places;
//! - `entry.rs`: entries and action calls, for [`crate::state`] too.

pub(crate) mod entry;
mod expr;
mod program;
mod stmt;

use std::ops::Deref;
use std::sync::Arc;

use crate::ir::{Action, Expr, Param, Program, Type};

pub use entry::EntryError;

/// Most errors that are reported of a program.
pub const MAX_ERRORS: usize = 50;
/// Deepest nesting of expressions, and of statements.
pub const MAX_DEPTH: usize = 64;
/// Most memory that counters, meters and registers may take, bytes.
pub const MAX_ARRAYS: u64 = 1 << 28;
/// Most header instances, elements of stacks included.
pub const MAX_HEADERS: usize = 2048;
/// Most elements of a stack.
pub const MAX_STACK: u32 = 256;
/// Longest list of bits that is hashed, sent to the control plane or inserted: many times what a packet's headers have.
pub const MAX_LIST: usize = 1 << 16;
/// Longest name, bytes.
pub const MAX_NAME: usize = 256;

/// An error of a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct Invalid {
    /// Where: `table fib, key 2`.
    pub place: String,
    /// What is wrong.
    pub problem: String,
}

/// A program that has passed validation. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Checked(Arc<Program>);

impl Checked {
    /// Validates a program.
    ///
    /// # Errors
    /// All errors found, in the program's order, up to [`MAX_ERRORS`].
    pub fn new(program: Program) -> Result<Self, Vec<Invalid>> {
        let errors = validate(&program);
        if errors.is_empty() { Ok(Self(Arc::new(program))) } else { Err(errors) }
    }
}

impl Deref for Checked {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.0
    }
}

/// Returns a program's errors, up to [`MAX_ERRORS`]; none if it may run.
pub fn validate(program: &Program) -> Vec<Invalid> {
    let mut checker = Checker::new(program);
    checker.program();
    checker.errors
}

/// Returns the errors of an action that is added to a valid program at run time.
pub fn validate_action(program: &Program, action: &Action) -> Vec<Invalid> {
    let mut checker = Checker::new(program);
    checker.action(action);
    checker.errors
}

/// Where statements and expressions stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Parser,
    Control,
    Action,
    Deparser,
    /// Keys and inputs of selections: no parameters, no parser.
    Value,
}

struct Checker<'p> {
    program: &'p Program,
    place: Vec<String>,
    errors: Vec<Invalid>,
    scope: Scope,
    params: &'p [Param],
    atomic: bool,
}

impl<'p> Checker<'p> {
    fn new(program: &'p Program) -> Self {
        Self { program, place: vec![], errors: vec![], scope: Scope::Value, params: &[], atomic: false }
    }

    /// Records an error at the current place; `None`, for the caller to return.
    fn error<T>(&mut self, problem: impl Into<String>) -> Option<T> {
        if self.errors.len() < MAX_ERRORS {
            let place = if self.place.is_empty() { "program".into() } else { self.place.join(", ") };
            self.errors.push(Invalid { place, problem: problem.into() });
        }
        None
    }

    /// Records an error unless `holds`.
    fn require(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        if !holds {
            let _: Option<()> = self.error(problem());
        }
    }

    /// Checks with a further place.
    fn at(&mut self, place: impl Into<String>, check: impl FnOnce(&mut Self)) {
        self.place.push(place.into());
        check(self);
        self.place.pop();
    }

    /// Returns an element by number, or records that there is none.
    fn get<T>(&mut self, what: &str, list: &'p [T], index: usize) -> Option<&'p T> {
        match list.get(index) {
            Some(element) => Some(element),
            None => self.error(format!("{what} {index} does not exist (the program has {})", list.len())),
        }
    }
}

/// Returns the type of an expression without parameters, a table's key for example; `None` if it has none.
pub fn expr_type(program: &Program, expr: &Expr) -> Option<Type> {
    Checker::new(program).ty(expr)
}
