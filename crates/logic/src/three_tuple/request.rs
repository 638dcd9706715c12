//! Requests of clients, as text: one line each, of words between blanks.
//!
//! ```text
//! reserve PORT PROTOCOL ADDRESS LOCAL-PORTS
//! release PORT PROTOCOL ADDRESS LOCAL-PORTS
//! mac
//! ```
//!
//! The answer is one line too: `ok`, `ok` with a value, or `error` with the reason. Lines come from hostile clients.
//!
//! Invariants: a request is at most [`MAX_LINE`] bytes long; an [`Endpoints`] names at least one port, never port 0,
//! and an address that a host can own.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use packet::headers::protocol;

/// Longest line of a client without its end, bytes.
pub const MAX_LINE: usize = 256;

/// A transport protocol with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// RFC 9293.
    Tcp,
    /// RFC 768.
    Udp,
    /// RFC 9260.
    Sctp,
}

impl Protocol {
    /// Returns its number in IP headers.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => protocol::TCP,
            Self::Udp => protocol::UDP,
            Self::Sctp => protocol::SCTP,
        }
    }

    /// Returns its name, as in requests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

impl FromStr for Protocol {
    type Err = RequestError;

    fn from_str(text: &str) -> Result<Self, RequestError> {
        let all = [Self::Tcp, Self::Udp, Self::Sctp];
        all.into_iter().find(|it| it.name() == text).ok_or_else(|| RequestError::Protocol(text.into()))
    }
}

/// A range of local ports, at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalPorts {
    first: u16,
    last: u16,
}

impl LocalPorts {
    /// Returns the first and the last port.
    pub fn bounds(self) -> (u16, u16) {
        (self.first, self.last)
    }

    /// Returns the ports.
    pub fn iter(self) -> impl Iterator<Item = u16> {
        self.first..=self.last
    }

    /// Returns their number.
    pub fn count(self) -> usize {
        usize::from(self.last - self.first) + 1
    }

    /// Returns whether all of `other` are among these.
    pub fn contain(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// Returns whether a port is in both.
    pub fn overlap(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

impl FromStr for LocalPorts {
    type Err = RequestError;

    fn from_str(text: &str) -> Result<Self, RequestError> {
        let number = |digits: &str| {
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|port: &u16| is_number && *port > 0)
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self { first, last }),
            _ => Err(RequestError::Ports(text.into())),
        }
    }
}

impl fmt::Display for LocalPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

/// Three-tuples that differ in their port only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoints {
    /// The protocol.
    pub protocol: Protocol,
    /// The local address; never an IPv4 address within IPv6.
    pub address: IpAddr,
    /// The local ports.
    pub ports: LocalPorts,
}

impl Endpoints {
    /// Reads protocol, address and ports.
    pub fn parse(protocol: &str, address: &str, ports: &str) -> Result<Self, RequestError> {
        Ok(Self { protocol: protocol.parse()?, address: parse_address(address)?, ports: ports.parse()? })
    }

    /// Returns whether a three-tuple is in both.
    pub fn overlap(&self, other: &Self) -> bool {
        (self.protocol, self.address) == (other.protocol, other.address) && self.ports.overlap(other.ports)
    }
}

impl fmt::Display for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.protocol.name(), self.address, self.ports)
    }
}

/// Reads an address that can be reserved.
pub(super) fn parse_address(text: &str) -> Result<IpAddr, RequestError> {
    let address: IpAddr = text.parse().map_err(|_| RequestError::Address(text.into()))?;
    let address = address.to_canonical();
    let reason = match address {
        _ if address.is_unspecified() => "is not the address of a host; name one",
        _ if address.is_multicast() => "is the address of a group",
        _ if address.is_loopback() => "never leaves the host",
        IpAddr::V4(v4) if v4.is_broadcast() => "is a broadcast address",
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            "is a link-local address, which is ambiguous without an interface"
        }
        _ => return Ok(address),
    };
    Err(RequestError::UselessAddress { address, reason })
}

