//! `[bridge.p4]`: a bridge's P4Runtime server, with the limits of its roles (`[[bridge.p4.role]]`).

use p4runtime::LimitedRole;

use super::Depth;
use super::report::Report;
use super::section::Section;
use crate::keys;
use crate::model::LogicConfig;
use crate::p4::settings::{
    P4Config, ROLE_LISTS, SettingError, TLS_KEYS, check_device_id, check_entries, check_objects,
    check_role_name, parse_file, parse_listen,
};
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
    for table in section.tables("role", "bridge.p4.role", report) {
        let Some(role) = role(&table, report) else { continue };
        let name = role.access.role.clone();
        if config.roles.contains_key(&name) {
            let error = SettingError::RoleExists(name);
            report.add(&table.span_of("name"), &table.context, format!("`name`: {error}"));
            continue;
        }
        config.roles.insert(name, role);
    }
    if let Some((only, _)) = section.boolean("only-listed-roles", report) {
        config.only_listed_roles = only;
    }
    if let Err(error) = config.check(depth > Depth::Form) {
        let key = if matches!(error, SettingError::TooManyRoles(_)) { "role" } else { "listen" };
        report.add(&section.span_of(key), &section.context, format!("`{key}`: {error}"));
    }
    config
}

/// Reads the limits of a role; `None` without a name.
fn role(section: &Section<'_>, report: &mut Report<'_>) -> Option<LimitedRole> {
    section.only(&keys::names(keys::P4_ROLE), report);
    let mut role = LimitedRole::default();
    let name = section.required("name", "the role's name", report);
    for (key, kind) in ROLE_LISTS {
        let expected = "a list of names such as [\"Ingress.routes\"]";
        let Some(names) = section.texts(key, expected, report) else { continue };
        match check_objects(names) {
            Ok(names) if names.is_empty() => {}
            Ok(names) => drop(role.access.objects.insert(kind, names)),
            Err(error) => report.add(&section.span_of(key), &section.context, format!("`{key}`: {error}")),
        }
    }
    if let Some((number, span)) = section.integer("max-entries", report) {
        match check_entries(number) {
            Ok(number) => role.access.max_entries = Some(number),
            Err(error) => report.add(&span, &section.context, format!("`max-entries`: {error}")),
        }
    }
    if let Some((number, span)) = section.integer("packet-rate", report) {
        match check_device_id(number) {
            Ok(number) => role.packet_rate = Some(number),
            Err(error) => report.add(&span, &section.context, format!("`packet-rate`: {error}")),
        }
    }
    for (key, value) in [("read-only", &mut role.access.read_only), ("packet-in", &mut role.packets)] {
        if let Some((is_on, _)) = section.boolean(key, report) {
            *value = is_on;
        }
    }
    if role.packet_rate.is_some() && !role.packets {
        let message = "`packet-rate` has no effect without packets; set `packet-in = true`";
        report.note(&section.span_of("packet-rate"), &section.context, message);
    }
    let (name, span) = name?;
    if let Err(error) = check_role_name(name) {
        report.add(&span, &section.context, format!("`name`: {error}"));
    }
    role.access.role = name.into();
    Some(role)
}
