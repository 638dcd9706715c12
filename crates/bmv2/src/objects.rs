//! Arrays of counters, meters and registers, lists of fields, and calculations.

use pipeline::bits::MAX_WIDTH;
use pipeline::ir::{
    Counter, CounterId, CounterKind, Digest, DigestId, Expr, HashKind, HeaderRef, Item, Meter, MeterId,
    MeterUnit, Register, RegisterId, Type, VarId,
};
use serde_json::Value;

use crate::Lower;
use crate::document::FieldList;
use crate::expression::HeaderOperand;
use crate::operand::{self, typed, unsigned};
use crate::refusal::{At, Refusal, Result};

fn size(given: u64) -> u32 {
    u32::try_from(given).unwrap_or(u32::MAX)
}

impl<'d> Lower<'d> {
    /// Makes the arrays that packets index; direct ones belong to their tables.
    pub(crate) fn arrays(&mut self) -> Result<()> {
        let document = self.document;
        for counter in document.counter_arrays.iter().filter(|counter| !counter.is_direct) {
            let kind = self.info.and_then(|info| info.counter(&counter.name)).unwrap_or(CounterKind::Both);
            let cells = size(counter.size.unwrap_or(0));
            self.out.counters.push(Counter { name: counter.name.clone(), size: cells, kind });
            self.counters.insert(&counter.name, CounterId::at(self.out.counters.len() - 1));
        }
        for meter in document.meter_arrays.iter().filter(|meter| !meter.is_direct) {
            let unit = unit(&meter.unit).within(|| format!("meter array {}", meter.name))?;
            let cells = size(meter.size.unwrap_or(0));
            self.out.meters.push(Meter { name: meter.name.clone(), size: cells, unit });
            self.meters.insert(&meter.name, MeterId::at(self.out.meters.len() - 1));
        }
        for register in &document.register_arrays {
            let width = u16::try_from(register.bitwidth).ok().filter(|width| (1..=MAX_WIDTH).contains(width));
            let width = width.ok_or_else(|| {
                let (name, bits) = (&register.name, register.bitwidth);
                Refusal::of(format!(
                    "register array {name}: cells of {bits} bits; 1 to {MAX_WIDTH} are supported"
                ))
            })?;
            let (name, ty) = (register.name.clone(), Type::Bit(width));
            self.out.registers.push(Register { name, size: size(register.size), ty });
            self.registers.insert(&register.name, RegisterId::at(self.out.registers.len() - 1));
        }
        if let Some(object) = document.extern_instances.first() {
            return Err(Refusal::unsupported(format!(
                "extern instance {}: objects of other targets are",
                object.name
            )));
        }
        Ok(())
    }

    /// The input of a calculation.
    pub(crate) fn calculation(&mut self, name: &str) -> Result<(HashKind, Vec<Item>)> {
        let calculation = self.calculations.get(name).copied();
        let calculation = calculation.ok_or_else(|| Refusal::unknown("calculation", name))?;
        let place = || format!("calculation {name}");
        let kind = hash_kind(&calculation.algo).within(place)?;
        let items = self.items(&calculation.input).within(place)?;
        Ok((kind, items))
    }

