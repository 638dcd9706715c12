//! Statements that branch, and blocks and actions around them.

use super::pass::Pass;
use super::{Dropped, Event, Flow, Limit, Machine};
use crate::ir::{ActionId, BlockId, Constant, Stmt};

impl Machine<'_> {
    /// Runs a block, and those that take its place.
    pub(super) fn block(&mut self, mut block: BlockId, pass: &mut Pass) -> Flow {
        loop {
            if let Some(reason) = self.step() {
                return Flow::Drop(reason);
            }
            self.event(|| Event::Block(block));
            if self.ends_pause(block, pass) {
                return Flow::Next;
            }
            let program = self.program;
            let Some((_, body)) = program.blocks.get(block.index()) else { return Flow::Next };
            match self.body(body, pass, &[]) {
                Flow::Next | Flow::Return => return Flow::Next,
                Flow::Goto(next) => block = next,
                end => return end,
            }
        }
    }

    /// Runs an action. A `goto` in it ends the block around it.
    pub(super) fn action(&mut self, id: ActionId, args: &[Constant], pass: &mut Pass) -> Flow {
        let state = self.state;
        let Some(action) = state.action(id) else { return Flow::Next };
        self.event(|| Event::Action(id, args.to_vec()));
        match self.body(&action.body, pass, args) {
            Flow::Return => Flow::Next,
            flow => flow,
        }
    }

    /// Runs statements, one level deeper.
    pub(super) fn body(&mut self, body: &[Stmt], pass: &mut Pass, params: &[Constant]) -> Flow {
        if self.depth >= self.limits.depth {
            return Flow::Drop(Dropped::Limit(Limit::Depth));
        }
        self.depth += 1;
        let mut flow = Flow::Next;
        for stmt in body {
            if let Some(reason) = self.steps(stmt.steps()) {
                flow = Flow::Drop(reason);
                break;
            }
            flow = self.stmt(stmt, pass, params);
            if flow != Flow::Next {
                break;
            }
        }
        self.depth -= 1;
        flow
    }

    /// Frames of this function nest as deep as statements do, so it leaves all work to others.
    pub(super) fn stmt(&mut self, stmt: &Stmt, pass: &mut Pass, params: &[Constant]) -> Flow {
        match stmt {
            Stmt::If(condition, yes, no) => {
                let taken = if self.holds(condition, pass, params) { yes } else { no };
                self.body(taken, pass, params)
            }
            Stmt::Switch(value, cases, default) => {
                let value = self.eval(value, pass, params);
                let case = cases.iter().find(|(constants, _)| constants.contains(&value));
                self.body(case.map_or(default, |(_, body)| body), pass, params)
            }
            Stmt::Atomic(body) => {
                self.guard = Some(self.state.arrays().lock());
                let flow = self.body(body, pass, params);
                self.guard = None;
                flow
            }
            Stmt::Apply(table, applied) => self.apply(*table, applied, pass),
            Stmt::Do(action, args) => {
                let args: Vec<_> = args.iter().map(|arg| self.eval(arg, pass, params)).collect();
                self.action(*action, &args, pass)
            }
            Stmt::Call(block) => self.block(*block, pass),
            Stmt::Goto(block) => Flow::Goto(*block),
            Stmt::Return => Flow::Return,
            Stmt::Exit => Flow::Exit,
            Stmt::Drop(reason) => Flow::Drop(Dropped::Reason(*reason)),
            Stmt::Group(table, id) => {
                let id = self.number(id, pass, params);
                self.group(*table, id, pass)
            }
            Stmt::Reparse => self.reparse(pass),
            Stmt::Send(send) => self.send(send, pass, params),
            Stmt::Controller(reason, limit, data) => {
                self.send_to_controller(reason, limit, data, pass, params)
            }
            _ => self.compute(stmt, pass, params),
        }
    }
}
