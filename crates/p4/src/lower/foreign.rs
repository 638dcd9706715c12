//! Calls of extern functions that no architecture has; a native module provides them, by name.
//!
//! The types of such a function are numbers and truth values. In the pipeline its result is its first parameter, and a
//! parameter `inout` is two: its value, then its place.

use pipeline::ir::{self, Direction, ExternArg};

use super::Lower;
use super::storage::Store;
use super::types::scalar;
use super::value::{Val, has_effects};
use crate::ast;
use crate::hir::{Call, Type};

impl<'h> Lower<'h> {
    /// Lowers a call of a function that others provide.
    pub(super) fn foreign_function(&mut self, name: &str, call: &'h Call, result: &'h Type) -> Val {
        let (mut params, mut args) = (Vec::new(), Vec::new());
        let mut add = |direction, ty, arg| {
            params.push((direction, ty));
            args.push(arg);
        };
        let value = match (result, scalar(result)) {
            (Type::Void, _) => Val::Nothing,
            (_, Some(ty)) => {
                let store = self.allocate(name, result, call.span);
                if let Store::Scalar(place) = &store {
                    add(Direction::Out, ty, ExternArg::Out(place.clone()));
                }
                Val::Store(store)
            }
            _ => {
                self.unsupported(call.span, format!("`{name}`, whose result is no number, is"));
                return Val::Nothing;
            }
        };
        let last_effect = call.args.iter().rposition(has_effects).unwrap_or(0);
        for (i, (arg, direction)) in call.args.iter().zip(&call.directions).enumerate() {
            let Some(ty) = scalar(&arg.ty) else {
                self.unsupported(arg.span, format!("an argument of `{name}` that is no number is"));
                return Val::Nothing;
            };
            let place = match direction {
                ast::Direction::In | ast::Direction::None => None,
                ast::Direction::Out | ast::Direction::InOut => {
                    let place = self.place(arg);
                    let Store::Scalar(place) = (if i < last_effect { self.fixed(place) } else { place })
                    else {
                        return Val::Nothing;
                    };
                    Some(place)
                }
            };
            if *direction != ast::Direction::Out {
                let number = self.number(arg);
                // A later argument may change it.
                let number = if i < last_effect { self.save_number(number, ty) } else { number };
                add(Direction::In, ty, ExternArg::In(number));
            }
            if let Some(place) = place {
                add(Direction::Out, ty, ExternArg::Out(place));
            }
        }
        let function = ir::Extern { name: name.to_owned(), params };
        let same = self.out.externs.iter().position(|known| known.name == function.name);
        let id = same.unwrap_or(self.out.externs.len());
        match self.out.externs.get(id) {
            None => self.out.externs.push(function),
            Some(known) if *known == function => {}
            Some(_) => {
                self.unsupported(
                    call.span,
                    format!("`{name}` with parameters of other types than before is"),
                );
                return Val::Nothing;
            }
        }
        self.emit(ir::Stmt::Extern(ir::ExternId::at(id), args));
        value
    }
}
