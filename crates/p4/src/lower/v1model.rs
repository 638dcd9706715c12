//! `V1Switch` of v1model.p4: its parsers and controls as two stages, as BMv2's `simple_switch` runs them.
//!
//! The first stage parses, verifies checksums and runs ingress. When ingress ends, also by `exit`: a clone of the
//! received packet is sent if one was asked for; then the first of these applies: resubmit, multicast
//! (`mcast_grp` is not 0), drop (`egress_spec` is 511), send to the port `egress_spec`.
//!
//! The second stage keeps headers and metadata, with `egress_spec` 0, and runs egress. When it ends: a clone of the
//! packet as it is now, drop, recirculation or output, with checksums updated before the packet is deparsed.
//!
//! Times of day are microseconds. Where BMv2 leaves something undefined it is zero. `crates/bmv2/src/switch.rs` repeats
//! these rules: change both.

use num_bigint::BigInt;
use pipeline::ir::{self, Dest, LValue, Packet, Slot, Stmt, Via};

use super::objects::{Argument, ObjectId};
use super::storage::{Leaf, Store};
use super::types::{base, scalar};
use super::{Binding, Lower, Scope};
use crate::diagnostic::Diagnostic;
use crate::hir::{AnnotationBody, Instance, Type, Value};
use crate::source::Span;

/// `egress_spec` of a dropped packet.
pub(super) const DROP_PORT: u64 = 511;

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

/// What belongs to the architecture.
#[derive(Debug, Default)]
pub(super) struct Switch {
    /// Names and variables of `standard_metadata`.
    standard: Vec<(String, ir::VarId)>,
    /// The program's metadata.
    metadata: Option<(Store, Type)>,
    /// Length of the packet.
    length: Option<ir::VarId>,
    requests: Vec<(Kind, Request)>,
}

/// What a program may ask for besides sending its packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
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
    made: ir::VarId,
    session: ir::VarId,
    list: ir::VarId,
    lists: Vec<Vec<ir::VarId>>,
}

impl<'h> Lower<'h> {
    /// Lowers a `V1Switch`.
    pub(super) fn v1switch(&mut self, main: &'h Instance) {
        let id = self.instantiate(main, "");
        let args = self.objects.get(id.0).map_or(vec![], |object| object.args.clone());
        let objects: Vec<ObjectId> =
            args.iter().filter_map(|a| if let Argument::Object(o) = a { Some(*o) } else { None }).collect();
        let [parser, verify, ingress, egress, compute, deparser] = objects.as_slice() else {
            let text = "a `V1Switch` has a parser, four controls and a deparser";
            self.diagnostics.push(Diagnostic::error(main.span, text));
            return;
        };
        let Some(Type::Parser(parser_id)) = self.objects.get(parser.0).map(|object| &object.instance.ty)
        else {
            return;
        };
        let Some(declared) = self.hir.parsers.get(parser_id.index()) else { return };
        let var = |i: usize| declared.params.get(i).and_then(|id| self.hir.vars.get(id.index()));
        let (Some(headers), Some(metadata), Some(standard)) = (var(1), var(2), var(3)) else { return };

        self.out.replicas = vec!["multicast".into(), "clone".into()];
        let headers_store = self.allocate(&headers.name, &headers.ty, main.span);
        let metadata_store = self.allocate(&metadata.name, &metadata.ty, main.span);
        let standard_store = self.standard_metadata(&standard.ty);
        self.switch.metadata = Some((metadata_store.clone(), metadata.ty.clone()));
        let [h, m, s] = [headers_store, metadata_store, standard_store].map(Binding::Store);

        self.bind(*parser, &[Binding::Packet, h.clone(), m.clone(), s.clone()]);
        let parser = self.parser(*parser, declared, vec![]);
        // What the parser has used of it.
        let before_parser = self.apart(Scope::Control, |lower| lower.fill(INGRESS));
        let states = self.out.parsers.get_mut(parser.index()).map(|parser| &mut parser.states);
        if let Some(first) = states.and_then(|states| states.first_mut()) {
            first.ops.splice(..0, before_parser.into_iter().map(ir::ParserOp::Do));
        }

        let verify = self.control(*verify, &[h.clone(), m.clone()], Scope::Control);
        let ingress_code = self.control(*ingress, &[h.clone(), m.clone(), s.clone()], Scope::Control);
        let ingress_finish = self.apart(Scope::Control, Self::ingress_end);

        let spec = self.standard("egress_spec");
        let spec_before = spec.is_some_and(|var| self.used.remove(&var));
        let egress_code = self.control(*egress, &[h.clone(), m.clone(), s.clone()], Scope::Control);
        let drops = spec.is_some_and(|var| self.used.contains(&var));
        if spec_before {
            self.used.extend(spec);
        }
        let compute = self.control(*compute, &[h.clone(), m], Scope::Control);
        let egress_finish = self.apart(Scope::Control, |lower| lower.egress_end(drops, compute));
        let deparse = self.control(*deparser, &[Binding::Packet, h], Scope::Deparser);

        let before_ingress = self.apart(Scope::Control, |lower| lower.fill(INGRESS));
        let before_egress = self.apart(Scope::Control, |lower| {
            lower.fill(EGRESS);
            if let Some(spec) = spec.filter(|_| drops) {
                lower.emit(Stmt::Set(LValue::Var(spec), ir::Expr::bit(9, 0)));
            }
        });
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
    }

