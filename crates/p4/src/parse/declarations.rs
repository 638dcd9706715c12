//! Declarations.
//!
//! Every kind is parsed everywhere; one that does not belong where it is gets an error that says where it does.

use super::names::Meaning;
use super::statements::STATEMENTS;
use super::{Parse, Parser};
use crate::ast::{
    Action, Annotation, Composite, Control, Declaration, DeclarationKind, Direction, EnumMember, Extern,
    Field, Function, Instance, Method, Name, Param, SelectCase, Signature, State, Transition, Type, TypeKind,
};
use crate::diagnostic::Diagnostic;
use crate::lex::{KEYWORDS, TokenKind};
use crate::source::Span;

/// Where a declaration is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// At the top level.
    TopLevel,
    /// In a parser, beside its states.
    Parser,
    /// In a control, beside `apply`.
    Control,
    /// Among statements.
    Block,
    /// In the initializer of an object.
    Object,
}

impl Place {
    /// Whether a declaration belongs here, and else where it does.
    fn takes(self, kind: &DeclarationKind) -> Result<(), (&'static str, &'static str)> {
        use DeclarationKind as Kind;
        use Place::{Block, Control, Object, Parser, TopLevel};
        let (places, what, belongs): (&[Place], _, _) = match kind {
            Kind::Constant(..) => (&[TopLevel, Parser, Control, Block], "a constant", "in a block"),
            Kind::Variable(..) => {
                (&[Parser, Control, Block], "a variable", "in a parser, a control or a block")
            }
            Kind::Instance(_) => (&[TopLevel, Parser, Control, Block, Object], "an object", "in a block"),
            Kind::Function(_) => (&[TopLevel, Object], "a function", "at the top level"),
            Kind::Action(_) => (&[TopLevel, Control], "an action", "at the top level or in a control"),
            Kind::Table(_) => (&[Control], "a table", "in a control"),
            Kind::ValueSet(..) => (&[Parser], "a value set", "in a parser"),
            _ => {
                let what = "a type, parser, control, error or match kind";
                (&[TopLevel], what, "at the top level; is a `}` missing before it?")
            }
        };
        if places.contains(&self) { Ok(()) } else { Err((what, belongs)) }
    }
}

/// Words that start declarations.
pub(super) const DECLARATIONS: &[&str] = &[
    "action",
    "const",
    "control",
    "enum",
    "error",
    "extern",
    "header",
    "header_union",
    "match_kind",
    "package",
    "parser",
    "struct",
    "table",
    "type",
    "typedef",
    "value_set",
];

