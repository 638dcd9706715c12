//! A module's description: JSON, parsed when its file is loaded and checked against every limit.
//!
//! ```json
//! {"name": "learning", "summary": "a learning bridge",
//!  "params": [{"name": "ageing", "type": "number", "min": 0, "max": 1000000, "unit": "seconds", "default": "300", "help": "..."}],
//!  "tables": [{"name": "fdb", "key": [["station", "mac"], ["vlan", "u16"]],
//!              "value": [["port", "port"], ["flags", "u16"], ["heard", "seconds"]], "capacity": 8192, "expires": "ageing"}],
//!  "counters": [{"name": "moved", "help": "stations that were heard at another port than before"}],
//!  "commands": [{"name": "flush", "usage": "[PORT]", "help": "forgets stations"}],
//!  "state": 64, "timer": 100, "retain": 16}
//! ```

use std::time::Duration;

use logic::params::check_description;
use logic::{
    CommandInfo, CounterDescription, LogicDescription, ParamDescription, ParamKind, TableDescription,
};
use serde::Deserialize;

use crate::abi;
use crate::table::SharedTable;

/// The longest description, bytes.
pub(crate) const MAX_LEN: usize = 64 << 10;
/// The longest key or value of a table, bytes.
const MAX_ENTRY: usize = 64;
/// The most memory of all tables of a module, bytes.
const MAX_TABLE_MEMORY: usize = 256 << 20;
/// The most entries of a table.
const MAX_CAPACITY: u32 = 1 << 20;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) logic: LogicDescription,
    pub(crate) tables: Vec<TableInfo>,
    pub(crate) counters: Vec<CounterInfo>,
    pub(crate) state: usize,
    pub(crate) timer: Option<Timer>,
    /// Most packets that each worker keeps.
    pub(crate) retain: usize,
}

/// Interval of a module's timer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Timer {
    /// Milliseconds.
    Every(u64),
    /// The name of a parameter, a duration.
    Param(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: String,
    summary: String,
    #[serde(default)]
    params: Vec<RawParam>,
    #[serde(default)]
    tables: Vec<RawTable>,
    #[serde(default)]
    counters: Vec<CounterInfo>,
    #[serde(default)]
    commands: Vec<RawCommand>,
    #[serde(default)]
    state: u64,
    timer: Option<Timer>,
    #[serde(default)]
    retain: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawParam {
    name: String,
    r#type: String,
    help: String,
    default: Option<Default>,
    #[serde(default)]
    optional: Option<String>,
    min: Option<u64>,
    max: Option<u64>,
    #[serde(default)]
    unit: String,
    #[serde(default)]
    choices: Vec<String>,
}

/// A default as its parameter is written by users, or as JSON would have it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Default {
    Text(String),
    Number(u64),
    Switch(bool),
}

impl Default {
    fn text(self) -> String {
        match self {
            Default::Text(text) => text,
            Default::Number(number) => number.to_string(),
            Default::Switch(on) => if on { "on" } else { "off" }.into(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTable {
    name: String,
    key: Vec<(String, String)>,
    value: Vec<(String, String)>,
    capacity: u32,
    /// The parameter with the age, by the column of type `seconds`, at which entries are removed.
    expires: Option<String>,
    /// Whether the next module inherits the entries.
    #[serde(default = "yes")]
    hand_over: bool,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCommand {
    name: String,
    #[serde(default)]
    usage: String,
    help: String,
}

/// A counter of a module.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CounterInfo {
    pub(crate) name: String,
    pub(crate) help: String,
}

/// Type of a table's column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    U8,
    U16,
    U32,
    U64,
    Mac,
    Ipv4,
    Ipv6,
    /// The index of a port (2 bytes), with which the entry is removed.
    Port,
    /// A time in seconds of the switch's clock (4 bytes).
    Seconds,
    /// The length of a prefix (1 byte), behind the address that it belongs to: a longest match tries the lengths in
    /// use.
    Prefix,
}

impl Type {
    /// The types by name.
    const NAMES: [(&str, Type); 10] = [
        ("u8", Type::U8),
        ("u16", Type::U16),
        ("u32", Type::U32),
        ("u64", Type::U64),
        ("mac", Type::Mac),
        ("ipv4", Type::Ipv4),
        ("ipv6", Type::Ipv6),
        ("port", Type::Port),
        ("seconds", Type::Seconds),
        ("prefix", Type::Prefix),
    ];

    fn of(name: &str) -> Option<Type> {
        Self::NAMES.iter().find(|(own, _)| *own == name).map(|(_, kind)| *kind)
    }

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, own)| *own == self).map_or("", |(name, _)| name)
    }

