//! Specialisation as a piece of work that needs no engine: it takes milliseconds, in which the engine follows changes.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Facts, Special, TableFacts, specialise};
use crate::code::{Actions, Code};
use crate::compile::Options;

/// What specialised code is made of, then the code.
#[derive(Debug)]
pub struct Specialisation {
    engine: u64,
    code: Arc<Code>,
    actions: Arc<Actions>,
    flags: u64,
    tables: Vec<TableFacts>,
    options: Options,
    special: Option<Special>,
}

impl Specialisation {
    pub(crate) fn new(
        engine: u64,
        code: Arc<Code>,
        actions: Arc<Actions>,
        flags: u64,
        tables: Vec<TableFacts>,
        options: Options,
    ) -> Self {
        Self { engine, code, actions, flags, tables, options, special: None }
    }

    /// Makes the code, if there is any. Without it packets run the code that is for any entries.
    pub fn compile(&mut self) {
        let slots: HashMap<_, _> = self.actions.iter().map(|(id, code)| (*id, code.slot)).collect();
        let actions = self.actions.iter().map(|(id, code)| (*id, &code.action)).collect();
        let facts = Facts { flags: self.flags, tables: std::mem::take(&mut self.tables), actions };
        self.special = specialise(&self.code, &facts, &self.options, &slots).ok().flatten();
    }

    /// The code, if there is any and this engine asked for it.
    pub(crate) fn of(self, engine: u64) -> Option<Special> {
        self.special.filter(|_| self.engine == engine)
    }
}
