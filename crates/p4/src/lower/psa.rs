//! `PSA_Switch` of psa.p4 (Portable Switch Architecture 1.2): two stages, each with a parser and a deparser.
//!
//! Deparsers of this architecture also compute: metadata that stays with the packet, checksums, digests. Their
//! statements run when their control ends; what is emitted then is all that is left for the pipeline's deparser.
//!
//! Behind ingress, a clone of the received packet is sent if `clone` is set; then the first of these applies: drop,
//! resubmit, multicast (`multicast_group` is not 0), output. Behind egress: a clone of the packet as it leaves; drop;
//! recirculation if the port is `PSA_PORT_RECIRCULATE`, which is then the packet's ingress port; output. Times are in
//! nanoseconds.

use pipeline::ir::{self, Dest, LValue, Packet, Slot, Stmt, Via};

use super::objects::{Argument, ObjectId};
use super::storage::{Store, read};
use super::types::{base, scalar};
use super::value::not;
use super::{Binding, Lower, Scope};
use crate::diagnostic::Diagnostic;
use crate::hir::{Instance, ParserId, Type, VarId};
use crate::source::Span;

/// `PSA_PORT_RECIRCULATE`.
const RECIRCULATE_PORT: u64 = 0xffff_fffa;

/// Values of `PSA_PacketPath_t`.
const UNICAST: u8 = 1;
const MULTICAST: u8 = 2;
const CLONE_INGRESS: u8 = 3;
const CLONE_EGRESS: u8 = 4;
const RESUBMIT: u8 = 5;
const RECIRCULATE: u8 = 6;

const INGRESS: ir::StageId = ir::StageId(0);
const EGRESS: ir::StageId = ir::StageId(1);

/// Tables of replication lists.
const GROUPS: ir::ReplicasId = ir::ReplicasId(0);
const SESSIONS: ir::ReplicasId = ir::ReplicasId(1);

impl<'h> Lower<'h> {
    /// Lowers a `PSA_Switch`.
    pub(super) fn psa_switch(&mut self, main: &'h Instance) {
        let id = self.instantiate(main, "");
        let pipelines = self.object_args(id);
        let (ingress, egress) = match pipelines.as_slice() {
            [ingress, _, egress, _] => (self.object_args(*ingress), self.object_args(*egress)),
            _ => (vec![], vec![]),
        };
        let ([in_parser, in_control, in_deparser], [out_parser, out_control, out_deparser]) =
            (ingress.as_slice(), egress.as_slice())
        else {
            let text = "a `PSA_Switch` has two pipelines, each of a parser, a control and a deparser";
            self.diagnostics.push(Diagnostic::error(main.span, text));
            return;
        };
        self.out.replicas = vec!["multicast".into(), "clone".into()];
        let span = main.span;

        // Metadata between passes: places that both sides have, and packets carry. Headers in it do not travel.
        let resubmit = self.param_store(*in_parser, 4, span);
        let recirculate = self.param_store(*in_parser, 5, span);
        let normal = self.param_store(*out_parser, 4, span);
        let clone_ingress = self.param_store(*out_parser, 5, span);
        let clone_egress = self.param_store(*out_parser, 6, span);

        let port = self.variable("ingress_port", ir::Type::Bit(32));
        let first = self.ingress_port(port);
        let headers = self.param_store(*in_parser, 1, span);
        let metadata = self.param_store(*in_parser, 2, span);
        let parser_input = self.filled_param(*in_parser, 3, Some(port), span);
        let input = self.filled_param(*in_control, 2, Some(port), span);
        let output = self.param_store(*in_control, 3, span);
        let b = |store: &Store| Binding::Store(store.clone());
        let packet = Binding::Packet;
        let parser = self.psa_parser(
            *in_parser,
            &[packet.clone(), b(&headers), b(&metadata), b(&parser_input), b(&resubmit), b(&recirculate)],
            first,
        );
        let control =
            self.control(*in_control, &[b(&headers), b(&metadata), b(&input), b(&output)], Scope::Control);
        let deparser = self.control(
            *in_deparser,
            &[
                packet.clone(),
                b(&clone_ingress),
                b(&resubmit),
                b(&normal),
                b(&headers),
                b(&metadata),
                b(&output),
            ],
            Scope::Deparser,
        );
        let field = self.fields_of(*in_control, 3, &output);
        let start = self.apart(Scope::Control, |lower| {
            if let Some(drop) = field("drop") {
                lower.emit(Stmt::Set(drop, super::leave::truth(true)));
            }
        });
        let carried = [&clone_ingress, &resubmit, &normal].map(|store| self.vars_of(store));
        let end = self.apart(Scope::Control, |lower| lower.ingress_finish(&field, carried));
        self.add_psa_stage("ingress", parser, [start, control].concat(), (deparser, end), Some(EGRESS));

        let headers = self.param_store(*out_parser, 1, span);
        let metadata = self.param_store(*out_parser, 2, span);
        let parser_input = self.filled_param(*out_parser, 3, None, span);
        let input = self.filled_param(*out_control, 2, None, span);
        let output = self.param_store(*out_control, 3, span);
        let port_input = self.filled_param(*out_deparser, 6, None, span);
        let parser = self.psa_parser(
            *out_parser,
            &[
                packet.clone(),
                b(&headers),
                b(&metadata),
                b(&parser_input),
                b(&normal),
                b(&clone_ingress),
                b(&clone_egress),
            ],
            vec![],
        );
        let control =
            self.control(*out_control, &[b(&headers), b(&metadata), b(&input), b(&output)], Scope::Control);
        let deparser = self.control(
            *out_deparser,
            &[
                packet,
                b(&clone_egress),
                b(&recirculate),
                b(&headers),
                b(&metadata),
                b(&output),
                b(&port_input),
            ],
            Scope::Deparser,
        );
        let field = self.fields_of(*out_control, 3, &output);
        let port = self.fields_of(*out_deparser, 6, &port_input)("egress_port");
        let carried = [&clone_egress, &recirculate].map(|store| self.vars_of(store));
        let end = self.apart(Scope::Control, |lower| lower.egress_finish(&field, port, carried));
        self.add_psa_stage("egress", parser, control, (deparser, end), None);
    }

