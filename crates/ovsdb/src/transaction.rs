//! Transactions: operations and their results (RFC 7047 §4.1.3, §5.2).

use serde_json::{Value as Json, json};

use crate::uuid::Uuid;
use crate::value::{Atom, Row, Value, encode_row, shortened};

/// Comparisons of conditions (`<function>`, RFC 7047 §5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `>=`
    GreaterOrEqual,
    /// `>`
    Greater,
    /// `includes`
    Includes,
    /// `excludes`
    Excludes,
}

impl Function {
    fn name(self) -> &'static str {
        match self {
            Function::Less => "<",
            Function::LessOrEqual => "<=",
            Function::Equal => "==",
            Function::NotEqual => "!=",
            Function::GreaterOrEqual => ">=",
            Function::Greater => ">",
            Function::Includes => "includes",
            Function::Excludes => "excludes",
        }
    }
}

/// A condition on a column (`<condition>`, RFC 7047 §5.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The column.
    pub column: String,
    /// The comparison.
    pub function: Function,
    /// The other operand.
    pub value: Value,
}

impl Condition {
    /// Creates a condition.
    pub fn new(column: &str, function: Function, value: impl Into<Value>) -> Self {
        Self { column: column.into(), function, value: value.into() }
    }

    /// Selects a row by UUID.
    pub fn row(uuid: Uuid) -> Self {
        Self::new("_uuid", Function::Equal, Atom::Uuid(uuid))
    }

    fn encode(&self) -> Json {
        json!([self.column, self.function.name(), self.value.encode()])
    }
}

/// Operators of mutations (`<mutator>`, RFC 7047 §5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutator {
    /// `+=`
    Add,
    /// `-=`
    Subtract,
    /// `*=`
    Multiply,
    /// `/=`
    Divide,
    /// `%=`
    Remainder,
    /// Adds elements to a set, or keys that are not there to a map.
    Insert,
    /// Deletes elements of a set, or keys of a map.
    Delete,
}

impl Mutator {
    fn name(self) -> &'static str {
        match self {
            Mutator::Add => "+=",
            Mutator::Subtract => "-=",
            Mutator::Multiply => "*=",
            Mutator::Divide => "/=",
            Mutator::Remainder => "%=",
            Mutator::Insert => "insert",
            Mutator::Delete => "delete",
        }
    }
}

/// A change of a column that depends on its value (`<mutation>`, RFC 7047 §5.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutation {
    /// The column.
    pub column: String,
    /// The operator.
    pub mutator: Mutator,
    /// The operand.
    pub value: Value,
}

impl Mutation {
    /// Creates a mutation.
    pub fn new(column: &str, mutator: Mutator, value: impl Into<Value>) -> Self {
        Self { column: column.into(), mutator, value: value.into() }
    }

    fn encode(&self) -> Json {
        json!([self.column, self.mutator.name(), self.value.encode()])
    }
}

/// An operation (RFC 7047 §5.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Inserts a row (§5.2.1).
    Insert {
        /// The table.
        table: String,
        /// The columns; the others get their defaults.
        row: Row,
        /// A name for the row's UUID in other operations of the transaction.
        name: Option<String>,
    },
    /// Reads rows (§5.2.2).
    Select {
        /// The table.
        table: String,
        /// The rows.
        filter: Vec<Condition>,
        /// The columns; `None` for all.
        columns: Option<Vec<String>>,
    },
    /// Replaces columns of rows (§5.2.3).
    Update {
        /// The table.
        table: String,
        /// The rows.
        filter: Vec<Condition>,
        /// The new values.
        row: Row,
    },
    /// Changes columns of rows (§5.2.4).
    Mutate {
        /// The table.
        table: String,
        /// The rows.
        filter: Vec<Condition>,
        /// The changes.
        mutations: Vec<Mutation>,
    },
    /// Deletes rows (§5.2.5).
    Delete {
        /// The table.
        table: String,
        /// The rows.
        filter: Vec<Condition>,
    },
    /// Waits until the rows that a filter selects are equal to `rows`, or are not (§5.2.6).
    Wait {
        /// Milliseconds until the transaction fails; `None` waits forever, 0 not at all.
        timeout: Option<u64>,
        /// The table.
        table: String,
        /// The rows to compare.
        filter: Vec<Condition>,
        /// The columns to compare.
        columns: Vec<String>,
        /// Whether the rows shall be equal.
        equal: bool,
        /// What they are compared with.
        rows: Vec<Row>,
    },
    /// Commits only to a disk if `durable` (§5.2.7).
    Commit {
        /// Whether the reply waits for the disk.
        durable: bool,
    },
    /// Aborts the transaction (§5.2.8).
    Abort,
    /// A text in the database's log (§5.2.9).
    Comment(String),
    /// Aborts the transaction unless the client holds a lock (§5.2.10).
    Assert(String),
}

fn encode_filter(filter: &[Condition]) -> Json {
    filter.iter().map(Condition::encode).collect()
}