/// A client's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Packets for these endpoints go to the port, which may send from them.
    Reserve {
        /// Name of the port.
        port: String,
        /// The endpoints.
        endpoints: Endpoints,
    },
    /// Ends a reservation.
    Release {
        /// Name of the port.
        port: String,
        /// The endpoints, as they were reserved.
        endpoints: Endpoints,
    },
    /// Asks for the host's MAC address, which stacks use too.
    Mac,
}

/// Usage of the requests, for errors.
const USAGE: &str =
    "`reserve PORT PROTOCOL ADDRESS LOCAL-PORTS`, `release PORT PROTOCOL ADDRESS LOCAL-PORTS` or `mac`";

impl Request {
    /// Reads a line without its end.
    pub fn parse(line: &[u8]) -> Result<Self, RequestError> {
        if line.len() > MAX_LINE {
            return Err(RequestError::Long);
        }
        let line = std::str::from_utf8(line).map_err(|_| RequestError::NotText)?;
        let form = || RequestError::Form(line.escape_debug().to_string());
        // Words end up in answers and logs.
        if line.chars().any(|letter| letter.is_control() && !letter.is_ascii_whitespace()) {
            return Err(form());
        }
        let mut words = line.split_ascii_whitespace();
        let all: [&str; 6] = std::array::from_fn(|_| words.next().unwrap_or_default());
        match all {
            ["mac", "", ..] => Ok(Self::Mac),
            ["reserve", port, protocol, address, ports, ""] if !ports.is_empty() => Ok(Self::Reserve {
                port: port.into(),
                endpoints: Endpoints::parse(protocol, address, ports)?,
            }),
            ["release", port, protocol, address, ports, ""] if !ports.is_empty() => Ok(Self::Release {
                port: port.into(),
                endpoints: Endpoints::parse(protocol, address, ports)?,
            }),
            _ => Err(form()),
        }
    }
}

/// Writes the line.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserve { port, endpoints } => write!(f, "reserve {port} {endpoints}"),
            Self::Release { port, endpoints } => write!(f, "release {port} {endpoints}"),
            Self::Mac => f.write_str("mac"),
        }
    }
}

/// Reasons for not understanding a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The line is too long.
    #[error("the request is longer than {MAX_LINE} bytes")]
    Long,
    /// The line is not UTF-8.
    #[error("the request is not UTF-8 text")]
    NotText,
    /// The line is no request.
    #[error("`{0}` is not a request: {USAGE} is expected")]
    Form(String),
    /// The protocol is unknown.
    #[error("`{0}` is not a protocol: `tcp`, `udp` or `sctp` is expected")]
    Protocol(String),
    /// The address is none.
    #[error("`{0}` is not an IPv4 or IPv6 address")]
    Address(String),
    /// The address cannot be reserved.
    #[error("{address} {reason}")]
    UselessAddress {
        /// The address.
        address: IpAddr,
        /// The reason, in words that follow it.
        reason: &'static str,
    },
    /// The ports are none.
    #[error("`{0}` is not a port or a range of ports from 1 to 65535, such as 80 or 8000-8999")]
    Ports(String),
}

/// Splits the bytes of a connection into lines; holds at most one incomplete line.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: Vec<u8>,
}

impl Lines {
    /// Returns how many bytes it takes next; at least one unless a line is complete or too long.
    pub fn room(&self) -> usize {
        (MAX_LINE + 1).saturating_sub(self.buffer.len())
    }

