//! Deadlines of a connection: its hello, its silence, its stall.

use std::time::Duration;

use ofswitch::ConnectionKind;
use tokio::time::Instant;

use crate::settings::{Limits, Settings};

/// Time in which the rest of a connection's output may leave after its end.
const FLUSH: Duration = Duration::from_secs(1);

/// How a connection is treated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) kind: ConnectionKind,
    pub(crate) probe: Option<Duration>,
    pub(crate) handshake: Duration,
    pub(crate) stall: Duration,
}

impl Policy {
    /// Connections that the agent makes.
    pub(crate) fn active(settings: &Settings) -> Self {
        let Limits { handshake, controller_stall: stall, .. } = settings.limits;
        Policy { kind: ConnectionKind::Controller, probe: settings.probe, handshake, stall }
    }

    /// Connections that passive targets accept: as in Open vSwitch, those get asynchronous messages when they ask.
    pub(crate) fn passive(settings: &Settings) -> Self {
        Policy { kind: ConnectionKind::Service, ..Policy::active(settings) }
    }

    /// Connections to the management socket.
    pub(crate) fn management(settings: &Settings) -> Self {
        let stall = settings.limits.management_stall;
        Policy { probe: None, stall, ..Policy::passive(settings) }
    }
}

/// What a deadline asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// No hello came.
    NoHello,
    /// The peer takes no data.
    Stalled,
    /// An echo request is to be sent.
    Probe,
    /// No answer to the echo request came.
    Inactive,
    /// The connection's end is not to be delayed any longer.
    Cut,
}

/// Times of a connection's events.
#[derive(Debug)]
pub(crate) struct Timers {
    start: Instant,
    /// The last message, or other sign of life.
    heard: Instant,
    is_probing: bool,
    /// The last byte that the peer took, or when bytes began to wait.
    progress: Instant,
    end: Option<Instant>,
}

impl Timers {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Timers { start: now, heard: now, is_probing: false, progress: now, end: None }
    }

    pub(crate) fn heard(&mut self) {
        self.heard = Instant::now();
        self.is_probing = false;
    }

    pub(crate) fn probed(&mut self) {
        self.is_probing = true;
    }

    pub(crate) fn progressed(&mut self) {
        self.progress = Instant::now();
    }

    pub(crate) fn ended(&mut self) {
        self.end.get_or_insert_with(Instant::now);
    }

    /// Time at which the connection is cut, if it has ended.
    pub(crate) fn cut(&self) -> Option<Instant> {
        self.end.map(|end| end + FLUSH)
    }

    /// The next deadline.
    pub(crate) fn next(
        &self,
        policy: &Policy,
        has_version: bool,
        is_sending: bool,
    ) -> Option<(Instant, Due)> {
        if let Some(cut) = self.cut() {
            return Some((cut, Due::Cut));
        }
        let silence = match policy.probe {
            _ if !has_version => Some((self.start + policy.handshake, Due::NoHello)),
            Some(probe) if self.is_probing => Some((self.heard + probe * 2, Due::Inactive)),
            Some(probe) => Some((self.heard + probe, Due::Probe)),
            None => None,
        };
        let stall = is_sending.then(|| (self.progress + policy.stall, Due::Stalled));
        silence.into_iter().chain(stall).min_by_key(|(at, _)| *at)
    }
}
