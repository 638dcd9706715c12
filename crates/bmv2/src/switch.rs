//! `simple_switch`: the pipelines as two stages, and what packets ask for between them. It repeats the rules of the P4
//! front end's V1Switch (`crates/p4/src/lower/v1model.rs`), so that a program behaves alike on both ways: change both.
//!
//! The first stage parses, verifies checksums and runs ingress; then a clone of the received packet is sent if one
//! was asked for, and the first of these applies: resubmit, multicast (`mcast_grp` is not 0), drop (`egress_spec` is
//! 511), send to the port `egress_spec`. The second stage keeps headers and metadata, with `egress_spec` 0, and runs
//! egress; then a clone, drop, recirculation or output follow, with checksums updated before the packet is deparsed.

use std::collections::HashMap;

use pipeline::bits::Bits;
use pipeline::ir::{self, BinOp, Constant, Dest, Expr, LValue, Packet, Slot, Stmt, Type, VarId, Via};

use crate::Lower;
use crate::document::{Checksum, Pipeline};
use crate::refusal::{At, Refusal, Result};
use crate::storage::Storage;

/// `egress_spec` of a dropped packet.
const DROP_PORT: u64 = 511;

/// Values of `instance_type`.
const INGRESS_CLONE: u8 = 1;
const EGRESS_CLONE: u8 = 2;
const RECIRCULATED: u8 = 4;
const REPLICATED: u8 = 5;
const RESUBMITTED: u8 = 6;

const INGRESS: ir::StageId = ir::StageId(0);
const EGRESS: ir::StageId = ir::StageId(1);

/// Tables of replication lists.
const MULTICAST: ir::ReplicasId = ir::ReplicasId(0);
const MIRRORS: ir::ReplicasId = ir::ReplicasId(1);

/// Metadata of the architecture, in any document. P4-14 has it in three instances.
const INSTANCES: [&str; 3] = ["standard_metadata", "intrinsic_metadata", "queueing_metadata"];

/// Fields that the architecture reads or writes.
const ROLES: [&str; 16] = [
    "ingress_port",
    "egress_spec",
    "egress_port",
    "packet_length",
    "instance_type",
    "egress_rid",
    "parser_error",
    "checksum_error",
    "enq_timestamp",
    "enq_qdepth",
    "deq_timedelta",
    "deq_qdepth",
    "ingress_global_timestamp",
    "egress_global_timestamp",
    "mcast_grp",
    "priority",
];

/// What belongs to the architecture.
#[derive(Debug, Default)]
pub(crate) struct Switch {
    roles: HashMap<&'static str, VarId>,
    /// Variables of the program's metadata.
    own: Vec<VarId>,
    requests: Vec<(Kind, Request)>,
}

/// What a program may ask for besides sending its packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A clone of the received packet.
    CloneIngress,
    /// A clone of the packet at the end of egress.
    CloneEgress,
    /// The received packet once more.
    Resubmit,
    /// The packet that leaves once more.
    Recirculate,
}

/// A request: whether it was made, for which mirror session, and with which of several lists of fields.
#[derive(Debug, Clone)]
struct Request {
    made: VarId,
    session: VarId,
    list: VarId,
    lists: Vec<Vec<VarId>>,
}

/// Returns the slot of the environment that a field is bound to, whether it is used or not.
pub(crate) fn slot(role: Option<&str>) -> Option<Slot> {
    match role? {
        "ingress_port" => Some(Slot::IngressPort),
        "egress_port" => Some(Slot::EgressPort),
        "packet_length" => Some(Slot::PacketLength),
        "egress_rid" => Some(Slot::Replica),
        "parser_error" => Some(Slot::ParserError),
        _ => None,
    }
}

fn truth(value: bool) -> Expr {
    Expr::Const(Constant::bool(value))
}

