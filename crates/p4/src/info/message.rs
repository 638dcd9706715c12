//! The message, from what was found in a program.

mod externs;
mod tables;

use std::collections::HashSet;

use num_traits::ToPrimitive;

use super::annotations::{self, Annotations};
use super::arch::{self, Arch};
use super::ids::{Ids, Refusal};
use super::inventory::Inventory;
use super::proto::expression::Value as Literal;
use super::proto::p4_ids::Prefix;
use super::proto::{self, P4Info, P4TypeInfo, PkgInfo, PlatformProperties, Preamble};
use super::types::{Types, type_name};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::hir::{Annotation, Composite, Expr, Program, Type, Value};
use crate::instantiate::{ObjectId, Objects};
use crate::source::{Sources, Span};

struct Builder<'p, 'a> {
    program: &'p Program,
    sources: &'a Sources,
    objects: &'a Objects<'p>,
    arch: &'static Arch,
    inventory: &'a Inventory<'p>,
    diagnostics: &'a mut Diagnostics,
    ids: Ids,
    /// Names in the message.
    names: HashSet<(u32, String)>,
    /// Direct counters and meters that have tables.
    attached: HashSet<ObjectId>,
    types: Types<'p>,
    info: P4Info,
}

/// The P4Info of a program whose objects are known.
pub(super) fn build<'p>(
    program: &'p Program,
    sources: &Sources,
    objects: &Objects<'p>,
    diagnostics: &mut Diagnostics,
) -> P4Info {
    let arch = arch::of(program);
    let inventory = Inventory::of(program, sources, objects, arch, diagnostics);
    let digests = digests(&inventory);
    let mut builder = Builder {
        program,
        sources,
        objects,
        arch,
        inventory: &inventory,
        diagnostics,
        ids: Ids::default(),
        names: HashSet::new(),
        attached: HashSet::new(),
        types: Types::new(&program.errors),
        info: P4Info::default(),
    };
    builder.collect(&digests);
    for table in &inventory.tables {
        builder.table(table);
    }
    for action in &inventory.actions {
        builder.action(action);
    }
    for id in &inventory.externs {
        builder.declared(*id);
    }
    for value_set in &inventory.value_sets {
        builder.value_set(value_set);
    }
    for (name, ty) in &digests {
        builder.digest(name, &[], ty);
    }
    for header in controller_headers(program) {
        builder.controller_header(header);
    }
    builder.package();
    builder.finish()
}

