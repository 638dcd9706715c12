//! Edits the text of a file to match another configuration. Unchanged parts keep their comments, order and spelling.
//!
//! Both configurations are converted to trees of tables ([`write::tree`]). Objects with the same identity (a bridge's
//! name, a station's address and VLAN) are compared key by key, and only keys that differ are edited. Invariant: an
//! edited text parses as the desired configuration. A text that cannot be edited is regenerated.

use std::collections::BTreeMap;
use std::path::Path;

use toml::{Table as Keys, Value as KeyValue};
use toml_edit::{
    Array, ArrayOfTables, Decor, DocumentMut, InlineTable, Item, Key, RawString, Table, TableLike, Value,
};

use super::write::{self, Node, Secrets};
use super::{Depth, parse};
use crate::diff;
use crate::model::Config;
use crate::options::former_name;

/// The text of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    /// The text.
    pub text: String,
    /// The reason why the text was regenerated without the comments of the original; `None` if it was edited.
    pub rewritten: Option<String>,
}

/// Edits `text` to match `wanted`.
pub fn edit(text: &str, wanted: &Config) -> Edited {
    match try_edit(text, wanted) {
        Ok(text) => Edited { text, rewritten: None },
        Err(reason) => Edited { text: write::write(wanted, Secrets::Written), rewritten: Some(reason) },
    }
}

fn try_edit(text: &str, wanted: &Config) -> Result<String, String> {
    let read = |text: &str| parse(text, Path::new(""), Depth::Form);
    // The first mistake is enough: `config check` lists all.
    let mistake = |error: super::FileError| {
        let first = error.problems.first();
        let line = first.and_then(|problem| problem.position).map_or(1, |position| position.line);
        format!("line {line} has a mistake: {}", first.map_or("", |problem| problem.message.as_str()))
    };
    let current = read(text).map_err(mistake)?;
    let mut document: DocumentMut = text.parse().map_err(|_| "it is not valid TOML".to_owned())?;
    let trailing = document.trailing().as_str().unwrap_or_default().to_owned();
    let mut editor = Editor { trailing, ..Editor::default() };
    document.set_trailing("");
    let (from, to) = (write::tree(&current, Secrets::Written), write::tree(wanted, Secrets::Written));
    editor.node(document.as_table_mut(), &from, &to, false);
    indent(&mut document);
    editor.place_comments(&mut document);
    let mut edited = document.to_string();
    if text.trim().is_empty() {
        edited = edited.trim_start_matches('\n').to_owned();
    }
    if text.contains("\r\n") {
        // toml_edit writes Unix line endings.
        edited = edited.replace('\n', "\r\n");
    }
    let reread = read(&edited).map_err(|_| "the edited text would be invalid".to_owned())?;
    match diff::between(&reread, wanted).is_empty() {
        true => Ok(edited),
        false => Err("the edited text would differ from the configuration".to_owned()),
    }
}

/// Generates the text of a configuration without an existing file.
pub(super) fn from_scratch(wanted: &Node) -> String {
    let mut document = DocumentMut::new();
    Editor::default().node(document.as_table_mut(), &Node::default(), wanted, false);
    document.to_string().trim_start_matches('\n').to_owned()
}

/// Comments of a removed table, and the position of that table.
struct Loose {
    position: isize,
    text: String,
}

#[derive(Default)]
struct Editor {
    loose: Vec<Loose>,
    /// The comments after the last table of the original text.
    trailing: String,
}

