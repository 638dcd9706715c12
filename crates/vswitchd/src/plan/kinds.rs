//! From an interface's type and options to the port's specification.
//!
//! Options that Open vSwitch does not know are those of mswitch's port types, by the names in the configuration file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use control::options;
use ovsdb::vswitch::Interface;
use packet::ether::MacAddr;
use ports::netdev::Driver;
use ports::{Spec, netdev, patch, tap};

use crate::dummy::{self, Types};

/// Types of interfaces, as `Open_vSwitch.iface_types` lists them.
pub(crate) const INTERFACE_TYPES: [&str; 8] =
    ["afxdp", "dpdkvhostuser", "dpdkvhostuserclient", "internal", "memif", "patch", "system", "tap"];

/// What a port's specification depends on besides the row of its interface.
pub(super) struct Surroundings<'a> {
    pub(super) bridge: &'a str,
    /// The address of the bridge's own interface.
    pub(super) mac: MacAddr,
    /// Interfaces by name, with their bridges.
    pub(super) places: &'a BTreeMap<&'a str, &'a str>,
    /// The folder of the sockets of `dpdkvhostuser` interfaces, or why there is none.
    pub(super) sockets: &'a Result<PathBuf, String>,
    /// The type of the bridge's datapath.
    pub(super) datapath: &'a str,
    /// Types that this process has.
    pub(super) types: Types,
}

/// Returns an interface's type; that of the one with the bridge's name is always `internal`.
pub(super) fn kind_of<'a>(bridge: &str, interface: &'a Interface) -> &'a str {
    match interface.type_.as_str() {
        _ if interface.name == bridge => "internal",
        "" => "system",
        other => other,
    }
}

/// Returns the folder of the sockets of `dpdkvhostuser` interfaces: the run directory, or the folder in it that
/// `other_config:vhost-sock-dir` names.
pub(super) fn socket_folder(
    rundir: &Path,
    other_config: &BTreeMap<String, String>,
) -> Result<PathBuf, String> {
    match other_config.get("vhost-sock-dir") {
        None => Ok(rundir.to_owned()),
        Some(folder) if folder.contains("..") => Err(format!(
            "other_config:vhost-sock-dir is `{folder}`; expected a folder inside {}",
            rundir.display()
        )),
        // A leading slash does not lead out of the run directory.
        Some(folder) => Ok(rundir.join(folder.trim_start_matches('/'))),
    }
}

/// Returns the specification of an interface's port, or why it has none.
pub(super) fn spec(interface: &Interface, around: &Surroundings<'_>) -> Result<Spec, String> {
    let address = interface.mac.as_deref().and_then(|text| text.parse().ok());
    let option = |name: &str| {
        let missing = || format!("a {} interface needs options:{name}", interface.type_);
        interface.options.get(name).ok_or_else(missing)
    };
    let own = (interface.name == around.bridge).then_some(around.mac);
    match kind_of(around.bridge, interface) {
        kind if around.types.is_dummy(around.datapath, kind) => {
            Ok(Spec::Dummy(dummy::options(interface, kind, address.or(own))))
        }
        "afxdp" => Ok(Spec::Netdev(netdev::Options { driver: Driver::AfXdp, ..netdev::Options::default() })),
        "system" => Ok(Spec::Netdev(netdev::Options::default())),
        "internal" => Ok(Spec::Tap(tap::Options { mac: address.or(own), ..tap::Options::default() })),
        "tap" => Ok(Spec::Tap(tap::Options { mac: address, ..tap::Options::default() })),
        "patch" => {
            let peer = option("peer")?;
            // A peer that does not exist yet is in no bridge; the port waits for it.
            let bridge = around.places.get(peer.as_str()).copied().unwrap_or(around.bridge);
            let peer = patch::Peer { bridge: bridge.into(), port: peer.clone() };
            Ok(Spec::Patch(patch::Options { peer }))
        }
        "dpdkvhostuser" => vhost_user(interface, "server", around.sockets.clone()?.join(&interface.name)),
        "dpdkvhostuserclient" => vhost_user(interface, "client", option("vhost-server-path")?.into()),
        "memif" => {
            options::from_text("memif", &interface.options).map_err(|error| format!("options: {error}"))
        }
        other => Err(format!("interface type `{other}` is not supported")),
    }
}

/// Returns a vhost-user port with the options of that type that the row has; others are ignored, as in Open vSwitch.
fn vhost_user(interface: &Interface, role: &str, socket: PathBuf) -> Result<Spec, String> {
    let socket = socket.to_str().ok_or("the path of the socket is not text")?;
    let known = options::known("vhost-user").unwrap_or_default();
    let given = interface.options.iter().filter(|(name, _)| known.contains(&name.as_str()));
    let mut all: BTreeMap<String, String> = given.map(|(name, text)| (name.clone(), text.clone())).collect();
    all.insert("role".into(), role.into());
    all.insert("path".into(), socket.into());
    options::from_text("vhost-user", &all).map_err(|error| format!("options: {error}"))
}
