//! Texts of types and expressions.

use super::Checker;
use super::ty::Ty;
use crate::ast::{BinOp, Expr, ExprKind, Type, TypeKind, UnOp};

impl Checker<'_, '_> {
    /// A type as the program would write it.
    pub(super) fn show(&self, ty: &Ty) -> String {
        self.text(ty, false)
    }

    /// A text that no other type has.
    pub(super) fn key(&self, ty: &Ty) -> String {
        self.text(ty, true)
    }

    /// A name with type arguments.
    pub(super) fn applied_name(&self, name: &str, args: &[Ty]) -> String {
        self.applied(name, args, false)
    }

    fn applied(&self, name: &str, args: &[Ty], unique: bool) -> String {
        if args.is_empty() { name.to_owned() } else { format!("{name}<{}>", self.list(args, unique)) }
    }

    fn list(&self, types: &[Ty], unique: bool) -> String {
        types.iter().map(|t| self.text(t, unique)).collect::<Vec<_>>().join(", ")
    }

    fn text(&self, ty: &Ty, unique: bool) -> String {
        let name_of = |name: Option<&String>| name.cloned().unwrap_or_default();
        match ty {
            Ty::Error => "?".into(),
            Ty::DontCare => "_".into(),
            Ty::Void => "void".into(),
            Ty::Bool => "bool".into(),
            Ty::Integer => "int".into(),
            Ty::Bit(w) => format!("bit<{w}>"),
            Ty::Int(w) => format!("int<{w}>"),
            Ty::Varbit(w) => format!("varbit<{w}>"),
            Ty::String => "string".into(),
            Ty::ErrorCode => "error".into(),
            Ty::MatchKind => "match_kind".into(),
            Ty::Enum(e) => e.name.clone(),
            Ty::New(new) => new.hir.name.clone(),
            Ty::Composite(c) if unique => {
                let name = self.composites.get(c.decl.0 as usize).map_or("", |d| d.name.text.as_str());
                self.applied(name, &c.args, unique)
            }
            Ty::Composite(c) => c.name.clone(),
            Ty::Stack(element, n) => format!("{}[{n}]", self.text(element, unique)),
            Ty::Tuple(parts) => format!("tuple<{}>", self.list(parts, unique)),
            Ty::List(element) => format!("list<{}>", self.text(element, unique)),
            Ty::Extern(id, args) => {
                let name = name_of(self.out.externs.get(id.index()).map(|e| &e.name));
                self.applied(&name, args, unique)
            }
            Ty::Parser(id) => name_of(self.out.parsers.get(id.index()).map(|p| &p.name)),
            Ty::Control(id) => name_of(self.out.controls.get(id.index()).map(|p| &p.name)),
            Ty::Abstract(id, args) => {
                let name = self.abstracts.get(id.0 as usize).map_or("", |s| s.name);
                self.applied(name, args, unique)
            }
            Ty::Package(id, args) => {
                let name = name_of(self.out.packages.get(id.index()).map(|p| &p.name));
                self.applied(&name, args, unique)
            }
            Ty::Applied(_) => "result of a table".into(),
            Ty::ActionRun(_) => "action_run".into(),
            Ty::Param(id) if unique => format!("{}#{}", self.param_name(*id), id.0),
            Ty::Param(id) => self.param_name(*id).into(),
            Ty::Listing(parts, dots) => {
                let more = if *dots { ", ..." } else { "" };
                format!("{{ {}{more} }}", self.list(parts, unique))
            }
            Ty::Record(fields, dots) => {
                let texts = fields.iter().map(|(n, t)| format!("{n} = {}", self.text(t, unique)));
                let more = if *dots { ", ..." } else { "" };
                format!("{{ {}{more} }}", texts.collect::<Vec<_>>().join(", "))
            }
            Ty::Invalid => "{#}".into(),
            Ty::Dots => "...".into(),
        }
    }
}

