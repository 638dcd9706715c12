//! Functions and objects of core.p4 and v1model.p4 that programs call.

use num_traits::ToPrimitive;
use pipeline::ir::{self, HashKind, Item, LValue, Stmt};

use super::Lower;
use super::objects::{Argument, Made, ObjectId};
use super::storage::Store;
use super::types::{base, parts, scalar};
use super::v1model::Kind;
use super::value::Val;
use crate::hir::{Call, Expr, Type, Value};
use crate::source::Span;

impl<'h> Lower<'h> {
    /// Lowers a call of an extern function.
    pub(super) fn extern_function(&mut self, name: &str, call: &'h Call, result: &'h Type) -> Val {
        let args = call.args.as_slice();
        match (name, args) {
            ("verify", _) => self.verify(call),
            // Checked at compile time.
            ("static_assert", _) => return Val::Number(super::leave::truth(true)),
            ("mark_to_drop", []) => self.mark_to_drop(None),
            ("mark_to_drop", [standard]) => {
                let standard = self.place(standard);
                self.mark_to_drop(Some(standard));
            }
            ("hash", [result, algorithm, base, data, max]) => self.hash(result, algorithm, base, data, max),
            ("random", [result, low, high]) => {
                let (low, high) = (self.unsigned(low), self.unsigned(high));
                if let Some(place) = self.out_number(result) {
                    self.emit(Stmt::Random(place, low, high));
                }
            }
            ("digest", [_, data]) => self.digest(None, data),
            ("clone", [kind, session]) => self.clone_packet(kind, session, vec![]),
            ("clone3", [kind, session, data]) => {
                let carry = self.data_vars(data);
                self.clone_packet(kind, session, carry);
            }
            ("clone_preserving_field_list", [kind, session, list]) => {
                let carry = self.carried(list);
                self.clone_packet(kind, session, carry);
            }
            ("resubmit" | "recirculate", [data]) => {
                let carry = self.data_vars(data);
                self.request(again(name), None, carry);
            }
            ("resubmit_preserving_field_list" | "recirculate_preserving_field_list", [list]) => {
                let carry = self.carried(list);
                self.request(again(name), None, carry);
            }
            ("truncate", [length]) => {
                let length = self.unsigned_of(length, 32);
                self.emit(Stmt::Truncate(length));
            }
            ("assert" | "assume", [condition]) => {
                let condition = self.number(condition);
                let reason = self.reason("a condition of the program does not hold");
                let drop = vec![Stmt::Drop(reason)];
                self.emit(Stmt::If(super::value::not(condition), drop, vec![]));
            }
            // Packets write no logs: traces show them.
            ("log_msg", _) => {}
            ("verify_checksum", [condition, data, checksum, algorithm]) => {
                self.verify_checksum(condition, data, checksum, algorithm, false);
            }
            ("verify_checksum_with_payload", [condition, data, checksum, algorithm]) => {
                self.verify_checksum(condition, data, checksum, algorithm, true);
            }
            ("update_checksum", [condition, data, checksum, algorithm]) => {
                self.update_checksum(condition, data, checksum, algorithm, false);
            }
            ("update_checksum_with_payload", [condition, data, checksum, algorithm]) => {
                self.update_checksum(condition, data, checksum, algorithm, true);
            }
            _ => match self.psa_function(name, args) {
                Some(value) => return Val::Number(value),
                None => return self.foreign_function(name, call, result),
            },
        }
        Val::Nothing
    }

