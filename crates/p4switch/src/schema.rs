//! What a controller can address, by its ids, with what it is in the pipeline. Built once for a program.
//!
//! Names join both sides: the front end gives an object the same name in the P4Info and in the pipeline's program. Keys
//! and parameters are joined by position.

use std::collections::{HashMap, HashSet};

use p4runtime_proto::P4Info;
use pipeline::ir::{
    ActionId, CounterId, CounterKind, DigestId, MatchKind, MeterId, Param, ProfileId, Program, RegisterId,
    ReplicasId, TableId, Type, ValueSetId,
};
use pipeline::validate::expr_type;

use p4::info::proto;
use proto::action_profile::SelectorSizeSemantics;
use proto::action_ref::Scope;
use proto::match_field::{Match, MatchType};
use proto::meter_spec::Type as MeterType;

use crate::data::{Shape, Types};
use crate::packets::PacketHeader;

/// Objects by id.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    pub(crate) tables: HashMap<u32, Table>,
    /// Ids of tables in the order of the P4Info.
    pub(crate) table_order: Vec<u32>,
    /// Tables by their number in the pipeline.
    pub(crate) table_ids: HashMap<TableId, u32>,
    pub(crate) profiles: HashMap<u32, Profile>,
    pub(crate) counters: HashMap<u32, Counter>,
    pub(crate) meters: HashMap<u32, Meter>,
    pub(crate) registers: HashMap<u32, Register>,
    pub(crate) value_sets: HashMap<u32, ValueSet>,
    pub(crate) digests: HashMap<u32, Digest>,
    /// Digests by their number in the pipeline.
    pub(crate) digest_ids: HashMap<DigestId, u32>,
    pub(crate) multicast: Option<ReplicasId>,
    pub(crate) clones: Option<ReplicasId>,
    pub(crate) limits: Limits,
    pub(crate) packet_in: Option<PacketHeader>,
    pub(crate) packet_out: Option<PacketHeader>,
}

/// Limits of the packet replication engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Most multicast groups, and most clone sessions.
    pub(crate) groups: usize,
    /// Most replicas of all groups.
    pub(crate) replicas: u64,
    /// Most replicas of a group or session.
    pub(crate) replicas_each: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { groups: 1 << 16, replicas: 1 << 20, replicas_each: 1 << 14 }
    }
}

/// A table.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) ir: TableId,
    pub(crate) fields: Vec<Field>,
    pub(crate) actions: Vec<Action>,
    /// Id of its action profile.
    pub(crate) profile: Option<u32>,
    pub(crate) has_priority: bool,
    pub(crate) is_const: bool,
    pub(crate) const_default: bool,
    pub(crate) timeouts: bool,
    pub(crate) counter: Option<CounterKind>,
    pub(crate) meter: Option<MeterType>,
    /// Why entries cannot be written.
    pub(crate) unsupported: Option<String>,
}

/// A key of a table, or a part of a value set's members.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) kind: MatchKind,
    /// Bits that a controller may set.
    pub(crate) width: u16,
    /// Bits in the pipeline: no fewer.
    pub(crate) ir_width: u16,
}

/// An action of a table or profile.
#[derive(Debug, Clone)]
pub(crate) struct Action {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) ir: ActionId,
    pub(crate) scope: Scope,
    pub(crate) params: Vec<Parameter>,
    /// Whether a controller can give its arguments.
    pub(crate) supported: bool,
}

/// A parameter of an action.
#[derive(Debug, Clone)]
pub(crate) struct Parameter {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Bits that a controller may set.
    pub(crate) width: u16,
    pub(crate) ty: Type,
}

/// An action profile.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) ir: ProfileId,
    pub(crate) selector: bool,
    /// Most members; for a selector, the most of all groups' sizes.
    pub(crate) size: u64,
    pub(crate) max_group_size: u64,
    /// Whether a group's size is the number of its members; else it is the sum of their weights.
    pub(crate) counts_members: bool,
    /// Largest weight of a member; 0: any.
    pub(crate) max_weight: u64,
    pub(crate) no_weights: bool,
    pub(crate) actions: Vec<Action>,
}

/// An array of counters.
#[derive(Debug)]
pub(crate) struct Counter {
    pub(crate) name: String,
    pub(crate) ir: CounterId,
    pub(crate) size: u32,
    pub(crate) kind: CounterKind,
}

/// An array of meters.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) name: String,
    pub(crate) ir: MeterId,
    pub(crate) size: u32,
    pub(crate) ty: MeterType,
}

/// An array of registers.
#[derive(Debug)]
pub(crate) struct Register {
    pub(crate) name: String,
    pub(crate) ir: RegisterId,
    pub(crate) size: u32,
    pub(crate) ty: Type,
    pub(crate) shape: Shape,
}

