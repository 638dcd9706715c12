//! Fronts: bits at the front of packets that their flow keys follow from.
//!
//! How a packet is parsed follows from some of its bits: types, lengths, numbers of fragments. Packets that have the
//! same values there, and are long enough, have each field at the same place. So from one packet it is known of all
//! these where the bits are that their flow key is computed of, and packets whose bits there are equal have one flow
//! key.
//!
//! A front is learned from a packet that was parsed, by following the parser's operations over its bytes. Parsers that
//! do more than extract headers and set variables, and packets that meet an error, have none.
//!
//! Invariant: of two packets that one front takes ([`Front::takes`]) and for which [`Front::lay_out`] gives the same
//! words, both have the same flow key.

use std::collections::BTreeMap;

use pipeline::bits::{self, Bits};
use pipeline::ir::{
    Constant, Expr, FieldType, HeaderId, HeaderPlace, HeaderRef, Keyset, LValue, ParserOp, ParserState,
    Program, Slot, StackId, Stmt, Target, Transition, Type, VarId,
};

use super::flow_key::MOST_WORDS;
use super::fold::Known;
use crate::code::Code;

/// Bytes that a front may reach over.
const REACH: usize = 128;
/// Words of fixed bits.
const MOST_FIXED: usize = 4;

/// Where bits lie: for each byte, a mask.
type Mask = [u8; REACH];

/// Eight bytes of a packet from an offset on, and a mask of their bits, as a little-endian word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Word {
    at: u8,
    mask: u64,
}

impl Word {
    #[inline(always)]
    fn of(self, bytes: &[u8]) -> Option<u64> {
        let word = bytes.get(usize::from(self.at)..)?.first_chunk()?;
        Some(u64::from_le_bytes(*word) & self.mask)
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Front {
    /// Bytes that a packet must have.
    len: usize,
    /// Bits that decide how it is parsed, and their values.
    fixed: [(Word, u64); MOST_FIXED],
    fixed_words: usize,
    key: [Word; MOST_WORDS],
    /// Words of the key.
    pub(crate) words: usize,
}

impl Front {
    /// The front of a packet that begins with these bytes, in specialised code with a flow key.
    pub(crate) fn learn(code: &Code, bytes: &[u8]) -> Option<Self> {
        let reads_error = code.slots.iter().any(|bound| bound.slot == Slot::ParserError);
        if code.reads_payload || reads_error {
            return None;
        }
        let program: &Program = &code.program;
        let mut path = Path {
            program,
            bytes: bytes.get(..bytes.len().min(code.limits.window))?,
            at: 0,
            end: 0,
            headers: vec![None; program.headers.len()],
            next: vec![0; program.stacks.len()],
            vars: BTreeMap::new(),
            fixed: [0; REACH],
        };
        let parser = program.stages.first()?.parser.and_then(|id| program.parsers.get(id.index()));
        if let Some(parser) = parser {
            path.walk(&parser.states, code.limits.parser_states)?;
        }
        let mut key = [0; REACH];
        for part in &code.flow_parts {
            path.needs(part, &mut key)?;
        }
        key.iter_mut().zip(&path.fixed).for_each(|(key, fixed)| *key &= !fixed);
        let len = path.end.div_ceil(8).max(8);
        let mut front =
            Self { len, fixed: Default::default(), fixed_words: 0, key: Default::default(), words: 0 };
        for word in words(&path.fixed, len) {
            *front.fixed.get_mut(front.fixed_words)? = (word, word.of(bytes)?);
            front.fixed_words += 1;
        }
        for word in words(&key, len) {
            *front.key.get_mut(front.words)? = word;
            front.words += 1;
        }
        front.takes(bytes).then_some(front)
    }

    /// Whether packets that begin with these bytes are parsed as the one was that it was learned from.
    #[inline(always)]
    pub(crate) fn takes(&self, bytes: &[u8]) -> bool {
        bytes.len() >= self.len
            && self.fixed.iter().take(self.fixed_words).all(|(word, value)| word.of(bytes) == Some(*value))
    }

    /// Sets the words of a key: those that its flow key follows from, then zeros. For a packet that it takes.
    #[inline(always)]
    pub(crate) fn lay_out(&self, bytes: &[u8], key: &mut [u64; MOST_WORDS]) {
        *key = [0; MOST_WORDS];
        for (to, word) in key.iter_mut().zip(&self.key).take(self.words) {
            *to = word.of(bytes).unwrap_or(0);
        }
    }
}

/// Words that hold all bits of a mask, within so many bytes, of which there are at least eight.
fn words(mask: &Mask, len: usize) -> Vec<Word> {
    let mut words = vec![];
    let mut from = 0;
    while let Some(first) = (from..REACH).find(|i| mask.get(*i).is_some_and(|byte| *byte != 0)) {
        let at = first.min(len.saturating_sub(8));
        let mut word = [0; 8];
        let bytes = mask.iter().skip(at).enumerate().take(8);
        bytes.filter(|(i, _)| at + i >= from).for_each(|(i, byte)| word[i] = *byte);
        words.push(Word { at: at as u8, mask: u64::from_le_bytes(word) });
        from = at + 8;
    }
    words
}

/// A variable that the parser has set: its value, and the bits that it follows from.
struct Value {
    value: Constant,
    of: Mask,
}

/// The parser's way over a packet's bytes.
struct Path<'a> {
    program: &'a Program,
    bytes: &'a [u8],
    /// The parser's position, bits.
    at: usize,
    /// End of what it has read, bits.
    end: usize,
    /// First bits of the headers that it has extracted.
    headers: Vec<Option<usize>>,
    next: Vec<u32>,
    vars: BTreeMap<VarId, Value>,
    /// Bits that have decided its way.
    fixed: Mask,
}

impl Path<'_> {
    fn walk(&mut self, states: &[ParserState], most: u32) -> Option<()> {
        let mut target = Target::State(0);
        let mut count = 0;
        while let Target::State(i) = target {
            let Some(state) = states.get(i as usize) else { break };
            count += 1;
            if count > most {
                return None;
            }
            state.ops.iter().try_for_each(|op| self.op(op))?;
            target = match &state.next {
                Transition::To(target) => *target,
                Transition::Select(select) => {
                    let values: Option<Vec<_>> = select.on.iter().map(|value| self.decide(value)).collect();
                    let values = values?;
                    let mut to = None;
                    for case in &select.cases {
                        let is_in = |(set, value)| contains(set, value);
                        let all: Option<Vec<_>> = case.sets.iter().zip(&values).map(is_in).collect();
                        if all?.into_iter().all(|is_in| is_in) {
                            to = Some(case.to);
                            break;
                        }
                    }
                    to?
                }
            };
        }
        Some(())
    }

