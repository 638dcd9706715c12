//! Types as the checker sees them.
//!
//! Beyond [`hir::Type`] there are type parameters and the types of expressions that take their type from the place
//! where they stand: lists, structure expressions, `{#}` and `...`. Types are cheap to clone. A type is bounded in
//! depth ([`MAX_DEPTH`]) and in size ([`MAX_LEAVES`]), so that walks over types are short and never overflow the stack.

use std::collections::HashMap;
use std::sync::Arc;

use crate::hir::{self, ControlId, ExternId, PackageId, ParserId, TableId};

/// Deepest nesting of a type.
pub(super) const MAX_DEPTH: u32 = 64;
/// Most scalars in a value of a type.
pub(super) const MAX_LEAVES: u64 = 1 << 16;
/// Most bits of `bit<>` and the like.
pub(super) const MAX_WIDTH: u32 = 2048;

/// A type parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ParamId(pub(super) u32);

/// A declared structure, header or union.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CompositeId(pub(super) u32);

/// A declared parser type or control type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AbstractId(pub(super) u32);

/// A type.
#[derive(Debug, Clone)]
pub(super) enum Ty {
    /// Of what was refused already: equal to all types, so that no error follows from another.
    Error,
    /// `_` as a type argument: any type.
    DontCare,
    Void,
    Bool,
    Integer,
    Bit(u32),
    Int(u32),
    Varbit(u32),
    String,
    ErrorCode,
    MatchKind,
    Enum(Arc<hir::Enum>),
    New(Arc<NewTy>),
    Composite(Arc<Composite>),
    Stack(Arc<Ty>, u32),
    Tuple(Arc<[Ty]>),
    List(Arc<Ty>),
    Extern(ExternId, Arc<[Ty]>),
    Parser(ParserId),
    Control(ControlId),
    Abstract(AbstractId, Arc<[Ty]>),
    Package(PackageId, Arc<[Ty]>),
    Applied(TableId),
    ActionRun(TableId),
    Param(ParamId),
    /// Of `{ a, b }`; the flag says whether it ends in `...`.
    Listing(Arc<[Ty]>, bool),
    /// Of `{ a = 1 }`; the flag says whether it ends in `...`.
    Record(Arc<[(String, Ty)]>, bool),
    /// Of `{#}`.
    Invalid,
    /// Of `...`.
    Dots,
}

/// A type of its own.
#[derive(Debug)]
pub(super) struct NewTy {
    /// Its checked form.
    pub(super) hir: Arc<hir::NewType>,
    /// Type of the values.
    pub(super) base: Ty,
}

/// Kinds of composites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompositeKind {
    Struct,
    Header,
    Union,
}

impl CompositeKind {
    /// As messages name it.
    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::Struct => "struct",
            Self::Header => "header",
            Self::Union => "header union",
        }
    }
}

/// A structure, header or union with its type arguments.
#[derive(Debug)]
pub(super) struct Composite {
    pub(super) kind: CompositeKind,
    pub(super) decl: CompositeId,
    pub(super) args: Arc<[Ty]>,
    pub(super) name: String,
    pub(super) fields: Vec<(String, Ty)>,
    /// Positions of fields by name.
    pub(super) index: HashMap<String, u32>,
    /// Its checked form.
    pub(super) hir: hir::Type,
    /// Extent of a value.
    pub(super) extent: Extent,
}

/// Bounds of a type, and facts about what is in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// Nesting.
    pub(super) depth: u32,
    /// Scalars, at least 1.
    pub(super) leaves: u64,
    /// Bits of a value at least and at most; none if there is no such number.
    pub(super) bits: Option<(u64, u64)>,
    /// Whether a varbit is in it.
    pub(super) varbit: bool,
}

impl Extent {
    const SCALAR: Self = Self { depth: 1, leaves: 1, bits: None, varbit: false };

    fn bits(bits: u32) -> Self {
        Self { bits: Some((bits.into(), bits.into())), ..Self::SCALAR }
    }

