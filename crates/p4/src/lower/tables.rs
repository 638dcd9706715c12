//! Tables, the actions in their lists, and their entries.

use std::collections::HashSet;

use num_bigint::BigInt;
use num_traits::{One, ToPrimitive};
use pipeline::bits::Bits;
use pipeline::ir::{self, KeyMatch, LValue, MatchKind};

use super::calls::Frame;
use super::objects::{Made, ObjectId, full_name};
use super::types::{parts, scalar};
use super::value::Val;
use super::{Binding, Lower, Scope};
use crate::diagnostic::Diagnostic;
use crate::hir::{
    ActionCall, ActionId, ActionRef, AnnotationBody, Call, Callee, Direction, Entry, Expr, Keyset, Stmt,
    Table, TableId, Type, Value,
};
use crate::source::Span;

/// Entries of a table without a size (P4Runtime 1.5, section 9.1.1, leaves it open; p4c's number).
const DEFAULT_SIZE: u32 = 1024;

/// An action as tables list it: its control's object, the action and, if the list gives it arguments, its place there.
pub(super) type Listed = (Option<ObjectId>, ActionId, Option<(TableId, usize)>);

/// A lowered table.
#[derive(Debug, Clone)]
pub(super) struct Lowered<'h> {
    id: ir::TableId,
    /// Keys that are computed before each lookup.
    computed: Vec<(ir::VarId, &'h Expr)>,
    /// What the actions of its list became; one may be listed twice, with different arguments.
    actions: Vec<(ActionId, ir::ActionId)>,
}

impl<'h> Lower<'h> {
    /// Lowers `apply` of a table, with what follows it.
    pub(super) fn apply(&mut self, call: &'h Call, applied: ir::Applied) {
        if let Some(table) = self.applied_table(call) {
            self.lookup(&table, applied);
        }
    }

    fn applied_table(&mut self, call: &'h Call) -> Option<Lowered<'h>> {
        let (Callee::Table(table), Some(here), Scope::Control) = (&call.callee, self.here, self.scope) else {
            self.unsupported(call.span, "applying a table here is");
            return None;
        };
        self.table(here, *table)
    }

    fn lookup(&mut self, table: &Lowered<'h>, applied: ir::Applied) {
        for (var, key) in &table.computed {
            let value = self.key_number(key);
            self.emit(ir::Stmt::Set(LValue::Var(*var), value));
        }
        self.emit(ir::Stmt::Apply(table.id, Box::new(applied)));
    }

    /// Lowers `hit` or `miss` of an apply.
    pub(super) fn hit(&mut self, call: &'h Call, hit: bool) -> Val {
        let var = self.variable("hit", ir::Type::Bool);
        let set = |value| vec![ir::Stmt::Set(LValue::Var(var), super::leave::truth(value))];
        self.apply(call, ir::Applied { hit: set(hit), miss: set(!hit), ..ir::Applied::default() });
        Val::Number(ir::Expr::Var(var))
    }

    /// Lowers a `switch` on the action that ran.
    pub(super) fn switch_action(
        &mut self,
        call: &'h Call,
        cases: &'h [(Vec<ActionId>, Vec<Stmt>)],
        default: &'h [Stmt],
    ) {
        let Some(table) = self.applied_table(call) else { return };
        let mut actions = Vec::new();
        for (labels, body) in cases {
            let code = self.block(|lower| lower.body(body));
            let ids = table.actions.iter().filter(|(action, _)| labels.contains(action));
            actions.extend(ids.map(|(_, id)| (*id, code.clone())));
        }
        let other = self.block(|lower| lower.body(default));
        self.lookup(&table, ir::Applied { actions, other, ..ir::Applied::default() });
    }

    /// Lowers a table of an object, once.
    fn table(&mut self, here: ObjectId, id: TableId) -> Option<Lowered<'h>> {
        if let Some(lowered) = self.tables.get(&(here, id)) {
            return Some(lowered.clone());
        }
        let declared = self.hir.tables.get(id.index())?;
        let prefix = self.objects.get(here.0).map_or(String::new(), |object| object.name.clone());
        let name = full_name(&prefix, &declared.name, &declared.annotations);
        let made = ir::TableId::at(self.out.tables.len());
        let size = declared.size.as_ref().and_then(|size| self.compile_time(size));
        let size = size.as_ref().and_then(super::statements::small).unwrap_or(DEFAULT_SIZE);
        let entries = u32::try_from(declared.entries.len()).unwrap_or(u32::MAX);
        self.out.tables.push(ir::Table::new(&name, size.max(entries).max(1)));
        let (keys, computed, selectors) = self.keys(declared);
        let cpu = declared.annotations.iter().any(|a| a.name == "cpu");
        self.set(made, |table| {
            table.keys = keys;
            table.cpu = cpu;
        });
        self.properties(made, declared, &prefix, selectors);
        let mut lowered = Lowered { id: made, computed, actions: Vec::new() };
        for (i, action) in declared.actions.iter().enumerate() {
            let Some(ir_id) = self.table_action(here, (id, i), action) else { continue };
            lowered.actions.push((action.call.action, ir_id));
            let default_only = action.annotations.iter().any(|a| a.name == "defaultonly");
            self.set(made, |table| match default_only {
                true => table.default_only.push(ir_id),
                false => table.actions.push(ir_id),
            });
        }
        self.default(made, declared, here, &mut lowered);
        self.entries(made, declared, &lowered);
        self.profile_actions(made);
        self.tables.insert((here, id), lowered.clone());
        Some(lowered)
    }

