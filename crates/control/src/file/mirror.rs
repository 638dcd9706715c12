//! `[[bridge.mirror]]`: a bridge's mirrors.

use fabric::Mirror;

use super::report::Report;
use super::section::Section;
use crate::mirror::{self, MirrorError};
use crate::model::BridgeConfig;
use crate::{direction, keys};

/// Reads one mirror of a bridge whose ports were already read. `ports` are the names of all ports, also of those with
/// mistakes, which `bridge` lacks.
pub(super) fn read(
    section: &Section<'_>,
    bridge: &BridgeConfig,
    ports: &[&str],
    report: &mut Report<'_>,
) -> Option<Mirror> {
    section.only(&keys::names(keys::MIRROR), report);
    let name = section.required("name", "the mirror's name", report);
    let to = section.required("to", "the port that receives the copies", report);
    let from = section.texts("from", "a list of ports", report);
    let direction = section.text("direction", "`in`, `out` or `both`", report);
    let vlan = section.integer("vlan", report);
    let what = direction::parse(direction.map_or("", |(text, _)| text)).map_err(MirrorError::from);
    let vlan = vlan.map_or(Ok(None), |(vlan, _)| mirror::parse_vlan(vlan));
    let mut good = what.is_ok() && vlan.is_ok() && name.is_some() && to.is_some() && from.is_some();
    let values = Mirror {
        name: name.as_ref().map_or("", |(name, _)| name).into(),
        from: from.clone().unwrap_or_default(),
        what: *what.as_ref().unwrap_or(&direction::DIRECTIONS[0].1),
        to: to.as_ref().map_or("", |(to, _)| to).into(),
        vlan: *vlan.as_ref().unwrap_or(&None),
        ..Mirror::default()
    };
    let errors = what.err().into_iter().chain(vlan.err()).chain(mirror::mistakes(bridge, ports, &values));
    for error in errors {
        // A key that is missing or of the wrong type is reported above.
        let (key, is_read) = match &error {
            MirrorError::Name(_)
            | MirrorError::Exists(_)
            | MirrorError::NoMirrors
            | MirrorError::NoMirror(..) => ("name", name.is_some()),
            MirrorError::Direction(_) => ("direction", true),
            MirrorError::Vlan(_) => ("vlan", true),
            MirrorError::NoPort(port, _) if *port == values.to => ("to", to.is_some()),
            MirrorError::Own(_) | MirrorError::NoPort(..) => ("from", from.is_some()),
        };
        if is_read {
            report.add(&section.span_of(key), &section.context, error);
            good = false;
        }
    }
    good.then_some(values)
}
