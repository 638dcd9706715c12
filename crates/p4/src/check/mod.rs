//! The checker: from the syntax tree to [`hir`], or to errors that say what is wrong.
//!
//! One walk in the order of the program. An expression is checked bottom-up; then it is converted to the type that its
//! place demands (`coerce`). A part that was refused has the type `Ty::Error`, which agrees with everything, so that
//! one mistake is reported once. The body of a generic function is checked twice: where it stands, with its type parameters
//! as types of their own, for its errors; and for each list of type arguments, for its checked form.
//!
//! | module       | room for                                                              |
//! |--------------|-----------------------------------------------------------------------|
//! | `ty`         | types                                                                 |
//! | `scope`      | names                                                                 |
//! | `value`      | expressions that have no type yet                                     |
//! | `fold`       | arithmetic on constants                                               |
//! | `signature`  | parameters of all that is called or constructed                       |
//! | `types`      | from written types to types; type arguments                           |
//! | `declare`    | declarations at the top level                                         |
//! | `infer`      | type arguments that are not written                                   |
//! | `coerce`     | conversions, implicit and explicit, and defaults                      |
//! | `expr`       | expressions but for calls                                             |
//! | `operator`   | operators                                                             |
//! | `call`       | calls and their arguments                                             |
//! | `method`     | calls of methods, built-in ones among them                            |
//! | `instance`   | objects                                                               |
//! | `statement`  | statements                                                            |
//! | `branch`     | `switch` and loops                                                    |
//! | `parser`     | parsers                                                               |
//! | `keyset`     | keysets of `select` and of entries                                    |
//! | `control`    | controls and actions                                                  |
//! | `table`      | tables                                                                |
//! | `annotation` | annotations                                                           |
//! | `plane`      | names that the control plane sees: no two of a kind are equal         |
//! | `show`       | texts of types and expressions                                        |

mod annotation;
mod branch;
mod call;
mod coerce;
mod control;
mod declare;
mod expr;
mod fold;
mod infer;
mod instance;
mod keyset;
mod method;
mod operator;
mod parser;
mod plane;
mod scope;
mod show;
mod signature;
mod statement;
mod table;
#[cfg(test)]
mod tests;
mod ty;
mod types;
mod value;

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use crate::ast;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::hir::{self, ControlId, InstanceId, ParserId, VarId, VarKind};
use crate::similar::similar;
use crate::source::Span;
use declare::{CompositeDecl, ExternDecl, FunctionDecl, Pending};
use scope::{Scopes, Symbol};
use signature::{Object, Signature};
use ty::{Composite, ParamId, Ty};

/// Checks a program. `None` if it has errors.
pub fn check(program: &ast::Program, diagnostics: &mut Diagnostics) -> Option<hir::Program> {
    let errors = diagnostics.errors();
    let mut checker = Checker::new(diagnostics);
    checker.program(program);
    let out = checker.out;
    (diagnostics.errors() == errors).then_some(out)
}

/// The kind of code around a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Here {
    /// Declarations at the top level, of parsers and of controls.
    Declarations,
    /// A function's body.
    Function,
    /// An implementation of an abstract method.
    Method,
    /// An action's body.
    Action,
    /// A parser state.
    State,
    /// The body of a control.
    Control,
    /// The properties of a table.
    Table,
}

/// The parser or control around a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Container {
    Parser(ParserId),
    Control(ControlId),
}

/// State of the walk: where it is.
#[derive(Debug, Clone)]
struct Place {
    here: Here,
    container: Option<Container>,
    /// Type that `return` gives.
    result: Option<Ty>,
    /// Loops around the place.
    loops: u32,
    /// Object whose abstract method is implemented.
    this: Option<InstanceId>,
}

impl Place {
    const TOP: Self = Self { here: Here::Declarations, container: None, result: None, loops: 0, this: None };
}