    /// Lowers a method of an object.
    pub(super) fn object_method(
        &mut self,
        object: ObjectId,
        name: &str,
        call: &'h Call,
        result: &Type,
    ) -> Val {
        if let Some(value) = self.psa_method(object, name, call, result) {
            return value;
        }
        match (self.type_name(object), name, call.args.as_slice()) {
            ("counter", "count", [index]) => {
                let index = self.unsigned(index);
                let counter = self.counter(object);
                self.emit(Stmt::Count(counter, index));
            }
            // Each hit counts by itself.
            ("direct_counter", "count", []) => {}
            ("meter", "execute_meter", [index, result]) => {
                let index = self.unsigned(index);
                let meter = self.meter(object);
                if let Some(place) = self.out_number(result) {
                    self.emit(Stmt::Meter(place, meter, index, None));
                }
            }
            ("direct_meter", "read", [result]) => {
                let place = self.out_number(result);
                match (self.objects.get(object.0).and_then(|object| object.made), place) {
                    (Some(Made::Direct(table)), Some(place)) => {
                        self.emit(Stmt::MeterEntry(place, table, None));
                    }
                    _ => self.unsupported(call.span, "a direct meter that belongs to no table is"),
                }
            }
            ("register", "read", [result, index]) => {
                let index = self.unsigned(index);
                let place = self.place(result);
                if let (Some(register), Store::Scalar(place)) = (self.register(object, call.span), place) {
                    self.emit(Stmt::RegisterRead(place, register, index));
                }
            }
            ("register", "write", [index, value]) => {
                let index = self.unsigned(index);
                let value = self.number(value);
                if let Some(register) = self.register(object, call.span) {
                    self.emit(Stmt::RegisterWrite(register, index, value));
                }
            }
            ("Checksum16", "get", [data]) => {
                let items = self.data(data, false);
                let var = self.variable("checksum", ir::Type::Bit(16));
                self.emit(Stmt::Hash(LValue::Var(var), HashKind::Csum16, items));
                return Val::Number(ir::Expr::Var(var));
            }
            (ty, ..) => {
                let text = format!("method `{name}` of `{ty}` is");
                self.unsupported(call.span, text);
            }
        }
        Val::Nothing
    }

    /// The place of a numeric result.
    fn out_number(&mut self, result: &'h Expr) -> Option<LValue> {
        match self.place(result) {
            Store::Scalar(place) => Some(place),
            _ => None,
        }
    }

    pub(super) fn counter(&mut self, object: ObjectId) -> ir::CounterId {
        if let Some(Made::Counter(counter)) = self.objects.get(object.0).and_then(|object| object.made) {
            return counter;
        }
        let name = self.objects.get(object.0).map_or(String::new(), |object| object.name.clone());
        let (size, kind) = (self.array_size(object, 0), self.counter_kind(object, 1));
        self.out.counters.push(ir::Counter { name, size, kind });
        let counter = ir::CounterId::at(self.out.counters.len() - 1);
        self.make(object, Made::Counter(counter));
        counter
    }

    pub(super) fn meter(&mut self, object: ObjectId) -> ir::MeterId {
        if let Some(Made::Meter(meter)) = self.objects.get(object.0).and_then(|object| object.made) {
            return meter;
        }
        let name = self.objects.get(object.0).map_or(String::new(), |object| object.name.clone());
        let (size, unit) = (self.array_size(object, 0), self.meter_unit(object, 1));
        self.out.meters.push(ir::Meter { name, size, unit });
        let meter = ir::MeterId::at(self.out.meters.len() - 1);
        self.make(object, Made::Meter(meter));
        meter
    }

    pub(super) fn register(&mut self, object: ObjectId, span: Span) -> Option<ir::RegisterId> {
        let of = self.objects.get(object.0)?;
        if let Some(Made::Register(register)) = of.made {
            return Some(register);
        }
        let name = of.name.clone();
        let element = match &of.instance.ty {
            Type::Extern(_, types) => types.first().and_then(scalar),
            _ => None,
        };
        let Some(ty) = element else {
            self.unsupported(span, "a register of structs or headers is");
            return None;
        };
        let starts_at_zero = of.args.get(1).is_none_or(|value| match value {
            Argument::Constant(Value::Integer(value)) => *value == num_bigint::BigInt::ZERO,
            Argument::Constant(Value::Bool(value)) => !value,
            _ => true,
        });
        if !starts_at_zero {
            self.unsupported(span, "a register with an initial value other than 0 is");
            return None;
        }
        let size = self.array_size(object, 0);
        self.out.registers.push(ir::Register { name, size, ty });
        let register = ir::RegisterId::at(self.out.registers.len() - 1);
        self.make(object, Made::Register(register));
        Some(register)
    }

    /// What a counter counts, from an argument of its constructor.
    pub(super) fn counter_kind(&self, object: ObjectId, index: usize) -> ir::CounterKind {
        match self.enum_arg(object, index).as_deref() {
            Some("packets" | "PACKETS") => ir::CounterKind::Packets,
            Some("bytes" | "BYTES") => ir::CounterKind::Bytes,
            _ => ir::CounterKind::Both,
        }
    }

