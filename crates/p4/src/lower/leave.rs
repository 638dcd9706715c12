//! `return`, `break` and `continue` without jumps.
//!
//! Inlined statements have nowhere to jump to. What follows an `if` of which one branch always leaves moves into the
//! other one. Where that does not help, leaving sets a flag, and what follows runs only while the flag is not set.

use pipeline::ir::{self, LValue};

use super::Lower;
use super::calls::FrameKind;
use crate::hir::{Stmt, StmtKind};

/// Deepest nesting in which what follows a branch still moves into the other one.
const DEEPEST: usize = 16;

/// Ways to leave a list of statements, other than at its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Leaves {
    returns: bool,
    breaks: bool,
    continues: bool,
}

impl Leaves {
    fn any(self) -> bool {
        self.returns || self.breaks || self.continues
    }

    fn or(self, other: Self) -> Self {
        Self {
            returns: self.returns || other.returns,
            breaks: self.breaks || other.breaks,
            continues: self.continues || other.continues,
        }
    }

    /// Whether a frame of this kind is what is left.
    pub(super) fn leaves(self, kind: FrameKind) -> bool {
        match kind {
            FrameKind::Body => self.returns,
            FrameKind::Loop => self.breaks,
            FrameKind::Round => self.continues,
        }
    }
}

/// Returns the ways to leave a list of statements.
pub(super) fn leaves(list: &[Stmt]) -> Leaves {
    list.iter().map(leaves_of).fold(Leaves::default(), Leaves::or)
}

fn leaves_of(stmt: &Stmt) -> Leaves {
    let of_loop = |body: &[Stmt]| Leaves { returns: leaves(body).returns, ..Leaves::default() };
    match &stmt.kind {
        StmtKind::Return(_) => Leaves { returns: true, ..Leaves::default() },
        StmtKind::Break => Leaves { breaks: true, ..Leaves::default() },
        StmtKind::Continue => Leaves { continues: true, ..Leaves::default() },
        StmtKind::If(_, yes, no) => leaves(yes).or(leaves(no)),
        StmtKind::Block(_, body) => leaves(body),
        StmtKind::SwitchAction(_, cases, default) => {
            cases.iter().map(|case| leaves(&case.1)).fold(leaves(default), Leaves::or)
        }
        StmtKind::Switch(_, cases, default) => {
            cases.iter().map(|case| leaves(&case.1)).fold(leaves(default), Leaves::or)
        }
        StmtKind::For { body, .. } | StmtKind::ForRange(.., body) | StmtKind::ForEach(.., body) => {
            of_loop(body)
        }
        _ => Leaves::default(),
    }
}

/// Whether a list never reaches its end.
pub(super) fn diverges(list: &[Stmt]) -> bool {
    list.iter().any(|stmt| match &stmt.kind {
        StmtKind::Return(_) | StmtKind::Break | StmtKind::Continue | StmtKind::Exit => true,
        StmtKind::If(_, yes, no) => diverges(yes) && diverges(no),
        StmtKind::Block(_, body) => diverges(body),
        _ => false,
    })
}