    /// The objects that a constructor got.
    fn object_args(&self, object: ObjectId) -> Vec<ObjectId> {
        let args = self.objects.get(object.0).map(|object| object.args.as_slice()).unwrap_or_default();
        args.iter().filter_map(|a| if let Argument::Object(o) = a { Some(*o) } else { None }).collect()
    }

    fn params(&self, object: ObjectId) -> &'h [VarId] {
        match self.objects.get(object.0).map(|object| &object.instance.ty) {
            Some(Type::Parser(id)) => self.hir.parsers.get(id.index()).map_or(&[], |parser| &parser.params),
            Some(Type::Control(id)) => {
                self.hir.controls.get(id.index()).map_or(&[], |control| &control.params)
            }
            _ => &[],
        }
    }

    fn param(&self, object: ObjectId, index: usize) -> Option<&'h crate::hir::Var> {
        self.params(object).get(index).and_then(|id| self.hir.vars.get(id.index()))
    }

    /// Storage for a parameter that the architecture has.
    fn param_store(&mut self, object: ObjectId, index: usize, span: Span) -> Store {
        match self.param(object, index) {
            Some(var) => self.allocate(&var.name, &var.ty, span),
            None => Store::Nothing,
        }
    }

    /// Storage for a parameter whose fields the environment fills in, apart from the ingress port.
    fn filled_param(&mut self, object: ObjectId, index: usize, port: Option<ir::VarId>, span: Span) -> Store {
        let Some(var) = self.param(object, index) else { return Store::Nothing };
        let Type::Struct(composite) = base(&var.ty) else { return self.allocate(&var.name, &var.ty, span) };
        let mut places = Vec::new();
        for field in &composite.fields {
            if let ("ingress_port", Some(port)) = (field.name.as_str(), port) {
                places.push(Store::Scalar(LValue::Var(port)));
                continue;
            }
            let slot = match field.name.as_str() {
                "egress_port" => Slot::EgressPort,
                "packet_path" => Slot::Instance,
                "ingress_timestamp" => Slot::IngressTime,
                "egress_timestamp" => Slot::StageTime,
                "parser_error" => Slot::ParserError,
                "class_of_service" => Slot::Class,
                "instance" => Slot::Replica,
                _ => {
                    places.push(self.allocate(&format!("{}.{}", var.name, field.name), &field.ty, span));
                    continue;
                }
            };
            let width = scalar(&field.ty).map_or(1, ir::Type::width);
            let var = self.slot(&format!("{}.{}", var.name, field.name), width, slot);
            places.push(Store::Scalar(LValue::Var(var)));
        }
        Store::Parts(places)
    }

    /// Statements that set the ingress port.
    fn ingress_port(&mut self, port: ir::VarId) -> Vec<Stmt> {
        let received = self.slot("received port", 32, Slot::IngressPort);
        let path = self.slot("path", 32, Slot::Instance);
        let again = ir::Expr::Var(path).equals(ir::Expr::bit(32, RECIRCULATE.into()));
        let from = (again, ir::Expr::bit(32, RECIRCULATE_PORT), ir::Expr::Var(received));
        vec![Stmt::Set(LValue::Var(port), ir::Expr::Mux(Box::new(from)))]
    }

    fn psa_parser(
        &mut self,
        object: ObjectId,
        bindings: &[Binding],
        first: Vec<Stmt>,
    ) -> Option<ir::ParserId> {
        let Some(Type::Parser(id)) = self.objects.get(object.0).map(|object| &object.instance.ty) else {
            return None;
        };
        let id: ParserId = *id;
        let parser = self.hir.parsers.get(id.index())?;
        self.bind(object, bindings);
        Some(self.parser(object, parser, first))
    }

    /// Finds the fields of a parameter by name.
    fn fields_of(
        &self,
        object: ObjectId,
        index: usize,
        store: &Store,
    ) -> impl Fn(&str) -> Option<LValue> + use<> {
        let mut fields: Vec<(String, LValue)> = Vec::new();
        if let (Some(Type::Struct(composite)), Store::Parts(places)) =
            (self.param(object, index).map(|var| base(&var.ty)), store)
        {
            for (field, place) in composite.fields.iter().zip(places) {
                if let Store::Scalar(place) = place {
                    fields.push((field.name.clone(), place.clone()));
                }
            }
        }
        move |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, place)| place.clone())
    }

    fn add_psa_stage(
        &mut self,
        name: &str,
        parser: Option<ir::ParserId>,
        control: Vec<Stmt>,
        (deparser, end): (Vec<Stmt>, Vec<Stmt>),
        next: Option<ir::StageId>,
    ) {
        let emits = only_emits(&deparser);
        let control = self.add_block(name, control);
        let finish = self.add_block(&format!("{name} end"), [without_emits(deparser), end].concat());
        let deparser = self.add_block(&format!("{name} deparser"), emits);
        self.out.add_stage(ir::Stage {
            name: name.into(),
            parser,
            control,
            finish: Some(finish),
            deparser: Some(deparser),
            next,
        });
    }

    /// What happens to a packet behind ingress. `carried`: metadata of clones, resubmitted and other packets.
    fn ingress_finish(
        &mut self,
        field: &impl Fn(&str) -> Option<LValue>,
        [clone, resubmitted, normal]: [Vec<ir::VarId>; 3],
    ) {
        let value = |name: &str| field(name).map(|place| read(&place));
        let (Some(cloned), Some(session), Some(drop), Some(again), Some(group), Some(port)) = (
            value("clone"),
            value("clone_session_id"),
            value("drop"),
            value("resubmit"),
            value("multicast_group"),
            value("egress_port"),
        ) else {
            return;
        };
        let class = value("class_of_service");
        let copy = ir::Send {
            packet: Packet::Original,
            via: Via::Stage(EGRESS),
            instance: CLONE_INGRESS,
            carry: clone,
            ..ir::Send::current(Dest::Replicas(SESSIONS, session))
        };
        self.emit(Stmt::If(cloned, vec![copy.into()], vec![]));
        let unicast = ir::Send {
            instance: UNICAST,
            class: class.clone(),
            carry: normal.clone(),
            ..ir::Send::current(Dest::Port(port))
        };
        let multicast = ir::Send {
            instance: MULTICAST,
            class,
            carry: normal,
            ..ir::Send::current(Dest::Replicas(GROUPS, group.clone()))
        };
        let resubmit = ir::Send {
            packet: Packet::Original,
            via: Via::Stage(INGRESS),
            instance: RESUBMIT,
            carry: resubmitted,
            ..ir::Send::current(Dest::Same)
        };
        let to_group = group.op(ir::BinOp::Ne, ir::Expr::bit(32, 0));
        let send = Stmt::If(to_group, vec![multicast.into()], vec![unicast.into()]);
        let send = Stmt::If(again, vec![resubmit.into()], vec![send]);
        let reason = self.reason("dropped by the program");
        self.emit(Stmt::If(drop, vec![Stmt::Drop(reason)], vec![send]));
    }

    /// What happens to a packet behind egress. `carried`: metadata of clones and recirculated packets.
    fn egress_finish(
        &mut self,
        field: &impl Fn(&str) -> Option<LValue>,
        port: Option<LValue>,
        [clone, recirculated]: [Vec<ir::VarId>; 2],
    ) {
        let value = |name: &str| field(name).map(|place| read(&place));
        let (Some(cloned), Some(session), Some(drop), Some(port)) =
            (value("clone"), value("clone_session_id"), value("drop"), port)
        else {
            return;
        };
        let copy = ir::Send {
            via: Via::Stage(EGRESS),
            instance: CLONE_EGRESS,
            carry: clone,
            ..ir::Send::current(Dest::Replicas(SESSIONS, session))
        };
        self.emit(Stmt::If(cloned, vec![copy.into()], vec![]));
        let again = ir::Send {
            via: Via::Stage(INGRESS),
            instance: RECIRCULATE,
            carry: recirculated,
            ..ir::Send::current(Dest::Same)
        };
        let output = ir::Send { via: Via::Direct, ..ir::Send::current(Dest::Port(read(&port))) };
        let to_ingress = read(&port).equals(ir::Expr::bit(32, RECIRCULATE_PORT));
        let send = Stmt::If(to_ingress, vec![again.into()], vec![output.into()]);
        let reason = self.reason("dropped by the program");
        self.emit(Stmt::If(drop, vec![Stmt::Drop(reason)], vec![send]));
    }

    /// Lowers the functions that tell what will happen to a packet.
    pub(super) fn psa_function(&mut self, name: &str, args: &'h [crate::hir::Expr]) -> Option<ir::Expr> {
        let metadata = args.first()?;
        let Type::Struct(composite) = base(&metadata.ty) else { return None };
        let value = self.value(metadata);
        let mut field = |name: &str| {
            let index = composite.fields.iter().position(|field| field.name == name)?;
            let part = self.val_part(&value, index, metadata.span);
            Some(self.as_number(&part, &Type::Bool))
        };
        match name {
            "psa_clone_i2e" | "psa_clone_e2e" => field("clone"),
            "psa_resubmit" => Some(not(field("drop")?).op(ir::BinOp::LogicAnd, field("resubmit")?)),
            "psa_normal" => Some(not(field("drop")?).op(ir::BinOp::LogicAnd, not(field("resubmit")?))),
            "psa_recirculate" => {
                let stays = not(field("drop")?);
                let port = args.get(1)?;
                let Type::Struct(of) = base(&port.ty) else { return None };
                let index = of.fields.iter().position(|field| field.name == "egress_port")?;
                let value = self.value(port);
                let part = self.val_part(&value, index, port.span);
                let number = self.as_number(&part, &of.fields.get(index)?.ty);
                let again = number.equals(ir::Expr::bit(32, RECIRCULATE_PORT));
                Some(stays.op(ir::BinOp::LogicAnd, again))
            }
            _ => None,
        }
    }
}

