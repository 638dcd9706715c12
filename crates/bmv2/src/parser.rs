//! Parser states, and the deparser.

use std::collections::HashMap;

use pipeline::bits::Bits;
use pipeline::ir::{
    self, Case, Constant, EmitRef, ErrorId, Expr, HeaderRef, Keyset, LValue, ParserOp, ParserState, Select,
    Stmt, Target, Transition, Type, ValueSetId,
};
use serde_json::Value;

use crate::document::{self, Operation, Parser, State};
use crate::operand::{self, bytes_of, name, small, typed};
use crate::refusal::{At, Refusal, Result};
use crate::storage::{Instance, Storage};
use crate::{Lower, Scope};

/// Members of a value set whose size is not known.
const DEFAULT_MEMBERS: u32 = 1024;

impl<'d> Lower<'d> {
    /// Lowers a parser.
    pub(crate) fn parser(&mut self, parser: &'d Parser) -> Result<ir::ParserId> {
        let first = parser.parse_states.iter().position(|state| state.name == parser.init_state);
        let first = first.ok_or_else(|| Refusal::unknown("state", &parser.init_state)).at("init_state")?;
        let mut list: Vec<&'d State> = parser.parse_states.iter().collect();
        // The pipeline's parsers start in their first state.
        list.swap(0, first);
        let mut numbers = HashMap::new();
        for (i, state) in list.iter().enumerate() {
            if numbers.insert(state.name.as_str(), i).is_some() {
                return Err(Refusal::of(format!("two states are called {}", state.name)));
            }
        }
        self.scope = Scope::Parser;
        let mut states = Vec::new();
        for state in list {
            let lowered = self.state(state, &numbers).within(|| format!("state {}", state.name))?;
            states.push(lowered);
        }
        self.scope = Scope::Control;
        self.unused_value_sets()?;
        Ok(self.out.add_parser(&crate::storage::printable(&parser.name), states))
    }

    fn state(&mut self, state: &'d State, numbers: &HashMap<&str, usize>) -> Result<ParserState> {
        let mut ops = Vec::new();
        for (i, operation) in state.parser_ops.iter().enumerate() {
            let place = || format!("operation {} `{}`", i + 1, operation.op);
            let op = self.parser_op(operation).within(place)?;
            self.take(1)?;
            ops.extend(std::mem::take(&mut self.code).into_iter().map(ParserOp::Do));
            ops.extend(op);
        }
        let next = self.transition(state, numbers)?;
        ops.extend(std::mem::take(&mut self.code).into_iter().map(ParserOp::Do));
        Ok(ParserState { name: crate::storage::printable(&state.name), ops, next })
    }

    /// Lowers an operation: statements in front of it, and the operation itself if it is none.
    fn parser_op(&mut self, operation: &Operation) -> Result<Option<ParserOp>> {
        let op = match (operation.op.as_str(), operation.parameters.as_slice()) {
            ("extract", [header]) => self.extract(header, None)?,
            ("extract_VL", [header, length]) => self.extract(header, Some(length))?,
            ("set", [to, value]) => {
                self.assign_operand(to, value)?;
                return Ok(None);
            }
            ("verify", [condition, error]) => {
                let condition = self.condition(condition)?;
                let number =
                    small(error).map_err(|_| Refusal::unsupported("an error that is not a constant is"))?;
                let error = self.errors.get(number);
                ParserOp::Verify(condition, error.ok_or_else(|| Refusal::unknown("error", number))?)
            }
            ("shift", [bytes]) => {
                let bytes = bytes.as_u64().map_or_else(|| small(bytes), Ok)?;
                ParserOp::Advance(Expr::bit(32, bytes.saturating_mul(8).min(u32::MAX.into())))
            }
            ("advance", [bits]) => ParserOp::Advance(self.number(bits)?.of(Type::Bit(32))?),
            ("primitive", [primitive]) => {
                let inner: Operation = serde_json::from_value(primitive.clone())
                    .map_err(|error| Refusal::of(error.to_string()))?;
                self.primitive(&inner.op, &inner.parameters).within(|| format!("`{}`", inner.op))?;
                return Ok(None);
            }
            (_, parameters) => {
                let text = format!("this operation with {} parameters is", parameters.len());
                return Err(Refusal::unsupported(text));
            }
        };
        Ok(Some(op))
    }

