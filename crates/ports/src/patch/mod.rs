//! Patch ports: a cable between two ports of the switch, usually of two bridges.
//!
//! Two patch ports that name each other are connected: packets sent to one arrive at the other, in the same worker and
//! at once ([`fabric::crossing`]). A patch port whose peer does not exist, or names another, is down and reports the
//! reason; it comes up when the peer does.
//!
//! Invariants: both ends are attached or neither is; nothing of an end is left in the switch after [`Port::close`]. The
//! lock over the ends is held while ports are attached and detached, so workers must not take it, and do not.

mod options;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric::rx::MAX_PACKET;
use fabric::switch::{BridgeId, PortRef};
use fabric::{Attachment, Caps, Egress, Switch, SwitchError};

use crate::{Environment, Link, OpenError, Port, Status};
pub use options::{Options, Peer};

/// The longest frame of the fabric, less its Ethernet header.
const MTU: u32 = MAX_PACKET - 14;

/// Leaves all offloads to the final receiver.
const CAPS: Caps = Caps { csum: true, tso4: true, tso6: true, uso: true };

/// All patch ports of a switch.
#[derive(Debug, Clone, Default)]
pub struct Patches(Arc<Mutex<BTreeMap<Peer, End>>>);

/// One end of a cable.
#[derive(Debug)]
struct End {
    at: PortRef,
    peer: Peer,
    admin_up: bool,
    /// Whether it is attached to its peer.
    connected: bool,
    /// Error that kept the switch from connecting it.
    error: Option<SwitchError>,
    /// Identity of the port that made it: a port that is closed late does not remove its successor's end.
    owner: Arc<()>,
}

/// Makes an end, and connects it if its peer exists.
pub fn open(options: &Options, at: PortRef, env: &Environment) -> Result<Box<dyn Port>, OpenError> {
    let failed = |error: SwitchError| OpenError(error.to_string());
    let settings = env.switch.settings(at).map_err(failed)?;
    let name = Peer { bridge: bridge_name(&env.switch, at.bridge)?, port: settings.name };
    if name == options.peer {
        return Err(OpenError(format!(
            "peer: {name} is this port itself; name the patch port at the other end"
        )));
    }
    let port =
        PatchPort { switch: env.switch.clone(), patches: env.patches.clone(), name, owner: Arc::default() };
    let end = End {
        at,
        peer: options.peer.clone(),
        admin_up: settings.admin_up,
        connected: false,
        error: None,
        owner: port.owner.clone(),
    };
    let mut ends = port.patches.ends();
    ends.insert(port.name.clone(), end);
    reconcile(&mut ends, &port.switch, &port.name);
    drop(ends);
    Ok(Box::new(port))
}

fn bridge_name(switch: &Switch, id: BridgeId) -> Result<String, OpenError> {
    switch.bridge_name(id).map_err(|error| OpenError(error.to_string()))
}

