//! Logics.

use control::proto;

use super::table::{Column, table};
use super::{pairs, units};

/// Rows shown per table, unless `--table` names one.
pub(crate) const ROWS: u32 = 10;

/// `mswitch logic show`.
pub(crate) fn show(logic: &proto::Logic, bridge: &str) -> String {
    let params = if logic.params.is_empty() { "none".into() } else { pairs(&logic.params) };
    let mut out = format!("logic       {}\nparameters  {}\n", printable(&logic.name), printable(&params));
    for port in &logic.missing_ports {
        out += &format!("            {}\n", missing(port, bridge));
    }
    if !logic.counters.is_empty() {
        let row =
            |c: &proto::LogicCounter| vec![printable(&c.name), units::count(c.value), printable(&c.summary)];
        let columns = [Column::Left("COUNTER"), Column::Right("VALUE"), Column::Left("MEANING")];
        out += &format!("\n{}", table(&columns, logic.counters.iter().map(row).collect(), ""));
    }
    for table in &logic.tables {
        out += &format!("\n{}", one_table(table, bridge));
    }
    if !logic.commands.is_empty() {
        out += &format!("\n{}", printable(&commands(&logic.commands, bridge)));
    }
    out
}

/// Note about a port that a parameter names and the bridge lacks.
pub(crate) fn missing(port: &str, bridge: &str) -> String {
    format!("bridge {bridge} has no port `{}` yet", printable(port))
}