    fn extract(&mut self, operand: &Value, length: Option<&Value>) -> Result<ParserOp> {
        let (kind, value) = typed(operand)?;
        let (header, ty) = match kind {
            "regular" => {
                let wanted = value.as_str().unwrap_or_default();
                let Instance { ty, storage } = self.header(wanted)?.clone();
                match storage {
                    Storage::Header(id) => (HeaderRef::Header(id), ty),
                    Storage::Metadata(_) => return Err(Refusal::unsupported("extracting metadata is")),
                }
            }
            "stack" => {
                let stack = value.as_str().unwrap_or_default();
                (HeaderRef::Next(self.stack(stack)?), self.stack_type(stack)?)
            }
            other => return Err(Refusal::unsupported(format!("extracting an operand of type {other} is"))),
        };
        let count = u16::try_from(self.field_count(ty)).unwrap_or(u16::MAX);
        let mut varies = false;
        for number in 0..count {
            varies |= self.field_type(ty, number)?.is_none();
        }
        let length = match (varies, length) {
            (true, Some(length)) => Some(self.number(length)?.of(Type::Bit(32))?),
            (true, None) => Some(Expr::bit(32, 0)),
            (false, _) => None,
        };
        Ok(ParserOp::Extract(header, length))
    }

    fn transition(&mut self, state: &'d State, numbers: &HashMap<&str, usize>) -> Result<Transition> {
        let mut keys = Vec::new();
        for (i, key) in state.transition_key.iter().enumerate() {
            keys.push(self.transition_key(key).within(|| format!("transition key {}", i + 1))?);
        }
        let mut cases = Vec::new();
        for (i, transition) in state.transitions.iter().enumerate() {
            self.take(keys.len() + 1)?;
            let case = self.case(transition, &keys, numbers).within(|| format!("transition {}", i + 1))?;
            cases.push(case);
        }
        let is_default = |case: &Case| case.sets.iter().all(|set| *set == Keyset::Any);
        Ok(match cases.first() {
            None if keys.is_empty() => Transition::To(Target::Accept),
            Some(first) if is_default(first) => Transition::To(first.to),
            _ => Transition::Select(Select { on: keys.into_iter().map(|(key, _)| key).collect(), cases }),
        })
    }

    /// A part of a state's key, with its width.
    fn transition_key(&mut self, key: &Value) -> Result<(Expr, u16)> {
        if let ("field", value) = typed(key)?
            && let Some([Value::String(header), Value::String(field)]) = value.as_array().map(Vec::as_slice)
            && field != "$valid$"
        {
            let width = self.field(header, field)?.ty.width();
            return Ok((self.number(key)?.of(Type::Bit(width))?, width));
        }
        if name(key, &["union_stack_field"]).is_ok() {
            return Err(Refusal::unsupported("stacks of unions are"));
        }
        let value = self.number(key)?.whole()?;
        let width = match &value {
            Expr::Lookahead(ty, _) | Expr::Cast(ty, _) => ty.width(),
            Expr::Const(constant) => constant.ty.width(),
            Expr::Field(HeaderRef::Last(stack), field) => {
                let ty = self.out.stack_type(*stack).and_then(|ty| ty.fields.get(usize::from(*field)));
                match ty.map(|field| field.ty) {
                    Some(ir::FieldType::Scalar(ty)) => ty.width(),
                    _ => return Err(Refusal::unsupported("this key is")),
                }
            }
            _ => return Err(Refusal::unsupported("this key is")),
        };
        Ok((value, width))
    }

    fn case(
        &mut self,
        transition: &document::Transition,
        keys: &[(Expr, u16)],
        numbers: &HashMap<&str, usize>,
    ) -> Result<Case> {
        let to = match &transition.next_state {
            None => Target::Accept,
            Some(state) => {
                let number = numbers.get(state.as_str()).ok_or_else(|| Refusal::unknown("state", state))?;
                Target::State(u32::try_from(*number).unwrap_or(u32::MAX))
            }
        };
        let value = transition.value.as_deref().unwrap_or_default();
        let kind =
            transition.kind.as_deref().unwrap_or(if value == "default" { "default" } else { "hexstr" });
        let sets = match kind {
            "default" => vec![Keyset::Any; keys.len()],
            "hexstr" => {
                let values = parts(value, keys)?;
                let masks = transition.mask.as_deref().map(|mask| parts(mask, keys)).transpose()?;
                let mut sets = Vec::new();
                for (i, (value, (_, width))) in values.into_iter().zip(keys).enumerate() {
                    let constant = |value| Constant { ty: Type::Bit(*width), value };
                    let mask = masks
                        .as_ref()
                        .and_then(|masks| masks.get(i))
                        .filter(|mask| **mask != Bits::ones(*width));
                    sets.push(match mask {
                        None => Keyset::Value(constant(value)),
                        Some(mask) if mask.is_zero() => Keyset::Any,
                        Some(mask) => Keyset::Mask(constant(value.and(mask)), constant(mask.clone())),
                    });
                }
                sets
            }
            "parse_vset" => {
                if transition.mask.is_some() {
                    return Err(Refusal::unsupported("a mask on a value set is"));
                }
                vec![Keyset::Set(self.value_set(value, keys)?)]
            }
            other => return Err(Refusal::unsupported(format!("a transition of type {other} is"))),
        };
        Ok(Case { sets, to })
    }

