//! Bytes of a packet that a program may read: the fabric has the first 128 of each at hand, and copies more on request.

use match_action::WINDOW;
use pipeline::ir::{
    Expr, FieldType, HeaderRef, HeaderTypeId, Item, Parser, ParserOp, Program, Stmt, Target, Transition, Via,
};

/// Most bytes from a packet's start that a program's parsers, and its hashes of the payload, read.
pub(crate) fn window(program: &Program) -> usize {
    let mut parsers = program.stages.iter().filter_map(|stage| stage.parser);
    let (first, others) = (parsers.next(), parsers.next());
    // A further parser begins where the deparser before it says.
    if others.is_some() || reads_further(program) {
        return WINDOW;
    }
    let parser = first.and_then(|id| program.parsers.get(id.index()));
    parser.map_or(0, |parser| Lengths::of(program, parser).min(WINDOW))
}

/// Whether a program may parse a packet again, or reads its payload.
fn reads_further(program: &Program) -> bool {
    let blocks = program.blocks.iter().map(|(_, body)| body);
    blocks.chain(program.actions.iter().map(|action| &action.body)).any(|body| body.iter().any(again))
}

fn again(stmt: &Stmt) -> bool {
    let any = |body: &[Stmt]| body.iter().any(again);
    let payload = |items: &[Item]| items.iter().any(|item| matches!(item, Item::Payload));
    match stmt {
        Stmt::Reparse => true,
        Stmt::Send(send) => matches!(send.via, Via::Stage(_)),
        Stmt::Hash(_, _, items) | Stmt::Controller(_, _, items) | Stmt::Insert(items) => payload(items),
        Stmt::UpdateChecksum(_, before, after) => payload(before) || payload(after),
        Stmt::Atomic(body) => any(body),
        Stmt::If(_, yes, no) => any(yes) || any(no),
        Stmt::Switch(_, cases, other) => cases.iter().any(|(_, body)| any(body)) || any(other),
        Stmt::Apply(_, applied) => {
            let actions = applied.actions.iter().any(|(_, body)| any(body));
            actions || any(&applied.hit) || any(&applied.miss) || any(&applied.other)
        }
        _ => false,
    }
}

/// The longest way through a parser.
struct Lengths<'a> {
    program: &'a Program,
    parser: &'a Parser,
    /// Bits from each state to the parser's end: unknown yet, or known.
    known: Vec<Option<usize>>,
    /// States on the way.
    open: Vec<bool>,
}

/// A length that is not bounded here; the sum of a few does not overflow.
const UNBOUNDED: usize = WINDOW * 8;

impl<'a> Lengths<'a> {
    /// Bytes that a parser reads at most.
    fn of(program: &'a Program, parser: &'a Parser) -> usize {
        let (known, open) = (vec![None; parser.states.len()], vec![false; parser.states.len()]);
        let mut lengths = Self { program, parser, known, open };
        // Validation bounds the states, not the depth of this: it follows them in the order in which they end.
        for state in lengths.order() {
            let length = lengths.state(state);
            if let Some(known) = lengths.known.get_mut(state) {
                *known = Some(length);
            }
        }
        lengths.known.first().copied().flatten().unwrap_or(0).div_ceil(8)
    }

    fn targets(&self, state: usize) -> Vec<usize> {
        let Some(state) = self.parser.states.get(state) else { return vec![] };
        let of = |target: &Target| match target {
            Target::State(state) => Some(*state as usize),
            Target::Accept | Target::Reject => None,
        };
        match &state.next {
            Transition::To(target) => of(target).into_iter().collect(),
            Transition::Select(select) => select.cases.iter().filter_map(|case| of(&case.to)).collect(),
        }
    }

