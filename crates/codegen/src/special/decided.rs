//! What a packet's way through a residual program follows from: the entries it hits, the port it came from, or more.
//!
//! The first lookup finds an entry by the packet's bytes. If all that happens then follows from the entry and the ingress
//! port, the next packet that hits the entry meets the same outcome, which is kept with the entry
//! ([`crate::shortcut`]). Code tells so while it runs: a statement whose effect follows from anything else
//! sets [`crate::layout::word::UNDECIDED`]. Likewise, if every lookup and effect follows from entries, the ingress port
//! and the flow key ([`super::flow_key`]), the next packet with that key meets the same entries and outcome; a statement
//! that follows from more sets [`crate::layout::word::UNKEYED`].
//!
//! Invariants:
//! - of two packets with one ingress port that run the same code and hit the same entry in their only lookup, neither of
//!   which sets the first word, all effects are the same but for the packets' bytes;
//! - of two packets with one ingress port and one flow key that run the same code on the same tables, one of which does
//!   not set the second word, both hit the same entries, and all effects are the same but for the packets' bytes.
//!
//! Statements up to the first that differs would have the same operands, as origins up to [`Origin::Ingress`] or
//! [`Origin::Parsed`] say. No statement that changes a header is among them, so headers are as the parser left them.

use std::collections::BTreeMap;

use pipeline::ir::{
    ActionId, BinOp, BlockId, Dest, Expr, HeaderRef, LValue, ParserOp, Program, Send, Slot, Stmt, TableId,
    Var, VarId, Via,
};

use super::uses::{base, places};
use super::{Defined, each};

/// What a value follows from; each level includes those before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// The program and entries.
    Entry,
    /// The ingress port.
    Ingress,
    /// What the parser made of the packet's bytes: the flow key has it ([`super::flow_key`]).
    Parsed,
    /// Its length, bytes that no parser saw, the time, state.
    Other,
}
use Origin::{Entry, Ingress, Other, Parsed};

/// Origins of a residual program's values.
#[derive(Debug)]
pub(crate) struct Origins {
    vars: Vec<Origin>,
    /// Variables that are only ever set to the ingress port.
    is_ingress: Vec<bool>,
    /// Variables that parsers set.
    pub(super) is_parsed: Vec<bool>,
    /// Variables that are set behind the parser.
    pub(super) is_set: Vec<bool>,
    /// For each table, whether its key follows from the flow key, the ingress port and entries.
    is_keyed: Vec<bool>,
    /// Arguments of actions that statements run, the latest of each.
    args: BTreeMap<ActionId, Origin>,
    /// Variables that have the port of the send that leads to the second stage.
    egress: Vec<VarId>,
    /// Whether more than the decision not to send a packet back follows from the ingress port.
    pub(crate) uses_ingress: bool,
}

impl Origins {
    /// Origins in a residual program with actions that were defined at run time.
    pub(crate) fn of(program: &Program, defined: &Defined) -> Self {
        let is_port = |var: &Var| var.slot == Some(Slot::IngressPort);
        let origin = |var: &Var| match var.slot {
            // The egress port is that of the send that leads to the second stage, and 0 before.
            None | Some(Slot::Flags | Slot::EgressPort | Slot::Instance | Slot::Replica) => Entry,
            Some(Slot::IngressPort) => Ingress,
            Some(_) => Other,
        };
        let mut origins = Self {
            vars: program.vars.iter().map(origin).collect(),
            // Narrower ones do not tell all ports apart.
            is_ingress: program.vars.iter().map(|var| var.ty.width() >= 32).collect(),
            is_parsed: vec![false; program.vars.len()],
            is_set: vec![false; program.vars.len()],
            is_keyed: vec![],
            args: BTreeMap::new(),
            egress: vec![],
            uses_ingress: false,
        };
        if program.stages.len() > 1 {
            let vars = program.vars.iter().enumerate();
            let egress = vars.filter(|(_, var)| var.slot == Some(Slot::EgressPort));
            origins.egress = egress.map(|(i, _)| VarId::at(i)).collect();
        }
        for state in program.parsers.iter().flat_map(|parser| &parser.states) {
            for op in &state.ops {
                if let ParserOp::Do(stmt) = op {
                    each(std::slice::from_ref(stmt), &mut |stmt| {
                        for place in places(stmt) {
                            origins.raise(place, Parsed);
                            origins.forbid(place);
                            mark(&mut origins.is_parsed, place);
                        }
                    });
                }
            }
        }
        let deparser = program.stages.last().and_then(|stage| stage.deparser);
        let blocks = program.blocks.iter().enumerate();
        let blocks = blocks.filter(|(i, _)| Some(BlockId::at(*i)) != deparser);
        let own = program.actions.iter().enumerate().map(|(i, action)| (ActionId::at(i), action));
        let actions = own.chain(defined.iter().map(|(id, action)| (*id, action)));
        let mut bodies: Vec<_> = blocks.map(|(_, (_, body))| (None, body)).collect();
        bodies.extend(actions.map(|(id, action)| (Some(id), &action.body)));
        for (_, body) in &bodies {
            each(body, &mut |stmt| {
                let sets_port = matches!(stmt, Stmt::Set(LValue::Var(_), Expr::Var(id))
                    if program.vars.get(id.index()).is_some_and(is_port));
                if !sets_port {
                    places(stmt).into_iter().for_each(|place| origins.forbid(place));
                }
                places(stmt).into_iter().for_each(|place| mark(&mut origins.is_set, place));
            });
        }
        for id in origins.egress.clone() {
            mark(&mut origins.is_set, &LValue::Var(id));
        }
        loop {
            let mut changed = false;
            for (action, body) in &bodies {
                let args = origins.args(*action);
                each(body, &mut |stmt| changed |= origins.flow(stmt, args));
            }
            if !changed {
                break;
            }
        }
        for (action, body) in &bodies {
            let args = origins.args(*action);
            each(body, &mut |stmt| origins.uses_ingress |= origins.decision(stmt, args) == Ingress);
        }
        let keyed = program.tables.iter().map(|table| {
            let mut keys = table.keys.iter();
            keys.all(|key| origins.expr(&key.value, Entry) != Other)
        });
        origins.is_keyed = keyed.collect();
        origins
    }

