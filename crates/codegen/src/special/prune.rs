//! The residual of a program: what is left of it when the entries and the packet's flags are known.
//!
//! Variables that nothing writes keep their initial value, branches that it decides go, and so does what was reached by
//! them only; then assignments that nothing reads, keys that no entry has a condition on, and states of parsers that
//! fill nothing which is read. Numbers of everything stay, so tables, actions and counters are shared with the program.
//!
//! Where deparsing undoes parsing, headers behind the last that is read or written need neither: they leave as part of the
//! payload ([`Pruner::last_taken`]).
//!
//! Of two stages, the second one goes on where the first ends ([`super::chain`]). Both have the deparser of the second.

use std::collections::{BTreeMap, BTreeSet};

use pipeline::ir::{
    Action, ActionId, Applied, BlockId, Constant, HeaderId, HeaderRef, Item, LValue, Packet, Parser, Program,
    Send, Slot, Stage, StageId, Stmt, TableId, Via,
};

use super::Facts;
use super::fold::Known;
use super::uses::{Reads, changes, deparses, each, places, resizes};

/// Rounds in which what is read settles: each removes an assignment at least.
const ROUNDS: usize = 64;

/// A residual program.
pub(super) struct Residual {
    pub(super) program: Program,
    /// Actions that were defined at run time.
    pub(super) actions: BTreeMap<ActionId, Action>,
    pub(super) reads: Reads,
    /// Whether every packet leaves as it came.
    pub(super) is_unchanging: bool,
    /// Whether a packet's length is measured when it goes on to the second stage.
    pub(super) measures: bool,
    /// Tables that may be looked up.
    pub(super) tables: BTreeSet<TableId>,
}

/// Code that may be reached.
#[derive(Default)]
struct Reached {
    blocks: BTreeSet<BlockId>,
    actions: BTreeSet<ActionId>,
    tables: BTreeSet<TableId>,
    groups: bool,
    /// Whether packets enter a stage in passes of their own.
    stages: bool,
    /// Whether they enter the first one.
    returns: bool,
    /// Whether they are parsed again.
    parses: bool,
    /// Whether packets leave, or their bytes are made otherwise.
    leaves: bool,
    /// Whether the controller gets packets.
    controller: bool,
    /// Whether the length of headers and payload may change.
    resizes: bool,
    /// Whether bytes are counted.
    counts: bool,
}

pub(super) struct Pruner<'a> {
    pub(super) program: &'a Program,
    pub(super) facts: &'a Facts<'a>,
    pub(super) known: Known,
    reads: Reads,
    changed: bool,
    reached: Reached,
    /// What each stage reaches.
    stages: Vec<Reached>,
    /// Whether the parser may end behind the last header that is read or written.
    may_cut: bool,
    /// Headers that it reads itself on its way to what is read.
    on_the_way: Vec<bool>,
}

/// What statements, keys, sending and measuring read.
struct Needs {
    reads: Reads,
    /// Whether the packet is deparsed.
    deparsed: bool,
    /// Whether the headers that are not read are left to the payload.
    cut: bool,
}

impl<'a> Pruner<'a> {
    /// A pruner that has not settled yet. `alone`: no packet enters a stage in a pass of its own.
    fn new(program: &'a Program, facts: &'a Facts<'a>, alone: bool) -> Self {
        let value = |var: &pipeline::ir::Var| {
            let number = match var.slot {
                None => 0,
                Some(Slot::Flags) => facts.flags,
                Some(Slot::Instance | Slot::Replica) if alone => 0,
                Some(_) => return None,
            };
            let bits = pipeline::bits::Bits::from_u64(64, number).resize(var.ty.width());
            Some(Constant { ty: var.ty, value: bits })
        };
        let known = Known { vars: program.vars.iter().map(value).collect() };
        let (reads, reached) = (Reads::all(program), Reached::default());
        Self {
            program,
            facts,
            known,
            reads,
            changed: false,
            reached,
            stages: vec![],
            may_cut: true,
            on_the_way: vec![],
        }
    }