impl<'h> Lower<'h> {
    /// Lowers statements.
    pub(super) fn list(&mut self, list: &[&'h Stmt]) {
        for (i, stmt) in list.iter().enumerate() {
            let rest = list.get(i + 1..).unwrap_or_default();
            let ways = self.to_lower(leaves_of(stmt));
            if rest.is_empty() || !ways.any() {
                self.stmt(stmt);
                match stmt.kind {
                    StmtKind::Return(_) | StmtKind::Break | StmtKind::Continue | StmtKind::Exit => return,
                    _ => continue,
                }
            }
            match &stmt.kind {
                StmtKind::Return(_) | StmtKind::Break | StmtKind::Continue => self.stmt(stmt),
                StmtKind::If(condition, yes, no)
                    if self.nesting < DEEPEST && (diverges(yes) || diverges(no)) =>
                {
                    let with_rest = |branch: &'h [Stmt]| -> Vec<&'h Stmt> {
                        match diverges(branch) {
                            true => branch.iter().collect(),
                            false => branch.iter().chain(rest.iter().copied()).collect(),
                        }
                    };
                    let (yes, no) = (with_rest(yes), with_rest(no));
                    self.branch(condition, &yes, &no);
                }
                StmtKind::Block(annotations, body) if annotations.is_empty() => {
                    let all: Vec<&'h Stmt> = body.iter().chain(rest.iter().copied()).collect();
                    self.list(&all);
                }
                _ => self.with_flags(stmt, rest),
            }
            return;
        }
    }

    /// Lowers a statement that may leave, and those behind it: one after the other, each up to the next that may leave.
    fn with_flags(&mut self, stmt: &'h Stmt, rest: &[&'h Stmt]) {
        let all = rest.iter().map(|stmt| leaves_of(stmt)).fold(leaves_of(stmt), Leaves::or);
        self.arm_flags(all);
        self.stmt(stmt);
        let mut rest = rest;
        while !rest.is_empty() {
            let next = rest.iter().position(|stmt| self.to_lower(leaves_of(stmt)).any());
            let (now, later) = rest.split_at(next.map_or(rest.len(), |at| at + 1));
            let condition = self.still_here(all);
            self.when(condition, now);
            rest = later;
        }
    }

    /// Returns the ways that are not the pipeline's own.
    fn to_lower(&self, ways: Leaves) -> Leaves {
        let native =
            self.frames.iter().rfind(|frame| frame.kind == FrameKind::Body).is_some_and(|f| f.native);
        Leaves { returns: ways.returns && !native, ..ways }
    }

    /// Makes flags for the frames that statements may leave.
    pub(super) fn arm_flags(&mut self, ways: Leaves) {
        let mut pending = self.to_lower(ways);
        for i in (0..self.frames.len()).rev() {
            let Some(frame) = self.frames.get(i) else { return };
            let kind = frame.kind;
            if pending.leaves(kind) && frame.flag.is_none() {
                let flag = self.variable("left", ir::Type::Bool);
                let set = ir::Stmt::Set(LValue::Var(flag), truth(false));
                self.emit(set);
                if let Some(frame) = self.frames.get_mut(i) {
                    frame.flag = Some(flag);
                }
            }
            match kind {
                FrameKind::Body => return,
                FrameKind::Loop => pending.breaks = false,
                FrameKind::Round => pending.continues = false,
            }
        }
    }

    /// Returns the condition that none of these ways was taken.
    pub(super) fn still_here(&self, ways: Leaves) -> ir::Expr {
        let mut pending = self.to_lower(ways);
        let mut condition: Option<ir::Expr> = None;
        for frame in self.frames.iter().rev() {
            if pending.leaves(frame.kind)
                && let Some(flag) = frame.flag
            {
                let not = super::value::not(ir::Expr::Var(flag));
                condition = Some(match condition {
                    Some(before) => before.op(ir::BinOp::LogicAnd, not),
                    None => not,
                });
            }
            match frame.kind {
                FrameKind::Body => break,
                FrameKind::Loop => pending.breaks = false,
                FrameKind::Round => pending.continues = false,
            }
        }
        condition.unwrap_or(truth(true))
    }

    /// Leaves a frame: sets its flag, if something waits for it.
    pub(super) fn leave(&mut self, kind: FrameKind) {
        let Some(frame) = self.frames.iter().rfind(|frame| frame.kind == kind) else { return };
        match (frame.native, frame.flag) {
            (true, _) => self.emit(ir::Stmt::Return),
            (false, Some(flag)) => self.emit(ir::Stmt::Set(LValue::Var(flag), truth(true))),
            (false, None) => {}
        }
    }
}

/// A truth value.
pub(super) fn truth(value: bool) -> ir::Expr {
    ir::Expr::Const(ir::Constant::bool(value))
}
