//! The action set: variables that keep what `write_actions` adds, executed at the end in the standard's order (OpenFlow
//! 1.3.5, section 5.10): TTL inwards, pops, pushes of MPLS, PBB and VLAN, TTL outwards, TTL decrement, fields, queue,
//! then group or output.

use std::collections::BTreeMap;

use openflow::field::FieldId;
use pipeline::ir::{ActionId, BinOp, BlockId, Expr, Program, Stmt, Type, VarId};

use super::edits::Edits;
use super::headers::Headers;
use super::outputs;
use super::terms::{bit, both, either, set, truth, var, when};
use super::vars::Vars;
use super::{is_hidden_by_labels, unlabelled};

/// The variables. A type, mask or flag of zero means that there is no such action.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    /// Whether there is any action.
    pub(crate) any: VarId,
    pub(crate) copy_in: VarId,
    pub(crate) pop_vlan: VarId,
    pub(crate) pop_pbb: VarId,
    /// Ethernet type behind the label that is removed.
    pub(crate) pop_mpls: VarId,
    pub(crate) push_mpls: VarId,
    pub(crate) push_pbb: VarId,
    pub(crate) push_vlan: VarId,
    pub(crate) copy_out: VarId,
    pub(crate) dec_ttl: VarId,
    pub(crate) dec_mpls_ttl: VarId,
    /// Fields: value and mask.
    pub(crate) fields: BTreeMap<FieldId, (VarId, VarId)>,
    pub(crate) set_queue: VarId,
    pub(crate) queue: VarId,
    pub(crate) set_group: VarId,
    pub(crate) group: VarId,
    pub(crate) set_output: VarId,
    pub(crate) output: VarId,
    pub(crate) max_len: VarId,
    pub(crate) table: VarId,
    pub(crate) cookie: VarId,
    /// Forgets all of them.
    pub(crate) clear: BlockId,
}

/// What executing the set needs.
pub(super) struct Means<'a> {
    pub(super) stores: &'a BTreeMap<FieldId, ActionId>,
    pub(super) headers: &'a Headers,
    pub(super) edits: &'a Edits,
    pub(super) copy_out: ActionId,
    pub(super) copy_in: ActionId,
    pub(super) dec_ttl: Vec<Stmt>,
    pub(super) dec_mpls_ttl: Vec<Stmt>,
    pub(super) output: ActionId,
    pub(super) run_group: BlockId,
    pub(super) group: VarId,
}

impl Kept {
    /// Declares the variables, and the block that clears them.
    pub(super) fn declare(
        p: &mut Program,
        stores: &BTreeMap<FieldId, ActionId>,
        bits: impl Fn(FieldId) -> u16,
    ) -> Self {
        let flag = |p: &mut Program, name: &str| p.add_var(&format!("kept_{name}"), Type::Bool);
        let number =
            |p: &mut Program, name: &str, width| p.add_var(&format!("kept_{name}"), Type::Bit(width));
        let mut fields = BTreeMap::new();
        for id in stores.keys() {
            let (name, width) = (id.field().name, bits(*id));
            let value = number(p, name, width);
            fields.insert(*id, (value, number(p, &format!("{name}_mask"), width)));
        }
        let kept = Kept {
            any: flag(p, "any"),
            copy_in: flag(p, "copy_ttl_in"),
            pop_vlan: flag(p, "pop_vlan"),
            pop_pbb: flag(p, "pop_pbb"),
            pop_mpls: number(p, "pop_mpls", 16),
            push_mpls: number(p, "push_mpls", 16),
            push_pbb: number(p, "push_pbb", 16),
            push_vlan: number(p, "push_vlan", 16),
            copy_out: flag(p, "copy_ttl_out"),
            dec_ttl: flag(p, "dec_ttl"),
            dec_mpls_ttl: flag(p, "dec_mpls_ttl"),
            fields,
            set_queue: flag(p, "set_queue"),
            queue: number(p, "queue", 16),
            set_group: flag(p, "set_group"),
            group: number(p, "group", 32),
            set_output: flag(p, "set_output"),
            output: number(p, "output", 32),
            max_len: number(p, "max_len", 16),
            table: number(p, "table", 8),
            cookie: number(p, "cookie", 64),
            clear: p.declare_block("clear_kept"),
        };
        let flags = [
            kept.any,
            kept.copy_in,
            kept.pop_vlan,
            kept.pop_pbb,
            kept.copy_out,
            kept.dec_ttl,
            kept.dec_mpls_ttl,
            kept.set_queue,
            kept.set_group,
            kept.set_output,
        ];
        let mut clear: Vec<Stmt> = flags.into_iter().map(|id| set(id, truth(false))).collect();
        let types = [kept.pop_mpls, kept.push_mpls, kept.push_pbb, kept.push_vlan];
        clear.extend(types.into_iter().map(|id| set(id, bit(16, 0))));
        clear.extend(kept.fields.iter().map(|(id, (_, mask))| set(*mask, bit(bits(*id), 0))));
        let all = when(var(kept.any), clear);
        p.define_block(kept.clear, vec![all]);
        kept
    }