    /// Extent of values side by side.
    pub(super) fn sum(parts: impl Iterator<Item = Extent>) -> Self {
        let mut sum = Self { depth: 1, leaves: 0, bits: Some((0, 0)), varbit: false };
        for part in parts {
            sum.depth = sum.depth.max(part.depth.saturating_add(1));
            sum.leaves = sum.leaves.saturating_add(part.leaves);
            sum.bits =
                sum.bits.zip(part.bits).map(|(a, b)| (a.0.saturating_add(b.0), a.1.saturating_add(b.1)));
            sum.varbit |= part.varbit;
        }
        sum.leaves = sum.leaves.max(1);
        sum
    }

    /// Extent of the largest of several values.
    pub(super) fn most(parts: impl Iterator<Item = Extent>) -> Self {
        let mut most = Self { depth: 1, leaves: 0, bits: None, varbit: false };
        for part in parts {
            most.depth = most.depth.max(part.depth.saturating_add(1));
            most.leaves = most.leaves.saturating_add(part.leaves);
            most.bits = match (most.bits, part.bits) {
                (Some(a), Some(b)) => Some((0, a.1.max(b.1))),
                (None, b) => b.map(|b| (0, b.1)),
                (a, None) => a,
            };
            most.varbit |= part.varbit;
        }
        most.bits = most.bits.or(Some((0, 0)));
        most.leaves = most.leaves.max(1);
        most
    }

    /// The extent, bounded from below by that of type arguments, which are in the type's name.
    pub(super) fn and_args(self, args: Extent) -> Self {
        Self { depth: self.depth.max(args.depth), leaves: self.leaves.max(args.leaves), ..self }
    }

    /// Whether the type is small enough.
    pub(super) fn fits(self) -> bool {
        self.depth <= MAX_DEPTH && self.leaves <= MAX_LEAVES
    }
}

impl Ty {
    /// No type arguments.
    pub(super) fn none() -> Arc<[Ty]> {
        Arc::from(Vec::new())
    }

    /// Extent of a value of the type.
    pub(super) fn extent(&self) -> Extent {
        match self {
            Ty::Bool => Extent::bits(1),
            Ty::Bit(w) | Ty::Int(w) => Extent::bits(*w),
            Ty::Varbit(w) => Extent { bits: Some((0, (*w).into())), varbit: true, ..Extent::SCALAR },
            Ty::Enum(e) => match e.representation {
                Some(hir::Type::Bit(w) | hir::Type::Int(w)) => Extent::bits(w),
                _ => Extent::SCALAR,
            },
            Ty::New(new) => {
                let base = new.base.extent();
                Extent { depth: base.depth.saturating_add(1), ..base }
            }
            Ty::Composite(c) => c.extent,
            Ty::Stack(element, n) => {
                let one = element.extent();
                let times = |bits: u64| bits.saturating_mul((*n).into());
                Extent {
                    depth: one.depth.saturating_add(1),
                    leaves: one.leaves.saturating_mul((*n).max(1).into()),
                    bits: one.bits.map(|(a, b)| (times(a), times(b))),
                    varbit: one.varbit,
                }
            }
            Ty::Tuple(parts) => Extent::sum(parts.iter().map(Ty::extent)),
            Ty::List(element) => Extent { depth: element.extent().depth.saturating_add(1), ..Extent::SCALAR },
            Ty::Extern(_, args) | Ty::Abstract(_, args) | Ty::Package(_, args) => {
                let args = Extent::sum(args.iter().map(Ty::extent));
                Extent { bits: None, varbit: false, ..args }
            }
            _ => Extent::SCALAR,
        }
    }

    /// Whether a type parameter is in the type.
    pub(super) fn has_params(&self) -> bool {
        match self {
            Ty::Param(_) => true,
            Ty::Composite(c) => c.args.iter().any(Ty::has_params),
            Ty::Stack(t, _) | Ty::List(t) => t.has_params(),
            Ty::Tuple(args) | Ty::Extern(_, args) | Ty::Abstract(_, args) | Ty::Package(_, args) => {
                args.iter().any(Ty::has_params)
            }
            Ty::Listing(parts, _) => parts.iter().any(Ty::has_params),
            Ty::Record(parts, _) => parts.iter().any(|(_, t)| t.has_params()),
            _ => false,
        }
    }

