//! Names of keys: the expression written out, as controllers expect it.

use num_bigint::BigInt;

use crate::hir::{BinOp, Expr, ExprKind, Key, Program, Type, Value};
use crate::instantiate::{name_annotation, own_name};
use crate::source::Sources;

/// The name of a key: that of `@name`, or the expression's.
pub(super) fn key_name(program: &Program, sources: &Sources, key: &Key) -> String {
    if let Some(name) = name_annotation(&key.annotations) {
        return name.to_owned();
    }
    Names { program, sources }.of(&key.value).unwrap_or_else(|| key.text.clone())
}

struct Names<'a> {
    program: &'a Program,
    sources: &'a Sources,
}

impl Names<'_> {
    /// The name of a part of a key; `None` where the text is as good.
    fn of(&self, expr: &Expr) -> Option<String> {
        match &expr.kind {
            ExprKind::Var(var) => Some(self.program.vars.get(var.index())?.name.clone()),
            ExprKind::Field(inner, at) => {
                let (Type::Struct(ty) | Type::Header(ty) | Type::Union(ty)) = &inner.ty else { return None };
                let field = ty.fields.get(*at as usize)?;
                let name = own_name(&field.annotations, &field.name);
                match name.strip_prefix('.') {
                    Some(global) => Some(global.to_owned()),
                    None => Some(format!("{}.{name}", self.of(inner)?)),
                }
            }
            ExprKind::Valid(inner) => Some(format!("{}.$valid$", self.of(inner)?)),
            ExprKind::LastIndex(inner) => Some(format!("{}.lastIndex", self.of(inner)?)),
            ExprKind::Element(inner, at) => Some(format!("{}[{}]", self.of(inner)?, self.of(at)?)),
            ExprKind::Slice(inner, hi, lo) => Some(format!("{}[{hi}:{lo}]", self.of(inner)?)),
            ExprKind::Binary(BinOp::And, sides) => {
                Some(format!("{} & {}", self.of(&sides.0)?, self.of(&sides.1)?))
            }
            ExprKind::Const(Value::Integer(value)) => Some(in_base(value, self.sources.text(expr.span))),
            _ => None,
        }
    }
}

/// A number in the base in which it is written, without the width that may stand before it.
fn in_base(value: &BigInt, written: &str) -> String {
    let digits = written.split_once(['w', 's']).map_or(written, |(_, digits)| digits);
    match digits.get(..2) {
        Some("0x" | "0X") => format!("0x{value:x}"),
        Some("0o" | "0O") => format!("0o{value:o}"),
        Some("0b" | "0B") => format!("0b{value:b}"),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::in_base;

    #[test]
    fn constants_keep_their_base() {
        let value = 72.into();
        for (written, name) in
            [("8w0x048", "0x48"), ("0X48", "0x48"), ("0b1001000", "0b1001000"), ("MACRO", "72")]
        {
            assert_eq!(in_base(&value, written), name);
        }
    }
}
