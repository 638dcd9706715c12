//! Port types: the kinds of endpoints that attach to the fabric.
//!
//! A port type is one folder here and one line in [`Spec`] and [`open`]. It opens an endpoint for clients (a socket, a
//! network interface) and attaches a client's queues to its port of the switch as long as the client is there; when the
//! client leaves, is disconnected, or the port is closed, it detaches them. Fabric and logic know nothing of port
//! types.

mod access;
pub mod bounded;
pub mod dummy;
pub mod faults;
mod first_touch;
mod guard;
mod host_ports;
mod interface_name;
mod log_limit;
pub mod memif;
mod name_watch;
pub mod netdev;
mod netlink;
mod netns;
mod numa;
#[cfg(feature = "fuzzing")]
pub mod offload_header;
#[cfg(not(feature = "fuzzing"))]
mod offload_header;
mod offload_names;
mod pace;
pub mod patch;
mod payload;
pub mod pcap;
mod process;
mod size;
pub mod tap;
pub mod vhost_user;
mod watch;

use std::sync::{Arc, Mutex, PoisonError};

pub use access::Access;
pub use host_ports::HostPorts;
pub use interface_name::is_interface_name;
pub use process::{Process, program};
pub use size::Size;

use fabric::Switch;
use fabric::switch::PortRef;

/// Environment that all ports share.
#[derive(Clone)]
pub struct Environment {
    /// Switch that ports attach to.
    pub switch: Arc<Switch>,
    /// Runs the control side of ports (sockets, handshakes), never packets.
    pub runtime: tokio::runtime::Handle,
    /// Listening memif sockets, which several ports may share.
    pub sockets: memif::Sockets,
    /// Network namespaces in which ports use interfaces.
    pub namespaces: netdev::Namespaces,
    /// Patch ports, which find each other here.
    pub patches: patch::Patches,
    /// Dummy ports, which commands find here.
    pub dummies: dummy::Dummies,
    /// Ports that can take over the host's addresses from netdev ports, which find them here.
    pub hosts: HostPorts,
    /// Interfaces whose packets XDP programs get first.
    pub interfaces: XdpInterfaces,
    /// Rung when a port records a fault of a client.
    pub alarm: faults::Alarm,
}

/// Interfaces of netdev ports with AF_XDP sockets.
pub type XdpInterfaces = xsk::Interfaces<fabric::switch::PortRef>;

impl Environment {
    /// Makes an environment without ports, with a runtime for their control side.
    pub fn new(switch: Arc<Switch>, runtime: tokio::runtime::Handle) -> Self {
        let (sockets, namespaces, patches, dummies, hosts, interfaces, alarm) = Default::default();
        Self { switch, runtime, sockets, namespaces, patches, dummies, hosts, interfaces, alarm }
    }
}

/// Specification of a port: its type and the type's options.
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
    /// An existing interface of the host.
    Netdev(netdev::Options),
    /// An endpoint within the process, for tests.
    Dummy(dummy::Options),
}

impl Spec {
    /// Returns the open files that the port needs, with one client and one pair of queues. A generous estimate.
    pub fn files(&self) -> u64 {
        match self {
            // Listening socket (two for vhost-user), connection, two regions and two eventfds (memif) or four
            // eventfds (vhost-user), with a reserve for a client that reconnects.
            Spec::Memif(_) | Spec::VhostUser(_) => 8,
            // Sockets or queues, maps and programs of BPF, netlink.
            Spec::Netdev(_) | Spec::Tap(_) => 6,
            Spec::Pcap(_) => 2,
            // Two capture files, eventfd, a stream.
            Spec::Dummy(_) => 4,
            Spec::Patch(_) => 0,
        }
    }

    /// Names of all port types that operators may use, as they write them.
    pub const TYPES: &'static [&'static str] = &["memif", "tap", "netdev", "pcap", "vhost-user", "patch"];

    /// Returns the port type's name.
    pub fn type_name(&self) -> &'static str {
        match self {
            Spec::Memif(_) => "memif",
            Spec::Tap(_) => "tap",
            Spec::Pcap(_) => "pcap",
            Spec::VhostUser(_) => "vhost-user",
            Spec::Patch(_) => "patch",
            Spec::Netdev(_) => "netdev",
            Spec::Dummy(_) => "dummy",
        }
    }

    /// Returns the schema of a port type's options, for documentation; `None` if the type is unknown.
    pub fn schema(type_name: &str) -> Option<schemars::Schema> {
        match type_name {
            "memif" => Some(schemars::schema_for!(memif::Options)),
            "tap" => Some(schemars::schema_for!(tap::Options)),
            "pcap" => Some(schemars::schema_for!(pcap::Options)),
            "vhost-user" => Some(schemars::schema_for!(vhost_user::Options)),
            "patch" => Some(schemars::schema_for!(patch::Options)),
            "netdev" => Some(schemars::schema_for!(netdev::Options)),
            _ => None,
        }
    }

    /// Returns the MTU that the options give the client's end: bytes without link header. `None` if they give none.
    pub fn mtu(&self) -> Option<u32> {
        match self {
            Spec::Tap(options) => options.mtu,
            _ => None,
        }
    }

    /// Sets the MTU of the client's end, 0 for the type's default; ignored for types that give it none.
    pub fn set_mtu(&mut self, mtu: u32) {
        if let Spec::Tap(options) = self {
            options.mtu = (mtu != 0).then_some(mtu);
        }
    }
}

