//! Tables, actions, value sets and headers of packets to the controller.

use super::super::annotations::{self, Annotations};
use super::super::inventory::{AppliedTable, Named, UsedAction, action_name};
use super::super::key_name::key_name;
use super::super::proto::action_ref::Scope;
use super::super::proto::controller_packet_metadata::Metadata;
use super::super::proto::match_field::{Match, MatchType};
use super::super::proto::p4_ids::Prefix;
use super::super::proto::table::IdleTimeoutBehavior;
use super::super::proto::{
    self, ActionRef, ControllerPacketMetadata, MatchField, P4NamedType, TableActionCall, action,
    table_action_call,
};
use super::super::types::{bytes, flatten, type_name, width};
use super::Builder;
use crate::hir::{
    Action, ActionCall, Annotation, Composite, Direction, Table, Type, Value, ValueSet, Var, VarKind,
};
use crate::instantiate::ObjectId;
use crate::source::Span;

/// Entries of a table whose program gives no size.
const DEFAULT_SIZE: i64 = 1024;

impl<'p> Builder<'p, '_> {
    pub(super) fn table(&mut self, table: &AppliedTable<'p>) {
        let (item, scope) = (table.item, table.scope);
        if annotations::has(&item.annotations, "hidden") {
            return;
        }
        let preamble = self.preamble(Prefix::Table, &table.name, &item.annotations, &[], item.span);
        let default = item.default.as_ref().map(|call| TableActionCall {
            action_id: self
                .ids
                .id(Prefix::Action, &action_name(self.program, self.objects, scope, call.action)),
            arguments: self.default_arguments(call, scope),
        });
        let (implementation_id, direct_resource_ids) = self.resources(table);
        let message = proto::Table {
            preamble: Some(preamble),
            match_fields: self.match_fields(item),
            action_refs: self.action_refs(item, scope),
            const_default_action_id: match &default {
                Some(call) if item.const_default => call.action_id,
                _ => 0,
            },
            initial_default_action: default,
            implementation_id,
            direct_resource_ids,
            size: match item.size.as_ref().map_or(0, |size| self.number(scope, size)) {
                0 => DEFAULT_SIZE,
                size => size,
            },
            idle_timeout_behavior: if self.notifies_idle(item, scope) {
                IdleTimeoutBehavior::NotifyControl.into()
            } else {
                IdleTimeoutBehavior::NoTimeout.into()
            },
            is_const_table: item.const_entries,
            has_initial_entries: !item.entries.is_empty(),
            other_properties: None,
        };
        self.info.tables.push(message);
    }

    fn match_fields(&mut self, table: &Table) -> Vec<MatchField> {
        let ids = self.field_ids(table.keys.iter().map(|key| key.annotations.as_slice()));
        let keys = table.keys.iter().zip(ids).filter(|(key, _)| key.kind != "selector");
        keys.map(|(key, id)| {
            let Annotations { texts, structured, doc } = Annotations::of(&key.annotations, &[]);
            MatchField {
                id,
                name: key_name(self.program, self.sources, key),
                annotations: texts,
                bitwidth: width(&key.value.ty),
                doc,
                type_name: self.types.new_type(&key.value.ty),
                structured_annotations: structured,
                r#match: Some(match_kind(&key.kind)),
                ..Default::default()
            }
        })
        .collect()
    }

    fn action_refs(&self, table: &Table, scope: ObjectId) -> Vec<ActionRef> {
        let actions = table.actions.iter();
        actions
            .map(|action| {
                let name = action_name(self.program, self.objects, scope, action.call.action);
                let list = &action.annotations;
                let Annotations { texts, structured, .. } = Annotations::of(list, &[]);
                let scope = if annotations::has(list, "tableonly") {
                    Scope::TableOnly
                } else if annotations::has(list, "defaultonly") {
                    Scope::DefaultOnly
                } else {
                    Scope::TableAndDefault
                };
                ActionRef {
                    id: self.ids.id(Prefix::Action, &name),
                    scope: scope.into(),
                    annotations: texts,
                    structured_annotations: structured,
                    ..Default::default()
                }
            })
            .collect()
    }

    /// Arguments of a table's default action that entries give other actions.
    fn default_arguments(&mut self, call: &ActionCall, scope: ObjectId) -> Vec<table_action_call::Argument> {
        let Some(action) = self.program.actions.get(call.action.index()) else { return Vec::new() };
        let params = self.params(action);
        let ids = self.field_ids(params.iter().map(|(_, var)| var.annotations.as_slice()));
        let mut arguments = Vec::new();
        for ((at, var), param_id) in params.into_iter().zip(ids) {
            let value = call.args.get(at).and_then(|arg| self.objects.value(scope, arg));
            if let Some(value) = value.and_then(|value| bytes(&value, &var.ty)) {
                arguments.push(table_action_call::Argument { param_id, value });
            }
        }
        arguments
    }

    /// Whether a table tells the controller of entries that were not used for a time.
    fn notifies_idle(&self, table: &Table, scope: ObjectId) -> bool {
        let Some(property) = table.properties.iter().find(|property| property.name == self.arch.idle_timeout)
        else {
            return false;
        };
        match (self.objects.value(scope, &property.value), &property.value.ty) {
            (Some(Value::Bool(value)), _) => value,
            (Some(Value::Integer(value)), Type::Enum(ty)) => {
                ty.members.iter().any(|(name, position, _)| name == "NOTIFY_CONTROL" && *position == value)
            }
            _ => false,
        }
    }

    /// Parameters of an action that entries give values to, with their positions.
    fn params(&self, action: &Action) -> Vec<(usize, &'p Var)> {
        let program = self.program;
        let params = action.params.iter().enumerate();
        params
            .filter_map(|(at, id)| Some((at, program.vars.get(id.index())?)))
            .filter(|(_, var)| matches!(var.kind, VarKind::Param(Direction::None)))
            .collect()
    }

    pub(super) fn action(&mut self, action: &UsedAction<'p>) {
        let item = action.item;
        if annotations::has(&item.annotations, "hidden") {
            return;
        }
        let preamble = self.preamble(Prefix::Action, &action.name, &item.annotations, &[], item.span);
        let params = if action.is_called { Vec::new() } else { self.params(item) };
        let ids = self.field_ids(params.iter().map(|(_, var)| var.annotations.as_slice()));
        let params = params.into_iter().zip(ids).map(|((_, var), id)| {
            let Annotations { texts, structured, doc } = Annotations::of(&var.annotations, &[]);
            let mut type_name = self.types.new_type(&var.ty);
            if let (Type::Enum(ty), None) = (&var.ty, &type_name) {
                let plain = ty.representation.is_none();
                type_name = plain.then(|| P4NamedType { name: super::type_name(&ty.annotations, &ty.name) });
            }
            action::Param {
                id,
                name: super::type_name(&var.annotations, &var.name),
                annotations: texts,
                bitwidth: width(&var.ty),
                doc,
                type_name,
                structured_annotations: structured,
                ..Default::default()
            }
        });
        let params = params.collect();
        self.info.actions.push(proto::Action { preamble: Some(preamble), params });
    }

    pub(super) fn value_set(&mut self, value_set: &Named<'p, ValueSet>) {
        let item = value_set.item;
        let preamble = self.preamble(Prefix::ValueSet, &value_set.name, &item.annotations, &[], item.span);
        let fields = match &item.element {
            Type::Struct(ty) => {
                let ids = self.field_ids(ty.fields.iter().map(|field| field.annotations.as_slice()));
                let fields = ty.fields.iter().zip(ids);
                fields
                    .map(|(field, id)| self.element(id, &field.name, &field.ty, &field.annotations))
                    .collect()
            }
            Type::Tuple(types) => {
                let fields = types.iter().zip(1..);
                fields.map(|(ty, id)| self.element(id, "", ty, &[])).collect()
            }
            ty => vec![self.element(1, "", ty, &[])],
        };
        let size = i32::try_from(self.number(value_set.scope, &item.size)).unwrap_or(i32::MAX);
        self.info.value_sets.push(proto::ValueSet { preamble: Some(preamble), r#match: fields, size });
    }

    /// A part of a value set's elements.
    fn element(&mut self, id: u32, name: &str, ty: &Type, list: &[Annotation]) -> MatchField {
        let Annotations { texts, structured, doc } = Annotations::of(list, &["match"]);
        let kind =
            annotations::find(list, "match").and_then(|annotation| annotations::tokens(annotation).first());
        MatchField {
            id,
            name: type_name(list, name),
            annotations: texts,
            bitwidth: width(ty),
            doc,
            type_name: self.types.new_type(ty),
            structured_annotations: structured,
            r#match: Some(match_kind(kind.map_or("exact", String::as_str))),
            ..Default::default()
        }
    }

    pub(super) fn controller_header(&mut self, header: &'p Composite) {
        if annotations::has(&header.annotations, "hidden") {
            return;
        }
        let name = type_name(&header.annotations, &header.name);
        let mut preamble =
            self.preamble(Prefix::ControllerHeader, &name, &header.annotations, &[], Span::default());
        // The id is of the type, the name is that of the annotation.
        let given = annotations::find(&header.annotations, "controller_header").and_then(annotations::string);
        preamble.name = given.unwrap_or(name);
        preamble.alias.clone_from(&preamble.name);
        let Some(fields) = flatten(header).filter(|_| !self.types.too_large) else {
            self.types.too_large = true;
            return;
        };
        let lists: Vec<Vec<Annotation>> = fields
            .iter()
            .map(|field| field.annotations.iter().map(|list| (*list).clone()).collect())
            .collect();
        let ids = self.field_ids(lists.iter().map(Vec::as_slice));
        let mut metadata = Vec::new();
        for ((field, list), id) in fields.iter().zip(&lists).zip(ids) {
            if annotations::has(list, "hidden") {
                continue;
            }
            let Annotations { texts, structured, .. } = Annotations::of(list, &[]);
            metadata.push(Metadata {
                id,
                name: field.name.clone(),
                annotations: texts,
                bitwidth: width(field.ty),
                type_name: self.types.new_type(field.ty),
                structured_annotations: structured,
                ..Default::default()
            });
        }
        let message = ControllerPacketMetadata { preamble: Some(preamble), metadata };
        self.info.controller_packet_metadata.push(message);
    }
}

fn match_kind(kind: &str) -> Match {
    let known = match kind {
        "exact" => MatchType::Exact,
        "lpm" => MatchType::Lpm,
        "ternary" => MatchType::Ternary,
        "range" => MatchType::Range,
        "optional" => MatchType::Optional,
        _ => return Match::OtherMatchType(kind.to_owned()),
    };
    Match::MatchType(known.into())
}