    /// Whether the type is that of a part that was refused already.
    pub(super) fn is_error(&self) -> bool {
        matches!(self, Ty::Error)
    }

    /// Whether it is `bit<>` or `int<>`.
    pub(super) fn is_bits(&self) -> bool {
        matches!(self, Ty::Bit(_) | Ty::Int(_))
    }

    /// Type of the values, if the type is an enumeration with a representation.
    pub(super) fn representation(&self) -> Option<Ty> {
        match self {
            Ty::Enum(e) => e.representation.as_ref().map(Ty::of_scalar),
            _ => None,
        }
    }

    /// Type of a scalar's checked form.
    fn of_scalar(ty: &hir::Type) -> Ty {
        match ty {
            hir::Type::Bit(w) => Ty::Bit(*w),
            hir::Type::Int(w) => Ty::Int(*w),
            _ => Ty::Error,
        }
    }

    /// Whether it is an object: it has no value, is declared and never assigned.
    pub(super) fn is_object(&self) -> bool {
        matches!(self, Ty::Extern(..) | Ty::Parser(_) | Ty::Control(_) | Ty::Abstract(..) | Ty::Package(..))
    }

    /// Whether the expression takes its type from the place where it stands.
    pub(super) fn is_soft(&self) -> bool {
        matches!(self, Ty::Listing(..) | Ty::Record(..) | Ty::Invalid | Ty::Dots)
    }

    /// The composite, if it is one.
    pub(super) fn composite(&self) -> Option<&Arc<Composite>> {
        match self {
            Ty::Composite(c) => Some(c),
            _ => None,
        }
    }

    /// Whether it is a header.
    pub(super) fn is_header(&self) -> bool {
        self.composite().is_some_and(|c| c.kind == CompositeKind::Header)
    }

    /// Whether it is a header union.
    pub(super) fn is_union(&self) -> bool {
        self.composite().is_some_and(|c| c.kind == CompositeKind::Union)
    }

    /// The position of a field with its type.
    pub(super) fn field(&self, name: &str) -> Option<(u32, &Ty)> {
        let c = self.composite()?;
        let at = *c.index.get(name)?;
        c.fields.get(at as usize).map(|(_, ty)| (at, ty))
    }
}

impl PartialEq for Ty {
    fn eq(&self, other: &Self) -> bool {
        use Ty::*;
        match (self, other) {
            (Error | DontCare, _) | (_, Error | DontCare) => true,
            (Void, Void)
            | (Bool, Bool)
            | (Integer, Integer)
            | (String, String)
            | (ErrorCode, ErrorCode)
            | (MatchKind, MatchKind)
            | (Invalid, Invalid)
            | (Dots, Dots) => true,
            (Bit(a), Bit(b)) | (Int(a), Int(b)) | (Varbit(a), Varbit(b)) => a == b,
            (Enum(a), Enum(b)) => Arc::ptr_eq(a, b),
            (New(a), New(b)) => Arc::ptr_eq(a, b),
            (Composite(a), Composite(b)) => Arc::ptr_eq(a, b) || (a.decl == b.decl && a.args == b.args),
            (Stack(a, m), Stack(b, n)) => m == n && a == b,
            (Tuple(a), Tuple(b)) => a == b,
            (List(a), List(b)) => a == b,
            (Extern(a, p), Extern(b, q)) => a == b && p == q,
            (Parser(a), Parser(b)) => a == b,
            (Control(a), Control(b)) => a == b,
            (Abstract(a, p), Abstract(b, q)) => a == b && p == q,
            (Package(a, p), Package(b, q)) => a == b && p == q,
            (Applied(a), Applied(b)) | (ActionRun(a), ActionRun(b)) => a == b,
            (Param(a), Param(b)) => a == b,
            (Listing(a, x), Listing(b, y)) => a == b && x == y,
            (Record(a, x), Record(b, y)) => a == b && x == y,
            _ => false,
        }
    }
}
