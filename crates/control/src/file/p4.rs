//! `[bridge.p4]`: a bridge's P4Runtime server.

use super::Depth;
use super::report::Report;
use super::section::Section;
use crate::keys;
use crate::model::LogicConfig;
use crate::p4::settings::{P4Config, TLS_KEYS, check_device_id, parse_file, parse_listen};
use crate::p4::{LOGIC, is_p4};

const LISTEN: &str = "a list of addresses such as [\"tcp:127.0.0.1:9559\"]";

/// Reads the section of a bridge; the defaults if it is missing.
pub(super) fn read(
    bridge: &Section<'_>,
    logic: &LogicConfig,
    depth: Depth,
    report: &mut Report<'_>,
) -> P4Config {
    let mut config = P4Config::default();
    let expected = "a table that begins with `[bridge.p4]`";
    let Some((table, span)) = bridge.table("p4", expected, report) else { return config };
    let section = Section { table, span, context: bridge.context.clone() };
    section.only(&keys::names(keys::P4), report);
    if !is_p4(&logic.name) {
        let message =
            format!("`[bridge.p4]` has no effect with logic `{}`; set `logic = \"{LOGIC}\"`", logic.name);
        report.note(&section.span, &section.context, message);
    }
    if let Some((texts, _)) = section.each_text("listen", LISTEN, report) {
        let listen = config.listen.insert(Vec::new());
        for (text, span) in texts {
            match parse_listen(text) {
                Ok(address) if listen.contains(&address) => {}
                Ok(address) => listen.push(address),
                Err(error) => report.add(&span, &section.context, format!("`listen`: {error}")),
            }
        }
    }
    if let Some((number, span)) = section.integer("device-id", report) {
        match check_device_id(number) {
            Ok(number) => config.device_id = number,
            Err(error) => report.add(&span, &section.context, format!("`device-id`: {error}")),
        }
    }
    for (key, file) in TLS_KEYS.iter().zip(&mut config.tls) {
        let Some((text, span)) = section.text(key, "a path", report) else { continue };
        match parse_file(text) {
            Ok(path) => *file = Some(path),
            Err(error) => report.add(&span, &section.context, format!("`{key}`: {error}")),
        }
    }
    if let Err(error) = config.check(depth > Depth::Form) {
        report.add(&section.span_of("listen"), &section.context, format!("`listen`: {error}"));
    }
    config
}
