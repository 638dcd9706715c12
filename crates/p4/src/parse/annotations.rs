//! Annotations.

use super::{Parse, Parser};
use crate::ast::{Annotation, AnnotationBody, Name};
use crate::lex::TokenKind;

impl Parser<'_> {
    /// Annotations, if any come next.
    pub(super) fn annotations(&mut self) -> Parse<Vec<Annotation>> {
        let mut annotations = Vec::new();
        while self.at("@") {
            annotations.push(self.annotation()?);
        }
        Ok(annotations)
    }

    fn annotation(&mut self) -> Parse<Annotation> {
        let start = self.bump().span;
        if self.at("pragma") {
            return self.pragma();
        }
        let name = self.annotation_name()?;
        let body = if self.eat("(") {
            AnnotationBody::Tokens(self.annotation_tokens()?)
        } else if self.eat("[") {
            self.structured_annotation()?
        } else {
            AnnotationBody::None
        };
        Ok(Annotation { name, body, span: self.since(start) })
    }

    /// A name; here, keywords are names, too.
    fn annotation_name(&mut self) -> Parse<Name> {
        let token = self.token();
        if !token.is_word() {
            let error = self.unexpected("the name of an annotation");
            return self.fail(error);
        }
        self.bump();
        Ok(Name { text: token.text.to_string(), span: token.span })
    }

    /// `@pragma NAME …`, up to the end of the line.
    fn pragma(&mut self) -> Parse<Annotation> {
        let start = self.bump().span;
        let name = self.annotation_name()?;
        let mut tokens = Vec::new();
        while !(self.at_end() || self.token().starts_line) {
            tokens.push(self.bump().text.to_string());
        }
        Ok(Annotation { name, body: AnnotationBody::Tokens(tokens), span: self.since(start) })
    }

    /// Any tokens up to the bracket that closes the body.
    fn annotation_tokens(&mut self) -> Parse<Vec<String>> {
        let mut tokens = Vec::new();
        let mut depth = 0_usize;
        loop {
            if self.at_end() {
                let error = self.unexpected("`)` of the annotation");
                return self.fail(error);
            }
            let token = self.bump();
            if token.is("(") {
                depth += 1;
            } else if token.is(")") {
                if depth == 0 {
                    return Ok(tokens);
                }
                depth -= 1;
            }
            tokens.push(token.text.to_string());
        }
    }

    fn structured_annotation(&mut self) -> Parse<AnnotationBody> {
        if self.eat("]") {
            return Ok(AnnotationBody::Expressions(Vec::new()));
        }
        if self.token().kind == TokenKind::Identifier && self.peek(1).is("=") {
            let mut pairs = Vec::new();
            while !self.at("]") {
                let name = self.name("a key")?;
                self.expect("=")?;
                pairs.push((name, self.expression()?));
                if !self.eat(",") {
                    break;
                }
            }
            self.expect("]")?;
            return Ok(AnnotationBody::KeyValues(pairs));
        }
        let mut values = Vec::new();
        while !self.at("]") {
            values.push(self.expression()?);
            if !self.eat(",") {
                break;
            }
        }
        self.expect("]")?;
        Ok(AnnotationBody::Expressions(values))
    }
}