    /// States that are reached, each behind those that it leads to, but for cycles.
    fn order(&mut self) -> Vec<usize> {
        let mut order = Vec::new();
        // A state, and those it leads to that are still to be followed.
        let mut way = vec![(0, self.targets(0))];
        self.open.iter_mut().take(1).for_each(|open| *open = true);
        while let Some((state, targets)) = way.last_mut() {
            let Some(next) = targets.pop() else {
                order.push(*state);
                way.pop();
                continue;
            };
            if let Some(open) = self.open.get_mut(next)
                && !std::mem::replace(open, true)
            {
                let targets = self.targets(next);
                way.push((next, targets));
            }
        }
        order
    }

    /// Bits from a state to the parser's end, those of the states that it leads to being known; a cycle is unbounded.
    fn state(&self, index: usize) -> usize {
        let Some(state) = self.parser.states.get(index) else { return 0 };
        let (mut at, mut reads) = (0usize, 0usize);
        for op in &state.ops {
            match op {
                ParserOp::Extract(header, length) => {
                    at += self.header(header);
                    reads = reads.max(length.as_ref().map_or(0, |length| at + ahead(length)));
                }
                ParserOp::Advance(Expr::Const(by)) => {
                    at += usize::try_from(by.value.saturating_u64()).unwrap_or(UNBOUNDED).min(UNBOUNDED);
                }
                ParserOp::Advance(_) => at += UNBOUNDED,
                ParserOp::Verify(condition, _) => reads = reads.max(at + ahead(condition)),
                // Statements of parsers may contain any expression.
                ParserOp::Do(stmt) => reads = reads.max(at + if peeks(stmt) { UNBOUNDED } else { 0 }),
            }
        }
        if let Transition::Select(select) = &state.next {
            let ahead = select.on.iter().map(ahead).max().unwrap_or(0);
            reads = reads.max(at + ahead);
        }
        let rest = |target: usize| self.known.get(target).copied().flatten().unwrap_or(UNBOUNDED);
        let rest = self.targets(index).into_iter().map(rest).max().unwrap_or(0);
        reads.max(at + rest).min(UNBOUNDED)
    }

    /// Most bits of a header.
    fn header(&self, header: &HeaderRef) -> usize {
        let of_stack = |stack: &pipeline::ir::StackId| {
            let stack = self.program.stacks.get(stack.index())?;
            Some(self.program.headers.get(stack.first.index())?.ty)
        };
        let ty: Option<HeaderTypeId> = match header {
            HeaderRef::Header(id) => self.program.headers.get(id.index()).map(|header| header.ty),
            HeaderRef::Element(stack, _) | HeaderRef::Next(stack) | HeaderRef::Last(stack) => of_stack(stack),
        };
        let Some(ty) = ty.and_then(|ty| self.program.header_types.get(ty.index())) else { return UNBOUNDED };
        let width = |field: &pipeline::ir::Field| match field.ty {
            FieldType::Scalar(ty) => usize::from(ty.width()),
            FieldType::Varbit(most) => usize::from(most),
        };
        ty.fields.iter().map(width).sum::<usize>().min(UNBOUNDED)
    }
}

/// Bits behind the parser's position that an expression reads.
fn ahead(expr: &Expr) -> usize {
    match expr {
        Expr::Lookahead(ty, bits) => (*bits as usize).min(UNBOUNDED) + usize::from(ty.width()),
        Expr::Unary(_, of) | Expr::Slice(of, ..) | Expr::Cast(_, of) => ahead(of),
        Expr::Binary(_, both) => ahead(&both.0).max(ahead(&both.1)),
        Expr::Mux(three) => ahead(&three.0).max(ahead(&three.1)).max(ahead(&three.2)),
        Expr::Field(HeaderRef::Element(_, index), _) | Expr::Valid(HeaderRef::Element(_, index)) => {
            ahead(index)
        }
        _ => 0,
    }
}

/// Whether a statement of a parser may look ahead: only plain assignments are told apart.
fn peeks(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Set(_, value) => ahead(value) > 0,
        Stmt::SetValid(_) | Stmt::SetInvalid(_) | Stmt::CopyHeader(..) => false,
        _ => true,
    }
}
