//! The flow key: what code reads of a packet as its parser left it.
//!
//! It is the values of expressions that only parsed headers and variables occur in, each as large a part of a key, a
//! condition or an operand as possible: five header fields may take two words, and a chain of tests one bit.
//!
//! Invariant: what has the origin [`Origin::Parsed`] follows from the flow key, the ingress port and the entries hit, as
//! long as no statement has changed a header ([`super::decided`]). A variable that is set behind the parser, too, is a
//! part of its own: what it is computed with may see either value.

use std::collections::BTreeSet;

use pipeline::ir::{BlockId, Dest, Expr, Program, Stmt, TableId, Type, VarId};

use super::decided::{Origin, Origins, is_fixed};
use super::{Defined, each};
use crate::keys::KeyLayout;

/// Words of the longest flow key.
pub(crate) const MOST_WORDS: usize = 6;

/// The parts of a flow key and their places.
#[derive(Debug)]
pub(crate) struct FlowKey {
    pub(crate) parts: Vec<Expr>,
    pub(crate) layout: KeyLayout,
}

impl FlowKey {
    /// The flow key of a residual program with actions that were defined at run time; `None` if it is too long.
    pub(crate) fn of(
        program: &Program,
        defined: &Defined,
        tables: &BTreeSet<TableId>,
        origins: &Origins,
    ) -> Option<Self> {
        let mut parts = Parts { origins, found: vec![] };
        for id in tables.iter().filter(|id| origins.has_keyed_lookup(**id)) {
            let keys = program.tables.get(id.index()).into_iter().flat_map(|table| &table.keys);
            keys.for_each(|key| parts.add(&key.value));
        }
        let deparser = program.stages.last().and_then(|stage| stage.deparser);
        let blocks = program.blocks.iter().enumerate();
        let blocks = blocks.filter(|(i, _)| Some(BlockId::at(*i)) != deparser).map(|(_, (_, body))| body);
        let actions = program.actions.iter().chain(defined.values()).map(|action| &action.body);
        for body in blocks.chain(actions) {
            each(body, &mut |stmt| parts.stmt(stmt));
        }
        let mut widths = Vec::new();
        let found = parts.found.iter().enumerate();
        for (_, part) in found.filter(|(i, part)| !parts.found.iter().take(*i).any(|other| other == *part)) {
            widths.push((pipeline::validate::expr_type(program, part).map(Type::width)?, (*part).clone()));
        }
        // Wide ones first leave fewer gaps.
        widths.sort_by_key(|(width, _)| std::cmp::Reverse(*width));
        let layout = KeyLayout::of_widths(widths.iter().map(|(width, _)| Some(*width)));
        let parts = widths.into_iter().map(|(_, part)| part).collect();
        (layout.words <= MOST_WORDS).then_some(Self { parts, layout })
    }
}

struct Parts<'a> {
    origins: &'a Origins,
    found: Vec<&'a Expr>,
}

impl<'a> Parts<'a> {
    /// What a statement's choice, effect or value follows from. Of one that follows from more, nothing is needed.
    fn stmt(&mut self, stmt: &'a Stmt) {
        match stmt {
            Stmt::If(on, ..) | Stmt::Switch(on, ..) => self.add(on),
            Stmt::Set(_, value) => self.add(value),
            Stmt::Do(_, args) => args.iter().for_each(|arg| self.add(arg)),
            Stmt::Send(send) => {
                [&send.class, &send.queue].into_iter().flatten().for_each(|operand| self.add(operand));
                if let Dest::Port(to) = &send.to {
                    self.add(to);
                }
            }
            _ => {}
        }
    }