/// A table with a title line of its name and size.
fn one_table(shown: &proto::LogicTable, bridge: &str) -> String {
    let name = printable(&shown.name);
    let of = match shown.capacity {
        0 => String::new(),
        capacity => format!(" of {}", units::count(capacity)),
    };
    let mut out = format!("table {name}: {}{of}\n", units::count(shown.entries));
    if shown.rows.is_empty() {
        return out;
    }
    let headers: Vec<_> = shown.columns.iter().map(|column| printable(column).to_uppercase()).collect();
    // Columns that hold only numbers are right-aligned.
    let is_number = |i: usize| {
        let mut cells = shown.rows.iter().filter_map(|row| row.cells.get(i));
        cells.all(|cell| cell.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let column = |(i, name)| if is_number(i) { Column::Right(name) } else { Column::Left(name) };
    let columns: Vec<_> = headers.iter().map(String::as_str).enumerate().map(column).collect();
    let row = |row: &proto::LogicRow| {
        row.cells
            .iter()
            .map(|cell| if cell.is_empty() { "-".into() } else { printable(cell) })
            .take(columns.len())
            .collect()
    };
    out += &table(&columns, shown.rows.iter().map(row).collect(), "");
    let more = shown.entries.saturating_sub(shown.rows.len() as u64);
    if more > 0 {
        let more = units::count(more);
        out += &format!("and {more} more: `mswitch logic show {bridge} --table {name}` shows all\n");
    }
    out
}

/// `mswitch logic call`: the logic's reply.
pub(crate) fn reply(reply: &proto::LogicReply) -> String {
    match printable(&reply.message) {
        message if message.is_empty() || message.ends_with('\n') => message,
        message => format!("{message}\n"),
    }
}

/// Escapes control characters in a module's text.
pub(crate) fn printable(text: &str) -> String {
    let one = |c: char| match c.is_control() && !matches!(c, '\n' | '\t') {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(one).collect()
}

/// `mswitch logic list`: logics with their parameters, counters, tables and commands.
pub(crate) fn list(logics: &[proto::LogicType]) -> String {
    let mut out = String::new();
    for logic in logics {
        out += &format!("{}: {}\n", logic.name, logic.summary);
        for param in &logic.params {
            out += &format!("    {}: {}\n", param.name, param.summary);
            out += &match param.required {
                true => format!("        {}, required\n", param.expected),
                false => format!("        {} (default: {})\n", param.expected, param.default),
            };
        }
        for counter in &logic.counters {
            out += &format!("    counter {}: {}\n", counter.name, counter.summary);
        }
        logic.tables.iter().for_each(|table| out += &table_type(table));
        out += &commands(&logic.commands, "BRIDGE");
    }
    if logics.iter().any(|logic| logic.from_file && logic.name.ends_with(":FILE")) {
        out += "`mswitch logic list wasm:FILE` or `native:FILE` shows the parameters, counters and tables of that module\n";
    }
    printable(&out)
}

/// A table of a module: its size and its columns.
fn table_type(table: &proto::LogicTableType) -> String {
    let columns = |columns: &[proto::LogicColumn]| {
        let columns: Vec<_> =
            columns.iter().map(|column| format!("{} ({})", column.name, column.r#type)).collect();
        columns.join(", ")
    };
    let noun = if table.capacity == 1 { "entry" } else { "entries" };
    let mut notes = format!("at least {} {noun}", units::count(table.capacity));
    if !table.expires.is_empty() {
        notes += &format!(", removed after `{}`", table.expires);
    }
    if !table.hand_over {
        notes += ", not handed over";
    }
    format!(
        "    table {}: {notes}\n        key of {} bytes: {}\n        value of {} bytes: {}\n",
        table.name,
        table.key_bytes,
        columns(&table.key),
        table.value_bytes,
        columns(&table.value)
    )
}

/// Command lines for a logic's commands, one line each.
fn commands(commands: &[proto::LogicCommand], bridge: &str) -> String {
    let line = |command: &proto::LogicCommand| {
        let words = format!("{} {}", command.name, command.usage);
        format!("    mswitch logic call {bridge} {}: {}\n", words.trim_end(), command.summary)
    };
    commands.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn logic() -> proto::Logic {
        let table = proto::LogicTable {
            name: "sources".into(),
            columns: text(&["address", "packets"]),
            rows: vec![
                proto::LogicRow { cells: text(&["192.0.2.1", "7"]) },
                proto::LogicRow { cells: text(&["", "12"]) },
            ],
            entries: 1002,
            capacity: 4096,
        };
        proto::Logic {
            name: "wasm:/m.wasm".into(),
            params: [("rate".to_owned(), "5".to_owned())].into(),
            counters: vec![proto::LogicCounter {
                name: "knocks".into(),
                summary: "doors\u{1b}[2J".into(),
                value: 1234,
            }],
            tables: vec![table, proto::LogicTable { name: "none".into(), ..Default::default() }],
            commands: vec![proto::LogicCommand {
                name: "reset".into(),
                usage: "[SOURCE]".into(),
                summary: "resets all counters".into(),
            }],
            missing_ports: text(&["vm9"]),
        }
    }

    #[test]
    fn long_tables_name_the_command_for_all_rows() {
        let shown = show(&logic(), "br0");
        assert_eq!(
            shown,
            "logic       wasm:/m.wasm\nparameters  rate=5\n            bridge br0 has no port `vm9` yet\n\n\
             COUNTER  VALUE  MEANING\nknocks   1,234  doors\\u{1b}[2J\n\n\
             table sources: 1,002 of 4,096\nADDRESS    PACKETS\n192.0.2.1        7\n-               12\n\
             and 1,000 more: `mswitch logic show br0 --table sources` shows all\n\n\
             table none: 0\n\n\
             \x20   mswitch logic call br0 reset [SOURCE]: resets all counters\n"
        );
    }

    #[test]
    fn a_description_lists_counters_and_tables() {
        let column =
            |(name, kind): (&str, &str)| proto::LogicColumn { name: name.into(), r#type: kind.into() };
        let table = proto::LogicTableType {
            name: "sources".into(),
            key: vec![column(("address", "ipv4"))],
            value: [("heard", "seconds"), ("packets", "u32")].map(column).into(),
            key_bytes: 8,
            value_bytes: 8,
            capacity: 1024,
            expires: "ageing".into(),
            hand_over: true,
        };
        let plain = proto::LogicTableType {
            name: "routes".into(),
            capacity: 1,
            expires: String::new(),
            hand_over: false,
            ..table.clone()
        };
        let listed = list(&[proto::LogicType {
            name: "wasm:/m.wasm".into(),
            summary: "counts packets by source".into(),
            from_file: true,
            counters: vec![proto::LogicCounterType {
                name: "refused".into(),
                summary: "packets from too many sources\u{1b}[2J".into(),
            }],
            tables: vec![table, plain],
            commands: logic().commands,
            ..Default::default()
        }]);
        assert_eq!(
            listed,
            "wasm:/m.wasm: counts packets by source\n\
             \x20   counter refused: packets from too many sources\\u{1b}[2J\n\
             \x20   table sources: at least 1,024 entries, removed after `ageing`\n\
             \x20       key of 8 bytes: address (ipv4)\n\
             \x20       value of 8 bytes: heard (seconds), packets (u32)\n\
             \x20   table routes: at least 1 entry, not handed over\n\
             \x20       key of 8 bytes: address (ipv4)\n\
             \x20       value of 8 bytes: heard (seconds), packets (u32)\n\
             \x20   mswitch logic call BRIDGE reset [SOURCE]: resets all counters\n"
        );
    }

    #[test]
    fn rows_may_be_longer_or_shorter_than_the_header() {
        let mut logic = logic();
        logic.tables[0].rows[0].cells.push("surplus".into());
        logic.tables[0].rows[1].cells.clear();
        let shown = show(&logic, "br0");
        assert!(shown.contains("192.0.2.1") && !shown.contains("surplus"), "{shown}");
        logic.tables[0].columns.clear();
        assert!(show(&logic, "br0").contains("table sources: 1,002 of 4,096\n"));
    }
}
