//! Tables.

use super::{Parse, Parser};
use crate::ast::{ActionRef, Entry, Expr, ExprKind, KeyElement, Property, PropertyValue, Table};
use crate::diagnostic::Diagnostic;

impl Parser<'_> {
    /// The body of a table.
    pub(super) fn table(&mut self) -> Parse<Table> {
        self.expect("{")?;
        Ok(Table { properties: self.items(Self::property)? })
    }

    fn property(&mut self) -> Parse<Property> {
        let start = self.token().span;
        let annotations = self.annotations()?;
        let is_const = self.eat("const");
        let name = self.name("a property of the table")?;
        if !self.at("=") {
            const PROPERTIES: &[&str] = &[
                "actions",
                "counters",
                "default_action",
                "entries",
                "implementation",
                "key",
                "meters",
                "size",
            ];
            let error = self.unexpected("`=`");
            let error = self.suggest(error, &name.text, PROPERTIES);
            return self.fail(error);
        }
        self.bump();
        let value = match name.text.as_str() {
            "key" => PropertyValue::Key(self.members(Self::key_element)?),
            "actions" => PropertyValue::Actions(self.members(Self::listed_action)?),
            "entries" => PropertyValue::Entries(self.members(Self::entry)?),
            other => {
                let is_value = |p: &Self| p.scan_brackets(0).is_some_and(|at| p.peek(at).is(";"));
                if self.at("{") && !is_value(self) {
                    let message = format!("unknown property `{other}` with a list");
                    let error = Diagnostic::error(name.span, message);
                    let error = self.suggest(error, other, &["key", "actions", "entries"]);
                    return self.fail(error);
                }
                let value = self.expression()?;
                self.semicolon("the property")?;
                PropertyValue::Expression(value)
            }
        };
        Ok(Property { annotations, is_const, name, value, span: self.since(start) })
    }

    /// A list in braces.
    fn members<T>(&mut self, member: impl FnMut(&mut Self) -> Parse<T>) -> Parse<Vec<T>> {
        self.expect("{")?;
        let members = self.items(member)?;
        // Not in the grammar, but common.
        self.eat(";");
        Ok(members)
    }

    fn key_element(&mut self) -> Parse<KeyElement> {
        let value = self.expression()?;
        if !self.at(":") {
            let error = self.unexpected("`:` and a match kind");
            return self.fail(error.help("write `VALUE: exact;`, or another match kind"));
        }
        self.bump();
        let kind = self.name("a match kind")?;
        let annotations = self.annotations()?;
        self.semicolon("the element of the key")?;
        Ok(KeyElement { annotations, value, kind })
    }

    fn listed_action(&mut self) -> Parse<ActionRef> {
        let annotations = self.annotations()?;
        let action = self.action_ref()?;
        if self.at(",") {
            let error = self.unexpected("`;` behind the action").help("actions are separated by `;`");
            return self.fail(error);
        }
        self.semicolon("the action")?;
        Ok(ActionRef { annotations, action })
    }

    /// An action's name, with arguments or not.
    fn action_ref(&mut self) -> Parse<Expr> {
        let start = self.token().span;
        let global = self.eat(".");
        let name = self.name("the name of an action")?;
        let action = Expr { kind: ExprKind::Name { global, name }, span: self.since(start) };
        if !self.at("(") {
            return Ok(action);
        }
        let arguments = self.arguments()?;
        let kind = ExprKind::Call(Box::new(action), Vec::new(), arguments);
        Ok(Expr { kind, span: self.since(start) })
    }

    fn entry(&mut self) -> Parse<Entry> {
        let start = self.token().span;
        let is_const = self.eat("const");
        let priority = if self.at("priority") && self.peek(1).is("=") {
            self.bump();
            self.bump();
            let priority = self.expression()?;
            self.expect(":")?;
            Some(priority)
        } else {
            None
        };
        let keyset = self.keyset()?;
        if !self.at(":") {
            let error = self.unexpected("`:` and an action");
            return self.fail(error);
        }
        self.bump();
        let action = self.action_ref()?;
        let annotations = self.annotations()?;
        self.semicolon("the entry")?;
        Ok(Entry { annotations, is_const, priority, keyset, action, span: self.since(start) })
    }
}