/// Opens a port and serves it until it is closed. Blocks while the system makes a socket or an interface; must not be
/// called from an async task directly.
pub fn open(spec: &Spec, at: PortRef, env: &Environment) -> Result<Box<dyn Port>, OpenError> {
    match spec {
        Spec::Memif(options) => memif::open(options, at, env),
        Spec::Tap(options) => tap::open(options, at, env),
        Spec::Pcap(options) => pcap::open(options, at, env),
        Spec::VhostUser(options) => vhost_user::open(options, at, env),
        Spec::Patch(options) => patch::open(options, at, env),
        Spec::Netdev(options) => netdev::open(options, at, env),
        Spec::Dummy(options) => dummy::open(options, at, env),
    }
}

/// Removes what a port called `name` has kept for its next start, unless `successor`, the port's next specification, goes
/// on with it. For a port that could not be opened; an open one has [`Port::remove`]. Blocks as [`open`] does.
pub fn discard(spec: &Spec, name: &str, successor: Option<&Spec>) -> Result<(), OpenError> {
    match (spec, successor) {
        (Spec::Tap(options), Some(Spec::Tap(next))) => tap::discard(options, name, Some(next)),
        (Spec::Tap(options), _) => tap::discard(options, name, None),
        _ => Ok(()),
    }
}

/// Reason for not opening a port: a sentence that names the problem and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OpenError(pub String);

/// An open port.
pub trait Port: Send + Sync {
    /// Returns the port's status.
    fn status(&self) -> Status;

    /// Changes the open port to match `spec` while its client stays. Returns false, with nothing changed, if that
    /// requires reopening the port. Blocks as [`open`] does.
    fn reconfigure(&self, _spec: &Spec) -> Result<bool, OpenError> {
        Ok(false)
    }

    /// Announces that the port is about to be set administratively down, or has been set up. Blocks until all frames
    /// that the port gave to workers are delivered.
    fn set_admin(&self, _up: bool) {}

    /// Returns what the operator who adds the port may not expect: it uses an existing interface, which may be another
    /// one than meant.
    fn notice(&self) -> Option<String> {
        None
    }

    /// Returns the speed of its link in Mbit/s: that of a network card, or [`VIRTUAL_SPEED`]. `None` if it is unknown, or
    /// if the port has no link.
    fn speed(&self) -> Option<u32> {
        None
    }

    /// Returns the Ethernet address of a port that has one without a network device.
    fn address(&self) -> Option<packet::MacAddr> {
        None
    }

    /// Returns the record of its clients' faults; `None` for types without clients of their own.
    fn faults(&self) -> Option<&faults::Faults> {
        None
    }

    /// Begins [`close`](Port::close) and returns at once, so that several ports close in the time of one.
    fn begin_close(&self) {}

    /// Returns the reason why only reopening the port can restore it: its endpoint was taken away. `None` while it is
    /// intact.
    fn lost(&self) -> Option<String> {
        None
    }

    /// Closes the port and removes what [`close`](Port::close) keeps for the next start, unless `successor`, the port's
    /// next specification, goes on with it. Blocks as `close` does.
    fn remove(&self, _successor: Option<&Spec>) {
        self.close();
    }

    /// Detaches the client and removes the endpoint that `open` made: sockets, interfaces. Blocks until no worker uses
    /// them, but not much longer than a second: work that a client or the system blocks for longer ends by itself. Must
    /// not be called from an async task. A second call does nothing.
    fn close(&self);
}

/// Speed of virtual links in Mbit/s, for those that ask: the kernel says the same of TAP and veth interfaces.
pub const VIRTUAL_SPEED: u32 = 10_000;

/// Status of a port.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// Whether traffic can pass.
    pub link: Link,
    /// Details of the port type, for users: peer name, ring sizes, interface name.
    pub details: Vec<(String, String)>,
}

/// Whether traffic can pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// A client is attached.
    Up,
    /// No client is attached, for this reason: none ever connected, it left, or it was disconnected.
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
    /// Returns the current status.
    pub fn get(&self) -> Status {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the status.
    pub fn set(&self, status: Status) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}