impl<'d> Lower<'d> {
    /// What a field of metadata is to the architecture. Parser errors are not filled in where they have other
    /// numbers.
    pub(crate) fn role(&self, header: &str, field: &str) -> Option<&'static str> {
        let alias =
            self.aliases.get(&(header, field)).and_then(|alias| alias.split_once('.')).map(|(_, name)| name);
        let name = alias.or_else(|| INSTANCES.contains(&header).then_some(field))?;
        let role = ROLES.iter().find(|role| **role == name).copied()?;
        Some(if role == "parser_error" && self.errors.are_renumbered() { "checked_error" } else { role })
    }

    /// Finds the architecture's metadata among the instances.
    pub(crate) fn switch_metadata(&mut self) {
        for header in &self.document.headers {
            let Some(instance) = self.headers.get(header.name.as_str()) else { continue };
            let Storage::Metadata(vars) = &instance.storage else { continue };
            let ty = self.document.header_types.iter().find(|ty| ty.name == instance.ty);
            let fields = ty.map_or(&[][..], |ty| ty.fields.as_slice());
            for (field, var) in fields.iter().zip(vars) {
                let name = field.first().and_then(|name| name.as_str()).unwrap_or_default();
                match self.role(&header.name, name) {
                    Some(role) => drop(self.switch.roles.entry(role).or_insert(*var)),
                    None if !INSTANCES.contains(&header.name.as_str()) => self.switch.own.push(*var),
                    None => {}
                }
            }
        }
    }

    fn standard(&self, role: &str) -> Option<VarId> {
        self.switch.roles.get(role).copied()
    }

    fn used_standard(&self, role: &str) -> Option<VarId> {
        self.standard(role).filter(|var| self.used.contains(var))
    }

    fn width(&self, var: VarId) -> u16 {
        self.out.vars.get(var.index()).map_or(1, |var| var.ty.width())
    }

    /// Lowers the parser, the pipelines and the deparser.
    pub(crate) fn simple_switch(&mut self) -> Result<()> {
        let document = self.document;
        for role in ["ingress_port", "egress_spec", "egress_port"] {
            let var = self.standard(role).map(|var| self.out.vars.get(var.index()).map(|var| var.ty));
            if !matches!(var, Some(Some(Type::Bit(9..)))) {
                return Err(Refusal::of(format!(
                    "field standard_metadata.{role} of 9 bits or more is missing: the document is not for \
                     simple_switch (v1model)"
                )));
            }
        }
        let [parser] = document.parsers.as_slice() else {
            return Err(Refusal::of(format!("{} parsers; expected 1", document.parsers.len())));
        };
        let [deparser] = document.deparsers.as_slice() else {
            return Err(Refusal::of(format!("{} deparsers; expected 1", document.deparsers.len())));
        };
        let find = |name: &str| document.pipelines.iter().find(|pipeline| pipeline.name == name);
        let (Some(ingress), Some(egress), 2) = (find("ingress"), find("egress"), document.pipelines.len())
        else {
            return Err(Refusal::of(
                "the pipelines are not `ingress` and `egress`: the document is not for simple_switch",
            ));
        };
        self.tables_are_known()?;
        self.out.replicas = vec!["multicast".into(), "clone".into()];

        let parser = self.parser(parser).within(|| format!("parser {}", parser.name))?;
        self.pipeline_tables_of(ingress)?;
        let verify = self.block(|lower| lower.checksums(true))?;
        let ingress_code = self.flow(ingress).at("pipeline ingress")?;
        let ingress_finish = self.block(Self::ingress_end)?;

        let spec = self.standard("egress_spec");
        let spec_before = spec.is_some_and(|var| self.used.remove(&var));
        self.pipeline_tables_of(egress)?;
        let egress_code = self.flow(egress).at("pipeline egress")?;
        let drops = spec.is_some_and(|var| self.used.contains(&var));
        if spec_before {
            self.used.extend(spec);
        }
        let compute = self.block(|lower| lower.checksums(false))?;
        let egress_finish = self.block(|lower| lower.egress_end(drops, compute))?;
        let deparse = self.deparser(deparser).at("deparser")?;

        let before_ingress = self.block(|lower| lower.fill(INGRESS))?;
        let before_egress = self.block(|lower| {
            lower.fill(EGRESS)?;
            match spec.filter(|_| drops) {
                Some(spec) => lower.emit(Stmt::Set(LValue::Var(spec), Expr::bit(lower.width(spec), 0))),
                None => Ok(()),
            }
        })?;
        let control = self.add_block("ingress", [before_ingress, verify, ingress_code].concat());
        let finish = self.add_block("traffic manager", ingress_finish);
        self.out.add_stage(ir::Stage {
            name: "ingress".into(),
            parser: Some(parser),
            control,
            finish: Some(finish),
            deparser: None,
            next: Some(EGRESS),
        });
        let control = self.add_block("egress", [before_egress, egress_code].concat());
        let finish = self.add_block("output", egress_finish);
        let deparser = self.add_block("deparser", deparse);
        self.out.add_stage(ir::Stage {
            name: "egress".into(),
            parser: None,
            control,
            finish: Some(finish),
            deparser: Some(deparser),
            next: None,
        });
        Ok(())
    }

    fn pipeline_tables_of(&mut self, pipeline: &'d Pipeline) -> Result<()> {
        self.pipeline_tables(pipeline).within(|| format!("pipeline {}", pipeline.name))
    }

    /// The P4Info is the document's: it has none of the tables only if it is another program's.
    fn tables_are_known(&self) -> Result<()> {
        let Some(info) = self.info else { return Ok(()) };
        let tables = self.document.pipelines.iter().flat_map(|pipeline| &pipeline.tables);
        let known: std::collections::HashSet<&str> = tables.map(|table| table.name.as_str()).collect();
        let mut missing: Vec<&str> = info.table_names().filter(|name| !known.contains(name)).collect();
        missing.sort_unstable();
        match missing.first() {
            None => Ok(()),
            Some(table) => Err(Refusal::of(format!(
                "table {table} of the P4Info is missing in the JSON: the files are of different programs"
            ))),
        }
    }

    fn add_block(&mut self, name: &str, body: Vec<Stmt>) -> ir::BlockId {
        let block = self.out.declare_block(name);
        self.out.define_block(block, body);
        block
    }

    /// Lowers the checksums that are verified in front of ingress, or updated behind egress.
    fn checksums(&mut self, verify: bool) -> Result<()> {
        for checksum in &self.document.checksums {
            if if verify { checksum.verify } else { checksum.update } {
                self.checksum(checksum, verify).within(|| format!("checksum {}", checksum.name))?;
            }
        }
        Ok(())
    }

    fn checksum(&mut self, checksum: &'d Checksum, verify: bool) -> Result<()> {
        if checksum.kind != "generic" {
            return Err(Refusal::unsupported(format!("type {} is", checksum.kind)));
        }
        let condition = match &checksum.if_cond {
            Some(condition) => self.condition(condition)?,
            // P4-14 has checksums of headers that may be missing.
            None => match &self.header(&checksum.target.0)?.storage {
                Storage::Header(id) => Expr::Valid(ir::HeaderRef::Header(*id)),
                Storage::Metadata(_) => truth(true),
            },
        };
        let code = self.block(|lower| {
            let (kind, items) = lower.calculation(&checksum.calculation)?;
            let target = lower.field(&checksum.target.0, &checksum.target.1)?;
            if !matches!(target.ty, Type::Bit(_)) {
                return Err(Refusal::unsupported("a signed checksum is"));
            }
            if !verify {
                return lower.hash_items(target.place, kind, items);
            }
            let expected = lower.variable("checksum", target.ty)?;
            lower.hash_items(LValue::Var(expected), kind, items)?;
            match lower.standard("checksum_error") {
                None => Ok(()),
                Some(error) => {
                    let wrong = Expr::Var(expected).op(BinOp::Ne, target.value);
                    let set = Stmt::Set(LValue::Var(error), Expr::bit(lower.width(error), 1));
                    lower.emit(Stmt::If(wrong, vec![set], vec![]))
                }
            }
        })?;
        self.emit(Stmt::If(condition, code, vec![]))
    }

    /// Fills in the metadata that the environment has in another form, as far as the program uses it.
    fn fill(&mut self, stage: ir::StageId) -> Result<()> {
        let ingress = stage == INGRESS;
        if ingress && let Some(var) = self.used_standard("checked_error") {
            let slot = self.slot_variable("parser error", 16, Slot::ParserError);
            self.renumber_error(slot, var)?;
        }
        if let Some(var) = self.used_standard("instance_type") {
            let width = self.width(var);
            let slot = self.slot_variable("instance", width, Slot::Instance);
            let set = Stmt::Set(LValue::Var(var), Expr::Var(slot));
            // A packet that goes on to egress stays what it is.
            let is_new = Expr::Var(slot).op(BinOp::Ne, Expr::bit(width, 0));
            self.emit(if ingress { set } else { Stmt::If(is_new, vec![set], vec![]) })?;
        }
        let times: &[(&str, &str, Slot)] = match ingress {
            true => &[("ingress_global_timestamp", "ingress time", Slot::IngressTime)],
            false => &[
                ("egress_global_timestamp", "stage time", Slot::StageTime),
                ("enq_timestamp", "stage time", Slot::StageTime),
                ("deq_timedelta", "queue delay", Slot::QueueDelay),
            ],
        };
        // Queues are measured only for programs that look at them.
        for (role, slot) in [("enq_qdepth", Slot::EnqueueDepth), ("deq_qdepth", Slot::DequeueDepth)] {
            if let Some(id) = self.used_standard(role)
                && let Some(var) = self.out.vars.get_mut(id.index())
            {
                var.slot = Some(slot).filter(|_| matches!(var.ty, Type::Bit(_)));
            }
        }
        for (role, name, slot) in times {
            if let Some(var) = self.used_standard(role) {
                let slot = self.slot_variable(name, 64, *slot);
                let micros = Expr::Var(slot).op(BinOp::Div, Expr::bit(64, 1000));
                self.emit(Stmt::Set(LValue::Var(var), micros.cast(Type::Bit(self.width(var)))))?;
            }
        }
        Ok(())
    }

    /// A variable that the environment fills in.
    fn slot_variable(&mut self, name: &str, width: u16, slot: Slot) -> VarId {
        let found = self.out.vars.iter().position(|var| var.slot == Some(slot) && var.ty.width() == width);
        match found {
            Some(i) => VarId::at(i),
            None => {
                let name = self.unique(name);
                self.out.add_slot(&name, width, slot)
            }
        }
    }

    /// Records a request in the program's code.
    pub(crate) fn request(&mut self, kind: Kind, session: Option<Expr>, carry: Vec<VarId>) -> Result<()> {
        let index = match self.switch.requests.iter().position(|(other, _)| *other == kind) {
            Some(index) => index,
            None => {
                let name = match kind {
                    Kind::CloneIngress => "clone",
                    Kind::CloneEgress => "egress clone",
                    Kind::Resubmit => "resubmit",
                    Kind::Recirculate => "recirculate",
                };
                let made = self.variable(name, Type::Bool)?;
                let session = self.variable(&format!("{name} session"), Type::Bit(32))?;
                let list = self.variable(&format!("{name} fields"), Type::Bit(8))?;
                self.switch.requests.push((kind, Request { made, session, list, lists: vec![] }));
                self.switch.requests.len() - 1
            }
        };
        let Some((_, request)) = self.switch.requests.get_mut(index) else { return Ok(()) };
        let list = match request.lists.iter().position(|list| *list == carry) {
            Some(list) => list,
            None => {
                request.lists.push(carry);
                request.lists.len() - 1
            }
        };
        // Each is compared with those before.
        let number = u8::try_from(list).map_err(|_| Refusal::of("more than 256 different field lists"))?;
        let (made, chosen, in_session) = (request.made, request.list, request.session);
        self.emit(Stmt::Set(LValue::Var(made), truth(true)))?;
        if let Some(session) = session {
            self.emit(Stmt::Set(LValue::Var(in_session), session))?;
        }
        self.emit(Stmt::Set(LValue::Var(chosen), Expr::bit(8, number.into())))
    }

    fn made(&self, kind: Kind) -> Option<Request> {
        self.switch.requests.iter().find(|(other, _)| *other == kind).map(|(_, request)| request.clone())
    }

    /// Sends what a request asks for, with the fields of its list.
    fn send_request(
        &mut self,
        request: &Request,
        send: impl Fn(Vec<VarId>) -> ir::Send,
        keeps: bool,
    ) -> Result<()> {
        let mut body = vec![Stmt::Set(LValue::Var(request.made), truth(false))];
        for (i, carry) in request.lists.iter().enumerate() {
            let code = self.block(|lower| lower.with_metadata_of(carry, keeps, &send))?;
            let is_this = Expr::Var(request.list).equals(Expr::bit(8, u64::try_from(i).unwrap_or(0)));
            match request.lists.len() {
                1 => body.extend(code),
                _ => body.push(Stmt::If(is_this, code, vec![])),
            }
        }
        self.emit(Stmt::If(Expr::Var(request.made), body, vec![]))
    }

    /// Sends a packet whose metadata is zero but for these fields. With `keeps` the next stage would see the current
    /// values, so they are zero while the packet is sent.
    fn with_metadata_of(
        &mut self,
        carry: &[VarId],
        keeps: bool,
        send: &impl Fn(Vec<VarId>) -> ir::Send,
    ) -> Result<()> {
        let mut saved = Vec::new();
        let own = if keeps { self.switch.own.clone() } else { Vec::new() };
        let carried: std::collections::HashSet<VarId> = carry.iter().copied().collect();
        for var in own
            .into_iter()
            .filter(|var| self.used.contains(var) && !carried.contains(var))
            .collect::<Vec<_>>()
        {
            let Some(ty) = self.out.vars.get(var.index()).map(|var| var.ty) else { continue };
            let before = self.variable("saved", ty)?;
            self.emit(Stmt::Set(LValue::Var(before), Expr::Var(var)))?;
            let zero = Constant { ty, value: Bits::zero(ty.width()) };
            self.emit(Stmt::Set(LValue::Var(var), Expr::Const(zero)))?;
            saved.push((var, before));
        }
        self.take(carry.len())?;
        self.emit(send(carry.to_vec()).into())?;
        for (var, before) in saved {
            self.emit(Stmt::Set(LValue::Var(var), Expr::Var(before)))?;
        }
        Ok(())
    }

    /// What happens to a packet behind ingress.
    fn ingress_end(&mut self) -> Result<()> {
        if let Some(request) = self.made(Kind::CloneIngress) {
            let session = Expr::Var(request.session);
            let send = |carry| ir::Send {
                packet: Packet::Original,
                via: Via::Stage(EGRESS),
                instance: INGRESS_CLONE,
                carry,
                ..ir::Send::current(Dest::Replicas(MIRRORS, session.clone()))
            };
            self.send_request(&request, send, false)?;
        }
        let mut end = self.block(Self::forward)?;
        if let Some(request) = self.made(Kind::Resubmit) {
            let send = |carry| ir::Send {
                packet: Packet::Original,
                via: Via::Stage(INGRESS),
                instance: RESUBMITTED,
                carry,
                ..ir::Send::current(Dest::Same)
            };
            let again = self.block(|lower| lower.send_request(&request, send, false))?;
            end = vec![Stmt::If(Expr::Var(request.made), again, end)];
        }
        self.code.extend(end);
        Ok(())
    }

    fn forward(&mut self) -> Result<()> {
        let Some(spec) = self.standard("egress_spec") else { return Ok(()) };
        let class = self.used_standard("priority").map(Expr::Var);
        let unicast = ir::Send { class: class.clone(), ..ir::Send::current(Dest::Port(Expr::Var(spec))) };
        let mut end = vec![unicast.into()];
        if self.used.contains(&spec) {
            end = vec![Stmt::If(self.dropped(spec), vec![self.drop()], end)];
        }
        if let Some(group) = self.used_standard("mcast_grp") {
            let multicast = ir::Send {
                instance: REPLICATED,
                class,
                ..ir::Send::current(Dest::Replicas(MULTICAST, Expr::Var(group)))
            };
            let any = Expr::Var(group).op(BinOp::Ne, Expr::bit(self.width(group), 0));
            end = vec![Stmt::If(any, vec![multicast.into()], end)];
        }
        self.code.extend(end);
        Ok(())
    }

    fn dropped(&self, spec: VarId) -> Expr {
        Expr::Var(spec).equals(Expr::bit(self.width(spec), DROP_PORT))
    }

    fn drop(&mut self) -> Stmt {
        Stmt::Drop(self.reason("dropped by the program"))
    }

    /// What happens to a packet behind egress. `drops`: egress may have set `egress_spec`.
    fn egress_end(&mut self, drops: bool, compute: Vec<Stmt>) -> Result<()> {
        if let Some(request) = self.made(Kind::CloneEgress) {
            let session = Expr::Var(request.session);
            let send = |carry| ir::Send {
                via: Via::Stage(EGRESS),
                instance: EGRESS_CLONE,
                carry,
                ..ir::Send::current(Dest::Replicas(MIRRORS, session.clone()))
            };
            self.send_request(&request, send, true)?;
        }
        if let Some(spec) = self.standard("egress_spec").filter(|_| drops) {
            let stmt = Stmt::If(self.dropped(spec), vec![self.drop()], vec![]);
            self.emit(stmt)?;
        }
        self.code.extend(compute);
        let Some(port) = self.standard("egress_port") else { return Ok(()) };
        let output = ir::Send { via: Via::Direct, ..ir::Send::current(Dest::Port(Expr::Var(port))) };
        match self.made(Kind::Recirculate) {
            None => self.emit(output.into()),
            Some(request) => {
                let send = |carry| ir::Send {
                    via: Via::Stage(INGRESS),
                    instance: RECIRCULATED,
                    carry,
                    ..ir::Send::current(Dest::Same)
                };
                let again = self.block(|lower| lower.send_request(&request, send, false))?;
                self.emit(Stmt::If(Expr::Var(request.made), again, vec![output.into()]))
            }
        }
    }

    /// Returns the number of a reason for drops.
    pub(crate) fn reason(&mut self, text: &str) -> ir::ReasonId {
        match self.out.reasons.iter().position(|reason| reason == text) {
            Some(i) => ir::ReasonId::at(i),
            None => self.out.add_reason(text),
        }
    }

    /// Sets `egress_spec` to the port that drops.
    pub(crate) fn mark_to_drop(&mut self) -> Result<()> {
        if let Some(spec) = self.standard("egress_spec") {
            self.used.insert(spec);
            self.emit(Stmt::Set(LValue::Var(spec), Expr::bit(self.width(spec), DROP_PORT)))?;
        }
        match self.standard("mcast_grp") {
            Some(group) => self.emit(Stmt::Set(LValue::Var(group), Expr::bit(self.width(group), 0))),
            None => Ok(()),
        }
    }
}
