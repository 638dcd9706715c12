//! Client of the logic `three-tuple` of the mswitch software switch: reserves `<protocol, address, port>` of the host
//! for a user-level protocol stack at a port of the switch.
//!
//! ```no_run
//! use reservation::{Protocol, Reservations};
//!
//! let mut reservations = Reservations::connect("/run/mswitch/br0.reserve")?;
//! reservations.reserve("stack1", Protocol::Tcp, "192.0.2.1".parse()?, 80..=80)?;
//! // Run the stack; it sends with this MAC address and answers no ARP: the host does.
//! let mac = reservations.mac()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariant: reservations end when the [`Reservations`] is dropped or the process ends.
#![forbid(unsafe_code)]

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Time allowed for an answer.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest answer that is read, bytes.
const MAX_ANSWER: u64 = 4096;

/// A transport protocol with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// RFC 9293.
    Tcp,
    /// RFC 768.
    Udp,
    /// RFC 9260.
    Sctp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        })
    }
}

/// Reasons for a failed request.
#[derive(Debug)]
pub enum Error {
    /// The switch refuses, for this reason.
    Refused(String),
    /// The connection failed; all reservations have ended.
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(reason) => f.write_str(reason),
            Self::Io(error) => write!(f, "connection to the switch: {error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A connection to a bridge, and the reservations made through it.
#[derive(Debug)]
pub struct Reservations {
    stream: BufReader<UnixStream>,
}

impl Reservations {
    /// Connects to the socket that the logic's parameter `socket` names.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Reserves local ports at an address of the host for a port of the bridge, all or none.
    pub fn reserve(
        &mut self,
        port: &str,
        protocol: Protocol,
        address: IpAddr,
        local_ports: RangeInclusive<u16>,
    ) -> Result<(), Error> {
        self.ask(&endpoints("reserve", port, protocol, address, &local_ports)).map(|_| ())
    }

    /// Ends a reservation, named as it was made.
    pub fn release(
        &mut self,
        port: &str,
        protocol: Protocol,
        address: IpAddr,
        local_ports: RangeInclusive<u16>,
    ) -> Result<(), Error> {
        self.ask(&endpoints("release", port, protocol, address, &local_ports)).map(|_| ())
    }

    /// Returns the host's MAC address, which the stack has to use.
    pub fn mac(&mut self) -> Result<[u8; 6], Error> {
        let answer = self.ask("mac\n")?;
        let mut bytes = answer.split(':').map(|byte| u8::from_str_radix(byte, 16).ok());
        let mac: [Option<u8>; 6] = std::array::from_fn(|_| bytes.next().flatten());
        match mac {
            [Some(a), Some(b), Some(c), Some(d), Some(e), Some(f)] => Ok([a, b, c, d, e, f]),
            _ => Err(unexpected(&answer)),
        }
    }

    fn ask(&mut self, line: &str) -> Result<String, Error> {
        // A client that was turned away cannot send, but finds the reason.
        let sent = self.stream.get_mut().write_all(line.as_bytes());
        let mut answer = String::new();
        let read = (&mut self.stream).take(MAX_ANSWER).read_line(&mut answer);
        if !answer.ends_with('\n') {
            sent?;
            read?;
        }
        let text = answer.strip_suffix('\n').ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        match text.split_once(' ').unwrap_or((text, "")) {
            ("ok", value) => Ok(value.to_owned()),
            ("error", reason) => Err(Error::Refused(reason.to_owned())),
            _ => Err(unexpected(text)),
        }
    }
}

fn unexpected(answer: &str) -> Error {
    Error::Io(io::Error::new(io::ErrorKind::InvalidData, format!("unexpected answer `{answer}`")))
}

fn endpoints(
    verb: &str,
    port: &str,
    protocol: Protocol,
    address: IpAddr,
    ports: &RangeInclusive<u16>,
) -> String {
    format!("{verb} {port} {protocol} {address} {}-{}\n", ports.start(), ports.end())
}