    fn len(self) -> usize {
        match self {
            Type::U8 | Type::Prefix => 1,
            Type::U16 | Type::Port => 2,
            Type::U32 | Type::Ipv4 | Type::Seconds => 4,
            Type::Mac => 6,
            Type::U64 => 8,
            Type::Ipv6 => 16,
        }
    }

    /// Formats the bytes of a value.
    pub(crate) fn show(self, bytes: &[u8], now: u32) -> String {
        let mut wide = [0; 8];
        for (to, from) in wide.iter_mut().zip(bytes) {
            *to = *from;
        }
        let number = u64::from_le_bytes(wide);
        match self {
            Type::U8 | Type::U16 | Type::U32 | Type::U64 | Type::Port | Type::Prefix => number.to_string(),
            Type::Seconds => format!("{} s ago", now.wrapping_sub(number as u32)),
            Type::Mac => bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"),
            Type::Ipv4 => <[u8; 4]>::try_from(bytes)
                .map_or_else(|_| String::new(), |a| std::net::Ipv4Addr::from(a).to_string()),
            Type::Ipv6 => <[u8; 16]>::try_from(bytes)
                .map_or_else(|_| String::new(), |a| std::net::Ipv6Addr::from(a).to_string()),
        }
    }
}

/// A column: its name, its type, and its offset in key or value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: Type,
    pub(crate) at: usize,
}

impl Column {
    /// Returns the column's bytes of a key or value.
    pub(crate) fn of<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.at..self.at + self.kind.len()).unwrap_or_default()
    }
}

/// A table of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableInfo {
    pub(crate) name: String,
    pub(crate) key: Vec<Column>,
    pub(crate) value: Vec<Column>,
    /// Bytes of a key, a multiple of 8.
    pub(crate) key_len: usize,
    /// Bytes of a value, a multiple of 8.
    pub(crate) value_len: usize,
    pub(crate) capacity: u32,
    pub(crate) expires: Option<String>,
    pub(crate) hand_over: bool,
}

impl TableInfo {
    /// Describes it to users.
    fn describe(&self) -> TableDescription {
        let columns = |columns: &[Column]| {
            columns.iter().map(|column| (column.name.clone(), column.kind.name().into())).collect()
        };
        TableDescription {
            name: self.name.clone(),
            key: columns(&self.key),
            value: columns(&self.value),
            lengths: (self.key_len as u32, self.value_len as u32),
            capacity: self.capacity.into(),
            expires: self.expires.clone(),
            hand_over: self.hand_over,
        }
    }

    /// Returns the value's first column of a type.
    pub(crate) fn column(&self, kind: Type) -> Option<&Column> {
        self.value.iter().find(|column| column.kind == kind)
    }
}

