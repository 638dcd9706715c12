//! Annotations. The checker keeps them; only structured ones have values, which are computed, and `@field_list`, which
//! names numbers.

use super::scope::Symbol;
use super::value::Typed;
use super::{Checker, Place};
use crate::ast;
use crate::diagnostic::Diagnostic;
use crate::hir::{Annotation, AnnotationBody, Value};

impl<'a> Checker<'a, '_> {
    /// The checked form of annotations.
    pub(super) fn annotations(&mut self, annotations: &'a [ast::Annotation]) -> Vec<Annotation> {
        let structured = |a: &ast::Annotation| {
            matches!(a.body, ast::AnnotationBody::Expressions(_) | ast::AnnotationBody::KeyValues(_))
        };
        for (at, second) in annotations.iter().enumerate().filter(|(_, a)| structured(a)) {
            let same = |a: &&ast::Annotation| a.name.text == second.name.text;
            if let Some(first) = annotations.iter().take(at).find(same) {
                let message = format!("annotation `@{}` is there twice", second.name.text);
                self.report(Diagnostic::error(second.span, message).also(first.span, "first here"));
            }
        }
        annotations.iter().map(|a| self.annotation(a)).collect()
    }

    fn annotation(&mut self, annotation: &'a ast::Annotation) -> Annotation {
        let body = match &annotation.body {
            ast::AnnotationBody::None => AnnotationBody::Tokens(Vec::new()),
            ast::AnnotationBody::Tokens(tokens)
                if matches!(annotation.name.text.as_str(), "name" | "deprecated") =>
            {
                AnnotationBody::Tokens(self.one_string(annotation, tokens).into_iter().collect())
            }
            ast::AnnotationBody::Tokens(tokens) if annotation.name.text == "field_list" => {
                AnnotationBody::Tokens(self.numbers(tokens))
            }
            ast::AnnotationBody::Tokens(tokens) => AnnotationBody::Tokens(tokens.clone()),
            ast::AnnotationBody::Expressions(list) => {
                AnnotationBody::Values(list.iter().filter_map(|e| self.annotation_value(e)).collect())
            }
            ast::AnnotationBody::KeyValues(list) => {
                let mut values: Vec<(String, Value)> = Vec::new();
                for (name, expr) in list {
                    if values.iter().any(|(known, _)| *known == name.text) {
                        self.error(name.span, format!("key `{}` is there twice", name.text));
                    }
                    values.extend(self.annotation_value(expr).map(|v| (name.text.clone(), v)));
                }
                AnnotationBody::KeyValues(values)
            }
        };
        Annotation { name: annotation.name.text.clone(), body, span: annotation.span }
    }

    /// Tokens with constants replaced by their numbers. Members of enumerations stay.
    fn numbers(&self, tokens: &[String]) -> Vec<String> {
        let is_dot = |at: Option<usize>| at.and_then(|at| tokens.get(at)).is_some_and(|token| token == ".");
        let number = |(at, token): (usize, &String)| {
            if is_dot(at.checked_sub(1)) || is_dot(at.checked_add(1)) {
                return token.clone();
            }
            match self.scopes.find(token, true) {
                Some((Symbol::Const(constant), _)) => match constant.value() {
                    Some(Value::Integer(value)) => value.to_string(),
                    _ => token.clone(),
                },
                _ => token.clone(),
            }
        };
        tokens.iter().enumerate().map(number).collect()
    }

    /// The string that the tokens of `@name` are: one, or several with `++` between them.
    fn one_string(&mut self, annotation: &ast::Annotation, tokens: &[String]) -> Option<String> {
        let mut text = String::new();
        for (at, token) in tokens.iter().enumerate() {
            let content = token.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
            match content {
                Some(content) if at % 2 == 0 => text.push_str(content),
                None if at % 2 == 1 && token == "++" => {}
                _ => text.clear(),
            }
            if (at % 2 == 0) != content.is_some() || (at % 2 == 1 && token != "++") {
                let found =
                    Diagnostic::error(annotation.span, format!("`@{}` has no string", annotation.name.text));
                self.report(found.expected("expected `(\"…\")`"));
                return None;
            }
        }
        Some(format!("\"{text}\""))
    }

    fn annotation_value(&mut self, expr: &'a ast::Expr) -> Option<Value> {
        let typed: Typed<'a> = self.at(Place::TOP, |c| c.expr(expr));
        if typed.ty.is_error() {
            return None;
        }
        match typed.value() {
            Some(value @ (Value::Bool(_) | Value::Integer(_) | Value::String(_))) => Some(value.clone()),
            _ => {
                let found =
                    Diagnostic::error(expr.span, "a structured annotation has a value of another kind");
                self.report(found.expected("expected a constant: a number, a string or a boolean"));
                None
            }
        }
    }
}
