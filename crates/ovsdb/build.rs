//! Makes Rust types from the description of tables in `schema/open_vswitch.toml`.

use std::error::Error;
use std::fmt::Write;
use std::path::PathBuf;

const SCHEMA: &str = "schema/open_vswitch.toml";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={SCHEMA}");
    let tables: toml::Table = std::fs::read_to_string(SCHEMA)?.parse()?;
    let mut code = String::new();
    for (table, columns) in &tables {
        let columns = columns.as_table().ok_or_else(|| format!("{SCHEMA}: [{table}] is not a table"))?;
        let columns: Result<Vec<_>, _> =
            columns.iter().map(|(name, description)| Column::read(table, name, description)).collect();
        write_table(&mut code, table, &columns?)?;
    }
    let types: Vec<_> = tables.keys().map(|table| type_name(table)).collect();
    writeln!(code, "/// All tables in use.")?;
    let infos: String = types.iter().map(|name| format!("{name}::INFO, ")).collect();
    writeln!(code, "pub const TABLES: &[TableInfo] = &[{infos}];")?;
    let out = std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?;
    std::fs::write(PathBuf::from(out).join("open_vswitch.rs"), code)?;
    Ok(())
}

struct Column {
    name: String,
    documentation: String,
    rust: String,
    /// A `ColumnType`.
    column_type: String,
}

impl Column {
    fn read(table: &str, name: &str, description: &toml::Value) -> Result<Self, Box<dyn Error>> {
        let bad = || format!("{SCHEMA}: {table}.{name}: expected \"TYPE: documentation\"");
        let (text, documentation) =
            description.as_str().and_then(|text| text.split_once(": ")).ok_or_else(bad)?;
        let (rust, key, value, min, max) = if let Some((key, value)) = text.split_once('=') {
            let ((key_rust, key), (value_rust, value)) = (atom(key)?, atom(value)?);
            let rust = format!("BTreeMap<{key_rust}, {value_rust}>");
            (rust, key, format!("Some(AtomType::{value})"), 0, "None")
        } else if let Some(element) = text.strip_suffix('*') {
            let (rust, key) = atom(element)?;
            (format!("BTreeSet<{rust}>"), key, "None".into(), 0, "None")
        } else if let Some(element) = text.strip_suffix('?') {
            let (rust, key) = atom(element)?;
            (format!("Option<{rust}>"), key, "None".into(), 0, "Some(1)")
        } else {
            let (rust, key) = atom(text)?;
            (rust.into(), key, "None".into(), 1, "Some(1)")
        };
        let column_type =
            format!("ColumnType {{ key: AtomType::{key}, value: {value}, min: {min}, max: {max} }}");
        Ok(Column { name: name.into(), documentation: documentation.into(), rust, column_type })
    }

    fn field(&self) -> String {
        if self.name == "type" { "type_".into() } else { self.name.clone() }
    }
}

/// Returns the Rust type and the `AtomType` of an atomic type.
fn atom(name: &str) -> Result<(&'static str, &'static str), String> {
    Ok(match name {
        "integer" => ("i64", "Integer"),
        "boolean" => ("bool", "Boolean"),
        "string" => ("String", "String"),
        "uuid" => ("Uuid", "Uuid"),
        other => return Err(format!("{SCHEMA}: `{other}` is not an atomic type")),
    })
}

/// `Open_vSwitch` is `OpenVSwitch`.
fn type_name(table: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_uppercase() + rest
    };
    table.split('_').map(word).collect()
}

fn write_table(code: &mut String, table: &str, columns: &[Column]) -> std::fmt::Result {
    let name = type_name(table);
    writeln!(code, "/// A row of the table `{table}`.")?;
    writeln!(code, "#[derive(Debug, Clone, PartialEq, Eq, Default)]")?;
    writeln!(code, "pub struct {name} {{\n    /// The row.\n    pub uuid: Uuid,")?;
    for column in columns {
        writeln!(code, "    /// {}\n    pub {}: {},", column.documentation, column.field(), column.rust)?;
    }
    writeln!(code, "}}\n\nimpl {name} {{")?;
    for Column { name, documentation, rust, .. } in columns {
        let upper = name.to_uppercase();
        writeln!(code, "    /// {documentation}")?;
        writeln!(code, "    pub const {upper}: Column<{rust}> = Column::new(\"{table}\", \"{name}\");")?;
    }
    writeln!(code, "}}\n\nimpl Table for {name} {{")?;
    writeln!(code, "    const INFO: TableInfo = TableInfo {{ name: \"{table}\", columns: &[")?;
    for Column { name, column_type, .. } in columns {
        writeln!(code, "        ColumnInfo {{ name: \"{name}\", column_type: {column_type} }},")?;
    }
    writeln!(code, "    ] }};\n")?;
    writeln!(code, "    fn read(uuid: Uuid, row: &Row) -> Result<Self, ReadError> {{")?;
    writeln!(code, "        Ok(Self {{\n            uuid,")?;
    for column in columns {
        writeln!(code, "            {}: Self::{}.get(row)?,", column.field(), column.name.to_uppercase())?;
    }
    writeln!(code, "        }})\n    }}\n}}\n")
}
