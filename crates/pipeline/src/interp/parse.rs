//! Running a parser.

use super::lookup::contains;
use super::pass::{Data, Pass};
use super::{Dropped, Event, Flow, Machine};
use crate::bits::{self, Bits};
use crate::ir::{
    ErrorId, Expr, FieldType, HeaderRef, Keyset, ParserOp, ParserState, Select, Target, Transition,
};

impl Machine<'_> {
    /// Makes the headers of a pass from its bytes.
    pub(super) fn parse(&mut self, pass: &mut Pass) {
        pass.error = ErrorId::NONE;
        let Some(parser) = pass.parser.and_then(|id| Some((id, self.program.parsers.get(id.index())?)))
        else {
            return;
        };
        let (id, parser) = parser;
        pass.window = pass.data.payload.bytes(self.received);
        pass.window.truncate(self.limits.window);
        pass.at = 0;
        let mut at = Target::State(0);
        let mut states = 0;
        while let Target::State(i) = at {
            let Some(state) = parser.states.get(i as usize) else { break };
            states += 1;
            if states > self.limits.parser_states || self.step().is_some() {
                self.parser_error(pass, ErrorId::TIMEOUT);
                break;
            }
            self.event(|| Event::State(id, i));
            match self.state(state, pass) {
                Ok(next) => at = next,
                Err(error) => {
                    self.parser_error(pass, error);
                    break;
                }
            }
        }
        let consumed = u32::try_from(pass.at / 8).unwrap_or(u32::MAX);
        (pass.window, pass.at, pass.fault) = (vec![], 0, None);
        pass.data.payload.skip(consumed);
        pass.fill_error(self.program);
    }

    fn state(&mut self, state: &ParserState, pass: &mut Pass) -> Result<Target, ErrorId> {
        for op in &state.ops {
            if self.steps(op.steps()).is_some() {
                return Err(ErrorId::TIMEOUT);
            }
            match op {
                ParserOp::Extract(header, length) => self.extract(header, length.as_ref(), pass)?,
                ParserOp::Advance(by) => {
                    let by = self.eval(by, pass, &[]).value.low_u64();
                    fault(pass)?;
                    self.advance(by, pass)?;
                }
                ParserOp::Verify(condition, error) => {
                    let holds = self.holds(condition, pass, &[]);
                    fault(pass)?;
                    if !holds {
                        return Err(*error);
                    }
                }
                ParserOp::Do(stmt) => {
                    // Statements of parsers neither send nor drop, except for a missing extern.
                    if let Flow::Drop(Dropped::NoExtern(_)) = self.stmt(stmt, pass, &[]) {
                        return Err(ErrorId::INVALID_ARGUMENT);
                    }
                    fault(pass)?;
                }
            }
        }
        match &state.next {
            Transition::To(target) => Ok(*target),
            Transition::Select(select) => self.select(select, pass),
        }
    }

    fn select(&mut self, select: &Select, pass: &mut Pass) -> Result<Target, ErrorId> {
        let values: Vec<Bits> = select.on.iter().map(|value| self.eval(value, pass, &[]).value).collect();
        fault(pass)?;
        let is_in = |set: &Keyset, value: Option<&Bits>| match (set, value) {
            (Keyset::Any, _) => true,
            (Keyset::Value(wanted), Some(value)) => *value == wanted.value,
            (Keyset::Mask(wanted, mask), Some(value)) => {
                value.and(&mask.value) == wanted.value.and(&mask.value)
            }
            (Keyset::Range(low, high), Some(value)) => match low.ty {
                crate::ir::Type::Int(_) => {
                    low.value.cmp_signed(value).is_le() && value.cmp_signed(&high.value).is_le()
                }
                _ => low.value <= *value && *value <= high.value,
            },
            (Keyset::Set(set), _) => self.state.values(*set).iter().any(|tuple| contains(tuple, &values)),
            _ => false,
        };
        let case = select
            .cases
            .iter()
            .find(|case| case.sets.iter().enumerate().all(|(i, set)| is_in(set, values.get(i))));
        case.map(|case| case.to).ok_or(ErrorId::NO_MATCH)
    }

    fn advance(&mut self, by: u64, pass: &mut Pass) -> Result<(), ErrorId> {
        if !by.is_multiple_of(8) {
            return Err(ErrorId::INVALID_ARGUMENT);
        }
        let at = usize::try_from(by).ok().and_then(|by| pass.at.checked_add(by));
        pass.at = at.filter(|at| *at <= pass.window.len() * 8).ok_or(ErrorId::PACKET_TOO_SHORT)?;
        Ok(())
    }

    fn extract(&mut self, header: &HeaderRef, length: Option<&Expr>, pass: &mut Pass) -> Result<(), ErrorId> {
        let length = length.map(|length| self.eval(length, pass, &[]).value.low_u64());
        fault(pass)?;
        let id = self.resolve(header, pass, &[]);
        fault(pass)?;
        // An element beyond its stack: nothing to fill.
        let id = id.ok_or(ErrorId::STACK_OUT_OF_BOUNDS)?;
        let Some(ty) = self.program.header_type(id) else { return Ok(()) };
        let mut at = pass.at;
        let mut fields = Vec::with_capacity(ty.fields.len());
        for field in &ty.fields {
            let width = match field.ty {
                FieldType::Scalar(ty) => ty.width(),
                FieldType::Varbit(max) => {
                    let length = length.unwrap_or(0);
                    if !length.is_multiple_of(8) {
                        return Err(ErrorId::INVALID_ARGUMENT);
                    }
                    u16::try_from(length).ok().filter(|len| *len <= max).ok_or(ErrorId::HEADER_TOO_SHORT)?
                }
            };
            fields.push(bits::read(&pass.window, at, width).ok_or(ErrorId::PACKET_TOO_SHORT)?);
            at += usize::from(width);
        }
        let start = pass.at / 8;
        pass.at = at;
        self.event(|| Event::Extract(id, start, at / 8 - start));
        pass.data
            .headers
            .iter_mut()
            .skip(id.index())
            .take(1)
            .for_each(|header| header.fields.clone_from(&fields));
        self.set_valid(id, true, pass);
        if let HeaderRef::Next(stack) = header {
            pass.data.next.iter_mut().skip(stack.index()).take(1).for_each(|next| *next += 1);
        }
        Ok(())
    }

    /// Deparses and parses again; variables stay.
    pub(super) fn reparse(&mut self, pass: &mut Pass) -> Flow {
        let form = match self.deparse(pass) {
            Ok(form) => form,
            Err(reason) => return Flow::Drop(reason),
        };
        let vars = std::mem::take(&mut pass.data.vars);
        pass.data = Data { vars, ..Data::new(self.program, form.clone()) };
        pass.original = form;
        self.parse(pass);
        Flow::Next
    }
}

/// The error that an expression met, if any.
fn fault(pass: &Pass) -> Result<(), ErrorId> {
    pass.fault.map_or(Ok(()), Err)
}
