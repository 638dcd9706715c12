//! Names of keys: as P4Runtime's clients expect them, the expression written out.

use crate::hir::{BinOp, Expr, ExprKind, Key, Program, Type, Value};
use crate::instantiate::{name_annotation, own_name};

/// The name of a key: that of `@name`, or the expression's.
pub(super) fn key_name(program: &Program, key: &Key) -> String {
    if let Some(name) = name_annotation(&key.annotations) {
        return name.to_owned();
    }
    of(program, key, &key.value).unwrap_or_else(|| key.text.clone())
}

/// The name of a part of a key; `None` where the text is as good.
fn of(program: &Program, key: &Key, expr: &Expr) -> Option<String> {
    match &expr.kind {
        ExprKind::Var(var) => Some(program.vars.get(var.index())?.name.clone()),
        ExprKind::Field(inner, at) => {
            let (Type::Struct(ty) | Type::Header(ty) | Type::Union(ty)) = &inner.ty else { return None };
            let field = ty.fields.get(*at as usize)?;
            let name = own_name(&field.annotations, &field.name);
            match name.strip_prefix('.') {
                Some(global) => Some(global.to_owned()),
                None => Some(format!("{}.{name}", of(program, key, inner)?)),
            }
        }
        ExprKind::Valid(inner) => Some(format!("{}.$valid$", of(program, key, inner)?)),
        ExprKind::LastIndex(inner) => Some(format!("{}.lastIndex", of(program, key, inner)?)),
        ExprKind::Element(inner, at) => {
            let at = match &at.kind {
                ExprKind::Const(Value::Integer(at)) => at.to_string(),
                _ => of(program, key, at)?,
            };
            Some(format!("{}[{at}]", of(program, key, inner)?))
        }
        ExprKind::Slice(inner, hi, lo) => Some(format!("{}[{hi}:{lo}]", of(program, key, inner)?)),
        ExprKind::Binary(BinOp::And, sides) => {
            // Masks keep the base in which they are written.
            let mask = match &sides.1.kind {
                ExprKind::Const(_) => key.text.rsplit_once('&')?.1.trim().to_owned(),
                _ => of(program, key, &sides.1)?,
            };
            Some(format!("{} & {mask}", of(program, key, &sides.0)?))
        }
        _ => None,
    }
}
