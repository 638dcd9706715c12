//! Expressions, keysets and arguments.

use num_bigint::BigInt;

use super::names::Meaning;
use super::scan::is_base_type;
use super::{Parse, Parser};
use crate::ast::{Argument, BinOp, Expr, ExprKind, Name, Type, TypeKind, UnOp};
use crate::diagnostic::Diagnostic;
use crate::lex::{self, TokenKind};

/// Operators on two operands with their precedences.
const OPERATORS: &[(&str, BinOp, u8)] = &[
    ("||", BinOp::LogicOr, 1),
    ("&&", BinOp::LogicAnd, 2),
    ("==", BinOp::Eq, 3),
    ("!=", BinOp::Ne, 3),
    ("<", BinOp::Lt, 4),
    (">", BinOp::Gt, 4),
    ("<=", BinOp::Le, 4),
    (">=", BinOp::Ge, 4),
    ("|", BinOp::Or, 5),
    ("^", BinOp::Xor, 6),
    ("&", BinOp::And, 7),
    ("<<", BinOp::Shl, SHIFT),
    ("++", BinOp::Concat, SUM),
    ("+", BinOp::Add, SUM),
    ("-", BinOp::Sub, SUM),
    ("|+|", BinOp::SatAdd, SUM),
    ("|-|", BinOp::SatSub, SUM),
    ("*", BinOp::Mul, 10),
    ("/", BinOp::Div, 10),
    ("%", BinOp::Rem, 10),
];
const SHIFT: u8 = 8;
const SUM: u8 = 9;

