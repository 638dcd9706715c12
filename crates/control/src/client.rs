//! A connection to a running daemon.

use std::path::{Path, PathBuf};

use tonic::transport::{Channel, Endpoint};

use crate::proto::switch_client::SwitchClient;
use crate::socket::{Occupant, occupant};

/// A client for the calls of [`crate::proto`].
pub type Client = SwitchClient<Channel>;

/// Reasons for failing to reach the daemon. Messages state the cause and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No daemon listens on the socket.
    #[error(
        "no daemon is listening on {0}; start one with `mswitch daemon --socket {0}`, or name its socket with --socket"
    )]
    NotRunning(PathBuf),
    /// The user may not access the socket.
    #[error("permission denied for {0}; run as root or as a member of the socket's group")]
    Denied(PathBuf),
    /// Any other failure.
    #[error("cannot connect to {path}: {error}")]
    Other {
        /// The socket.
        path: PathBuf,
        /// The cause.
        error: String,
    },
}

/// Connects to the daemon behind the control socket at `path`.
pub async fn connect(path: &Path) -> Result<Client, ConnectError> {
    let other = |error: String| ConnectError::Other { path: path.into(), error };
    let absolute = std::path::absolute(path).map_err(|error| other(error.to_string()))?;
    let address = format!("unix://{}", absolute.display());
    let endpoint = Endpoint::from_shared(address).map_err(|error| other(error.to_string()))?;
    match endpoint.connect().await {
        // Tables can be large, and the daemon is trusted.
        Ok(channel) => Ok(SwitchClient::new(channel).max_decoding_message_size(usize::MAX)),
        Err(error) => Err(diagnose(path).unwrap_or_else(|| other(error.to_string()))),
    }
}

/// Derives the cause from the socket's path, in more detail than a transport error.
fn diagnose(path: &Path) -> Option<ConnectError> {
    match occupant(path) {
        Ok(Occupant::Process(_)) => None,
        Ok(Occupant::None | Occupant::Stale) => Some(ConnectError::NotRunning(path.into())),
        Ok(Occupant::OtherFile) => {
            Some(ConnectError::Other { path: path.into(), error: "it is not a socket".into() })
        }
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Some(ConnectError::Denied(path.into()))
        }
        Err(error) => Some(ConnectError::Other { path: path.into(), error: error.to_string() }),
    }
}