/// Types that are sent with an extern function, each once, with names. Types without a name get numbers.
fn digests<'p>(inventory: &Inventory<'p>) -> Vec<(String, &'p Type)> {
    let mut result: Vec<(String, &'p Type)> = Vec::new();
    let mut nameless = 0;
    for ty in &inventory.digests {
        let name = match ty {
            Type::Struct(ty) | Type::Header(ty) | Type::Union(ty) => type_name(&ty.annotations, &ty.name),
            Type::Enum(ty) => type_name(&ty.annotations, &ty.name),
            Type::New(ty) => type_name(&ty.annotations, &ty.name),
            _ => {
                nameless += 1;
                format!("digest_{}", nameless - 1)
            }
        };
        if result.iter().all(|(known, _)| *known != name) {
            result.push((name, ty));
        }
    }
    result
}

/// The headers of packets from and to the controller.
fn controller_headers(program: &Program) -> impl Iterator<Item = &Composite> {
    program.types.iter().filter_map(|ty| match ty {
        Type::Header(header) if annotations::has(&header.annotations, "controller_header") => Some(&**header),
        _ => None,
    })
}

impl<'p> Builder<'p, '_> {
    /// Gives ids and aliases to everything with a name.
    fn collect(&mut self, digests: &[(String, &Type)]) {
        let inventory = self.inventory;
        for table in &inventory.tables {
            self.add(Prefix::Table, &table.name, &table.item.annotations, table.item.span);
            for at in 0..table.item.properties.len() {
                if let Some(id) = self.property_object(table, at) {
                    self.add_extern(id);
                }
            }
        }
        for action in &inventory.actions {
            self.add(Prefix::Action, &action.name, &action.item.annotations, action.item.span);
        }
        for value_set in &inventory.value_sets {
            self.add(Prefix::ValueSet, &value_set.name, &value_set.item.annotations, value_set.item.span);
        }
        for id in &inventory.externs {
            self.add_extern(*id);
        }
        for (name, _) in digests {
            self.add(Prefix::Digest, name, &[], Span::default());
        }
        for header in controller_headers(self.program) {
            let name = type_name(&header.annotations, &header.name);
            self.add(Prefix::ControllerHeader, &name, &header.annotations, Span::default());
        }
        self.ids.assign();
    }

    fn add(&mut self, kind: Prefix, name: &str, annotations: &[Annotation], span: Span) {
        let Err(refusal) = self.ids.add(kind, name, annotations::id(annotations)) else { return };
        let span = annotations::find(annotations, "id").map_or(span, |annotation| annotation.span);
        let message = match refusal {
            Refusal::Taken => format!("`@id` of `{name}` is that of another object"),
            Refusal::Kind => {
                format!("`@id` of `{name}` has the top byte of another kind (expected {:#04x})", kind as u32)
            }
        };
        self.diagnostics.push(Diagnostic::error(span, message));
    }

    /// The part of a message that all objects have. An error if another of the kind has the name.
    fn preamble(
        &mut self,
        kind: Prefix,
        name: &str,
        annotations: &[Annotation],
        fields: &[&str],
        span: Span,
    ) -> Preamble {
        if !self.names.insert((kind as u32, name.to_owned())) {
            let message =
                format!("two {} have the name `{name}`: a controller cannot tell them apart", plural(kind));
            let help = "Give one of them another name with `@name`.";
            self.diagnostics.push(Diagnostic::error(span, message).help(help));
        }
        let Annotations { texts, structured, doc } = Annotations::of(annotations, fields);
        Preamble {
            id: self.ids.id(kind, name),
            name: name.to_owned(),
            alias: self.ids.alias(name).to_owned(),
            annotations: texts,
            doc,
            structured_annotations: structured,
            ..Default::default()
        }
    }

    /// Numbers of fields, parameters or keys: those of `@id`, and for others the next free one.
    fn field_ids<'x>(&mut self, fields: impl Iterator<Item = &'x [Annotation]> + Clone) -> Vec<u32> {
        let mut taken = HashSet::new();
        for list in fields.clone() {
            let (Some(id), Some(annotation)) = (annotations::id(list), annotations::find(list, "id")) else {
                continue;
            };
            if id == 0 || !taken.insert(id) {
                let message =
                    format!("`@id({id})` of a field is {}", if id == 0 { "0" } else { "that of another" });
                self.diagnostics.push(Diagnostic::error(annotation.span, message));
            }
        }
        let mut next = 1;
        let mut ids = Vec::new();
        for list in fields {
            if let Some(id) = annotations::id(list) {
                next += 1;
                ids.push(id);
                continue;
            }
            while !taken.insert(next) {
                next += 1;
            }
            ids.push(next);
        }
        ids
    }

    /// The value of an expression in a control or parser, as a number; 0 if it is not known or too large.
    fn number(&self, scope: ObjectId, expr: &Expr) -> i64 {
        match self.objects.value(scope, expr) {
            Some(Value::Integer(value)) => value.to_i64().unwrap_or(0),
            _ => 0,
        }
    }

    /// Describes the program as a whole.
    fn package(&mut self) {
        let Some(main) = self.objects.main().and_then(|id| self.objects.get(id)) else { return };
        let annotations = main.annotations();
        let Annotations { texts, structured, doc } = Annotations::of(annotations, &[PACKAGE, PLATFORM]);
        let package = arch::package(self.program).map_or("", |package| &package.name);
        let mut info = PkgInfo {
            arch: if self.arch.name.is_empty() { package } else { self.arch.name }.to_owned(),
            annotations: texts,
            structured_annotations: structured,
            doc,
            ..Default::default()
        };
        let pairs = annotations::find(annotations, PACKAGE).map(annotations::key_values).unwrap_or_default();
        for (key, value) in pairs {
            let Literal::StringValue(text) = value else { continue };
            match key.as_str() {
                "name" => info.name = text,
                "version" => info.version = text,
                "organization" => info.organization = text,
                "contact" => info.contact = text,
                "url" => info.url = text,
                "arch" => info.arch = text,
                _ => {}
            }
        }
        if let Some(annotation) = annotations::find(annotations, PLATFORM) {
            let mut properties = PlatformProperties::default();
            for (key, value) in annotations::key_values(annotation) {
                let Literal::Int64Value(value) = value else { continue };
                let value = i32::try_from(value).unwrap_or(i32::MAX);
                match key.as_str() {
                    "multicast_group_table_size" => properties.multicast_group_table_size = value,
                    "multicast_group_table_total_replicas" => {
                        properties.multicast_group_table_total_replicas = value
                    }
                    "multicast_group_table_max_replicas_per_entry" => {
                        properties.multicast_group_table_max_replicas_per_entry = value;
                    }
                    _ => {}
                }
            }
            info.platform_properties = Some(properties);
        }
        self.info.pkg_info = Some(info);
    }

    fn digest(&mut self, name: &str, annotations: &[Annotation], ty: &Type) {
        let preamble = self.preamble(Prefix::Digest, name, annotations, &[], Span::default());
        let type_spec = Some(self.types.spec(ty));
        self.info.digests.push(proto::Digest { preamble: Some(preamble), type_spec });
    }

    fn finish(mut self) -> P4Info {
        if self.types.too_large {
            let span =
                self.objects.main().and_then(|id| self.objects.get(id)).map(|object| object.instance.span);
            let message = "types that a controller sees are too large or too deeply nested";
            self.diagnostics.push(Diagnostic::error(span.unwrap_or_default(), message));
        }
        // Present, if only to be empty, where there is something that could have a type, as p4c has it.
        let has_types = !self.info.tables.is_empty()
            || self
                .inventory
                .externs
                .iter()
                .filter_map(|id| self.objects.get(*id))
                .any(|object| object.is_declared)
            || (self.inventory.calls_extern_functions && self.arch.digest_function.is_some())
            || !self.info.controller_packet_metadata.is_empty()
            || self.info.actions.iter().any(|action| !action.params.is_empty());
        let types = self.types.finish();
        if has_types || types != P4TypeInfo::default() {
            self.info.type_info = Some(types);
        }
        self.info
    }
}

const PACKAGE: &str = "pkginfo";
const PLATFORM: &str = "platform_property";

/// What objects of a kind are called.
fn plural(kind: Prefix) -> &'static str {
    match kind {
        Prefix::Action => "actions",
        Prefix::Table => "tables",
        Prefix::ValueSet => "value sets",
        Prefix::ControllerHeader => "controller headers",
        Prefix::ActionProfile => "action profiles",
        Prefix::Counter => "counters",
        Prefix::DirectCounter => "direct counters",
        Prefix::Meter => "meters",
        Prefix::DirectMeter => "direct meters",
        Prefix::Register => "registers",
        Prefix::Digest => "digests",
        Prefix::Unspecified | Prefix::PsaExternsStart | Prefix::OtherExternsStart | Prefix::Max => "objects",
    }
}