/// Parses a description.
pub(crate) fn parse(text: &[u8]) -> Result<Description, String> {
    if text.trim_ascii().is_empty() {
        return Err("the description is empty".into());
    }
    let raw: Raw = serde_json::from_slice(text).map_err(|error| format!("invalid description: {error}"))?;
    let wrong = |what: String| Err(format!("invalid description: {what}"));
    named("the module", &raw.name)?;
    let params = raw.params.into_iter().map(param).collect::<Result<Vec<_>, _>>()?;
    let commands: Vec<_> = raw
        .commands
        .into_iter()
        .map(|RawCommand { name, usage, help }| CommandInfo { name, usage, help })
        .collect();
    let (name, summary) = (raw.name, line(&raw.summary));
    let mut logic = LogicDescription { name, summary, params, commands, ..LogicDescription::default() };
    if let Err(what) = check_description(&logic) {
        return wrong(what);
    }
    for command in &logic.commands {
        named("a command", &command.name)?;
    }
    for counter in &raw.counters {
        named("a counter", &counter.name)?;
    }
    let limits = [
        ("parameters", logic.params.len(), abi::MAX_PARAMS),
        ("tables", raw.tables.len(), abi::MAX_TABLES),
        ("counters", raw.counters.len(), abi::MAX_COUNTERS),
        ("commands", logic.commands.len(), 64),
    ];
    for (what, there, most) in limits {
        if there > most {
            return wrong(format!("{there} {what}, more than {most}"));
        }
    }
    let mut tables = Vec::new();
    for raw in raw.tables {
        tables.push(table(raw, &logic)?);
    }
    let memory: usize = tables.iter().map(SharedTable::bytes).sum();
    if memory > MAX_TABLE_MEMORY {
        return wrong(format!("its tables have {memory} bytes in total, more than {MAX_TABLE_MEMORY}"));
    }
    let state = usize::try_from(raw.state).ok().filter(|state| *state <= abi::MAX_STATE);
    let Some(state) = state else {
        return wrong(format!("the state of a worker has up to {} bytes, not {}", abi::MAX_STATE, raw.state));
    };
    match &raw.timer {
        Some(Timer::Every(time)) if !abi::PERIODS.contains(time) => {
            return wrong(format!(
                "timer interval of {time} ms, expected {} to {}",
                abi::PERIODS.start(),
                abi::PERIODS.end()
            ));
        }
        Some(Timer::Param(name)) => {
            let there = logic.params.iter().find(|param| param.name == *name);
            if !there.is_some_and(|param| matches!(param.kind, ParamKind::Duration { .. })) {
                return wrong(format!(
                    "the timer interval is parameter `{}`, which is not a parameter of type `duration`",
                    name.escape_default()
                ));
            }
        }
        _ => {}
    }
    if raw.retain > abi::MAX_KEPT {
        return wrong(format!("a worker can keep up to {} packets, not {}", abi::MAX_KEPT, raw.retain));
    }
    logic.tables = tables.iter().map(TableInfo::describe).collect();
    let counter = |info: &CounterInfo| CounterDescription { name: info.name.clone(), help: line(&info.help) };
    logic.counters = raw.counters.iter().map(counter).collect();
    let (counters, timer, retain) = (raw.counters, raw.timer, raw.retain as usize);
    Ok(Description { logic, tables, counters, state, timer, retain })
}

fn line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect()
}

fn named(what: &str, name: &str) -> Result<(), String> {
    let letter =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    if name.is_empty() || name.len() > 64 || !name.bytes().all(letter) {
        return Err(format!(
            "invalid description: `{}` is not a valid name for {what}: use up to 64 lower case letters, digits, _ and -",
            name.escape_default()
        ));
    }
    Ok(())
}