    /// Adds received bytes, at most [`Lines::room`] of them; more are ignored.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = self.room();
        self.buffer.extend(bytes.iter().take(room));
    }

    /// Takes the next complete line without its end; an error if it has become too long.
    pub fn next_line(&mut self) -> Result<Option<Vec<u8>>, RequestError> {
        match self.buffer.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                let rest = self.buffer.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                Ok(Some(line))
            }
            None if self.room() == 0 => Err(RequestError::Long),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(line: &str) -> String {
        Request::parse(line.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn requests_are_read_as_they_are_written() {
        for line in ["reserve s1 tcp 192.0.2.1 80", "release s1 udp 2001:db8::1 1-65535", "mac"] {
            assert_eq!(Request::parse(line.as_bytes()).unwrap().to_string(), line);
        }
        let mapped = Request::parse(b" reserve  s1 sctp ::ffff:192.0.2.1 80-80 ").unwrap();
        assert_eq!(mapped.to_string(), "reserve s1 sctp 192.0.2.1 80");
    }

    #[test]
    fn errors_name_the_word() {
        for (line, expected) in [
            ("", "`` is not a request: `reserve PORT"),
            ("reserve s1 tcp 192.0.2.1", "`reserve s1 tcp 192.0.2.1` is not a request"),
            ("reserve s1 tcp 192.0.2.1 80 90", "is not a request"),
            ("mac mac", "`mac mac` is not a request"),
            ("reserve s1 \u{1b} 192.0.2.1 80", "`reserve s1 \\u{1b} 192.0.2.1 80` is not a request"),
            ("\u{1b}[31m", "`\\u{1b}[31m` is not a request"),
            ("reserve s1 icmp 192.0.2.1 80", "`icmp` is not a protocol"),
            ("reserve s1 tcp 192.0.2 80", "`192.0.2` is not an IPv4 or IPv6 address"),
            ("reserve s1 tcp 0.0.0.0 80", "0.0.0.0 is not the address of a host"),
            ("reserve s1 tcp 224.0.0.1 80", "224.0.0.1 is the address of a group"),
            ("reserve s1 tcp 127.0.0.1 80", "127.0.0.1 never leaves the host"),
            ("reserve s1 tcp fe80::1 80", "fe80::1 is a link-local address"),
            ("reserve s1 tcp 255.255.255.255 80", "is a broadcast address"),
            ("reserve s1 tcp 192.0.2.1 0", "`0` is not a port"),
            ("reserve s1 tcp 192.0.2.1 90-80", "`90-80` is not a port"),
            ("reserve s1 tcp 192.0.2.1 1-65536", "`1-65536` is not a port"),
            ("reserve s1 tcp 192.0.2.1 +80", "`+80` is not a port"),
        ] {
            assert!(refused(line).contains(expected), "{line}: {}", refused(line));
        }
        assert!(refused(&"x".repeat(257)).contains("longer than 256"));
        assert_eq!(Request::parse(&[0xff]).unwrap_err(), RequestError::NotText);
    }

    #[test]
    fn lines_are_bounded() {
        let mut lines = Lines::default();
        lines.push(b"mac\n\nma");
        assert_eq!(lines.next_line(), Ok(Some(b"mac".to_vec())));
        assert_eq!(lines.next_line(), Ok(Some(Vec::new())));
        assert_eq!(lines.next_line(), Ok(None));
        lines.push(b"c\n");
        assert_eq!(lines.next_line(), Ok(Some(b"mac".to_vec())));
        lines.push(&[b'x'; 1000]);
        assert_eq!(lines.next_line(), Err(RequestError::Long));
    }

    proptest! {
        #[test]
        fn any_line_is_a_request_or_an_error(line in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(request) = Request::parse(&line) {
                prop_assert_eq!(Request::parse(request.to_string().as_bytes()), Ok(request));
            }
        }

        #[test]
        fn ranges_overlap_if_they_share_a_port(a in 1u16..40, b in 1u16..40, c in 1u16..40, d in 1u16..40) {
            let range = |x: u16, y: u16| LocalPorts { first: x.min(y), last: x.max(y) };
            let (one, other) = (range(a, b), range(c, d));
            let shared = one.iter().filter(|port| other.iter().any(|it| it == *port)).count();
            prop_assert_eq!(one.overlap(other), shared > 0);
            prop_assert_eq!(one.contain(other), shared == other.count());
        }
    }
}
