//! Policy rules that name an interface as input or output.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::split;
use crate::attributes::Attributes;
use crate::link::Interface;

const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_OIFNAME: u16 = 17;
const FRA_PAD: u16 = 18;
/// The rule holds for packets that do not match.
const FIB_RULE_INVERT: u32 = 2;
/// Suppression that is off.
const NONE: u32 = u32::MAX;

/// A policy rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    family: u8,
    destination_length: u8,
    source_length: u8,
    tos: u8,
    table: u8,
    action: u8,
    invert: bool,
    attributes: Attributes,
}

impl Rule {
    /// Parses a message of the kernel.
    pub(crate) fn parse(message: &[u8]) -> Option<Self> {
        let (header, mut attributes) = split(message, 12)?;
        attributes.remove(FRA_PAD);
        // The kernel refuses some kinds of rules with a suppression, even one that is off.
        for kind in [FRA_SUPPRESS_IFGROUP, FRA_SUPPRESS_PREFIXLEN] {
            if attributes.number(kind) == Some(NONE) {
                attributes.remove(kind);
            }
        }
        // Priority 0 is not reported; without a priority, the kernel would choose one.
        let priority = attributes.number(FRA_PRIORITY).unwrap_or_default();
        attributes.set_number(FRA_PRIORITY, priority);
        Some(Self {
            family: header[0],
            destination_length: header[1],
            source_length: header[2],
            tos: header[3],
            table: header[4],
            action: header[7],
            invert: u32::from_ne_bytes(header.get(8..12)?.try_into().ok()?) & FIB_RULE_INVERT != 0,
            attributes,
        })
    }

    /// Returns whether the rule names this interface.
    pub(crate) fn names(&self, interface: &str) -> bool {
        [FRA_IIFNAME, FRA_OIFNAME]
            .iter()
            .any(|kind| self.attributes.text(*kind).as_deref() == Some(interface))
    }

    pub(super) fn moved(&self, from: &Interface, to: &Interface) -> Self {
        let mut rule = self.clone();
        for kind in [FRA_IIFNAME, FRA_OIFNAME] {
            if rule.attributes.text(kind).as_deref() == Some(&from.name) {
                rule.attributes.set_text(kind, &to.name);
            }
        }
        rule
    }

    pub(super) fn key(&self) -> String {
        format!("{:?}", self.body())
    }

    pub(super) fn body(&self) -> Vec<u8> {
        let mut body = vec![
            self.family,
            self.destination_length,
            self.source_length,
            self.tos,
            self.table,
            0,
            0,
            self.action,
        ];
        let flags = if self.invert { FIB_RULE_INVERT } else { 0 };
        body.extend_from_slice(&flags.to_ne_bytes());
        self.attributes.emit(&mut body);
        body
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}:", self.attributes.number(FRA_PRIORITY).unwrap_or_default())?;
        if self.invert {
            write!(f, " not")?;
        }
        match self.attributes.ip(FRA_SRC) {
            Some(from) => write!(f, " from {from}/{}", self.source_length)?,
            None => write!(f, " from all")?,
        }
        if let Some(to) = self.attributes.ip(FRA_DST) {
            write!(f, " to {to}/{}", self.destination_length)?;
        }
        for (kind, word) in [(FRA_IIFNAME, "iif"), (FRA_OIFNAME, "oif")] {
            if let Some(name) = self.attributes.text(kind) {
                write!(f, " {word} {name}")?;
            }
        }
        let table = self.attributes.number(FRA_TABLE).unwrap_or_else(|| self.table.into());
        if table != 0 {
            write!(f, " lookup {table}")?;
        }
        Ok(())
    }
}
