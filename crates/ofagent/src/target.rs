//! Controller targets in Open vSwitch's syntax: `tcp:HOST[:PORT]`, `ssl:HOST[:PORT]`, `unix:PATH`, `ptcp:[PORT][:HOST]`,
//! `pssl:[PORT][:HOST]`, `punix:PATH`.
//!
//! Invariant: a target prints as text that parses to the same target.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Port of OpenFlow, assigned by IANA.
pub const DEFAULT_PORT: u16 = 6653;
/// Bytes of the longest path that a socket can have.
const MAX_PATH: usize = 107;

/// Address of a controller, or an address on which controllers are accepted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Connects to a TCP port. The host is an address without brackets, or a name.
    Tcp {
        /// Host.
        host: String,
        /// Port, never 0.
        port: u16,
    },
    /// Connects to a TCP port, with TLS.
    Ssl {
        /// Host.
        host: String,
        /// Port, never 0.
        port: u16,
    },
    /// Connects to a Unix socket.
    Unix(PathBuf),
    /// Listens on a TCP port.
    Ptcp {
        /// Port; 0 lets the kernel choose.
        port: u16,
        /// Local address without brackets, or a name; `None` means all IPv4 addresses.
        host: Option<String>,
    },
    /// Listens on a TCP port, for connections with TLS.
    Pssl {
        /// Port; 0 lets the kernel choose.
        port: u16,
        /// Local address without brackets, or a name; `None` means all IPv4 addresses.
        host: Option<String>,
    },
    /// Listens on a Unix socket.
    Punix(PathBuf),
}

/// Reasons for refusing a target's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The text does not start with a known kind.
    #[error(
        "`{0}` starts with no known kind (expected `tcp:`, `ssl:`, `unix:`, `ptcp:`, `pssl:` or `punix:`)"
    )]
    Kind(String),
    /// The host is missing.
    #[error("`{0}` has no host (expected `tcp:HOST[:PORT]`)")]
    NoHost(String),
    /// The host is neither an address nor a name.
    #[error("host `{0}` is neither an address nor a name (an IPv6 address has brackets)")]
    Host(String),
    /// The port is not a number in range.
    #[error("port `{port}` is not a number from {least} to 65535")]
    Port {
        /// The text in the port's place.
        port: String,
        /// Smallest port accepted.
        least: u16,
    },
    /// The path is missing.
    #[error("`{0}` has no path")]
    NoPath(String),
    /// The path does not fit a socket address.
    #[error("path `{0}` is longer than the {MAX_PATH} bytes of a socket's path, or has a zero byte")]
    Path(String),
}

impl Target {
    /// Whether controllers connect to the switch, rather than the switch to a controller.
    pub fn is_passive(&self) -> bool {
        matches!(self, Target::Ptcp { .. } | Target::Pssl { .. } | Target::Punix(_))
    }

    /// Whether its connections have TLS.
    pub fn is_tls(&self) -> bool {
        matches!(self, Target::Ssl { .. } | Target::Pssl { .. })
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let (kind, rest) = text.split_once(':').ok_or_else(|| TargetError::Kind(text.to_owned()))?;
        match kind {
            "tcp" | "ssl" => {
                let (host, port) = split_host(rest)?;
                if host.is_empty() {
                    return Err(TargetError::NoHost(text.to_owned()));
                }
                let port = port.map_or(Ok(DEFAULT_PORT), |port| parse_port(port, 1))?;
                let host = host.to_owned();
                Ok(if kind == "ssl" { Target::Ssl { host, port } } else { Target::Tcp { host, port } })
            }
            "ptcp" | "pssl" => {
                let (port, host) = rest.split_once(':').map_or((rest, ""), |(port, host)| (port, host));
                let port = if port.is_empty() { DEFAULT_PORT } else { parse_port(port, 0)? };
                let (host, none) = split_host(host)?;
                if let Some(extra) = none {
                    return Err(TargetError::Host(format!("{host}:{extra}")));
                }
                let host = (!host.is_empty()).then(|| host.to_owned());
                Ok(if kind == "pssl" { Target::Pssl { port, host } } else { Target::Ptcp { port, host } })
            }
            "unix" => Ok(Target::Unix(parse_path(text, rest)?)),
            "punix" => Ok(Target::Punix(parse_path(text, rest)?)),
            _ => Err(TargetError::Kind(text.to_owned())),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Tcp { host, port } => write!(f, "tcp:{}:{port}", bracketed(host)),
            Target::Ssl { host, port } => write!(f, "ssl:{}:{port}", bracketed(host)),
            Target::Unix(path) => write!(f, "unix:{}", path.display()),
            Target::Ptcp { port, host: Some(host) } => write!(f, "ptcp:{port}:{}", bracketed(host)),
            Target::Ptcp { port, host: None } => write!(f, "ptcp:{port}"),
            Target::Pssl { port, host: Some(host) } => write!(f, "pssl:{port}:{}", bracketed(host)),
            Target::Pssl { port, host: None } => write!(f, "pssl:{port}"),
            Target::Punix(path) => write!(f, "punix:{}", path.display()),
        }
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// Splits `HOST[:PORT]`. An IPv6 address stands in brackets, which are removed, and may have a zone.
fn split_host(text: &str) -> Result<(&str, Option<&str>), TargetError> {
    let wrong = || TargetError::Host(text.to_owned());
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
        let address = host.split_once('%').map_or(host, |(address, _)| address);
        if address.parse::<Ipv6Addr>().is_err() {
            return Err(wrong());
        }
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(wrong()),
        };
    }
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if !host.chars().all(is_name) || port.is_some_and(|port| port.contains(':')) {
        return Err(wrong());
    }
    Ok((host, port))
}