impl Editor {
    /// Changes `item` from `from` to `to`. New tables in an inline table are inline too.
    fn node(&mut self, item: &mut dyn TableLike, from: &Node, to: &Node, inline: bool) {
        keys(item, &from.keys, &to.keys);
        for (key, to) in &to.tables {
            let from = from.tables.iter().find(|(name, _)| name == key).and_then(|(_, node)| node.as_ref());
            match (item.get_mut(key), to) {
                (Some(there), Some(to)) => {
                    if let Some(table) = there.as_table_like_mut() {
                        self.node(table, from.unwrap_or(&Node::default()), to, false);
                    }
                }
                (None, Some(to)) => {
                    let new = match inline {
                        true => Item::Value(Value::InlineTable(inline_table(to))),
                        false => Item::Table(table(to)),
                    };
                    item.insert(key, new);
                }
                (Some(there), None) => match (from, there.as_table_like_mut()) {
                    // An empty `[daemon]` has no effect and may stay; an empty `[sflow]` would enable sFlow.
                    (Some(from), Some(table)) if *key == "daemon" => keys(table, &from.keys, &Keys::new()),
                    (Some(_), _) => {
                        let removed = item.remove(key);
                        self.keep_comments(removed.as_ref().and_then(Item::as_table));
                    }
                    (None, _) => {}
                },
                (None, None) => {}
            }
        }
        for (key, to) in &to.lists {
            let from = from.lists.iter().find(|(name, _)| name == key).map_or(&[][..], |(_, list)| list);
            self.list(item, key, from, to, inline);
        }
    }

    /// Changes the list `key` of `item` from `from` to `to`.
    fn list(&mut self, item: &mut dyn TableLike, key: &str, from: &[Node], to: &[Node], inline: bool) {
        let mut kept: Vec<&Node> = Vec::new();
        let mut list = match item.get_mut(key) {
            Some(Item::ArrayOfTables(tables)) => Some(List::Tables(tables)),
            Some(Item::Value(Value::Array(values))) => Some(List::Values(values)),
            _ => None,
        };
        if let Some(list) = &mut list {
            for (at, from) in from.iter().enumerate().rev() {
                if to.iter().any(|to| to.id == from.id) {
                    kept.insert(0, from);
                } else if let Some(removed) = list.remove(at) {
                    self.keep_comments(Some(&removed));
                }
            }
            for (at, from) in kept.iter().enumerate() {
                if let (Some((item, inline)), Some(to)) =
                    (list.get(at), to.iter().find(|to| to.id == from.id))
                {
                    self.node(item, from, to, inline);
                }
            }
        }
        let new = to.iter().filter(|to| !kept.iter().any(|from| from.id == to.id));
        match list {
            Some(mut list) => new.for_each(|node| list.push(node)),
            None if to.is_empty() => {}
            None if inline => {
                let values: Array = new.map(|node| Value::InlineTable(inline_table(node))).collect();
                item.insert(key, Item::Value(Value::Array(values)));
            }
            None => {
                let tables: ArrayOfTables = new.map(table).collect();
                item.insert(key, Item::ArrayOfTables(tables));
            }
        }
    }

    /// Keeps the comments above a removed table that an empty line separates from it: they concern more than this
    /// table.
    fn keep_comments(&mut self, removed: Option<&Table>) {
        let Some(removed) = removed else { return };
        let prefix = removed.decor().prefix().and_then(RawString::as_str).unwrap_or_default();
        let general = prefix.rfind("\n\n").map_or("", |end| &prefix[..=end]);
        if let Some(position) = removed.position()
            && general.contains('#')
        {
            self.loose.push(Loose { position, text: general.to_owned() });
        }
    }

    /// Moves loose comments above the next table, or to the end. Comments at the end of the original text stay above
    /// tables that were added after them.
    fn place_comments(mut self, document: &mut DocumentMut) {
        // The order in which tables are written: a new table has no position and follows the previous one.
        let (mut order, mut index, mut before) = (Vec::new(), 0, 0);
        visit(document.as_table(), &mut |_, table| {
            before = table.position().unwrap_or(before);
            order.push((before, index, table.position().is_none()));
            index += 1;
        });
        order.sort_by_key(|(position, index, _)| (*position, *index));
        let added = order.iter().rposition(|(_, _, new)| !new).map_or(0, |last| last + 1);
        let mut above: Vec<(usize, String)> = Vec::new();
        for Loose { position, text } in self.loose.drain(..).rev() {
            match order.iter().find(|(at, _, _)| *at > position) {
                Some((_, index, _)) => above.push((*index, text)),
                None => self.trailing.insert_str(0, &text),
            }
        }
        if let Some((_, index, _)) = order.get(added) {
            above.push((*index, std::mem::take(&mut self.trailing)));
        }
        let mut index = 0;
        visit_mut(document.as_table_mut(), &mut |_, table| {
            for (_, text) in above.iter().filter(|(at, _)| *at == index) {
                let prefix =
                    table.decor().prefix().and_then(RawString::as_str).unwrap_or_default().to_owned();
                table.decor_mut().set_prefix(format!("{text}{prefix}"));
            }
            index += 1;
        });
        document.set_trailing(self.trailing);
    }
}

