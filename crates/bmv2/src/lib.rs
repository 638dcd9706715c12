//! Import of BMv2's JSON: what p4c's BMv2 back end makes of a v1model program becomes a program of the match-action
//! pipeline, with the names of its P4Info.
//!
//! The result behaves as the pipeline does that the P4 front end makes of the same source: `standard_metadata`, the
//! two stages and what lies between them mean the same. The format is version 2 of the behavioural model's, as
//! `simple_switch` takes it.
//!
//! | module        | room for                                                             |
//! |---------------|----------------------------------------------------------------------|
//! | `document`    | the parts of a document, as they are written                         |
//! | `operand`     | values with a type: `{"type": …, "value": …}`                        |
//! | `p4info`      | what the P4Info adds to a document                                    |
//! | `storage`     | headers, stacks and metadata: header instances and variables          |
//! | `number`      | arithmetic without bounds in numbers of fixed widths                  |
//! | `expression`  | expressions: numbers, conditions, headers                             |
//! | `primitives`  | the bodies of actions                                                 |
//! | `objects`     | counters, meters, registers, lists, calculations                      |
//! | `tables`      | tables, their actions, entries and profiles                           |
//! | `flow`        | the graph of tables and conditions of a pipeline                      |
//! | `parser`      | parser states                                                         |
//! | `switch`      | `simple_switch`: stages, and what packets may ask for between them     |
//!
//! Invariants:
//! - A document is hostile: every name and number in it is looked up and checked; what it refers to exists or it is
//!   refused, with the object that refers to it.
//! - Time and memory follow the document's length: what is written out several times is counted ([`MOST_WORK`]).
//!
//! ```
//! let refused = bmv2::lower(b"{}", None).unwrap_err();
//! assert_eq!(refused.to_string(), "document: missing field `header_types` at line 1 column 2");
//! ```
#![forbid(unsafe_code)]

mod document;
mod expression;
mod flow;
mod number;
mod objects;
mod operand;
mod p4info;
mod parser;
mod primitives;
mod refusal;
mod storage;
mod switch;
mod tables;

use std::collections::{HashMap, HashSet};

use p4::info::P4Info;
use pipeline::{Checked, ir};

pub use refusal::Refusal;

use document::{Document, index};
use refusal::{At, Result};

/// Most statements, fields and values that are written out.
pub const MOST_WORK: usize = 1 << 20;
/// Most objects of a kind, in the document and in the P4Info.
pub const MOST_OBJECTS: usize = 1 << 12;
/// Longest name, bytes. Names of headers stand in front of those of all their fields.
pub const LONGEST_NAME: usize = 256;

/// Whether a text is a document of this format, rather than other JSON or none.
pub fn is_document(json: &[u8]) -> bool {
    const MARK: &[u8] = b"\"header_types\"";
    json.trim_ascii_start().starts_with(b"{") && json.windows(MARK.len()).any(|part| part == MARK)
}

/// Lowers a document. The P4Info that p4c makes beside it tells what the document leaves out: how keys are matched
/// and named, what counters count, the sizes of value sets.
///
/// # Errors
/// The first thing that is damaged, missing or not supported, with the object that it is in.
pub fn lower(json: &[u8], info: Option<&P4Info>) -> Result<Checked> {
    let document: Document =
        serde_json::from_slice(json).map_err(|error| Refusal::of(error.to_string())).at("document")?;
    document.bounded()?;
    let info = match info {
        Some(info) => Some(p4info::Info::new(info)?),
        None => None,
    };
    let mut lower = Lower::new(&document, info.as_ref())?;
    lower.storage()?;
    lower.arrays()?;
    lower.simple_switch()?;
    Checked::new(lower.out).map_err(|errors| {
        let first =
            errors.first().map_or_else(|| Refusal::of("invalid"), |error| Refusal::of(&error.problem));
        let place = errors.first().map_or_else(String::new, |error| error.place.clone());
        first.in_place(place)
    })
}