impl Parser<'_> {
    /// A declaration with its annotations.
    pub(super) fn declaration(&mut self, place: Place) -> Parse<Declaration> {
        let start = self.token().span;
        let annotations = self.annotations()?;
        self.declaration_behind(annotations, start, place)
    }

    /// A declaration behind its annotations.
    fn declaration_behind(
        &mut self,
        annotations: Vec<Annotation>,
        start: Span,
        place: Place,
    ) -> Parse<Declaration> {
        let (name, kind) = self.nested(|p| p.declared(place))?;
        let span = self.since(start);
        if let Err((what, belongs)) = place.takes(&kind) {
            let error = Diagnostic::error(name.span, format!("{what} cannot be declared here"));
            self.diagnostics.push(error.help(format!("it belongs {belongs}")));
        }
        Ok(Declaration { annotations, name, kind, span })
    }

    fn declared(&mut self, place: Place) -> Parse<(Name, DeclarationKind)> {
        let token = self.token();
        let none = Name { text: String::new(), span: token.span };
        let declared = match &*token.text {
            _ if !token.is_word() => self.typed(place)?,
            "const" => {
                self.bump();
                let ty = self.ty()?;
                let name = self.name("the name of a constant")?;
                self.initial_value()?;
                let value = self.expression()?;
                self.names.declare(&name.text, Meaning::Value);
                self.semicolon("the constant")?;
                (name, DeclarationKind::Constant(ty, value))
            }
            "error" if self.peek(1).is("{") => {
                self.bump();
                (none, DeclarationKind::Error(self.name_list(false)?))
            }
            "match_kind" if self.peek(1).is("{") => {
                self.bump();
                (none, DeclarationKind::MatchKind(self.name_list(true)?))
            }
            "header" | "header_union" | "struct" | "enum" => self.derived_type()?,
            "typedef" => {
                self.bump();
                let ty = self.typedef_base()?;
                let name = self.type_name()?;
                self.semicolon("the type")?;
                (name, DeclarationKind::TypeDef(ty))
            }
            "type" if place == Place::TopLevel => {
                self.bump();
                let ty = self.ty()?;
                let name = self.type_name()?;
                self.semicolon("the type")?;
                (name, DeclarationKind::NewType(ty))
            }
            "parser" => self.parser()?,
            "control" => self.control()?,
            "package" => {
                self.bump();
                let name = self.type_name()?;
                let signature = self.scoped(Self::signature)?;
                self.semicolon("the package")?;
                (name, DeclarationKind::Package(signature))
            }
            "extern" => {
                self.bump();
                self.external()?
            }
            "action" => {
                self.bump();
                let name = self.name("the name of an action")?;
                self.names.declare(&name.text, Meaning::Value);
                let action =
                    self.scoped(|p| Ok(Action { params: p.params()?, body: p.block_in_scope()? }))?;
                (name, DeclarationKind::Action(action))
            }
            "table" => {
                self.bump();
                let name = self.name("the name of a table")?;
                self.names.declare(&name.text, Meaning::Value);
                (name, DeclarationKind::Table(self.table()?))
            }
            "value_set" => {
                self.bump();
                self.expect("<")?;
                let ty = self.ty()?;
                self.expect(">")?;
                self.expect("(")?;
                let size = self.expression()?;
                self.expect(")")?;
                let name = self.name("the name of a value set")?;
                self.names.declare(&name.text, Meaning::Value);
                self.semicolon("the value set")?;
                (name, DeclarationKind::ValueSet(ty, size))
            }
            _ => self.typed(place)?,
        };
        Ok(declared)
    }

    /// The `=` of a constant.
    fn initial_value(&mut self) -> Parse<()> {
        if self.at("==") {
            let error = self.unexpected("`=`").help("write `=` to give a value");
            return self.fail(error);
        }
        self.expect("=")
    }

    /// Name of a type, which is in scope from here on.
    fn type_name(&mut self) -> Parse<Name> {
        let name = self.name("the name of a type")?;
        self.names.declare(&name.text, Meaning::Type);
        Ok(name)
    }

    /// Names between commas, in braces.
    fn name_list(&mut self, trailing_comma: bool) -> Parse<Vec<Name>> {
        self.expect("{")?;
        let mut names = Vec::new();
        while !self.at("}") || !(trailing_comma || names.is_empty()) {
            names.push(self.name("a name")?);
            if !self.eat(",") {
                break;
            }
        }
        self.close_list()?;
        Ok(names)
    }

    fn close_list(&mut self) -> Parse<()> {
        if self.eat("}") {
            return Ok(());
        }
        let error = self.unexpected("`,` or `}`");
        self.fail(error)
    }

    /// Header, union, struct or enumeration.
    fn derived_type(&mut self) -> Parse<(Name, DeclarationKind)> {
        let keyword = self.bump();
        if keyword.is("enum") {
            return self.enumeration();
        }
        let name = self.type_name()?;
        let composite = self.scoped(|p| {
            let type_params = p.type_params()?;
            p.expect("{")?;
            Ok(Composite { type_params, fields: p.items(Self::field)? })
        })?;
        let kind = match &*keyword.text {
            "header" => DeclarationKind::Header(composite),
            "header_union" => DeclarationKind::HeaderUnion(composite),
            _ => DeclarationKind::Struct(composite),
        };
        Ok((name, kind))
    }

    fn field(&mut self) -> Parse<Field> {
        let annotations = self.annotations()?;
        let ty = self.ty()?;
        let name = self.name("the name of a field")?;
        let ty = self.nested(|p| p.stack_of(ty))?;
        self.semicolon("the field")?;
        Ok(Field { annotations, ty, name })
    }

    /// The type of a name with sizes behind it, as in C: `T NAME[4]` means `T[4] NAME`.
    fn stack_of(&mut self, mut ty: Type) -> Parse<Type> {
        while self.eat("[") {
            let size = self.expression()?;
            self.expect("]")?;
            self.deepen()?;
            let span = self.since(ty.span);
            ty = Type { kind: TypeKind::Stack(Box::new(ty), Box::new(size)), span };
        }
        Ok(ty)
    }

    fn enumeration(&mut self) -> Parse<(Name, DeclarationKind)> {
        let plain = self.token().kind == TokenKind::Identifier && self.peek(1).is("{");
        let representation = if plain { None } else { Some(self.ty()?) };
        let name = self.type_name()?;
        self.expect("{")?;
        let mut members = Vec::new();
        while !self.at("}") {
            let annotations = self.annotations()?;
            let name = self.name("the name of a member")?;
            let value = if self.eat("=") { Some(self.expression()?) } else { None };
            members.push(EnumMember { annotations, name, value });
            if !self.eat(",") {
                break;
            }
        }
        self.close_list()?;
        Ok((name, DeclarationKind::Enum(representation, members)))
    }

    /// What a `typedef` names: a type, or the declaration of one, which becomes a declaration of its own.
    fn typedef_base(&mut self) -> Parse<Type> {
        let start = self.token().span;
        let declares = ["header", "header_union", "struct", "enum"].iter().any(|k| self.at(k));
        if !declares {
            return self.ty();
        }
        let (name, kind) = self.derived_type()?;
        let span = self.since(start);
        let ty = Type { kind: TypeKind::Named { global: false, name: name.clone() }, span: name.span };
        self.ahead.push(Declaration { annotations: Vec::new(), name, kind, span });
        Ok(ty)
    }

    /// Type parameters and parameters.
    fn signature(&mut self) -> Parse<Signature> {
        Ok(Signature { type_params: self.type_params()?, params: self.params()? })
    }

    /// Parameters in brackets, which are in scope from here on.
    fn params(&mut self) -> Parse<Vec<Param>> {
        self.expect("(")?;
        let mut params = Vec::new();
        if self.eat(")") {
            return Ok(params);
        }
        loop {
            params.push(self.param()?);
            if !self.eat(",") {
                break;
            }
        }
        if !self.eat(")") {
            let error = self.unexpected("`,` or `)`");
            return self.fail(error);
        }
        Ok(params)
    }

    fn param(&mut self) -> Parse<Param> {
        let start = self.token().span;
        let annotations = self.annotations()?;
        let direction = if self.eat("in") {
            Direction::In
        } else if self.eat("out") {
            Direction::Out
        } else if self.eat("inout") {
            Direction::InOut
        } else {
            Direction::None
        };
        let ty = self.ty()?;
        let name = self.name("the name of a parameter")?;
        let default = if self.eat("=") { Some(self.expression()?) } else { None };
        self.names.declare(&name.text, Meaning::Value);
        Ok(Param { annotations, direction, ty, name, default, span: self.since(start) })
    }

    fn parser(&mut self) -> Parse<(Name, DeclarationKind)> {
        self.bump();
        let name = self.type_name()?;
        let kind = self.scoped(|p| {
            let signature = p.signature()?;
            if p.eat(";") {
                return Ok(DeclarationKind::ParserType(signature));
            }
            let constructor = p.constructor_params()?;
            p.body("parser")?;
            let mut states = Vec::new();
            let locals = p.items(|p| {
                let start = p.token().span;
                let annotations = p.annotations()?;
                if p.at("state") && p.peek(2).is("{") {
                    p.in_parser = true;
                    let state = p.state(annotations, start);
                    p.in_parser = false;
                    states.push(state?);
                    return Ok(None);
                }
                if annotations.is_empty() && p.eat(";") {
                    return Ok(None);
                }
                Ok(Some(p.declaration_behind(annotations, start, Place::Parser)?))
            })?;
            let locals = locals.into_iter().flatten().collect();
            Ok(DeclarationKind::Parser(Box::new(crate::ast::Parser {
                signature,
                constructor,
                locals,
                states,
            })))
        })?;
        Ok((name, kind))
    }

    /// Parameters of a constructor, if there are any.
    fn constructor_params(&mut self) -> Parse<Vec<Param>> {
        if self.at("(") { self.params() } else { Ok(Vec::new()) }
    }

    /// The brace of a body.
    fn body(&mut self, what: &str) -> Parse<()> {
        if self.eat("{") {
            return Ok(());
        }
        let error = self.unexpected(&format!("`{{` of the {what}'s body, or `;`"));
        self.fail(error)
    }

    fn state(&mut self, annotations: Vec<Annotation>, start: Span) -> Parse<State> {
        self.bump();
        let name = self.name("the name of a state")?;
        self.expect("{")?;
        let (statements, transition) = self.scoped(|p| {
            let mut transition = None;
            let statements = p.items(|p| {
                let token = p.token();
                if token.is("transition") {
                    if transition.is_some() {
                        let error = Diagnostic::error(token.span, "second `transition` of a state");
                        return p.fail(error.help("a state has one, at its end"));
                    }
                    transition = Some(p.transition()?);
                    return Ok(None);
                }
                // A misspelt keyword looks like the type of a variable.
                if token.kind == TokenKind::Identifier
                    && p.peek(1).is_word()
                    && p.meaning(0).is_none()
                    && crate::similar::similar(&token.text, ["transition"]).is_some()
                {
                    let error =
                        p.unexpected("a statement or `transition`").help("did you mean `transition`?");
                    return p.fail(error);
                }
                if transition.is_some() && !token.is(";") {
                    let error = p.unexpected("`}` behind the transition").help("a transition ends its state");
                    return p.fail(error);
                }
                Ok(Some(p.statement()?))
            })?;
            Ok((statements.into_iter().flatten().collect(), transition))
        })?;
        Ok(State { annotations, name, statements, transition, span: self.since(start) })
    }

    fn transition(&mut self) -> Parse<Transition> {
        self.bump();
        if !self.at("select") {
            let name = self.name("the name of a state or `select`")?;
            self.semicolon("the transition")?;
            return Ok(Transition::To(name));
        }
        let start = self.bump().span;
        self.expect("(")?;
        let mut on = Vec::new();
        while !self.at(")") {
            on.push(self.expression()?);
            if !self.eat(",") {
                break;
            }
        }
        self.expect(")")?;
        self.expect("{")?;
        let cases = self.items(|p| {
            let keyset = p.keyset()?;
            if !p.at(":") {
                let error = p.unexpected("`:` and a state");
                return p.fail(error);
            }
            p.bump();
            let to = p.name("the name of a state")?;
            p.semicolon("the case")?;
            Ok(SelectCase { keyset, to })
        })?;
        let span = self.since(start);
        Ok(Transition::Select { on, cases, span })
    }

    fn control(&mut self) -> Parse<(Name, DeclarationKind)> {
        self.bump();
        let name = self.type_name()?;
        let kind = self.scoped(|p| {
            let signature = p.signature()?;
            if p.eat(";") {
                return Ok(DeclarationKind::ControlType(signature));
            }
            let constructor = p.constructor_params()?;
            p.body("control")?;
            let mut body = None;
            let locals = p.items(|p| {
                if p.at("apply") && (p.peek(1).is("{") || p.peek(1).is("@")) {
                    let start = p.bump().span;
                    if body.is_some() {
                        let error = Diagnostic::error(start, "second `apply` of a control");
                        p.diagnostics.push(error);
                    }
                    body = Some(p.block()?);
                    return Ok(None);
                }
                if body.is_some() && !p.at(";") {
                    let error = p.unexpected("`}` behind `apply`").help("declarations precede `apply`");
                    p.diagnostics.push(error);
                }
                if p.eat(";") {
                    return Ok(None);
                }
                Ok(Some(p.declaration(Place::Control)?))
            })?;
            let locals = locals.into_iter().flatten().collect();
            let Some(body) = body else {
                let error = Diagnostic::error(name.span, format!("control `{}` has no `apply`", name.text));
                return p.fail(error.help("add `apply { }`"));
            };
            Ok(DeclarationKind::Control(Box::new(Control { signature, constructor, locals, body })))
        })?;
        Ok((name, kind))
    }

    /// An extern object or function.
    fn external(&mut self) -> Parse<(Name, DeclarationKind)> {
        let generic = if self.peek(1).is("<") { self.scan_type_arguments(1) } else { Some(1) };
        let is_object =
            self.token().kind == TokenKind::Identifier && generic.is_some_and(|at| self.peek(at).is("{"));
        if !is_object {
            let (name, function) = self.prototype()?;
            self.semicolon("the extern function")?;
            return Ok((name, DeclarationKind::ExternFunction(function)));
        }
        let name = self.type_name()?;
        let external = self.scoped(|p| {
            let type_params = p.type_params()?;
            p.expect("{")?;
            let methods = p.items(|p| p.method(&name))?;
            Ok(Extern { type_params, methods })
        })?;
        Ok((name, DeclarationKind::Extern(external)))
    }

    fn method(&mut self, object: &Name) -> Parse<Method> {
        let annotations = self.annotations()?;
        if self.at(&object.text) && self.peek(1).is("(") {
            let name = self.name("the name of the constructor")?;
            let params = self.scoped(Self::params)?;
            self.semicolon("the constructor")?;
            let result = Type { kind: TypeKind::Void, span: name.span };
            let signature = Signature { type_params: Vec::new(), params };
            let function = Function { result, signature, body: None };
            return Ok(Method { annotations, is_abstract: false, is_constructor: true, function, name });
        }
        let is_abstract = self.eat("abstract");
        let (name, function) = self.prototype()?;
        self.semicolon("the method")?;
        Ok(Method { annotations, is_abstract, is_constructor: false, function, name })
    }

    /// Result, name and parameters of a function.
    fn prototype(&mut self) -> Parse<(Name, Function)> {
        let result = self.ty()?;
        let name = self.name("the name of a function")?;
        let signature = self.scoped(Self::signature)?;
        Ok((name, Function { result, signature, body: None }))
    }

    /// A declaration that starts with a type: a variable, an instance or a function.
    fn typed(&mut self, place: Place) -> Parse<(Name, DeclarationKind)> {
        let first = self.token();
        if !(first.kind == TokenKind::Identifier || first.is(".") || super::scan::is_base_type(first)) {
            let error = self.unexpected("a declaration");
            let error = self.explain_statement(error);
            return self.fail(error);
        }
        let ty = self.ty()?;
        if self.at("(") {
            return self.instance(ty);
        }
        if self.token().kind != TokenKind::Identifier {
            let mut error = self.unexpected("the name of what is declared");
            if first.kind == TokenKind::Identifier {
                error = self.suggest(error, &first.text, DECLARATIONS);
            }
            if error.help.is_none() {
                error = self.explain_statement(error);
            }
            return self.fail(error);
        }
        let name = self.name("a name")?;
        if self.at("(") || self.at("<") {
            return self.function(ty, name);
        }
        let ty = self.stack_of(ty)?;
        if self.at("{") && first.kind == TokenKind::Identifier {
            let error =
                Diagnostic::error(first.span, format!("unknown kind of declaration `{}`", first.text));
            let error = self.suggest(error, &first.text, KEYWORDS);
            return self.fail(error);
        }
        let value = if self.eat("=") {
            Some(self.expression()?)
        } else if self.at("==") {
            self.initial_value()?;
            None
        } else {
            None
        };
        self.names.declare(&name.text, Meaning::Value);
        self.semicolon(if place == Place::TopLevel { "the declaration" } else { "the variable" })?;
        Ok((name, DeclarationKind::Variable(ty, value)))
    }

    /// Says that statements belong elsewhere, if the next token is one's.
    fn explain_statement(&self, error: Diagnostic) -> Diagnostic {
        let token = self.token();
        let is_statement = STATEMENTS.contains(&&*token.text) || token.is("=") || token.is(".");
        if is_statement {
            error.help("statements belong in `apply`, an action, a function or a parser state")
        } else {
            error
        }
    }

    /// A variable in the head of a loop.
    pub(super) fn variable_without_semicolon(&mut self) -> Parse<Declaration> {
        let start = self.token().span;
        let annotations = self.annotations()?;
        let ty = self.ty()?;
        let name = self.name("the name of a variable")?;
        let value = if self.eat("=") { Some(self.expression()?) } else { None };
        self.names.declare(&name.text, Meaning::Value);
        let span = self.since(start);
        Ok(Declaration { annotations, name, kind: DeclarationKind::Variable(ty, value), span })
    }

    fn instance(&mut self, ty: Type) -> Parse<(Name, DeclarationKind)> {
        let args = self.arguments()?;
        let name = self.name("the name of the object")?;
        self.names.declare(&name.text, Meaning::Value);
        let ty = self.stack_of(ty)?;
        let initializer = if self.eat("=") {
            self.expect("{")?;
            Some(self.scoped(|p| p.nested(|p| p.items(|p| p.declaration(Place::Object))))?)
        } else {
            None
        };
        self.semicolon("the object")?;
        Ok((name, DeclarationKind::Instance(Instance { ty, args, initializer })))
    }

    fn function(&mut self, result: Type, name: Name) -> Parse<(Name, DeclarationKind)> {
        self.names.declare(&name.text, Meaning::Value);
        let function = self.scoped(|p| {
            let signature = p.signature()?;
            if !p.at("{") {
                let error = p.unexpected("`{` of the function's body");
                return p.fail(error.help("a function without a body is `extern`"));
            }
            Ok(Function { result, signature, body: Some(p.block_in_scope()?) })
        })?;
        Ok((name, DeclarationKind::Function(function)))
    }
}
