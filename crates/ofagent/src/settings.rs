//! What an agent is told when it starts.

use std::path::PathBuf;
use std::time::Duration;

use socket_file::SocketAccess;

use crate::target::Target;
use crate::tls::TlsFiles;

/// What a bridge does while no controller is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailMode {
    /// It keeps to its flows.
    #[default]
    Secure,
    /// It forwards like a learning switch once no controller has been connected for three probe intervals, and as long
    /// as it has no controller to connect to.
    Standalone,
}

/// Bounds of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Controllers' targets.
    pub controllers: usize,
    /// Connections accepted on all passive targets together.
    pub passive: usize,
    /// Connections to the management socket.
    pub management: usize,
    /// Connections to the snoop socket.
    pub snoop: usize,
    /// Time for a peer's hello.
    pub handshake: Duration,
    /// Time for a connection to a controller to be made.
    pub connect: Duration,
    /// Time after which a controller is disconnected that takes none of the bytes waiting for it.
    pub controller_stall: Duration,
    /// The same for tools: `ovs-ofctl dump-flows | less` reads when its user does.
    pub management_stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            controllers: 16,
            passive: 32,
            management: 64,
            snoop: 8,
            handshake: Duration::from_secs(10),
            connect: Duration::from_secs(10),
            controller_stall: Duration::from_secs(15),
            management_stall: Duration::from_secs(600),
        }
    }
}

/// Settings of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Controllers; a target named twice counts once.
    pub controllers: Vec<Target>,
    /// Path of the management socket.
    pub management: Option<PathBuf>,
    /// Path of the snoop socket.
    pub snoop: Option<PathBuf>,
    /// Access to the files of these sockets, and of `punix:` targets.
    pub access: SocketAccess,
    /// Keys and certificates of targets with TLS.
    pub tls: Option<TlsFiles>,
    /// What a lack of controllers means.
    pub fail_mode: FailMode,
    /// Silence after which a controller is asked for an echo, and is disconnected after as much silence again; `None`
    /// means never.
    pub probe: Option<Duration>,
    /// Shortest delay before connecting again.
    pub backoff_min: Duration,
    /// Longest delay before connecting again.
    pub backoff_max: Duration,
    /// Bounds.
    pub limits: Limits,
}

/// Probe interval that counts for the fail mode while probes are off.
const DEFAULT_PROBE: Duration = Duration::from_secs(5);

impl Settings {
    /// Time without a controller after which a standalone bridge forwards on its own.
    pub(crate) fn grace(&self) -> Duration {
        self.probe.unwrap_or(DEFAULT_PROBE).saturating_mul(3)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            controllers: vec![],
            management: None,
            snoop: None,
            access: SocketAccess::default(),
            tls: None,
            fail_mode: FailMode::Secure,
            probe: Some(DEFAULT_PROBE),
            backoff_min: Duration::from_secs(1),
            backoff_max: Duration::from_secs(8),
            limits: Limits::default(),
        }
    }
}