/// A document on its way into a program.
struct Lower<'d> {
    document: &'d Document,
    info: Option<&'d p4info::Info<'d>>,
    out: ir::Program,
    types: HashMap<&'d str, storage::Layout<'d>>,
    headers: HashMap<&'d str, storage::Instance<'d>>,
    stacks: HashMap<&'d str, (ir::StackId, &'d str)>,
    unions: HashMap<&'d str, Vec<ir::HeaderId>>,
    counters: HashMap<&'d str, ir::CounterId>,
    meters: HashMap<&'d str, ir::MeterId>,
    registers: HashMap<&'d str, ir::RegisterId>,
    value_sets: HashMap<&'d str, ir::ValueSetId>,
    digests: HashMap<u64, ir::DigestId>,
    profiles: HashMap<&'d str, ir::ProfileId>,
    calculations: HashMap<&'d str, &'d document::Calculation>,
    field_lists: HashMap<u64, &'d document::FieldList>,
    learn_lists: HashMap<u64, &'d document::FieldList>,
    action_ids: HashMap<u64, &'d document::Action>,
    actions: tables::Actions,
    tables: HashMap<&'d str, tables::Lowered>,
    errors: storage::Errors,
    /// Names that `simple_switch` has for fields of other names.
    aliases: HashMap<(&'d str, &'d str), &'d str>,
    /// Statements in the order of execution; in a parser, those since the last operation.
    code: Vec<ir::Stmt>,
    scope: Scope,
    /// Types of the parameters of the action that is being lowered.
    params: Vec<ir::Type>,
    /// Variables that the program reads or writes.
    used: HashSet<ir::VarId>,
    switch: switch::Switch,
    names: HashSet<String>,
    /// Highest number behind each name that is there several times.
    numbers: HashMap<String, usize>,
    work: usize,
}

/// Where statements are lowered to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Parser,
    Control,
}

impl<'d> Lower<'d> {
    fn new(document: &'d Document, info: Option<&'d p4info::Info<'d>>) -> Result<Self> {
        let name = document.program.as_deref().unwrap_or("bmv2");
        let stem =
            std::path::Path::new(name).file_stem().map_or("bmv2".into(), |stem| stem.to_string_lossy());
        Ok(Self {
            document,
            info,
            out: ir::Program::new(&storage::printable(&stem)),
            types: HashMap::new(),
            headers: HashMap::new(),
            stacks: HashMap::new(),
            unions: HashMap::new(),
            counters: HashMap::new(),
            meters: HashMap::new(),
            registers: HashMap::new(),
            value_sets: HashMap::new(),
            digests: HashMap::new(),
            profiles: HashMap::new(),
            calculations: index("calculation", &document.calculations, |c| c.name.as_str())?,
            field_lists: index("field list", &document.field_lists, |list| list.id)?,
            learn_lists: index("learn list", &document.learn_lists, |list| list.id)?,
            action_ids: index("action", &document.actions, |action| action.id)?,
            actions: tables::Actions::default(),
            tables: HashMap::new(),
            errors: storage::Errors::default(),
            aliases: document
                .field_aliases
                .iter()
                .map(|(alias, (header, field))| ((header.as_str(), field.as_str()), alias.as_str()))
                .collect(),
            code: Vec::new(),
            scope: Scope::Control,
            params: Vec::new(),
            used: HashSet::new(),
            switch: switch::Switch::default(),
            names: HashSet::new(),
            numbers: HashMap::new(),
            work: 0,
        })
    }

    /// Counts what is written out.
    fn take(&mut self, steps: usize) -> Result<()> {
        self.work = self.work.saturating_add(steps);
        match self.work <= MOST_WORK {
            true => Ok(()),
            false => Err(Refusal::of(format!(
                "the program is too large: more than {MOST_WORK} statements and values"
            ))),
        }
    }

    /// Appends a statement.
    fn emit(&mut self, stmt: ir::Stmt) -> Result<()> {
        self.take(1)?;
        self.code.push(stmt);
        Ok(())
    }

    /// Returns the statements that `body` appends.
    fn block(&mut self, body: impl FnOnce(&mut Self) -> Result<()>) -> Result<Vec<ir::Stmt>> {
        let outside = std::mem::take(&mut self.code);
        let result = body(self);
        let code = std::mem::replace(&mut self.code, outside);
        result.map(|()| code)
    }

    /// A variable that the document does not have.
    fn variable(&mut self, name: &str, ty: ir::Type) -> Result<ir::VarId> {
        self.take(1)?;
        let name = self.unique(name);
        Ok(self.out.add_var(&name, ty))
    }

    /// A name that no variable, header or stack has yet: the given one, or with a number behind it.
    fn unique(&mut self, name: &str) -> String {
        let base = storage::printable(name);
        if self.names.insert(base.clone()) {
            return base;
        }
        loop {
            let number = self.numbers.entry(base.clone()).or_insert(1);
            *number += 1;
            let candidate = format!("{base}#{number}");
            if self.names.insert(candidate.clone()) {
                return candidate;
            }
        }
    }
}
