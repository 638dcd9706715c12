//! The parts of a document, as they are written. Attributes that say nothing about packets are left out.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;

use serde::Deserialize;
use serde_json::Value;

use crate::refusal::{Refusal, Result};
use crate::{LONGEST_NAME, MOST_OBJECTS};

#[derive(Debug, Deserialize)]
pub(crate) struct Document {
    #[serde(rename = "__meta__", default)]
    pub(crate) meta: Meta,
    pub(crate) program: Option<String>,
    pub(crate) header_types: Vec<HeaderType>,
    pub(crate) headers: Vec<Header>,
    #[serde(default)]
    pub(crate) header_stacks: Vec<HeaderStack>,
    #[serde(default)]
    pub(crate) header_unions: Vec<HeaderUnion>,
    #[serde(default)]
    pub(crate) header_union_stacks: Vec<Named>,
    #[serde(default)]
    pub(crate) errors: Vec<(String, u64)>,
    pub(crate) parsers: Vec<Parser>,
    #[serde(default)]
    pub(crate) parse_vsets: Vec<ValueSet>,
    pub(crate) deparsers: Vec<Deparser>,
    #[serde(default)]
    pub(crate) meter_arrays: Vec<Meter>,
    #[serde(default)]
    pub(crate) counter_arrays: Vec<Counter>,
    #[serde(default)]
    pub(crate) register_arrays: Vec<Register>,
    #[serde(default)]
    pub(crate) calculations: Vec<Calculation>,
    #[serde(default)]
    pub(crate) learn_lists: Vec<FieldList>,
    #[serde(default)]
    pub(crate) field_lists: Vec<FieldList>,
    pub(crate) actions: Vec<Action>,
    pub(crate) pipelines: Vec<Pipeline>,
    #[serde(default)]
    pub(crate) checksums: Vec<Checksum>,
    #[serde(default)]
    pub(crate) extern_instances: Vec<Named>,
    #[serde(default)]
    pub(crate) field_aliases: Vec<(String, (String, String))>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Meta {
    /// Major and minor number.
    #[serde(default)]
    pub(crate) version: Vec<u64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Named {
    pub(crate) name: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct HeaderType {
    pub(crate) name: String,
    /// Name, width or `*`, and whether it is signed.
    pub(crate) fields: Vec<Vec<Value>>,
    pub(crate) length_exp: Option<Value>,
    pub(crate) max_length: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Header {
    pub(crate) name: String,
    pub(crate) id: u64,
    pub(crate) header_type: String,
    #[serde(default)]
    pub(crate) metadata: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct HeaderStack {
    pub(crate) name: String,
    pub(crate) header_type: String,
    pub(crate) header_ids: Vec<u64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct HeaderUnion {
    pub(crate) name: String,
    pub(crate) header_ids: Vec<u64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Parser {
    pub(crate) name: String,
    pub(crate) init_state: String,
    pub(crate) parse_states: Vec<State>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct State {
    pub(crate) name: String,
    pub(crate) parser_ops: Vec<Operation>,
    #[serde(default)]
    pub(crate) transition_key: Vec<Value>,
    #[serde(default)]
    pub(crate) transitions: Vec<Transition>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Operation {
    pub(crate) op: String,
    #[serde(default)]
    pub(crate) parameters: Vec<Value>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Transition {
    /// Older compilers leave the type out: the value tells it then.
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) value: Option<String>,
    pub(crate) mask: Option<String>,
    pub(crate) next_state: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ValueSet {
    pub(crate) name: String,
    pub(crate) compressed_bitwidth: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Deparser {
    pub(crate) order: Vec<String>,
    #[serde(default)]
    pub(crate) primitives: Vec<Operation>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Meter {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) is_direct: bool,
    pub(crate) size: Option<u64>,
    #[serde(rename = "type")]
    pub(crate) unit: String,
    pub(crate) result_target: Option<(String, String)>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Counter {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) is_direct: bool,
    pub(crate) size: Option<u64>,
    pub(crate) binding: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Register {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) bitwidth: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Calculation {
    pub(crate) name: String,
    pub(crate) algo: String,
    pub(crate) input: Vec<Value>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct FieldList {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) elements: Vec<Value>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Action {
    pub(crate) name: String,
    pub(crate) id: u64,
    #[serde(default)]
    pub(crate) runtime_data: Vec<Parameter>,
    pub(crate) primitives: Vec<Operation>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) bitwidth: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Pipeline {
    pub(crate) name: String,
    pub(crate) init_table: Option<String>,
    pub(crate) tables: Vec<Table>,
    #[serde(default)]
    pub(crate) action_profiles: Vec<Profile>,
    #[serde(default)]
    pub(crate) conditionals: Vec<Conditional>,
    #[serde(default)]
    pub(crate) action_calls: Vec<ActionCall>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Table {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) key: Vec<Key>,
    pub(crate) max_size: u64,
    #[serde(default)]
    pub(crate) with_counters: bool,
    #[serde(default)]
    pub(crate) support_timeout: bool,
    pub(crate) direct_meters: Option<String>,
    pub(crate) action_profile: Option<String>,
    /// Missing in documents of older compilers, which have unique names.
    pub(crate) action_ids: Option<Vec<u64>>,
    pub(crate) actions: Vec<String>,
    pub(crate) base_default_next: Option<String>,
    #[serde(default)]
    pub(crate) next_tables: HashMap<String, Option<String>>,
    pub(crate) default_entry: Option<DefaultEntry>,
    #[serde(default)]
    pub(crate) entries: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Key {
    pub(crate) match_type: String,
    pub(crate) name: Option<String>,
    pub(crate) target: Value,
    pub(crate) mask: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct DefaultEntry {
    pub(crate) action_id: u64,
    #[serde(default)]
    pub(crate) action_data: Vec<String>,
    #[serde(default)]
    pub(crate) action_entry_const: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Entry {
    pub(crate) match_key: Vec<EntryKey>,
    pub(crate) action_entry: ActionEntry,
    #[serde(default)]
    pub(crate) priority: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ActionEntry {
    pub(crate) action_id: u64,
    #[serde(default)]
    pub(crate) action_data: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct EntryKey {
    pub(crate) match_type: String,
    /// A number in hexadecimal, or a truth value.
    #[serde(default)]
    pub(crate) key: Value,
    pub(crate) prefix_length: Option<u64>,
    pub(crate) mask: Option<String>,
    pub(crate) start: Option<String>,
    pub(crate) end: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Profile {
    pub(crate) name: String,
    pub(crate) max_size: u64,
    pub(crate) selector: Option<Selector>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Selector {
    pub(crate) algo: String,
    pub(crate) input: Vec<Value>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Conditional {
    pub(crate) name: String,
    pub(crate) expression: Value,
    pub(crate) true_next: Option<String>,
    pub(crate) false_next: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ActionCall {
    pub(crate) name: String,
    pub(crate) action_id: u64,
    pub(crate) next_node: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Checksum {
    pub(crate) name: String,
    pub(crate) target: (String, String),
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) calculation: String,
    #[serde(default = "yes")]
    pub(crate) verify: bool,
    #[serde(default = "yes")]
    pub(crate) update: bool,
    pub(crate) if_cond: Option<Value>,
}

fn yes() -> bool {
    true
}

impl Document {
    /// # Errors
    /// There are too many objects of a kind, or one has too long a name.
    pub(crate) fn bounded(&self) -> Result<()> {
        let pipelines = self.pipelines.iter();
        let nodes = pipelines.map(|pipeline| {
            pipeline.tables.len()
                + pipeline.conditionals.len()
                + pipeline.action_calls.len()
                + pipeline.action_profiles.len()
        });
        let sizes = [
            ("header types", self.header_types.len()),
            ("headers", self.headers.len()),
            ("header stacks and unions", self.header_stacks.len() + self.header_unions.len()),
            ("errors", self.errors.len()),
            ("states", self.parsers.iter().map(|parser| parser.parse_states.len()).sum()),
            ("value sets", self.parse_vsets.len()),
            ("meter arrays", self.meter_arrays.len()),
            ("counter arrays", self.counter_arrays.len()),
            ("actions", self.actions.len()),
            ("field aliases", self.field_aliases.len()),
            ("tables and conditionals", nodes.sum()),
        ];
        for (kind, count) in sizes {
            bounded(kind, count)?;
        }
        self.repeated_names().try_for_each(short)
    }
}

impl Document {
    /// Names that are written out more than once: of types for each header, of headers for each field, of actions and
    /// their parameters for each table.
    fn repeated_names(&self) -> impl Iterator<Item = &str> {
        let types = self.header_types.iter().flat_map(|ty| {
            let fields = ty.fields.iter().filter_map(|field| field.first()?.as_str());
            fields.chain([ty.name.as_str()])
        });
        let headers = self.headers.iter().map(|header| header.name.as_str());
        let stacks = self.header_stacks.iter().map(|stack| stack.name.as_str());
        let unions = self.header_unions.iter().map(|union| union.name.as_str());
        let actions = self.actions.iter().flat_map(|action| {
            let params = action.runtime_data.iter().map(|parameter| parameter.name.as_str());
            params.chain([action.name.as_str()])
        });
        let tables = self.pipelines.iter().flat_map(|pipeline| &pipeline.tables);
        let tables = tables.map(|table| table.name.as_str());
        types.chain(headers).chain(stacks).chain(unions).chain(actions).chain(tables)
    }
}

/// # Errors
/// The name is too long.
pub(crate) fn short(name: &str) -> Result<()> {
    match name.len() <= LONGEST_NAME {
        true => Ok(()),
        false => Err(Refusal::of(format!(
            "{}…: a name of {} bytes; at most {LONGEST_NAME} are supported",
            name.chars().take(32).collect::<String>(),
            name.len()
        ))),
    }
}

/// # Errors
/// There are too many objects of a kind.
pub(crate) fn bounded(kind: &str, count: usize) -> Result<()> {
    match count <= MOST_OBJECTS {
        true => Ok(()),
        false => Err(Refusal::of(format!("{count} {kind}; at most {MOST_OBJECTS} are supported"))),
    }
}

/// Objects by name or id.
///
/// # Errors
/// Two have the same.
pub(crate) fn index<'d, T, K: Hash + Eq + Display + Copy>(
    kind: &str,
    list: &'d [T],
    key: impl Fn(&'d T) -> K,
) -> Result<HashMap<K, &'d T>> {
    let mut found = HashMap::with_capacity(list.len());
    for item in list {
        let key = key(item);
        if found.insert(key, item).is_some() {
            return Err(Refusal::of(format!("two {kind}s are called {key}")));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_are_refused() {
        let list = [Named { name: "a".into() }, Named { name: "a".into() }];
        let refused = index("table", &list, |named| named.name.as_str()).unwrap_err();
        assert_eq!(refused.to_string(), "two tables are called a");
    }
}
