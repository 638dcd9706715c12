//! Bidirectional Forwarding Detection (RFC 5880) in asynchronous mode over one hop (RFC 5881), one session per port.
//!
//! - [`Settings`]: what the operator configures; `packet`: control packets; `show`: status as text.
//! - [`Session`]: the state machine (RFC 5880 §6.8), with Open vSwitch's additions: decay, which makes an idle port be
//!   watched less often, and `forwarding_if_rx`, which calls a port good while it receives packets.
//!
//! Not there: demand mode, echoes, authentication, several hops.

mod packet;
mod settings;
mod show;

use crate::{Millis, Moment};

use packet::{Addresses, Control, flag};
pub use packet::{DESTINATION, Diagnostic, FRAME, Fault, PORT, State};
pub use settings::{Settings, source_port};
pub use show::Status;

use ::packet::MacAddr;

/// Interval between packets of a session that is not up, at least (RFC 5880 §6.8.3).
const SLOW: Millis = 1000;
/// Time without data after which a port counts as idle, at least.
const IDLE: Millis = 2000;

/// What was heard of the remote system.
#[derive(Debug, Clone, Copy)]
struct Remote {
    state: State,
    diagnostic: Diagnostic,
    flags: u8,
    discriminator: u32,
    multiplier: u8,
    min_tx: Millis,
    min_rx: Millis,
}

impl Remote {
    /// What is known after the session went down.
    fn unheard(multiplier: u8) -> Self {
        Self {
            state: State::Down,
            diagnostic: Diagnostic::NONE,
            flags: 0,
            discriminator: 0,
            multiplier,
            min_tx: 0,
            min_rx: 1,
        }
    }
}

/// Decay: the session of an idle port receives at a lower rate.
#[derive(Debug, Clone, Copy, Default)]
struct Decay {
    active: bool,
    /// Control packets since the last look, and the port's counter then.
    control: u32,
    received: u64,
    /// Time of the next look.
    look_at: Millis,
}

/// A session. See the module.
#[derive(Debug, Clone)]
pub struct Session {
    settings: Settings,
    discriminator: u32,
    source_port: u16,
    random: fastrand::Rng,
    state: State,
    diagnostic: Diagnostic,
    remote: Remote,
    /// [`flag::POLL`], [`flag::FINAL`] or none of them.
    flags: u8,
    /// `bfd.DesiredMinTxInterval` and `bfd.RequiredMinRxInterval`.
    min_tx: Millis,
    min_rx: Millis,
    /// The intervals that a poll sequence announces.
    polled: (Millis, Millis),
    /// The state or the diagnostic is another one than the last packet had.
    has_news: bool,
    last_tx: Millis,
    next_tx: Millis,
    /// Time at which the remote system counts as lost.
    lost_at: Millis,
    forwards: bool,
    /// What an operator says instead.
    forced: Option<bool>,
    /// With `forwarding_if_rx`: up to when received data, and control packets, are enough.
    data_until: Millis,
    control_until: Millis,
    decay: Decay,
    flaps: u64,
}

impl Session {
    /// Makes a session that is down. `discriminator` is unique among the sessions of this system, and not 0;
    /// `source_port` is that of its packets ([`source_port`]); `seed` of its jitter.
    pub fn new(settings: Settings, discriminator: u32, source_port: u16, seed: u64, at: Moment) -> Self {
        let decay = Decay::default();
        let mut session = Self {
            discriminator,
            source_port,
            random: fastrand::Rng::with_seed(seed),
            state: State::Down,
            diagnostic: Diagnostic::NONE,
            remote: Remote::unheard(0),
            flags: 0,
            min_tx: settings.min_tx,
            min_rx: settings.min_rx,
            polled: (0, 0),
            has_news: false,
            last_tx: 0,
            next_tx: 0,
            lost_at: 0,
            forwards: false,
            forced: None,
            data_until: 0,
            control_until: 0,
            decay,
            flaps: 0,
            settings,
        };
        session.restart_decay(at);
        if session.settings.path_is_down {
            session.set_state(State::Down, Diagnostic::NONE, at);
        }
        session
    }

    /// Changes the settings, with a poll sequence where the remote system has to agree (RFC 5880 §6.8.3).
    pub fn configure(&mut self, settings: Settings, at: Moment) {
        let before = std::mem::replace(&mut self.settings, settings);
        let (is_up, is_polling) = (self.state == State::Up, self.flags & flag::POLL != 0);
        let mut poll = false;
        if before.min_tx != self.settings.min_tx {
            if !is_up || !is_polling && self.settings.min_tx < self.min_tx {
                self.min_tx = self.settings.min_tx;
            }
            poll = true;
        }
        if before.min_rx != self.settings.min_rx {
            if !is_up || !is_polling && self.settings.min_rx > self.min_rx {
                self.min_rx = self.settings.min_rx;
            }
            poll = true;
        }
        if (before.decay_min_rx, before.min_rx) != (self.settings.decay_min_rx, self.settings.min_rx) {
            self.decay.active = false;
            self.restart_decay(at);
            poll = true;
        }
        if before.path_is_down != self.settings.path_is_down {
            self.set_state(self.state, Diagnostic::NONE, at);
            poll = true;
        }
        let (was, is) = (before.forwards_if_rx, self.settings.forwards_if_rx);
        if was != is || is && before.multiplier != self.settings.multiplier {
            match self.state == State::Up && is {
                true => self.extend_data(at.now),
                false if was != is => self.data_until = 0,
                false => {}
            }
        }
        if poll {
            self.poll();
        }
        self.update(at.now);
    }

