//! Specialised code: the program as its entries leave it.
//!
//! A program has more than any set of entries uses: fields that no entry matches, headers that no entry needs, actions
//! that no entry has. [`specialise`] makes the residual program for the entries that are there and compiles it beside
//! the general code. Entries may still change as long as they stay within what the code was made for
//! ([`Special::permits`]); else packets use the general code until there is specialised code again.
//!
//! Residuals exist for programs of one stage, or of two that make one pass, without profiles and groups, whose
//! statements cannot exceed the limits: so the code counts neither steps nor depth. With two stages, copies of packets
//! and packets that enter a stage again make passes of their own.
//!
//! - `job.rs`: compilation beside the engine; `chain.rs`: two stages as one; `prune.rs`: the residual; `parse.rs`: its
//!   parser; `fold.rs`: known values;
//! - `uses.rs`: what is read and written; `decided.rs`: what a packet's way follows from; `flow_key.rs`: its flow key;
//!   `front.rs`: the bits that this follows from;
//! - `repeat.rs`: whether what precedes the first lookup may run twice;
//! - `bounds.rs`: bounds of steps and depth; `identity.rs`: whether an unchanged packet needs no deparsing.

mod bounds;
mod chain;
pub(crate) mod decided;
pub(crate) mod flow_key;
mod fold;
pub(crate) mod front;
mod identity;
mod job;
mod parse;
mod prune;
mod repeat;
mod uses;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use pipeline::ir::{Action, ActionId, StageId, TableId};

use crate::code::Code;
use crate::compile::{Options, Passage, Unsupported, compile_residual};
use crate::keys::KeyLayout;

pub(crate) use chain::has_residuals;
pub(crate) use identity::{is_identity, targets};
pub use job::Specialisation;
pub(crate) use repeat::may_repeat;
pub(crate) use uses::{Reads, assigned_vars, each};

/// Actions of all tables from which on there is no specialised code: it would take long to compile.
const MOST_ACTIONS: usize = 256;

/// What is known about the entries of a table.
#[derive(Debug, Clone)]
pub(crate) struct TableFacts {
    /// Whether entries have conditions on each key.
    pub(crate) keys: Vec<bool>,
    /// Actions of entries.
    pub(crate) actions: BTreeSet<ActionId>,
    /// Action after a miss.
    pub(crate) default: Option<ActionId>,
    /// Places of the keys.
    pub(crate) layout: Arc<KeyLayout>,
}

impl TableFacts {
    /// Actions that a lookup may lead to.
    fn all(&self) -> impl Iterator<Item = ActionId> {
        self.actions.iter().copied().chain(self.default)
    }
}

/// What is known about entries and packets.
pub(crate) struct Facts<'a> {
    /// The flags of packets.
    pub(crate) flags: u64,
    pub(crate) tables: Vec<TableFacts>,
    /// Actions that were defined at run time.
    pub(crate) actions: HashMap<ActionId, &'a Action>,
}

/// Code for what is known.
#[derive(Debug)]
pub(crate) struct Special {
    pub(crate) code: Code,
    /// Flags of the packets that it is for.
    pub(crate) flags: u64,
    /// The table that it looks up first.
    pub(crate) first_table: Option<TableId>,
    /// For each table that it looks up, what its entries may be.
    tables: Vec<Option<TableFacts>>,
    several: bool,
}

impl Special {
    fn facts(&self, table: TableId) -> Option<&TableFacts> {
        self.tables.get(table.index())?.as_ref()
    }

    /// Whether it may look up more than one table.
    pub(crate) fn looks_up_several(&self) -> bool {
        self.several
    }

    /// Whether a table may have entries with an action. An entry that the specialised code of some view does not permit
    /// comes with a new structure, which that view does not have.
    pub(crate) fn permits(&self, table: TableId, action: ActionId) -> bool {
        self.facts(table).is_none_or(|facts| facts.actions.contains(&action))
    }

    /// Whether a table may have a default action.
    pub(crate) fn permits_default(&self, table: TableId, action: Option<ActionId>) -> bool {
        self.facts(table).is_none_or(|facts| action.is_none() || facts.default == action)
    }

