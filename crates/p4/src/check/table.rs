//! Tables.

use std::collections::HashMap;

use super::infer::Infer;
use super::keyset::is_prefix;
use super::scope::Symbol;
use super::show::expr_text;
use super::signature::{Param, Signature};
use super::ty::Ty;
use super::value::Kind;
use super::{Checker, Here, Place, index};
use crate::ast::{self, Argument, Direction, ExprKind, PropertyValue};
use crate::diagnostic::Diagnostic;
use crate::hir::{self, ActionCall, ActionId, ControlId, Keyset, TableId, Value};
use crate::source::Span;

/// An action of a table's list.
struct Listed<'a> {
    action: ActionId,
    /// Arguments for directed parameters, by the parameters' names.
    bound: Vec<(&'a str, &'a ast::Expr)>,
    call: ActionCall,
    span: Span,
    table_only: bool,
    default_only: bool,
}

/// What a reference to an action gives: its name, its number and its arguments.
type Reference<'a> = (&'a ast::Name, ActionId, &'a [Argument]);

impl<'a> Checker<'a, '_> {
    /// Declares a table.
    pub(super) fn table(
        &mut self,
        declaration: &'a ast::Declaration,
        table: &'a ast::Table,
        control: ControlId,
    ) -> TableId {
        let name = &declaration.name;
        let id = TableId(index(self.out.tables.len()));
        let annotations = self.annotations(&declaration.annotations);
        let mut out = hir::Table {
            name: name.text.clone(),
            annotations,
            control,
            keys: Vec::new(),
            actions: Vec::new(),
            default: None,
            const_default: false,
            entries: Vec::new(),
            const_entries: false,
            size: None,
            properties: Vec::new(),
            span: declaration.span,
        };
        self.out.tables.push(out.clone());
        self.declare(name, Symbol::Open("table"));
        let place = Place { here: Here::Table, ..self.place.clone() };
        self.at(place, |c| {
            c.no_repetition(&table.properties);
            c.in_order(&table.properties);
            if !table.properties.iter().any(|p| p.name.text == "actions") {
                let found = Diagnostic::error(name.span, format!("table `{}` has no actions", name.text));
                c.report(found.help("add `actions = { … }`"));
            }
            let key_types = c.keys(table, &mut out);
            let listed = c.action_list(table, &mut out);
            for property in &table.properties {
                match &property.value {
                    PropertyValue::Key(_) | PropertyValue::Actions(_) => {}
                    PropertyValue::Entries(entries) => {
                        out.const_entries = property.is_const;
                        c.entries(entries, property, &key_types, &listed, &mut out);
                    }
                    PropertyValue::Expression(value) => c.property(property, value, &listed, &mut out),
                }
            }
            if !table.properties.iter().any(|p| p.name.text == "default_action") {
                c.implicit_default(name, &listed, &mut out);
            }
        });
        if let Some(slot) = self.out.tables.get_mut(id.index()) {
            *slot = out;
        }
        self.declare(name, Symbol::Table(id));
        id
    }

    /// Reports properties that stand in front of what they refer to.
    fn in_order(&mut self, properties: &'a [ast::Property]) {
        for (first, second) in [("key", "entries"), ("actions", "entries"), ("actions", "default_action")] {
            let place = |name: &str| properties.iter().position(|p| p.name.text == name);
            let (Some(a), Some(b)) = (place(first), place(second)) else { continue };
            if let (true, Some(late), Some(early)) = (b < a, properties.get(a), properties.get(b)) {
                let found =
                    Diagnostic::error(early.name.span, format!("`{second}` stands in front of `{first}`"));
                self.report(found.also(late.name.span, "move this to the front"));
            }
        }
    }

    fn no_repetition(&mut self, properties: &'a [ast::Property]) {
        let mut seen: HashMap<&str, Span> = HashMap::new();
        for property in properties {
            if let Some(earlier) = seen.insert(&property.name.text, property.name.span) {
                self.duplicate(&property.name, earlier);
            }
        }
    }

    fn keys(&mut self, table: &'a ast::Table, out: &mut hir::Table) -> Vec<Ty> {
        let mut types = Vec::new();
        for property in &table.properties {
            let PropertyValue::Key(keys) = &property.value else { continue };
            for key in keys {
                let typed = self.expr(&key.value);
                let scalar = matches!(
                    typed.ty,
                    Ty::Bit(_)
                        | Ty::Int(_)
                        | Ty::Bool
                        | Ty::Enum(_)
                        | Ty::New(_)
                        | Ty::ErrorCode
                        | Ty::Varbit(_)
                        | Ty::Error
                );
                if !scalar {
                    let message = format!("a key of type `{}`", self.show(&typed.ty));
                    self.report(
                        Diagnostic::error(key.value.span, message)
                            .expected("expected a number, `bool`, an enum or an error"),
                    );
                }
                if !self.match_kinds.contains_key(key.kind.text.as_str()) {
                    let message = format!("match kind `{}` is not declared", key.kind.text);
                    let mut found = Diagnostic::error(key.kind.span, message);
                    if let Some(like) = self.similar(&key.kind.text, self.match_kinds.keys().copied()) {
                        found = found.help(format!("did you mean `{like}`?"));
                    }
                    self.report(found);
                }
                let named = key.annotations.iter().any(|a| a.name.text == "name");
                if !named && !has_own_name(&key.value) {
                    let message =
                        format!("key `{}` has no name for the control plane", expr_text(&key.value));
                    let found = Diagnostic::error(key.value.span, message);
                    self.report(found.help("add one behind the match kind: `@name(\"…\")`"));
                }
                types.push(if scalar { typed.ty.clone() } else { Ty::Error });
                let annotations = self.annotations(&key.annotations);
                out.keys.push(hir::Key {
                    text: expr_text(&key.value),
                    annotations,
                    value: self.finish(typed),
                    kind: key.kind.text.clone(),
                    span: key.value.span.to(key.kind.span),
                });
            }
        }
        types
    }

    /// The action that an expression names, with its arguments.
    fn reference(&mut self, expr: &'a ast::Expr) -> Option<Reference<'a>> {
        let (callee, args): (&'a ast::Expr, &'a [Argument]) = match &expr.kind {
            ExprKind::Call(callee, types, args) => {
                if let Some(ty) = types.first() {
                    self.error(ty.span, "an action takes no type arguments");
                }
                (callee.as_ref(), args.as_slice())
            }
            _ => (expr, &[]),
        };
        let ExprKind::Name { global, name } = &callee.kind else {
            self.error(expr.span, "expected the name of an action");
            return None;
        };
        match self.scopes.find(&name.text, *global) {
            Some((Symbol::Action(id), _)) => Some((name, *id, args)),
            Some((Symbol::Open("action"), _)) | None => {
                self.not_found(name, "action", |s| matches!(s, Symbol::Action(_)));
                None
            }
            Some((_, declared)) => {
                let message = format!("`{}` is not an action", name.text);
                self.report(Diagnostic::error(name.span, message).also(declared, "declared here"));
                None
            }
        }
    }

    fn action_list(&mut self, table: &'a ast::Table, out: &mut hir::Table) -> Vec<Listed<'a>> {
        let mut listed: Vec<Listed<'a>> = Vec::new();
        for property in &table.properties {
            let PropertyValue::Actions(actions) = &property.value else { continue };
            for reference in actions {
                let Some((name, action, args)) = self.reference(&reference.action) else { continue };
                let span = reference.action.span;
                if let Some(earlier) = listed.iter().find(|l| l.action == action) {
                    let message = format!("action `{}` is listed twice", name.text);
                    let found = Diagnostic::error(span, message).also(earlier.span, "first listed here");
                    self.report(found);
                    continue;
                }
                let Some(call) = self.bound_args(name, action, args, span) else { continue };
                let has = |text: &str| reference.annotations.iter().any(|a| a.name.text == text);
                let signature = self.actions.get(action.index()).cloned();
                let directed: Vec<&'a str> =
                    signature.iter().flat_map(|s| directed(&s.params)).map(|p| p.name).collect();
                let bound = args
                    .iter()
                    .enumerate()
                    .filter_map(|(at, arg)| match &arg.name {
                        Some(name) => Some((name.text.as_str(), &arg.value)),
                        None => Some((*directed.get(at)?, &arg.value)),
                    })
                    .collect();
                let (table_only, default_only) = (has("tableonly"), has("defaultonly"));
                let annotations = self.annotations(&reference.annotations);
                out.actions.push(hir::ActionRef { annotations, call: call.clone() });
                listed.push(Listed { action, bound, call, span, table_only, default_only });
            }
        }
        listed
    }

    /// The arguments in a table's list: those for directed parameters.
    fn bound_args(
        &mut self,
        name: &'a ast::Name,
        action: ActionId,
        args: &'a [Argument],
        span: Span,
    ) -> Option<ActionCall> {
        let signature = self.actions.get(action.index()).cloned()?;
        let params: Vec<Param<'a>> = directed(&signature.params).cloned().collect();
        if args.len() > params.len() {
            let extra = args.get(params.len()).map_or(span, |a| a.value.span);
            let message =
                format!("an argument for a parameter of `{}` that the control plane sets", name.text);
            self.report(Diagnostic::error(extra, message).also(signature.span, "declared here"));
            return None;
        }
        let shortened = Signature { params, ..signature.as_ref().clone() };
        let passed = self.pass_with(&shortened, &[], Infer::default(), args, span)?;
        let args = passed.args.into_iter().map(|a| self.argument(a)).collect();
        Some(ActionCall { action, args, span })
    }

    /// An action with all its arguments: of a default or an entry.
    fn action_call(&mut self, expr: &'a ast::Expr, listed: &[Listed<'a>], what: &str) -> Option<ActionCall> {
        let (name, action, args) = self.reference(expr)?;
        let Some(entry) = listed.iter().find(|l| l.action == action) else {
            let message = format!("action `{}` is not in the table's list of actions", name.text);
            self.report(
                Diagnostic::error(expr.span, message).help(format!("add `{};` to `actions`", name.text)),
            );
            return None;
        };
        let signature = self.actions.get(action.index()).cloned()?;
        let free = signature.params.len() - directed(&signature.params).count();
        // The arguments for directed parameters are in the list; they may be repeated.
        let repeats = args.len() > free;
        let called = if repeats || directed(&signature.params).count() == 0 {
            signature.as_ref().clone()
        } else {
            let params =
                signature.params.iter().filter(|p| p.direction == Direction::None).cloned().collect();
            Signature { params, ..signature.as_ref().clone() }
        };
        let passed = self.pass_with(&called, &[], Infer::default(), args, expr.span)?;
        for (param, arg) in called.params.iter().zip(&passed.args) {
            if param.direction == Direction::None && !arg.known {
                self.not_constant(arg.span, &format!("an argument in {what}"));
                return None;
            }
        }
        if repeats {
            let differs = signature.params.iter().enumerate().find_map(|(at, param)| {
                let (_, listed) = entry.bound.iter().find(|(name, _)| *name == param.name)?;
                let given = args.iter().find(|a| a.name.as_ref().is_some_and(|n| n.text == param.name));
                let given = given.or_else(|| args.get(at).filter(|a| a.name.is_none()))?;
                (expr_text(&given.value) != expr_text(listed)).then_some((&given.value, *listed))
            });
            if let Some((given, listed)) = differs {
                let message =
                    format!("argument `{}` is not the one in the list of actions", expr_text(given));
                let found = Diagnostic::error(given.span, message)
                    .expected(format!("expected `{}`", expr_text(listed)));
                self.report(found.also(listed.span, "the list has this argument"));
                return None;
            }
        }
        let mut all: Vec<hir::Expr> = if repeats { Vec::new() } else { entry.call.args.clone() };
        for arg in passed.args {
            all.push(self.argument(arg));
        }
        Some(ActionCall { action, args: all, span: expr.span })
    }

    fn property(
        &mut self,
        property: &'a ast::Property,
        value: &'a ast::Expr,
        listed: &[Listed<'a>],
        out: &mut hir::Table,
    ) {
        match property.name.text.as_str() {
            "default_action" => {
                out.const_default = property.is_const;
                if listed.is_empty() && !matches!(value.kind, ExprKind::Name { .. } | ExprKind::Call(..)) {
                    self.error(value.span, "expected the name of an action");
                    return;
                }
                let call = self.action_call(value, listed, "the default action");
                if let Some(call) = &call
                    && let Some(entry) = listed.iter().find(|l| l.action == call.action && l.table_only)
                {
                    let found =
                        Diagnostic::error(value.span, "an action marked `@tableonly` cannot be the default");
                    self.report(found.also(entry.span, "marked here"));
                }
                out.default = call;
            }
            "size" => {
                let typed = self.expr(value);
                let number = matches!(typed.ty, Ty::Integer | Ty::Bit(_) | Ty::Int(_) | Ty::Error);
                if !number {
                    self.error(
                        value.span,
                        format!("a size of type `{}`, expected a number", self.show(&typed.ty)),
                    );
                } else if !typed.known {
                    self.not_constant(value.span, "the size of a table");
                }
                out.size = Some(self.finish(typed));
            }
            name => {
                let typed = self.expr(value);
                if !typed.known && !typed.ty.is_error() {
                    self.not_constant(value.span, &format!("property `{name}`"));
                }
                if matches!(typed.kind, Kind::Record(_)) {
                    self.error(value.span, format!("property `{name}` cannot be a structure expression"));
                    return;
                }
                let value = self.finish(typed);
                let annotations = self.annotations(&property.annotations);
                out.properties.push(hir::Property {
                    name: name.to_owned(),
                    annotations,
                    is_const: property.is_const,
                    value,
                    span: property.span,
                });
            }
        }
    }

    /// The default of a table that names none: `NoAction`, which is added to the list if it is not there.
    fn implicit_default(&mut self, name: &ast::Name, listed: &[Listed<'a>], out: &mut hir::Table) {
        let Some((Symbol::Action(action), _)) = self.scopes.find("NoAction", true) else {
            let message =
                format!("table `{}` has no `default_action`, and `NoAction` is not declared", name.text);
            self.report(
                Diagnostic::error(name.span, message).help("include core.p4, which declares `NoAction`"),
            );
            return;
        };
        let action = *action;
        if self.actions.get(action.index()).is_some_and(|s| !s.params.is_empty()) {
            self.error(
                name.span,
                format!("table `{}` has no `default_action`, and `NoAction` has parameters", name.text),
            );
            return;
        }
        let call = ActionCall { action, args: Vec::new(), span: name.span };
        if !listed.iter().any(|l| l.action == action) {
            let body = hir::AnnotationBody::Tokens(Vec::new());
            let default_only = hir::Annotation { name: "defaultonly".into(), body, span: name.span };
            out.actions.push(hir::ActionRef { annotations: vec![default_only], call: call.clone() });
        }
        out.default = Some(call);
    }

    fn entries(
        &mut self,
        entries: &'a [ast::Entry],
        property: &'a ast::Property,
        types: &[Ty],
        listed: &[Listed<'a>],
        out: &mut hir::Table,
    ) {
        if types.is_empty() && !entries.is_empty() {
            self.error(property.name.span, "entries in a table without a key");
            return;
        }
        let ordered = out.keys.iter().any(|k| matches!(k.kind.as_str(), "ternary" | "range" | "optional"));
        self.priorities(entries, property);
        let exact = out.keys.iter().all(|k| k.kind == "exact");
        let mut seen: HashMap<String, Span> = HashMap::new();
        for entry in entries {
            let priority = entry.priority.as_ref().and_then(|p| self.constant_integer(p));
            if let (Some(written), false) = (&entry.priority, ordered) {
                let found = Diagnostic::error(written.span, "a priority in a table whose keys need none");
                self.report(found.expected("only ternary, range and optional keys do"));
            }
            let keysets = self.keysets(&entry.keyset, types);
            let call = self.action_call(&entry.action, listed, "an entry");
            let (Some(mut keysets), Some(call)) = (keysets, call) else { continue };
            if let Some(marked) = listed.iter().find(|l| l.action == call.action && l.default_only) {
                let found = Diagnostic::error(
                    entry.action.span,
                    "an action marked `@defaultonly` cannot be in an entry",
                );
                self.report(found.also(marked.span, "marked here"));
            }
            if let ([Keyset::Any], true) = (keysets.as_slice(), types.len() > 1) {
                keysets = vec![Keyset::Any; types.len()];
            }
            for (keyset, key) in keysets.iter().zip(&out.keys) {
                self.entry_keyset(keyset, &key.kind);
            }
            let values: Option<Vec<&Value>> = keysets.iter().map(constant).collect();
            if let Some(values) = values.filter(|_| exact)
                && let Some(earlier) = seen.insert(format!("{values:?}"), entry.span)
            {
                let found = Diagnostic::error(entry.span, "an entry with the keys of another");
                self.report(found.also(earlier, "the other one"));
            }
            let annotations = self.annotations(&entry.annotations);
            out.entries.push(hir::Entry {
                annotations,
                is_const: entry.is_const || property.is_const,
                priority,
                keysets,
                call,
                span: entry.span,
            });
        }
    }

    /// Where entries are not `const`, the first has a priority if any has: the others' follow from it.
    fn priorities(&mut self, entries: &'a [ast::Entry], property: &'a ast::Property) {
        let first = entries.first().filter(|e| e.priority.is_none() && !property.is_const);
        let other = entries.iter().find_map(|e| e.priority.as_ref());
        if let (Some(first), Some(other)) = (first, other) {
            let found = Diagnostic::error(first.span, "the first entry has no priority, but another has");
            self.report(found.also(other.span, "this one").expected("expected `priority = …`"));
        }
    }

    /// Checks a keyset of an entry: it is constant, and one that the kind of the key can match.
    fn entry_keyset(&mut self, keyset: &Keyset, kind: &str) {
        let parts: Vec<&hir::Expr> = match keyset {
            Keyset::Any | Keyset::ValueSet(_) => Vec::new(),
            Keyset::Value(a) => vec![a],
            Keyset::Mask(a, b) | Keyset::Range(a, b) => vec![a, b],
        };
        if let Some(part) = parts.iter().find(|p| !matches!(p.kind, hir::ExprKind::Const(_))) {
            self.not_constant(part.span, "a keyset of an entry");
            return;
        }
        match (keyset, kind) {
            (Keyset::Mask(value, mask), "lpm") => {
                let prefix = match (&mask.kind, &mask.ty) {
                    (
                        hir::ExprKind::Const(mask @ Value::Integer(_)),
                        hir::Type::Bit(width) | hir::Type::Int(width),
                    ) => is_prefix(mask, *width),
                    _ => true,
                };
                if !prefix {
                    let found =
                        Diagnostic::error(value.span.to(mask.span), "a mask that is not that of a prefix");
                    self.report(found.expected("expected ones in front of zeros, because the key is `lpm`"));
                }
            }
            (Keyset::Mask(value, mask), "optional") => {
                self.error(value.span.to(mask.span), format!("a mask for a key of kind `{kind}`"));
            }
            (Keyset::Range(from, to), "exact" | "lpm" | "ternary" | "optional") => {
                self.error(from.span.to(to.span), format!("a range for a key of kind `{kind}`"));
            }
            _ => {}
        }
    }
}

/// The parameters that get their arguments in a table's list.
fn directed<'p, 'a>(params: &'p [Param<'a>]) -> impl Iterator<Item = &'p Param<'a>> {
    params.iter().filter(|p| p.direction != Direction::None)
}

/// The constant of a keyset that has one.
fn constant(keyset: &Keyset) -> Option<&Value> {
    match keyset {
        Keyset::Value(hir::Expr { kind: hir::ExprKind::Const(value), .. }) => Some(value),
        _ => None,
    }
}

/// Whether the control plane can name a key after its expression.
fn has_own_name(expr: &ast::Expr) -> bool {
    match &expr.kind {
        ExprKind::Binary(op, a, _) => *op == ast::BinOp::And && has_own_name(a),
        ExprKind::Unary(..) | ExprKind::Ternary(..) | ExprKind::Cast(..) => false,
        ExprKind::Member(base, _) | ExprKind::Index(base, _) | ExprKind::Slice(base, ..) => {
            has_own_name(base)
        }
        _ => true,
    }
}
