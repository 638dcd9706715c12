//! Types: their descriptions, and what controllers see of their values.

use num_bigint::{BigInt, Sign};
use num_traits::ToPrimitive;

use super::annotations::{Annotations, find, number, tokens, unquoted};
use super::proto::p4_bitstring_like_type_spec::TypeSpec as Bits;
use super::proto::p4_data_type_spec::TypeSpec;
use super::proto::p4_new_type_spec::Representation;
use super::proto::p4_new_type_translation::{SdnString, SdnType};
use super::proto::{
    P4BitTypeSpec, P4BitstringLikeTypeSpec, P4BoolType, P4DataTypeSpec, P4EnumTypeSpec, P4ErrorType,
    P4ErrorTypeSpec, P4HeaderStackTypeSpec, P4HeaderTypeSpec, P4HeaderUnionStackTypeSpec,
    P4HeaderUnionTypeSpec, P4IntTypeSpec, P4NamedType, P4NewTypeSpec, P4NewTypeTranslation,
    P4SerializableEnumTypeSpec, P4StructTypeSpec, P4TupleTypeSpec, P4TypeInfo, P4VarbitTypeSpec,
    p4_enum_type_spec, p4_header_type_spec, p4_header_union_type_spec, p4_serializable_enum_type_spec,
    p4_struct_type_spec,
};
use crate::hir::{Annotation, Composite, Enum, NewType, Type, Value};
use crate::instantiate::{MOST_NAME, full_name, name_annotation, own_name};

/// Most types in types.
const MOST_DEPTH: usize = 64;
/// Most descriptions, and most fields of a header: small programs can declare large types.
const MOST_PARTS: usize = 1 << 16;

/// Descriptions of the types that objects of a program refer to.
pub(super) struct Types<'p> {
    /// Members of `error`.
    errors: &'p [String],
    info: P4TypeInfo,
    depth: usize,
    parts: usize,
    /// Whether a description was left out because of its size.
    pub(super) too_large: bool,
}

impl<'p> Types<'p> {
    /// No descriptions yet.
    pub(super) fn new(errors: &'p [String]) -> Self {
        Self { errors, info: P4TypeInfo::default(), depth: 0, parts: 0, too_large: false }
    }

    /// The descriptions.
    pub(super) fn finish(self) -> P4TypeInfo {
        self.info
    }

    /// Describes a type and those that it refers to.
    pub(super) fn spec(&mut self, ty: &Type) -> P4DataTypeSpec {
        P4DataTypeSpec { type_spec: self.type_spec(ty) }
    }

    /// Describes a type, and returns its name if it is one that the keyword `type` declares.
    pub(super) fn new_type(&mut self, ty: &Type) -> Option<P4NamedType> {
        self.type_spec(ty);
        if let Type::New(new) = ty { Some(P4NamedType { name: new.name.clone() }) } else { None }
    }

    fn type_spec(&mut self, ty: &Type) -> Option<TypeSpec> {
        self.parts += 1;
        if self.depth >= MOST_DEPTH || self.parts > MOST_PARTS {
            self.too_large = true;
            return None;
        }
        self.depth += 1;
        let spec = self.bounded_type_spec(ty);
        self.depth -= 1;
        spec
    }

    fn bounded_type_spec(&mut self, ty: &Type) -> Option<TypeSpec> {
        Some(match ty {
            Type::Bool => TypeSpec::Bool(P4BoolType {}),
            Type::Bit(_) | Type::Int(_) | Type::Varbit(_) => TypeSpec::Bitstring(bits(ty)),
            Type::Error => {
                let members = self.errors;
                self.info.error.get_or_insert_with(|| P4ErrorTypeSpec { members: members.to_vec() });
                TypeSpec::Error(P4ErrorType {})
            }
            Type::Enum(ty) if ty.representation.is_some() => {
                TypeSpec::SerializableEnum(self.serializable_enum(ty))
            }
            Type::Enum(ty) => TypeSpec::Enum(self.plain_enum(ty)),
            Type::New(ty) => TypeSpec::NewType(self.new_type_spec(ty)),
            Type::Struct(ty) => TypeSpec::Struct(self.struct_type(ty)),
            Type::Header(ty) => TypeSpec::Header(self.header(ty)),
            Type::Union(ty) => TypeSpec::HeaderUnion(self.union(ty)),
            Type::Stack(element, size) => {
                let size = i32::try_from(*size).unwrap_or(i32::MAX);
                match &**element {
                    Type::Header(ty) => {
                        TypeSpec::HeaderStack(P4HeaderStackTypeSpec { header: Some(self.header(ty)), size })
                    }
                    Type::Union(ty) => TypeSpec::HeaderUnionStack(P4HeaderUnionStackTypeSpec {
                        header_union: Some(self.union(ty)),
                        size,
                    }),
                    _ => return None,
                }
            }
            Type::Tuple(members) => {
                let members = members.iter().map(|member| self.spec(member)).collect();
                TypeSpec::Tuple(P4TupleTypeSpec { members })
            }
            // Not of values that a controller can see.
            Type::Void
            | Type::Integer
            | Type::String
            | Type::MatchKind
            | Type::List(_)
            | Type::Extern(..)
            | Type::Parser(_)
            | Type::Control(_)
            | Type::Abstract(_)
            | Type::Package(_)
            | Type::Applied(_)
            | Type::ActionRun(_) => return None,
        })
    }