/// A parser's value set.
#[derive(Debug)]
pub(crate) struct ValueSet {
    pub(crate) name: String,
    pub(crate) ir: ValueSetId,
    pub(crate) size: u32,
    pub(crate) fields: Vec<Field>,
}

/// A kind of digest.
#[derive(Debug)]
pub(crate) struct Digest {
    pub(crate) name: String,
    pub(crate) spec: Option<proto::P4DataTypeSpec>,
}

impl Table {
    /// An action by its number in the pipeline.
    pub(crate) fn action_of(&self, ir: ActionId) -> Option<&Action> {
        self.actions.iter().find(|action| action.ir == ir)
    }
}

impl Profile {
    /// An action by its number in the pipeline.
    pub(crate) fn action_of(&self, ir: ActionId) -> Option<&Action> {
        self.actions.iter().find(|action| action.ir == ir)
    }
}

/// A field by its id; `near` is where it most likely is.
pub(crate) fn field(fields: &[Field], id: u32, near: usize) -> Option<(usize, &Field)> {
    match fields.get(near) {
        Some(field) if field.id == id => Some((near, field)),
        _ => fields.iter().enumerate().find(|(_, field)| field.id == id),
    }
}

impl Schema {
    /// The objects of a program.
    pub(crate) fn of(info: &P4Info, program: &Program) -> Self {
        let mut schema = Self::default();
        let named = |name: &str, list: &[String]| list.iter().position(|other| other == name);
        schema.multicast = named("multicast", &program.replicas).map(ReplicasId::at);
        schema.clones = named("clone", &program.replicas).map(ReplicasId::at);
        schema.limits = limits(info);
        schema.arrays(info, program);
        schema.tables(info, program);
        schema.profiles(info, program);
        schema.digests(info, program);
        let header = |wanted: &str| {
            let is_wanted = |header: &&proto::ControllerPacketMetadata| {
                header.preamble.as_ref().is_some_and(|preamble| preamble.name == wanted)
            };
            let header = info.controller_packet_metadata.iter().find(is_wanted)?;
            Some(PacketHeader::of(header, program))
        };
        schema.packet_in = header("packet_in");
        schema.packet_out = header("packet_out");
        schema
    }

