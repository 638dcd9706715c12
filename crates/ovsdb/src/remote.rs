//! Addresses of database servers, in the syntax of Open vSwitch's tools.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// The port of OVSDB unless another is named (RFC 7047 §6).
pub const DEFAULT_PORT: u16 = 6640;

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remote {
    /// `unix:PATH`
    Unix(PathBuf),
    /// `tcp:HOST[:PORT]`
    Tcp {
        /// An address or a name.
        host: String,
        /// The port.
        port: u16,
    },
}

/// Text that is not the address of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the address of a database server; expected unix:PATH or tcp:HOST[:PORT]")]
pub struct RemoteError(String);

impl FromStr for Remote {
    type Err = RemoteError;

    fn from_str(text: &str) -> Result<Self, RemoteError> {
        let parse = || match text.split_once(':')? {
            ("unix", path) if !path.is_empty() => Some(Remote::Unix(path.into())),
            ("tcp", rest) => {
                let (host, port) = host_and_port(rest)?;
                Some(Remote::Tcp { host: host.into(), port })
            }
            _ => None,
        };
        parse().ok_or_else(|| RemoteError(text.into()))
    }
}

fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = port.map_or(Ok(DEFAULT_PORT), str::parse).ok()?;
    (!host.is_empty() && port != 0).then_some((host, port))
}

impl fmt::Display for Remote {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remote::Unix(path) => write!(out, "unix:{}", path.display()),
            Remote::Tcp { host, port } if host.contains(':') => write!(out, "tcp:[{host}]:{port}"),
            Remote::Tcp { host, port } => write!(out, "tcp:{host}:{port}"),
        }
    }
}

/// A connection's bytes.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Remote {
    pub(crate) async fn connect(self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Remote::Unix(path) => Box::new(UnixStream::connect(path).await?),
            Remote::Tcp { host, port } => {
                let stream = TcpStream::connect((host, port)).await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        for (text, shown) in [
            ("unix:/run/db.sock", "unix:/run/db.sock"),
            ("tcp:127.0.0.1:1234", "tcp:127.0.0.1:1234"),
            ("tcp:db.example", "tcp:db.example:6640"),
            ("tcp:[::1]:1234", "tcp:[::1]:1234"),
            ("tcp:[::1]", "tcp:[::1]:6640"),
        ] {
            assert_eq!(text.parse::<Remote>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn other_text_is_refused() {
        for bad in
            ["", "unix:", "tcp:", "tcp:h:", "tcp:h:0", "tcp:h:70000", "tcp:[::1", "ptcp:1", "/run/db.sock"]
        {
            let message = format!(
                "`{bad}` is not the address of a database server; expected unix:PATH or tcp:HOST[:PORT]"
            );
            assert_eq!(bad.parse::<Remote>().unwrap_err().to_string(), message);
        }
    }
}
