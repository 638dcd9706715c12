//! Port types: what plugs into the fabric.
//!
//! A port type is one folder here and one line in [`Spec`] and [`open`]. It opens something that clients
//! reach (a socket, a network interface), and whenever a client is there attaches its queues to its port of the
//! switch; when the client goes, is thrown out, or the port is closed, it detaches them. Fabric and
//! logic know nothing of port types.

mod access;
pub mod bounded;
pub mod faults;
mod first_touch;
mod guard;
mod log_limit;
pub mod memif;
#[cfg(feature = "fuzzing")]
pub mod offload_header;
#[cfg(not(feature = "fuzzing"))]
mod offload_header;
mod pace;
pub mod patch;
pub mod pcap;
mod process;
mod size;
pub mod tap;
pub mod vhost_user;
mod watch;

use std::sync::{Arc, Mutex, PoisonError};

pub use access::Access;
pub use process::{Process, program};
pub use size::Size;

use fabric::Switch;
use fabric::switch::PortRef;

/// What all ports share.
#[derive(Clone)]
pub struct Environment {
    /// Where ports attach.
    pub switch: Arc<Switch>,
    /// Runs the control side of ports (sockets, handshakes), never packets.
    pub runtime: tokio::runtime::Handle,
    /// Listening memif sockets, which several ports may share.
    pub sockets: memif::Sockets,
    /// Patch ports, which find each other here.
    pub patches: patch::Patches,
    /// Rung when a client has cost its port a fault.
    pub alarm: faults::Alarm,
}

impl Environment {
    /// The environment of the first port, with a runtime for the control side of all.
    pub fn new(switch: Arc<Switch>, runtime: tokio::runtime::Handle) -> Self {
        let (sockets, patches, alarm) = Default::default();
        Self { switch, runtime, sockets, patches, alarm }
    }
}

/// What to open: a port type and its own options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spec {
    /// Shared-memory packet interface.
    Memif(memif::Options),
    /// The host's stack, through a TAP interface.
    Tap(tap::Options),
    /// Capture files, replayed and recorded.
    Pcap(pcap::Options),
    /// A virtual machine's network device, or DPDK's virtio-user.
    VhostUser(vhost_user::Options),
    /// Another port of the switch.
    Patch(patch::Options),
}

impl Spec {
    /// Names of all port types, as users write them.
    pub const TYPES: &'static [&'static str] = &["memif", "tap", "pcap", "vhost-user", "patch"];

    /// The port type's name.
    pub fn type_name(&self) -> &'static str {
        match self {
            Spec::Memif(_) => "memif",
            Spec::Tap(_) => "tap",
            Spec::Pcap(_) => "pcap",
            Spec::VhostUser(_) => "vhost-user",
            Spec::Patch(_) => "patch",
        }
    }

    /// The schema of a port type's options, for documentation; `None` if there is no such type.
    pub fn schema(type_name: &str) -> Option<schemars::Schema> {
        match type_name {
            "memif" => Some(schemars::schema_for!(memif::Options)),
            "tap" => Some(schemars::schema_for!(tap::Options)),
            "pcap" => Some(schemars::schema_for!(pcap::Options)),
            "vhost-user" => Some(schemars::schema_for!(vhost_user::Options)),
            "patch" => Some(schemars::schema_for!(patch::Options)),
            _ => None,
        }
    }

    /// The MTU that the client's end is given, for types that give it one: bytes without link header.
    pub fn mtu(&self) -> Option<u32> {
        match self {
            Spec::Memif(_) | Spec::Pcap(_) | Spec::VhostUser(_) | Spec::Patch(_) => None,
            Spec::Tap(options) => Some(options.mtu),
        }
    }

    /// Gives the client's end an MTU, 0 for the type's default; nothing for types that give it none.
    pub fn set_mtu(&mut self, mtu: u32) {
        match self {
            Spec::Memif(_) | Spec::Pcap(_) | Spec::VhostUser(_) | Spec::Patch(_) => {}
            Spec::Tap(options) => options.mtu = if mtu == 0 { tap::Options::default().mtu } else { mtu },
        }
    }
}

/// Opens a port and serves it until it is closed. Blocks for as long as the system takes to make a socket or
/// an interface; must not be called from an async task directly.
pub fn open(spec: &Spec, at: PortRef, env: &Environment) -> Result<Box<dyn Port>, OpenError> {
    match spec {
        Spec::Memif(options) => memif::open(options, at, env),
        Spec::Tap(options) => tap::open(options, at, env),
        Spec::Pcap(options) => pcap::open(options, at, env),
        Spec::VhostUser(options) => vhost_user::open(options, at, env),
        Spec::Patch(options) => patch::open(options, at, env),
    }
}

/// Why a port could not be opened: a sentence that names the thing and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OpenError(pub String);

/// An open port.
pub trait Port: Send + Sync {
    /// How it is.
    fn status(&self) -> Status;

    /// Makes the open port what `spec` says while its client stays. False, with nothing changed, when only closing
    /// and opening it anew can do that. Blocks as [`open`] does.
    fn reconfigure(&self, _spec: &Spec) -> Result<bool, OpenError> {
        Ok(false)
    }

    /// The port is about to be set administratively down, or has been set up. Blocks until what the port had given to
    /// workers is delivered.
    fn set_admin(&self, _up: bool) {}

    /// The record of what its clients did wrong; `None` for types without clients of their own.
    fn faults(&self) -> Option<&faults::Faults> {
        None
    }

    /// Begins what [`close`](Port::close) does, and returns at once: several ports are closed in the time of one.
    fn begin_close(&self) {}

    /// Why only opening the port anew can bring it back: what it made was taken away. `None` while it is whole.
    fn lost(&self) -> Option<String> {
        None
    }

    /// Detaches the client and removes what `open` made: sockets, interfaces. Blocks until no worker uses them, but not much
    /// longer than a second: what a client or the system holds up longer ends by itself. Must not be called from an async
    /// task. A second call does nothing.
    fn close(&self);
}

/// How a port is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// Whether traffic can pass.
    pub link: Link,
    /// Facts of the port type, for people: peer name, ring sizes, interface name.
    pub details: Vec<(String, String)>,
}

/// Whether traffic can pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// A client is attached.
    Up,
    /// None is, and why: it was never there, it left, or it was thrown out.
    Down(String),
}

impl Default for Link {
    fn default() -> Self {
        Link::Down("no client has connected yet".into())
    }
}

/// A status that a port's tasks write and its [`Port::status`] reads.
#[derive(Debug, Clone, Default)]
pub struct StatusCell(Arc<Mutex<Status>>);

impl StatusCell {
    /// The status now.
    pub fn get(&self) -> Status {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the status.
    pub fn set(&self, status: Status) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}
