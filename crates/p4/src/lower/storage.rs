//! Places: variables and headers of the pipeline that hold a value of the language.

use std::sync::Arc;

use pipeline::ir::{self, HeaderRef, LValue};

use super::Lower;
use super::types::{base, parts, scalar};
use crate::hir::{Composite, Type};
use crate::source::Span;

/// A place.
#[derive(Debug, Clone)]
pub(super) enum Store {
    /// One number.
    Scalar(LValue),
    /// A header.
    Header(HeaderRef, Arc<Composite>),
    /// A header union: its number and its members.
    Union(ir::UnionId, Vec<Store>),
    /// A struct or a tuple: its parts.
    Parts(Vec<Store>),
    /// A stack: its number and its elements.
    Stack(ir::StackId, Vec<Store>),
    /// A variable field of a header.
    Varbit(HeaderRef, u16),
    /// No bits.
    Nothing,
}

/// A variable or a header that a place consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Leaf {
    /// Variable.
    Var(ir::VarId),
    /// Header, an element or a member too.
    Header(ir::HeaderId),
}

impl Lower<'_> {
    /// Makes storage for a value; `name` is what traces and tools show.
    pub(super) fn allocate(&mut self, name: &str, ty: &Type, span: Span) -> Store {
        if self.is_exhausted() {
            return Store::Nothing;
        }
        match base(ty) {
            Type::Header(header) => {
                let layout = self.layout(header, span);
                let name = self.unique(name);
                let id = self.out.add_header(&name, layout.ty);
                Store::Header(HeaderRef::Header(id), header.clone())
            }
            Type::Union(union) => {
                let mut members = Vec::new();
                for field in &union.fields {
                    if let Type::Header(header) = base(&field.ty) {
                        let layout = self.layout(header, span);
                        members.push((field.name.as_str(), layout.ty, header.clone()));
                    }
                }
                let name = self.unique(name);
                let list: Vec<_> = members.iter().map(|(name, ty, _)| (*name, *ty)).collect();
                let (id, ids) = self.out.add_union(&name, &list);
                let member = |(id, (_, _, ty)): (ir::HeaderId, _)| Store::Header(HeaderRef::Header(id), ty);
                Store::Union(id, ids.into_iter().zip(members).map(member).collect())
            }
            Type::Struct(composite) => {
                let field = |f: &crate::hir::Field| self.allocate(&format!("{name}.{}", f.name), &f.ty, span);
                Store::Parts(composite.fields.iter().map(field).collect())
            }
            Type::Tuple(types) => {
                let part = |(i, ty): (usize, &Type)| self.allocate(&format!("{name}[{i}]"), ty, span);
                Store::Parts(types.iter().enumerate().map(part).collect())
            }
            Type::Stack(element, size) => match base(element) {
                Type::Header(header) => {
                    let layout = self.layout(header, span);
                    let name = self.unique(name);
                    let id = self.out.add_stack(&name, layout.ty, *size);
                    let first = self.out.stacks.last().map_or(0, |stack| stack.first.0);
                    let place =
                        |i: u32| Store::Header(HeaderRef::Header(ir::HeaderId(first + i)), header.clone());
                    Store::Stack(id, (0..*size).map(place).collect())
                }
                _ => {
                    self.unsupported(span, "a stack of header unions is");
                    Store::Nothing
                }
            },
            Type::Varbit(max) => {
                let bytes = u16::try_from(*max).unwrap_or(u16::MAX).checked_next_multiple_of(8);
                let ty = ir::FieldType::Varbit(bytes.unwrap_or(0));
                let field = ir::Field { name: "bits".into(), ty };
                let type_name = self.unique(&format!("varbit<{max}>"));
                self.out.header_types.push(ir::HeaderType { name: type_name, fields: vec![field] });
                let ty = ir::HeaderTypeId::at(self.out.header_types.len() - 1);
                let name = self.unique(name);
                Store::Varbit(HeaderRef::Header(self.out.add_header(&name, ty)), 0)
            }
            other => match scalar(other) {
                Some(ty) => Store::Scalar(LValue::Var(self.variable(name, ty))),
                None => Store::Nothing,
            },
        }
    }

    /// Makes a variable.
    pub(super) fn variable(&mut self, name: &str, ty: ir::Type) -> ir::VarId {
        let name = self.unique(name);
        self.out.add_var(&name, ty)
    }

    /// Returns the place of a part: of a field, or of an element of a tuple or stack.
    pub(super) fn part(&mut self, store: &Store, index: usize, span: Span) -> Store {
        match store {
            Store::Parts(list) | Store::Union(_, list) | Store::Stack(_, list) => {
                list.get(index).cloned().unwrap_or(Store::Nothing)
            }
            Store::Header(header, ty) => {
                let layout = self.layout(ty, span);
                let (Some(field), Some(start)) = (ty.fields.get(index), layout.starts.get(index)) else {
                    return Store::Nothing;
                };
                let field_ty = field.ty.clone();
                let mut next = *start;
                field_store(header, &field_ty, &mut next)
            }
            Store::Scalar(_) | Store::Varbit(..) | Store::Nothing => Store::Nothing,
        }
    }

    /// Returns the variables and headers of a place.
    pub(super) fn leaves(&self, store: &Store) -> Vec<Leaf> {
        let mut leaves = Vec::new();
        self.collect_leaves(store, &mut leaves);
        leaves
    }

    fn collect_leaves(&self, store: &Store, leaves: &mut Vec<Leaf>) {
        match store {
            Store::Scalar(place) => self.place_leaves(place, leaves),
            Store::Header(header, _) | Store::Varbit(header, _) => self.header_leaves(header, leaves),
            Store::Union(_, list) | Store::Parts(list) | Store::Stack(_, list) => {
                list.iter().for_each(|part| self.collect_leaves(part, leaves));
            }
            Store::Nothing => {}
        }
    }

    fn place_leaves(&self, place: &LValue, leaves: &mut Vec<Leaf>) {
        match place {
            LValue::Var(var) => leaves.push(Leaf::Var(*var)),
            LValue::Field(header, _) => self.header_leaves(header, leaves),
            LValue::Slice(place, ..) => self.place_leaves(place, leaves),
        }
    }

    /// Headers that a reference may mean.
    pub(super) fn header_leaves(&self, header: &HeaderRef, leaves: &mut Vec<Leaf>) {
        match header {
            HeaderRef::Header(id) => leaves.push(Leaf::Header(*id)),
            HeaderRef::Element(stack, _) | HeaderRef::Next(stack) | HeaderRef::Last(stack) => {
                if let Some(stack) = self.out.stacks.get(stack.index()) {
                    leaves.extend((0..stack.size).map(|i| Leaf::Header(ir::HeaderId(stack.first.0 + i))));
                }
            }
        }
    }
}

