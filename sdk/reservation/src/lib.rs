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
    /// The connection failed, or an answer came too late or is not understood. The connection is closed, and all
    /// reservations have ended: connect again.
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
    /// `None` after a failure: a late answer would be taken for that to the next request.
    stream: Option<BufReader<UnixStream>>,
}

impl Reservations {
    /// Connects to the socket that the logic's parameter `socket` names.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::over(UnixStream::connect(path)?, LIMIT)
    }

    fn over(stream: UnixStream, limit: Duration) -> io::Result<Self> {
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        Ok(Self { stream: Some(BufReader::new(stream)) })
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
            _ => {
                self.stream = None;
                Err(unexpected(&answer))
            }
        }
    }

    fn ask(&mut self, line: &str) -> Result<String, Error> {
        let stream = self.stream.as_mut().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
        let answer = exchange(stream, line);
        if matches!(answer, Err(Error::Io(_))) {
            self.stream = None;
        }
        answer
    }
}

fn exchange(stream: &mut BufReader<UnixStream>, line: &str) -> Result<String, Error> {
    // A client that was turned away cannot send, but finds the reason.
    let sent = stream.get_mut().write_all(line.as_bytes());
    let mut answer = String::new();
    let read = stream.take(MAX_ANSWER).read_line(&mut answer);
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

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(50);

    /// A client, and the switch's end of its connection.
    fn client() -> (Reservations, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        (Reservations::over(near, LIMIT).unwrap(), far)
    }

    #[test]
    fn answers_belong_to_their_requests() {
        let (mut client, mut switch) = client();
        switch.write_all(b"error no\nok 02:00:00:00:00:0a\n").unwrap();
        let address = "192.0.2.1".parse().unwrap();
        let refused = client.reserve("s1", Protocol::Tcp, address, 80..=81).unwrap_err();
        assert!(matches!(&refused, Error::Refused(reason) if reason == "no"), "{refused}");
        assert_eq!(client.mac().unwrap(), [2, 0, 0, 0, 0, 10]);
        let mut requests = String::new();
        drop(client);
        switch.read_to_string(&mut requests).unwrap();
        assert_eq!(requests, "reserve s1 tcp 192.0.2.1 80-81\nmac\n");
    }

    #[test]
    fn a_late_or_strange_answer_ends_the_connection() {
        for answer in ["", "ok 02:00", "ok 02:00\n", "yes\n"] {
            let (mut client, mut switch) = client();
            switch.write_all(answer.as_bytes()).unwrap();
            assert!(matches!(client.mac().unwrap_err(), Error::Io(_)), "{answer}");
            // The switch sees the end, so it releases what was reserved, and its answer goes nowhere.
            assert_eq!(switch.write_all(b"ok\n").unwrap_err().kind(), io::ErrorKind::BrokenPipe, "{answer}");
            let address = "192.0.2.1".parse().unwrap();
            let error = client.reserve("s1", Protocol::Tcp, address, 80..=80).unwrap_err();
            assert!(matches!(&error, Error::Io(it) if it.kind() == io::ErrorKind::NotConnected), "{error}");
        }
    }
}