/// A list of tables in one of TOML's two notations.
enum List<'a> {
    Tables(&'a mut ArrayOfTables),
    Values(&'a mut Array),
}

impl List<'_> {
    /// Returns a table, and whether it is inline.
    fn get(&mut self, at: usize) -> Option<(&mut dyn TableLike, bool)> {
        match self {
            List::Tables(tables) => tables.get_mut(at).map(|table| (table as &mut dyn TableLike, false)),
            List::Values(values) => {
                let table = values.get_mut(at)?.as_inline_table_mut()?;
                Some((table as &mut dyn TableLike, true))
            }
        }
    }

    /// Removes a table. Returns it if it can have comments of its own.
    fn remove(&mut self, at: usize) -> Option<Table> {
        match self {
            List::Tables(tables) => {
                let table = tables.get(at).cloned();
                tables.remove(at);
                table
            }
            List::Values(values) => {
                values.remove(at);
                None
            }
        }
    }

    fn push(&mut self, node: &Node) {
        match self {
            List::Tables(tables) => tables.push(table(node)),
            List::Values(values) => values.push(inline_table(node)),
        }
    }
}

/// Changes the keys of `item` from `from` to `to`.
fn keys(item: &mut dyn TableLike, from: &Keys, to: &Keys) {
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        item.remove(key);
        remove_former(item, key);
    }
    for (key, wanted) in in_order(to).filter(|(key, wanted)| from.get(*key) != Some(*wanted)) {
        let there = item.get_mut(key);
        match (wanted, there) {
            (KeyValue::Table(wanted), Some(there)) if there.is_table_like() => {
                let none = Keys::new();
                let before = from.get(key).and_then(KeyValue::as_table).unwrap_or(&none);
                if let Some(table) = there.as_table_like_mut() {
                    keys(table, before, wanted);
                }
            }
            (wanted, Some(Item::Value(there))) => {
                // Keep the comment after the value.
                let decor = there.decor().clone();
                *there = value(wanted);
                *there.decor_mut() = decor;
            }
            (wanted, _) => {
                remove_former(item, key);
                item.insert(key, Item::Value(value(wanted)));
            }
        }
    }
}

/// Removes a key under its former name.
fn remove_former(item: &mut dyn TableLike, key: &str) {
    if let Some(old) = former_name(key) {
        item.remove(old);
    }
}

/// Iterates over the keys, `name` and `type` first.
fn in_order(keys: &Keys) -> impl Iterator<Item = (&String, &KeyValue)> {
    const FIRST: [&str; 2] = ["name", "type"];
    let first = FIRST.iter().filter_map(|key| keys.get_key_value(*key));
    first.chain(keys.iter().filter(|(key, _)| !FIRST.contains(&key.as_str())))
}

/// Creates a table after an empty line.
fn table(node: &Node) -> Table {
    let mut table = Table::new();
    table.decor_mut().set_prefix("\n");
    for (key, wanted) in in_order(&node.keys) {
        table.insert(key, Item::Value(value(wanted)));
    }
    for (key, node) in node.tables.iter().filter_map(|(key, node)| Some((key, node.as_ref()?))) {
        table.insert(key, Item::Table(self::table(node)));
    }
    for (key, nodes) in node.lists.iter().filter(|(_, nodes)| !nodes.is_empty()) {
        table.insert(key, Item::ArrayOfTables(nodes.iter().map(self::table).collect()));
    }
    table
}