/// The place of a field that starts at a header type's field `next`.
fn field_store(header: &HeaderRef, ty: &Type, next: &mut u16) -> Store {
    let here = *next;
    match base(ty) {
        Type::Struct(_) => Store::Parts(parts(ty).iter().map(|ty| field_store(header, ty, next)).collect()),
        Type::Varbit(_) => {
            *next += 1;
            Store::Varbit(header.clone(), here)
        }
        Type::Bit(0) => Store::Nothing,
        _ => {
            *next += 1;
            Store::Scalar(LValue::Field(header.clone(), here))
        }
    }
}

/// The value of a place.
pub(super) fn read(place: &LValue) -> ir::Expr {
    match place {
        LValue::Var(var) => ir::Expr::Var(*var),
        LValue::Field(header, field) => ir::Expr::Field(header.clone(), *field),
        LValue::Slice(place, hi, lo) => ir::Expr::Slice(Box::new(read(place)), *hi, *lo),
    }
}

/// Whether a place is known without evaluating anything: no element by a variable index, no `next` or `last`.
pub(super) fn is_fixed(store: &Store) -> bool {
    let fixed_header = |header: &HeaderRef| matches!(header, HeaderRef::Header(_));
    fn fixed_place(place: &LValue) -> bool {
        match place {
            LValue::Var(_) => true,
            LValue::Field(header, _) => matches!(header, HeaderRef::Header(_)),
            LValue::Slice(place, ..) => fixed_place(place),
        }
    }
    match store {
        Store::Scalar(place) => fixed_place(place),
        Store::Header(header, _) | Store::Varbit(header, _) => fixed_header(header),
        Store::Union(_, list) | Store::Parts(list) | Store::Stack(_, list) => list.iter().all(is_fixed),
        Store::Nothing => true,
    }
}
