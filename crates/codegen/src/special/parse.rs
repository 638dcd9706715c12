//! Residual parsers: states from which something that is read is filled, and of their operations those that fill it or
//! decide how the parser goes on.
//!
//! A header that nothing reads is skipped instead of copied; a packet too short for it ends the parser all the same. So
//! what is read has the values that it would have; errors and the position at the end do not: a residual parser whose
//! error or payload is read is the parser itself.

use pipeline::ir::{
    BinOp, Expr, FieldType, HeaderRef, LValue, Parser, ParserOp, ParserState, Program, Slot, Stmt, Target,
    Transition, Type,
};

use super::fold::Known;
use super::identity::targets;
use super::uses::{Reads, base, places};

/// The residual of a parser, given what else is read; returns it with everything that is read, its own needs included.
/// Without states it does nothing.
///
/// With `cut`, headers that are not read are part of the payload: the residual parser ends in front of them. `None` if it
/// would have to go on behind one, or to tell the error that one leads to.
pub(super) fn prune(
    program: &Program,
    known: &Known,
    parser: &Parser,
    mut reads: Reads,
    cut: bool,
) -> Option<(Parser, Reads)> {
    let reads_error =
        program.vars.iter().enumerate().any(|(i, var)| {
            var.slot == Some(Slot::ParserError) && reads.vars.get(i).copied().unwrap_or(true)
        });
    if cut && reads_error {
        return None;
    }
    if reads_error || reads.payload && !cut {
        // The position depends on all headers.
        reads.add_packet();
        let all = vec![true; parser.states.len()];
        parser_reads(program, parser, &all, &mut reads, true);
        return Some((parser.clone(), reads));
    }
    let useful = loop {
        let before = reads.clone();
        let useful = useful(program, parser, &reads);
        parser_reads(program, parser, &useful, &mut reads, false);
        if reads == before {
            break useful;
        }
    };
    let passes_over = |state: &ParserState| {
        let ops = needed(state, &useful, &reads, program);
        ops.iter().any(|op| matches!(op, ParserOp::Extract(header, _) if !is_read(program, header, &reads)))
    };
    if cut && parser.states.iter().zip(&useful).any(|(state, is_useful)| *is_useful && passes_over(state)) {
        return None;
    }
    if !useful.first().copied().unwrap_or(false) {
        return Some((Parser { name: parser.name.clone(), states: vec![] }, reads));
    }
    let states = parser.states.iter().zip(&useful).map(|(state, is_useful)| match is_useful {
        true => residual(program, known, state, &useful, &reads),
        false => ParserState { name: state.name.clone(), ops: vec![], next: Transition::To(Target::Accept) },
    });
    Some((Parser { name: parser.name.clone(), states: states.collect() }, reads))
}

/// Whether an operation fills something that is read.
fn fills(op: &ParserOp, reads: &Reads, program: &Program) -> bool {
    match op {
        ParserOp::Extract(header, _) => is_read(program, header, reads),
        ParserOp::Advance(_) | ParserOp::Verify(..) => false,
        ParserOp::Do(Stmt::Set(LValue::Var(id), _)) => reads.var(*id),
        ParserOp::Do(stmt) => stmt_fills(stmt, reads, program),
    }
}

fn stmt_fills(stmt: &Stmt, reads: &Reads, program: &Program) -> bool {
    let place = |place: &LValue| {
        let mut place = place;
        while let LValue::Slice(of, ..) = place {
            place = of;
        }
        match place {
            LValue::Var(id) => reads.var(*id),
            LValue::Field(header, _) => is_read(program, header, reads),
            LValue::Slice(..) => true,
        }
    };
    match stmt {
        Stmt::Set(to, _) | Stmt::Hash(to, ..) => place(to),
        Stmt::If(_, yes, no) => yes.iter().chain(no).any(|stmt| stmt_fills(stmt, reads, program)),
        _ => true,
    }
}

fn is_read(program: &Program, header: &HeaderRef, reads: &Reads) -> bool {
    let first = match header {
        HeaderRef::Header(id) => Some(*id),
        HeaderRef::Element(stack, _) | HeaderRef::Next(stack) | HeaderRef::Last(stack) => {
            program.stacks.get(stack.index()).map(|stack| stack.first)
        }
    };
    first.is_none_or(|id| reads.header(id))
}

/// States from which something that is read is filled.
fn useful(program: &Program, parser: &Parser, reads: &Reads) -> Vec<bool> {
    let fills = |state: &ParserState| state.ops.iter().any(|op| fills(op, reads, program));
    let mut useful: Vec<bool> = parser.states.iter().map(fills).collect();
    loop {
        let mut changed = false;
        for (i, state) in parser.states.iter().enumerate() {
            let leads = targets(&state.next).into_iter().any(|to| useful.get(to).copied().unwrap_or(false));
            if let Some(slot) = useful.get_mut(i).filter(|slot| !**slot && leads) {
                (*slot, changed) = (true, true);
            }
        }
        if !changed {
            return useful;
        }
    }
}

fn leads_on(state: &ParserState, useful: &[bool]) -> bool {
    targets(&state.next).into_iter().any(|to| useful.get(to).copied().unwrap_or(false))
}

/// Operations of a state up to the last that matters.
fn needed<'s>(state: &'s ParserState, useful: &[bool], reads: &Reads, program: &Program) -> &'s [ParserOp] {
    let count = match leads_on(state, useful) {
        true => state.ops.len(),
        false => state.ops.iter().rposition(|op| fills(op, reads, program)).map_or(0, |last| last + 1),
    };
    state.ops.get(..count).unwrap_or_default()
}

