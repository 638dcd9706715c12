//! Values of P4 types: of registers, and of digests.
//!
//! Controllers hand in the types: one may contain itself, and a list of names may belong to thousands of registers.
//! The parts of a value are therefore bounded, and names are shared.

use std::collections::HashMap;
use std::sync::Arc;

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
/// Most parts of a value; what lies beyond has no data.
const MOST_PARTS: usize = 4096;

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
    Enum(Arc<[String]>),
    /// An enumeration with a representation.
    EnumValue,
    /// `error`: names by the pipeline's numbers.
    Error(Arc<[String]>),
    /// Something that is not one number.
    Other,
}

impl Shape {
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

/// The types of a program.
#[derive(Debug)]
pub(crate) struct Types<'a> {
    info: Option<&'a P4TypeInfo>,
    errors: Arc<[String]>,
    /// Members of the enumerations that were asked for.
    members: HashMap<&'a str, Arc<[String]>>,
}

impl<'a> Types<'a> {
    pub(crate) fn new(info: &'a P4Info, program: &Program) -> Self {
        let standard = ErrorId::STANDARD.iter().map(|name| (*name).to_owned());
        Self {
            info: info.type_info.as_ref(),
            errors: standard.chain(program.errors.iter().cloned()).collect(),
            members: HashMap::new(),
        }
    }

    /// How numbers of a type are written; those without one are unsigned.
    pub(crate) fn shape(&mut self, spec: Option<&'a P4DataTypeSpec>) -> Shape {
        spec.map_or(Shape::Unsigned, |spec| self.shape_of(spec, DEEPEST))
    }

    fn shape_of(&mut self, spec: &'a P4DataTypeSpec, depth: usize) -> Shape {
        use proto::p4_bitstring_like_type_spec::TypeSpec as Like;
        use proto::p4_new_type_spec::Representation;
        match &spec.type_spec {
            Some(TypeSpec::Bitstring(like)) => match &like.type_spec {
                Some(Like::Int(_)) => Shape::Signed,
                Some(Like::Varbit(_)) => Shape::Other,
                _ => Shape::Unsigned,
            },
            Some(TypeSpec::Bool(_)) => Shape::Bool,
            Some(TypeSpec::Error(_)) => Shape::Error(Arc::clone(&self.errors)),
            Some(TypeSpec::Enum(named)) => self.members(&named.name).map_or(Shape::Other, Shape::Enum),
            Some(TypeSpec::SerializableEnum(_)) => Shape::EnumValue,
            Some(TypeSpec::NewType(named)) if depth > 0 => {
                let ty = self.info.and_then(|info| info.new_types.get(&named.name));
                match ty.and_then(|ty| ty.representation.as_ref()) {
                    Some(Representation::OriginalType(spec)) => self.shape_of(spec, depth - 1),
                    Some(Representation::TranslatedType(_)) => Shape::Unsigned,
                    None => Shape::Other,
                }
            }
            _ => Shape::Other,
        }
    }

    /// Puts a value of a type together from its numbers, which stand in the order of the type's parts.
    pub(crate) fn assemble(&mut self, spec: Option<&'a P4DataTypeSpec>, values: &[Constant]) -> P4Data {
        let mut assembly = Assembly { types: self, values: values.iter(), parts: 0 };
        spec.map_or_else(P4Data::default, |spec| assembly.value(spec, DEEPEST))
    }

    fn members(&mut self, name: &'a str) -> Option<Arc<[String]>> {
        let ty = self.info?.enums.get(name)?;
        let members = || ty.members.iter().map(|member| member.name.clone()).collect();
        Some(Arc::clone(self.members.entry(name).or_insert_with(members)))
    }
}

struct Assembly<'t, 'a, 'v> {
    types: &'t mut Types<'a>,
    values: std::slice::Iter<'v, Constant>,
    /// Parts of the value so far.
    parts: usize,
}

