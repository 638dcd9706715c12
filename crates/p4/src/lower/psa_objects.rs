//! Extern objects of psa.p4.

use pipeline::ir::{self, HashKind, LValue, Stmt};

use super::Lower;
use super::objects::{Made, ObjectId};
use super::types::scalar;
use super::value::Val;
use crate::hir::{Call, Type};

impl<'h> Lower<'h> {
    /// Lowers a method of an object of psa.p4; `None` if it has no such method.
    pub(super) fn psa_method(
        &mut self,
        object: ObjectId,
        name: &str,
        call: &'h Call,
        result: &Type,
    ) -> Option<Val> {
        match (self.type_name(object), name, call.args.as_slice()) {
            ("Counter", "count", [index]) => {
                let index = self.unsigned(index);
                let counter = self.counter(object);
                self.emit(Stmt::Count(counter, index));
            }
            // Each hit counts by itself.
            ("DirectCounter", "count", []) => {}
            ("Meter", "execute", [index, ..]) => {
                let index = self.unsigned(index);
                let before = call.args.get(1).map(|color| self.number(color)).map(pipeline_color);
                let meter = self.meter(object);
                let color = self.variable("color", ir::Type::Bit(8));
                self.emit(Stmt::Meter(LValue::Var(color), meter, index, before));
                return Some(Val::Number(psa_color(color)));
            }
            ("DirectMeter", "execute", args) => {
                let before = args.first().map(|color| self.number(color)).map(pipeline_color);
                let made = self.objects.get(object.0).and_then(|object| object.made);
                let Some(Made::Direct(table)) = made else {
                    self.unsupported(call.span, "a direct meter that belongs to no table is");
                    return Some(Val::Nothing);
                };
                let color = self.variable("color", ir::Type::Bit(8));
                self.emit(Stmt::MeterEntry(LValue::Var(color), table, before));
                return Some(Val::Number(psa_color(color)));
            }
            ("Register", "read", [index]) => {
                let index = self.unsigned(index);
                let (Some(register), Some(ty)) = (self.register(object, call.span), scalar(result)) else {
                    return Some(Val::Nothing);
                };
                let value = self.variable("register", ty);
                self.emit(Stmt::RegisterRead(LValue::Var(value), register, index));
                return Some(Val::Number(ir::Expr::Var(value)));
            }
            ("Register", "write", [index, value]) => {
                let index = self.unsigned(index);
                let value = self.number(value);
                if let Some(register) = self.register(object, call.span) {
                    self.emit(Stmt::RegisterWrite(register, index, value));
                }
            }
            ("Hash", "get_hash", args) => {
                let kind = self.hash_arg(object, 0, call.span);
                let ty = scalar(result)?;
                let (base, data, max) = match args {
                    [data] => (None, data, None),
                    [base, data, max] => (Some(base), data, Some(max)),
                    _ => return None,
                };
                let items = self.data(data, false);
                let base = base.map(|base| self.unsigned_of(base, 64));
                let max = max.map(|max| self.unsigned_of(max, 64));
                let hash = self.variable("hash", ir::Type::Bit(64));
                self.emit(Stmt::Hash(LValue::Var(hash), kind, items));
                let mut value = ir::Expr::Var(hash);
                if let (Some(base), Some(max)) = (base, max) {
                    value = base.op(ir::BinOp::Add, value.op(ir::BinOp::Rem, max));
                }
                return Some(Val::Number(super::value::convert(value, ir::Type::Bit(64), ty)));
            }
            ("Random", "read", []) => {
                let ty = scalar(result)?;
                let bound = |lower: &mut Self, index| {
                    let value = lower.number_arg(object, index).unwrap_or(0);
                    ir::Expr::bit(ty.width(), value)
                };
                let (low, high) = (bound(self, 0), bound(self, 1));
                let value = self.variable("random", ir::Type::Bit(ty.width()));
                self.emit(Stmt::Random(LValue::Var(value), low, high));
                return Some(Val::Number(super::value::convert(
                    ir::Expr::Var(value),
                    ir::Type::Bit(ty.width()),
                    ty,
                )));
            }
            ("Digest", "pack", [data]) => {
                let name = self.objects.get(object.0).map(|object| object.name.clone());
                self.digest(name, data);
            }
            ("InternetChecksum", ..) => return self.internet_checksum(object, name, call),
            ("Checksum", ..) if self.hash_arg(object, 0, call.span) == HashKind::Csum16 => {
                let name = if name == "update" { "add" } else { name };
                return self.internet_checksum(object, name, call);
            }
            _ => return None,
        }
        Some(Val::Nothing)
    }

    /// A checksum object is the one's complement sum so far (RFC 1071).
    fn internet_checksum(&mut self, object: ObjectId, name: &str, call: &'h Call) -> Option<Val> {
        let sum = match self.objects.get(object.0).and_then(|object| object.made) {
            Some(Made::Sum(var)) => var,
            _ => {
                let var = self.variable("sum", ir::Type::Bit(16));
                self.make(object, Made::Sum(var));
                var
            }
        };
        let add = |lower: &mut Self, value: ir::Expr| {
            let sum_of = ir::Expr::Var(sum).op(ir::BinOp::OnesAdd, value);
            lower.emit(Stmt::Set(LValue::Var(sum), sum_of));
        };
        match (name, call.args.as_slice()) {
            ("clear", []) => self.emit(Stmt::Set(LValue::Var(sum), ir::Expr::bit(16, 0))),
            ("add" | "subtract", [data]) => {
                let items = self.data(data, false);
                let of_data = self.variable("checksum", ir::Type::Bit(16));
                self.emit(Stmt::Hash(LValue::Var(of_data), HashKind::Csum16, items));
                // The checksum is the sum's complement, which is what subtracting adds.
                let value = ir::Expr::Var(of_data);
                add(self, if name == "add" { complement(value) } else { value });
            }
            ("get", []) => return Some(Val::Number(complement(ir::Expr::Var(sum)))),
            ("get_state", []) => return Some(Val::Number(ir::Expr::Var(sum))),
            ("set_state", [state]) => {
                let state = self.number(state);
                self.emit(Stmt::Set(LValue::Var(sum), state));
            }
            _ => return None,
        }
        Some(Val::Nothing)
    }
}

fn complement(value: ir::Expr) -> ir::Expr {
    ir::Expr::Unary(ir::UnOp::Complement, Box::new(value))
}

/// Green, yellow and red are 0, 1 and 2 in the pipeline, and 1, 2 and 0 in psa.p4.
fn psa_color(color: ir::VarId) -> ir::Expr {
    let wide = ir::Expr::Var(color).cast(ir::Type::Bit(32));
    let is_red = wide.clone().equals(ir::Expr::bit(32, 2));
    let next = wide.op(ir::BinOp::Add, ir::Expr::bit(32, 1));
    ir::Expr::Mux(Box::new((is_red, ir::Expr::bit(32, 0), next)))
}

fn pipeline_color(color: ir::Expr) -> ir::Expr {
    let is_red = color.clone().equals(ir::Expr::bit(32, 0));
    let before = color.op(ir::BinOp::Sub, ir::Expr::bit(32, 1));
    ir::Expr::Mux(Box::new((is_red, ir::Expr::bit(32, 2), before))).cast(ir::Type::Bit(8))
}