/// Whether an operation stays: it fills something, or may end the parser in a way of its own.
fn stays(op: &ParserOp, reads: &Reads, program: &Program) -> bool {
    match op {
        // The number of elements decides when a stack is full.
        ParserOp::Extract(HeaderRef::Header(_), _) => fills(op, reads, program),
        ParserOp::Extract(..) | ParserOp::Advance(_) | ParserOp::Verify(..) => true,
        ParserOp::Do(Stmt::Set(_, value)) => fills(op, reads, program) || crate::emit::may_fault(value),
        ParserOp::Do(Stmt::If(condition, yes, no)) => {
            let plain = |stmt: &Stmt| matches!(stmt, Stmt::Set(_, value) if !crate::emit::may_fault(value));
            let is_plain = !crate::emit::may_fault(condition) && yes.iter().chain(no).all(plain);
            fills(op, reads, program) || !is_plain
        }
        ParserOp::Do(_) => true,
    }
}

/// Adds what the useful states read, and what operations that stay write.
fn parser_reads(program: &Program, parser: &Parser, useful: &[bool], reads: &mut Reads, all: bool) {
    for (state, _) in parser.states.iter().zip(useful).filter(|(_, is_useful)| **is_useful) {
        let ops = if all { &state.ops[..] } else { needed(state, useful, reads, program) };
        for op in ops {
            if !all && !stays(op, reads, program) {
                if let ParserOp::Extract(_, Some(length)) = op {
                    reads.expr(program, length);
                }
                continue;
            }
            match op {
                ParserOp::Extract(header, length) => {
                    reads.add_header(program, header);
                    length.iter().for_each(|length| reads.expr(program, length));
                }
                ParserOp::Advance(value) | ParserOp::Verify(value, _) => reads.expr(program, value),
                ParserOp::Do(stmt) => {
                    reads.body(program, std::slice::from_ref(stmt));
                    written(program, stmt, reads);
                }
            }
        }
        if (all || leads_on(state, useful))
            && let Transition::Select(select) = &state.next
        {
            select.on.iter().for_each(|value| reads.expr(program, value));
        }
    }
}

/// Adds the places that a statement writes: they need room.
pub(super) fn written(program: &Program, stmt: &Stmt, reads: &mut Reads) {
    for place in places(stmt) {
        match base(place) {
            LValue::Var(id) => reads.add_var(*id),
            LValue::Field(header, _) => reads.add_header(program, header),
            LValue::Slice(..) => {}
        }
    }
    match stmt {
        Stmt::If(_, yes, no) => yes.iter().chain(no).for_each(|stmt| written(program, stmt, reads)),
        Stmt::Switch(_, cases, default) => {
            cases
                .iter()
                .flat_map(|(_, body)| body)
                .chain(default)
                .for_each(|stmt| written(program, stmt, reads));
        }
        Stmt::SetValid(header) | Stmt::SetInvalid(header) | Stmt::CopyHeader(header, _) => {
            reads.add_header(program, header);
        }
        Stmt::Push(stack, _) | Stmt::Pop(stack, _) => reads.add_stack(program, *stack),
        _ => {}
    }
}

fn residual(
    program: &Program,
    known: &Known,
    state: &ParserState,
    useful: &[bool],
    reads: &Reads,
) -> ParserState {
    let mut ops = Vec::new();
    for op in needed(state, useful, reads, program) {
        match op {
            _ if stays(op, reads, program) => ops.push(op.clone()),
            ParserOp::Extract(header, length) => skip(program, header, length.as_ref(), &mut ops),
            _ => {}
        }
    }
    let target = |target: &Target| match target {
        Target::State(i) if useful.get(*i as usize).copied().unwrap_or(false) => *target,
        _ => Target::Accept,
    };
    let next = match &state.next {
        _ if !leads_on(state, useful) => Transition::To(Target::Accept),
        Transition::To(to) => Transition::To(target(to)),
        Transition::Select(select) => {
            let mut select = select.clone();
            select.on.iter_mut().for_each(|value| *value = known.fold(value));
            select.cases.iter_mut().for_each(|case| case.to = target(&case.to));
            Transition::Select(select)
        }
    };
    ParserState { name: state.name.clone(), ops, next }
}

/// Skips a header.
fn skip(program: &Program, header: &HeaderRef, length: Option<&Expr>, ops: &mut Vec<ParserOp>) {
    let HeaderRef::Header(id) = header else { return };
    let Some(ty) = program.header_type(*id) else { return };
    let (mut bits, mut most) = (0u64, 0u64);
    for field in &ty.fields {
        match field.ty {
            FieldType::Scalar(ty) => bits += u64::from(ty.width()),
            FieldType::Varbit(max) => most = max.into(),
        }
    }
    // As emission does: whole bytes.
    let fixed = Expr::bit(32, bits.next_multiple_of(8));
    match length {
        None => ops.push(ParserOp::Advance(fixed)),
        Some(length) => {
            let fits = length.clone().op(BinOp::Le, Expr::bit(32, most));
            ops.push(ParserOp::Verify(fits, pipeline::ir::ErrorId::HEADER_TOO_SHORT));
            let whole = length.clone().cast(Type::Bit(32)).op(BinOp::Add, fixed);
            ops.push(ParserOp::Advance(whole));
        }
    }
}