    fn tables(&mut self, info: &P4Info, program: &Program) {
        let numbers: HashMap<&str, usize> =
            program.tables.iter().enumerate().map(|(i, table)| (table.name.as_str(), i)).collect();
        let actions: HashMap<u32, &proto::Action> =
            info.actions.iter().filter_map(|action| Some((action.preamble.as_ref()?.id, action))).collect();
        for table in &info.tables {
            let Some(preamble) = &table.preamble else { continue };
            let Some(at) = numbers.get(preamble.name.as_str()) else { continue };
            let Some(ir) = program.tables.get(*at) else { continue };
            let (fields, unsupported) = table_fields(table, ir, program);
            let has_counter = info.direct_counters.iter().any(|c| c.direct_table_id == preamble.id);
            let meter_type = info
                .direct_meters
                .iter()
                .find(|meter| meter.direct_table_id == preamble.id)
                .map(|meter| meter.spec.as_ref().map_or(MeterType::default(), |spec| spec.r#type()));
            let found = Table {
                id: preamble.id,
                name: preamble.name.clone(),
                ir: TableId::at(*at),
                fields,
                actions: table_actions(table, ir, program, &actions),
                profile: (table.implementation_id != 0).then_some(table.implementation_id),
                has_priority: ir.has_priority(),
                is_const: table.is_const_table || ir.const_entries,
                const_default: table.const_default_action_id != 0 || ir.const_default,
                timeouts: ir.timeouts,
                counter: ir.counter.filter(|_| has_counter),
                meter: meter_type.filter(|_| ir.meter.is_some()),
                unsupported,
            };
            self.table_ids.insert(found.ir, found.id);
            self.table_order.push(found.id);
            self.tables.insert(found.id, found);
        }
    }

    fn profiles(&mut self, info: &P4Info, program: &Program) {
        for profile in &info.action_profiles {
            let Some(preamble) = &profile.preamble else { continue };
            let Some(at) = program.profiles.iter().position(|other| other.name == preamble.name) else {
                continue;
            };
            let mut actions: Vec<Action> = Vec::new();
            let (mut tables, mut known) = (HashSet::new(), HashSet::new());
            let ids = profile.table_ids.iter().filter(|id| tables.insert(**id));
            // A table has one profile, so that all profiles together have no more actions than the tables.
            let own = |table: &&Table| table.profile == Some(preamble.id);
            for table in ids.filter_map(|id| self.tables.get(id)).filter(own) {
                let listed = table.actions.iter().filter(|action| action.scope != Scope::DefaultOnly);
                actions.extend(listed.filter(|action| known.insert(action.ir)).cloned());
            }
            let size_of = |size: i64| u64::try_from(size).unwrap_or(0);
            let (counts_members, max_weight) = match &profile.selector_size_semantics {
                Some(SelectorSizeSemantics::SumOfMembers(of)) => (true, size_of(of.max_member_weight.into())),
                _ => (false, 0),
            };
            let found = Profile {
                id: preamble.id,
                name: preamble.name.clone(),
                ir: ProfileId::at(at),
                selector: profile.with_selector,
                size: size_of(profile.size),
                max_group_size: size_of(profile.max_group_size.into()),
                counts_members,
                max_weight,
                no_weights: profile.weights_disallowed,
                actions,
            };
            self.profiles.insert(found.id, found);
        }
    }

    fn arrays(&mut self, info: &P4Info, program: &Program) {
        for counter in &info.counters {
            let Some(preamble) = &counter.preamble else { continue };
            let name = preamble.name.clone();
            let at = program.counters.iter().position(|other| other.name == name);
            let Some((at, ir)) = at.and_then(|at| Some((at, program.counters.get(at)?))) else { continue };
            let found = Counter { name, ir: CounterId::at(at), size: ir.size, kind: ir.kind };
            self.counters.insert(preamble.id, found);
        }
        for meter in &info.meters {
            let Some(preamble) = &meter.preamble else { continue };
            let name = preamble.name.clone();
            let at = program.meters.iter().position(|other| other.name == name);
            let Some((at, ir)) = at.and_then(|at| Some((at, program.meters.get(at)?))) else { continue };
            let ty = meter.spec.as_ref().map_or(MeterType::default(), |spec| spec.r#type());
            self.meters.insert(preamble.id, Meter { name, ir: MeterId::at(at), size: ir.size, ty });
        }
        let mut types = Types::new(info, program);
        for register in &info.registers {
            let Some(preamble) = &register.preamble else { continue };
            let name = preamble.name.clone();
            let at = program.registers.iter().position(|other| other.name == name);
            let Some((at, ir)) = at.and_then(|at| Some((at, program.registers.get(at)?))) else { continue };
            let shape = types.shape(register.type_spec.as_ref());
            let found = Register { name, ir: RegisterId::at(at), size: ir.size, ty: ir.ty, shape };
            self.registers.insert(preamble.id, found);
        }
        for set in &info.value_sets {
            let Some(preamble) = &set.preamble else { continue };
            let name = preamble.name.clone();
            let at = program.value_sets.iter().position(|other| other.name == name);
            let Some((at, ir)) = at.and_then(|at| Some((at, program.value_sets.get(at)?))) else { continue };
            if ir.types.len() != set.r#match.len() {
                continue;
            }
            let fields = set.r#match.iter().zip(&ir.types);
            let fields = fields.map(|(field, ty)| Field {
                id: field.id,
                name: field.name.clone(),
                kind: kind_of(field).unwrap_or(MatchKind::Exact),
                width: width_of(field.bitwidth, ty.width()),
                ir_width: ty.width(),
            });
            let fields = fields.collect();
            let found = ValueSet { name, ir: ValueSetId::at(at), size: ir.size, fields };
            self.value_sets.insert(preamble.id, found);
        }
    }

    fn digests(&mut self, info: &P4Info, program: &Program) {
        for digest in &info.digests {
            let Some(preamble) = &digest.preamble else { continue };
            let struct_name = digest.type_spec.as_ref().and_then(type_name);
            let is_it = |other: &pipeline::ir::Digest| {
                other.name == preamble.name || Some(other.name.as_str()) == struct_name
            };
            let free = |at: &usize| !self.digest_ids.contains_key(&DigestId::at(*at));
            let at = program.digests.iter().position(is_it).filter(free).or_else(|| {
                // Types without a name are numbered in the order in which the program sends them.
                let nameless = |at: &usize| {
                    program.digests.get(*at).is_some_and(|other| other.name.starts_with("digest_"))
                };
                (0..program.digests.len()).filter(nameless).find(free).filter(|_| struct_name.is_none())
            });
            if let Some(at) = at {
                self.digest_ids.insert(DigestId::at(at), preamble.id);
            }
            let found = Digest { name: preamble.name.clone(), spec: digest.type_spec.clone() };
            self.digests.insert(preamble.id, found);
        }
    }
}

fn limits(info: &P4Info) -> Limits {
    let mut limits = Limits::default();
    let given = info.pkg_info.as_ref().and_then(|package| package.platform_properties.as_ref());
    if let Some(given) = given {
        let number = |value: i32| u32::try_from(value).ok().filter(|value| *value > 0);
        if let Some(size) = number(given.multicast_group_table_size) {
            limits.groups = limits.groups.min(size as usize);
        }
        if let Some(total) = number(given.multicast_group_table_total_replicas) {
            limits.replicas = limits.replicas.min(total.into());
        }
        if let Some(each) = number(given.multicast_group_table_max_replicas_per_entry) {
            limits.replicas_each = limits.replicas_each.min(each as usize);
        }
    }
    limits
}

/// A table's keys, and why entries cannot be written.
fn table_fields(
    table: &proto::Table,
    ir: &pipeline::ir::Table,
    program: &Program,
) -> (Vec<Field>, Option<String>) {
    let mut unsupported = None;
    if table.match_fields.len() != ir.keys.len() {
        unsupported = Some("its keys are not those of the pipeline's table".to_owned());
    }
    let mut fields = Vec::new();
    for (field, key) in table.match_fields.iter().zip(&ir.keys) {
        let ir_width = expr_type(program, &key.value).map_or(1, Type::width);
        let width = width_of(field.bitwidth, ir_width);
        if is_string(field) {
            unsupported = Some(format!("its key {} is translated to strings", field.name));
        } else if width != ir_width && !matches!(key.kind, MatchKind::Exact | MatchKind::Optional) {
            unsupported =
                Some(format!("its key {} is translated and matched {}", field.name, key.kind.name()));
        }
        fields.push(Field { id: field.id, name: field.name.clone(), kind: key.kind, width, ir_width });
    }
    (fields, unsupported)
}

/// Whether controllers see a key as a string.
fn is_string(field: &proto::MatchField) -> bool {
    field.bitwidth == 0 && field.type_name.is_some()
}

fn table_actions(
    table: &proto::Table,
    ir: &pipeline::ir::Table,
    program: &Program,
    actions: &HashMap<u32, &proto::Action>,
) -> Vec<Action> {
    // An action listed with arguments has a number behind its name.
    let mut by_name = HashMap::new();
    for id in ir.actions.iter().chain(&ir.default_only) {
        let Some(action) = program.actions.get(id.index()) else { continue };
        let name = action.name.split('#').next().unwrap_or_default();
        by_name.entry(name).or_insert((*id, action));
    }
    let mut found = Vec::new();
    for reference in &table.action_refs {
        let Some(action) = actions.get(&reference.id) else { continue };
        let name = action.preamble.as_ref().map_or("", |preamble| preamble.name.as_str());
        let Some((id, ir_action)) = by_name.get(name).copied() else { continue };
        let params = action.params.iter().zip(&ir_action.params);
        let is_number = |param: &proto::action::Param, ir: &Param| {
            param.bitwidth > 0 || param.type_name.is_none() || ir.ty.width() == 1
        };
        found.push(Action {
            id: reference.id,
            name: name.to_owned(),
            ir: id,
            scope: reference.scope(),
            supported: action.params.len() == ir_action.params.len()
                && params.clone().all(|(param, ir)| is_number(param, ir)),
            params: params
                .map(|(param, ir)| Parameter {
                    id: param.id,
                    name: param.name.clone(),
                    width: width_of(param.bitwidth, ir.ty.width()),
                    ty: ir.ty,
                })
                .collect(),
        });
    }
    found
}

/// Bits that a controller may set: those of the P4Info if it gives any, and no more than the pipeline has.
fn width_of(given: i32, ir: u16) -> u16 {
    match u16::try_from(given) {
        Ok(0) | Err(_) => ir,
        Ok(width) => width.min(ir),
    }
}

fn kind_of(field: &proto::MatchField) -> Option<MatchKind> {
    let Some(Match::MatchType(number)) = field.r#match else { return None };
    Some(match MatchType::try_from(number).ok()? {
        MatchType::Unspecified => return None,
        MatchType::Exact => MatchKind::Exact,
        MatchType::Lpm => MatchKind::Lpm,
        MatchType::Ternary => MatchKind::Ternary,
        MatchType::Range => MatchKind::Range,
        MatchType::Optional => MatchKind::Optional,
    })
}

fn type_name(spec: &proto::P4DataTypeSpec) -> Option<&str> {
    use proto::p4_data_type_spec::TypeSpec;
    match spec.type_spec.as_ref()? {
        TypeSpec::Struct(named) | TypeSpec::Header(named) => Some(&named.name),
        _ => None,
    }
}
