//! Typed access to the keys of a table. A value of the wrong type is reported and treated as absent.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::mistyped::{self, article};
use super::report::{Context, Report};
use crate::options::{former_name, renamed, unknown_key};

/// Keys by which users of other switches look for priority flow control,
const FLOW_CONTROL: [&str; 3] = ["pfc", "priority-flow-control", "flow-control"];
/// and the reason for refusing them.
const NO_FLOW_CONTROL: &str = "ports have no priority flow control (IEEE 802.1Qbb): a client's memory has no link that \
                               could be paused, and network cards are not asked; `queue-buffers` is the room in which a \
                               class waits";

/// A value and its place.
pub(super) type At<T> = (T, Range<usize>);

pub(super) struct Section<'t> {
    pub(super) table: &'t DeTable<'t>,
    /// The place of the table.
    pub(super) span: Range<usize>,
    pub(super) context: Context,
}

impl<'t> Section<'t> {
    pub(super) fn value(&self, key: &str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
    }

    /// Returns the place of a key's value, also under its former name; the place of the table if the key is absent.
    pub(super) fn span_of(&self, key: &str) -> Range<usize> {
        let former = || former_name(key).and_then(|old| self.value(old));
        self.value(key).or_else(former).map_or_else(|| self.span.clone(), Spanned::span)
    }

    /// Reports the keys that are not among `known`.
    pub(super) fn only(&self, known: &[&str], report: &mut Report<'_>) {
        for name in self.table.keys().filter(|name| !known.contains(&name.get_ref().as_ref())) {
            report.add(&name.span(), &self.context, unknown_key(name.get_ref(), known));
        }
    }

    /// Reports the keys of a port that are neither among `known` nor former names of its type's options.
    pub(super) fn only_with_former(&self, known: &[&str], type_name: &str, report: &mut Report<'_>) {
        for name in self.table.keys().filter(|name| !known.contains(&name.get_ref().as_ref())) {
            match renamed(type_name, name.get_ref()) {
                Some((old, new)) => report.former(&name.span(), &self.context, old, new),
                None if FLOW_CONTROL.contains(&name.get_ref().as_ref()) => {
                    report.add(
                        &name.span(),
                        &self.context,
                        format!("`{}`: {NO_FLOW_CONTROL}", name.get_ref()),
                    );
                }
                None => report.add(&name.span(), &self.context, unknown_key(name.get_ref(), known)),
            }
        }
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        report: &mut Report<'_>,
        read: impl Fn(&'t DeValue<'t>) -> Option<T>,
    ) -> Option<At<T>> {
        let value = self.value(key)?;
        let found = read(value.get_ref());
        if found.is_none() {
            report.add(&value.span(), &self.context, mistyped::message(key, value.get_ref(), expected));
        }
        Some((found?, value.span()))
    }

    pub(super) fn text(&self, key: &str, expected: &str, report: &mut Report<'_>) -> Option<At<&'t str>> {
        self.typed(key, expected, report, |value| value.as_str())
    }

    pub(super) fn required(&self, key: &str, expected: &str, report: &mut Report<'_>) -> Option<At<&'t str>> {
        if self.value(key).is_none() {
            report.add(&self.span, &self.context, format!("key `{key}` is missing; expected {expected}"));
        }
        self.text(key, expected, report)
    }

    pub(super) fn boolean(&self, key: &str, report: &mut Report<'_>) -> Option<At<bool>> {
        self.typed(key, mistyped::BOOLEAN, report, |value| value.as_bool())
    }

    pub(super) fn integer(&self, key: &str, report: &mut Report<'_>) -> Option<At<i64>> {
        self.typed(key, mistyped::NUMBER, report, mistyped::number)
    }

    /// Reads a list of texts, each with its place.
    pub(super) fn each_text(
        &self,
        key: &str,
        expected: &str,
        report: &mut Report<'_>,
    ) -> Option<At<Vec<At<&'t str>>>> {
        let (items, span) = self.typed(key, expected, report, |value| value.as_array())?;
        let mut texts = Vec::new();
        for item in items.iter() {
            match item.get_ref().as_str() {
                Some(text) => texts.push((text, item.span())),
                None => {
                    let kind = article(item.get_ref().type_str());
                    report.add(
                        &item.span(),
                        &self.context,
                        format!("`{key}` holds {kind}; expected {expected}"),
                    );
                }
            }
        }
        Some((texts, span))
    }

    pub(super) fn table(
        &self,
        key: &str,
        expected: &str,
        report: &mut Report<'_>,
    ) -> Option<At<&'t DeTable<'t>>> {
        self.typed(key, expected, report, |value| value.as_table())
    }

    /// Reads a list of texts; empty if the key is absent.
    pub(super) fn texts(&self, key: &str, expected: &str, report: &mut Report<'_>) -> Option<Vec<String>> {
        if self.value(key).is_none() {
            return Some(Vec::new());
        }
        let items = self.typed(key, expected, report, |value| value.as_array())?.0.len();
        let (texts, _) = self.each_text(key, expected, report)?;
        // An item of another type was reported and makes the whole list unusable.
        (texts.len() == items).then(|| texts.into_iter().map(|(text, _)| text.to_owned()).collect())
    }

    /// Returns the tables of `[[key]]`.
    pub(super) fn tables(&self, key: &str, header: &str, report: &mut Report<'_>) -> Vec<Section<'t>> {
        let expected = format!("tables that begin with `[[{header}]]`");
        let Some((items, _)) = self.typed(key, &expected, report, |value| value.as_array()) else {
            return Vec::new();
        };
        let mut sections = Vec::new();
        for item in items.iter() {
            match item.get_ref().as_table() {
                Some(table) => {
                    sections.push(Section { table, span: item.span(), context: self.context.clone() })
                }
                None => {
                    let kind = article(item.get_ref().type_str());
                    report.add(&item.span(), &self.context, format!("this is {kind}; expected {expected}"));
                }
            }
        }
        sections
    }
}