    fn set(&mut self, id: ir::TableId, change: impl FnOnce(&mut ir::Table)) {
        if let Some(table) = self.out.tables.get_mut(id.index()) {
            change(table);
        }
    }

    /// Lowers keys: those of the lookup, those that are computed before it, and a selector's input.
    fn keys(&mut self, table: &'h Table) -> (Vec<ir::Key>, Vec<(ir::VarId, &'h Expr)>, Vec<ir::Item>) {
        let (mut keys, mut computed, mut selectors) = (Vec::new(), Vec::new(), Vec::new());
        let mut names = HashSet::new();
        for key in &table.keys {
            let name =
                super::objects::annotated_name(&key.annotations).unwrap_or_else(|| key_name(&key.text));
            let mut value = None;
            let code = self.block(|lower| value = Some(lower.key_number(&key.value)));
            let Some(mut value) = value else { continue };
            if !code.is_empty() {
                let ty = scalar(&key.value.ty).map_or(ir::Type::Bit(1), unsigned);
                let var = self.variable(&format!("key {name}"), ty);
                computed.push((var, &key.value));
                value = ir::Expr::Var(var);
            }
            let kind = match key.kind.as_str() {
                "exact" => MatchKind::Exact,
                "lpm" => MatchKind::Lpm,
                "ternary" => MatchKind::Ternary,
                "range" => MatchKind::Range,
                "optional" => MatchKind::Optional,
                "selector" => {
                    selectors.push(ir::Item::Value(value));
                    continue;
                }
                other => {
                    self.unsupported(key.span, format!("match kind `{other}` is"));
                    continue;
                }
            };
            let mut unique = name.clone();
            while !names.insert(unique.clone()) {
                unique.push('\'');
            }
            keys.push(ir::Key { name: unique, value, kind });
        }
        (keys, computed, selectors)
    }

    /// A key's value: unsigned, as prefixes and ranges need it.
    fn key_number(&mut self, key: &'h Expr) -> ir::Expr {
        let number = self.number(key);
        match scalar(&key.ty) {
            Some(ty) if ty != unsigned(ty) => number.cast(unsigned(ty)),
            _ => number,
        }
    }

    fn properties(&mut self, made: ir::TableId, table: &'h Table, prefix: &str, selectors: Vec<ir::Item>) {
        for property in &table.properties {
            match property.name.as_str() {
                "implementation" | "psa_implementation" | "pna_implementation" => {
                    if let Some(object) = self.property_object(&property.value, prefix) {
                        let profile = self.profile(object, selectors.clone(), property.span);
                        self.set(made, |table| table.profile = profile);
                    }
                }
                "counters" | "psa_direct_counter" | "pna_direct_counter" => {
                    if let Some(object) = self.property_object(&property.value, prefix) {
                        let kind = self.counter_kind(object, 0);
                        self.set(made, |table| table.counter = Some(kind));
                        self.make(object, Made::Direct(made));
                    }
                }
                "meters" | "psa_direct_meter" | "pna_direct_meter" => {
                    if let Some(object) = self.property_object(&property.value, prefix) {
                        let unit = self.meter_unit(object, 0);
                        self.set(made, |table| table.meter = Some(unit));
                        self.make(object, Made::Direct(made));
                    }
                }
                "support_timeout" => {
                    let on = self.compile_time(&property.value) == Some(Value::Bool(true));
                    self.set(made, |table| table.timeouts = on);
                }
                "psa_idle_timeout" | "pna_idle_timeout" => {
                    let on = self.compile_time(&property.value) != Some(Value::Integer(BigInt::from(0)));
                    self.set(made, |table| table.timeouts = on);
                }
                // Of other properties a target may make something or not (P4-16 1.2.5, section 14.2.1.6).
                _ => {}
            }
        }
    }

    /// Records what an object became.
    pub(super) fn make(&mut self, object: ObjectId, made: Made) {
        if let Some(object) = self.objects.get_mut(object.0) {
            object.made = Some(made);
        }
    }

    fn profile(&mut self, object: ObjectId, selectors: Vec<ir::Item>, span: Span) -> Option<ir::ProfileId> {
        if let Some(Made::Profile(profile)) = self.objects.get(object.0).and_then(|object| object.made) {
            return Some(profile);
        }
        let (size_at, selects) = match self.type_name(object) {
            "action_profile" | "ActionProfile" => (0, false),
            "action_selector" | "ActionSelector" => (1, true),
            _ => {
                self.unsupported(span, "this implementation of a table is");
                return None;
            }
        };
        let select = match selects {
            true => Some(ir::Selection { hash: self.hash_arg(object, 0, span), input: selectors }),
            false => None,
        };
        let name = self.objects.get(object.0).map_or(String::new(), |object| object.name.clone());
        let size = self.array_size(object, size_at);
        self.out.profiles.push(ir::Profile { name, actions: vec![], size, select });
        let profile = ir::ProfileId::at(self.out.profiles.len() - 1);
        self.make(object, Made::Profile(profile));
        Some(profile)
    }

    /// A table's profile has its actions.
    fn profile_actions(&mut self, table: ir::TableId) {
        let Some(table) = self.out.tables.get(table.index()) else { return };
        let Some(profile) = table.profile.and_then(|id| self.out.profiles.get_mut(id.index())) else {
            return;
        };
        for action in &table.actions {
            if !profile.actions.contains(action) {
                profile.actions.push(*action);
            }
        }
    }

    /// Lowers an action of a table's list. Tables share an action unless it is listed with arguments.
    fn table_action(
        &mut self,
        here: ObjectId,
        place: (TableId, usize),
        listed: &'h ActionRef,
    ) -> Option<ir::ActionId> {
        let id = listed.call.action;
        let action = self.hir.actions.get(id.index())?;
        let owner = action.control.map(|_| here);
        let bound = (!listed.call.args.is_empty()).then_some(place);
        if let Some(made) = self.actions.get(&(owner, id, bound)) {
            return Some(*made);
        }
        let prefix = match owner {
            Some(object) => self.objects.get(object.0).map_or(String::new(), |object| object.name.clone()),
            None => String::new(),
        };
        let mut name = full_name(&prefix, &action.name, &action.annotations);
        if self.out.actions.iter().any(|other| other.name == name) {
            name = self.unique(&format!("{name}#{}", self.out.actions.len()));
        }
        let mut params = Vec::new();
        let code = self.apart(Scope::Action, |lower| {
            let mut copies = Vec::new();
            let mut args = listed.call.args.iter();
            for param in &action.params {
                let Some(var) = lower.hir.vars.get(param.index()) else { continue };
                let binding = match var.kind {
                    crate::hir::VarKind::Param(Direction::None) => {
                        Binding::Val(entry_param(&var.name, &var.ty, &mut params))
                    }
                    crate::hir::VarKind::Param(direction) => {
                        let Some(arg) = args.next() else { continue };
                        let store = lower.local(Some(here), *param, &var.name, &var.ty, var.span);
                        if direction == Direction::In {
                            let value = lower.value(arg);
                            lower.assign(&store, &value, &var.ty, arg.span);
                        } else {
                            let place = lower.place(arg);
                            match direction {
                                Direction::InOut => {
                                    lower.assign(&store, &Val::Store(place.clone()), &var.ty, arg.span);
                                }
                                _ => lower.invalidate(&store),
                            }
                            copies.push((place, store.clone(), &var.ty));
                        }
                        Binding::Store(store)
                    }
                    _ => continue,
                };
                lower.bindings.insert(*param, binding);
            }
            let frame = Frame { native: copies.is_empty(), copies, ..Frame::default() };
            lower.frame(frame, &action.body);
        });
        self.out.actions.push(ir::Action { name, params, body: code });
        let made = ir::ActionId::at(self.out.actions.len() - 1);
        self.actions.insert((owner, id, bound), made);
        Some(made)
    }

    fn default(&mut self, made: ir::TableId, table: &'h Table, here: ObjectId, lowered: &mut Lowered<'h>) {
        let Some(call) = &table.default else { return };
        let listed = lowered.actions.iter().find(|(action, _)| *action == call.action).map(|(_, id)| *id);
        let action = match listed {
            Some(action) => action,
            None => {
                // `NoAction`, which no list has to name.
                let Some(declared) = self.hir.actions.get(call.action.index()) else { return };
                let owner = declared.control.map(|_| here);
                let key = (owner, call.action, None);
                let made_action = match self.actions.get(&key) {
                    Some(action) => *action,
                    None => {
                        let code = self.apart(Scope::Action, |lower| lower.native(&declared.body));
                        let name = full_name("", &declared.name, &declared.annotations);
                        self.out.actions.push(ir::Action { name, params: vec![], body: code });
                        ir::ActionId::at(self.out.actions.len() - 1)
                    }
                };
                self.actions.insert(key, made_action);
                lowered.actions.push((call.action, made_action));
                self.set(made, |table| table.default_only.push(made_action));
                made_action
            }
        };
        let args = self.call_args(call);
        let fixed = table.const_default;
        self.set(made, |table| {
            table.default = Some(ir::ActionCall { action, args: args.into() });
            table.const_default = fixed;
        });
    }

    /// Returns the arguments that an entry or a default gives: those of directionless parameters.
    fn call_args(&mut self, call: &'h ActionCall) -> Vec<ir::Constant> {
        let mut list = Vec::new();
        let Some(action) = self.hir.actions.get(call.action.index()) else { return list };
        for (param, arg) in action.params.iter().zip(&call.args) {
            let Some(var) = self.hir.vars.get(param.index()) else { continue };
            if var.kind != crate::hir::VarKind::Param(Direction::None) {
                continue;
            }
            match self.compile_time(arg) {
                Some(value) => self.constants(&value, &var.ty, arg.span, &mut list),
                None => self.unsupported(arg.span, "an argument that is not a constant is"),
            }
        }
        list
    }

    fn entries(&mut self, made: ir::TableId, table: &'h Table, lowered: &Lowered<'h>) {
        let Some(target) = self.out.tables.get(made.index()) else { return };
        let kinds: Vec<MatchKind> = target.keys.iter().map(|key| key.kind).collect();
        let has_priority = target.has_priority();
        let priorities = self.priorities(table);
        let mut entries = Vec::new();
        for (entry, priority) in table.entries.iter().zip(priorities) {
            let found = lowered.actions.iter().find(|(action, _)| *action == entry.call.action);
            let Some((_, action)) = found else { continue };
            let matches = self.matches(table, entry, &kinds);
            let args = self.call_args(&entry.call);
            entries.push(ir::Entry {
                matches: matches.into(),
                priority: if has_priority { priority } else { 0 },
                result: ir::EntryResult::Action(ir::ActionCall { action: *action, args: args.into() }),
                idle: 0,
                hard: 0,
                cookie: 0,
            });
        }
        let fixed = table.const_entries && !table.entries.is_empty();
        self.set(made, |table| {
            table.entries = entries;
            table.const_entries = fixed;
        });
    }

    /// Returns the entries' priorities, of which the largest wins (P4-16 1.2.5, section 14.2.1.4).
    ///
    /// With BMv2's annotation `@priority`, the smallest wins; an entry without it has its position, from 1.
    fn priorities(&mut self, table: &Table) -> Vec<u32> {
        let annotated = |entry: &Entry| match &entry.annotations.iter().find(|a| a.name == "priority")?.body {
            AnnotationBody::Tokens(tokens) => tokens.concat().parse::<u32>().ok(),
            _ => None,
        };
        if table.entries.iter().any(|entry| annotated(entry).is_some()) {
            let position = |i: usize| u32::try_from(i + 1).unwrap_or(u32::MAX);
            let list = table.entries.iter().enumerate().map(|(i, e)| annotated(e).unwrap_or(position(i)));
            return list.map(|priority| u32::MAX - priority).collect();
        }
        let property = |name: &str| {
            table.properties.iter().find(|p| p.name == name).and_then(|p| self.compile_time(&p.value))
        };
        let largest_wins = property("largest_priority_wins") != Some(Value::Bool(false));
        let delta = match property("priority_delta") {
            Some(Value::Integer(delta)) => delta,
            _ => BigInt::one(),
        };
        let count = BigInt::from(table.entries.len());
        let mut last: Option<BigInt> = None;
        let mut raw = Vec::new();
        for entry in &table.entries {
            let next = match (&entry.priority, last) {
                (Some(priority), _) => priority.clone(),
                (None, Some(last)) if largest_wins => last - &delta,
                (None, Some(last)) => last + &delta,
                (None, None) if largest_wins => (&count - 1) * &delta + 1,
                (None, None) => BigInt::one(),
            };
            raw.push(next.clone());
            last = Some(next);
        }
        let largest = raw.iter().max().cloned().unwrap_or_default();
        let turned = raw.into_iter().map(|p| if largest_wins { p } else { &largest + 1 - p });
        turned.map(|p| p.to_u32().unwrap_or(0)).collect()
    }

    fn matches(&mut self, table: &'h Table, entry: &'h Entry, kinds: &[MatchKind]) -> Vec<ir::Match> {
        let mut matches = Vec::new();
        let keys = table.keys.iter().zip(&entry.keysets).filter(|(key, _)| key.kind != "selector");
        for ((i, (key, keyset)), kind) in keys.enumerate().zip(kinds) {
            let Some(ty) = scalar(&key.value.ty) else { continue };
            let mut number = |expr: &'h Expr| -> Option<Bits> {
                let Some(value) = self.compile_time(expr) else {
                    self.unsupported(expr.span, "a keyset that is not a constant is");
                    return None;
                };
                let ty = if matches!(expr.ty, Type::Integer) { &key.value.ty } else { &expr.ty };
                let ty = if scalar(ty).is_some() { ty } else { &key.value.ty };
                self.constant(&value, ty, expr.span)
                    .map(|c| c.value.resize(scalar(&key.value.ty).map_or(1, ir::Type::width)))
            };
            let width = ty.width();
            let is = match (keyset, kind) {
                (Keyset::Any, _) => None,
                (Keyset::Value(value), kind) => number(value).map(|value| match kind {
                    MatchKind::Exact | MatchKind::Optional => KeyMatch::Exact(value),
                    MatchKind::Lpm => KeyMatch::Prefix(value, width),
                    MatchKind::Ternary => KeyMatch::Mask(value, Bits::ones(width)),
                    MatchKind::Range => KeyMatch::Range(value.clone(), value),
                }),
                (Keyset::Mask(value, mask), MatchKind::Ternary) => number(value)
                    .zip(number(mask))
                    .map(|(value, mask)| KeyMatch::Mask(value.and(&mask), mask)),
                (Keyset::Mask(value, mask), MatchKind::Lpm) => match number(value).zip(number(mask)) {
                    Some((value, mask)) => match prefix_length(&mask) {
                        Some(length) => Some(KeyMatch::Prefix(value.and(&mask), length)),
                        None => {
                            let text = "the mask of an `lpm` key is no prefix: its ones must be on the left";
                            self.diagnostics.push(Diagnostic::error(entry.span, text));
                            None
                        }
                    },
                    None => None,
                },
                (Keyset::Range(low, high), MatchKind::Range) => {
                    number(low).zip(number(high)).map(|(low, high)| KeyMatch::Range(low, high))
                }
                _ => {
                    let text = format!("this keyset does not fit a key that is matched `{}`", kind.name());
                    self.diagnostics.push(Diagnostic::error(entry.span, text));
                    None
                }
            };
            if let Some(is) = is {
                matches.push(ir::Match { key: u32::try_from(i).unwrap_or(u32::MAX), is });
            }
        }
        matches
    }
}

