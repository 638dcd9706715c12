//! Whether a packet that nothing changes leaves as it came: what a parser takes off, a deparser puts back.
//!
//! That is so if every path through the parser extracts headers in the order in which the deparser emits them, each
//! once, skips nothing and writes no field, and the deparser emits unconditionally and nothing else.

use pipeline::ir::{
    EmitRef, HeaderId, HeaderPlace, HeaderRef, LValue, Parser, ParserOp, Program, Stmt, Target, Transition,
};

/// Whether the parser and the body of a deparser are such a pair.
pub(crate) fn is_identity(program: &Program, parser: &Parser, deparser: Option<&[Stmt]>) -> bool {
    let Some(order) = order(program, deparser) else { return false };
    let ranks: Option<Vec<_>> =
        parser.states.iter().map(|state| ranks(program, &order, &state.ops)).collect();
    let Some(ranks) = ranks else { return false };
    let follows: Vec<Vec<bool>> = (0..ranks.len()).map(|from| reachable(parser, from)).collect();
    ranks.iter().zip(&follows).all(|(own, follows)| {
        let behind = ranks.iter().zip(follows).filter(|(_, reached)| **reached).flat_map(|(ranks, _)| ranks);
        let behind: Vec<_> = behind.collect();
        own.iter().enumerate().all(|(i, first)| {
            own.iter().skip(i + 1).chain(behind.iter().copied()).all(|second| first.precedes(second))
        })
    })
}

/// What of a stack is extracted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    /// Nothing of a stack, or an element of this number.
    Fixed(u32),
    Next,
}

/// Place of an extraction in the deparser's order.
#[derive(Debug, Clone, Copy)]
struct Rank {
    at: usize,
    /// Number of an element of a stack; the next one, whichever it is.
    element: Element,
}

impl Rank {
    fn precedes(&self, other: &Rank) -> bool {
        let in_stack = match (self.element, other.element) {
            (Element::Fixed(first), Element::Fixed(second)) => first < second,
            (Element::Next, Element::Next) => true,
            _ => false,
        };
        self.at < other.at || self.at == other.at && in_stack
    }
}

/// Where the deparser emits each header; elements of a stack share a place. `None` if it does anything else.
pub(super) fn order(program: &Program, deparser: Option<&[Stmt]>) -> Option<Vec<Option<usize>>> {
    let mut order = vec![None; program.headers.len()];
    let mut put = |first: HeaderId, count: u32, at: usize| {
        order
            .iter_mut()
            .skip(first.index())
            .take(count as usize)
            .all(|slot: &mut Option<usize>| slot.replace(at).is_none())
    };
    let Some(deparser) = deparser else {
        // All headers, in the order of their declaration.
        for (i, header) in program.headers.iter().enumerate() {
            let at = match header.place {
                HeaderPlace::Element(stack, _) => program.stacks.get(stack.index())?.first.index(),
                HeaderPlace::Single => i,
                HeaderPlace::Member(_) => return None,
            };
            put(HeaderId::at(i), 1, at);
        }
        return Some(order);
    };
    for (at, stmt) in deparser.iter().enumerate() {
        let first_time = match stmt {
            Stmt::Emit(EmitRef::Header(HeaderRef::Header(id))) => {
                let place = program.headers.get(id.index())?.place;
                place == HeaderPlace::Single && put(*id, 1, at)
            }
            Stmt::Emit(EmitRef::Stack(stack)) => {
                let stack = program.stacks.get(stack.index())?;
                put(stack.first, stack.size, at)
            }
            _ => false,
        };
        if !first_time {
            return None;
        }
    }
    Some(order)
}

/// Ranks of the extractions of a state; `None` if it does what a deparser does not undo.
fn ranks(program: &Program, order: &[Option<usize>], ops: &[ParserOp]) -> Option<Vec<Rank>> {
    let mut ranks = Vec::new();
    for op in ops {
        match op {
            ParserOp::Extract(HeaderRef::Header(id), _) => {
                let element = match program.headers.get(id.index())?.place {
                    HeaderPlace::Single => Element::Fixed(0),
                    HeaderPlace::Element(_, i) => Element::Fixed(i),
                    HeaderPlace::Member(_) => return None,
                };
                ranks.push(Rank { at: (*order.get(id.index())?)?, element });
            }
            ParserOp::Extract(HeaderRef::Next(stack), _) => {
                let first = program.stacks.get(stack.index())?.first;
                ranks.push(Rank { at: (*order.get(first.index())?)?, element: Element::Next });
            }
            ParserOp::Verify(..) => {}
            ParserOp::Do(stmt) if writes_variables(stmt) => {}
            _ => return None,
        }
    }
    Some(ranks)
}

/// Whether a statement only assigns to variables.
fn writes_variables(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Set(place, _) | Stmt::Hash(place, ..) => {
            let mut place = place;
            while let LValue::Slice(of, ..) = place {
                place = of;
            }
            matches!(place, LValue::Var(_))
        }
        Stmt::If(_, yes, no) => yes.iter().chain(no).all(writes_variables),
        Stmt::Switch(_, cases, default) => {
            cases.iter().flat_map(|(_, body)| body).chain(default).all(writes_variables)
        }
        _ => false,
    }
}

/// States that a transition leads to.
pub(crate) fn targets(next: &Transition) -> Vec<usize> {
    let state = |target: &Target| match target {
        Target::State(i) => Some(*i as usize),
        Target::Accept | Target::Reject => None,
    };
    match next {
        Transition::To(target) => state(target).into_iter().collect(),
        Transition::Select(select) => select.cases.iter().filter_map(|case| state(&case.to)).collect(),
    }
}

/// States that may follow one.
fn reachable(parser: &Parser, from: usize) -> Vec<bool> {
    let mut reached = vec![false; parser.states.len()];
    let mut waiting = vec![from];
    while let Some(state) = waiting.pop() {
        for next in parser.states.get(state).map(|state| targets(&state.next)).unwrap_or_default() {
            if let Some(slot) = reached.get_mut(next).filter(|slot| !**slot) {
                *slot = true;
                waiting.push(next);
            }
        }
    }
    reached
}
