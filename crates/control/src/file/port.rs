//! `[[bridge.port]]`: what all ports have, and the options of the port's type.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use fabric::PortSettings;
use ports::Spec;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::report::Report;
use super::section::Section;
use super::{Depth, protection};
use crate::check::{self, Fault, Ours};
use crate::model::{PortConfig, check_mtu, check_name, parse_admin};
use crate::{keys, options, suggest, vlan};

/// What ports must not have in common, and how far to look.
pub(super) struct Shared<'a> {
    /// What only one port can have, with the line of the port that has it.
    pub(super) exclusive: BTreeMap<String, usize>,
    /// Sockets that ports of this file listen on: each is looked at once.
    pub(super) sockets: BTreeSet<PathBuf>,
    pub(super) ours: &'a Ours,
    pub(super) depth: Depth,
}

/// Reads one port. `None` when something about it is wrong, which is reported.
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
            let message = format!(
                "there is a port of this name in line {first} of the same bridge; choose another name"
            );
            report.add(span, &section.context, message);
        } else {
            names.insert((*name).to_owned(), line);
        }
    }
    let mut settings = PortSettings::new(name.as_ref().map_or("", |(name, _)| name));
    common(&section, &mut settings, report);
    let spec = spec(&section, &settings.name, shared, report)?;
    name.map(|_| PortConfig::new(settings, spec))
}

/// The settings that every port has.
fn common(section: &Section<'_>, settings: &mut PortSettings, report: &mut Report<'_>) {
    if let Some((text, span)) = section.text("admin", "`up` or `down`", report) {
        match parse_admin(text) {
            Ok(up) => settings.admin_up = up,
            Err(error) => report.add(&span, &section.context, error),
        }
    }
    if let Some((number, span)) = section.integer("mtu", report) {
        match check_mtu(number) {
            Ok(mtu) => settings.mtu = mtu,
            Err(error) => report.add(&span, &section.context, error),
        }
    }
    if let Some((text, span)) = section.text("vlan", "a text such as `access:10`", report) {
        match vlan::parse(text) {
            Ok(mode) => settings.vlan = mode,
            Err(error) => report.add(&span, &section.context, error),
        }
    }
    protection::read(section, settings, report);
}

/// The type and its own options.
fn spec(section: &Section<'_>, name: &str, shared: &mut Shared<'_>, report: &mut Report<'_>) -> Option<Spec> {
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
    section.only(&all, report);

    let spec = typed(section, type_name, known, report)?;
    let mut good = true;
    let mut refuse = |fault: Fault, report: &mut Report<'_>| {
        let span = fault.key.as_deref().map_or_else(|| section.span.clone(), |key| section.span_of(key));
        report.add(&span, &section.context, fault.message);
        good = false;
    };
    if let Err(fault) = check::options(&spec) {
        refuse(fault, report);
    } else if shared.depth == Depth::Machine
        && check::listens_on(&spec).is_none_or(|path| shared.sockets.insert(path.into()))
        && let Err(fault) = check::in_use(&spec, shared.ours)
    {
        refuse(fault, report);
    }
    if let Some((what, key)) = check::exclusive(&spec, name) {
        let line = report.line(&section.span);
        if let Some(first) = shared.exclusive.get(&what) {
            let message = format!("the port in line {first} has {what}; two ports cannot share it");
            refuse(Fault { key: Some(key.into()), message }, report);
        } else {
            shared.exclusive.insert(what, line);
        }
    }
    good.then_some(spec)
}

/// Reads the type's options. A value that does not fit is reported and left out, so that one after it is found too.
fn typed(section: &Section<'_>, type_name: &str, known: &[&str], report: &mut Report<'_>) -> Option<Spec> {
    let mut own: DeTable<'_> = section
        .table
        .iter()
        .filter(|(key, _)| known.contains(&key.get_ref().as_ref()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let mut left_out = false;
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
                report.add(&span, &section.context, format!("`{}`: {}", key.get_ref(), error.message));
                own.remove(key.get_ref().as_ref());
                left_out = true;
            }
            // A key that is missing because it was just left out is not a mistake of its own.
            None if left_out => return None,
            None => {
                report.add(&section.span, &section.context, error.message);
                return None;
            }
        }
    }
}
