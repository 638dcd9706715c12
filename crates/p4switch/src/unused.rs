//! Objects that a program declares and its packets never reach.
//!
//! Lowering leaves them out, and controllers may address them all the same: they are added, so that each has its state.

use p4::info::proto::{CounterSpec, MeterSpec, P4DataTypeSpec, counter_spec, meter_spec};
use p4runtime_proto::P4Info;
use pipeline::Checked;
use pipeline::bits::MAX_WIDTH;
use pipeline::ir::{Counter, CounterKind, Meter, MeterUnit, Program, Register, Type, ValueSet};

/// The program with what it declares and never uses; as it is if that exceeds the pipeline's bounds.
pub(crate) fn added(checked: Checked, info: &P4Info) -> Checked {
    let mut program: Program = (*checked).clone();
    let before = objects(&program);
    counters(&mut program, info);
    meters(&mut program, info);
    registers(&mut program, info);
    value_sets(&mut program, info);
    match objects(&program) == before {
        true => checked,
        false => Checked::new(program).unwrap_or(checked),
    }
}

fn objects(program: &Program) -> usize {
    program.counters.len() + program.meters.len() + program.registers.len() + program.value_sets.len()
}

fn counters(program: &mut Program, info: &P4Info) {
    for counter in &info.counters {
        let name = counter.preamble.as_ref().map_or("", |preamble| &preamble.name);
        if program.counters.iter().any(|other| other.name == name) {
            continue;
        }
        let kind = match counter.spec.as_ref().map(CounterSpec::unit) {
            Some(counter_spec::Unit::Bytes) => CounterKind::Bytes,
            Some(counter_spec::Unit::Packets) => CounterKind::Packets,
            _ => CounterKind::Both,
        };
        program.counters.push(Counter { name: name.to_owned(), size: size(counter.size), kind });
    }
}

fn meters(program: &mut Program, info: &P4Info) {
    for meter in &info.meters {
        let name = meter.preamble.as_ref().map_or("", |preamble| &preamble.name);
        if program.meters.iter().any(|other| other.name == name) {
            continue;
        }
        let unit = match meter.spec.as_ref().map(MeterSpec::unit) {
            Some(meter_spec::Unit::Packets) => MeterUnit::Packets,
            _ => MeterUnit::Bytes,
        };
        program.meters.push(Meter { name: name.to_owned(), size: size(meter.size), unit });
    }
}

fn registers(program: &mut Program, info: &P4Info) {
    for register in &info.registers {
        let name = register.preamble.as_ref().map_or("", |preamble| &preamble.name);
        let known = program.registers.iter().any(|other| other.name == name);
        if let Some(ty) = register.type_spec.as_ref().and_then(number).filter(|_| !known) {
            let size = size(register.size.into());
            program.registers.push(Register { name: name.to_owned(), size, ty });
        }
    }
}

fn value_sets(program: &mut Program, info: &P4Info) {
    for set in &info.value_sets {
        let name = set.preamble.as_ref().map_or("", |preamble| &preamble.name);
        let known = program.value_sets.iter().any(|other| other.name == name);
        let types: Option<Vec<_>> =
            set.r#match.iter().map(|field| width(field.bitwidth).map(Type::Bit)).collect();
        if let Some(types) = types.filter(|_| !known) {
            program.value_sets.push(ValueSet { name: name.to_owned(), types, size: size(set.size.into()) });
        }
    }
}

fn size(given: i64) -> u32 {
    u32::try_from(given).unwrap_or(0)
}

fn width(given: i32) -> Option<u16> {
    u16::try_from(given).ok().filter(|width| (1..=MAX_WIDTH).contains(width))
}

/// A register's type, if it is plainly a number.
fn number(spec: &P4DataTypeSpec) -> Option<Type> {
    use p4::info::proto::p4_bitstring_like_type_spec::TypeSpec as Like;
    use p4::info::proto::p4_data_type_spec::TypeSpec;
    match spec.type_spec.as_ref()? {
        TypeSpec::Bool(_) => Some(Type::Bool),
        TypeSpec::Bitstring(like) => match like.type_spec.as_ref()? {
            Like::Bit(bit) => width(bit.bitwidth).map(Type::Bit),
            Like::Int(int) => width(int.bitwidth).map(Type::Int),
            Like::Varbit(_) => None,
        },
        _ => None,
    }
}
