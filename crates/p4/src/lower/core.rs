//! core.p4: packets as parsers and deparsers see them, and `verify`.

use pipeline::ir::{self, EmitRef, ParserOp};

use super::storage::Store;
use super::types::{ERROR_WIDTH, base, parts, scalar};
use super::value::Val;
use super::{Binding, Lower, Scope};
use crate::hir::{Call, Expr, ExprKind, Type, Value};
use crate::source::Span;

impl<'h> Lower<'h> {
    /// Lowers a method of an extern object.
    pub(super) fn method(&mut self, object: &'h Expr, name: &str, call: &'h Call, result: &Type) -> Val {
        if let ExprKind::Var(var) = &object.kind
            && matches!(self.bindings.get(var), Some(Binding::Packet))
        {
            return self.packet_method(name, call, result);
        }
        let Some(object) = self.object(object) else {
            self.unsupported(call.span, format!("`{name}` of this object is"));
            return Val::Nothing;
        };
        self.object_method(object, name, call, result)
    }

    fn packet_method(&mut self, name: &str, call: &'h Call, result: &Type) -> Val {
        match (name, call.args.as_slice()) {
            ("extract", [header]) => self.extract(header, None, call),
            ("extract", [header, length]) => self.extract(header, Some(length), call),
            ("advance", [bits]) => {
                let bits = self.unsigned_of(bits, 32);
                self.operation(ParserOp::Advance(bits), call.span);
            }
            ("lookahead", _) => {
                if self.scope != Scope::Parser {
                    self.unsupported(call.span, "`lookahead` outside of a parser is");
                }
                let ty = call.type_args.first().unwrap_or(result);
                let value = lookahead(ty, &mut 0);
                // Also without a use of the result: a packet may be too short for it.
                return if matches!(result, Type::Void) { self.save(value, ty, call.span) } else { value };
            }
            ("length", _) => return Val::Number(ir::Expr::Var(self.packet_length())),
            ("emit", [value]) => {
                if self.scope != Scope::Deparser {
                    self.unsupported(call.span, "`emit` outside of a deparser is");
                    return Val::Nothing;
                }
                let lowered = self.value(value);
                self.emit_value(lowered, &value.ty, value.span);
            }
            _ => self.unsupported(call.span, format!("method `{name}` of a packet is")),
        }
        Val::Nothing
    }

    fn extract(&mut self, header: &'h Expr, length: Option<&'h Expr>, call: &'h Call) {
        if matches!(header.kind, ExprKind::Absent) {
            let bits = call.type_args.first().map_or(0, |ty| self.packet_bits(ty));
            let bits = ir::Expr::bit(32, u64::try_from(bits).unwrap_or(u64::MAX));
            return self.operation(ParserOp::Advance(bits), call.span);
        }
        let place = self.place(header);
        let Store::Header(reference, ty) = place else {
            self.unsupported(header.span, "extracting this is");
            return;
        };
        let varies = ty.fields.iter().any(|field| matches!(base(&field.ty), Type::Varbit(_)));
        let length = match (length, varies) {
            (Some(length), true) => Some(self.unsigned_of(length, 32)),
            (None, true) => Some(ir::Expr::bit(32, 0)),
            (_, false) => None,
        };
        self.operation(ParserOp::Extract(reference, length), call.span);
    }

    fn emit_value(&mut self, value: Val, ty: &Type, span: Span) {
        match value {
            Val::Store(Store::Header(header, _)) => self.emit(ir::Stmt::Emit(EmitRef::Header(header))),
            Val::Store(Store::Stack(stack, _)) => self.emit(ir::Stmt::Emit(EmitRef::Stack(stack))),
            Val::Store(Store::Union(union, _)) => self.emit(ir::Stmt::Emit(EmitRef::Union(union))),
            Val::Store(Store::Parts(list)) => {
                for (store, ty) in list.into_iter().zip(parts(ty)) {
                    self.emit_value(Val::Store(store), &ty, span);
                }
            }
            Val::Parts(list) if matches!(base(ty), Type::Header(_)) => {
                let saved = self.save(Val::Parts(list), ty, span);
                self.emit_value(saved, ty, span);
            }
            Val::Parts(list) => {
                for (value, ty) in list.into_iter().zip(parts(ty)) {
                    self.emit_value(value, &ty, span);
                }
            }
            Val::Invalid | Val::Nothing | Val::Store(_) => {}
            Val::Number(_) => self.unsupported(span, "emitting what is not a header is"),
        }
    }

    /// Lowers `verify(condition, error)`.
    pub(super) fn verify(&mut self, call: &'h Call) {
        let [condition, error] = call.args.as_slice() else { return };
        let condition = self.number(condition);
        if let Some(Value::Error(error)) = self.compile_time(error) {
            let error = self.error_id(&error);
            return self.operation(ParserOp::Verify(condition, error), call.span);
        }
        // The pipeline's operation has a fixed error: one for each that the value may be.
        let value = self.number(error);
        let errors = ir::ErrorId::STANDARD.len() + self.out.errors.len();
        for id in (1..errors).map(ir::ErrorId::at) {
            let other = value.clone().op(ir::BinOp::Ne, ir::Expr::bit(ERROR_WIDTH, id.0.into()));
            let holds = condition.clone().op(ir::BinOp::LogicOr, other);
            self.operation(ParserOp::Verify(holds, id), call.span);
        }
        self.operation(ParserOp::Verify(condition, ir::ErrorId::NONE), call.span);
    }
}

/// The bits ahead as a value of a type.
fn lookahead(ty: &Type, offset: &mut u32) -> Val {
    match scalar(ty) {
        Some(number) => {
            let value = ir::Expr::Lookahead(number, *offset);
            *offset += u32::from(number.width());
            Val::Number(value)
        }
        None => Val::Parts(parts(ty).iter().map(|ty| lookahead(ty, offset)).collect()),
    }
}