fn param(raw: RawParam) -> Result<ParamDescription, String> {
    let kind = match raw.r#type.as_str() {
        "number" => ParamKind::Number {
            min: raw.min.unwrap_or(0),
            max: raw.max.unwrap_or(u64::MAX - 1),
            unit: line(&raw.unit),
        },
        "choice" => ParamKind::Choice(raw.choices),
        "switch" => ParamKind::Switch,
        "text" => ParamKind::Text { max: raw.max.unwrap_or(256).min(1024) },
        "port" => ParamKind::Port,
        "duration" => ParamKind::Duration {
            min: Duration::from_millis(raw.min.unwrap_or(0)),
            max: Duration::from_millis(raw.max.unwrap_or(1 << 40)),
        },
        "mac" => ParamKind::Mac,
        "ip" => ParamKind::Ip,
        other => {
            return Err(format!(
                "invalid description: parameter `{}` has the unknown type `{}`; expected number, choice, switch, text, port, duration, mac or ip",
                raw.name.escape_default(),
                other.escape_default()
            ));
        }
    };
    let param = ParamDescription::new(raw.name, kind, line(&raw.help));
    Ok(match (raw.default, raw.optional) {
        (Some(default), _) => param.or(default.text()),
        (None, Some(otherwise)) => param.optional(line(&otherwise)),
        (None, None) => param,
    })
}

