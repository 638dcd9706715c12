//! Values of P4 types: of registers, and of digests.

use p4::info::proto;
use p4runtime_proto::P4Info;
use p4runtime_proto::v1::{P4Data, P4Header, P4StructLike, p4_data::Data};
use pipeline::bits::Bits;
use pipeline::ir::{Constant, ErrorId, Program};
use proto::p4_data_type_spec::TypeSpec;
use proto::{P4DataTypeSpec, P4TypeInfo};

use crate::{Failure, bytestring};

/// Deepest nesting of types.
const DEEPEST: usize = 64;

/// How a number is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `bit<>`.
    Unsigned,
    /// `int<>`.
    Signed,
    /// `bool`.
    Bool,
    /// An enumeration without a representation: its members by position.
    Enum(Vec<String>),
    /// An enumeration with a representation.
    EnumValue,
    /// `error`: names by the pipeline's numbers.
    Error(Vec<String>),
    /// Something that is not one number.
    Other,
}

impl Shape {
    /// How numbers of a type are written.
    pub(crate) fn of(spec: Option<&P4DataTypeSpec>, info: &P4Info, program: &Program) -> Self {
        let types = info.type_info.clone().unwrap_or_default();
        let errors = errors(program);
        spec.map_or(Shape::Unsigned, |spec| shape(spec, &types, &errors, DEEPEST))
    }

    /// Writes a number.
    pub(crate) fn write(&self, value: &Bits) -> P4Data {
        let name = |names: &[String]| {
            let at = usize::try_from(value.saturating_u64()).unwrap_or(usize::MAX);
            names.get(at).cloned().unwrap_or_else(|| value.saturating_u64().to_string())
        };
        let data = match self {
            Shape::Unsigned | Shape::Other => Data::Bitstring(bytestring::of(value)),
            Shape::Signed => Data::Bitstring(bytestring::of_signed(value)),
            Shape::Bool => Data::Bool(!value.is_zero()),
            Shape::Enum(members) => Data::Enum(name(members)),
            Shape::EnumValue => Data::EnumValue(bytestring::of(value)),
            Shape::Error(members) => Data::Error(name(members)),
        };
        P4Data { data: Some(data) }
    }

    /// Reads a number of `width` bits.
    pub(crate) fn read(&self, data: &P4Data, width: u16) -> Result<Bits, Failure> {
        let named = |names: &[String], name: &str| {
            let at = names.iter().position(|other| other == name);
            let at = at.ok_or_else(|| {
                Failure::invalid(format!("unknown member {name} (expected one of {})", names.join(", ")))
            })?;
            Ok(Bits::from_u64(width, at as u64))
        };
        match (self, &data.data) {
            (Shape::Unsigned, Some(Data::Bitstring(bytes))) => bytestring::unsigned(bytes, width),
            (Shape::Signed, Some(Data::Bitstring(bytes))) => bytestring::signed(bytes, width),
            (Shape::Bool, Some(Data::Bool(value))) => Ok(Bits::from_bool(*value).resize(width)),
            (Shape::Enum(names), Some(Data::Enum(name))) => named(names, name),
            (Shape::EnumValue, Some(Data::EnumValue(bytes))) => bytestring::unsigned(bytes, width),
            (Shape::Error(names), Some(Data::Error(name))) => named(names, name),
            _ => Err(Failure::invalid(format!("the data is not {}", self.name()))),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Shape::Unsigned | Shape::Signed => "a bitstring",
            Shape::Bool => "a bool",
            Shape::Enum(_) => "a member of an enum",
            Shape::EnumValue => "an enum's value",
            Shape::Error(_) => "an error",
            Shape::Other => "a number",
        }
    }
}

fn errors(program: &Program) -> Vec<String> {
    let standard = ErrorId::STANDARD.iter().map(|name| (*name).to_owned());
    standard.chain(program.errors.iter().cloned()).collect()
}

fn shape(spec: &P4DataTypeSpec, types: &P4TypeInfo, errors: &[String], depth: usize) -> Shape {
    use proto::p4_bitstring_like_type_spec::TypeSpec as Like;
    use proto::p4_new_type_spec::Representation;
    match &spec.type_spec {
        Some(TypeSpec::Bitstring(like)) => match &like.type_spec {
            Some(Like::Int(_)) => Shape::Signed,
            Some(Like::Varbit(_)) => Shape::Other,
            _ => Shape::Unsigned,
        },
        Some(TypeSpec::Bool(_)) => Shape::Bool,
        Some(TypeSpec::Error(_)) => Shape::Error(errors.to_vec()),
        Some(TypeSpec::Enum(named)) => match types.enums.get(&named.name) {
            Some(ty) => Shape::Enum(ty.members.iter().map(|member| member.name.clone()).collect()),
            None => Shape::Other,
        },
        Some(TypeSpec::SerializableEnum(_)) => Shape::EnumValue,
        Some(TypeSpec::NewType(named)) if depth > 0 => {
            match types.new_types.get(&named.name).and_then(|ty| ty.representation.as_ref()) {
                Some(Representation::OriginalType(spec)) => shape(spec, types, errors, depth - 1),
                Some(Representation::TranslatedType(_)) => Shape::Unsigned,
                None => Shape::Other,
            }
        }
        _ => Shape::Other,
    }
}

/// Puts a value of a type together from its numbers, which stand in the order of the type's parts.
pub(crate) fn assemble(
    spec: Option<&P4DataTypeSpec>,
    info: &P4Info,
    program: &Program,
    values: &[Constant],
) -> P4Data {
    let empty = P4TypeInfo::default();
    let types = info.type_info.as_ref().unwrap_or(&empty);
    let mut assembly = Assembly { types, program, values: values.iter() };
    match spec {
        Some(spec) => assembly.value(spec, DEEPEST),
        None => P4Data::default(),
    }
}

struct Assembly<'a> {
    types: &'a P4TypeInfo,
    program: &'a Program,
    values: std::slice::Iter<'a, Constant>,
}

impl Assembly<'_> {
    fn value(&mut self, spec: &P4DataTypeSpec, depth: usize) -> P4Data {
        let types = self.types;
        let members = match &spec.type_spec {
            _ if depth == 0 || self.values.len() == 0 => return P4Data::default(),
            Some(TypeSpec::Struct(named)) => types.structs.get(&named.name).map(|ty| {
                let specs = ty.members.iter().filter_map(|member| member.type_spec.as_ref());
                Data::Struct(self.members(specs, depth))
            }),
            Some(TypeSpec::Tuple(ty)) => Some(Data::Tuple(self.members(ty.members.iter(), depth))),
            Some(TypeSpec::Header(named)) => types.headers.get(&named.name).map(|ty| {
                let fields = self.values.by_ref().take(ty.members.len());
                let bitstrings = fields.map(|value| bytestring::of(&value.value)).collect();
                Data::Header(P4Header { is_valid: true, bitstrings })
            }),
            _ => {
                let shape = shape(spec, types, &errors(self.program), DEEPEST);
                return self.values.next().map_or_else(P4Data::default, |value| shape.write(&value.value));
            }
        };
        P4Data { data: members }
    }

    fn members<'s>(&mut self, specs: impl Iterator<Item = &'s P4DataTypeSpec>, depth: usize) -> P4StructLike {
        P4StructLike { members: specs.map(|spec| self.value(spec, depth - 1)).collect() }
    }
}
