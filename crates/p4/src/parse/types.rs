//! Types, type parameters and type arguments.

use super::names::Meaning;
use super::{Parse, Parser};
use crate::ast::{Expr, Name, Type, TypeKind};
use crate::lex::TokenKind;

impl Parser<'_> {
    /// A type.
    pub(super) fn ty(&mut self) -> Parse<Type> {
        self.nested(|p| {
            let start = p.token().span;
            let kind = p.type_kind()?;
            let mut ty = Type { kind, span: p.since(start) };
            while p.at("[") {
                p.bump();
                let size = p.expression()?;
                p.expect("]")?;
                p.deepen()?;
                ty = Type { kind: TypeKind::Stack(Box::new(ty), Box::new(size)), span: p.since(start) };
            }
            Ok(ty)
        })
    }

    fn type_kind(&mut self) -> Parse<TypeKind> {
        let token = self.token();
        if token.kind == TokenKind::Keyword {
            let simple = match &*token.text {
                "void" => Some(TypeKind::Void),
                "bool" => Some(TypeKind::Bool),
                "error" => Some(TypeKind::Error),
                "match_kind" => Some(TypeKind::MatchKind),
                "string" => Some(TypeKind::String),
                "int" if !self.peek(1).is("<") => Some(TypeKind::Integer),
                "bit" if !self.peek(1).is("<") => Some(TypeKind::Bit(None)),
                _ => None,
            };
            if let Some(kind) = simple {
                self.bump();
                return Ok(kind);
            }
            return match &*token.text {
                "bit" => Ok(TypeKind::Bit(Some(self.width()?))),
                "int" => Ok(TypeKind::Int(self.width()?)),
                "varbit" => Ok(TypeKind::Varbit(self.width()?)),
                "tuple" => {
                    self.bump();
                    Ok(TypeKind::Tuple(self.type_arguments()?))
                }
                _ => {
                    let error = self.unexpected("a type");
                    self.fail(error)
                }
            };
        }
        if token.is("list") && self.peek(1).is("<") {
            self.bump();
            self.bump();
            let element = self.type_argument()?;
            self.expect(">")?;
            return Ok(TypeKind::List(Box::new(element)));
        }
        let global = self.eat(".");
        let name = self.name("a type")?;
        let kind = TypeKind::Named { global, name };
        if !self.at("<") {
            return Ok(kind);
        }
        let ty = Type { kind, span: self.since(token.span) };
        Ok(TypeKind::Specialized(Box::new(ty), self.type_arguments()?))
    }

    /// The width of `bit<W>`: by the standard an integer, or any expression in brackets.
    fn width(&mut self) -> Parse<Box<Expr>> {
        self.bump();
        self.expect("<")?;
        let width = self.width_expression()?;
        self.expect(">")?;
        Ok(Box::new(width))
    }

    /// Type arguments in angle brackets.
    pub(super) fn type_arguments(&mut self) -> Parse<Vec<Type>> {
        self.expect("<")?;
        let mut arguments = Vec::new();
        if self.eat(">") {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.type_argument()?);
            if !self.eat(",") {
                break;
            }
        }
        if !self.eat(">") {
            let error = self.unexpected("`,` or `>`");
            return self.fail(error);
        }
        Ok(arguments)
    }

    fn type_argument(&mut self) -> Parse<Type> {
        let token = self.token();
        if self.eat("_") {
            return Ok(Type { kind: TypeKind::DontCare, span: token.span });
        }
        self.ty()
    }

    /// Type parameters, which are in scope from here on.
    pub(super) fn type_params(&mut self) -> Parse<Vec<Name>> {
        let mut params = Vec::new();
        if !self.eat("<") {
            return Ok(params);
        }
        loop {
            let name = self.name("the name of a type parameter")?;
            self.names.declare(&name.text, Meaning::Type);
            params.push(name);
            if !self.eat(",") {
                break;
            }
        }
        if !self.eat(">") {
            let error = self.unexpected("`,` or `>`");
            return self.fail(error);
        }
        Ok(params)
    }
}