fn table(raw: RawTable, logic: &LogicDescription) -> Result<TableInfo, String> {
    named("a table", &raw.name)?;
    let name = raw.name;
    let wrong = |what: String| Err(format!("invalid description: table `{name}`: {what}"));
    let columns = |columns: Vec<(String, String)>| {
        let mut at = 0;
        let place = |(column, kind): (String, String)| {
            let Some(known) = Type::of(&kind) else {
                let names = Type::NAMES.map(|(name, _)| name).join(", ");
                let (column, kind) = (column.escape_default(), kind.escape_default());
                return Err(format!(
                    "invalid description: table `{name}`, column `{column}`: unknown type `{kind}`; expected one of {names}"
                ));
            };
            at += known.len();
            Ok(Column { name: column, kind: known, at: at - known.len() })
        };
        let columns = columns.into_iter().map(place).collect::<Result<Vec<_>, _>>()?;
        Ok::<_, String>((columns, at.next_multiple_of(8)))
    };
    let ((key, key_len), (value, value_len)) = (columns(raw.key)?, columns(raw.value)?);
    for column in key.iter().chain(&value) {
        named("a column", &column.name)?;
    }
    if key_len == 0 || key_len > MAX_ENTRY || value_len == 0 || value_len > MAX_ENTRY {
        return wrong(format!(
            "keys have {key_len} bytes and values {value_len}; expected 1 to {MAX_ENTRY} each"
        ));
    }
    if raw.capacity == 0 || raw.capacity > MAX_CAPACITY {
        return wrong(format!("capacity {}, expected 1 to {MAX_CAPACITY}", raw.capacity));
    }
    let table = TableInfo {
        name: name.clone(),
        key,
        value,
        key_len,
        value_len,
        capacity: raw.capacity,
        expires: raw.expires,
        hand_over: raw.hand_over,
    };
    if let Some(param) = &table.expires {
        let numeric = logic.params.iter().any(|p| {
            p.name == *param && matches!(p.kind, ParamKind::Number { .. } | ParamKind::Duration { .. })
        });
        if !numeric || table.column(Type::Seconds).is_none() {
            return wrong(format!(
                "`expires` is `{param}`, which must be a parameter of type `number` or `duration`, and the value needs a column of type `seconds`"
            ));
        }
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FDB: &str = r#"{"name": "fdb", "capacity": 8, "key": [["station", "mac"], ["vlan", "u16"]],
        "value": [["port", "port"], ["heard", "seconds"]], "expires": "ageing"}"#;

    #[test]
    fn a_whole_one_is_understood() {
        let params = r#"[{"name": "ageing", "type": "number", "max": 9, "unit": "s", "default": 3, "help": "h"},
            {"name": "up", "type": "port", "optional": "none", "help": "h"}]"#;
        let text = format!(
            r#"{{"name": "x", "summary": "two\nlines", "params": {params}, "tables": [{FDB}], "state": 16,
                "counters": [{{"name": "c", "help": "h"}}], "commands": [{{"name": "do", "help": "h"}}]}}"#
        );
        let described = parse(text.as_bytes()).unwrap();
        assert_eq!(described.logic.summary, "two lines");
        let table = &described.tables[0];
        assert_eq!((table.key_len, table.value_len), (8, 8));
        assert_eq!((table.key[1].at, table.value[1].at), (6, 2));
        assert_eq!(described.state, 16);
        let entry = [2, 0, 0, 0, 0, 1, 7, 0];
        assert_eq!(table.key[0].kind.show(table.key[0].of(&entry), 0), "02:00:00:00:00:01");
        assert_eq!(table.key[1].kind.show(table.key[1].of(&entry), 0), "7");
        assert_eq!(Type::Ipv4.show(&[192, 0, 2, 1], 0), "192.0.2.1");
        assert_eq!(Type::Seconds.show(&5u32.to_le_bytes(), 65), "60 s ago");
    }

    #[test]
    fn an_empty_one_is_called_empty() {
        assert_eq!(parse(b" \n").unwrap_err(), "the description is empty");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let table = |table: &str| format!(r#"{{"name": "x", "summary": "", "tables": [{table}]}}"#);
        let param = |param: &str| format!(r#"{{"name": "x", "summary": "", "params": [{param}]}}"#);
        let many = format!(
            r#"{{"name": "x", "summary": "", "tables": [{}]}}"#,
            [r#"{"name": "t", "capacity": 1, "key": [["k", "u8"]], "value": [["v", "u8"]]}"#; 9].join(",")
        );
        for (text, said) in [
            ("learning".to_owned(), "expected value"),
            (r#"{"name": "x"}"#.into(), "missing field `summary`"),
            (r#"{"name": "x", "summary": "", "sumary": ""}"#.into(), "unknown field `sumary`"),
            (r#"{"name": "A b", "summary": ""}"#.into(), "`A b` is not a valid name for the module"),
            (
                r#"{"name": "x", "summary": "", "state": 99999999}"#.into(),
                "up to 1048576 bytes, not 99999999",
            ),
            (
                r#"{"name": "x", "summary": "", "timer": 0}"#.into(),
                "timer interval of 0 ms, expected 1 to 3600000",
            ),
            (
                r#"{"name": "x", "summary": "", "timer": "beat"}"#.into(),
                "which is not a parameter of type `duration`",
            ),
            (r#"{"name": "x", "summary": "", "retain": 257}"#.into(), "can keep up to 256 packets, not 257"),
            (table(FDB), "`expires` is `ageing`"),
            (
                table(r#"{"name": "t", "capacity": 0, "key": [["k", "u8"]], "value": [["v", "u8"]]}"#),
                "capacity 0, expected 1 to",
            ),
            (
                table(r#"{"name": "t", "capacity": 1, "key": [], "value": [["v", "u8"]]}"#),
                "keys have 0 bytes",
            ),
            (
                table(r#"{"name": "t", "capacity": 1, "key": [["k", "word"]], "value": []}"#),
                "table `t`, column `k`: unknown type `word`; expected one of u8, u16, u32, u64, mac, ipv4, ipv6, port, seconds, prefix",
            ),
            (many, "9 tables, more than 8"),
            (
                table(
                    r#"{"name": "t", "capacity": 1048576, "key": [["a", "ipv6"], ["b", "ipv6"], ["c", "ipv6"], ["d", "ipv6"]],
                    "value": [["v", "ipv6"], ["w", "ipv6"], ["x", "ipv6"], ["y", "ipv6"]]}"#,
                ),
                "bytes in total, more than 268435456",
            ),
            (param(r#"{"name": "p", "type": "int", "help": ""}"#), "has the unknown type `int`"),
            (
                param(r#"{"name": "p", "type": "number", "min": 2, "max": 1, "help": ""}"#),
                "can have no value",
            ),
        ] {
            let error = parse(text.as_bytes()).unwrap_err();
            assert!(error.starts_with("invalid description: ") && error.contains(said), "{text}: {error}");
        }
    }
}