    fn plain_enum(&mut self, ty: &Enum) -> P4NamedType {
        let name = type_name(&ty.annotations, &ty.name);
        self.info.enums.entry(name.clone()).or_insert_with(|| P4EnumTypeSpec {
            members: ty
                .members
                .iter()
                .map(|(name, _, annotations)| p4_enum_type_spec::Member {
                    name: type_name(annotations, name),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        });
        P4NamedType { name }
    }

    fn serializable_enum(&mut self, ty: &Enum) -> P4NamedType {
        let name = type_name(&ty.annotations, &ty.name);
        let width = ty.representation.as_ref().map_or(0, width);
        self.info.serializable_enums.entry(name.clone()).or_insert_with(|| P4SerializableEnumTypeSpec {
            underlying_type: Some(P4BitTypeSpec { bitwidth: width }),
            members: ty
                .members
                .iter()
                .map(|(name, value, annotations)| p4_serializable_enum_type_spec::Member {
                    name: type_name(annotations, name),
                    value: padded(value, width),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        });
        P4NamedType { name }
    }

    fn new_type_spec(&mut self, ty: &NewType) -> P4NamedType {
        let named = P4NamedType { name: ty.name.clone() };
        if self.info.new_types.contains_key(&ty.name) {
            return named;
        }
        let mut base = &ty.base;
        while let Type::New(inner) = base {
            base = &inner.base;
        }
        let original = self.spec(base);
        let annotations = Annotations::of(&ty.annotations, &[TRANSLATION]);
        let representation = match translation(&ty.annotations) {
            Some(translation) => Representation::TranslatedType(translation),
            None => Representation::OriginalType(original),
        };
        let spec = P4NewTypeSpec {
            representation: Some(representation),
            annotations: annotations.texts,
            structured_annotations: annotations.structured,
            ..Default::default()
        };
        self.info.new_types.insert(ty.name.clone(), spec);
        named
    }

    fn struct_type(&mut self, ty: &Composite) -> P4NamedType {
        let name = type_name(&ty.annotations, &ty.name);
        if !self.info.structs.contains_key(&name) {
            let member = |field: &crate::hir::Field, this: &mut Self| p4_struct_type_spec::Member {
                name: type_name(&field.annotations, &field.name),
                type_spec: Some(this.spec(&field.ty)),
            };
            let members = ty.fields.iter().map(|field| member(field, self)).collect();
            self.info.structs.insert(name.clone(), P4StructTypeSpec { members, ..Default::default() });
        }
        P4NamedType { name }
    }

    fn header(&mut self, ty: &Composite) -> P4NamedType {
        let name = type_name(&ty.annotations, &ty.name);
        if !self.info.headers.contains_key(&name) {
            let fields = flatten(ty);
            self.parts += fields.as_ref().map_or(MOST_PARTS, Vec::len);
            self.too_large |= self.parts > MOST_PARTS;
            let fields = fields.filter(|_| !self.too_large).unwrap_or_default().into_iter();
            let members = fields
                .map(|field| p4_header_type_spec::Member {
                    name: field.name,
                    type_spec: Some(bits(field.ty)),
                })
                .collect();
            self.info.headers.insert(name.clone(), P4HeaderTypeSpec { members, ..Default::default() });
        }
        P4NamedType { name }
    }

    fn union(&mut self, ty: &Composite) -> P4NamedType {
        let name = type_name(&ty.annotations, &ty.name);
        let mut members = Vec::new();
        for field in &ty.fields {
            if let Type::Header(header) = &field.ty {
                members.push(p4_header_union_type_spec::Member {
                    name: type_name(&field.annotations, &field.name),
                    header: Some(self.header(header)),
                });
            }
        }
        let spec = P4HeaderUnionTypeSpec { members, ..Default::default() };
        self.info.header_unions.entry(name.clone()).or_insert(spec);
        P4NamedType { name }
    }
}

/// A field of a header, those of structs in it among them.
pub(super) struct FlatField<'p> {
    /// Name; in a struct, behind the struct's.
    pub(super) name: String,
    /// Type, which is no struct.
    pub(super) ty: &'p Type,
    /// Annotations of the field and of the structs around it.
    pub(super) annotations: Vec<&'p Annotation>,
}

/// The fields of a header, with those of structs in place of the structs; `None` if there are too many.
pub(super) fn flatten(header: &Composite) -> Option<Vec<FlatField<'_>>> {
    let mut fields = Vec::new();
    flatten_into(header, "", &mut Vec::new(), &mut fields)?;
    Some(fields)
}

fn flatten_into<'p>(
    of: &'p Composite,
    prefix: &str,
    around: &mut Vec<&'p Annotation>,
    fields: &mut Vec<FlatField<'p>>,
) -> Option<()> {
    for field in &of.fields {
        let outer = around.len();
        around.extend(&field.annotations);
        if let Type::Struct(inner) = &field.ty {
            let prefix = format!("{prefix}{}.", field.name);
            if prefix.len() > MOST_NAME {
                return None;
            }
            flatten_into(inner, &prefix, around, fields)?;
        } else {
            let name = format!("{prefix}{}", type_name(&field.annotations, &field.name));
            fields.push(FlatField { name, ty: &field.ty, annotations: around.clone() });
            if fields.len() > MOST_PARTS {
                return None;
            }
        }
        around.truncate(outer);
    }
    Some(())
}

/// The name of a type, field or member: that of `@name`, or else the declared one.
/// Type arguments become part of the name: `pair_bit8_bool` for `pair<bit<8>, bool>`.
pub(super) fn type_name(annotations: &[Annotation], declared: &str) -> String {
    let name = full_name(None, own_name(annotations, declared));
    match name.split_once('<') {
        Some((generic, args)) if name_annotation(annotations).is_none() => {
            let args = args.replace(['<', '>', ' '], "").replace([',', '.'], "_");
            format!("{generic}_{args}")
        }
        _ => name,
    }
}

/// A type of bits; of a field in a header, that which the field's values have.
fn bits(ty: &Type) -> P4BitstringLikeTypeSpec {
    let size = |bits: u32| i32::try_from(bits).unwrap_or(i32::MAX);
    let spec = match ty {
        Type::Bit(width) => Bits::Bit(P4BitTypeSpec { bitwidth: size(*width) }),
        Type::Int(width) => Bits::Int(P4IntTypeSpec { bitwidth: size(*width) }),
        Type::Varbit(width) => Bits::Varbit(P4VarbitTypeSpec { max_bitwidth: size(*width) }),
        Type::New(new) => return bits(&new.base),
        _ => Bits::Bit(P4BitTypeSpec { bitwidth: width(ty) }),
    };
    P4BitstringLikeTypeSpec { type_spec: Some(spec), ..Default::default() }
}

const TRANSLATION: &str = "p4runtime_translation";

/// What `@p4runtime_translation(URI, TYPE)` says; the type is `string`, `bit<N>` or, as older programs have it, `N`.
fn translation(annotations: &[Annotation]) -> Option<P4NewTypeTranslation> {
    let tokens: Vec<&str> = tokens(find(annotations, TRANSLATION)?).iter().map(String::as_str).collect();
    let (uri, sdn_type) = match tokens.as_slice() {
        [uri, ",", "string"] => (uri, SdnType::SdnString(SdnString {})),
        [uri, ",", width] | [uri, ",", "bit", "<", width, ">"] => {
            (uri, SdnType::SdnBitwidth(number(width)?.to_i32()?))
        }
        _ => return None,
    };
    Some(P4NewTypeTranslation { uri: unquoted(uri)?.to_owned(), sdn_type: Some(sdn_type) })
}

/// Bits of a type's values as controllers see them; 0 for strings and what has no size.
pub(super) fn width(ty: &Type) -> i32 {
    match ty {
        Type::Bool => 1,
        Type::Bit(bits) | Type::Int(bits) | Type::Varbit(bits) => i32::try_from(*bits).unwrap_or(i32::MAX),
        Type::Enum(ty) => ty.representation.as_ref().map_or(0, width),
        Type::New(ty) => match translation(&ty.annotations) {
            Some(P4NewTypeTranslation { sdn_type: Some(SdnType::SdnBitwidth(bits)), .. }) => bits,
            Some(_) => 0,
            None => data_width(&ty.base),
        },
        _ => 0,
    }
}

/// Bits of a type's values as the program sees them: a translation is only that of the type that has the annotation.
fn data_width(ty: &Type) -> i32 {
    match ty {
        Type::New(ty) => data_width(&ty.base),
        ty => width(ty),
    }
}

/// A value as bytes, as many as its type has; `None` if controllers do not see it as a number.
pub(super) fn bytes(value: &Value, ty: &Type) -> Option<Vec<u8>> {
    let number = match value {
        Value::Bool(value) => BigInt::from(u8::from(*value)),
        Value::Integer(value) => value.clone(),
        _ => return None,
    };
    match width(ty) {
        0 => None,
        width => Some(padded(&number, width)),
    }
}

/// A number in so many bits, most significant byte first. Negative ones are in two's complement.
fn padded(value: &BigInt, width: i32) -> Vec<u8> {
    let width = width.to_u32().unwrap_or(0);
    let value = if value.sign() == Sign::Minus { value + (BigInt::from(1) << width) } else { value.clone() };
    let (_, digits) = value.to_bytes_be();
    let mut bytes = vec![0; (width.div_ceil(8) as usize).saturating_sub(digits.len())];
    bytes.extend(digits);
    bytes
}