    fn op(&mut self, op: &ParserOp) -> Option<()> {
        match op {
            ParserOp::Extract(header, length) => {
                let length = match length {
                    Some(length) => self.decide(length)?.value.saturating_u64(),
                    None => 0,
                };
                let id = self.resolve(header)?;
                if matches!(self.program.headers.get(id.index())?.place, HeaderPlace::Member(_)) {
                    return None;
                }
                let start = self.at;
                for field in &self.program.header_type(id)?.fields {
                    let width = match field.ty {
                        FieldType::Scalar(ty) => ty.width(),
                        FieldType::Varbit(max) => {
                            u16::try_from(length).ok().filter(|bits| *bits <= max && bits % 8 == 0)?
                        }
                    };
                    self.advance(width.into())?;
                }
                *self.headers.get_mut(id.index())? = Some(start);
                if let HeaderRef::Next(stack) = header {
                    *self.next.get_mut(stack.index())? += 1;
                }
            }
            ParserOp::Advance(by) => {
                let by = usize::try_from(self.decide(by)?.value.saturating_u64()).ok()?;
                self.advance(by).filter(|()| by % 8 == 0)?;
            }
            ParserOp::Verify(condition, _) => {
                (!self.decide(condition)?.value.is_zero()).then_some(())?;
            }
            ParserOp::Do(stmt) => self.stmt(stmt)?,
        }
        Some(())
    }

