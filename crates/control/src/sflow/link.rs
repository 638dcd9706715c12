//! The way to one collector: a connected UDP socket that never blocks, and what has become of what was sent.
//!
//! A socket that fails is made anew, after a second, then ever less often; datagrams meanwhile are counted as errors.
//! A collector that is not there refuses them, which is told and no reason to stop: it may come.

use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::settings::Collector;

const FIRST_RETRY: Duration = Duration::from_secs(1);
const SLOWEST_RETRY: Duration = Duration::from_secs(10);
/// How often trouble with one collector is logged at most.
const LOG_PAUSE: Duration = Duration::from_secs(60);

/// What has become of what was sent to a collector.
#[derive(Debug, Clone)]
pub struct CollectorReport {
    /// The collector.
    pub collector: Collector,
    /// Datagrams that went out.
    pub datagrams: u64,
    /// Datagrams that did not, or that came back.
    pub errors: u64,
    /// What went wrong last, and when.
    pub last: Option<(String, Instant)>,
}

/// See the module.
pub(super) struct Link {
    report: CollectorReport,
    socket: Option<UdpSocket>,
    tries: u32,
    next_try: Instant,
    logged: Option<Instant>,
}

impl Link {
    /// Not yet connected.
    pub(super) fn new(collector: Collector) -> Self {
        let report = CollectorReport { collector, datagrams: 0, errors: 0, last: None };
        Self { report, socket: None, tries: 0, next_try: Instant::now(), logged: None }
    }

    pub(super) fn collector(&self) -> Collector {
        self.report.collector
    }

    pub(super) fn report(&self) -> &CollectorReport {
        &self.report
    }

    /// Connects if that is due; the address that datagrams go out from, while it is known.
    pub(super) fn connect(&mut self) -> Option<IpAddr> {
        if self.socket.is_none() && Instant::now() >= self.next_try {
            match connected(self.report.collector.0) {
                Ok(socket) => {
                    self.socket = Some(socket);
                    self.tries = 0;
                }
                Err(error) => {
                    let pause = FIRST_RETRY.saturating_mul(1 << self.tries.min(10)).min(SLOWEST_RETRY);
                    self.tries += 1;
                    self.next_try = Instant::now() + pause;
                    self.trouble(&error);
                }
            }
        }
        self.socket.as_ref()?.local_addr().ok().map(|address| address.ip())
    }

    /// Sends a datagram, or counts that it could not be.
    pub(super) fn send(&mut self, datagram: &[u8]) {
        let Some(socket) = &self.socket else {
            self.report.errors += 1;
            return;
        };
        let mut sent = socket.send(datagram);
        if let Err(refused) = &sent
            && refused.kind() == ErrorKind::ConnectionRefused
        {
            // It is about one sent before, which nobody took; this one has not been tried.
            let again = socket.send(datagram);
            self.report.errors += 1;
            self.trouble(refused);
            sent = again;
        }
        match sent {
            Ok(_) => self.report.datagrams += 1,
            Err(error) => {
                self.report.errors += 1;
                if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) {
                    self.socket = None;
                    self.next_try = Instant::now() + FIRST_RETRY;
                }
                self.trouble(&error);
            }
        }
    }

    fn trouble(&mut self, error: &Error) {
        let (now, message) = (Instant::now(), explained(error));
        if self.logged.is_none_or(|at| now.duration_since(at) > LOG_PAUSE) {
            self.logged = Some(now);
            tracing::warn!(
                "sFlow collector {}: {message}; it is tried again until it works",
                self.collector()
            );
        }
        self.report.last = Some((message, now));
    }
}

/// What a socket's error means here.
fn explained(error: &Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => {
            "nobody listens there (connection refused); is the collector running?".into()
        }
        ErrorKind::WouldBlock => "the socket's buffer is full".into(),
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => {
            format!("it cannot be reached: {error}; see `ip route`")
        }
        _ => format!("cannot send: {error}"),
    }
}

fn connected(to: SocketAddr) -> Result<UdpSocket> {
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
    fn a_collector_that_is_not_there_is_told_of_and_tried_on() {
        let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = collector.local_addr().unwrap();
        drop(collector);
        let mut link = Link::new(Collector(address));
        assert_eq!(link.connect(), Some(Ipv4Addr::LOCALHOST.into()));
        for _ in 0..3 {
            link.send(b"x");
        }
        let (message, _) = link.report().last.clone().unwrap();
        assert!(message.contains("nobody listens there (connection refused)"), "{message}");
        assert!(link.report().errors > 0);

        let collector = UdpSocket::bind(address).unwrap();
        collector.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        link.send(b"now");
        let mut got = [0; 8];
        assert_eq!(collector.recv(&mut got).unwrap(), 3);
    }

    #[test]
    fn an_address_without_a_way_is_told_of_and_tried_later() {
        // Broadcasts need a permission that the socket does not have.
        let mut link = Link::new("255.255.255.255".parse().unwrap());
        assert_eq!(link.connect(), None);
        let (message, _) = link.report().last.clone().unwrap();
        assert!(message.starts_with("cannot send: ") || message.contains("cannot be reached: "), "{message}");
        link.send(b"x");
        assert_eq!((link.report().datagrams, link.report().errors), (0, 1));
        assert_eq!(link.connect(), None, "not before a second has passed");
        assert_eq!(link.tries, 1);
    }
}
