//! Headers, stacks and metadata: header instances and variables of the pipeline.
//!
//! A metadata instance becomes a variable for each of its fields; those of `standard_metadata` that the environment
//! knows are bound to it. A header that no packet has, since its fields take no whole bytes, is padded.

use std::collections::HashMap;

use pipeline::bits::MAX_WIDTH;
use pipeline::ir::{
    self, ErrorId, Expr, FieldType, HeaderId, HeaderRef, HeaderTypeId, LValue, StackId, Type, UnionId, VarId,
};
use serde_json::Value;

use crate::document::{HeaderType, index};
use crate::refusal::{At, Refusal, Result};
use crate::{Lower, switch};

/// Most variables and fields.
const MOST_PLACES: usize = 1 << 17;

/// A header type.
#[derive(Debug)]
pub(crate) struct Layout<'d> {
    pub(crate) id: HeaderTypeId,
    /// Types of the fields, in order.
    pub(crate) fields: Vec<FieldType>,
    names: HashMap<&'d str, u16>,
}

/// A header instance.
#[derive(Debug, Clone)]
pub(crate) enum Storage {
    /// A header.
    Header(HeaderId),
    /// Metadata: a variable for each field.
    Metadata(Vec<VarId>),
}

#[derive(Debug, Clone)]
pub(crate) struct Instance<'d> {
    pub(crate) ty: &'d str,
    pub(crate) storage: Storage,
}

/// Numbers of parser errors in the document, and those of the pipeline.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    ids: HashMap<u64, ErrorId>,
}

/// A field: its value and its place.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) place: LValue,
    pub(crate) value: Expr,
    pub(crate) ty: Type,
}

impl Errors {
    pub(crate) fn get(&self, number: u64) -> Option<ErrorId> {
        self.ids.get(&number).copied()
    }

    /// The numbers that differ from the pipeline's.
    pub(crate) fn renumbered(&self) -> Vec<(ErrorId, u64)> {
        if !self.are_renumbered() {
            return Vec::new();
        }
        let mut list: Vec<_> = self.ids.iter().map(|(number, id)| (*id, *number)).collect();
        list.sort_unstable();
        list
    }

    pub(crate) fn are_renumbered(&self) -> bool {
        self.ids.iter().any(|(number, id)| u64::from(id.0) != *number)
    }
}

impl<'d> Lower<'d> {
    /// Makes all storage.
    pub(crate) fn storage(&mut self) -> Result<()> {
        let document = self.document;
        for ty in &document.header_types {
            let layout = self.header_type(ty).within(|| format!("header type {}", ty.name))?;
            if self.types.insert(&ty.name, layout).is_some() {
                return Err(Refusal::of(format!("two header types are called {}", ty.name)));
            }
        }
        for (name, number) in &document.errors {
            let standard = ErrorId::STANDARD.iter().position(|standard| standard == name);
            let id = standard.map_or_else(|| self.out.add_error(&printable(name)), ErrorId::at);
            self.errors.ids.insert(*number, id);
        }
        if let Some(stack) = document.header_union_stacks.first() {
            return Err(Refusal::unsupported(format!(
                "header union stack {}: stacks of unions are",
                stack.name
            )));
        }
        self.instances()?;
        self.switch_metadata();
        Ok(())
    }