    /// Finds what is reached in a program.
    pub(super) fn of(program: &'a Program, facts: &'a Facts<'a>) -> Self {
        let mut pruner = Self::new(program, facts, true);
        pruner.settle();
        if pruner.reached.stages {
            pruner = Self::new(program, facts, false);
            pruner.settle();
        }
        pruner
    }

    fn action(&self, id: ActionId) -> Option<&'a Action> {
        self.program.actions.get(id.index()).or_else(|| self.facts.actions.get(&id).copied())
    }

    /// Finds the variables that keep their values, and the code that is reached then.
    fn settle(&mut self) {
        let program = self.program;
        loop {
            (self.changed, self.reached) = (false, Reached::default());
            for stage in &program.stages {
                self.walk_stage(stage);
                let parser = stage.parser.and_then(|id| program.parsers.get(id.index()));
                for state in parser.into_iter().flat_map(|parser| &parser.states) {
                    for op in &state.ops {
                        if let pipeline::ir::ParserOp::Do(stmt) = op {
                            self.walk(std::slice::from_ref(stmt));
                        }
                    }
                }
            }
            if !self.changed {
                break;
            }
        }
        for stage in &program.stages {
            let all = std::mem::take(&mut self.reached);
            self.walk_stage(stage);
            self.stages.push(std::mem::replace(&mut self.reached, all));
        }
    }

    fn walk_stage(&mut self, stage: &Stage) {
        for block in [Some(stage.control), stage.finish, stage.deparser].into_iter().flatten() {
            self.walk_block(block);
        }
    }

    /// Whether what is reached is what residuals are made of: stages that can be joined, without groups and
    /// profiles.
    pub(super) fn is_simple(&self) -> bool {
        let profile =
            |id: &TableId| self.program.tables.get(id.index()).is_some_and(|table| table.profile.is_some());
        let is_joined = match &self.stages[..] {
            [only] => !only.stages,
            // The first stage has the second's deparser, and the table that was looked up last is not known behind it.
            [first, second] => !first.leaves && !first.controller && !second.controller,
            _ => false,
        };
        is_joined && !self.reached.groups && !self.reached.tables.iter().any(profile)
    }

    /// Most steps of the passes of a packet, given those of parsing, of both stages, and of the second one.
    pub(super) fn steps(&self, passes: u32, parsing: u64, both: u64, second: u64) -> u64 {
        let first = parsing + both;
        let later = match &self.reached {
            Reached { stages: false, .. } => 0,
            Reached { returns: true, .. } => first,
            Reached { parses: true, .. } => parsing + second,
            _ => second,
        };
        first.saturating_add(later.saturating_mul(u64::from(passes).saturating_sub(1)))
    }

    /// Whether packets enter a stage in passes of their own.
    pub(super) fn sends_on(&self) -> bool {
        self.reached.stages
    }

    /// The deparser of packets that leave.
    fn deparser(program: &Program) -> Option<BlockId> {
        program.stages.last().and_then(|stage| stage.deparser)
    }

    fn walk_block(&mut self, id: BlockId) {
        if self.reached.blocks.insert(id)
            && let Some((_, body)) = self.program.blocks.get(id.index())
        {
            self.walk(body);
        }
    }

    fn walk_action(&mut self, id: ActionId) {
        if self.reached.actions.insert(id)
            && let Some(action) = self.action(id)
        {
            self.walk(&action.body);
        }
    }

    fn walk(&mut self, body: &'a [Stmt]) {
        for stmt in body {
            match stmt {
                Stmt::If(condition, yes, no) => {
                    let holds = self.known.holds(condition);
                    if holds != Some(false) {
                        self.walk(yes);
                    }
                    if holds != Some(true) {
                        self.walk(no);
                    }
                }
                Stmt::Switch(value, cases, default) => match self.known.value(value) {
                    Some(value) => self.walk(chosen(&value, cases, default)),
                    None => {
                        cases.iter().for_each(|(_, body)| self.walk(body));
                        self.walk(default);
                    }
                },
                Stmt::Atomic(body) => self.walk(body),
                Stmt::Set(place, value) => {
                    let value = self.known.value(value);
                    self.write(place, value);
                }
                Stmt::Apply(id, applied) => self.walk_table(*id, applied),
                Stmt::Do(action, _) => self.walk_action(*action),
                Stmt::Call(block) | Stmt::Goto(block) => self.walk_block(*block),
                Stmt::Group(..) => self.reached.groups = true,
                Stmt::Send(send) => match send.via {
                    Via::Direct => self.reached.leaves = true,
                    // With two stages, the packet goes on.
                    Via::Next => self.reached.leaves |= self.program.stages.len() == 1,
                    Via::Stage(stage) => {
                        let is_back = stage == StageId(0);
                        self.reached.stages = true;
                        self.reached.returns |= is_back;
                        self.reached.parses |= send.packet == Packet::Original;
                        self.reached.leaves |= is_back && send.packet == Packet::Current;
                    }
                },
                Stmt::Controller(..) => self.reached.controller = true,
                _ => {
                    self.reached.counts |=
                        matches!(stmt, Stmt::Count(..) | Stmt::Meter(..) | Stmt::MeterEntry(..));
                    self.reached.resizes |= resizes(stmt);
                    places(stmt).into_iter().for_each(|place| self.write(place, None));
                }
            }
        }
    }

    fn walk_table(&mut self, id: TableId, applied: &'a Applied) {
        self.reached.tables.insert(id);
        let facts = self.facts;
        for action in facts.tables.get(id.index()).into_iter().flat_map(super::TableFacts::all) {
            self.walk_action(action);
        }
        let bodies = applied.actions.iter().map(|(_, body)| body);
        bodies.chain([&applied.hit, &applied.miss, &applied.other]).for_each(|body| self.walk(body));
    }

    fn write(&mut self, place: &LValue, value: Option<Constant>) {
        let (mut of, mut whole) = (place, true);
        while let LValue::Slice(inner, ..) = of {
            (of, whole) = (inner, false);
        }
        let LValue::Var(id) = of else { return };
        let Some(slot) = self.known.vars.get_mut(id.index()) else { return };
        let Some(known) = slot else { return };
        let same = value.is_some_and(|value| {
            if whole { value.value == known.value } else { value.value.is_zero() && known.value.is_zero() }
        });
        if !same {
            *slot = None;
            self.changed = true;
        }
    }

    /// Makes the residual, if the program is of a kind that has one.
    /// `identity` says whether deparsing undoes parsing.
    pub(super) fn residual(&mut self, identity: bool) -> Option<Residual> {
        let stage = self.program.stages.first()?;
        let parser = stage.parser.and_then(|id| self.program.parsers.get(id.index()));
        for _ in 0..ROUNDS {
            let mut residual = self.make();
            let Needs { reads: needs, deparsed: is_deparsed, cut } = self.needs(&mut residual, identity);
            let prune = |parser| super::parse::prune(self.program, &self.known, parser, needs.clone(), cut);
            let Some(parsed) = parser.map(prune).map_or(Some(None), |parsed| parsed.map(Some)) else {
                self.may_cut = false;
                continue;
            };
            let reads = parsed.as_ref().map_or_else(|| needs.clone(), |(_, reads)| reads.clone());
            if cut && reads.headers != needs.headers {
                // They must be emitted, too.
                self.on_the_way = reads.headers;
                continue;
            }
            if reads != self.reads {
                self.reads = reads;
                continue;
            }
            residual.reads = reads;
            if let (Some(id), Some((parser, _))) = (stage.parser, parsed) {
                let is_used = !parser.states.is_empty();
                for (i, old) in residual.program.parsers.iter_mut().enumerate() {
                    *old = if i == id.index() && is_used { parser.clone() } else { nothing() };
                }
                if !is_used {
                    residual.program.stages.iter_mut().for_each(|stage| stage.parser = None);
                }
            }
            residual.is_unchanging = identity && !is_deparsed;
            if residual.is_unchanging {
                for stage in &mut residual.program.stages {
                    let deparser = stage.deparser.take();
                    let block = deparser.and_then(|id| residual.program.blocks.get_mut(id.index()));
                    block.into_iter().for_each(|(_, body)| body.clear());
                }
            }
            return Some(residual);
        }
        None
    }

    /// The place in the deparser of the last header that is read or written, if those behind it may be left to the
    /// payload: the deparser emits all headers in the order in which they came, no statement changes what is behind them, and
    /// packets make one pass.
    fn last_taken(
        &self,
        reads: &Reads,
        statements: &[&Stmt],
        deparser: &[Stmt],
    ) -> Option<(usize, Vec<Option<usize>>)> {
        let order = super::identity::order(self.program, Some(deparser))?;
        if !self.may_cut || reads.payload || self.reached.stages {
            return None;
        }
        let mut taken = reads.clone();
        taken.headers.iter_mut().zip(&self.on_the_way).for_each(|(taken, on_the_way)| *taken |= on_the_way);
        for stmt in statements.iter().filter(|stmt| changes(stmt)) {
            // These change bytes behind the headers, or read all of them.
            if matches!(stmt, Stmt::Truncate(_) | Stmt::Insert(_) | Stmt::Remove(_) | Stmt::Reparse) {
                return None;
            }
            super::parse::written(self.program, stmt, &mut taken);
        }
        let ranks = order.iter().enumerate().filter(|(i, _)| taken.header(HeaderId::at(*i)));
        let last = ranks.filter_map(|(_, rank)| *rank).max()?;
        Some((last, order))
    }

    /// What the statements, keys and, if something changes the packet, sending or measuring it read.
    fn needs(&self, residual: &mut Residual, identity: bool) -> Needs {
        let program = &residual.program;
        let mut reads = Reads::none(program);
        let (mut changed, mut deparsed) = (false, false);
        let mut statements = Vec::new();
        let deparser = Self::deparser(program);
        let blocks = program.blocks.iter().enumerate();
        let blocks = blocks.filter(|(i, _)| Some(BlockId::at(*i)) != deparser).map(|(_, (_, body))| body);
        let actions = program.actions.iter().chain(residual.actions.values()).map(|action| &action.body);
        for body in blocks.chain(actions) {
            reads.body(program, body);
            each(body, &mut |stmt| {
                changed |= changes(stmt);
                deparsed |= deparses(stmt);
                statements.push(stmt);
            });
        }
        for table in &program.tables {
            table.keys.iter().for_each(|key| reads.expr(program, &key.value));
        }
        let deparsed = deparsed && (changed || !identity);
        let mut cut = None;
        if deparsed {
            let body = deparser.and_then(|id| program.blocks.get(id.index()));
            let body = body.map_or(&[][..], |(_, body)| body);
            let taken = identity.then(|| self.last_taken(&reads, &statements, body)).flatten();
            if let Some((last, order)) = taken {
                let emitted = order.iter().enumerate().filter(|(_, rank)| rank.is_some_and(|at| at <= last));
                emitted.for_each(|(i, _)| reads.add_header(program, &HeaderRef::Header(HeaderId::at(i))));
                reads.payload = true;
                cut = Some(last + 1);
            } else {
                reads.add_packet();
                reads.body(program, body);
                each(body, &mut |stmt| statements.push(stmt));
            }
        }
        if let [first, second] = &self.stages[..] {
            let is_length = |(i, var): (usize, &pipeline::ir::Var)| {
                var.slot == Some(Slot::PacketLength) && reads.var(pipeline::ir::VarId::at(i))
            };
            let is_read =
                second.counts || !second.tables.is_empty() || program.vars.iter().enumerate().any(is_length);
            let resizes = first.resizes || self.reached.stages && second.resizes;
            residual.measures = is_read && (resizes || !identity);
            if residual.measures {
                // All headers are measured: those that are left to the payload have no room of their own.
                reads.add_packet();
                cut = None;
            }
        }
        // These stay for what else they do, and need room for their results.
        let stays = |stmt: &&&Stmt| {
            matches!(stmt, Stmt::Random(..) | Stmt::Meter(..) | Stmt::MeterEntry(..) | Stmt::Extern(..))
        };
        statements.iter().filter(stays).for_each(|stmt| super::parse::written(program, stmt, &mut reads));
        if let Some(emitted) = cut {
            let block = deparser.and_then(|id| residual.program.blocks.get_mut(id.index()));
            block.into_iter().for_each(|(_, body)| body.truncate(emitted));
        }
        Needs { reads, deparsed, cut: cut.is_some() }
    }

    /// The program with what is known and read so far.
    fn make(&self) -> Residual {
        let mut program = self.program.clone();
        for (i, (_, body)) in program.blocks.iter_mut().enumerate() {
            *body = match self.reached.blocks.contains(&BlockId::at(i)) {
                true => self.body(body),
                false => vec![],
            };
        }
        for (i, action) in program.actions.iter_mut().enumerate() {
            let reached = self.reached.actions.contains(&ActionId::at(i));
            action.body = if reached { self.body(&action.body) } else { vec![] };
        }
        let defined = self.reached.actions.iter().filter_map(|id| {
            let action = self.facts.actions.get(id)?;
            Some((*id, Action { body: self.body(&action.body), ..(*action).clone() }))
        });
        let actions = defined.collect();
        for (i, table) in program.tables.iter_mut().enumerate() {
            let used = self.facts.tables.get(i).filter(|_| self.reached.tables.contains(&TableId::at(i)));
            let mut used = used.map(|table| table.keys.clone()).unwrap_or_default().into_iter();
            table.keys.retain(|_| used.next().unwrap_or(false));
            table.keys.iter_mut().for_each(|key| key.value = self.known.fold(&key.value));
            table.entries = vec![];
        }
        program.groups.iter_mut().for_each(|group| group.select.input = vec![]);
        program
            .profiles
            .iter_mut()
            .flat_map(|profile| &mut profile.select)
            .for_each(|select| select.input = vec![]);
        for stage in &mut program.stages {
            let is_empty =
                |id: &BlockId| program.blocks.get(id.index()).is_none_or(|(_, body)| body.is_empty());
            stage.finish = stage.finish.filter(|id| !is_empty(id));
        }
        let (reads, tables) = (self.reads.clone(), self.reached.tables.clone());
        Residual { program, actions, reads, is_unchanging: false, measures: false, tables }
    }

    /// Whether an assignment to a place is never seen.
    fn is_dead(&self, place: &LValue) -> bool {
        match place {
            LValue::Var(id) => {
                !self.reads.var(*id) || self.known.vars.get(id.index()).is_some_and(Option::is_some)
            }
            LValue::Field(header, _) => self.is_unread(header),
            LValue::Slice(of, ..) => self.is_dead(of),
        }
    }

    fn is_unread(&self, header: &HeaderRef) -> bool {
        let first = match header {
            HeaderRef::Header(id) => Some(*id),
            HeaderRef::Element(stack, _) | HeaderRef::Next(stack) | HeaderRef::Last(stack) => {
                self.program.stacks.get(stack.index()).map(|stack| stack.first)
            }
        };
        first.is_some_and(|id| !self.reads.header(id))
    }

    fn is_unread_stack(&self, id: pipeline::ir::StackId) -> bool {
        self.is_unread(&HeaderRef::Next(id))
    }

    fn body(&self, body: &[Stmt]) -> Vec<Stmt> {
        let mut pruned = Vec::new();
        for stmt in body {
            self.stmt(stmt, &mut pruned);
        }
        pruned
    }

    fn items(&self, items: &[Item]) -> Vec<Item> {
        // Fields stay fields: a variable one is taken at its current length.
        let item = |item: &Item| match item {
            Item::Value(value) => Item::Value(self.known.fold(value)),
            Item::Payload => Item::Payload,
        };
        items.iter().map(item).collect()
    }

    fn place(&self, place: &LValue) -> LValue {
        match place {
            LValue::Var(id) => LValue::Var(*id),
            LValue::Field(header, field) => LValue::Field(self.known.header(header), *field),
            LValue::Slice(of, hi, lo) => LValue::Slice(Box::new(self.place(of)), *hi, *lo),
        }
    }

    fn stmt(&self, stmt: &Stmt, to: &mut Vec<Stmt>) {
        let fold = |expr: &pipeline::ir::Expr| self.known.fold(expr);
        let option = |expr: &Option<pipeline::ir::Expr>| expr.as_ref().map(|expr| self.known.fold(expr));
        let new = match stmt {
            Stmt::If(condition, yes, no) => match self.known.holds(condition) {
                Some(true) => return to.extend(self.body(yes)),
                Some(false) => return to.extend(self.body(no)),
                None => match (self.body(yes), self.body(no)) {
                    (yes, no) if yes.is_empty() && no.is_empty() => return,
                    (yes, no) => Stmt::If(fold(condition), yes, no),
                },
            },
            Stmt::Switch(value, cases, default) => match self.known.value(value) {
                Some(value) => return to.extend(self.body(chosen(&value, cases, default))),
                None => {
                    let cases =
                        cases.iter().map(|(values, body)| (values.clone(), self.body(body))).collect();
                    Stmt::Switch(fold(value), cases, self.body(default))
                }
            },
            Stmt::Set(place, _)
            | Stmt::Hash(place, ..)
            | Stmt::UpdateChecksum(place, ..)
            | Stmt::RegisterRead(place, ..)
                if self.is_dead(place) =>
            {
                return;
            }
            Stmt::Set(place, value) => Stmt::Set(self.place(place), fold(value)),
            Stmt::Hash(place, kind, items) => Stmt::Hash(self.place(place), *kind, self.items(items)),
            Stmt::UpdateChecksum(place, old, new) => {
                Stmt::UpdateChecksum(self.place(place), self.items(old), self.items(new))
            }
            Stmt::RegisterRead(place, id, index) => Stmt::RegisterRead(self.place(place), *id, fold(index)),
            Stmt::CopyHeader(header, _) | Stmt::SetValid(header) | Stmt::SetInvalid(header)
                if self.is_unread(header) =>
            {
                return;
            }
            Stmt::Push(stack, _) | Stmt::Pop(stack, _) if self.is_unread_stack(*stack) => return,
            Stmt::Atomic(body) => Stmt::Atomic(self.body(body)),
            Stmt::Send(send) => Stmt::Send(Box::new(Send {
                to: match &send.to {
                    pipeline::ir::Dest::Port(to) => pipeline::ir::Dest::Port(fold(to)),
                    to => to.clone(),
                },
                class: option(&send.class),
                queue: option(&send.queue),
                limit: option(&send.limit),
                ..(**send).clone()
            })),
            Stmt::Controller(reason, limit, items) => {
                Stmt::Controller(fold(reason), option(limit), self.items(items))
            }
            Stmt::Apply(id, applied) => {
                let applied = Applied {
                    hit: self.body(&applied.hit),
                    miss: self.body(&applied.miss),
                    actions: applied.actions.iter().map(|(id, body)| (*id, self.body(body))).collect(),
                    other: self.body(&applied.other),
                };
                Stmt::Apply(*id, Box::new(applied))
            }
            Stmt::Do(id, args) => Stmt::Do(*id, args.iter().map(fold).collect()),
            other => other.clone(),
        };
        to.push(new);
    }
}