    /// The origin of an action's arguments; entries have those of their own.
    pub(crate) fn args(&self, action: Option<ActionId>) -> Origin {
        action.and_then(|id| self.args.get(&id).copied()).unwrap_or(Entry)
    }

    /// Whether a statement, without those inside it, does what follows from the entry and the ingress port.
    pub(crate) fn is_decided(&self, stmt: &Stmt, args: Origin) -> bool {
        self.decision(stmt, args) <= Ingress
    }

    /// Whether a statement, without those inside it, does what follows from the flow key, the ingress port and entries.
    pub(crate) fn is_keyed(&self, stmt: &Stmt, args: Origin) -> bool {
        match stmt {
            Stmt::Apply(id, _) => self.has_keyed_lookup(*id),
            _ => self.decision(stmt, args) != Other,
        }
    }

    /// Whether the entry that a lookup hits follows from the flow key, the ingress port and entries.
    pub(super) fn has_keyed_lookup(&self, id: TableId) -> bool {
        self.is_keyed.get(id.index()).copied().unwrap_or(false)
    }

    /// What an expression follows from.
    pub(crate) fn expr(&self, expr: &Expr, args: Origin) -> Origin {
        match expr {
            Expr::Const(_) => Entry,
            Expr::Var(id) => self.vars.get(id.index()).copied().unwrap_or(Other),
            Expr::Param(_) => args,
            Expr::Field(header, _) | Expr::Valid(header) if is_fixed(header) => Parsed,
            Expr::Field(..)
            | Expr::Valid(_)
            | Expr::LastIndex(_)
            | Expr::FieldLength(..)
            | Expr::Lookahead(..)
            | Expr::Remaining => Other,
            Expr::Unary(_, of) | Expr::Slice(of, ..) | Expr::Cast(_, of) => self.expr(of, args),
            Expr::Binary(_, of) => self.expr(&of.0, args).max(self.expr(&of.1, args)),
            Expr::Mux(of) => self.expr(&of.0, args).max(self.expr(&of.1, args)).max(self.expr(&of.2, args)),
        }
    }

    /// Whether a statement sends the packet to a port unless it came from there, and does nothing else. What does not
    /// send it then sets the word; so its outcome is that for every other ingress port.
    pub(crate) fn is_not_back(&self, stmt: &Stmt, args: Origin) -> bool {
        let Stmt::If(Expr::Binary(BinOp::Ne, compared), yes, no) = stmt else { return false };
        let ([Stmt::Send(send)], [], (Expr::Var(port), to)) = (&yes[..], &no[..], &**compared) else {
            return false;
        };
        self.is_port(*port)
            && self.expr(to, args) == Entry
            && self.send(send, args) == Entry
            && matches!(&send.to, Dest::Port(of) if of == to)
    }

    fn is_port(&self, id: VarId) -> bool {
        let at = id.index();
        self.is_ingress.get(at) == Some(&true) && self.vars.get(at) == Some(&Ingress)
    }

