//! `[bridge.openflow]`: a bridge's OpenFlow connections.

use std::collections::BTreeMap;

use super::Depth;
use super::mistyped::article;
use super::report::Report;
use super::section::Section;
use crate::keys;
use crate::model::LogicConfig;
use crate::openflow::LOGIC;
use crate::openflow::settings::{
    OpenFlowConfig, SettingError, TLS_KEYS, check_backoff, check_flows, check_probe, parse_controllers,
    parse_datapath_id, parse_fail_mode, parse_file, parse_socket, parse_table_name, parse_table_number,
    parse_versions,
};

const TABLES: &str = "names of tables such as { 0 = \"classify\", 1 = \"acl\" }";
const CONTROLLERS: &str = "a list of addresses such as [\"tcp:192.0.2.1:6653\"]";

/// Reads the section of a bridge; the defaults if it is missing.
pub(super) fn read(
    bridge: &Section<'_>,
    logic: &LogicConfig,
    depth: Depth,
    report: &mut Report<'_>,
) -> OpenFlowConfig {
    let mut config = OpenFlowConfig::default();
    let expected = "a table that begins with `[bridge.openflow]`";
    let Some((table, span)) = bridge.table("openflow", expected, report) else { return config };
    let section = Section { table, span, context: bridge.context.clone() };
    section.only(&keys::names(keys::OPENFLOW), report);
    if logic.name != LOGIC {
        let message = format!(
            "`[bridge.openflow]` has no effect with logic `{}`; set `logic = \"{LOGIC}\"`",
            logic.name
        );
        report.note(&section.span, &section.context, message);
    }
    list(&section, "controllers", CONTROLLERS, report, &mut config.controllers, |texts| {
        parse_controllers(texts.iter().copied())
    });
    list(&section, "versions", "a list such as [\"1.0\", \"1.3\"]", report, &mut config.versions, |texts| {
        parse_versions(texts.iter().copied())
    });
    text(&section, "fail-mode", "`standalone` or `secure`", report, &mut config.fail_mode, parse_fail_mode);
    text(&section, "datapath-id", "16 hexadecimal digits as text", report, &mut config.datapath_id, |text| {
        parse_datapath_id(text).map(Some)
    });
    text(&section, "management", "a path, or `off`", report, &mut config.management, parse_socket);
    text(&section, "snoop", "a path, or `off`", report, &mut config.snoop, parse_socket);
    type Check = fn(i64) -> Result<u32, SettingError>;
    let numbers: [(&str, &mut u32, Check); 3] = [
        ("probe", &mut config.probe, check_probe),
        ("max-backoff", &mut config.max_backoff, check_backoff),
        ("max-flows", &mut config.max_flows, check_flows),
    ];
    for (key, value, check) in numbers {
        let Some((number, span)) = section.integer(key, report) else { continue };
        match check(number) {
            Ok(number) => *value = number,
            Err(error) => report.add(&span, &section.context, format!("`{key}`: {error}")),
        }
    }
    for (key, file) in TLS_KEYS.iter().zip(&mut config.tls) {
        text(&section, key, "a path", report, file, |text| parse_file(text).map(Some));
    }
    if let Some((keep, _)) = section.boolean("keep-flows", report) {
        config.keep_flows = keep;
    }
    tables(&section, report, &mut config.tables);
    if let Err(error) = config.check_tls(depth > Depth::Form) {
        report.add(&section.span_of("controllers"), &section.context, format!("`controllers`: {error}"));
    }
    config
}

fn text<T>(
    section: &Section<'_>,
    key: &str,
    expected: &str,
    report: &mut Report<'_>,
    value: &mut T,
    parse: impl Fn(&str) -> Result<T, SettingError>,
) {
    let Some((text, span)) = section.text(key, expected, report) else { return };
    match parse(text) {
        Ok(parsed) => *value = parsed,
        Err(error) => report.add(&span, &section.context, format!("`{key}`: {error}")),
    }
}

/// Reads the names of flow tables.
fn tables(section: &Section<'_>, report: &mut Report<'_>, names: &mut BTreeMap<u8, String>) {
    let Some((table, _)) = section.table("tables", TABLES, report) else { return };
    for (number, name) in table.iter() {
        let parsed = match name.get_ref().as_str() {
            None => {
                let kind = article(name.get_ref().type_str());
                report.add(
                    &name.span(),
                    &section.context,
                    format!("`tables` holds {kind}; expected {TABLES}"),
                );
                continue;
            }
            Some(text) => parse_table_name(text).map_err(|error| (name.span(), error)),
        };
        let number = parse_table_number(number.get_ref()).map_err(|error| (number.span(), error));
        let done = number.and_then(|number| {
            let parsed = parsed?;
            match names.iter().find(|(_, other)| **other == parsed) {
                Some((first, _)) => Err((name.span(), SettingError::SameTableName(*first, number))),
                None => {
                    names.insert(number, parsed);
                    Ok(())
                }
            }
        });
        if let Err((span, error)) = done {
            report.add(&span, &section.context, format!("`tables`: {error}"));
        }
    }
}

/// Reads a list. Each mistake is reported at its item, or at the list if no item is to blame.
fn list<T>(
    section: &Section<'_>,
    key: &str,
    expected: &str,
    report: &mut Report<'_>,
    value: &mut Vec<T>,
    parse: impl Fn(&[&str]) -> Result<Vec<T>, SettingError>,
) {
    let Some((texts, span)) = section.each_text(key, expected, report) else { return };
    let mut good = Vec::new();
    for (text, span) in &texts {
        match parse(&[*text]) {
            Ok(_) => good.push(*text),
            Err(error) => report.add(span, &section.context, format!("`{key}`: {error}")),
        }
    }
    if good.is_empty() && !texts.is_empty() {
        return;
    }
    match parse(&good) {
        Ok(parsed) => *value = parsed,
        Err(error) => report.add(&span, &section.context, format!("`{key}`: {error}")),
    }
}