/// The branch that a value chooses.
fn chosen<'s>(value: &Constant, cases: &'s [(Vec<Constant>, Vec<Stmt>)], default: &'s [Stmt]) -> &'s [Stmt] {
    let case = cases.iter().find(|(constants, _)| constants.contains(value));
    case.map_or(default, |(_, body)| body)
}

/// A parser that accepts at once.
fn nothing() -> Parser {
    let next = pipeline::ir::Transition::To(pipeline::ir::Target::Accept);
    let start = pipeline::ir::ParserState { name: "start".to_owned(), ops: vec![], next };
    Parser { name: "nothing".to_owned(), states: vec![start] }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::HashMap;

    use super::*;

    /// Operations of each state of the parser and headers that are emitted, in the residual of a program whose control
    /// does this, and whose last state of the parser begins with that.
    fn residual(vars: &str, control: &str, last: &str) -> (Vec<usize>, usize) {
        let source = format!(
            "program p {{
              header link_t {{ kind: bit<8>; }} instance link: link_t;
              header net_t {{ life: bit<8>; kind: bit<8>; }} instance net: net_t;
              header port_t {{ from: bit<8>; to: bit<8>; }} instance port: port_t;
              {vars}
              parser in {{
                state start {{ extract link; select (link.kind) {{ (8w1): state net; (_): accept; }} }}
                state net {{ extract net; select (net.kind) {{ (8w6): state port; (_): accept; }} }}
                state port {{ {last} extract port; goto accept; }}
              }}
              block control {{ {control} send current port 8w2; }}
              block out {{ emit link; emit net; emit port; }}
              stage s {{ parser in; control control; deparser out; }}
            }}"
        );
        let program = pipeline::text::parse(&source).unwrap();
        let facts = Facts { flags: 0, tables: vec![], actions: HashMap::new() };
        let parser = &program.parsers[0];
        let deparser = Pruner::deparser(&program).unwrap();
        let identity =
            crate::special::is_identity(&program, parser, Some(&program.blocks[deparser.index()].1));
        let residual = Pruner::of(&program, &facts).residual(identity).unwrap();
        let ops = residual.program.parsers[0].states.iter().map(|state| state.ops.len()).collect();
        (ops, residual.program.blocks[deparser.index()].1.len())
    }

    #[test]
    fn headers_behind_the_last_that_is_read_or_written_stay_in_the_payload() {
        let (life, var) = ("net.life = (net.life - 8w1);", "var tail: bit<8>;");
        assert_eq!(residual("", life, ""), (vec![1, 1, 0], 2));
        assert_eq!(residual("", "link.kind = 8w9;", ""), (vec![1, 0, 0], 1));
        // What is read there is needed, and what is in front of it.
        assert_eq!(residual("", "link.kind = port.to;", ""), (vec![1, 1, 1], 3));
        assert_eq!(residual("", "port.to = 8w9;", ""), (vec![1, 1, 1], 3));
        // The parser goes on for something else than a header.
        assert_eq!(residual(var, "link.kind = tail;", "tail = 8w1;"), (vec![1, 1, 1], 2));
        // Headers come or go.
        assert_eq!(residual("", "invalid link;", ""), (vec![1, 0, 0], 1));
        assert_eq!(residual("", "valid net;", ""), (vec![1, 1, 0], 2));
        // Bytes behind them do.
        for change in ["insert { 8w1 };", "remove 32w1;", "truncate 32w3;"] {
            assert_eq!(residual("", change, ""), (vec![1, 1, 1], 3), "{change}");
        }
    }
}
