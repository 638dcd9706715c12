//! Lowering: a checked program becomes a program of the match-action pipeline.
//!
//! Everything is inlined. Functions, directly called actions, sub-parsers and sub-controls leave no trace but their
//! statements; what remains are tables, the actions in their lists, and the objects that a control plane sees, under
//! their full names. A package's architecture says which parsers and controls make which stage (`v1model.rs`).
//!
//! | module        | room for                                                                        |
//! |---------------|---------------------------------------------------------------------------------|
//! | `types.rs`    | widths and layouts                                                              |
//! | `storage.rs`  | places: variables and headers of the pipeline that hold a value                  |
//! | `objects.rs`  | instantiation: parsers, controls and externs with their full names               |
//! | `value.rs`    | expressions                                                                      |
//! | `assign.rs`   | assignments and comparisons of composite values                                  |
//! | `statements.rs` | statements                                                                     |
//! | `leave.rs`    | `return`, `break` and `continue` without jumps                                   |
//! | `calls.rs`    | inlining: parameters, copies in and out                                          |
//! | `tables.rs`   | tables, their actions and entries                                                |
//! | `parsers.rs`  | parser states                                                                    |
//! | `core.rs`     | packets: `extract`, `lookahead`, `emit`, `verify`                                |
//! | `psa.rs`      | the stages of `PSA_Switch`; `psa_objects.rs`: the objects of its programs        |
//! | `v1model.rs`  | the stages of `V1Switch`; `externs.rs`: what its programs call                   |
//! | `foreign.rs`  | extern functions that no architecture has                                        |
//!
//! What programs can observe:
//! - Operands are evaluated from left to right, each to the end; a value that a later operand's call could change is
//!   saved first.
//! - Parameters are copied in and out. A parameter stands for its argument itself where no difference can be seen.
//! - Variables without an initial value keep the last one; headers in them are invalid.

mod assign;
mod calls;
mod core;
mod externs;
mod foreign;
mod leave;
mod objects;
mod parsers;
mod psa;
mod psa_objects;
mod statements;
mod storage;
mod tables;
mod types;
mod v1model;
mod value;

use std::collections::{HashMap, HashSet};

use pipeline::ir;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::hir::{self, Type, Value, VarId};
use crate::source::Span;

use calls::Frame;
use objects::{Object, ObjectId};
use parsers::Graph;
use storage::Store;
use tables::Lowered;
use types::Layout;
use value::Val;

/// Most statements, calls and rounds of loops that are lowered: inlining multiplies.
const MOST_WORK: usize = 1 << 18;
/// Most variables and headers.
const MOST_PLACES: usize = 1 << 17;

/// Lowers a checked program.
///
/// # Errors
/// Constructs that the pipeline or the architecture does not have, each at its place.
pub fn lower(program: &hir::Program, name: &str) -> Result<ir::Program, Diagnostics> {
    let mut lower = Lower::new(program, name);
    lower.package();
    if lower.diagnostics.errors() > 0 { Err(lower.diagnostics) } else { Ok(lower.out) }
}

/// Whether a program is for an architecture that can be lowered.
pub fn runs(program: &hir::Program) -> bool {
    let main = program.main.and_then(|id| program.instances.get(id.index()));
    let package = match main.map(|main| &main.ty) {
        Some(Type::Package(package)) => program.packages.get(package.index()),
        _ => None,
    };
    package.is_some_and(|package| matches!(package.name.as_str(), "V1Switch" | "PSA_Switch"))
}

/// What a variable of the program stands for.
#[derive(Debug, Clone)]
enum Binding {
    /// A place.
    Store(Store),
    /// A value: a parameter of a table's action, or a loop's variable.
    Val(Val),
    /// A constant: a parameter of a constructor.
    Constant(Value),
    /// An object.
    Object(ObjectId),
    /// The packet that a parser reads or a deparser writes.
    Packet,
}

/// Where statements are lowered to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Parser,
    Control,
    Action,
    Deparser,
}

struct Lower<'h> {
    hir: &'h hir::Program,
    out: ir::Program,
    diagnostics: Diagnostics,
    /// What variables stand for now. No function calls itself, so one at a time.
    bindings: HashMap<VarId, Binding>,
    layouts: HashMap<String, Layout>,
    objects: Vec<Object<'h>>,
    /// The object whose body is lowered.
    here: Option<ObjectId>,
    globals: HashMap<hir::InstanceId, ObjectId>,
    tables: HashMap<(ObjectId, hir::TableId), Lowered<'h>>,
    actions: HashMap<tables::Listed, ir::ActionId>,
    /// Storage of variables, by the object that they are in.
    locals: HashMap<(Option<ObjectId>, VarId), Store>,
    /// Arguments that parameters of objects stand for.
    aliases: HashMap<(ObjectId, VarId), Store>,
    value_sets: HashMap<(ObjectId, hir::ValueSetId), ir::ValueSetId>,
    frames: Vec<Frame<'h>>,
    /// Statements in the order of execution; in a parser, those since the last operation.
    code: Vec<ir::Stmt>,
    /// The parser that is being lowered.
    graph: Graph,
    /// Branches around `code`; a parser's operations cannot stand in them.
    nesting: usize,
    scope: Scope,
    /// Steps so far.
    work: usize,
    names: HashMap<String, u32>,
    /// Variables that are read or written somewhere.
    used: HashSet<ir::VarId>,
    switch: v1model::Switch,
}