    fn stmt(&mut self, stmt: &Stmt) -> Option<()> {
        match stmt {
            Stmt::Set(LValue::Var(id), value) => {
                let mut of = [0; REACH];
                self.needs(value, &mut of)?;
                let value = self.value(value)?;
                let ty = self.program.vars.get(id.index())?.ty;
                self.vars.insert(*id, Value { value: Constant::of(ty, &value.value), of });
                Some(())
            }
            Stmt::If(condition, yes, no) => {
                let body = if self.decide(condition)?.value.is_zero() { no } else { yes };
                body.iter().try_for_each(|stmt| self.stmt(stmt))
            }
            _ => None,
        }
    }

    fn advance(&mut self, by: usize) -> Option<()> {
        self.at = self.at.checked_add(by).filter(|at| *at <= 8 * self.bytes.len())?;
        self.end = self.end.max(self.at);
        Some(())
    }

    /// The value of an expression that decides how the parser goes on.
    fn decide(&mut self, expr: &Expr) -> Option<Constant> {
        let mut of = [0; REACH];
        self.needs(expr, &mut of)?;
        self.fixed.iter_mut().zip(of).for_each(|(fixed, of)| *fixed |= of);
        self.value(expr)
    }

    /// Adds the bits that an expression's value follows from, beyond those that decide the parser's way.
    fn needs(&mut self, expr: &Expr, to: &mut Mask) -> Option<()> {
        match expr {
            Expr::Const(_) | Expr::Valid(_) => Some(()),
            Expr::Var(id) => match self.vars.get(id) {
                Some(var) => {
                    to.iter_mut().zip(&var.of).for_each(|(to, of)| *to |= of);
                    Some(())
                }
                None => match self.program.vars.get(id.index())?.slot {
                    None | Some(Slot::IngressPort | Slot::Flags) => Some(()),
                    Some(_) => None,
                },
            },
            Expr::Field(..) | Expr::Lookahead(..) => match self.place(expr)? {
                Some((at, ty)) => self.add(at, ty.width().into(), to),
                None => Some(()),
            },
            Expr::Slice(of, hi, lo) => match &**of {
                Expr::Field(..) | Expr::Lookahead(..) => match self.place(of)? {
                    Some((at, ty)) => {
                        let first = ty.width().checked_sub(hi.checked_add(1)?)?;
                        self.add(at + usize::from(first), usize::from(hi.checked_sub(*lo)?) + 1, to)
                    }
                    None => Some(()),
                },
                _ => self.needs(of, to),
            },
            Expr::Unary(_, of) | Expr::Cast(_, of) => self.needs(of, to),
            Expr::Binary(_, of) => {
                self.needs(&of.0, to)?;
                self.needs(&of.1, to)
            }
            Expr::Mux(of) => {
                self.needs(&of.0, to)?;
                self.needs(&of.1, to)?;
                self.needs(&of.2, to)
            }
            Expr::Param(_) | Expr::LastIndex(_) | Expr::FieldLength(..) | Expr::Remaining => None,
        }
    }

    /// Adds bits of the packet.
    fn add(&mut self, at: usize, width: usize, to: &mut Mask) -> Option<()> {
        let end = at.checked_add(width)?;
        self.end = self.end.max(end);
        for bit in at..end {
            *to.get_mut(bit / 8)? |= 0x80 >> (bit % 8);
        }
        Some(())
    }

    fn value(&self, expr: &Expr) -> Option<Constant> {
        let part = |expr: &Expr| self.value(expr).map(|constant| Box::new(Expr::Const(constant)));
        let known = match expr {
            Expr::Const(constant) => return Some(constant.clone()),
            Expr::Var(id) => return self.var(*id),
            Expr::Field(..) | Expr::Lookahead(..) => {
                let (ty, value) = match self.place(expr)? {
                    Some((at, ty)) => (ty, bits::read(self.bytes, at, ty.width())?),
                    None => (self.field_type(expr)?, Bits::zero(1)),
                };
                return Some(Constant::of(ty, &value));
            }
            Expr::Valid(header) => {
                let id = self.resolve(header)?;
                return Some(Constant::bool(self.headers.get(id.index())?.is_some()));
            }
            Expr::Unary(op, of) => Expr::Unary(*op, part(of)?),
            Expr::Binary(op, of) => Expr::Binary(*op, Box::new((*part(&of.0)?, *part(&of.1)?))),
            Expr::Slice(of, hi, lo) => Expr::Slice(part(of)?, *hi, *lo),
            Expr::Mux(of) => Expr::Mux(Box::new((*part(&of.0)?, *part(&of.1)?, *part(&of.2)?))),
            Expr::Cast(ty, of) => Expr::Cast(*ty, part(of)?),
            Expr::Param(_) | Expr::LastIndex(_) | Expr::FieldLength(..) | Expr::Remaining => return None,
        };
        Known { vars: vec![] }.value(&known)
    }

