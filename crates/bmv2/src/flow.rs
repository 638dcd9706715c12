//! The graph of tables and conditions of a pipeline becomes statements.
//!
//! A graph that comes from structured code becomes structured again: what follows all branches of a node, its
//! immediate post-dominator, stands behind them. Another graph, or one whose branches nest too deeply, becomes
//! blocks, one for each node, that end in the next. Cycles are refused.

use std::collections::{HashMap, HashSet};

use pipeline::ir::{self, BlockId, Stmt};

use crate::Lower;
use crate::document::{ActionCall, Conditional, Pipeline, Table};
use crate::refusal::{At, Refusal, Result};
use crate::storage::printable;

/// Deepest nesting of branches in structured code.
const DEEPEST: usize = 24;

#[derive(Debug, Clone, Copy)]
enum Kind<'d> {
    Table(&'d Table),
    Conditional(&'d Conditional),
    Call(&'d ActionCall),
}

/// A pipeline's graph. The last node is the end.
struct Graph<'d> {
    kinds: Vec<Kind<'d>>,
    /// The nodes that each leads to, each once.
    next: Vec<Vec<usize>>,
    names: HashMap<&'d str, usize>,
    start: usize,
    end: usize,
    /// Where all branches of a node meet.
    meets: Vec<usize>,
}

impl<'d> Graph<'d> {
    fn new(pipeline: &'d Pipeline) -> Result<Self> {
        let tables = pipeline.tables.iter().map(|table| (table.name.as_str(), Kind::Table(table)));
        let conditionals = pipeline.conditionals.iter().map(|c| (c.name.as_str(), Kind::Conditional(c)));
        let calls = pipeline.action_calls.iter().map(|call| (call.name.as_str(), Kind::Call(call)));
        let (mut kinds, mut names) = (Vec::new(), HashMap::new());
        for (name, kind) in tables.chain(conditionals).chain(calls) {
            if names.insert(name, kinds.len()).is_some() {
                return Err(Refusal::of(format!("two tables or conditionals are called {name}")));
            }
            kinds.push(kind);
        }
        let end = kinds.len();
        let mut graph = Self { kinds, next: Vec::new(), names, start: end, end, meets: Vec::new() };
        graph.start = graph.target(pipeline.init_table.as_deref()).at("init_table")?;
        for kind in graph.kinds.clone() {
            let targets = match kind {
                Kind::Conditional(c) => vec![c.true_next.as_deref(), c.false_next.as_deref()],
                Kind::Call(call) => vec![call.next_node.as_deref()],
                Kind::Table(table) => {
                    let listed = table.next_tables.values().map(Option::as_deref);
                    listed.chain([table.base_default_next.as_deref()]).collect()
                }
            };
            let next: Result<HashSet<usize>> = targets.into_iter().map(|name| graph.target(name)).collect();
            let mut next: Vec<usize> = next.within(|| kind.place())?.into_iter().collect();
            next.sort_unstable();
            graph.next.push(next);
        }
        graph.meets = graph.meeting_points()?;
        Ok(graph)
    }

    fn target(&self, name: Option<&str>) -> Result<usize> {
        match name {
            None => Ok(self.end),
            Some(name) => {
                self.names.get(name).copied().ok_or_else(|| Refusal::unknown("table or conditional", name))
            }
        }
    }

    /// Nodes such that each stands behind those that it leads to.
    fn backwards(&self) -> Result<Vec<usize>> {
        let mut order = Vec::new();
        // 0: not seen, 1: on the way, 2: done.
        let mut state = vec![0u8; self.end];
        let mut way = Vec::new();
        if self.start != self.end {
            way.push((self.start, 0));
        }
        while let Some((node, at)) = way.last_mut() {
            let node = *node;
            if let Some(mark) = state.get_mut(node) {
                *mark = 1;
            }
            match self.next.get(node).and_then(|next| next.get(*at)).copied() {
                Some(next) => {
                    *at += 1;
                    match state.get(next) {
                        Some(0) => way.push((next, 0)),
                        Some(1) => {
                            let name = self.kinds.get(next).map_or_else(String::new, |kind| kind.place());
                            return Err(Refusal::of(format!("{name} is in a cycle")));
                        }
                        _ => {}
                    }
                }
                None => {
                    if let Some(mark) = state.get_mut(node) {
                        *mark = 2;
                    }
                    order.push(node);
                    way.pop();
                }
            }
        }
        Ok(order)
    }

    /// Immediate post-dominators, of the nodes that can be reached.
    fn meeting_points(&self) -> Result<Vec<usize>> {
        let order = self.backwards()?;
        let mut meets = vec![self.end; self.end + 1];
        let mut depth = vec![0usize; self.end + 1];
        for node in order {
            let mut next = self.next.get(node).into_iter().flatten().copied();
            let mut meet = next.next().unwrap_or(self.end);
            let up = |at: usize| meets.get(at).copied().unwrap_or(self.end);
            let deep = |at: usize| depth.get(at).copied().unwrap_or(0);
            for mut other in next {
                while meet != other {
                    if deep(meet) >= deep(other) { meet = up(meet) } else { other = up(other) }
                }
            }
            let below = deep(meet) + 1;
            if let (Some(place), Some(level)) = (meets.get_mut(node), depth.get_mut(node)) {
                (*place, *level) = (meet, below);
            }
        }
        Ok(meets)
    }
}

impl Kind<'_> {
    fn place(&self) -> String {
        match self {
            Kind::Table(table) => format!("table {}", table.name),
            Kind::Conditional(conditional) => format!("conditional {}", conditional.name),
            Kind::Call(call) => format!("action call {}", call.name),
        }
    }
}