    /// Adds the largest parts of an expression that follow from what was parsed.
    fn add(&mut self, expr: &'a Expr) {
        // Arguments are followed where they are computed.
        if self.origins.expr(expr, Origin::Entry) != Origin::Parsed {
            return;
        }
        let is_parsed = |id: &VarId| self.origins.is_parsed.get(id.index()) == Some(&true);
        match expr {
            _ if self.is_part(expr) => self.found.push(expr),
            Expr::Var(id) if is_parsed(id) => self.found.push(expr),
            Expr::Unary(_, of) | Expr::Slice(of, ..) | Expr::Cast(_, of) => self.add(of),
            Expr::Binary(_, of) => [&of.0, &of.1].into_iter().for_each(|of| self.add(of)),
            Expr::Mux(of) => [&of.0, &of.1, &of.2].into_iter().for_each(|of| self.add(of)),
            _ => {}
        }
    }

    /// Whether an expression has the value now that it had behind the parser.
    fn is_part(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Const(_) => true,
            Expr::Var(id) => {
                let of = |vars: &[bool]| vars.get(id.index()).copied().unwrap_or(false);
                of(&self.origins.is_parsed) && !of(&self.origins.is_set)
            }
            Expr::Field(header, _) | Expr::Valid(header) => is_fixed(header),
            Expr::Unary(_, of) | Expr::Slice(of, ..) | Expr::Cast(_, of) => self.is_part(of),
            Expr::Binary(_, of) => self.is_part(&of.0) && self.is_part(&of.1),
            Expr::Mux(of) => self.is_part(&of.0) && self.is_part(&of.1) && self.is_part(&of.2),
            Expr::Param(_)
            | Expr::LastIndex(_)
            | Expr::FieldLength(..)
            | Expr::Lookahead(..)
            | Expr::Remaining => false,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Widths of the parts of a program's flow key.
    fn widths(key: &str, body: &str) -> Option<Vec<u16>> {
        let source = format!(
            "program p {{
              header h_t {{ a: bit<8>; b: bit<16>; }} instance h: h_t; instance g: h_t;
              header wide_t {{ w: bit<512>; }} instance wide: wide_t;
              var from: bit<32> = env ingress_port;
              var octets: bit<32> = env packet_length;
              var parsed: bit<8>;
              var other: bit<8>;
              action act(port: bit<32>) {{ send current port $port; }}
              table t {{ key a: ternary = {key}; actions act; size 8; }}
              parser p {{ state start {{ extract h; parsed = h.a; goto accept; }} }}
              block control {{ {body} apply t; }}
              stage s {{ parser p; control control; }}
            }}"
        );
        let program = pipeline::text::parse(&source).unwrap();
        let origins = Origins::of(&program, &Defined::new());
        let key = FlowKey::of(&program, &Defined::new(), &BTreeSet::from([TableId(0)]), &origins)?;
        let width = |part| pipeline::validate::expr_type(&program, part).unwrap().width();
        Some(key.parts.iter().map(width).collect())
    }

    #[test]
    fn parts_are_the_largest_that_were_parsed() {
        assert_eq!(widths("(valid(h) ? h.b : g.b)", ""), Some(vec![16]));
        assert_eq!(widths("parsed", "if (valid(g) && (h.b == 16w1)) { other = parsed; }"), Some(vec![8, 1]));
        assert_eq!(widths("from", ""), Some(vec![]));
        assert_eq!(widths("other", "other = (h.a + g.a);"), Some(vec![8]));
        // Each part once.
        assert_eq!(widths("h.a", "other = h.a;"), Some(vec![8]));
    }

    #[test]
    fn what_is_set_behind_the_parser_is_a_part_of_its_own() {
        assert_eq!(widths("(parsed + h.a)", ""), Some(vec![8]));
        assert_eq!(widths("(parsed + h.a)", "if (h.b == 16w1) { parsed = 8w4; }"), Some(vec![8, 8, 1]));
    }

    #[test]
    fn what_follows_from_more_has_no_part() {
        assert_eq!(widths("h.a", "if (octets == bit<32>(h.b)) { other = 8w1; }"), Some(vec![8]));
        assert_eq!(widths("octets", ""), Some(vec![]));
    }

    #[test]
    fn long_keys_are_none() {
        assert_eq!(widths("wide.w", ""), None);
    }
}