impl Operation {
    /// Encodes the operation.
    pub fn encode(&self) -> Json {
        match self {
            Operation::Insert { table, row, name: None } => {
                json!({"op": "insert", "table": table, "row": encode_row(row)})
            }
            Operation::Insert { table, row, name: Some(name) } => {
                json!({"op": "insert", "table": table, "row": encode_row(row), "uuid-name": name})
            }
            Operation::Select { table, filter, columns: None } => {
                json!({"op": "select", "table": table, "where": encode_filter(filter)})
            }
            Operation::Select { table, filter, columns: Some(columns) } => {
                json!({"op": "select", "table": table, "where": encode_filter(filter), "columns": columns})
            }
            Operation::Update { table, filter, row } => {
                json!({"op": "update", "table": table, "where": encode_filter(filter), "row": encode_row(row)})
            }
            Operation::Mutate { table, filter, mutations } => {
                let mutations: Json = mutations.iter().map(Mutation::encode).collect();
                json!({"op": "mutate", "table": table, "where": encode_filter(filter), "mutations": mutations})
            }
            Operation::Delete { table, filter } => {
                json!({"op": "delete", "table": table, "where": encode_filter(filter)})
            }
            Operation::Wait { timeout, table, filter, columns, equal, rows } => {
                let until = if *equal { "==" } else { "!=" };
                let rows: Json = rows.iter().map(encode_row).collect();
                let mut wait = json!({"op": "wait", "table": table, "where": encode_filter(filter),
                    "columns": columns, "until": until, "rows": rows});
                if let (Some(timeout), Json::Object(wait)) = (timeout, &mut wait) {
                    wait.insert("timeout".into(), json!(timeout));
                }
                wait
            }
            Operation::Commit { durable } => json!({"op": "commit", "durable": durable}),
            Operation::Abort => json!({"op": "abort"}),
            Operation::Comment(text) => json!({"op": "comment", "comment": text}),
            Operation::Assert(lock) => json!({"op": "assert", "lock": lock}),
        }
    }
}

/// A transaction: operations that take effect together or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transaction {
    /// The operations.
    pub operations: Vec<Operation>,
}

impl Transaction {
    /// Creates an empty transaction.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns whether it has no operation.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Appends an operation.
    pub fn push(&mut self, operation: Operation) -> &mut Self {
        self.operations.push(operation);
        self
    }

    /// Aborts unless the client holds a lock.
    pub fn assert(&mut self, lock: &str) -> &mut Self {
        self.push(Operation::Assert(lock.into()))
    }

    /// Inserts a row. `name` stands for its UUID within the transaction.
    pub fn insert(&mut self, table: &str, name: Option<&str>, row: Row) -> &mut Self {
        self.push(Operation::Insert { table: table.into(), row, name: name.map(Into::into) })
    }

    /// Replaces columns of a row.
    pub fn update(&mut self, table: &str, uuid: Uuid, row: Row) -> &mut Self {
        self.push(Operation::Update { table: table.into(), filter: vec![Condition::row(uuid)], row })
    }

    /// Changes a column of a row.
    pub fn mutate(&mut self, table: &str, uuid: Uuid, mutation: Mutation) -> &mut Self {
        let filter = vec![Condition::row(uuid)];
        self.push(Operation::Mutate { table: table.into(), filter, mutations: vec![mutation] })
    }

    /// Deletes a row.
    pub fn delete(&mut self, table: &str, uuid: Uuid) -> &mut Self {
        self.push(Operation::Delete { table: table.into(), filter: vec![Condition::row(uuid)] })
    }

    /// Returns the parameters of `transact`.
    pub(crate) fn params(&self, database: &str) -> Vec<Json> {
        std::iter::once(json!(database)).chain(self.operations.iter().map(Operation::encode)).collect()
    }
}

/// The result of an operation that succeeded.
#[derive(Debug, Clone, PartialEq)]
pub enum OperationResult {
    /// Nothing to report.
    Done,
    /// The UUID of the inserted row.
    Inserted(Uuid),
    /// The number of rows that were updated, mutated or deleted.
    Count(u64),
    /// The rows that were selected, as JSON: [`Value::decode`] reads columns.
    Rows(Vec<Json>),
}

/// Reasons why a transaction did not take effect, or may not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransactError {
    /// An operation failed, or the commit.
    #[error("{}{error}{}", place(*.operation), .details.as_ref().map(|text| format!(": {text}")).unwrap_or_default())]
    Failed {
        /// The number of the operation, from 0; `None`: the commit.
        operation: Option<usize>,
        /// The error, such as `constraint violation` (RFC 7047 §5.2, §4.1.3).
        error: String,
        /// Further explanation.
        details: Option<String>,
    },
    /// The server refused the request.
    #[error("the server refused the transaction: {0}")]
    Refused(String),
    /// The reply has another form.
    #[error("unexpected reply to a transaction: {0}")]
    Reply(String),
    /// The connection ended before the reply: the transaction may have taken effect.
    #[error("the connection ended before the reply; the transaction may have taken effect")]
    Disconnected,
    /// There was no connection: the transaction has had no effect.
    #[error("not connected to the database")]
    NotConnected,
}