/// How what follows a node is written.
enum Form {
    /// In place, each node once.
    Structured(HashSet<usize>),
    /// As a jump to its block.
    Blocks(Vec<BlockId>),
}

impl<'d> Lower<'d> {
    /// Lowers a pipeline's graph.
    pub(crate) fn flow(&mut self, pipeline: &'d Pipeline) -> Result<Vec<Stmt>> {
        let graph = Graph::new(pipeline)?;
        let before = self.work;
        let mut form = Form::Structured(HashSet::new());
        let structured =
            self.block(|lower| match lower.nodes(&graph, graph.start, graph.end, &mut form, 0)? {
                true => Ok(()),
                false => Err(Refusal::of(UNSTRUCTURED)),
            });
        match structured {
            Err(refusal) if refusal == Refusal::of(UNSTRUCTURED) => {
                self.work = before;
                self.blocks(&graph, &pipeline.name)
            }
            other => other,
        }
    }

    /// Lowers nodes in place, from one up to another. Returns whether that was possible.
    fn nodes(
        &mut self,
        graph: &Graph<'d>,
        from: usize,
        to: usize,
        form: &mut Form,
        depth: usize,
    ) -> Result<bool> {
        let mut at = from;
        while at != to && at != graph.end {
            let Form::Structured(seen) = form else { return Ok(false) };
            if !seen.insert(at) || depth > DEEPEST {
                return Ok(false);
            }
            let meet = graph.meets.get(at).copied().unwrap_or(graph.end);
            if !self.node(graph, at, meet, form, depth)? {
                return Ok(false);
            }
            at = meet;
        }
        Ok(at == to || to == graph.end)
    }

    /// Each node as a block of its own.
    fn blocks(&mut self, graph: &Graph<'d>, pipeline: &str) -> Result<Vec<Stmt>> {
        let mut blocks = Vec::new();
        for (i, _) in graph.kinds.iter().enumerate() {
            self.take(1)?;
            blocks.push(self.out.declare_block(&printable(&format!("{pipeline} node {i}"))));
        }
        let mut form = Form::Blocks(blocks.clone());
        for (at, block) in blocks.iter().enumerate() {
            let code = self.block(|lower| lower.node(graph, at, graph.end, &mut form, 0).map(|_| ()))?;
            self.out.define_block(*block, code);
        }
        Ok(blocks.get(graph.start).map(|block| Stmt::Goto(*block)).into_iter().collect())
    }

    /// What follows a branch, up to where all branches meet.
    fn following(
        &mut self,
        graph: &Graph<'d>,
        next: Option<&str>,
        meet: usize,
        form: &mut Form,
        depth: usize,
    ) -> Result<Option<Vec<Stmt>>> {
        let target = graph.target(next)?;
        if let Form::Blocks(blocks) = form {
            self.take(1)?;
            return Ok(Some(blocks.get(target).map(|block| Stmt::Goto(*block)).into_iter().collect()));
        }
        let mut possible = true;
        let code = self.block(|lower| {
            possible = lower.nodes(graph, target, meet, form, depth + 1)?;
            Ok(())
        })?;
        Ok(possible.then_some(code))
    }

