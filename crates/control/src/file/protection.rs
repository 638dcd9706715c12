//! Protections of a port. Values are texts or the corresponding TOML types.

use fabric::PortSettings;
use toml::de::DeValue;

use super::mistyped;
use super::report::Report;
use super::section::Section;
use crate::protection::{self, KEYS, ProtectionError};

/// Reads a port's protections.
pub(super) fn read(section: &Section<'_>, settings: &mut PortSettings, report: &mut Report<'_>) {
    for key in KEYS {
        let Some(value) = section.value(key.name) else { continue };
        let number_for_boolean = key.expected == mistyped::BOOLEAN && value.get_ref().is_integer();
        let message = match text(value.get_ref()).filter(|_| !number_for_boolean) {
            Some(text) => match protection::set(settings, key, &text) {
                Ok(()) => continue,
                Err(error) => error.to_string(),
            },
            None => mistyped::message(key.name, value.get_ref(), key.expected),
        };
        report.add(&value.span(), &section.context, message);
    }
    if let Err(error) = protection::check(settings) {
        let ProtectionError::Value { key, .. } = &error else { return };
        report.add(&section.span_of(key), &section.context, error);
    }
}

/// Formats a value as on the command line.
fn text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Boolean(on) => Some(if *on { "on" } else { "off" }.into()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number.to_string())
        }
        DeValue::Array(list) => {
            let entries: Option<Vec<_>> = list.iter().map(|entry| entry.get_ref().as_str()).collect();
            entries.map(|entries| if entries.is_empty() { "off".into() } else { entries.join(",") })
        }
        _ => None,
    }
}