    /// Whether a table may be as it is.
    pub(crate) fn fits(&self, table: TableId, now: &TableFacts) -> bool {
        let actions = now.actions.iter().all(|action| self.permits(table, *action));
        actions && self.permits_default(table, now.default) && self.has_layout(table, &now.layout)
    }

    /// Whether a table may have this layout of keys.
    pub(crate) fn has_layout(&self, table: TableId, layout: &Arc<KeyLayout>) -> bool {
        self.facts(table).is_none_or(|facts| facts.layout == *layout)
    }
}

/// Makes code for what is known; `None` if the program is not of a kind that has residuals, or nothing is gained.
/// `slots` gives each action its place among the addresses of actions.
fn specialise(
    general: &Code,
    facts: &Facts<'_>,
    options: &Options,
    slots: &HashMap<ActionId, u32>,
) -> Result<Option<Special>, Unsupported> {
    let joined;
    let program = match general.program.stages.len() {
        1 => &*general.program,
        // What was defined at run time would have to be joined, too.
        _ if general.limits.passes < 2 || !facts.actions.is_empty() => return Ok(None),
        _ => match chain::joined(&general.program) {
            Some(program) => {
                joined = program;
                &joined
            }
            None => return Ok(None),
        },
    };
    let mut pruner = prune::Pruner::of(program, facts);
    if !pruner.is_simple()
        || facts.tables.iter().map(|table| table.actions.len()).sum::<usize>()
            > MOST_ACTIONS + facts.tables.len()
    {
        return Ok(None);
    }
    let Some(parser) = program.stages.first().map(|stage| stage.parser) else { return Ok(None) };
    let mut bounds = bounds::Bounds::new(program, facts, &pruner.known);
    let (mut both, mut second) = (bounds::Bound::default(), 0);
    for (i, stage) in program.stages.iter().enumerate() {
        for block in [Some(stage.control), stage.finish, stage.deparser].into_iter().flatten() {
            let Some(bound) = bounds.block(block) else { return Ok(None) };
            both.steps += bound.steps;
            both.depth = both.depth.max(bound.depth);
            second += if i > 0 { bound.steps } else { 0 };
        }
    }
    let parsing = parser.and_then(|id| program.parsers.get(id.index()));
    let parsing = parsing.map(|parser| bounds.parser(parser, general.limits.parser_states.into()));
    let Some(parsing) = parsing.unwrap_or(Some(0)) else { return Ok(None) };
    let steps = pruner.steps(general.limits.passes, parsing, both.steps, second);
    if steps > u64::from(general.limits.steps) || both.depth + 8 > u64::from(general.limits.depth) {
        return Ok(None);
    }
    let last = StageId::at(program.stages.len().saturating_sub(1));
    let identity = general.is_identity(parser, last);
    let Some(residual) = pruner.residual(identity) else { return Ok(None) };
    let looked_up = residual.tables.clone();
    let (is_unchanging, measures) = (residual.is_unchanging, residual.measures);
    let code = compile_residual(
        general,
        residual.program,
        &residual.actions,
        (&residual.reads, &looked_up),
        Passage { is_unchanging, measures, sends_on: pruner.sends_on() },
        options,
        slots,
    )?;
    let tables = facts.tables.iter().enumerate();
    let tables =
        tables.map(|(i, facts)| looked_up.contains(&TableId::at(i)).then(|| facts.clone())).collect();
    let first_table = first_table(&code);
    Ok(Some(Special { code, flags: facts.flags, first_table, tables, several: looked_up.len() > 1 }))
}

/// The first table that the blocks with preparations look up, in the order in which packets come to these blocks.
fn first_table(code: &Code) -> Option<TableId> {
    let mut first = None;
    for (block, _) in &code.prepares {
        let body = code.program.blocks.get(block.index()).map_or(&[][..], |(_, body)| body);
        each(body, &mut |stmt| {
            if let pipeline::ir::Stmt::Apply(id, _) = stmt {
                first.get_or_insert(*id);
            }
        });
    }
    first
}

/// Actions by number.
pub(crate) type Defined = BTreeMap<ActionId, Action>;
