//! `[[bridge.port]]`: the settings of all port types, and the options of the port's type.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;

use fabric::PortSettings;
use ports::Spec;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::patches::Patch;
use super::report::{Context, Report};
use super::section::Section;
use super::{Depth, mistyped, protection};
use crate::check::{self, Fault, Ours};
use crate::host_port;
use crate::model::{PortConfig, check_mtu, check_name, check_openflow_port, check_p4_port, parse_admin};
use crate::{keys, options, suggest, vlan};

/// State shared by all ports of a file.
pub(super) struct Shared<'a> {
    /// Resources that only one port can have, with the line of that port.
    pub(super) exclusive: BTreeMap<String, usize>,
    /// Sockets of ports in this file; each is checked once.
    pub(super) sockets: BTreeSet<PathBuf>,
    /// The patch ports.
    pub(super) patches: Vec<Patch>,
    /// The keys `host` of the present bridge.
    pub(super) hosts: Vec<HostKey>,
    pub(super) ours: &'a Ours,
    pub(super) depth: Depth,
}

/// A key `host` of a netdev port.
pub(super) struct HostKey {
    pub(super) span: Range<usize>,
    pub(super) context: Context,
}

/// Reads one port. Returns `None` after a mistake, which is reported.
pub(super) fn read(
    mut section: Section<'_>,
    names: &mut BTreeMap<String, usize>,
    shared: &mut Shared<'_>,
    report: &mut Report<'_>,
) -> Option<PortConfig> {
    let name = section.required("name", "the port's name", report);
    section.context.port = name.as_ref().map(|(name, _)| (*name).to_owned());
    if let Some((name, span)) = &name {
        let line = report.line(span);
        if let Err(error) = check_name(name) {
            report.add(span, &section.context, error);
        } else if let Some(first) = names.get(*name) {
            let message =
                format!("the bridge already has a port of this name in line {first}; choose another name");
            report.add(span, &section.context, message);
        } else {
            names.insert((*name).to_owned(), line);
        }
    }
    let mut settings = PortSettings::new(name.as_ref().map_or("", |(name, _)| name));
    note_relative_path(&section, report);
    let invalid = common(&section, &mut settings, report);
    let spec = spec(&section, &settings.name, &invalid, shared, report)?;
    if let Spec::Patch(options) = &spec {
        let (span, context) = (section.span_of("peer"), section.context.clone());
        shared.patches.push(Patch { span, context, peer: options.peer.clone() });
    }
    let mut port = PortConfig::new(settings, spec);
    if let Some((number, span)) = section.integer("openflow-port", report) {
        match check_openflow_port(number) {
            Ok(number) => port.openflow_port = Some(number),
            Err(error) => report.add(&span, &section.context, error),
        }
    }
    if let Some((number, span)) = section.integer("p4-port", report) {
        match check_p4_port(number) {
            Ok(number) => port.p4_port = Some(number),
            Err(error) => report.add(&span, &section.context, error),
        }
    }
    if host_port::of(&port).is_some() {
        shared.hosts.push(HostKey { span: section.span_of("host"), context: section.context.clone() });
    }
    name.map(|_| port)
}

/// Notes a socket whose path is relative: the daemon and `config check` may have different working directories.
fn note_relative_path(section: &Section<'_>, report: &mut Report<'_>) {
    let keys = ["path"].into_iter().chain(options::former_name("path"));
    for (key, value) in keys.filter_map(|key| Some((key, section.value(key)?))) {
        let text = value.get_ref().as_str().filter(|text| !text.is_empty() && !text.starts_with(['/', '@']));
        if let Some(text) = text {
            let message = format!(
                "`{key}`: `{text}` is relative to the daemon's working directory; write an absolute path"
            );
            report.note(&value.span(), &section.context, message);
        }
    }
}

/// Reads the settings of all port types. Returns the keys with mistakes: the port type may have an option of the same
/// name, and the mistake must be reported only once.
fn common(section: &Section<'_>, settings: &mut PortSettings, report: &mut Report<'_>) -> Vec<&'static str> {
    let mut invalid = Vec::new();
    if let Some((text, span)) = section.text("admin", "`up` or `down`", report) {
        match parse_admin(text) {
            Ok(up) => settings.admin_up = up,
            Err(error) => report.add(&span, &section.context, error),
        }
    }
    match section.integer("mtu", report) {
        Some((number, span)) => match check_mtu(number) {
            Ok(mtu) => settings.mtu = mtu,
            Err(error) => {
                report.add(&span, &section.context, error);
                invalid.push("mtu");
            }
        },
        None if section.value("mtu").is_some() => invalid.push("mtu"),
        None => {}
    }
    if let Some((text, span)) = section.text("vlan", "a text such as `access:10`", report) {
        match vlan::parse(text) {
            Ok(mode) => settings.vlan = mode,
            Err(error) => report.add(&span, &section.context, error),
        }
    }
    protection::read(section, settings, report);
    invalid
}

