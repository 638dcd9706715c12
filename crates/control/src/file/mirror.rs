//! `[[bridge.mirror]]`: a bridge's mirrors.

use fabric::Mirror;

use super::report::Report;
use super::section::Section;
use crate::mirror::{self, MirrorError};
use crate::model::BridgeConfig;
use crate::{direction, keys};

/// Reads one mirror of a bridge whose ports were already read.
pub(super) fn read(section: &Section<'_>, bridge: &BridgeConfig, report: &mut Report<'_>) -> Option<Mirror> {
    section.only(&keys::names(keys::MIRROR), report);
    let name = section.required("name", "the mirror's name", report);
    let to = section.required("to", "the port that receives the copies", report);
    let from = section.texts("from", "a list of ports", report);
    let direction = section.text("direction", "`in`, `out` or `both`", report);
    let vlan = section.integer("vlan", report);
    let what = direction::parse(direction.map_or("", |(text, _)| text)).map_err(MirrorError::from);
    let vlan = vlan.map_or(Ok(None), |(vlan, _)| mirror::parse_vlan(vlan));
    let ((name, _), (to, _)) = (name?, to?);
    let mut refused = |error: &MirrorError| {
        let key = match error {
            MirrorError::Name(_) | MirrorError::Exists(_) | MirrorError::NoMirror(..) => "name",
            MirrorError::Direction(_) => "direction",
            MirrorError::Vlan(_) => "vlan",
            MirrorError::Own(_) => "from",
            MirrorError::NoPort(port, _) if port == to => "to",
            MirrorError::NoPort(..) => "from",
        };
        report.add(&section.span_of(key), &section.context, error);
    };
    let (what, vlan) = match (what, vlan) {
        (Ok(what), Ok(vlan)) => (what, vlan),
        (what, vlan) => {
            let errors = [what.err(), vlan.err()];
            errors.iter().flatten().for_each(refused);
            return None;
        }
    };
    let mirror = Mirror { name: name.into(), from: from?, what, to: to.into(), vlan };
    match mirror::check(bridge, &mirror) {
        Ok(()) => Some(mirror),
        Err(error) => {
            refused(&error);
            None
        }
    }
}