    pub(super) fn add_block(&mut self, name: &str, body: Vec<Stmt>) -> ir::BlockId {
        let name = self.unique(&format!("block {name}"));
        let block = self.out.declare_block(name.strip_prefix("block ").unwrap_or(&name));
        self.out.define_block(block, body);
        block
    }

    pub(super) fn bind(&mut self, object: ObjectId, bindings: &[Binding]) {
        let params = match self.objects.get(object.0).map(|object| &object.instance.ty) {
            Some(Type::Parser(id)) => self.hir.parsers.get(id.index()).map(|parser| &parser.params),
            Some(Type::Control(id)) => self.hir.controls.get(id.index()).map(|control| &control.params),
            _ => None,
        };
        for (param, binding) in params.into_iter().flatten().zip(bindings) {
            self.bindings.insert(*param, binding.clone());
        }
    }

    pub(super) fn control(&mut self, object: ObjectId, bindings: &[Binding], scope: Scope) -> Vec<Stmt> {
        self.bind(object, bindings);
        if let Some(object) = self.objects.get_mut(object.0) {
            object.applied += 1;
        }
        self.apart(scope, |lower| lower.control_body(object, vec![]))
    }

    /// Makes `standard_metadata`, of which the environment fills some.
    fn standard_metadata(&mut self, ty: &Type) -> Store {
        let Type::Struct(composite) = base(ty) else { return Store::Nothing };
        let mut places = Vec::new();
        for field in &composite.fields {
            let width = scalar(&field.ty).map_or(1, ir::Type::width);
            let name = format!("standard_metadata.{}", field.name);
            let slot = match field.name.as_str() {
                "ingress_port" => Some(Slot::IngressPort),
                "egress_port" => Some(Slot::EgressPort),
                "packet_length" => Some(Slot::PacketLength),
                "egress_rid" => Some(Slot::Replica),
                "parser_error" => Some(Slot::ParserError),
                _ => None,
            };
            let name = self.unique(&name);
            let var = match slot {
                Some(slot) => self.out.add_slot(&name, width, slot),
                None => self.out.add_var(&name, ir::Type::Bit(width)),
            };
            if field.name == "packet_length" {
                self.switch.length = Some(var);
            }
            self.switch.standard.push((field.name.clone(), var));
            places.push(Store::Scalar(LValue::Var(var)));
        }
        Store::Parts(places)
    }

    /// A field of `standard_metadata`.
    pub(super) fn standard(&self, name: &str) -> Option<ir::VarId> {
        self.switch.standard.iter().find(|(field, _)| field == name).map(|(_, var)| *var)
    }

    /// The variable with the packet's length.
    pub(super) fn packet_length(&mut self) -> ir::VarId {
        match self.switch.length {
            Some(var) => var,
            None => {
                let name = self.unique("packet_length");
                let var = self.out.add_slot(&name, 32, Slot::PacketLength);
                self.switch.length = Some(var);
                var
            }
        }
    }

