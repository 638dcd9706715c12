//! Collectors of samples and flows: their addresses, and the connection to one: a non-blocking, connected UDP socket and
//! its delivery statistics.
//!
//! A failed socket is recreated with exponential back-off; until then, datagrams count as errors. If the collector
//! refuses datagrams, that is reported and sending continues, because the collector may start later.

use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

const FIRST_RETRY: Duration = Duration::from_secs(1);
const SLOWEST_RETRY: Duration = Duration::from_secs(10);
/// Minimum interval between log messages about one collector.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Parses the address of a collector: `192.0.2.9:99`, `[2001:db8::9]:99` or, for the default port, an address alone.
/// Returns `None` if it is none that datagrams can be sent to.
pub(crate) fn parse(text: &str, default_port: Option<u16>) -> Option<SocketAddr> {
    let alone = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let alone = alone.map_or_else(|| text.parse().ok(), |inner| inner.parse().ok().map(IpAddr::V6));
    let address = match (alone, default_port) {
        (Some(address), Some(port)) => Some(SocketAddr::new(address, port)),
        (Some(_), None) => None,
        (None, _) => text.parse().ok(),
    };
    address.filter(|address| address.port() != 0 && !address.ip().is_unspecified())
}

/// Delivery statistics of a collector.
#[derive(Debug, Clone)]
pub struct CollectorReport {
    /// The collector.
    pub collector: SocketAddr,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Datagrams that could not be sent or were refused.
    pub errors: u64,
    /// The last error and its time.
    pub last: Option<(String, Instant)>,
}

/// A connection to a collector. See the module.
pub(crate) struct Connection {
    /// The protocol, for the log.
    protocol: &'static str,
    report: CollectorReport,
    socket: Option<UdpSocket>,
    attempts: u32,
    next_attempt: Instant,
    logged: Option<Instant>,
}

impl Connection {
    /// Creates an unconnected connection.
    pub(crate) fn new(protocol: &'static str, collector: SocketAddr) -> Self {
        let report = CollectorReport { collector, datagrams: 0, errors: 0, last: None };
        Self { protocol, report, socket: None, attempts: 0, next_attempt: Instant::now(), logged: None }
    }

    pub(crate) fn collector(&self) -> SocketAddr {
        self.report.collector
    }

    pub(crate) fn report(&self) -> &CollectorReport {
        &self.report
    }

    /// Connects if an attempt is due. Returns the source address of datagrams; `None` while unconnected.
    pub(crate) fn connect(&mut self) -> Option<IpAddr> {
        if self.socket.is_none() && Instant::now() >= self.next_attempt {
            match connect(self.report.collector) {
                Ok(socket) => {
                    self.socket = Some(socket);
                    self.attempts = 0;
                }
                Err(error) => {
                    let pause = FIRST_RETRY.saturating_mul(1 << self.attempts.min(10)).min(SLOWEST_RETRY);
                    self.attempts += 1;
                    self.next_attempt = Instant::now() + pause;
                    self.record_error(&error);
                }
            }
        }
        self.socket.as_ref()?.local_addr().ok().map(|address| address.ip())
    }

    /// Sends a datagram, or counts an error.
    pub(crate) fn send(&mut self, datagram: &[u8]) {
        let Some(socket) = &self.socket else {
            self.report.errors += 1;
            return;
        };
        let mut sent = socket.send(datagram);
        if let Err(refused) = &sent
            && refused.kind() == ErrorKind::ConnectionRefused
        {
            // The error concerns an earlier datagram; this one was not sent yet.
            let resent = socket.send(datagram);
            self.report.errors += 1;
            self.record_error(refused);
            sent = resent;
        }
        match sent {
            Ok(_) => self.report.datagrams += 1,
            Err(error) => {
                self.report.errors += 1;
                if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) {
                    self.socket = None;
                    self.next_attempt = Instant::now() + FIRST_RETRY;
                }
                self.record_error(&error);
            }
        }
    }

    fn record_error(&mut self, error: &Error) {
        let (now, message) = (Instant::now(), explain(error));
        if self.logged.is_none_or(|at| now.duration_since(at) > LOG_INTERVAL) {
            self.logged = Some(now);
            let (protocol, collector) = (self.protocol, self.collector());
            // Open vSwitch's words, which its users and tests look for.
            tracing::warn!("{protocol}: {collector}: sending to collector failed ({message}); retrying");
        }
        self.report.last = Some((message, now));
    }
}

/// Explains an error of the socket.
fn explain(error: &Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "connection refused; check that the collector is running".into(),
        ErrorKind::WouldBlock => "the socket's buffer is full".into(),
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => {
            format!("unreachable: {error}; check `ip route`")
        }
        _ => format!("cannot send: {error}"),
    }
}

fn connect(to: SocketAddr) -> Result<UdpSocket> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_nonblocking(true)?;
    socket.connect(to)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_collector_is_reported_and_retried() {
        let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = collector.local_addr().unwrap();
        drop(collector);
        let mut connection = Connection::new("sFlow", address);
        assert_eq!(connection.connect(), Some(Ipv4Addr::LOCALHOST.into()));
        for _ in 0..3 {
            connection.send(b"x");
        }
        let (message, _) = connection.report().last.clone().unwrap();
        assert!(message.contains("connection refused; check that"), "{message}");
        assert!(connection.report().errors > 0);

        let collector = UdpSocket::bind(address).unwrap();
        collector.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        connection.send(b"now");
        let mut got = [0; 8];
        assert_eq!(collector.recv(&mut got).unwrap(), 3);
    }

    #[test]
    fn an_unreachable_address_is_reported_and_retried_later() {
        // Sending broadcasts needs the socket option SO_BROADCAST, which is not set.
        let mut connection = Connection::new("sFlow", "255.255.255.255:6343".parse().unwrap());
        assert_eq!(connection.connect(), None);
        let (message, _) = connection.report().last.clone().unwrap();
        assert!(message.starts_with("cannot send: ") || message.starts_with("unreachable: "), "{message}");
        connection.send(b"x");
        assert_eq!((connection.report().datagrams, connection.report().errors), (0, 1));
        assert_eq!(connection.connect(), None, "the back-off is a second");
        assert_eq!(connection.attempts, 1);
    }
}