fn inline_table(node: &Node) -> InlineTable {
    let mut table = InlineTable::new();
    for (key, wanted) in in_order(&node.keys) {
        table.insert(key, value(wanted));
    }
    for (key, node) in node.tables.iter().filter_map(|(key, node)| Some((key, node.as_ref()?))) {
        table.insert(*key, Value::InlineTable(inline_table(node)));
    }
    for (key, nodes) in node.lists.iter().filter(|(_, nodes)| !nodes.is_empty()) {
        let values: Array = nodes.iter().map(|node| Value::InlineTable(inline_table(node))).collect();
        table.insert(*key, Value::Array(values));
    }
    table
}

fn value(wanted: &KeyValue) -> Value {
    match wanted {
        KeyValue::String(text) => text.as_str().into(),
        KeyValue::Integer(number) => (*number).into(),
        KeyValue::Float(number) => (*number).into(),
        KeyValue::Boolean(on) => (*on).into(),
        KeyValue::Datetime(time) => time.to_string().into(),
        KeyValue::Array(items) => Value::Array(items.iter().map(value).collect()),
        KeyValue::Table(keys) => {
            let values = keys.iter().map(|(key, wanted)| (Key::new(key), value(wanted)));
            Value::InlineTable(values.collect())
        }
    }
}

/// Indents new tables as the last one that was there under the same key, and new keys as the others of their table.
fn indent(document: &mut DocumentMut) {
    let mut indents: BTreeMap<String, [String; 2]> = BTreeMap::new();
    visit(document.as_table(), &mut |key, table| {
        if table.position().is_some() {
            let header = white_space(table.decor()).unwrap_or_default();
            indents.insert(key.to_owned(), [header.to_owned(), indent_of_keys(table)]);
        }
    });
    visit_mut(document.as_table_mut(), &mut |key, table| {
        let mut keys = indent_of_keys(table);
        if let (None, Some([header, present])) = (table.position(), indents.get(key)) {
            table.decor_mut().set_prefix(format!("\n{header}"));
            keys.clone_from(present);
        }
        for (mut key, _) in table.iter_mut().filter(|(_, item)| item.is_value()) {
            if white_space(key.leaf_decor()).is_none() {
                key.leaf_decor_mut().set_prefix(&keys);
            }
        }
    });
}

/// Returns the white space in front of a header or key; `None` for a new one.
fn white_space(decor: &Decor) -> Option<&str> {
    decor.prefix()?.as_str()?.rsplit('\n').next()
}

/// Returns the white space in front of the first key of a table that is not new.
fn indent_of_keys(table: &Table) -> String {
    let mut keys = table.iter().filter_map(|(key, _)| table.key(key));
    keys.find_map(|key| white_space(key.leaf_decor())).unwrap_or_default().to_owned()
}

fn has_header(table: &Table) -> bool {
    !table.is_dotted() && !table.is_implicit()
}

/// Visits the tables in `table` that have a header, with their keys, in the order of toml_edit's positions.
fn visit<'t>(table: &'t Table, see: &mut impl FnMut(&'t str, &'t Table)) {
    for (key, item) in table {
        match item {
            Item::Table(inner) => {
                if has_header(inner) {
                    see(key, inner);
                }
                visit(inner, see);
            }
            Item::ArrayOfTables(tables) => {
                for inner in tables {
                    see(key, inner);
                    visit(inner, see);
                }
            }
            Item::None | Item::Value(_) => {}
        }
    }
}

/// Like [`visit`], with mutable access.
fn visit_mut(table: &mut Table, see: &mut impl FnMut(&str, &mut Table)) {
    for (key, item) in table.iter_mut() {
        match item {
            Item::Table(inner) => {
                if has_header(inner) {
                    see(&key, inner);
                }
                visit_mut(inner, see);
            }
            Item::ArrayOfTables(tables) => {
                for inner in tables.iter_mut() {
                    see(&key, inner);
                    visit_mut(inner, see);
                }
            }
            Item::None | Item::Value(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