    /// Fills in the metadata that the environment has in another form, as far as the program uses it.
    fn fill(&mut self, stage: ir::StageId) {
        let ingress = stage == INGRESS;
        if let Some(var) = self.used_standard("instance_type") {
            let slot = self.slot("instance", 32, Slot::Instance);
            let set = Stmt::Set(LValue::Var(var), ir::Expr::Var(slot));
            // A packet that goes on to egress stays what it is.
            let is_new = ir::Expr::Var(slot).op(ir::BinOp::Ne, ir::Expr::bit(32, 0));
            self.emit(if ingress { set } else { Stmt::If(is_new, vec![set], vec![]) });
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
        for (field, slot) in [("enq_qdepth", Slot::EnqueueDepth), ("deq_qdepth", Slot::DequeueDepth)] {
            if let Some(id) = self.used_standard(field)
                && let Some(var) = self.out.vars.get_mut(id.index())
            {
                var.slot = Some(slot);
            }
        }
        for (field, name, slot) in times {
            if let Some(var) = self.used_standard(field) {
                let width = self.out.vars.get(var.index()).map_or(48, |var| var.ty.width());
                let slot = self.slot(name, 64, *slot);
                let micros = ir::Expr::Var(slot).op(ir::BinOp::Div, ir::Expr::bit(64, 1000));
                self.emit(Stmt::Set(LValue::Var(var), micros.cast(ir::Type::Bit(width))));
            }
        }
    }

    fn used_standard(&self, name: &str) -> Option<ir::VarId> {
        self.standard(name).filter(|var| self.used.contains(var))
    }

    /// A variable that the environment fills in.
    pub(super) fn slot(&mut self, name: &str, width: u16, slot: Slot) -> ir::VarId {
        let found = self.out.vars.iter().position(|var| var.slot == Some(slot) && var.ty.width() == width);
        match found {
            Some(i) => ir::VarId::at(i),
            None => {
                let name = self.unique(name);
                self.out.add_slot(&name, width, slot)
            }
        }
    }

    /// Records a request in the program's code.
    pub(super) fn request(&mut self, kind: Kind, session: Option<ir::Expr>, carry: Vec<ir::VarId>) {
        let index = match self.switch.requests.iter().position(|(other, _)| *other == kind) {
            Some(index) => index,
            None => {
                let name = match kind {
                    Kind::CloneIngress => "clone",
                    Kind::CloneEgress => "egress clone",
                    Kind::Resubmit => "resubmit",
                    Kind::Recirculate => "recirculate",
                };
                let made = self.variable(name, ir::Type::Bool);
                let session = self.variable(&format!("{name} session"), ir::Type::Bit(32));
                let list = self.variable(&format!("{name} fields"), ir::Type::Bit(32));
                self.switch.requests.push((kind, Request { made, session, list, lists: vec![] }));
                self.switch.requests.len() - 1
            }
        };
        let Some((_, request)) = self.switch.requests.get_mut(index) else { return };
        let list = match request.lists.iter().position(|list| *list == carry) {
            Some(list) => list,
            None => {
                request.lists.push(carry);
                request.lists.len() - 1
            }
        };
        let request = request.clone();
        self.emit(Stmt::Set(LValue::Var(request.made), super::leave::truth(true)));
        if let Some(session) = session {
            self.emit(Stmt::Set(LValue::Var(request.session), session));
        }
        self.emit(Stmt::Set(LValue::Var(request.list), ir::Expr::bit(32, u64::try_from(list).unwrap_or(0))));
    }

    /// The variables of the program's metadata that `@field_list(index)` names.
    pub(super) fn field_list(&self, index: &Value) -> Vec<ir::VarId> {
        let mut list = Vec::new();
        if let Some((store, ty)) = &self.switch.metadata {
            self.field_list_of(store, ty, index, &mut list);
        }
        list
    }

    fn field_list_of(&self, store: &Store, ty: &Type, index: &Value, list: &mut Vec<ir::VarId>) {
        let (Store::Parts(places), Type::Struct(composite)) = (store, base(ty)) else { return };
        for (place, field) in places.iter().zip(&composite.fields) {
            let mut lists = field.annotations.iter().filter(|a| a.name == "field_list");
            let listed = lists.any(|a| self.names_list(&a.body, index));
            match listed {
                true => list.extend(self.vars_of(place)),
                false => self.field_list_of(place, &field.ty, index, list),
            }
        }
    }

    /// Whether the body of a `@field_list` names an index, as a number or as a member of an enumeration.
    fn names_list(&self, body: &AnnotationBody, index: &Value) -> bool {
        let Value::Integer(index) = index else { return false };
        let member = |path: &str| -> Option<BigInt> {
            let (name, member) = path.rsplit_once('.')?;
            self.hir.types.iter().find_map(|ty| match ty {
                Type::Enum(of) if of.name == name => {
                    of.members.iter().find(|(name, ..)| name == member).map(|(_, value, _)| value.clone())
                }
                _ => None,
            })
        };
        match body {
            AnnotationBody::Tokens(tokens) => tokens.concat().split(',').any(|item| {
                let digits = item.rsplit_once('w').map_or(item, |(_, digits)| digits);
                digits.parse::<BigInt>().ok().or_else(|| member(item)).as_ref() == Some(index)
            }),
            AnnotationBody::Values(values) => values.contains(&Value::Integer(index.clone())),
            AnnotationBody::KeyValues(_) => false,
        }
    }

    /// The variables of a place.
    pub(super) fn vars_of(&self, store: &Store) -> Vec<ir::VarId> {
        let var = |leaf| if let Leaf::Var(var) = leaf { Some(var) } else { None };
        self.leaves(store).into_iter().filter_map(var).collect()
    }

    fn made(&self, kind: Kind) -> Option<Request> {
        self.switch.requests.iter().find(|(other, _)| *other == kind).map(|(_, request)| request.clone())
    }

    /// Sends what a request asks for, with the fields of its list.
    fn send_request(&mut self, request: &Request, send: impl Fn(Vec<ir::VarId>) -> ir::Send, keeps: bool) {
        let made = LValue::Var(request.made);
        let mut body = vec![Stmt::Set(made, super::leave::truth(false))];
        for (i, carry) in request.lists.iter().enumerate() {
            let code = self.apart(Scope::Control, |lower| lower.with_metadata_of(carry, keeps, &send));
            let is_this =
                ir::Expr::Var(request.list).equals(ir::Expr::bit(32, u64::try_from(i).unwrap_or(0)));
            match request.lists.len() {
                1 => body.extend(code),
                _ => body.push(Stmt::If(is_this, code, vec![])),
            }
        }
        self.emit(Stmt::If(ir::Expr::Var(request.made), body, vec![]));
    }

    /// Sends a packet whose metadata is zero but for these fields. With `keeps` the next stage would see the current
    /// values, so they are zero while the packet is sent.
    fn with_metadata_of(
        &mut self,
        carry: &[ir::VarId],
        keeps: bool,
        send: &impl Fn(Vec<ir::VarId>) -> ir::Send,
    ) {
        let mut saved = Vec::new();
        if keeps && let Some((store, _)) = self.switch.metadata.clone() {
            for var in self.vars_of(&store).into_iter().filter(|var| !carry.contains(var)) {
                let Some(ty) = self.out.vars.get(var.index()).map(|var| var.ty) else { continue };
                let before = self.save_number(ir::Expr::Var(var), ty);
                let zero = ir::Constant { ty, value: pipeline::bits::Bits::zero(ty.width()) };
                self.emit(Stmt::Set(LValue::Var(var), ir::Expr::Const(zero)));
                saved.push((var, before));
            }
        }
        self.emit(send(carry.to_vec()).into());
        for (var, before) in saved {
            self.emit(Stmt::Set(LValue::Var(var), before));
        }
    }

    /// What happens to a packet behind ingress.
    fn ingress_end(&mut self) {
        if let Some(request) = self.made(Kind::CloneIngress) {
            let session = ir::Expr::Var(request.session);
            let send = |carry| ir::Send {
                packet: Packet::Original,
                via: Via::Stage(EGRESS),
                instance: INGRESS_CLONE,
                carry,
                ..ir::Send::current(Dest::Replicas(MIRRORS, session.clone()))
            };
            self.send_request(&request, send, false);
        }
        let mut end = self.apart(Scope::Control, Self::forward);
        if let Some(request) = self.made(Kind::Resubmit) {
            let send = |carry| ir::Send {
                packet: Packet::Original,
                via: Via::Stage(INGRESS),
                instance: RESUBMITTED,
                carry,
                ..ir::Send::current(Dest::Same)
            };
            let again = self.apart(Scope::Control, |lower| lower.send_request(&request, send, false));
            end = vec![Stmt::If(ir::Expr::Var(request.made), again, end)];
        }
        end.into_iter().for_each(|stmt| self.emit(stmt));
    }

    fn forward(&mut self) {
        let Some(spec) = self.standard("egress_spec") else { return };
        let class = self.used_standard("priority").map(ir::Expr::Var);
        let unicast = ir::Send { class: class.clone(), ..ir::Send::current(Dest::Port(ir::Expr::Var(spec))) };
        let mut end = vec![unicast.into()];
        if self.used.contains(&spec) {
            let reason = self.reason("dropped by the program");
            let dropped = ir::Expr::Var(spec).equals(ir::Expr::bit(9, DROP_PORT));
            end = vec![Stmt::If(dropped, vec![Stmt::Drop(reason)], end)];
        }
        if let Some(group) = self.used_standard("mcast_grp") {
            let multicast = ir::Send {
                instance: REPLICATED,
                class,
                ..ir::Send::current(Dest::Replicas(MULTICAST, ir::Expr::Var(group)))
            };
            let any = ir::Expr::Var(group).op(ir::BinOp::Ne, ir::Expr::bit(16, 0));
            end = vec![Stmt::If(any, vec![multicast.into()], end)];
        }
        end.into_iter().for_each(|stmt| self.emit(stmt));
    }

    /// What happens to a packet behind egress. `drops`: egress may have set `egress_spec`.
    fn egress_end(&mut self, drops: bool, compute: Vec<Stmt>) {
        if let Some(request) = self.made(Kind::CloneEgress) {
            let session = ir::Expr::Var(request.session);
            let send = |carry| ir::Send {
                via: Via::Stage(EGRESS),
                instance: EGRESS_CLONE,
                carry,
                ..ir::Send::current(Dest::Replicas(MIRRORS, session.clone()))
            };
            self.send_request(&request, send, true);
        }
        if let Some(spec) = self.standard("egress_spec").filter(|_| drops) {
            let reason = self.reason("dropped by the program");
            let dropped = ir::Expr::Var(spec).equals(ir::Expr::bit(9, DROP_PORT));
            self.emit(Stmt::If(dropped, vec![Stmt::Drop(reason)], vec![]));
        }
        compute.into_iter().for_each(|stmt| self.emit(stmt));
        let Some(port) = self.standard("egress_port") else { return };
        let output = ir::Send { via: Via::Direct, ..ir::Send::current(Dest::Port(ir::Expr::Var(port))) };
        match self.made(Kind::Recirculate) {
            None => self.emit(output.into()),
            Some(request) => {
                let send = |carry| ir::Send {
                    via: Via::Stage(INGRESS),
                    instance: RECIRCULATED,
                    carry,
                    ..ir::Send::current(Dest::Same)
                };
                let again = self.apart(Scope::Control, |lower| lower.send_request(&request, send, false));
                self.emit(Stmt::If(ir::Expr::Var(request.made), again, vec![output.into()]));
            }
        }
    }

    /// Returns the number of a reason for drops.
    pub(super) fn reason(&mut self, text: &str) -> ir::ReasonId {
        match self.out.reasons.iter().position(|reason| reason == text) {
            Some(i) => ir::ReasonId::at(i),
            None => self.out.add_reason(text),
        }
    }

    /// Sets `egress_spec` to the port that drops, in `standard_metadata` or a copy of it.
    pub(super) fn mark_to_drop(&mut self, standard: Option<Store>) {
        let fields = self.switch.standard.clone();
        for (i, (name, var)) in fields.iter().enumerate() {
            let value = match name.as_str() {
                "egress_spec" => ir::Expr::bit(9, DROP_PORT),
                "mcast_grp" => ir::Expr::bit(16, 0),
                _ => continue,
            };
            let place = match &standard {
                Some(store) => self.part(store, i, Span::default()),
                None => Store::Scalar(LValue::Var(*var)),
            };
            if let Store::Scalar(place) = place {
                if name == "egress_spec" {
                    self.mark(&place);
                }
                self.emit(Stmt::Set(place, value));
            }
        }
    }
}
