//! Addresses to listen on: `unix:PATH` and `tcp:ADDRESS:PORT`.
//!
//! Invariant: an address prints as text that parses to the same address.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Bytes of the longest path that a socket can have.
const MAX_PATH: usize = 107;

/// Address to listen on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Listen {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP port of a local address; port 0 lets the kernel choose.
    Tcp(SocketAddr),
}

/// Reasons for refusing an address's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// The text does not start with a known kind.
    #[error("`{0}` starts with no known kind (expected `unix:PATH` or `tcp:ADDRESS:PORT`)")]
    Kind(String),
    /// The path is missing.
    #[error("`{0}` has no path (expected `unix:PATH`)")]
    NoPath(String),
    /// The path does not fit a socket address.
    #[error("path `{0}` is longer than the {MAX_PATH} bytes of a socket's path, or has a zero byte")]
    Path(String),
    /// The rest is not an IP address with a port.
    #[error(
        "`{0}` is not an IP address with a port (expected for example `tcp:127.0.0.1:9559` or `tcp:[::1]:9559`)"
    )]
    Address(String),
}

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Self, ListenError> {
        match text.split_once(':') {
            Some(("unix", "")) => Err(ListenError::NoPath(text.to_owned())),
            Some(("unix", path)) if path.len() > MAX_PATH || path.contains('\0') => {
                Err(ListenError::Path(path.to_owned()))
            }
            Some(("unix", path)) => Ok(Listen::Unix(path.into())),
            Some(("tcp", address)) => {
                address.parse().map(Listen::Tcp).map_err(|_| ListenError::Address(address.to_owned()))
            }
            _ => Err(ListenError::Kind(text.to_owned())),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
            Listen::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_parse_and_print() {
        for text in ["unix:/run/a:b", "unix:relative", "tcp:0.0.0.0:9559", "tcp:[::1]:0"] {
            let listen: Listen = text.parse().unwrap();
            assert_eq!(listen.to_string(), text);
        }
    }

    #[test]
    fn errors_name_the_wrong_part() {
        let long = format!("unix:/{}", "x".repeat(107));
        for (text, error) in [
            ("/run/p4", "`/run/p4` starts with no known kind (expected `unix:PATH` or `tcp:ADDRESS:PORT`)"),
            (
                "ssl:1.2.3.4:5",
                "`ssl:1.2.3.4:5` starts with no known kind (expected `unix:PATH` or `tcp:ADDRESS:PORT`)",
            ),
            ("unix:", "`unix:` has no path (expected `unix:PATH`)"),
            (
                &long,
                &format!(
                    "path `/{}` is longer than the 107 bytes of a socket's path, or has a zero byte",
                    "x".repeat(107)
                ),
            ),
            (
                "tcp:localhost:9559",
                "`localhost:9559` is not an IP address with a port (expected for example `tcp:127.0.0.1:9559` or \
                 `tcp:[::1]:9559`)",
            ),
            (
                "tcp:::1:9559",
                "`::1:9559` is not an IP address with a port (expected for example `tcp:127.0.0.1:9559` or \
                 `tcp:[::1]:9559`)",
            ),
            (
                "tcp:127.0.0.1",
                "`127.0.0.1` is not an IP address with a port (expected for example `tcp:127.0.0.1:9559` or \
                 `tcp:[::1]:9559`)",
            ),
        ] {
            assert_eq!(text.parse::<Listen>().unwrap_err().to_string(), error);
        }
    }
}
