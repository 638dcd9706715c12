//! Random packets that parsers accept: the parser's states are walked, each header gets bytes, and fields that decide a
//! transition get values that lead to the case chosen. Then, now and then, some bytes change or are cut off.

use std::collections::BTreeMap;

use pipeline::bits::{self, Bits};
use pipeline::ir::{
    Case, Expr, FieldType, HeaderId, HeaderRef, Keyset, LValue, ParserOp, Program, StackId, Stmt, Target,
    Transition, VarId,
};

use super::chance::Chance;

/// Most states of a walk: with stacks and loops it may be long.
const STATES: usize = 40;
/// Most bytes behind the headers.
const PAYLOAD: usize = 48;
/// Most packets that are kept to be changed.
const KNOWN: usize = 64;

/// Random packets for a program.
pub(in crate::stf) struct Packets<'p> {
    program: &'p Program,
    /// Packets of a case and of earlier walks.
    known: Vec<Vec<u8>>,
}

impl<'p> Packets<'p> {
    pub(in crate::stf) fn new(program: &'p Program) -> Self {
        Self { program, known: vec![] }
    }

    /// Adds a packet that is worth being changed.
    pub(in crate::stf) fn learn(&mut self, bytes: Vec<u8>) {
        self.known.push(bytes);
    }

    /// A packet.
    pub(in crate::stf) fn packet(&mut self, chance: &mut Chance) -> Vec<u8> {
        let known = match self.known.is_empty() || chance.once_in(2) {
            true => None,
            false => chance.pick(&self.known).cloned(),
        };
        let is_new = known.is_none();
        let mut bytes = known.unwrap_or_else(|| Walk::new(self.program).packet(chance));
        if is_new && self.known.len() < KNOWN {
            self.known.push(bytes.clone());
        }
        if chance.once_in(2) {
            change(&mut bytes, chance);
        }
        if chance.once_in(10) {
            bytes.truncate(chance.below(bytes.len() + 1));
        }
        bytes
    }
}

/// Changes a few places.
fn change(bytes: &mut [u8], chance: &mut Chance) {
    for _ in 0..=chance.below(3) {
        let at = chance.below(bytes.len());
        match chance.below(3) {
            0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << chance.below(8)),
            1 => {
                let width = *chance.pick(&[8, 8, 16, 32, 48]).unwrap_or(&8);
                let value = chance.value(width);
                bits::write(bytes, 8 * at, &value);
            }
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = chance.next() as u8),
        }
    }
}

/// A walk through a parser.
struct Walk<'p> {
    program: &'p Program,
    bytes: Vec<u8>,
    /// Bytes that are extracted.
    at: usize,
    /// Where the headers begin, bytes.
    headers: BTreeMap<HeaderId, usize>,
    /// Elements of stacks that are extracted.
    elements: BTreeMap<StackId, u32>,
    /// Values of variables as assigned, for selections by them.
    vars: BTreeMap<VarId, Expr>,
}

impl<'p> Walk<'p> {
    fn new(program: &'p Program) -> Self {
        Self {
            program,
            bytes: vec![],
            at: 0,
            headers: BTreeMap::new(),
            elements: BTreeMap::new(),
            vars: BTreeMap::new(),
        }
    }

    fn packet(mut self, chance: &mut Chance) -> Vec<u8> {
        let parser = self.program.stages.iter().find_map(|stage| stage.parser);
        let states =
            parser.and_then(|id| self.program.parsers.get(id.index())).map_or(&[][..], |p| &p.states);
        let mut index = 0;
        for _ in 0..STATES {
            let Some(state) = states.get(index) else { break };
            state.ops.iter().for_each(|op| self.op(op, chance));
            let target = match &state.next {
                Transition::To(target) => *target,
                Transition::Select(select) => {
                    let case = chance.pick(&select.cases);
                    case.iter().for_each(|case| self.choose(&select.on, case, chance));
                    case.map_or(Target::Accept, |case| case.to)
                }
            };
            match target {
                Target::State(next) => index = next as usize,
                Target::Accept | Target::Reject => break,
            }
        }
        let count = chance.below(PAYLOAD);
        self.bytes.extend(chance.bytes(count));
        self.bytes
    }