/// Reads the type and its own options.
fn spec(
    section: &Section<'_>,
    name: &str,
    invalid: &[&str],
    shared: &mut Shared<'_>,
    report: &mut Report<'_>,
) -> Option<Spec> {
    let expected = suggest::one_of(Spec::TYPES);
    let (type_name, type_span) = section.required("type", &expected, report)?;
    let known = match options::known(type_name) {
        Ok(known) => known,
        Err(error) => {
            report.add(&type_span, &section.context, error);
            return None;
        }
    };
    let mut all = keys::names(keys::PORT);
    let own: Vec<&str> = known.iter().filter(|key| !all.contains(key)).copied().collect();
    all.extend(own);
    section.only_with_former(&all, type_name, report);

    let spec = type_options(section, type_name, known, invalid, report)?;
    let mut valid = true;
    let mut refuse = |fault: Fault, report: &mut Report<'_>| {
        let span = fault.key.as_deref().map_or_else(|| section.span.clone(), |key| section.span_of(key));
        report.add(&span, &section.context, fault.message);
        valid = false;
    };
    if shared.depth > Depth::Form
        && let Err(fault) = check::options(&spec)
    {
        refuse(fault, report);
    } else if shared.depth == Depth::Machine
        && check::listens_on(&spec).is_none_or(|path| shared.sockets.insert(path.into()))
        && let Err(fault) = check::in_use(&spec, shared.ours)
    {
        refuse(fault, report);
    }
    if let Some((resource, key)) = check::exclusive(&spec, name) {
        let line = report.line(&section.span);
        if let Some(first) = shared.exclusive.get(&resource) {
            let message =
                format!("the port in line {first} already has {resource}; two ports cannot share it");
            refuse(Fault { key: Some(key.into()), message }, report);
        } else {
            shared.exclusive.insert(resource, line);
        }
    }
    valid.then_some(spec)
}

/// Reads the type's options, except the `invalid` ones. An invalid value is reported and left out, so that the next
/// mistake is found too.
fn type_options(
    section: &Section<'_>,
    type_name: &str,
    known: &[&str],
    invalid: &[&str],
    report: &mut Report<'_>,
) -> Option<Spec> {
    let mut own = DeTable::new();
    for (key, value) in section.table {
        let name = key.get_ref().as_ref();
        let name = options::renamed(type_name, name).map_or(name, |(_, new)| new);
        if !known.contains(&name) || invalid.contains(&name) {
            continue;
        }
        let key = Spanned::new(key.span(), name.to_owned().into());
        if own.insert(key, value.clone()).is_some() {
            let message = format!("`{name}` is set twice, once by its former name; remove one of them");
            report.add(&value.span(), &section.context, message);
            return None;
        }
    }
    let mut left_out = !invalid.is_empty();
    loop {
        let value = Spanned::new(section.span.clone(), DeValue::Table(own.clone()));
        let error = match options::from_toml(type_name, ValueDeserializer::from(value)) {
            Ok(spec) => return (!left_out).then_some(spec),
            Err(error) => error,
        };
        let culprit = error.span.as_ref().and_then(|span| {
            let inside = |value: &Spanned<DeValue<'_>>| {
                value.span().start <= span.start && span.end <= value.span().end
            };
            own.iter().find(|(_, value)| inside(value)).map(|(key, value)| (key.clone(), value.span()))
        });
        match culprit {
            Some((key, span)) => {
                let key = key.get_ref().as_ref();
                let value = own.get(key).map(Spanned::get_ref);
                let message = match (value, options::shape(type_name, key)) {
                    (Some(value), Some(shape)) if !shape.fits(value.type_str()) => {
                        mistyped::message(key, value, mistyped::expected(key, shape))
                    }
                    _ => format!("`{key}`: {}", error.message),
                };
                report.add(&span, &section.context, message);
                let key = key.to_owned();
                own.remove(key.as_str());
                left_out = true;
            }
            // A key that is missing because it was left out is not a mistake.
            None if left_out => return None,
            None => {
                report.add(&section.span, &section.context, error.message);
                return None;
            }
        }
    }
}