    fn value_set(&mut self, wanted: &str, keys: &[(Expr, u16)]) -> Result<ValueSetId> {
        self.take(self.document.parse_vsets.len())?;
        let declared = self.document.parse_vsets.iter().find(|set| set.name == wanted);
        let declared = declared.ok_or_else(|| Refusal::unknown("value set", wanted))?;
        let types: Vec<Type> = keys.iter().map(|(_, width)| Type::Bit(*width)).collect();
        let bits: u64 = keys.iter().map(|(_, width)| u64::from(*width)).sum();
        if bits != declared.compressed_bitwidth {
            return Err(Refusal::of(format!(
                "value set {wanted} has values of {} bits, and the key {bits}",
                declared.compressed_bitwidth
            )));
        }
        match self.value_sets.get(wanted).copied() {
            Some(id) if self.out.value_sets.get(id.index()).is_some_and(|set| set.types == types) => Ok(id),
            Some(_) => {
                Err(Refusal::unsupported(format!("value set {wanted} for keys of different types is")))
            }
            None => Ok(self.make_value_set(declared, types)),
        }
    }

    fn make_value_set(&mut self, declared: &'d document::ValueSet, types: Vec<Type>) -> ValueSetId {
        let size = self.info.and_then(|info| info.value_set_size(&declared.name)).unwrap_or(DEFAULT_MEMBERS);
        self.out.value_sets.push(ir::ValueSet { name: declared.name.clone(), types, size });
        let id = ValueSetId::at(self.out.value_sets.len() - 1);
        self.value_sets.insert(&declared.name, id);
        id
    }

    /// Controllers may fill value sets that no state uses.
    fn unused_value_sets(&mut self) -> Result<()> {
        for set in &self.document.parse_vsets {
            if !self.value_sets.contains_key(set.name.as_str()) {
                let width = operand::width(set.compressed_bitwidth, format_args!("value set {}", set.name))?;
                self.make_value_set(set, vec![Type::Bit(width)]);
            }
        }
        Ok(())
    }

    /// Lowers the deparser: headers in its order.
    pub(crate) fn deparser(&mut self, deparser: &document::Deparser) -> Result<Vec<Stmt>> {
        if let Some(primitive) = deparser.primitives.first() {
            return Err(Refusal::unsupported(format!("primitive `{}` here is", primitive.op)));
        }
        self.block(|lower| {
            for wanted in &deparser.order {
                match lower.header(wanted)?.storage {
                    Storage::Header(id) => lower.emit(Stmt::Emit(EmitRef::Header(HeaderRef::Header(id))))?,
                    Storage::Metadata(_) => return Err(Refusal::of(format!("{wanted} is metadata"))),
                }
            }
            Ok(())
        })
    }

    /// The numbers of parser errors in the document, where they differ from the pipeline's.
    pub(crate) fn renumber_error(&mut self, from: ir::VarId, to: ir::VarId) -> Result<()> {
        let ty = self.out.vars.get(to.index()).map_or(Type::Bit(32), |var| var.ty);
        let own = self.out.vars.get(from.index()).map_or(Type::Bit(32), |var| var.ty);
        let case = |(id, number): (ErrorId, u64)| {
            let value = Constant { ty, value: Bits::from_u64(ty.width(), number) };
            let set = Stmt::Set(LValue::Var(to), Expr::Const(value));
            (vec![Constant { ty: own, value: Bits::from_u64(own.width(), id.0.into()) }], vec![set])
        };
        let cases: Vec<_> = self.errors.renumbered().into_iter().map(case).collect();
        self.take(cases.len())?;
        self.emit(Stmt::Switch(Expr::Var(from), cases, vec![]))
    }
}

/// The parts of a transition's value: of each key as many whole bytes as it needs.
fn parts(text: &str, keys: &[(Expr, u16)]) -> Result<Vec<Bits>> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let bytes =
        bytes_of(digits).ok_or_else(|| Refusal::of(format!("{text:?} is no number in hexadecimal")))?;
    let total: usize = keys.iter().map(|(_, width)| usize::from(width.div_ceil(8))).sum();
    let extra = bytes.len().saturating_sub(total);
    if bytes.iter().take(extra).any(|byte| *byte != 0) {
        return Err(Refusal::of(format!("{text} has more than the {total} bytes of the key")));
    }
    let mut padded = vec![0; total.saturating_sub(bytes.len())];
    padded.extend(bytes.iter().skip(extra));
    let mut rest = padded.as_slice();
    let mut parts = Vec::new();
    for (_, width) in keys {
        let len = usize::from(width.div_ceil(8));
        let (part, behind) = rest.split_at_checked(len).unwrap_or((rest, &[]));
        rest = behind;
        let value = Bits::from_bytes(u16::try_from(len * 8).unwrap_or(u16::MAX), part);
        if value.resize(*width).resize(value.width()) != value {
            return Err(Refusal::of(format!("{text} does not fit into keys of these widths")));
        }
        parts.push(value.resize(*width));
    }
    Ok(parts)
}