impl<'h> Lower<'h> {
    fn new(hir: &'h hir::Program, name: &str) -> Self {
        let mut lower = Self {
            hir,
            out: ir::Program::new(name),
            diagnostics: Diagnostics::default(),
            bindings: HashMap::new(),
            layouts: HashMap::new(),
            objects: Vec::new(),
            here: None,
            globals: HashMap::new(),
            tables: HashMap::new(),
            actions: HashMap::new(),
            locals: HashMap::new(),
            aliases: HashMap::new(),
            value_sets: HashMap::new(),
            frames: Vec::new(),
            code: Vec::new(),
            graph: Graph::default(),
            nesting: 0,
            scope: Scope::Control,
            work: 0,
            names: HashMap::new(),
            used: HashSet::new(),
            switch: v1model::Switch::default(),
        };
        for error in &hir.errors {
            if !ir::ErrorId::STANDARD.contains(&error.as_str()) {
                lower.out.add_error(error);
            }
        }
        lower
    }

    /// Lowers the package `main`.
    fn package(&mut self) {
        let main = self.hir.main.and_then(|id| self.hir.instances.get(id.index()));
        let Some(main) = main else {
            let text = "the program has no package `main`";
            let help = "instantiate the architecture's package: `V1Switch(…) main;`";
            self.diagnostics.push(Diagnostic::error(Span::default(), text).help(help));
            return;
        };
        for id in &self.hir.globals {
            if Some(*id) != self.hir.main
                && let Some(instance) = self.hir.instances.get(id.index())
            {
                let object = self.instantiate(instance, "");
                self.globals.insert(*id, object);
            }
        }
        let Type::Package(package) = &main.ty else { return };
        let package = self.hir.packages.get(package.index()).map_or("", |p| p.name.as_str());
        match package {
            "V1Switch" => self.v1switch(main),
            "PSA_Switch" => self.psa_switch(main),
            _ => {
                let text = format!("programs for the package `{package}` do not run yet");
                self.diagnostics.push(
                    Diagnostic::error(main.span, text)
                        .help("`V1Switch` of v1model.p4 and `PSA_Switch` of psa.p4 do"),
                );
            }
        }
        if self.is_exhausted() {
            let text =
                "the program is too large: what is called stands at each call, and loops are written out";
            let bounds = format!("at most {MOST_WORK} statements and calls, {MOST_PLACES} variables");
            self.diagnostics.push(Diagnostic::error(main.span, text).expected(bounds));
        }
    }

    /// Records that something is not supported.
    fn unsupported(&mut self, span: Span, what: impl AsRef<str>) {
        self.diagnostics.push(Diagnostic::error(span, format!("{} not supported", what.as_ref())));
    }

    /// Whether the program has become too large. Nothing is lowered from then on, so that it ends.
    fn is_exhausted(&self) -> bool {
        self.work > MOST_WORK || self.out.vars.len() + self.out.headers.len() > MOST_PLACES
    }

    /// Counts a step of lowering; returns whether it may be taken.
    fn take_step(&mut self) -> bool {
        self.work += 1;
        !self.is_exhausted()
    }

    /// Appends a statement.
    fn emit(&mut self, stmt: ir::Stmt) {
        if self.take_step() {
            self.code.push(stmt);
        }
    }

    /// Returns the statements that `body` appends.
    fn block(&mut self, body: impl FnOnce(&mut Self)) -> Vec<ir::Stmt> {
        let outside = std::mem::take(&mut self.code);
        self.nesting += 1;
        body(self);
        self.nesting -= 1;
        std::mem::replace(&mut self.code, outside)
    }

    /// Runs `body` with fresh code in another scope, and returns that code.
    fn apart(&mut self, scope: Scope, body: impl FnOnce(&mut Self)) -> Vec<ir::Stmt> {
        let outside = (std::mem::take(&mut self.code), self.scope, self.nesting);
        (self.scope, self.nesting) = (scope, 0);
        body(self);
        let code = std::mem::replace(&mut self.code, outside.0);
        (self.scope, self.nesting) = (outside.1, outside.2);
        code
    }

    /// Returns a name that nothing has yet: the given one, or with a number behind it.
    fn unique(&mut self, name: &str) -> String {
        let mut base = name.replace('`', "'");
        while base.len() > 200 {
            base.pop();
        }
        if base.is_empty() {
            base.push('_');
        }
        loop {
            let count = self.names.entry(base.clone()).or_insert(0);
            *count += 1;
            let candidate = if *count == 1 { base.clone() } else { format!("{base}#{count}") };
            if *count == 1 || !self.names.contains_key(&candidate) {
                return candidate;
            }
        }
    }
}
