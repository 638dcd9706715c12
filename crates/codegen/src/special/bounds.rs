//! Bounds of what a program may do with a packet, so that code needs not count.

use std::collections::{BTreeMap, BTreeSet};

use pipeline::ir::{ActionId, BlockId, Parser, ParserOp, Program, Stmt};

use super::Facts;
use super::fold::Known;
use super::identity::targets;

/// Largest numbers that any packet may reach.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bound {
    pub(super) steps: u64,
    /// Nesting from here.
    pub(super) depth: u64,
    /// Nesting of blocks that take the place of the current one, from there.
    after: u64,
}

impl Bound {
    fn or(self, other: Self) -> Self {
        Self {
            steps: self.steps.max(other.steps),
            depth: self.depth.max(other.depth),
            after: self.after.max(other.after),
        }
    }

    fn then(self, other: Self) -> Self {
        Self { steps: self.steps.saturating_add(other.steps), ..self.or(other) }
    }
}

/// Computes bounds; `None` where code may repeat itself.
pub(super) struct Bounds<'a> {
    pub(super) program: &'a Program,
    pub(super) facts: &'a Facts<'a>,
    pub(super) known: &'a Known,
    blocks: BTreeMap<BlockId, Bound>,
    actions: BTreeMap<ActionId, Bound>,
    /// Blocks and actions being computed: what leads back to one of them repeats itself.
    open: (BTreeSet<BlockId>, BTreeSet<ActionId>),
}

impl<'a> Bounds<'a> {
    pub(super) fn new(program: &'a Program, facts: &'a Facts<'a>, known: &'a Known) -> Self {
        Self {
            program,
            facts,
            known,
            blocks: BTreeMap::new(),
            actions: BTreeMap::new(),
            open: Default::default(),
        }
    }

    /// A block, and those that take its place.
    pub(super) fn block(&mut self, id: BlockId) -> Option<Bound> {
        if let Some(bound) = self.blocks.get(&id) {
            return Some(*bound);
        }
        if !self.open.0.insert(id) {
            return None;
        }
        let (_, body) = self.program.blocks.get(id.index())?;
        let own = self.body(body)?;
        let bound = Bound { steps: own.steps.saturating_add(1), depth: own.depth.max(own.after), after: 0 };
        self.open.0.remove(&id);
        self.blocks.insert(id, bound);
        Some(bound)
    }

    fn body(&mut self, body: &[Stmt]) -> Option<Bound> {
        let mut all = Bound::default();
        for stmt in body {
            let own = self.stmt(stmt)?;
            all = all.then(Bound { steps: own.steps.saturating_add(stmt.steps().into()), ..own });
        }
        Some(Bound { depth: all.depth + 1, ..all })
    }

    fn any<'s>(&mut self, bodies: impl IntoIterator<Item = &'s [Stmt]>) -> Option<Bound> {
        bodies.into_iter().try_fold(Bound::default(), |all, body| Some(all.or(self.body(body)?)))
    }

    fn stmt(&mut self, stmt: &Stmt) -> Option<Bound> {
        Some(match stmt {
            Stmt::If(condition, yes, no) => match self.known.holds(condition) {
                Some(true) => self.body(yes)?,
                Some(false) => self.body(no)?,
                None => self.any([&yes[..], no])?,
            },
            Stmt::Switch(_, cases, default) => {
                self.any(cases.iter().map(|(_, body)| &body[..]).chain([&default[..]]))?
            }
            Stmt::Atomic(body) => self.body(body)?,
            Stmt::Apply(id, applied) => {
                let facts = self.facts;
                let mut run = Bound::default();
                for action in facts.tables.get(id.index()).into_iter().flat_map(super::TableFacts::all) {
                    run = run.or(self.action(action)?);
                }
                let branch = self.any([&applied.hit[..], &applied.miss])?;
                let of_actions = applied.actions.iter().map(|(_, body)| &body[..]);
                run.then(branch).then(self.any(of_actions.chain([&applied.other[..]]))?)
            }
            Stmt::Do(action, _) => self.action(*action)?,
            Stmt::Call(block) => self.block(*block)?,
            Stmt::Goto(block) => {
                let bound = self.block(*block)?;
                Bound { steps: bound.steps, depth: 0, after: bound.depth }
            }
            // Buckets and parsers that run again are not bounded here.
            Stmt::Group(..) | Stmt::Reparse => return None,
            _ => Bound::default(),
        })
    }

    fn action(&mut self, id: ActionId) -> Option<Bound> {
        if let Some(bound) = self.actions.get(&id) {
            return Some(*bound);
        }
        if !self.open.1.insert(id) {
            return None;
        }
        let own = self.program.actions.get(id.index());
        let action = own.or_else(|| self.facts.actions.get(&id).copied())?;
        let bound = self.body(&action.body)?;
        self.open.1.remove(&id);
        self.actions.insert(id, bound);
        Some(bound)
    }

    /// Steps of a parser that enters so many states at most.
    pub(super) fn parser(&mut self, parser: &Parser, states: u64) -> Option<u64> {
        let mut own = Vec::with_capacity(parser.states.len());
        for state in &parser.states {
            let mut steps = 1_u64;
            for op in &state.ops {
                let nested = match op {
                    ParserOp::Do(stmt) => self.stmt(stmt)?.steps,
                    _ => 0,
                };
                steps = steps.saturating_add(nested).saturating_add(op.steps().into());
            }
            own.push(steps);
        }
        let most = own.iter().copied().max().unwrap_or(0);
        Some(longest_way(parser, &own).unwrap_or(most.saturating_mul(states + 1)))
    }
}

/// Steps of the longest way through a parser, given those of each state; `None` if it has loops.
fn longest_way(parser: &Parser, own: &[u64]) -> Option<u64> {
    let mut into = vec![0_usize; own.len()];
    let follows: Vec<_> = parser.states.iter().map(|state| targets(&state.next)).collect();
    for to in follows.iter().flatten() {
        *into.get_mut(*to)? += 1;
    }
    let mut ready: Vec<_> = (0..own.len()).filter(|state| into.get(*state) == Some(&0)).collect();
    let mut before = vec![0; own.len()];
    let (mut longest, mut done) = (0, 0);
    while let Some(state) = ready.pop() {
        let steps = before.get(state)? + own.get(state)?;
        (longest, done) = (longest.max(steps), done + 1);
        for to in follows.get(state)? {
            let (before, into) = (before.get_mut(*to)?, into.get_mut(*to)?);
            *before = steps.max(*before);
            *into -= 1;
            if *into == 0 {
                ready.push(*to);
            }
        }
    }
    // One step more, as for a state that is one too many.
    (done == own.len()).then_some(longest + 1)
}