    /// Lowers one node with its branches.
    fn node(
        &mut self,
        graph: &Graph<'d>,
        at: usize,
        meet: usize,
        form: &mut Form,
        depth: usize,
    ) -> Result<bool> {
        let Some(kind) = graph.kinds.get(at).copied() else { return Ok(true) };
        match kind {
            Kind::Conditional(conditional) => {
                let condition = self.condition(&conditional.expression).within(|| kind.place())?;
                let yes = self.following(graph, conditional.true_next.as_deref(), meet, form, depth)?;
                let no = self.following(graph, conditional.false_next.as_deref(), meet, form, depth)?;
                let (Some(yes), Some(no)) = (yes, no) else { return Ok(false) };
                self.emit(Stmt::If(condition, yes, no))?;
            }
            Kind::Call(call) => {
                let action = self.action(call.action_id).within(|| kind.place())?;
                if !action.runtime_data.is_empty() {
                    return Err(Refusal::unsupported("a call with parameters is")).within(|| kind.place());
                }
                self.primitives(&action.primitives).within(|| kind.place())?;
                return self.then(graph, call.next_node.as_deref(), meet, form, depth);
            }
            Kind::Table(table) if self.is_hidden(table) => {
                let action = self.hidden_action(table).within(|| kind.place())?;
                self.primitives(&action.primitives).within(|| format!("action {}", action.name))?;
                let next = table.next_tables.get("__MISS__").or_else(|| table.next_tables.get(&action.name));
                let next = next.map_or(table.base_default_next.as_deref(), Option::as_deref);
                return self.then(graph, next, meet, form, depth);
            }
            Kind::Table(table) => return self.applied(graph, table, meet, form, depth),
        }
        Ok(true)
    }

    /// Appends what follows a node without branches.
    fn then(
        &mut self,
        graph: &Graph<'d>,
        next: Option<&str>,
        meet: usize,
        form: &mut Form,
        depth: usize,
    ) -> Result<bool> {
        let Some(code) = self.following(graph, next, meet, form, depth)? else { return Ok(false) };
        self.code.extend(code);
        Ok(true)
    }

    /// Lowers a table with what follows a hit, a miss or its actions.
    fn applied(
        &mut self,
        graph: &Graph<'d>,
        table: &'d Table,
        meet: usize,
        form: &mut Form,
        depth: usize,
    ) -> Result<bool> {
        let lowered = self.tables.get(table.name.as_str()).cloned();
        let lowered = lowered.ok_or_else(|| Refusal::unknown("table", &table.name))?;
        let (hit, miss) = (table.next_tables.get("__HIT__"), table.next_tables.get("__MISS__"));
        let base = table.base_default_next.as_deref();
        let mut applied = ir::Applied::default();
        if hit.is_some() || miss.is_some() {
            let hit = hit.map_or(base, Option::as_deref);
            let miss = miss.map_or(base, Option::as_deref);
            if hit == miss {
                self.emit(Stmt::Apply(lowered.id, Box::new(applied)))?;
                return self.then(graph, hit, meet, form, depth);
            }
            let hit = self.following(graph, hit, meet, form, depth)?;
            let miss = self.following(graph, miss, meet, form, depth)?;
            let (Some(hit), Some(miss)) = (hit, miss) else { return Ok(false) };
            (applied.hit, applied.miss) = (hit, miss);
        } else {
            let next = |name: &str| table.next_tables.get(name).map_or(base, Option::as_deref);
            let others = lowered.actions.iter().filter(|(name, _)| next(name) != base);
            // Several actions may lead to one node: it is lowered once, and copied for the others.
            let mut known: HashMap<Option<&str>, (Vec<Stmt>, usize)> = HashMap::new();
            for (name, action) in others {
                let target = next(name);
                if let Some((code, size)) = known.get(&target) {
                    self.take(*size)?;
                    applied.actions.push((*action, code.clone()));
                    continue;
                }
                let before = self.work;
                let Some(code) = self.following(graph, target, meet, form, depth)? else { return Ok(false) };
                applied.actions.push((*action, code.clone()));
                known.insert(target, (code, self.work - before));
            }
            if applied.actions.is_empty() {
                self.emit(Stmt::Apply(lowered.id, Box::new(applied)))?;
                return self.then(graph, base, meet, form, depth);
            }
            let Some(other) = self.following(graph, base, meet, form, depth)? else { return Ok(false) };
            applied.other = other;
        }
        self.emit(Stmt::Apply(lowered.id, Box::new(applied)))?;
        Ok(true)
    }
}

/// What a pipeline is refused with in structured form; it is written in blocks then.
const UNSTRUCTURED: &str = "not structured";