    /// What a statement's choice or effect follows from; assignments have none, their values are followed.
    fn decision(&self, stmt: &Stmt, args: Origin) -> Origin {
        match stmt {
            Stmt::If(..) if self.is_not_back(stmt, args) => Entry,
            Stmt::If(on, ..) | Stmt::Switch(on, ..) => self.expr(on, args),
            Stmt::Set(place, _) if variable(place).is_some() => Entry,
            Stmt::Apply(..)
            | Stmt::Do(..)
            | Stmt::Call(_)
            | Stmt::Goto(_)
            | Stmt::Drop(_)
            | Stmt::Return
            | Stmt::Exit => Entry,
            Stmt::Send(send) => self.send(send, args),
            _ => Other,
        }
    }

    /// What a packet's way out follows from.
    fn send(&self, send: &Send, args: Origin) -> Origin {
        // Whether a limit cuts the packet follows from its length.
        let (Dest::Port(to), None, Via::Next | Via::Direct) = (&send.to, &send.limit, send.via) else {
            return Other;
        };
        let operands = [&send.class, &send.queue].into_iter().flatten().chain([to]);
        operands.map(|operand| self.expr(operand, args)).max().unwrap_or(Entry)
    }

    /// Follows values into variables and arguments; whether an origin has changed.
    fn flow(&mut self, stmt: &Stmt, args: Origin) -> bool {
        match stmt {
            Stmt::Set(place, value) => {
                let origin = self.expr(value, args);
                self.raise(place, origin)
            }
            Stmt::Do(action, given) => {
                let origin = given.iter().map(|given| self.expr(given, args)).max().unwrap_or(Entry);
                let before = self.args.entry(*action).or_insert(Entry);
                let raised = origin > *before;
                *before = origin.max(*before);
                raised
            }
            Stmt::Send(send) if send.via == Via::Next => {
                let Dest::Port(to) = &send.to else { return false };
                let origin = self.expr(to, args);
                let egress = self.egress.clone();
                egress.into_iter().fold(false, |changed, id| self.raise_var(id, origin) | changed)
            }
            _ => places(stmt).into_iter().fold(false, |changed, place| self.raise(place, Other) | changed),
        }
    }

    fn raise(&mut self, place: &LValue, origin: Origin) -> bool {
        variable(place).is_some_and(|id| self.raise_var(id, origin))
    }

    fn raise_var(&mut self, id: VarId, origin: Origin) -> bool {
        let var = self.vars.get_mut(id.index());
        let Some(var) = var.filter(|before| **before < origin) else { return false };
        *var = origin;
        true
    }

    fn forbid(&mut self, place: &LValue) {
        if let Some(is_ingress) = variable(place).and_then(|id| self.is_ingress.get_mut(id.index())) {
            *is_ingress = false;
        }
    }
}

/// Whether a reference always means the same header.
pub(super) fn is_fixed(header: &HeaderRef) -> bool {
    match header {
        HeaderRef::Header(_) => true,
        HeaderRef::Element(_, index) => matches!(**index, Expr::Const(_)),
        HeaderRef::Next(_) | HeaderRef::Last(_) => false,
    }
}

/// Marks the variable that a place is, or is part of.
fn mark(vars: &mut [bool], place: &LValue) {
    let slot = variable(place).and_then(|id| vars.get_mut(id.index()));
    slot.into_iter().for_each(|slot| *slot = true);
}

/// The variable that a place is, or is part of.
fn variable(place: &LValue) -> Option<VarId> {
    match base(place) {
        LValue::Var(id) => Some(*id),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn uses_ingress(body: &str) -> bool {
        let source = format!(
            "program p {{
              var from: bit<32> = env ingress_port;
              var alias: bit<32>;
              action act(port: bit<32>) {{ {body} }}
              table t {{ key from: exact = from; actions act; size 8; }}
              block control {{ alias = from; apply t; }}
              stage s {{ control control; }}
            }}"
        );
        Origins::of(&pipeline::text::parse(&source).unwrap(), &Defined::new()).uses_ingress
    }

    #[test]
    fn not_sending_back_is_no_use_of_the_ingress_port() {
        assert!(!uses_ingress("if (from != $port) { send current port $port; }"));
        assert!(!uses_ingress("if (alias != $port) { send current port $port; }"));
        assert!(!uses_ingress("send current port $port;"));
        assert!(uses_ingress("if (from == $port) { send current port $port; }"));
        assert!(uses_ingress("if (from != $port) { send current port 32w9; }"));
        assert!(uses_ingress("if (from != $port) { send current port $port queue alias; }"));
        assert!(uses_ingress("alias = 32w1; if (alias != $port) { send current port $port; }"));
        assert!(uses_ingress("send current port from;"));
    }
}
