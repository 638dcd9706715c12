//! Extern objects: counters, meters, registers, action profiles and digests.

use num_traits::ToPrimitive;

use super::super::annotations;
use super::super::arch::{ExternType, Kind};
use super::super::inventory::AppliedTable;
use super::super::proto::action_profile::{SelectorSizeSemantics, SumOfMembers, SumOfWeights};
use super::super::proto::p4_ids::Prefix;
use super::super::proto::{self, counter_spec, meter_spec};
use super::Builder;
use crate::diagnostic::Diagnostic;
use crate::hir::{Type, Value};
use crate::instantiate::{Arg, Object, ObjectId};

/// Annotations of action profiles that have fields of their own.
const PROFILE_FIELDS: &[&str] = &["max_group_size", "selector_size_semantics", "max_member_weight"];

impl Kind {
    fn prefix(self) -> Prefix {
        match self {
            Kind::Counter => Prefix::Counter,
            Kind::DirectCounter => Prefix::DirectCounter,
            Kind::Meter => Prefix::Meter,
            Kind::DirectMeter => Prefix::DirectMeter,
            Kind::Register => Prefix::Register,
            Kind::ActionProfile | Kind::ActionSelector => Prefix::ActionProfile,
            Kind::Digest => Prefix::Digest,
        }
    }
}

impl<'p> Builder<'p, '_> {
    /// What an object is, if a controller can address it, with the arguments of its type.
    fn extern_type(&self, object: &Object<'p>) -> Option<(&'static ExternType, &'p [Type])> {
        let Type::Extern(id, args) = &object.instance.ty else { return None };
        let ty = self.arch.extern_type(&self.program.externs.get(id.index())?.name)?;
        Some((ty, args))
    }

    /// Gives an object an id and an alias.
    pub(super) fn add_extern(&mut self, id: ObjectId) {
        let objects = self.objects;
        let Some(object) = objects.get(id) else { return };
        if let Some((ty, _)) = self.extern_type(object) {
            self.add(ty.kind.prefix(), &object.name, object.annotations(), object.instance.span);
        }
    }

    /// The object that a table's property brings into being.
    pub(super) fn property_object(&self, table: &AppliedTable<'p>, at: usize) -> Option<ObjectId> {
        let property = table.item.properties.get(at)?;
        let id = self.objects.property(table.scope, table.id, at, &property.value)?;
        self.objects.get(id)?.property.map(|_| id)
    }

    /// Ids of a table's action profile (or 0) and of its direct counter and meter. Objects that properties bring into
    /// being, and direct ones, are listed where their table is.
    pub(super) fn resources(&mut self, table: &AppliedTable<'p>) -> (u32, Vec<u32>) {
        let (objects, arch) = (self.objects, self.arch);
        let mut implementation = 0;
        let mut direct = Vec::new();
        for wanted in [arch.implementation, arch.counter, arch.meter] {
            let properties = table.item.properties.iter().enumerate();
            for (at, property) in properties.filter(|(_, property)| property.name == wanted) {
                let id = objects.property(table.scope, table.id, at, &property.value);
                let Some((id, object)) = id.and_then(|id| Some((id, objects.get(id)?))) else { continue };
                let Some((ty, _)) = self.extern_type(object) else { continue };
                let object_id = self.ids.id(ty.kind.prefix(), &object.name);
                match ty.kind {
                    Kind::ActionProfile | Kind::ActionSelector if wanted == arch.implementation => {
                        implementation = object_id;
                        if object.property.is_some() {
                            self.action_profile(object, ty);
                        }
                    }
                    Kind::DirectCounter if wanted == arch.counter => {
                        direct.push(object_id);
                        self.direct_counter(id, object, ty, table);
                    }
                    Kind::DirectMeter if wanted == arch.meter => {
                        direct.push(object_id);
                        self.direct_meter(id, object, ty, table);
                    }
                    _ => {}
                }
            }
        }
        (implementation, direct)
    }

    /// Lists an object that has a declaration. Direct counters and meters are listed with their tables.
    pub(super) fn declared(&mut self, id: ObjectId) {
        let objects = self.objects;
        let Some(object) = objects.get(id) else { return };
        let Some((ty, type_args)) = self.extern_type(object) else { return };
        match ty.kind {
            Kind::DirectCounter | Kind::DirectMeter => {}
            Kind::ActionProfile | Kind::ActionSelector => self.action_profile(object, ty),
            Kind::Digest => {
                if let Some(data) = type_args.first() {
                    self.digest(&object.name, object.annotations(), data);
                }
            }
            Kind::Counter => {
                let message = proto::Counter {
                    preamble: Some(self.extern_preamble(object, ty, &[])),
                    spec: Some(proto::CounterSpec { unit: counter_unit(object, ty).into() }),
                    size: size(object, ty),
                    index_type_name: ty.index.and_then(|at| self.types.new_type(type_args.get(at)?)),
                };
                self.info.counters.push(message);
            }
            Kind::Meter => {
                let message = proto::Meter {
                    preamble: Some(self.extern_preamble(object, ty, &[])),
                    spec: Some(meter_spec_of(object, ty)),
                    size: size(object, ty),
                    index_type_name: ty.index.and_then(|at| self.types.new_type(type_args.get(at)?)),
                };
                self.info.meters.push(message);
            }
            Kind::Register => {
                let message = proto::Register {
                    preamble: Some(self.extern_preamble(object, ty, &[])),
                    type_spec: type_args.first().map(|data| self.types.spec(data)),
                    size: i32::try_from(size(object, ty)).unwrap_or(i32::MAX),
                    index_type_name: ty.index.and_then(|at| self.types.new_type(type_args.get(at)?)),
                };
                self.info.registers.push(message);
            }
        }
    }

    fn extern_preamble(&mut self, object: &Object<'p>, ty: &ExternType, fields: &[&str]) -> proto::Preamble {
        self.preamble(ty.kind.prefix(), &object.name, object.annotations(), fields, object.instance.span)
    }

    fn direct_counter(
        &mut self,
        id: ObjectId,
        object: &Object<'p>,
        ty: &ExternType,
        table: &AppliedTable<'p>,
    ) {
        if !self.attach(id, object, table) {
            return;
        }
        let message = proto::DirectCounter {
            preamble: Some(self.extern_preamble(object, ty, &[])),
            spec: Some(proto::CounterSpec { unit: counter_unit(object, ty).into() }),
            direct_table_id: self.ids.id(Prefix::Table, &table.name),
        };
        self.info.direct_counters.push(message);
    }

    fn direct_meter(&mut self, id: ObjectId, object: &Object<'p>, ty: &ExternType, table: &AppliedTable<'p>) {
        if !self.attach(id, object, table) {
            return;
        }
        let message = proto::DirectMeter {
            preamble: Some(self.extern_preamble(object, ty, &[])),
            spec: Some(meter_spec_of(object, ty)),
            direct_table_id: self.ids.id(Prefix::Table, &table.name),
        };
        self.info.direct_meters.push(message);
    }

    /// Makes a direct counter or meter that of a table; an error if it is that of another.
    fn attach(&mut self, id: ObjectId, object: &Object<'p>, table: &AppliedTable<'p>) -> bool {
        if self.attached.insert(id) {
            return true;
        }
        let message = format!("`{}` is attached to a second table, `{}`", object.name, table.name);
        self.diagnostics.push(Diagnostic::error(table.item.span, message));
        false
    }

    fn action_profile(&mut self, object: &Object<'p>, ty: &ExternType) {
        let annotations = object.annotations();
        let integer = |name| {
            let value = annotations::find(annotations, name).and_then(annotations::integer)?;
            i32::try_from(value).ok()
        };
        let with_selector = ty.kind == Kind::ActionSelector;
        let mut semantics = None;
        if with_selector {
            let given =
                annotations::find(annotations, "selector_size_semantics").and_then(annotations::string);
            semantics = match given.unwrap_or_default().to_ascii_lowercase().as_str() {
                "sum_of_weights" => Some(SelectorSizeSemantics::SumOfWeights(SumOfWeights {})),
                "sum_of_members" => Some(SelectorSizeSemantics::SumOfMembers(SumOfMembers {
                    max_member_weight: integer("max_member_weight").unwrap_or(0),
                })),
                _ => None,
            };
        }
        let preamble = self.extern_preamble(object, ty, PROFILE_FIELDS);
        let message = proto::ActionProfile {
            table_ids: self.tables_of(preamble.id),
            preamble: Some(preamble),
            with_selector,
            size: size(object, ty),
            max_group_size: if with_selector { integer("max_group_size").unwrap_or(0) } else { 0 },
            selector_size_semantics: semantics,
            weights_disallowed: false,
        };
        self.info.action_profiles.push(message);
    }

    /// Ids of the tables that use an action profile, in the order of their names.
    fn tables_of(&self, profile: u32) -> Vec<u32> {
        let mut names: Vec<&str> = Vec::new();
        for table in &self.inventory.tables {
            let properties = table.item.properties.iter().enumerate();
            for (at, property) in properties.filter(|(_, property)| property.name == self.arch.implementation)
            {
                let object = self.objects.property(table.scope, table.id, at, &property.value);
                let object = object.and_then(|id| self.objects.get(id));
                if object.is_some_and(|object| self.ids.id(Prefix::ActionProfile, &object.name) == profile) {
                    names.push(&table.name);
                }
            }
        }
        names.sort_unstable();
        names.iter().map(|name| self.ids.id(Prefix::Table, name)).collect()
    }
}