    /// Sets what [`Session::forwards`] says in any case; `None`: what it finds.
    pub fn force(&mut self, forwards: Option<bool>) {
        self.forced = forwards;
    }

    /// Time of the next call of [`Session::run`] and [`Session::transmit`].
    pub fn next_call(&self) -> Millis {
        match (self.is_urgent(), self.state > State::Down) {
            (true, _) => 0,
            (false, true) => self.next_tx.min(self.lost_at),
            (false, false) => self.next_tx,
        }
    }

    /// Whether a packet is due at once: the answer to a poll, or news (RFC 5880 §6.8.7).
    fn is_urgent(&self) -> bool {
        self.flags & flag::FINAL != 0 || self.has_news
    }

    /// Does what the time asks for.
    pub fn run(&mut self, at: Moment) {
        let was_decayed = self.decay.active;
        if self.state > State::Down && at.now >= self.lost_at {
            self.set_state(State::Down, Diagnostic::EXPIRED, at);
        }
        self.update(at.now);
        if self.state == State::Up && self.settings.decay_min_rx > 0 && at.now >= self.decay.look_at {
            let received = at.received.saturating_sub(self.decay.received);
            // Counters and control packets are not read at the same time.
            self.decay.active = received <= 2 * u64::from(self.decay.control.max(1));
            self.restart_decay(at);
        }
        let agreed = self.min_rx == self.settings.min_rx || self.min_rx == self.settings.decay_min_rx;
        if self.min_tx != self.settings.min_tx || !agreed || self.decay.active != was_decayed {
            self.poll();
        }
    }

    /// Tells that the port received data packets.
    pub fn hear_data(&mut self, now: Millis) {
        if self.settings.forwards_if_rx {
            self.update(now);
            self.extend_data(now);
            self.update(now);
        }
    }

    /// Whether the session looks at data packets.
    pub fn wants_data(&self) -> bool {
        self.settings.forwards_if_rx
    }

    /// Returns the frame that is due, if one is; `address` is that of the port.
    pub fn transmit(&mut self, address: MacAddr, now: Millis) -> Option<[u8; FRAME]> {
        if !self.is_urgent() && now < self.next_tx {
            return None;
        }
        let (min_tx, min_rx) = match self.flags & flag::POLL != 0 {
            true => self.polled,
            false => (self.slow_tx(), self.min_rx),
        };
        let micros = |millis: Millis| u32::try_from(millis.saturating_mul(1000)).unwrap_or(u32::MAX);
        let control = Control {
            diagnostic: self.diagnostic,
            state: self.state,
            flags: self.flags,
            multiplier: self.settings.multiplier,
            mine: self.discriminator,
            yours: self.remote.discriminator,
            min_tx: micros(min_tx),
            min_rx: micros(min_rx),
        };
        let addresses = Addresses {
            source: self.settings.local_source.unwrap_or(address),
            destination: self.settings.local_destination.unwrap_or(DESTINATION),
            from: self.settings.source_address(),
            to: self.settings.destination_address(),
            port: self.source_port,
        };
        self.flags &= !flag::FINAL;
        self.has_news = false;
        self.last_tx = now;
        self.schedule();
        Some(control.frame(&addresses))
    }

    /// Processes a frame with a control packet (RFC 5880 §6.8.6). Errors say why it was discarded.
    pub fn receive(&mut self, frame: &[u8], at: Moment) -> Result<(), Fault> {
        self.decay.control = self.decay.control.saturating_add(1);
        self.update(at.now);
        let done = Control::of_frame(frame).and_then(|control| self.accept(&control, at));
        self.update(at.now);
        done
    }