    /// A list of bits.
    pub(crate) fn items(&mut self, list: &[Value]) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        for operand in list {
            self.take(1)?;
            match typed(operand)? {
                ("payload", _) => items.push(Item::Payload),
                ("hexstr", value) => {
                    let bits = operand.get("bitwidth").and_then(Value::as_u64);
                    let bits = bits.ok_or_else(|| Refusal::of("a constant has no `bitwidth`"))?;
                    let width = operand::width(bits, "a constant")?;
                    let value = unsigned(value.as_str().unwrap_or_default(), width)?;
                    let ty = Type::Bit(width);
                    items.push(Item::Value(Expr::Const(pipeline::ir::Constant { ty, value })));
                }
                ("header", _) => match self.header_operand(operand)? {
                    HeaderOperand::Header(header, ty) => self.header_items(&header, ty, &mut items)?,
                    HeaderOperand::Metadata(_) => {
                        return Err(Refusal::unsupported("hashing all of metadata is"));
                    }
                },
                ("field", value) => {
                    let (header, field) = crate::operand::pair(value)?;
                    items.push(Item::Value(self.field_or_varbit(header, field)?));
                }
                _ => {
                    let number = self.number(operand)?;
                    items.push(Item::Value(number.whole()?));
                }
            }
        }
        Ok(items)
    }

    fn header_items(&mut self, header: &HeaderRef, ty: &str, items: &mut Vec<Item>) -> Result<()> {
        let count = self.field_count(ty);
        self.take(count)?;
        let fields = (0..u16::try_from(count).unwrap_or(u16::MAX)).map(|at| Expr::Field(header.clone(), at));
        items.extend(fields.map(Item::Value));
        Ok(())
    }

    /// A field; a variable one has no value other than in lists.
    fn field_or_varbit(&mut self, header: &str, field: &str) -> Result<Expr> {
        let instance = self.header(header)?;
        if let crate::storage::Storage::Header(id) = instance.storage
            && field != "$valid$"
        {
            let number = self.field_number(instance.ty, field)?;
            return Ok(Expr::Field(HeaderRef::Header(id), number));
        }
        match field {
            "$valid$" => {
                self.number(&serde_json::json!({"type": "field", "value": [header, field]}))?.whole()
            }
            _ => Ok(self.field(header, field)?.value),
        }
    }

    /// The variables of a field list, which stay with a packet. The environment fills some in anew.
    pub(crate) fn carried(&mut self, id: u64) -> Result<Vec<VarId>> {
        let Some(list) = self.field_lists.get(&id).copied() else {
            return if id == 0 { Ok(Vec::new()) } else { Err(Refusal::unknown("field list", id)) };
        };
        let mut vars = Vec::new();
        for element in &list.elements {
            self.take(1)?;
            let found = self.carried_vars(element).within(|| format!("field list {}", list.name))?;
            vars.extend(found);
        }
        vars.retain(|var| self.out.vars.get(var.index()).is_some_and(|var| var.slot.is_none()));
        Ok(vars)
    }

    fn carried_vars(&mut self, element: &Value) -> Result<Vec<VarId>> {
        match typed(element)? {
            ("field", value) => {
                let (header, field) = crate::operand::pair(value)?;
                Ok(match self.field_or_varbit(header, field)? {
                    Expr::Var(var) => vec![var],
                    _ => Vec::new(),
                })
            }
            ("header", _) => match self.header_operand(element)? {
                HeaderOperand::Metadata(name) => match &self.header(name)?.storage {
                    crate::storage::Storage::Metadata(vars) => {
                        let vars = vars.clone();
                        self.take(vars.len())?;
                        self.used.extend(vars.iter().copied());
                        Ok(vars)
                    }
                    crate::storage::Storage::Header(_) => Ok(Vec::new()),
                },
                HeaderOperand::Header(..) => Ok(Vec::new()),
            },
            _ => Ok(Vec::new()),
        }
    }

    /// The digest of a learn list, with the values to send.
    pub(crate) fn digest(&mut self, id: u64) -> Result<(DigestId, Vec<Expr>)> {
        let list: &FieldList =
            self.learn_lists.get(&id).copied().ok_or_else(|| Refusal::unknown("learn list", id))?;
        let mut values = Vec::new();
        let mut types = Vec::new();
        for element in &list.elements {
            let number = self.number(element).within(|| format!("learn list {}", list.name))?;
            let value = number.whole()?;
            types.push(match &value {
                Expr::Const(constant) => constant.ty,
                other => pipeline::validate::expr_type(&self.out, other).unwrap_or(Type::Bit(1)),
            });
            values.push(value);
        }
        let made = match self.digests.get(&id) {
            Some(made) => *made,
            None => {
                self.out.digests.push(Digest { name: list.name.clone(), types });
                let made = DigestId::at(self.out.digests.len() - 1);
                self.digests.insert(id, made);
                made
            }
        };
        Ok((made, values))
    }
}

/// What a meter's rates are in.
pub(crate) fn unit(name: &str) -> Result<MeterUnit> {
    match name {
        "bytes" => Ok(MeterUnit::Bytes),
        "packets" => Ok(MeterUnit::Packets),
        _ => Err(Refusal::of(format!("meters of {name}; expected bytes or packets"))),
    }
}

/// The pipeline's hash of an algorithm, as the P4 front end has it.
pub(crate) fn hash_kind(name: &str) -> Result<HashKind> {
    Ok(match name {
        "crc32" => HashKind::Crc32,
        "crc16" => HashKind::Crc16,
        "identity" => HashKind::Identity,
        "csum16" => HashKind::Csum16,
        "xor16" => HashKind::Xor16,
        // A control plane of BMv2 may set their polynomials; at first they are those of the standard hashes.
        "crc32_custom" => HashKind::Crc32,
        "crc16_custom" => HashKind::Crc16,
        // Any hash will do, and this one spreads well.
        "random" => HashKind::Toeplitz,
        _ => return Err(Refusal::unsupported(format!("hash algorithm {name} is"))),
    })
}