impl Patches {
    fn ends(&self) -> MutexGuard<'_, BTreeMap<Peer, End>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the obstacle to connecting an end, worded for its status.
fn obstacle(ends: &BTreeMap<Peer, End>, name: &Peer) -> Option<String> {
    let end = ends.get(name)?;
    let peer = &end.peer;
    match ends.get(peer) {
        _ if !end.admin_up => Some("administratively down".into()),
        None => Some(format!("there is no patch port {peer}; add it with peer = \"{name}\"")),
        Some(other) if other.peer != *name => {
            Some(format!("{peer} names {} as its peer; give it peer = \"{name}\"", other.peer))
        }
        Some(other) if !other.admin_up => Some(format!("its peer {peer} is administratively down")),
        Some(_) => None,
    }
}

/// Connects an end to its peer, or disconnects them, to match the present state.
fn reconcile(ends: &mut BTreeMap<Peer, End>, switch: &Switch, name: &Peer) {
    let Some(end) = ends.get(name) else { return };
    let pair = [name.clone(), end.peer.clone()];
    let wanted = obstacle(ends, name).is_none();
    if wanted == end.connected {
        return;
    }
    match wanted {
        true => {
            let error = connect(ends, switch, &pair).err();
            for name in &pair {
                if let Some(end) = ends.get_mut(name) {
                    end.error = error.clone();
                }
            }
        }
        false => disconnect(ends, switch, &pair),
    }
}

fn connect(ends: &mut BTreeMap<Peer, End>, switch: &Switch, pair: &[Peer; 2]) -> Result<(), SwitchError> {
    let at = pair.each_ref().map(|name| ends.get(name).map(|end| end.at));
    let [Some(a), Some(b)] = at else { return Ok(()) };
    let (to_a, to_b) = (switch.inlet(a)?, switch.inlet(b)?);
    switch.attach(a, attachment(Arc::new(to_b)))?;
    if let Err(error) = switch.attach(b, attachment(Arc::new(to_a))) {
        switch.detach(a)?;
        return Err(error);
    }
    pair.iter().for_each(|name| set_connected(ends, name, true));
    Ok(())
}

fn attachment(to: Arc<dyn Egress>) -> Attachment {
    // No client takes part, so no client can break a rule.
    Attachment { rx: Vec::new(), tx: vec![to], caps: CAPS, mtu: MTU, on_fault: Arc::new(|_| {}) }
}

/// Detaches both ends, of which one may be gone from the switch.
fn disconnect(ends: &mut BTreeMap<Peer, End>, switch: &Switch, pair: &[Peer; 2]) {
    for name in pair {
        if let Some(end) = ends.get(name).filter(|end| end.connected)
            && let Err(error) = switch.detach(end.at)
        {
            // The port was removed from the switch, and thus detached.
            tracing::debug!(port = %name, %error, "patch port was detached already");
        }
        set_connected(ends, name, false);
    }
}

fn set_connected(ends: &mut BTreeMap<Peer, End>, name: &Peer, connected: bool) {
    if let Some(end) = ends.get_mut(name) {
        end.connected = connected;
    }
}

struct PatchPort {
    switch: Arc<Switch>,
    patches: Patches,
    name: Peer,
    owner: Arc<()>,
}

impl PatchPort {
    /// Returns whether the end of this name is still the one that this port made.
    fn owns_end(&self, ends: &BTreeMap<Peer, End>) -> bool {
        ends.get(&self.name).is_some_and(|end| Arc::ptr_eq(&end.owner, &self.owner))
    }
}

impl Port for PatchPort {
    fn status(&self) -> Status {
        let ends = self.patches.ends();
        let Some(end) = ends.get(&self.name).filter(|_| self.owns_end(&ends)) else {
            return Status { link: Link::Down("the port is closed".into()), details: Vec::new() };
        };
        let why = || {
            let error = end.error.as_ref().map(ToString::to_string);
            obstacle(&ends, &self.name).or(error).unwrap_or_default()
        };
        let link = if end.connected { Link::Up } else { Link::Down(why()) };
        Status { link, details: vec![("peer".into(), end.peer.to_string())] }
    }

    fn set_admin(&self, up: bool) {
        let mut ends = self.patches.ends();
        if !self.owns_end(&ends) {
            return;
        }
        if let Some(end) = ends.get_mut(&self.name) {
            end.admin_up = up;
        }
        reconcile(&mut ends, &self.switch, &self.name);
    }

    fn close(&self) {
        let mut ends = self.patches.ends();
        if !self.owns_end(&ends) {
            return;
        }
        let Some(peer) = ends.get(&self.name).map(|end| end.peer.clone()) else { return };
        if ends.get(&self.name).is_some_and(|end| end.connected) {
            disconnect(&mut ends, &self.switch, &[self.name.clone(), peer.clone()]);
        }
        ends.remove(&self.name);
    }
}

impl Drop for PatchPort {
    fn drop(&mut self) {
        self.close();
    }
}
