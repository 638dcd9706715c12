//! Patch ports whose peer is not in the file. They cause notes, not mistakes: a peer can be added to the running
//! switch, and the saved configuration of a switch without the peer must be valid.

use std::ops::Range;

use ports::Spec;
use ports::patch::Peer;

use super::report::{Context, Report};
use crate::model::Config;
use crate::suggest;

/// A patch port of the file.
pub(super) struct Patch {
    /// The place of its peer's name.
    pub(super) span: Range<usize>,
    pub(super) context: Context,
    pub(super) peer: Peer,
}

/// Checks the peers of all patch ports.
pub(super) fn check(config: &Config, patches: &[Patch], report: &mut Report<'_>) {
    for Patch { span, context, peer } in patches {
        let (Some(bridge), Some(port)) = (&context.bridge, &context.port) else { continue };
        let name = Peer { bridge: bridge.clone(), port: port.clone() };
        if *peer == name {
            let message = format!("`peer`: {name} is this port itself; specify the port at the other end");
            report.add(span, context, message);
        } else if let Some(obstacle) = obstacle(config, &name, peer) {
            report.note(span, context, format!("`peer`: {obstacle}"));
        }
    }
}

/// Returns the reason why the patch port `name` cannot connect to `peer`.
fn obstacle(config: &Config, name: &Peer, peer: &Peer) -> Option<String> {
    let Some(bridge) = config.bridge(&peer.bridge) else {
        let bridges: Vec<&str> = config.bridges.iter().map(|bridge| bridge.name.as_str()).collect();
        let others = suggest::instead(&peer.bridge, &bridges);
        return Some(format!(
            "this file has no bridge `{}`; {others}. The port stays down until {peer} is added",
            peer.bridge
        ));
    };
    let Some(port) = bridge.port(&peer.port) else {
        return Some(format!(
            "bridge `{}` has no port `{}`; the port stays down until there is one with `type = \"patch\"` and \
             `peer = \"{name}\"`",
            peer.bridge, peer.port
        ));
    };
    match &port.spec {
        Spec::Patch(options) if options.peer == *name => None,
        Spec::Patch(options) => Some(format!(
            "the peer of {peer} is {}; give {peer} `peer = \"{name}\"`, or the port stays down",
            options.peer
        )),
        other => Some(format!(
            "{peer} is a {} port; expected a patch port with `peer = \"{name}\"`",
            other.type_name()
        )),
    }
}