    /// What a meter's rates are in.
    pub(super) fn meter_unit(&self, object: ObjectId, index: usize) -> ir::MeterUnit {
        match self.enum_arg(object, index).as_deref() {
            Some("bytes" | "BYTES") => ir::MeterUnit::Bytes,
            _ => ir::MeterUnit::Packets,
        }
    }

    fn enum_arg(&self, object: ObjectId, index: usize) -> Option<String> {
        let object = self.objects.get(object.0)?;
        let Argument::Constant(value) = object.args.get(index)? else { return None };
        member(&object.instance.args.get(index)?.ty, value)
    }

    /// A selector's hash.
    pub(super) fn hash_arg(&mut self, object: ObjectId, index: usize, span: Span) -> HashKind {
        let name = self.enum_arg(object, index).unwrap_or_default();
        self.hash_kind(&name, span)
    }

    fn hash_kind(&mut self, name: &str, span: Span) -> HashKind {
        match name {
            "crc32" | "CRC32" => HashKind::Crc32,
            "crc16" | "CRC16" => HashKind::Crc16,
            "identity" | "IDENTITY" => HashKind::Identity,
            "csum16" | "ONES_COMPLEMENT16" => HashKind::Csum16,
            "xor16" => HashKind::Xor16,
            // A control plane of BMv2 may set their polynomials; at first they are those of the standard hashes.
            "crc32_custom" => HashKind::Crc32,
            "crc16_custom" => HashKind::Crc16,
            // Any hash will do, and this one spreads well.
            "random" | "TARGET_DEFAULT" => HashKind::Toeplitz,
            _ => {
                self.unsupported(span, format!("hash algorithm `{name}` is"));
                HashKind::Crc32
            }
        }
    }

    fn algorithm(&mut self, expr: &'h Expr) -> HashKind {
        let name = self.compile_time(expr).and_then(|value| member(&expr.ty, &value)).unwrap_or_default();
        self.hash_kind(&name, expr.span)
    }

    /// Lowers data for a hash.
    pub(super) fn data(&mut self, data: &'h Expr, payload: bool) -> Vec<Item> {
        let value = self.value(data);
        let mut items = Vec::new();
        self.items(&value, &data.ty, data.span, &mut items);
        if payload {
            items.push(Item::Payload);
        }
        items
    }

    fn items(&mut self, value: &Val, ty: &Type, span: Span, items: &mut Vec<Item>) {
        if let Val::Store(Store::Varbit(header, field)) = value {
            items.push(Item::Value(ir::Expr::Field(header.clone(), *field)));
        } else if scalar(ty).is_some() {
            let number = self.as_number(value, ty);
            items.push(Item::Value(number));
        } else {
            for (i, ty) in parts(ty).iter().enumerate() {
                let part = self.val_part(value, i, span);
                self.items(&part, ty, span, items);
            }
        }
    }

    /// `result = base + hash(data) mod max`, or `base` if `max` is 0.
    fn hash(&mut self, result: &'h Expr, algorithm: &'h Expr, base: &'h Expr, data: &'h Expr, max: &'h Expr) {
        let kind = self.algorithm(algorithm);
        let items = self.data(data, false);
        let wide = ir::Type::Bit(64);
        let (base, max_value) = (self.unsigned_of(base, 64), self.unsigned_of(max, 64));
        let Some(place) = self.out_number(result) else { return };
        let hashed = self.variable("hash", wide);
        self.emit(Stmt::Hash(LValue::Var(hashed), kind, items));
        let known =
            self.compile_time(max).as_ref().and_then(super::statements::small).is_some_and(|max| max > 0);
        let rest = ir::Expr::Var(hashed).op(ir::BinOp::Rem, max_value.clone());
        let rest = match known {
            true => rest,
            false => {
                let zero = ir::Expr::bit(64, 0);
                ir::Expr::Mux(Box::new((max_value.equals(zero.clone()), zero, rest)))
            }
        };
        let sum = base.op(ir::BinOp::Add, rest);
        let ty = scalar(&result.ty).unwrap_or(wide);
        self.emit(Stmt::Set(place, super::value::convert(sum, wide, ty)));
    }