    fn op(&mut self, op: &ParserOp, chance: &mut Chance) {
        match op {
            ParserOp::Extract(header, length) => {
                let Some(id) = self.extracted(header) else { return };
                let fixed = self.program.header_type(id).map_or(0, |ty| ty.fixed_bits() / 8);
                self.headers.insert(id, self.at);
                let options = if length.is_some() { 4 * chance.below(4) } else { 0 };
                self.consume(fixed + options, chance);
            }
            ParserOp::Advance(Expr::Const(constant)) => {
                self.consume((constant.value.low_u64() / 8).min(64) as usize, chance);
            }
            ParserOp::Advance(_) => self.consume(4 * chance.below(4), chance),
            ParserOp::Do(Stmt::Set(LValue::Var(var), value)) => {
                self.vars.insert(*var, value.clone());
            }
            ParserOp::Do(_) | ParserOp::Verify(..) => {}
        }
    }

    /// Moves on; bytes that a lookahead has not written yet are random.
    fn consume(&mut self, count: usize, chance: &mut Chance) {
        self.at += count;
        let missing = self.at.saturating_sub(self.bytes.len());
        self.bytes.extend(chance.bytes(missing));
    }

    /// Gives values the values that a case needs.
    fn choose(&mut self, on: &[Expr], case: &Case, chance: &mut Chance) {
        for (expr, set) in on.iter().zip(&case.sets) {
            let value = match set {
                Keyset::Any | Keyset::Set(_) => continue,
                Keyset::Value(value) => value.value.clone(),
                Keyset::Mask(value, mask) => {
                    let free = chance.value(value.value.width()).and(&mask.value.not());
                    value.value.and(&mask.value).or(&free)
                }
                Keyset::Range(low, high) => if chance.once_in(2) { &low.value } else { &high.value }.clone(),
            };
            self.assign(expr, &value, 0, chance);
        }
    }

    /// Writes a value where an expression takes it from, if it does so in an obvious way.
    fn assign(&mut self, expr: &Expr, value: &Bits, depth: usize, chance: &mut Chance) {
        if let Some((at, width)) = self.place(expr, depth) {
            let missing = (at + usize::from(width)).div_ceil(8).saturating_sub(self.bytes.len());
            self.bytes.extend(chance.bytes(missing));
            bits::write(&mut self.bytes, at, &value.resize(width));
        }
    }

    /// First bit and width of the place.
    fn place(&self, expr: &Expr, depth: usize) -> Option<(usize, u16)> {
        if depth > 8 {
            return None;
        }
        match expr {
            Expr::Var(var) => self.place(self.vars.get(var)?, depth + 1),
            Expr::Field(header, field) => {
                let id = self.lookup(header)?;
                let fields = &self.program.header_type(id)?.fields;
                let mut at = 8 * self.headers.get(&id)?;
                for (i, field_type) in (0..).zip(fields) {
                    let FieldType::Scalar(ty) = field_type.ty else { return None };
                    if i == *field {
                        return Some((at, ty.width()));
                    }
                    at += usize::from(ty.width());
                }
                None
            }
            Expr::Lookahead(ty, skip) => Some((8 * self.at + *skip as usize, ty.width())),
            Expr::Slice(inner, high, low) => {
                let (at, width) = self.place(inner, depth + 1)?;
                let in_front = usize::from(width).checked_sub(1 + usize::from(*high))?;
                Some((at + in_front, high.checked_sub(*low)? + 1))
            }
            Expr::Cast(ty, inner) => {
                let (at, width) = self.place(inner, depth + 1)?;
                let kept = width.min(ty.width());
                Some((at + usize::from(width - kept), kept))
            }
            _ => None,
        }
    }

    fn lookup(&self, header: &HeaderRef) -> Option<HeaderId> {
        match header {
            HeaderRef::Header(id) => Some(*id),
            HeaderRef::Last(stack) => self.element(*stack, self.elements.get(stack)?.checked_sub(1)?),
            HeaderRef::Next(stack) => self.element(*stack, self.elements.get(stack).copied().unwrap_or(0)),
            HeaderRef::Element(stack, index) => match &**index {
                Expr::Const(constant) => self.element(*stack, u32::try_from(constant.value.low_u64()).ok()?),
                _ => None,
            },
        }
    }

    /// The header that is extracted; the next element of a stack moves on.
    fn extracted(&mut self, header: &HeaderRef) -> Option<HeaderId> {
        let id = self.lookup(header)?;
        if let HeaderRef::Next(stack) = header {
            *self.elements.entry(*stack).or_default() += 1;
        }
        Some(id)
    }

    fn element(&self, stack: StackId, index: u32) -> Option<HeaderId> {
        let stack = self.program.stacks.get(stack.index())?;
        (index < stack.size).then(|| HeaderId(stack.first.0 + index))
    }
}