    fn header_type(&mut self, ty: &'d HeaderType) -> Result<Layout<'d>> {
        let (mut fields, mut names) = (Vec::new(), HashMap::new());
        let mut fixed = 0;
        self.take(ty.fields.len())?;
        for field in &ty.fields {
            let (name, width, signed) = match field.as_slice() {
                [Value::String(name), width] => (name, width, false),
                [Value::String(name), width, signed] => {
                    (name, width, signed.as_bool().unwrap_or(signed.as_u64().is_some_and(|s| s != 0)))
                }
                _ => return Err(Refusal::of("a field is not written as a name and a width")),
            };
            let fits = |bits: u64| u16::try_from(bits).ok().filter(|bits| (1..=MAX_WIDTH).contains(bits));
            let kind = match (width.as_u64(), width.as_str()) {
                (Some(bits), _) => {
                    let bits = fits(bits).ok_or_else(|| {
                        Refusal::of(format!("field {name} has {bits} bits; 1 to {MAX_WIDTH} are supported"))
                    })?;
                    fixed += u64::from(bits);
                    FieldType::Scalar(if signed { Type::Int(bits) } else { Type::Bit(bits) })
                }
                (None, Some("*")) => FieldType::Varbit(0),
                _ => return Err(Refusal::of(format!("field {name} has no width"))),
            };
            let at = u16::try_from(fields.len()).map_err(|_| Refusal::of("too many fields"))?;
            if names.insert(name.as_str(), at).is_some() {
                return Err(Refusal::of(format!("two fields are called {name}")));
            }
            fields.push(kind);
        }
        if fields.contains(&FieldType::Varbit(0)) {
            let bits = self.varbit(ty, fixed)?;
            for field in &mut fields {
                if *field == FieldType::Varbit(0) {
                    *field = FieldType::Varbit(bits);
                }
            }
        }
        let known =
            ty.fields.iter().zip(&fields).filter_map(|(field, kind)| Some((field.first()?.as_str()?, kind)));
        let mut list: Vec<_> = known.map(|(name, ty)| ir::Field { name: printable(name), ty: *ty }).collect();
        let odd = u16::try_from(fixed % 8).unwrap_or(0);
        if odd != 0 || list.is_empty() {
            list.push(ir::Field { name: "(padding)".into(), ty: FieldType::Scalar(Type::Bit(8 - odd)) });
        }
        self.out.header_types.push(ir::HeaderType { name: printable(&ty.name), fields: list });
        Ok(Layout { id: HeaderTypeId::at(self.out.header_types.len() - 1), fields, names })
    }

    /// Bits of a variable field. Versions before 2.19 give the largest header in bits, later ones in bytes.
    fn varbit(&self, ty: &HeaderType, fixed: u64) -> Result<u16> {
        if ty.length_exp.is_some() {
            return Err(Refusal::unsupported("`length_exp`, a length that belongs to the header type, is"));
        }
        let largest =
            ty.max_length.ok_or_else(|| Refusal::of("a header with a variable field has no `max_length`"))?;
        let in_bits = matches!(self.document.meta.version.as_slice(), [2, minor, ..] if *minor < 19);
        let in_bits = in_bits || largest.saturating_mul(8).saturating_sub(fixed) > MAX_WIDTH.into();
        let bits = if in_bits { largest } else { largest.saturating_mul(8) }.saturating_sub(fixed);
        let fits = u16::try_from(bits.next_multiple_of(8)).ok().filter(|bits| (1..=MAX_WIDTH).contains(bits));
        fits.ok_or_else(|| {
            Refusal::of(format!("its variable field has up to {bits} bits; 1 to {MAX_WIDTH} are supported"))
        })
    }

    /// Makes header instances. Elements of a stack and members of a union lie one after the other.
    fn instances(&mut self) -> Result<()> {
        let document = self.document;
        let by_id = index("header", &document.headers, |header| header.id)?;
        let mut groups = HashMap::new();
        let lists = document.header_stacks.iter().map(|stack| &stack.header_ids);
        let lists = lists.chain(document.header_unions.iter().map(|union| &union.header_ids));
        for (group, ids) in lists.enumerate() {
            for id in ids {
                if groups.insert(*id, group).is_some() {
                    return Err(Refusal::of(format!("header {id} belongs to two stacks or unions")));
                }
            }
        }
        let mut made = vec![false; document.header_stacks.len() + document.header_unions.len()];
        for header in &document.headers {
            let place = || format!("header {}", header.name);
            match groups.get(&header.id).copied() {
                None => {
                    let storage = self.single(header).within(place)?;
                    self.instance(&header.name, &header.header_type, storage)?;
                }
                Some(group) => {
                    if made.get_mut(group).is_some_and(|made| !std::mem::replace(made, true)) {
                        self.group(group, &by_id).within(place)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn instance(&mut self, name: &'d str, ty: &'d str, storage: Storage) -> Result<()> {
        match self.headers.insert(name, Instance { ty, storage }) {
            None => Ok(()),
            Some(_) => Err(Refusal::of(format!("two headers are called {name}"))),
        }
    }

    fn layout_of(&self, ty: &str) -> Result<&Layout<'d>> {
        self.types.get(ty).ok_or_else(|| Refusal::unknown("header type", ty))
    }

    fn single(&mut self, header: &'d crate::document::Header) -> Result<Storage> {
        let layout = self.layout_of(&header.header_type)?;
        if !header.metadata {
            let ty = layout.id;
            let name = self.unique(&header.name);
            return Ok(Storage::Header(self.out.add_header(&name, ty)));
        }
        let mut vars = Vec::new();
        let mut fields: Vec<_> = layout.names.iter().map(|(name, at)| (*at, *name)).collect();
        fields.sort_unstable();
        for (at, name) in fields {
            let ty = match self.layout_of(&header.header_type)?.fields.get(usize::from(at)) {
                Some(FieldType::Scalar(ty)) => *ty,
                _ => return Err(Refusal::unsupported("a variable field of metadata is")),
            };
            if self.out.vars.len() >= MOST_PLACES {
                return Err(Refusal::of(format!("more than {MOST_PLACES} fields of metadata")));
            }
            let unique = self.unique(&format!("{}.{name}", header.name));
            let slot = switch::slot(self.role(&header.name, name)).filter(|_| matches!(ty, Type::Bit(_)));
            self.out.vars.push(ir::Var { name: unique, ty, slot });
            vars.push(VarId::at(self.out.vars.len() - 1));
        }
        Ok(Storage::Metadata(vars))
    }

    /// A stack or a union.
    fn group(&mut self, group: usize, by_id: &HashMap<u64, &'d crate::document::Header>) -> Result<()> {
        let document = self.document;
        let unions = group.checked_sub(document.header_stacks.len());
        let (ids, ty) =
            match (document.header_stacks.get(group), unions.and_then(|at| document.header_unions.get(at))) {
                (Some(stack), _) => (&stack.header_ids, Some(&stack.header_type)),
                (None, Some(union)) => (&union.header_ids, None),
                (None, None) => return Ok(()),
            };
        let mut members = Vec::new();
        for id in ids {
            let header =
                by_id.get(id).ok_or_else(|| Refusal::unknown("header", format_args!("with id {id}")))?;
            if header.metadata || ty.is_some_and(|ty| header.header_type != *ty) {
                return Err(Refusal::of(format!("{} is of another type", header.name)));
            }
            members.push(*header);
        }
        let first = self.out.headers.len();
        match (document.header_stacks.get(group), unions.and_then(|at| document.header_unions.get(at))) {
            (Some(stack), _) => {
                let ty = self.layout_of(&stack.header_type)?.id;
                let name = self.unique(&stack.name);
                let size = u32::try_from(members.len()).unwrap_or(u32::MAX);
                let id = self.out.add_stack(&name, ty, size);
                self.stacks.insert(&stack.name, (id, &stack.header_type));
            }
            (None, Some(union)) => {
                let mut list = Vec::new();
                for member in &members {
                    let own =
                        member.name.strip_prefix(union.name.as_str()).and_then(|rest| rest.strip_prefix('.'));
                    list.push((own.unwrap_or(&member.name), self.layout_of(&member.header_type)?.id));
                }
                let name = self.unique(&union.name);
                let (_, ids) = self.out.add_union(&name, &list);
                self.unions.insert(&union.name, ids);
            }
            (None, None) => {}
        }
        for (i, member) in members.into_iter().enumerate() {
            self.instance(&member.name, &member.header_type, Storage::Header(HeaderId::at(first + i)))?;
        }
        Ok(())
    }

    pub(crate) fn header(&self, name: &str) -> Result<&Instance<'d>> {
        self.headers.get(name).ok_or_else(|| Refusal::unknown("header", name))
    }

    pub(crate) fn stack(&self, name: &str) -> Result<StackId> {
        let found = self.stacks.get(name).map(|(id, _)| *id);
        found.ok_or_else(|| Refusal::unknown("header stack", name))
    }

    /// The number of a field in its header type.
    pub(crate) fn field_number(&self, ty: &str, field: &str) -> Result<u16> {
        let found = self.layout_of(ty)?.names.get(field).copied();
        found.ok_or_else(|| Refusal::unknown("field", format_args!("{field} of header type {ty}")))
    }

    /// The type of a field by its number; `None` for a variable field.
    pub(crate) fn field_type(&self, ty: &str, number: u16) -> Result<Option<Type>> {
        match self.layout_of(ty)?.fields.get(usize::from(number)) {
            Some(FieldType::Scalar(ty)) => Ok(Some(*ty)),
            Some(FieldType::Varbit(_)) => Ok(None),
            None => Err(Refusal::unknown("field", format_args!("{number} of header type {ty}"))),
        }
    }

    /// Number of a header type's fields.
    pub(crate) fn field_count(&self, ty: &str) -> usize {
        self.types.get(ty).map_or(0, |layout| layout.fields.len())
    }

    /// A field of a header or of metadata.
    pub(crate) fn field(&mut self, header: &str, field: &str) -> Result<Field> {
        let instance = self.header(header)?.clone();
        let number = self.field_number(instance.ty, field)?;
        self.field_at(&instance, number)
    }

    /// A field by its number.
    pub(crate) fn field_at(&mut self, instance: &Instance<'_>, number: u16) -> Result<Field> {
        match &instance.storage {
            Storage::Header(id) => self.field_of(HeaderRef::Header(*id), instance.ty, number),
            Storage::Metadata(vars) => {
                let var = vars.get(usize::from(number)).ok_or_else(|| Refusal::unknown("field", number))?;
                self.used.insert(*var);
                let ty = self.out.vars.get(var.index()).map_or(Type::Bit(1), |var| var.ty);
                Ok(Field { place: LValue::Var(*var), value: Expr::Var(*var), ty })
            }
        }
    }

    /// A field of a header that may be known only at run time.
    pub(crate) fn field_of(&self, header: HeaderRef, ty: &str, number: u16) -> Result<Field> {
        let scalar = self.field_type(ty, number)?;
        let scalar = scalar.ok_or_else(|| Refusal::unsupported("the value of a variable field is"))?;
        let place = LValue::Field(header.clone(), number);
        Ok(Field { place, value: Expr::Field(header, number), ty: scalar })
    }

    /// The type of a stack's elements.
    pub(crate) fn stack_type(&self, name: &str) -> Result<&'d str> {
        let found = self.stacks.get(name).map(|(_, ty)| *ty);
        found.ok_or_else(|| Refusal::unknown("header stack", name))
    }

    /// The union of which a list of headers are the members.
    pub(crate) fn union_members(&mut self, name: &str) -> Result<Vec<HeaderId>> {
        let members = self.unions.get(name).cloned().ok_or_else(|| Refusal::unknown("header union", name))?;
        self.take(members.len())?;
        Ok(members)
    }

    /// The pipeline's number of a union.
    pub(crate) fn union_of(&self, header: HeaderId) -> Option<UnionId> {
        match self.out.headers.get(header.index())?.place {
            ir::HeaderPlace::Member(union) => Some(union),
            _ => None,
        }
    }
}

/// A name that the pipeline's text form can have.
pub(crate) fn printable(name: &str) -> String {
    let mut text: String = name.chars().map(|c| if c == '`' || c.is_control() { '\'' } else { c }).collect();
    text.truncate(text.floor_char_boundary(200));
    if text.is_empty() { "_".into() } else { text }
}