impl Parser<'_> {
    /// An expression.
    pub(super) fn expression(&mut self) -> Parse<Expr> {
        self.expression_within(false)
    }

    /// The width of a type, which ends at `>`.
    pub(super) fn width_expression(&mut self) -> Parse<Expr> {
        self.expression_within(true)
    }

    fn expression_within(&mut self, width: bool) -> Parse<Expr> {
        let outer = std::mem::replace(&mut self.in_width, width);
        let expr = self.nested(|p| {
            let left = p.unary()?;
            p.operators(left)
        });
        self.in_width = outer;
        expr
    }

    /// A condition in brackets.
    pub(super) fn condition(&mut self) -> Parse<Expr> {
        self.expect("(")?;
        let condition = self.expression()?;
        if self.at("=") {
            let error = self.unexpected("`)`").help("write `==` to compare");
            return self.fail(error);
        }
        self.expect(")")?;
        Ok(condition)
    }

    /// Continues an expression behind its first operand.
    fn operators(&mut self, left: Expr) -> Parse<Expr> {
        let condition = self.binary(left, 1)?;
        if !self.eat("?") {
            return Ok(condition);
        }
        let chosen = self.expression_within(self.in_width)?;
        self.expect(":")?;
        let other = self.expression_within(self.in_width)?;
        self.deepen()?;
        let span = condition.span.to(other.span);
        let kind = ExprKind::Ternary(Box::new(condition), Box::new(chosen), Box::new(other));
        Ok(Expr { kind, span })
    }

    /// The operator that comes next, its precedence and its number of tokens.
    fn operator(&self) -> Option<(BinOp, u8, usize)> {
        let token = self.token();
        if token.kind != TokenKind::Punct || (self.in_width && token.text.starts_with('>')) {
            return None;
        }
        if token.is(">") && self.peek(1).is(">") && self.peek(1).joined {
            return Some((BinOp::Shr, SHIFT, 2));
        }
        OPERATORS.iter().find(|(text, ..)| token.is(text)).map(|&(_, op, precedence)| (op, precedence, 1))
    }

    /// Continues behind an operand with operators of at least a precedence.
    fn binary(&mut self, mut left: Expr, least: u8) -> Parse<Expr> {
        while let Some((op, precedence, tokens)) = self.operator().filter(|o| o.1 >= least) {
            for _ in 0..tokens {
                self.bump();
            }
            let height = std::mem::take(&mut self.height);
            let right = self.unary()?;
            let right = self.binary(right, precedence + 1)?;
            self.height = self.height.max(height);
            self.deepen()?;
            let span = left.span.to(right.span);
            left = Expr { kind: ExprKind::Binary(op, Box::new(left), Box::new(right)), span };
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parse<Expr> {
        let token = self.token();
        let op = match &*token.text {
            "!" => UnOp::Not,
            "~" => UnOp::Complement,
            "-" => UnOp::Negate,
            "+" => UnOp::Plus,
            "(" if token.kind == TokenKind::Punct && self.at_cast() => return self.cast(),
            _ => return self.postfix(),
        };
        if token.kind != TokenKind::Punct {
            return self.postfix();
        }
        self.bump();
        let operand = self.nested(Self::unary)?;
        let span = token.span.to(operand.span);
        Ok(Expr { kind: ExprKind::Unary(op, Box::new(operand)), span })
    }

    fn cast(&mut self) -> Parse<Expr> {
        let start = self.bump().span;
        let ty = self.ty()?;
        self.expect(")")?;
        let operand = self.nested(Self::unary)?;
        let span = start.to(operand.span);
        Ok(Expr { kind: ExprKind::Cast(ty, Box::new(operand)), span })
    }

    /// An operand with members, indices and calls behind it.
    pub(super) fn postfix(&mut self) -> Parse<Expr> {
        let operand = self.primary()?;
        self.postfix_of(operand)
    }

    /// Continues behind an operand with members, indices and calls.
    fn postfix_of(&mut self, mut expr: Expr) -> Parse<Expr> {
        loop {
            let kind = if self.eat(".") {
                let name = self.name("the name of a member")?;
                ExprKind::Member(Box::new(expr), name)
            } else if self.at("[") {
                self.index(expr)?
            } else if self.at("(") {
                let arguments = self.arguments()?;
                ExprKind::Call(Box::new(expr), Vec::new(), arguments)
            } else if self.at("<") && self.at_generic(&expr) {
                let types = self.type_arguments()?;
                if self.at("(") {
                    let arguments = self.arguments()?;
                    ExprKind::Call(Box::new(expr), types, arguments)
                } else {
                    let ExprKind::Name { global, name } = expr.kind else {
                        let error = self.unexpected("`(` behind type arguments");
                        return self.fail(error);
                    };
                    let kind = TypeKind::Named { global, name };
                    let ty = Box::new(Type { kind, span: expr.span });
                    let kind = TypeKind::Specialized(ty, types);
                    ExprKind::Type(Type { kind, span: self.since(expr.span) })
                }
            } else {
                return Ok(expr);
            };
            self.deepen()?;
            let start = match &kind {
                ExprKind::Member(of, _) | ExprKind::Call(of, ..) => of.span,
                ExprKind::Index(of, _) | ExprKind::Slice(of, ..) | ExprKind::PlusSlice(of, ..) => of.span,
                ExprKind::Type(ty) => ty.span,
                _ => self.previous(),
            };
            expr = Expr { kind, span: self.since(start) };
        }
    }

    /// Whether the `<` behind an operand opens type arguments: of a call, or of a type with a member.
    fn at_generic(&self, callee: &Expr) -> bool {
        let is_type = match &callee.kind {
            ExprKind::Name { global, name } => self.names.look_up(&name.text, *global) == Some(Meaning::Type),
            ExprKind::Member(..) => false,
            _ => return false,
        };
        let Some(behind) = self.scan_type_arguments(0) else { return false };
        let next = self.peek(behind);
        (next.is("(") && (is_type || self.opens_type_arguments(0))) || (is_type && next.is("."))
    }

    fn index(&mut self, of: Expr) -> Parse<ExprKind> {
        self.bump();
        let first = self.expression()?;
        let kind = if self.eat(":") {
            ExprKind::Slice(Box::new(of), Box::new(first), Box::new(self.expression()?))
        } else if self.eat("+:") {
            ExprKind::PlusSlice(Box::new(of), Box::new(first), Box::new(self.expression()?))
        } else {
            ExprKind::Index(Box::new(of), Box::new(first))
        };
        self.expect("]")?;
        Ok(kind)
    }

    fn primary(&mut self) -> Parse<Expr> {
        let token = self.token();
        let start = token.span;
        let kind = match token.kind {
            TokenKind::Integer => {
                self.bump();
                match lex::integer(&token.text) {
                    Ok((value, ty)) => ExprKind::Integer(value, ty),
                    Err(message) => {
                        self.diagnostics.push(Diagnostic::error(start, message));
                        ExprKind::Integer(BigInt::ZERO, None)
                    }
                }
            }
            TokenKind::String => {
                self.bump();
                ExprKind::String(lex::string(&token.text))
            }
            TokenKind::Identifier => {
                self.no_type(0)?;
                ExprKind::Name { global: false, name: self.name("an expression")? }
            }
            TokenKind::Keyword if token.is("error") && self.peek(1).is(".") => {
                self.bump();
                ExprKind::Type(Type { kind: TypeKind::Error, span: start })
            }
            TokenKind::Keyword if is_base_type(token) => {
                let message = format!("expected an expression, found type `{}`", token.text);
                let error = Diagnostic::error(start, message).help("a cast is `(TYPE) VALUE`");
                return self.fail(error);
            }
            TokenKind::Keyword | TokenKind::Punct => match &*token.text {
                "true" | "false" => {
                    self.bump();
                    ExprKind::Bool(token.is("true"))
                }
                "this" => {
                    self.bump();
                    ExprKind::This
                }
                "..." => {
                    self.bump();
                    ExprKind::Dots
                }
                "{#}" => {
                    self.bump();
                    ExprKind::Invalid
                }
                "." => {
                    self.no_type(1)?;
                    self.bump();
                    ExprKind::Name { global: true, name: self.name("a name")? }
                }
                "{" => {
                    self.bump();
                    self.braced()?
                }
                "(" => {
                    self.bump();
                    let inner = self.expression()?;
                    self.expect(")")?;
                    // The brackets are part of the place, so that it covers what is written.
                    return Ok(Expr { span: self.since(start), ..inner });
                }
                _ => return self.no_expression(),
            },
            TokenKind::Unknown | TokenKind::End => return self.no_expression(),
        };
        Ok(Expr { kind, span: self.since(start) })
    }

    /// Refuses a type's name as a value. `at` is its position.
    fn no_type(&mut self, at: usize) -> Parse<()> {
        let behind = self.peek(at + 1);
        if self.meaning(0) != Some(Meaning::Type) || [".", "(", "<"].iter().any(|t| behind.is(t)) {
            return Ok(());
        }
        let name = self.peek(at);
        self.fail(Diagnostic::error(name.span, format!("expected a value, found type `{}`", name.text)))
    }

    fn no_expression<T>(&mut self) -> Parse<T> {
        let mut error = self.unexpected("an expression");
        if self.at("=") {
            error = error.help("write `==` to compare");
        }
        self.fail(error)
    }

    /// A list or a record behind its brace.
    fn braced(&mut self) -> Parse<ExprKind> {
        if self.token().kind == TokenKind::Identifier && self.peek(1).is("=") {
            let mut fields: Vec<(Name, Expr)> = Vec::new();
            let mut defaults = false;
            while !self.at("}") {
                if self.eat("...") {
                    defaults = true;
                    self.eat(",");
                    break;
                }
                let name = self.name("the name of a field")?;
                self.expect("=")?;
                fields.push((name, self.expression()?));
                if !self.eat(",") {
                    break;
                }
            }
            self.close_braced()?;
            return Ok(ExprKind::Record(fields, defaults));
        }
        let mut values = Vec::new();
        let mut defaults = false;
        while !self.at("}") {
            if self.eat("...") {
                defaults = true;
                self.eat(",");
                break;
            }
            values.push(self.expression()?);
            if !self.eat(",") {
                break;
            }
        }
        self.close_braced()?;
        Ok(ExprKind::List(values, defaults))
    }

    fn close_braced(&mut self) -> Parse<()> {
        if self.eat("}") {
            return Ok(());
        }
        let error = self.unexpected("`,` or `}`");
        self.fail(error)
    }

    /// Arguments in brackets.
    pub(super) fn arguments(&mut self) -> Parse<Vec<Argument>> {
        self.expect("(")?;
        let mut arguments = Vec::new();
        if self.eat(")") {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.argument()?);
            if !self.eat(",") {
                break;
            }
        }
        if !self.eat(")") {
            let error = self.unexpected("`,` or `)`");
            return self.fail(error);
        }
        Ok(arguments)
    }

    fn argument(&mut self) -> Parse<Argument> {
        let named = self.token().kind == TokenKind::Identifier && self.peek(1).is("=");
        let name = if named { Some(self.name("the name of a parameter")?) } else { None };
        if named {
            self.bump();
        }
        let token = self.token();
        let value = if self.eat("_") {
            Expr { kind: ExprKind::DontCare, span: token.span }
        } else {
            self.expression()?
        };
        Ok(Argument { name, value })
    }

    /// A keyset: one for each value in brackets, or a single one.
    pub(super) fn keyset(&mut self) -> Parse<Expr> {
        if !self.at("(") || self.at_cast() {
            return self.simple_keyset();
        }
        self.nested(|p| {
            let start = p.bump().span;
            let first = p.simple_keyset()?;
            if p.at(",") {
                let mut keysets = vec![first];
                while p.eat(",") {
                    keysets.push(p.simple_keyset()?);
                }
                p.expect(")")?;
                return Ok(Expr { kind: ExprKind::List(keysets, false), span: p.since(start) });
            }
            p.expect(")")?;
            let first = Expr { span: p.since(start), ..first };
            match first.kind {
                ExprKind::Default | ExprKind::DontCare | ExprKind::Mask(..) | ExprKind::Range(..) => {
                    Ok(first)
                }
                // The brackets belong to the first operand of an expression.
                _ => {
                    let operand = p.postfix_of(first)?;
                    let value = p.operators(operand)?;
                    p.mask_or_range(value)
                }
            }
        })
    }

    fn simple_keyset(&mut self) -> Parse<Expr> {
        let token = self.token();
        let special = |kind| Ok(Expr { kind, span: token.span });
        if self.eat("default") {
            return special(ExprKind::Default);
        }
        if self.eat("_") {
            return special(ExprKind::DontCare);
        }
        self.nested(|p| {
            let value = p.expression()?;
            p.mask_or_range(value)
        })
    }

    fn mask_or_range(&mut self, value: Expr) -> Parse<Expr> {
        let make: fn(Box<Expr>, Box<Expr>) -> ExprKind = if self.eat("&&&") {
            ExprKind::Mask
        } else if self.eat("..") {
            ExprKind::Range
        } else {
            return Ok(value);
        };
        let end = self.expression()?;
        let span = value.span.to(end.span);
        Ok(Expr { kind: make(Box::new(value), Box::new(end)), span })
    }

    /// The collection of a loop: an expression or a range.
    pub(super) fn collection(&mut self) -> Parse<Expr> {
        self.nested(|p| {
            let first = p.expression()?;
            p.mask_or_range(first)
        })
    }
}
