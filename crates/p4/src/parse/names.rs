//! Names in scope, and whether they are types. Unknown ones are left to the checks.

use std::collections::HashMap;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A type, parser, control, package or type parameter.
    Type,
    /// Anything else.
    Value,
}

/// Scopes, the innermost last. The first is the program's.
#[derive(Debug)]
pub(super) struct Names {
    scopes: Vec<HashMap<String, Meaning>>,
}

impl Default for Names {
    fn default() -> Self {
        Self { scopes: vec![HashMap::new()] }
    }
}

impl Names {
    /// Opens a scope. Returns what [`Names::close`] takes.
    pub(super) fn open(&mut self) -> usize {
        self.scopes.push(HashMap::new());
        self.scopes.len() - 1
    }

    /// Closes a scope and those within it.
    pub(super) fn close(&mut self, scopes: usize) {
        self.scopes.truncate(scopes.max(1));
    }

    /// Declares a name in the innermost scope.
    pub(super) fn declare(&mut self, name: &str, meaning: Meaning) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_owned(), meaning);
        }
    }

    /// Meaning of a name in the innermost scope that has it, or at the top level only.
    pub(super) fn look_up(&self, name: &str, global: bool) -> Option<Meaning> {
        let scopes = if global { self.scopes.get(..1)? } else { self.scopes.as_slice() };
        scopes.iter().rev().find_map(|scope| scope.get(name).copied())
    }
}