/// The size of an object: an argument of its constructor.
fn size(object: &Object<'_>, ty: &ExternType) -> i64 {
    match object.args.get(ty.size) {
        Some(Arg::Value(Value::Integer(size))) => size.to_i64().unwrap_or(0),
        _ => 0,
    }
}

/// The member of an enumeration that says what an object counts or measures.
fn unit<'p>(object: &Object<'p>, ty: &ExternType) -> Option<&'p str> {
    let Some(Arg::Value(Value::Integer(value))) = object.args.get(ty.unit) else { return None };
    let Type::Enum(members) = &object.instance.args.get(ty.unit)?.ty else { return None };
    members.members.iter().find(|(_, position, _)| position == value).map(|(name, _, _)| name.as_str())
}

fn counter_unit(object: &Object<'_>, ty: &ExternType) -> counter_spec::Unit {
    match unit(object, ty) {
        Some("packets" | "PACKETS") => counter_spec::Unit::Packets,
        Some("bytes" | "BYTES") => counter_spec::Unit::Bytes,
        Some("packets_and_bytes" | "PACKETS_AND_BYTES") => counter_spec::Unit::Both,
        _ => counter_spec::Unit::Unspecified,
    }
}

fn meter_spec_of(object: &Object<'_>, ty: &ExternType) -> proto::MeterSpec {
    let unit = match unit(object, ty) {
        Some("packets" | "PACKETS") => meter_spec::Unit::Packets,
        Some("bytes" | "BYTES") => meter_spec::Unit::Bytes,
        _ => meter_spec::Unit::Unspecified,
    };
    proto::MeterSpec { unit: unit.into(), r#type: meter_spec::Type::TwoRateThreeColor.into() }
}