/// A parameter's value, which the entry gives.
fn entry_param(name: &str, ty: &Type, params: &mut Vec<ir::Param>) -> Val {
    match scalar(ty) {
        Some(ty) => {
            params.push(ir::Param { name: name.to_owned(), ty });
            Val::Number(ir::Expr::Param(u16::try_from(params.len() - 1).unwrap_or(u16::MAX)))
        }
        None => {
            let part = |(i, ty): (usize, &Type)| entry_param(&format!("{name}.{i}"), ty, params);
            Val::Parts(parts(ty).iter().enumerate().map(part).collect())
        }
    }
}

/// A key's name: its expression, with validity as P4Runtime writes it.
fn key_name(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    text.replace(".isValid()", ".$valid$")
}

/// The unsigned type of the same width; truth values stay.
fn unsigned(ty: ir::Type) -> ir::Type {
    match ty {
        ir::Type::Int(width) => ir::Type::Bit(width),
        other => other,
    }
}

/// The number of leading ones of a mask that is a prefix.
fn prefix_length(mask: &Bits) -> Option<u16> {
    let width = mask.width();
    let ones = (0..width).rev().take_while(|i| mask.bit(*i)).count();
    let length = u16::try_from(ones).ok()?;
    (0..width - length).all(|i| !mask.bit(i)).then_some(length)
}