    fn verify_checksum(
        &mut self,
        condition: &'h Expr,
        data: &'h Expr,
        checksum: &'h Expr,
        algorithm: &'h Expr,
        payload: bool,
    ) {
        let condition = self.number(condition);
        let kind = self.algorithm(algorithm);
        let Some(ty) = scalar(&checksum.ty) else { return };
        let code = self.block(|lower| {
            let items = lower.data(data, payload);
            let expected = lower.variable("checksum", ir::Type::Bit(ty.width()));
            lower.emit(Stmt::Hash(LValue::Var(expected), kind, items));
            let found = lower.unsigned(checksum);
            let wrong = ir::Expr::Var(expected).op(ir::BinOp::Ne, found);
            if let Some(error) = lower.standard("checksum_error") {
                let set = Stmt::Set(LValue::Var(error), ir::Expr::bit(1, 1));
                lower.emit(Stmt::If(wrong, vec![set], vec![]));
            }
        });
        self.emit(Stmt::If(condition, code, vec![]));
    }

    fn update_checksum(
        &mut self,
        condition: &'h Expr,
        data: &'h Expr,
        checksum: &'h Expr,
        algorithm: &'h Expr,
        payload: bool,
    ) {
        let condition = self.number(condition);
        let kind = self.algorithm(algorithm);
        let code = self.block(|lower| {
            let items = lower.data(data, payload);
            if let Some(place) = lower.out_number(checksum) {
                lower.emit(Stmt::Hash(place, kind, items));
            }
        });
        self.emit(Stmt::If(condition, code, vec![]));
    }

    /// Lowers data for the control plane. Without a name, a digest has that of its type, as in v1model.
    pub(super) fn digest(&mut self, name: Option<String>, data: &'h Expr) {
        let value = self.value(data);
        let mut list = Vec::new();
        self.flatten(&value, &data.ty, data.span, &mut list);
        let (values, types): (Vec<_>, Vec<_>) = list.into_iter().unzip();
        let name = name.unwrap_or_else(|| match base(&data.ty) {
            Type::Struct(composite) | Type::Header(composite) => composite.name.clone(),
            _ => format!("digest_{}", self.out.digests.len()),
        });
        let found = self.out.digests.iter().position(|digest| digest.name == name);
        let id = found.unwrap_or_else(|| {
            self.out.digests.push(ir::Digest { name, types });
            self.out.digests.len() - 1
        });
        self.emit(Stmt::Digest(ir::DigestId::at(id), values));
    }

    fn clone_packet(&mut self, kind: &'h Expr, session: &'h Expr, carry: Vec<ir::VarId>) {
        let member = self.compile_time(kind).and_then(|value| member(&kind.ty, &value));
        let kind = match member.as_deref() {
            Some("I2E") => Kind::CloneIngress,
            Some("E2E") => Kind::CloneEgress,
            _ => {
                self.unsupported(kind.span, "a kind of clone that is not a constant is");
                return;
            }
        };
        let session = self.unsigned_of(session, 32);
        self.request(kind, Some(session), carry);
    }

    /// The variables that a list names, whose values stay with a packet.
    fn data_vars(&mut self, data: &'h Expr) -> Vec<ir::VarId> {
        fn collect(lower: &Lower<'_>, value: &Val, vars: &mut Vec<ir::VarId>) {
            match value {
                Val::Store(store) => vars.extend(lower.vars_of(store)),
                Val::Number(ir::Expr::Var(var)) => vars.push(*var),
                Val::Parts(list) => list.iter().for_each(|value| collect(lower, value, vars)),
                Val::Number(_) | Val::Invalid | Val::Nothing => {}
            }
        }
        let value = self.value(data);
        let mut vars = Vec::new();
        collect(self, &value, &mut vars);
        // The environment fills these in anew.
        vars.retain(|var| self.out.vars.get(var.index()).is_some_and(|var| var.slot.is_none()));
        vars
    }

    fn carried(&mut self, list: &'h Expr) -> Vec<ir::VarId> {
        match self.compile_time(list) {
            Some(index) => self.field_list(&index),
            None => {
                self.unsupported(list.span, "a field list that is not a constant is");
                Vec::new()
            }
        }
    }
}

fn again(name: &str) -> Kind {
    if name.starts_with("resubmit") { Kind::Resubmit } else { Kind::Recirculate }
}

/// Name of an enumeration's member.
fn member(ty: &Type, value: &Value) -> Option<String> {
    let (Type::Enum(of), Value::Integer(value)) = (base(ty), value) else { return None };
    match &of.representation {
        None => of.members.get(value.to_usize()?).map(|(name, ..)| name.clone()),
        Some(_) => of.members.iter().find(|(_, v, _)| v == value).map(|(name, ..)| name.clone()),
    }
}
