//! A monitored port: its sessions, and what the data path has to do for them.

use control::openflow::MonitoredPort;
use oam::{Millis, Moment, bfd, cfm};
use oflogic::Selector;

use crate::plan::Monitoring;

/// What the database is told of a port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) bfd: bfd::Status,
    pub(crate) cfm: Option<cfm::Status>,
}

/// A monitored port.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// `None` while the port does not exist.
    pub(super) port: Option<MonitoredPort>,
    pub(super) bfd: Option<bfd::Session>,
    pub(super) cfm: Option<cfm::Point>,
    selectors: Vec<Selector>,
    wanted: Monitoring,
    /// Discriminator and number of its BFD sessions.
    identity: Option<(u32, u32)>,
    /// The port's counter when data was last looked for.
    received: u64,
}

impl Link {
    /// Follows the settings. `identity`: discriminator and number of BFD sessions.
    pub(super) fn configure(
        &mut self,
        wanted: &Monitoring,
        identity: impl FnOnce() -> (u32, u32),
        at: Moment,
    ) {
        self.bfd = wanted.bfd.clone().map(|settings| match self.bfd.take() {
            Some(mut session) => {
                session.configure(settings, at);
                session
            }
            None => {
                let (discriminator, number) = *self.identity.get_or_insert_with(identity);
                let port = bfd::source_port(number);
                bfd::Session::new(settings, discriminator, port, fastrand::u64(..), at)
            }
        });
        self.cfm = wanted.cfm.clone().map(|settings| match self.cfm.take() {
            Some(mut point) => {
                point.configure(settings, at);
                point
            }
            None => cfm::Point::new(settings, fastrand::u64(..), at),
        });
        let bfd = wanted.bfd.as_ref().map(|settings| Selector::Udp {
            port: bfd::PORT,
            destination: settings.remote_destination,
            address: settings.expected_address(),
        });
        let cfm = self
            .cfm
            .as_ref()
            .map(|point| Selector::Ethernet { destination: point.group(), ethertype: cfm::ETHERTYPE });
        self.wanted = wanted.clone();
        self.selectors = cfm.into_iter().chain(bfd).collect();
    }

    /// Takes the port as it is now. Sessions of another port than before begin anew: their time begins with the port.
    pub(super) fn set_port(&mut self, port: Option<MonitoredPort>, at: impl FnOnce(&Self) -> Moment) {
        let place = |port: &Option<MonitoredPort>| port.as_ref().map(|port| port.at);
        let is_other = place(&port) != place(&self.port);
        self.port = port;
        if is_other {
            (self.bfd, self.cfm) = (None, None);
            let (at, wanted) = (at(self), std::mem::take(&mut self.wanted));
            self.received = at.received;
            // It has its identity already.
            self.configure(&wanted, || (1, 0), at);
        }
    }

    /// The frames that the port's data path hands over.
    pub(super) fn selectors(&self) -> Vec<Selector> {
        self.selectors.clone()
    }

    /// Time of the next call of [`Link::run`].
    pub(super) fn next_call(&self) -> Option<Millis> {
        let bfd = self.bfd.as_ref().map(bfd::Session::next_call);
        let cfm = self.cfm.as_ref().map(cfm::Point::next_call);
        self.port.as_ref()?;
        bfd.into_iter().chain(cfm).min()
    }

    /// Whether data packets matter at any time.
    pub(super) fn wants_data(&self) -> bool {
        self.bfd.as_ref().is_some_and(bfd::Session::wants_data)
    }

    /// Looks at the port's counter for data packets.
    pub(super) fn look_for_data(&mut self, at: Moment) {
        let before = std::mem::replace(&mut self.received, at.received);
        if let Some(session) = self.bfd.as_mut().filter(|_| at.received > before) {
            session.hear_data(at.now);
        }
    }

    /// Does what is due, and sends what is due. Returns the number of frames.
    pub(super) fn run(&mut self, at: Moment) -> usize {
        let Some(port) = &self.port else { return 0 };
        let mut sent = 0;
        if let Some(session) = &mut self.bfd {
            session.run(at);
            if let Some(frame) = session.transmit(port.address, at.now) {
                // A queue that is full loses the frame, as the link may.
                port.send(&frame);
                sent += 1;
            }
        }
        if let Some(point) = &mut self.cfm {
            point.run(at);
            if let Some(frame) = point.transmit(port.address, at.now) {
                port.send(&frame);
                sent += 1;
            }
        }
        sent
    }

    /// Processes a frame that one of the selectors selects. Errors say why it does not count.
    pub(super) fn receive(&mut self, frame: &[u8], at: Moment) -> Result<(), String> {
        let is_cfm = |selector: &Selector| matches!(selector, Selector::Ethernet { .. });
        let selector = self.selectors.iter().find(|selector| selector.selects(frame));
        match (selector.is_some_and(is_cfm), &mut self.cfm, &mut self.bfd) {
            (true, Some(point), _) => point.receive(frame, at.now).map_err(|fault| format!("CFM: {fault}")),
            (false, _, Some(session)) => session.receive(frame, at).map_err(|fault| format!("BFD: {fault}")),
            _ => Ok(()),
        }
    }

    /// Whether the port may be used: it is not monitored, or one of BFD and CFM finds that it is up. The other may have
    /// no peer.
    pub(super) fn forwards(&self) -> bool {
        match (&self.bfd, &self.cfm) {
            (None, None) => true,
            (bfd, cfm) => {
                bfd.as_ref().is_some_and(bfd::Session::forwards)
                    || cfm.as_ref().is_some_and(cfm::Point::forwards)
            }
        }
    }

    pub(super) fn status(&self) -> Status {
        Status {
            bfd: self.bfd.as_ref().map(bfd::Session::status).unwrap_or_default(),
            cfm: self.cfm.as_ref().map(cfm::Point::status),
        }
    }
}
