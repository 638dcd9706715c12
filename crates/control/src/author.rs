//! The author of a change, as shown in the log and in events.

use std::fmt;

use ports::Process;
use tonic::Request;
use tonic::transport::server::UdsConnectInfo;

/// The author of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Author {
    /// The daemon, applying its initial configuration.
    Start,
    /// A signal, such as `SIGHUP`.
    Signal(&'static str),
    /// The database of Open vSwitch.
    Database,
    /// A process on the control socket; `None` when the kernel does not name it.
    Caller(Option<Process>),
}

impl Author {
    /// Returns the process that made a call.
    pub fn of<T>(request: &Request<T>) -> Self {
        let credentials = request.extensions().get::<UdsConnectInfo>().and_then(|info| info.peer_cred);
        Author::Caller(credentials.map(|credentials| {
            // The kernel reports 0 for a process in a PID namespace that is not visible to the daemon.
            let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid != 0);
            Process::new(pid, credentials.uid())
        }))
    }
}

impl fmt::Display for Author {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Author::Start => out.write_str("the daemon"),
            Author::Signal(name) => out.write_str(name),
            Author::Database => out.write_str("the database of Open vSwitch"),
            Author::Caller(Some(process)) => write!(out, "{process}"),
            Author::Caller(None) => out.write_str("an unknown process"),
        }
    }
}