/// What a deparser emits, without what it computes.
fn only_emits(code: &[Stmt]) -> Vec<Stmt> {
    let kept = |stmt: &Stmt| match stmt {
        Stmt::Emit(_) => Some(stmt.clone()),
        Stmt::If(condition, yes, no) => {
            let (yes, no) = (only_emits(yes), only_emits(no));
            (!yes.is_empty() || !no.is_empty()).then(|| Stmt::If(condition.clone(), yes, no))
        }
        Stmt::Switch(value, cases, default) => {
            let cases: Vec<_> =
                cases.iter().map(|(labels, body)| (labels.clone(), only_emits(body))).collect();
            let default = only_emits(default);
            let any = cases.iter().any(|(_, body)| !body.is_empty()) || !default.is_empty();
            any.then(|| Stmt::Switch(value.clone(), cases, default))
        }
        _ => None,
    };
    code.iter().filter_map(kept).collect()
}

/// What a deparser computes, without what it emits.
fn without_emits(code: Vec<Stmt>) -> Vec<Stmt> {
    let kept = |stmt: Stmt| match stmt {
        Stmt::Emit(_) => None,
        Stmt::If(condition, yes, no) => Some(Stmt::If(condition, without_emits(yes), without_emits(no))),
        Stmt::Switch(value, cases, default) => {
            let cases = cases.into_iter().map(|(labels, body)| (labels, without_emits(body))).collect();
            Some(Stmt::Switch(value, cases, without_emits(default)))
        }
        other => Some(other),
    };
    code.into_iter().filter_map(kept).collect()
}