    /// The port of the output, for the field `actset_output`: whether there is one, and its number.
    pub(super) fn output(&self) -> (Expr, Expr) {
        let group = super::terms::not(var(self.set_group));
        (both(var(self.set_output), group), var(self.output))
    }

    /// Executes the set.
    pub(super) fn execute(&self, v: &Vars, means: &Means<'_>, bits: impl Fn(FieldId) -> u16) -> Vec<Stmt> {
        let flag = |id, body: Vec<Stmt>| when(var(id), body);
        let typed = |id, action: ActionId| {
            when(var(id).op(BinOp::Ne, bit(16, 0)), vec![Stmt::Do(action, vec![var(id)])])
        };
        let run = |action: ActionId| vec![Stmt::Do(action, vec![])];
        let mut body = vec![
            flag(self.copy_in, run(means.copy_in)),
            flag(self.pop_pbb, run(means.edits.pop_pbb)),
            typed(self.pop_mpls, means.edits.pop_mpls),
            flag(self.pop_vlan, run(means.edits.pop_vlan)),
            typed(self.push_mpls, means.edits.push_mpls),
            typed(self.push_pbb, means.edits.push_pbb),
            typed(self.push_vlan, means.edits.push_vlan),
            flag(self.copy_out, run(means.copy_out)),
            flag(self.dec_mpls_ttl, means.dec_mpls_ttl.clone()),
            flag(self.dec_ttl, means.dec_ttl.clone()),
        ];
        for (id, (value, mask)) in &self.fields {
            let Some(action) = means.stores.get(id) else { continue };
            let kept = var(*mask).op(BinOp::Ne, bit(bits(*id), 0));
            let present =
                if is_hidden_by_labels(id.field()) { both(kept, unlabelled(means.headers)) } else { kept };
            body.push(when(present, vec![Stmt::Do(*action, vec![var(*value), var(*mask)])]));
        }
        body.push(flag(self.set_queue, vec![set(v.queue, var(self.queue))]));
        let output = vec![
            var(self.output),
            var(self.max_len),
            bit(8, outputs::ACTION_SET.into()),
            var(self.table),
            var(self.cookie),
        ];
        let output = flag(self.set_output, vec![Stmt::Do(means.output, output)]);
        let group = vec![
            set(means.group, var(self.group)),
            set(v.group_table, var(self.table)),
            set(v.group_cookie, var(self.cookie)),
            Stmt::Call(means.run_group),
        ];
        body.push(Stmt::If(var(self.set_group), group, vec![output]));
        // A set that sends the packet nowhere does nothing else, either.
        let sends = either(var(self.set_output), var(self.set_group));
        vec![when(var(self.any), vec![when(sends, body)])]
    }
}