/// An expression as it could be written: `hdr.ipv4.dst`.
pub(super) fn expr_text(expr: &Expr) -> String {
    let list = |exprs: &[Expr]| exprs.iter().map(expr_text).collect::<Vec<_>>().join(", ");
    match &expr.kind {
        ExprKind::Bool(b) => b.to_string(),
        ExprKind::Integer(n, None) => n.to_string(),
        ExprKind::Integer(n, Some(ty)) => format!("{}{}{n}", ty.width, if ty.signed { 's' } else { 'w' }),
        ExprKind::String(s) => format!("{s:?}"),
        ExprKind::Name { global, name } => format!("{}{}", if *global { "." } else { "" }, name.text),
        ExprKind::This => "this".into(),
        ExprKind::Dots => "...".into(),
        ExprKind::DontCare => "_".into(),
        ExprKind::Default => "default".into(),
        ExprKind::Invalid => "{#}".into(),
        ExprKind::List(parts, dots) => format!("{{ {}{} }}", list(parts), if *dots { ", ..." } else { "" }),
        ExprKind::Record(parts, dots) => {
            let parts =
                parts.iter().map(|(n, e)| format!("{} = {}", n.text, expr_text(e))).collect::<Vec<_>>();
            format!("{{ {}{} }}", parts.join(", "), if *dots { ", ..." } else { "" })
        }
        ExprKind::Type(ty) => type_text(ty),
        ExprKind::Member(base, name) => format!("{}.{}", expr_text(base), name.text),
        ExprKind::Index(base, at) => format!("{}[{}]", expr_text(base), expr_text(at)),
        ExprKind::Slice(base, hi, lo) => format!("{}[{}:{}]", expr_text(base), expr_text(hi), expr_text(lo)),
        ExprKind::PlusSlice(base, lo, width) => {
            format!("{}[{}+:{}]", expr_text(base), expr_text(lo), expr_text(width))
        }
        ExprKind::Unary(op, e) => format!("{}{}", unary_text(*op), operand(e)),
        ExprKind::Binary(op, a, b) => format!("{} {} {}", operand(a), binary_text(*op), operand(b)),
        ExprKind::Ternary(c, a, b) => format!("{} ? {} : {}", operand(c), operand(a), operand(b)),
        ExprKind::Cast(ty, e) => format!("({}){}", type_text(ty), operand(e)),
        ExprKind::Call(callee, types, args) => {
            let types = types.iter().map(type_text).collect::<Vec<_>>().join(", ");
            let types = if types.is_empty() { types } else { format!("<{types}>") };
            let args = args.iter().map(|a| match &a.name {
                Some(name) => format!("{} = {}", name.text, expr_text(&a.value)),
                None => expr_text(&a.value),
            });
            format!("{}{types}({})", expr_text(callee), args.collect::<Vec<_>>().join(", "))
        }
        ExprKind::Mask(a, b) => format!("{} &&& {}", operand(a), operand(b)),
        ExprKind::Range(a, b) => format!("{} .. {}", operand(a), operand(b)),
    }
}

fn operand(expr: &Expr) -> String {
    let text = expr_text(expr);
    match expr.kind {
        ExprKind::Binary(..) | ExprKind::Ternary(..) | ExprKind::Mask(..) | ExprKind::Range(..) => {
            format!("({text})")
        }
        _ => text,
    }
}

fn type_text(ty: &Type) -> String {
    let list = |types: &[Type]| types.iter().map(type_text).collect::<Vec<_>>().join(", ");
    match &ty.kind {
        TypeKind::Void => "void".into(),
        TypeKind::Bool => "bool".into(),
        TypeKind::Error => "error".into(),
        TypeKind::MatchKind => "match_kind".into(),
        TypeKind::String => "string".into(),
        TypeKind::Integer => "int".into(),
        TypeKind::Bit(None) => "bit".into(),
        TypeKind::Bit(Some(w)) => format!("bit<{}>", expr_text(w)),
        TypeKind::Int(w) => format!("int<{}>", expr_text(w)),
        TypeKind::Varbit(w) => format!("varbit<{}>", expr_text(w)),
        TypeKind::Named { global, name } => format!("{}{}", if *global { "." } else { "" }, name.text),
        TypeKind::Specialized(base, args) => format!("{}<{}>", type_text(base), list(args)),
        TypeKind::Stack(element, n) => format!("{}[{}]", type_text(element), expr_text(n)),
        TypeKind::Tuple(parts) => format!("tuple<{}>", list(parts)),
        TypeKind::List(element) => format!("list<{}>", type_text(element)),
        TypeKind::DontCare => "_".into(),
    }
}

/// An operator on one operand as it is written.
pub(super) fn unary_text(op: UnOp) -> &'static str {
    match op {
        UnOp::Not => "!",
        UnOp::Complement => "~",
        UnOp::Negate => "-",
        UnOp::Plus => "+",
    }
}

/// An operator on two operands as it is written.
pub(super) fn binary_text(op: BinOp) -> &'static str {
    match op {
        BinOp::Add => "+",
        BinOp::Sub => "-",
        BinOp::Mul => "*",
        BinOp::Div => "/",
        BinOp::Rem => "%",
        BinOp::SatAdd => "|+|",
        BinOp::SatSub => "|-|",
        BinOp::And => "&",
        BinOp::Or => "|",
        BinOp::Xor => "^",
        BinOp::Shl => "<<",
        BinOp::Shr => ">>",
        BinOp::Concat => "++",
        BinOp::Eq => "==",
        BinOp::Ne => "!=",
        BinOp::Lt => "<",
        BinOp::Le => "<=",
        BinOp::Gt => ">",
        BinOp::Ge => ">=",
        BinOp::LogicAnd => "&&",
        BinOp::LogicOr => "||",
    }
}
