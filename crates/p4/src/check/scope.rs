//! Scopes: which declaration a name means at a place.
//!
//! Declarations enter their scope as the checker comes by, so a name that is used before its declaration is not found.
//! Global declarations have ordinals: the body of a generic function is checked for its type arguments after the whole
//! program was seen, and sees only what stands before it.

use std::collections::HashMap;
use std::rc::Rc;

use super::ty::{AbstractId, CompositeId, Ty};
use super::value::Typed;
use crate::hir::{
    ActionId, ControlId, ExternId, InstanceId, PackageId, ParserId, TableId, ValueSetId, VarId,
};
use crate::source::Span;

/// Number of a global declaration, in the order of the program.
pub(super) type Ordinal = u32;

/// A function, generic or not, or an extern function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FunctionRef(pub(super) u32);

/// Meaning of a name.
#[derive(Debug, Clone)]
pub(super) enum Symbol<'a> {
    /// A type; some types construct objects.
    Type(TypeSymbol),
    /// A constant: its value.
    Const(Rc<Typed<'a>>),
    /// A variable or parameter.
    Var(VarId),
    /// An object.
    Instance(InstanceId),
    /// Functions of one name, told apart by their arguments.
    Functions(Rc<Vec<FunctionRef>>),
    /// An action.
    Action(ActionId),
    /// A table.
    Table(TableId),
    /// A value set.
    ValueSet(ValueSetId),
    /// What is being declared: a use inside is a recursion.
    Open(&'static str),
}

/// Meaning of a type's name.
#[derive(Debug, Clone)]
pub(super) enum TypeSymbol {
    /// A type without parameters.
    Plain(Ty),
    /// A structure, header or union with type parameters.
    Generic(CompositeId),
    Extern(ExternId),
    Parser(ParserId),
    Control(ControlId),
    Abstract(AbstractId),
    Package(PackageId),
}

#[derive(Debug)]
struct Entry<'a> {
    symbol: Symbol<'a>,
    span: Span,
    ordinal: Ordinal,
}

/// The scopes at a place.
#[derive(Debug, Default)]
pub(super) struct Scopes<'a> {
    globals: HashMap<&'a str, Entry<'a>>,
    locals: Vec<HashMap<&'a str, Entry<'a>>>,
    next: Ordinal,
    limit: Option<Ordinal>,
}

impl<'a> Scopes<'a> {
    /// Opens a scope.
    pub(super) fn push(&mut self) {
        self.locals.push(HashMap::new());
    }

    /// Closes the innermost scope.
    pub(super) fn pop(&mut self) {
        self.locals.pop();
    }

    /// Number that the next global declaration gets.
    pub(super) fn ordinal(&self) -> Ordinal {
        self.next
    }

    /// Goes to a place at the top level, behind the declarations before an ordinal.
    pub(super) fn go_to(&mut self, ordinal: Ordinal) {
        self.locals.clear();
        self.limit = Some(ordinal);
    }

    /// Declares a name in the innermost scope. If it is taken there, it stays, and the place of its declaration is
    /// returned.
    pub(super) fn declare(&mut self, name: &'a str, symbol: Symbol<'a>, span: Span) -> Result<(), Span> {
        let entry = Entry { symbol, span, ordinal: self.next };
        self.next = self.next.saturating_add(1);
        let scope = self.locals.last_mut().unwrap_or(&mut self.globals);
        match scope.get(name) {
            Some(taken) if !matches!(taken.symbol, Symbol::Open(_)) => Err(taken.span),
            _ => {
                scope.insert(name, entry);
                Ok(())
            }
        }
    }

    /// Replaces what a name means in the innermost scope.
    pub(super) fn replace(&mut self, name: &'a str, symbol: Symbol<'a>) {
        if let Some(entry) = self.locals.last_mut().unwrap_or(&mut self.globals).get_mut(name) {
            entry.symbol = symbol;
        }
    }

    /// What the innermost scope says.
    pub(super) fn here(&self, name: &str) -> Option<&Symbol<'a>> {
        self.locals.last().unwrap_or(&self.globals).get(name).map(|e| &e.symbol)
    }

    /// Looks a name up: inside out, or at the top level only.
    pub(super) fn find(&self, name: &str, global: bool) -> Option<(&Symbol<'a>, Span)> {
        let locals = self.locals.iter().rev().filter(|_| !global).filter_map(|scope| scope.get(name));
        let globals = self.globals.get(name).filter(|e| self.sees(e.ordinal));
        let mut open = None;
        for entry in locals.chain(globals) {
            match entry.symbol {
                // What is being declared does not hide what it will.
                Symbol::Open(what) if what != "table" => open = open.or(Some(entry)),
                _ => return Some((&entry.symbol, entry.span)),
            }
        }
        open.map(|e| (&e.symbol, e.span))
    }

    /// Whether a global declaration stands before the place.
    pub(super) fn sees(&self, ordinal: Ordinal) -> bool {
        self.limit.is_none_or(|limit| ordinal < limit)
    }

    /// All names at the place that a test accepts.
    pub(super) fn names(&self, test: impl Fn(&Symbol<'a>) -> bool) -> impl Iterator<Item = &'a str> {
        let scopes = self.locals.iter().chain([&self.globals]);
        scopes.flat_map(|s| s.iter()).filter(move |(_, e)| test(&e.symbol)).map(|(name, _)| *name)
    }
}