    /// The value of a variable, which is zero unless the parser or the environment has set it.
    fn var(&self, id: VarId) -> Option<Constant> {
        let var = self.program.vars.get(id.index())?;
        match self.vars.get(&id) {
            Some(Value { value, .. }) => Some(value.clone()),
            None => var.slot.is_none().then(|| Constant::of(var.ty, &Bits::zero(1))),
        }
    }

    /// The first bit of a field or of what is looked ahead at, and its type; `Some(None)` for a field of a header that
    /// the packet does not have, which is zero.
    fn place(&self, expr: &Expr) -> Option<Option<(usize, Type)>> {
        match expr {
            Expr::Lookahead(ty, offset) => Some(Some((self.at.checked_add(*offset as usize)?, *ty))),
            Expr::Field(header, field) => {
                let id = self.resolve(header)?;
                let Some(start) = *self.headers.get(id.index())? else { return Some(None) };
                let mut at = start;
                for before in self.program.header_type(id)?.fields.iter().take((*field).into()) {
                    let FieldType::Scalar(ty) = before.ty else { return None };
                    at += usize::from(ty.width());
                }
                Some(Some((at, self.field_type(expr)?)))
            }
            _ => None,
        }
    }

    fn field_type(&self, expr: &Expr) -> Option<Type> {
        let Expr::Field(header, field) = expr else { return None };
        let id = self.resolve(header)?;
        match self.program.header_type(id)?.fields.get(usize::from(*field))?.ty {
            FieldType::Scalar(ty) => Some(ty),
            FieldType::Varbit(_) => None,
        }
    }

    /// The header that a reference means. Elements beyond their stack are errors of parsers.
    fn resolve(&self, header: &HeaderRef) -> Option<HeaderId> {
        let element = |stack: &StackId, index: u32| {
            let stack = self.program.stacks.get(stack.index())?;
            (index < stack.size).then(|| HeaderId(stack.first.0.saturating_add(index)))
        };
        match header {
            HeaderRef::Header(id) => Some(*id),
            HeaderRef::Next(stack) => element(stack, *self.next.get(stack.index())?),
            HeaderRef::Last(stack) => element(stack, self.next.get(stack.index())?.checked_sub(1)?),
            HeaderRef::Element(stack, index) => match &**index {
                Expr::Const(index) => element(stack, u32::try_from(index.value.saturating_u64()).ok()?),
                _ => None,
            },
        }
    }
}

/// Whether a set has a value, if that is known.
fn contains(set: &Keyset, value: &Constant) -> Option<bool> {
    let value = &value.value;
    match set {
        Keyset::Any => Some(true),
        Keyset::Value(wanted) => Some(*value == wanted.value),
        Keyset::Mask(wanted, mask) => Some(value.and(&mask.value) == wanted.value.and(&mask.value)),
        Keyset::Range(low, high) if !matches!(low.ty, Type::Int(_)) => {
            Some(low.value <= *value && *value <= high.value)
        }
        Keyset::Range(..) | Keyset::Set(_) => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn words_hold_all_bits_once() {
        let mut mask = [0; REACH];
        mask[3] = 0xf0;
        mask[9] = 0xff;
        mask[20..24].fill(0xff);
        let found = words(&mask, 24);
        let expected = [(3, 0x00ff_0000_0000_00f0), (16, 0xffff_ffff_0000_0000)];
        assert_eq!(found, expected.map(|(at, mask)| Word { at, mask }));
        // Those of a packet that ends soon begin earlier.
        mask[9] = 0;
        mask[20..24].fill(0);
        assert_eq!(words(&mask, 8), [Word { at: 0, mask: 0xf0 << 24 }]);
    }
}