    fn accept(&mut self, control: &Control, at: Moment) -> Result<(), Fault> {
        let is_other = match control.yours {
            0 => control.state > State::Down,
            yours => yours != self.discriminator,
        };
        if is_other {
            return Err(Fault::OtherSession(control.yours));
        }
        self.remote.discriminator = control.mine;
        self.remote.state = control.state;
        self.remote.flags = control.flags;
        self.remote.diagnostic = control.diagnostic;
        if control.flags & flag::FINAL != 0 && self.flags & flag::POLL != 0 {
            (self.min_tx, self.min_rx) = self.polled;
            self.flags &= !flag::POLL;
        }
        if control.flags & flag::POLL != 0 {
            // Answered at once; never with a poll of this system (RFC 5880 §6.5).
            self.flags = flag::FINAL;
        }
        self.remote.multiplier = control.multiplier;
        let millis = |micros: u32| Millis::from(micros / 1000).max(1);
        if self.remote.min_rx != millis(control.min_rx) {
            self.remote.min_rx = millis(control.min_rx);
            if self.next_tx != 0 {
                self.schedule();
            }
        }
        self.remote.min_tx = millis(control.min_tx);
        let detection = self.rx_interval().saturating_mul(self.remote.multiplier.into());
        self.lost_at = at.now.saturating_add(detection);
        match (self.state, control.state) {
            (State::Init | State::Up, State::AdminDown) | (State::Up, State::Down) => {
                self.set_state(State::Down, Diagnostic::NEIGHBOR_DOWN, at);
            }
            (State::Down, State::Down) => self.set_state(State::Init, self.diagnostic, at),
            (State::Down, State::Init) | (State::Init, State::Init | State::Up) => {
                self.set_state(State::Up, self.diagnostic, at);
            }
            _ => {}
        }
        if self.settings.forwards_if_rx {
            self.control_until = at.now.saturating_add(self.settings.min_rx.saturating_mul(100));
        }
        Ok(())
    }

    fn set_state(&mut self, state: State, diagnostic: Diagnostic, at: Moment) {
        let diagnostic = match self.settings.path_is_down {
            true => Diagnostic::CONCATENATED_PATH_DOWN,
            false => diagnostic,
        };
        if (self.state, self.diagnostic) == (state, diagnostic) {
            return;
        }
        (self.state, self.diagnostic) = (state, diagnostic);
        self.has_news = true;
        if state <= State::Down {
            self.remote = Remote::unheard(self.remote.multiplier);
            if std::mem::take(&mut self.decay.active) {
                self.min_rx = self.settings.min_rx;
            }
        }
        if state == State::Up && self.settings.decay_min_rx > 0 {
            self.restart_decay(at);
        }
    }

    /// Begins a poll sequence (RFC 5880 §6.5), unless one is in progress or the remote system's is to be answered
    /// first.
    fn poll(&mut self) {
        if self.state > State::Down && self.flags & (flag::POLL | flag::FINAL) == 0 {
            let min_rx = if self.decay.active { self.settings.decay_min_rx } else { self.settings.min_rx };
            self.polled = (self.settings.min_tx, min_rx);
            self.flags |= flag::POLL;
            self.next_tx = 0;
        }
    }

    fn restart_decay(&mut self, at: Moment) {
        self.decay.received = at.received;
        self.decay.control = 0;
        self.decay.look_at = at.now.saturating_add(self.settings.decay_min_rx.max(IDLE));
    }

    fn extend_data(&mut self, now: Millis) {
        let interval = self.rx_interval().saturating_mul(self.settings.multiplier.into());
        self.data_until = now.saturating_add(interval.max(IDLE));
    }

    /// Finds out whether the port forwards, and counts the changes.
    fn update(&mut self, now: Millis) {
        if self.forced.is_some() {
            return;
        }
        let heard = self.settings.forwards_if_rx && self.data_until > now && self.control_until > now;
        let is_broken = [
            Diagnostic::PATH_DOWN,
            Diagnostic::CONCATENATED_PATH_DOWN,
            Diagnostic::REVERSE_CONCATENATED_PATH_DOWN,
        ]
        .contains(&self.remote.diagnostic);
        let forwards = (self.state == State::Up || heard) && !is_broken;
        self.flaps += u64::from(std::mem::replace(&mut self.forwards, forwards) != forwards);
    }

    /// Whether the port may be used, as found last, or as an operator says.
    pub fn forwards(&self) -> bool {
        self.forced.unwrap_or(self.forwards)
    }

    /// The shortest interval between sent packets that is announced.
    fn slow_tx(&self) -> Millis {
        if self.state == State::Up { self.min_tx } else { self.min_tx.max(SLOW) }
    }

    fn tx_interval(&self) -> Millis {
        self.slow_tx().max(self.remote.min_rx)
    }

    fn rx_interval(&self) -> Millis {
        self.min_rx.max(self.remote.min_tx)
    }

    /// Schedules the next packet, with jitter (RFC 5880 §6.8.7): up to 25 % earlier, with a multiplier of 1 at least 10
    /// %.
    fn schedule(&mut self) {
        let least = if self.settings.multiplier == 1 { 10 } else { 0 };
        let percent = self.random.u64(least..=25);
        let interval = self.tx_interval();
        self.next_tx = self.last_tx.saturating_add(interval - interval * percent / 100);
    }
}

#[cfg(test)]
mod tests;