struct Checker<'a, 'd> {
    diagnostics: &'d mut Diagnostics,
    out: hir::Program,
    scopes: Scopes<'a>,
    place: Place,
    /// Types of the variables, objects and so on in `out`.
    vars: Vec<Ty>,
    instances: Vec<Ty>,
    parsers: Vec<Rc<Object<'a>>>,
    controls: Vec<Rc<Object<'a>>>,
    packages: Vec<Rc<Signature<'a>>>,
    externs: Vec<Rc<ExternDecl<'a>>>,
    abstracts: Vec<Rc<Signature<'a>>>,
    actions: Vec<Rc<Signature<'a>>>,
    functions: Vec<Rc<FunctionDecl<'a>>>,
    /// Instantiated functions by declaration and type arguments.
    instantiated: HashMap<(u32, String), hir::FunctionId>,
    /// Instantiated functions whose bodies are not checked yet.
    pending: Vec<Pending>,
    value_sets: Vec<Ty>,
    composites: Vec<Rc<CompositeDecl<'a>>>,
    /// Composites by declaration and type arguments.
    specialized: HashMap<(u32, String), Arc<Composite>>,
    /// Names of type parameters.
    type_params: Vec<&'a str>,
    match_kinds: HashMap<&'a str, Span>,
    errors: HashMap<&'a str, Span>,
    /// Objects declared in the parser or control around the place.
    declared: Vec<InstanceId>,
    /// Nesting of expressions and statements around the place.
    depth: u32,
}

/// Deepest nesting of expressions and statements.
const MAX_NESTING: u32 = 400;

impl<'a, 'd> Checker<'a, 'd> {
    fn new(diagnostics: &'d mut Diagnostics) -> Self {
        Self {
            diagnostics,
            out: hir::Program::default(),
            scopes: Scopes::default(),
            place: Place::TOP,
            vars: Vec::new(),
            instances: Vec::new(),
            parsers: Vec::new(),
            controls: Vec::new(),
            packages: Vec::new(),
            externs: Vec::new(),
            abstracts: Vec::new(),
            actions: Vec::new(),
            functions: Vec::new(),
            instantiated: HashMap::new(),
            pending: Vec::new(),
            value_sets: Vec::new(),
            composites: Vec::new(),
            specialized: HashMap::new(),
            type_params: Vec::new(),
            match_kinds: HashMap::new(),
            errors: HashMap::new(),
            declared: Vec::new(),
            depth: 0,
        }
    }

    /// Returns the candidate most similar to a misspelt word; `None` once no further error is kept, since the search is
    /// slow.
    fn similar<'w>(&self, word: &str, candidates: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
        let is_kept = self.diagnostics.errors() < Diagnostics::MOST;
        is_kept.then(|| similar(word, candidates)).flatten()
    }

    fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    fn error(&mut self, span: Span, message: impl Into<String>) {
        self.report(Diagnostic::error(span, message));
    }

    /// Declares a name in the innermost scope.
    fn declare(&mut self, name: &'a ast::Name, symbol: Symbol<'a>) {
        if let Err(earlier) = self.scopes.declare(&name.text, symbol, name.span) {
            self.duplicate(name, earlier);
        }
    }

    fn duplicate(&mut self, name: &ast::Name, earlier: Span) {
        let message = format!("`{}` is declared twice", name.text);
        self.report(
            Diagnostic::error(name.span, message)
                .expected("declared again here")
                .also(earlier, "first declared here"),
        );
    }

    /// Adds a variable to the program.
    fn var(
        &mut self,
        name: &'a ast::Name,
        ty: &Ty,
        kind: VarKind,
        annotations: &'a [ast::Annotation],
    ) -> VarId {
        let id = VarId(index(self.out.vars.len()));
        let annotations = self.annotations(annotations);
        let hir = self.hir(ty);
        self.out.vars.push(hir::Var { name: name.text.clone(), ty: hir, kind, annotations, span: name.span });
        self.vars.push(ty.clone());
        id
    }

    fn param_name(&self, id: ParamId) -> &'a str {
        self.type_params.get(id.0 as usize).copied().unwrap_or("?")
    }

    /// Runs a step one level deeper, unless that is too deep.
    fn nested<T>(&mut self, span: Span, step: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.depth >= MAX_NESTING {
            self.error(span, format!("nested too deeply; at most {MAX_NESTING} levels are supported"));
            return None;
        }
        self.depth += 1;
        let result = step(self);
        self.depth -= 1;
        Some(result)
    }

    /// Runs a step in a scope of its own.
    fn scoped<T>(&mut self, step: impl FnOnce(&mut Self) -> T) -> T {
        self.scopes.push();
        let result = step(self);
        self.scopes.pop();
        result
    }

    /// Runs a step at another place.
    fn at<T>(&mut self, place: Place, step: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.place, place);
        let result = step(self);
        self.place = before;
        result
    }
}

/// An index as a number of [`hir`]. A program has fewer parts than bytes, and a file at most 4 GiB.
fn index(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