fn place(operation: Option<usize>) -> String {
    match operation {
        Some(number) => format!("operation {number}: "),
        None => "commit: ".into(),
    }
}

/// Decodes the result of `transact`.
pub(crate) fn decode_results(
    result: &Json,
    operations: usize,
) -> Result<Vec<OperationResult>, TransactError> {
    let error = |json: &Json| TransactError::Reply(shortened(json));
    let results = result.as_array().ok_or_else(|| error(result))?;
    for (at, result) in results.iter().enumerate() {
        if let Some(failure) = result.get("error").and_then(Json::as_str) {
            return Err(TransactError::Failed {
                operation: (at < operations).then_some(at),
                error: failure.into(),
                details: result.get("details").and_then(Json::as_str).map(Into::into),
            });
        }
    }
    if results.len() != operations {
        return Err(error(result));
    }
    results.iter().map(|result| decode_result(result).ok_or_else(|| error(result))).collect()
}

fn decode_result(json: &Json) -> Option<OperationResult> {
    let object = json.as_object()?;
    if let Some(uuid) = object.get("uuid") {
        return match Atom::decode(uuid, crate::schema::AtomType::Uuid).ok()? {
            Atom::Uuid(uuid) => Some(OperationResult::Inserted(uuid)),
            _ => None,
        };
    }
    if let Some(count) = object.get("count") {
        return count.as_u64().map(OperationResult::Count);
    }
    match object.get("rows") {
        Some(rows) => rows.as_array().cloned().map(OperationResult::Rows),
        None => Some(OperationResult::Done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_have_the_forms_of_the_rfc() {
        let uuid = Uuid([0x11; 16]);
        let text = uuid.to_string();
        let mut transaction = Transaction::new();
        let row: Row = [("name".into(), "br0".into())].into();
        transaction
            .assert("l")
            .insert("B", Some("row"), row.clone())
            .update("B", uuid, row.clone())
            .mutate("B", uuid, Mutation::new("n", Mutator::Add, 1i64))
            .mutate("B", uuid, Mutation::new("p", Mutator::Insert, Atom::NamedUuid("row".into())))
            .delete("B", uuid)
            .push(Operation::Wait {
                timeout: Some(0),
                table: "B".into(),
                filter: vec![Condition::new("n", Function::Greater, 3i64)],
                columns: vec!["name".into()],
                equal: false,
                rows: vec![row],
            })
            .push(Operation::Comment("why".into()))
            .push(Operation::Commit { durable: true });
        let at = json!([["_uuid", "==", ["uuid", text]]]);
        assert_eq!(
            Json::Array(transaction.params("D")),
            json!([
                "D",
                {"op": "assert", "lock": "l"},
                {"op": "insert", "table": "B", "row": {"name": "br0"}, "uuid-name": "row"},
                {"op": "update", "table": "B", "where": at, "row": {"name": "br0"}},
                {"op": "mutate", "table": "B", "where": at, "mutations": [["n", "+=", 1]]},
                {"op": "mutate", "table": "B", "where": at, "mutations": [["p", "insert", ["named-uuid", "row"]]]},
                {"op": "delete", "table": "B", "where": at},
                {"op": "wait", "table": "B", "where": [["n", ">", 3]], "columns": ["name"], "until": "!=",
                 "rows": [{"name": "br0"}], "timeout": 0},
                {"op": "comment", "comment": "why"},
                {"op": "commit", "durable": true},
            ])
        );
    }

    #[test]
    fn results_are_decoded_and_errors_named() {
        let uuid = Uuid([0x22; 16]);
        let results = json!([{}, {"uuid": ["uuid", uuid.to_string()]}, {"count": 2}, {"rows": [{}]}]);
        assert_eq!(
            decode_results(&results, 4),
            Ok(vec![
                OperationResult::Done,
                OperationResult::Inserted(uuid),
                OperationResult::Count(2),
                OperationResult::Rows(vec![json!({})]),
            ])
        );
        let failed = |json: Json, count| decode_results(&json, count).unwrap_err().to_string();
        let not_owner = json!([{"error": "not owner", "details": "lock l"}, null]);
        assert_eq!(failed(not_owner, 2), "operation 0: not owner: lock l");
        assert_eq!(failed(json!([{}, {"error": "constraint violation"}]), 1), "commit: constraint violation");
        assert_eq!(failed(json!([{}]), 2), "unexpected reply to a transaction: [{}]");
        assert_eq!(failed(json!([3]), 1), "unexpected reply to a transaction: 3");
        assert_eq!(failed(json!("no"), 1), "unexpected reply to a transaction: \"no\"");
    }
}