impl<'a> Assembly<'_, 'a, '_> {
    fn value(&mut self, spec: &'a P4DataTypeSpec, depth: usize) -> P4Data {
        self.parts += 1;
        let info = self.types.info;
        let members = match &spec.type_spec {
            _ if depth == 0 || self.values.len() == 0 || self.is_full() => return P4Data::default(),
            Some(TypeSpec::Struct(named)) => info.and_then(|info| info.structs.get(&named.name)).map(|ty| {
                let specs = ty.members.iter().filter_map(|member| member.type_spec.as_ref());
                Data::Struct(self.members(specs, depth))
            }),
            Some(TypeSpec::Tuple(ty)) => Some(Data::Tuple(self.members(ty.members.iter(), depth))),
            Some(TypeSpec::Header(named)) => info.and_then(|info| info.headers.get(&named.name)).map(|ty| {
                let fields = self.values.by_ref().take(ty.members.len());
                let bitstrings = fields.map(|value| bytestring::of(&value.value)).collect();
                Data::Header(P4Header { is_valid: true, bitstrings })
            }),
            _ => {
                let shape = self.types.shape(Some(spec));
                return self.values.next().map_or_else(P4Data::default, |value| shape.write(&value.value));
            }
        };
        P4Data { data: members }
    }

    fn members(&mut self, specs: impl Iterator<Item = &'a P4DataTypeSpec>, depth: usize) -> P4StructLike {
        let mut members = Vec::new();
        for spec in specs {
            if self.is_full() {
                break;
            }
            members.push(self.value(spec, depth - 1));
        }
        P4StructLike { members }
    }

    fn is_full(&self) -> bool {
        self.parts > MOST_PARTS
    }
}

#[cfg(test)]
mod tests {
    use p4runtime_proto::v1::p4_data;
    use pipeline::ir::Type;
    use proto::{P4NamedType, P4StructTypeSpec, p4_struct_type_spec};

    use super::*;

    fn named(name: &str) -> P4NamedType {
        P4NamedType { name: name.into() }
    }

    #[test]
    fn a_structure_that_contains_itself_twice_has_few_parts() {
        let own = P4DataTypeSpec { type_spec: Some(TypeSpec::Struct(named("s"))) };
        let member =
            |name: &str| p4_struct_type_spec::Member { name: name.into(), type_spec: Some(own.clone()) };
        let ty = P4StructTypeSpec { members: vec![member("a"), member("b")], ..Default::default() };
        let mut types = P4TypeInfo::default();
        types.structs.insert("s".into(), ty);
        let info = P4Info { type_info: Some(types), ..Default::default() };
        let values = [Constant { ty: Type::Bit(8), value: Bits::from_u64(8, 1) }];
        let value = Types::new(&info, &Program::new("p")).assemble(Some(&own), &values);
        fn parts(value: &P4Data) -> usize {
            match &value.data {
                Some(p4_data::Data::Struct(ty)) => 1 + ty.members.iter().map(parts).sum::<usize>(),
                _ => 1,
            }
        }
        assert_eq!(parts(&value), MOST_PARTS + 1);
    }

    #[test]
    fn enumerations_share_their_names() {
        let mut types = P4TypeInfo::default();
        let member = proto::p4_enum_type_spec::Member { name: "red".into(), ..Default::default() };
        types
            .enums
            .insert("colour".into(), proto::P4EnumTypeSpec { members: vec![member], ..Default::default() });
        let info = P4Info { type_info: Some(types), ..Default::default() };
        let spec = P4DataTypeSpec { type_spec: Some(TypeSpec::Enum(named("colour"))) };
        let mut types = Types::new(&info, &Program::new("p"));
        let (Shape::Enum(first), Shape::Enum(second)) = (types.shape(Some(&spec)), types.shape(Some(&spec)))
        else {
            panic!("not an enumeration");
        };
        assert!(Arc::ptr_eq(&first, &second) && first.iter().eq(["red"]));
    }
}
