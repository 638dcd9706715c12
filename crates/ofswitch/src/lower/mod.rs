//! Lowering: what OpenFlow says, in the terms of the bridge's program.
//!
//! A match becomes conditions on keys ([`matching`]). A list of actions becomes the body of one pipeline action
//! ([`Body`]): one statement or a few per action, in order, with all constants as parameters, so that flows whose
//! actions differ only in constants share one action.
//!
//! - `matching.rs`: matches; `places.rs`: reading and writing parts of fields;
//! - `instructions.rs`: instructions and the action set; `known.rs`: those that were lowered before;
//! - `buckets.rs`: buckets of groups; `meters.rs`: bands;
//! - `output.rs`, `edit.rs`, `fields.rs`, `resubmit.rs`, `controller.rs`, `learn.rs`, `spread.rs`, `misc.rs`: actions.

mod buckets;
mod controller;
mod edit;
mod fields;
mod instructions;
mod known;
mod learn;
pub(crate) mod matching;
mod meters;
mod misc;
mod output;
mod places;
mod resubmit;
mod spread;

use std::sync::Arc;

use openflow::action::Action;
use openflow::error::ErrorCode;
use openflow::field::FieldId;
use pipeline::ir::{self, Constant, Expr, Param, Stmt};

use crate::program::terms::var;
use crate::program::{Layout, outputs};

pub(crate) use buckets::bucket;
pub(crate) use instructions::instructions;
pub(crate) use known::{Known, MOST_BYTES};
pub(crate) use learn::{Template, VERSION as LEARNED_VERSION};
pub(crate) use meters::{meter, rates};

/// Statements with parameters and their values: an action that is not defined yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Body {
    pub(crate) action: ir::Action,
    pub(crate) args: Vec<Constant>,
}

/// A lowered list of actions, with what belongs to it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lowered {
    pub(crate) body: Body,
    /// Nested lists that run on copies of the packet, by number.
    pub(crate) copies: Vec<(u32, Body)>,
    /// Flows that packets may add, by number.
    pub(crate) learns: Vec<(u32, Arc<Template>)>,
}

/// What lowering may ask about the switch.
pub(crate) trait World {
    /// Whether a group exists.
    fn has_group(&self, group: u32) -> bool;
    /// Whether a meter exists.
    fn has_meter(&self, meter: u32) -> bool;
    /// Where the option of a tunnel field is among all options: its lowest bit, and bits.
    fn tunnel_option(&self, id: FieldId) -> Option<(u16, u16)>;
    /// A number for a nested list or a learned flow, never given twice.
    fn number(&mut self) -> u32;
}

/// Whose actions these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    /// The flow's table; 0xff: none.
    pub(crate) table: u8,
    pub(crate) cookie: u64,
    /// Reason of packets to controllers.
    pub(crate) reason: u8,
}

/// A list of actions being lowered.
pub(crate) struct Lowering<'w> {
    layout: &'static Layout,
    world: &'w mut dyn World,
    owner: Owner,
    params: Vec<Param>,
    args: Vec<Constant>,
    body: Vec<Stmt>,
    copies: Vec<(u32, Body)>,
    learns: Vec<(u32, Arc<Template>)>,
}

type Step = Result<(), ErrorCode>;

/// Statements of one action at most: what a controller sends in one message may not become arbitrarily long code.
const MAX_STATEMENTS: usize = 20_000;

impl<'w> Lowering<'w> {
    pub(crate) fn new(world: &'w mut dyn World, owner: Owner) -> Self {
        Lowering {
            layout: Layout::get(),
            world,
            owner,
            params: vec![],
            args: vec![],
            body: vec![],
            copies: vec![],
            learns: vec![],
        }
    }

    /// A constant as a parameter.
    fn param(&mut self, value: Constant) -> Expr {
        let Ok(at) = u16::try_from(self.params.len()) else { return Expr::Const(value) };
        self.params.push(Param { name: format!("c{at}"), ty: value.ty });
        self.args.push(value);
        Expr::Param(at)
    }

    /// A number as a parameter.
    fn number(&mut self, width: u16, value: u64) -> Expr {
        self.param(Constant::bit(width, value))
    }

    fn push(&mut self, stmt: Stmt) {
        self.body.push(stmt);
    }

    /// Lowers a list that is applied at once.
    pub(crate) fn list(&mut self, actions: &[Action]) -> Step {
        for action in actions {
            self.action(action)?;
            if self.body.len() > MAX_STATEMENTS {
                return Err(ErrorCode::BacTooMany);
            }
        }
        Ok(())
    }

    fn action(&mut self, action: &Action) -> Step {
        self.output_action(action)
            .or_else(|| self.edit_action(action))
            .or_else(|| self.field_action(action))
            .or_else(|| self.other_action(action))
            .unwrap_or(Err(ErrorCode::BacBadType))
    }

    fn other_action(&mut self, action: &Action) -> Option<Step> {
        self.resubmit_action(action)
            .or_else(|| self.controller_action(action))
            .or_else(|| self.learn_action(action))
            .or_else(|| self.spread_action(action))
            .or_else(|| self.misc_action(action))
    }

    /// Lowers a list into a body of its own.
    fn nested(&mut self, lower: impl FnOnce(&mut Self) -> Step) -> Result<Body, ErrorCode> {
        let params = std::mem::take(&mut self.params);
        let args = std::mem::take(&mut self.args);
        let body = std::mem::take(&mut self.body);
        let result = lower(self);
        let inner = Body {
            action: ir::Action {
                name: "nested".to_owned(),
                params: std::mem::replace(&mut self.params, params),
                body: std::mem::replace(&mut self.body, body),
            },
            args: std::mem::replace(&mut self.args, args),
        };
        result.map(|()| inner)
    }

    pub(crate) fn finish(self) -> Lowered {
        let action = ir::Action { name: "flow".to_owned(), params: self.params, body: self.body };
        Lowered { body: Body { action, args: self.args }, copies: self.copies, learns: self.learns }
    }

    /// Whether these are the actions of a bucket.
    fn is_bucket(&self) -> bool {
        self.owner.reason == outputs::GROUP
    }

    /// Who sends packets to controllers: in a bucket, the flow that runs the group.
    fn sender(&mut self, controller: u16) -> outputs::Sender {
        if self.is_bucket() {
            let v = &self.layout.vars;
            let (table, cookie) = (var(v.group_table), var(v.group_cookie));
            return outputs::Sender { table, cookie, controller: self.number(16, controller.into()) };
        }
        outputs::Sender {
            table: self.number(8, self.owner.table.into()),
            cookie: self.number(64, self.owner.cookie),
            controller: self.number(16, controller.into()),
        }
    }
}