fn parse_port(text: &str, least: u16) -> Result<u16, TargetError> {
    let wrong = || TargetError::Port { port: text.to_owned(), least };
    // `u16::from_str` accepts a sign.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    text.parse().ok().filter(|port| *port >= least).ok_or_else(wrong)
}

fn parse_path(text: &str, path: &str) -> Result<PathBuf, TargetError> {
    if path.is_empty() {
        return Err(TargetError::NoPath(text.to_owned()));
    }
    if path.len() > MAX_PATH || path.contains('\0') {
        return Err(TargetError::Path(path.to_owned()));
    }
    Ok(Path::new(path).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_parse_and_print() {
        for (text, printed) in [
            ("tcp:127.0.0.1", "tcp:127.0.0.1:6653"),
            ("tcp:127.0.0.1:6633", "tcp:127.0.0.1:6633"),
            ("tcp:[::1]", "tcp:[::1]:6653"),
            ("tcp:[fe80::1%eth0]:1", "tcp:[fe80::1%eth0]:1"),
            ("tcp:controller.example:65535", "tcp:controller.example:65535"),
            ("ptcp:", "ptcp:6653"),
            ("ptcp:0", "ptcp:0"),
            ("ptcp::127.0.0.1", "ptcp:6653:127.0.0.1"),
            ("ptcp:6634:[::1]", "ptcp:6634:[::1]"),
            ("ssl:10.0.0.1", "ssl:10.0.0.1:6653"),
            ("pssl:6640:[::1]", "pssl:6640:[::1]"),
            ("pssl:", "pssl:6653"),
            ("unix:/run/a:b", "unix:/run/a:b"),
            ("punix:relative", "punix:relative"),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.to_string(), printed);
            assert_eq!(printed.parse(), Ok(target), "{printed}");
        }
    }

    #[test]
    fn errors_name_the_wrong_part() {
        let long = format!("unix:/{}", "x".repeat(107));
        for (text, error) in [
            (
                "127.0.0.1",
                "`127.0.0.1` starts with no known kind (expected `tcp:`, `ssl:`, `unix:`, `ptcp:`, `pssl:` or `punix:`)",
            ),
            (
                "udp:1.2.3.4",
                "`udp:1.2.3.4` starts with no known kind (expected `tcp:`, `ssl:`, `unix:`, `ptcp:`, `pssl:` or `punix:`)",
            ),
            ("tcp:", "`tcp:` has no host (expected `tcp:HOST[:PORT]`)"),
            ("tcp::6653", "`tcp::6653` has no host (expected `tcp:HOST[:PORT]`)"),
            ("tcp:h:0", "port `0` is not a number from 1 to 65535"),
            ("tcp:h:65536", "port `65536` is not a number from 1 to 65535"),
            ("tcp:h:+1", "port `+1` is not a number from 1 to 65535"),
            ("tcp:h:", "port `` is not a number from 1 to 65535"),
            ("ptcp:x", "port `x` is not a number from 0 to 65535"),
            ("tcp:::1", "host `::1` is neither an address nor a name (an IPv6 address has brackets)"),
            (
                "tcp:[1.2.3.4]",
                "host `[1.2.3.4]` is neither an address nor a name (an IPv6 address has brackets)",
            ),
            ("tcp:a b", "host `a b` is neither an address nor a name (an IPv6 address has brackets)"),
            ("ptcp:1:h:2", "host `h:2` is neither an address nor a name (an IPv6 address has brackets)"),
            ("ssl:1.2.3.4:x", "port `x` is not a number from 1 to 65535"),
            ("unix:", "`unix:` has no path"),
            (
                &long,
                &format!(
                    "path `/{}` is longer than the 107 bytes of a socket's path, or has a zero byte",
                    "x".repeat(107)
                ),
            ),
        ] {
            assert_eq!(text.parse::<Target>().unwrap_err().to_string(), error);
        }
    }
}
