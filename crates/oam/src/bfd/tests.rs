//! Two sessions on a link, on a clock of the test's own.

use super::*;

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xb]);

fn settings(min_tx: Millis, min_rx: Millis) -> Settings {
    let row = [("enable", "true".into()), ("min_tx", min_tx.to_string()), ("min_rx", min_rx.to_string())];
    Settings::read(&row.map(|(key, value)| (key.to_owned(), value)).into()).0.unwrap()
}

struct Pair {
    a: Session,
    b: Session,
    now: Millis,
    /// Whether frames pass from a to b, and from b to a.
    passes: [bool; 2],
    /// Data that a has received.
    data: u64,
    sent: [usize; 2],
}

impl Pair {
    fn new(a: Settings, b: Settings) -> Self {
        let at = Moment { now: 1_000_000, received: 0 };
        Self {
            a: Session::new(a, 0xa, source_port(0), 1, at),
            b: Session::new(b, 0xb, source_port(1), 2, at),
            now: at.now,
            passes: [true; 2],
            data: 0,
            sent: [0; 2],
        }
    }

    fn at(&self) -> Moment {
        Moment { now: self.now, received: self.data }
    }

    /// Lets time pass in steps, in each of which all packets that are due are delivered.
    fn pass(&mut self, time: Millis, step: Millis) {
        let end = self.now + time;
        while self.now < end {
            self.now += step;
            let at = self.at();
            loop {
                self.a.run(at);
                self.b.run(at);
                let frames = [self.a.transmit(A, self.now), self.b.transmit(B, self.now)];
                if let (Some(frame), true) = (frames[0], self.passes[0]) {
                    assert_eq!(self.b.receive(&frame, at), Ok(()));
                }
                if let (Some(frame), true) = (frames[1], self.passes[1]) {
                    self.data += 1;
                    assert_eq!(self.a.receive(&frame, self.at()), Ok(()));
                }
                let due = frames.map(|frame| usize::from(frame.is_some()));
                self.sent = [self.sent[0] + due[0], self.sent[1] + due[1]];
                if due == [0, 0] {
                    break;
                }
            }
        }
    }

    fn states(&self) -> (State, State) {
        (self.a.state, self.b.state)
    }
}

#[test]
fn sessions_come_up_and_go_down_with_the_link() {
    let mut pair = Pair::new(settings(100, 100), settings(100, 100));
    pair.pass(4000, 100);
    assert_eq!(pair.states(), (State::Up, State::Up));
    assert!(pair.a.forwards() && pair.b.forwards());
    assert_eq!((pair.a.remote.discriminator, pair.b.remote.discriminator), (0xb, 0xa));
    pair.passes = [false; 2];
    pair.pass(400, 10);
    assert_eq!(pair.states(), (State::Down, State::Down));
    assert_eq!(pair.a.diagnostic, Diagnostic::EXPIRED);
    pair.passes = [true; 2];
    pair.pass(4000, 100);
    assert_eq!(pair.states(), (State::Up, State::Up));
    assert_eq!(pair.a.status()["flap_count"], "3");
}

#[test]
fn a_link_that_fails_in_one_direction_takes_both_sides_down() {
    let mut pair = Pair::new(settings(100, 100), settings(100, 100));
    pair.pass(4000, 100);
    pair.passes[0] = false;
    pair.pass(4000, 100);
    // b hears nothing; a hears that.
    assert_eq!(pair.states(), (State::Init, State::Down));
    assert_eq!((pair.a.diagnostic, pair.b.diagnostic), (Diagnostic::NEIGHBOR_DOWN, Diagnostic::EXPIRED));
    assert!(!pair.a.forwards());
}

#[test]
fn rates_are_those_that_both_sides_agree_on() {
    let mut pair = Pair::new(settings(100, 300), settings(500, 200));
    pair.pass(5000, 10);
    pair.sent = [0; 2];
    pair.pass(10_000, 10);
    // 200 and 500 ms, up to a quarter earlier.
    assert!((50..=67).contains(&pair.sent[0]), "{:?}", pair.sent);
    assert!((20..=27).contains(&pair.sent[1]), "{:?}", pair.sent);
    // A change is agreed on by a poll sequence.
    pair.a.configure(settings(1000, 300), pair.at());
    assert_eq!(pair.a.flags, flag::POLL);
    pair.pass(100, 10);
    assert_eq!((pair.a.flags, pair.a.min_tx, pair.b.remote.min_tx), (0, 1000, 1000));
}

#[test]
fn news_is_sent_at_once() {
    let mut pair = Pair::new(settings(5000, 5000), settings(5000, 5000));
    pair.pass(1, 1);
    // All of the handshake is news.
    assert_eq!(pair.states(), (State::Up, State::Up));
    pair.a.configure(Settings { path_is_down: true, ..settings(5000, 5000) }, pair.at());
    pair.pass(1, 1);
    assert_eq!(pair.b.remote.diagnostic, Diagnostic::CONCATENATED_PATH_DOWN);
    pair.sent = [0; 2];
    pair.pass(3000, 1);
    assert_eq!(pair.sent, [0; 2]);
}

#[test]
fn sessions_that_are_down_are_slow() {
    let mut pair = Pair::new(settings(10, 10), settings(10, 10));
    pair.passes = [false; 2];
    pair.pass(10_000, 10);
    assert!((10..=15).contains(&pair.sent[0]), "{:?}", pair.sent);
}

#[test]
fn idle_ports_decay_until_data_comes() {
    let decaying = Settings { decay_min_rx: 3000, ..settings(300, 300) };
    let mut pair = Pair::new(decaying, settings(500, 500));
    pair.pass(10_000, 100);
    assert_eq!((pair.a.min_rx, pair.states()), (3000, (State::Up, State::Up)));
    for _ in 0..100 {
        pair.data += 5;
        pair.pass(100, 100);
    }
    assert_eq!(pair.a.min_rx, 300);
    pair.passes[1] = false;
    pair.pass(12_000, 100);
    assert_eq!((pair.a.state, pair.a.min_rx), (State::Down, 300));
}

#[test]
fn received_data_keeps_a_port_good_while_some_control_packets_come() {
    let mut pair = Pair::new(Settings { forwards_if_rx: true, ..settings(300, 300) }, settings(500, 500));
    pair.pass(10_000, 100);
    pair.passes[1] = false;
    for _ in 0..80 {
        pair.a.hear_data(pair.now);
        pair.pass(100, 100);
    }
    assert_eq!((pair.a.state, pair.a.forwards(), pair.a.flaps), (State::Down, true, 1));
    for _ in 0..300 {
        pair.a.hear_data(pair.now);
        pair.pass(100, 100);
    }
    assert_eq!((pair.a.forwards(), pair.a.flaps), (false, 2));
}

#[test]
fn a_path_that_the_operator_calls_down_is_told() {
    let mut pair = Pair::new(settings(100, 100), settings(100, 100));
    pair.pass(4000, 100);
    pair.a.configure(Settings { path_is_down: true, ..settings(100, 100) }, pair.at());
    pair.pass(1000, 100);
    assert_eq!((pair.b.state, pair.b.forwards()), (State::Up, false));
    assert_eq!(pair.b.status()["remote_diagnostic"], "Concatenated Path Down");
    assert!(pair.a.forwards());
}

#[test]
fn operators_can_force_the_result() {
    let mut pair = Pair::new(settings(100, 100), settings(100, 100));
    pair.a.force(Some(true));
    assert!(pair.a.forwards());
    pair.a.force(None);
    assert!(!pair.a.forwards());
}

#[test]
fn packets_for_other_sessions_change_nothing() {
    let mut pair = Pair::new(settings(100, 100), settings(100, 100));
    pair.pass(4000, 100);
    let mut stranger = Session::new(settings(100, 100), 0xc, source_port(2), 3, pair.at());
    stranger.remote.discriminator = 0xd;
    let frame = stranger.transmit(A, pair.now).unwrap();
    assert_eq!(pair.a.receive(&frame, pair.at()), Err(Fault::OtherSession(0xd)));
    stranger.remote.discriminator = 0;
    stranger.state = State::Up;
    stranger.next_tx = 0;
    let frame = stranger.transmit(A, pair.now).unwrap();
    assert_eq!(pair.a.receive(&frame, pair.at()), Err(Fault::OtherSession(0)));
    assert_eq!(pair.a.remote.discriminator, 0xb);
}

#[test]
fn no_bytes_break_a_session() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut pair = Pair::new(settings(100, 100), settings(100, 100));
    pair.pass(4000, 100);
    for round in 0..20_000u64 {
        let mut frame = pair.b.transmit(B, u64::MAX).unwrap().to_vec();
        for _ in 0..random.usize(0..4) {
            let at = random.usize(..frame.len());
            frame[at] = random.u8(..);
        }
        frame.truncate(random.usize(..=frame.len()));
        let at =
            Moment { now: if round % 7 == 0 { random.u64(..) } else { pair.now }, received: random.u64(..) };
        let _ = pair.a.receive(&frame, at);
        pair.a.run(at);
        let _ = pair.a.transmit(A, at.now);
        assert_ne!(pair.a.flags, flag::POLL | flag::FINAL);
        assert!(pair.a.show(at.now).starts_with("  Forwarding: "));
    }
}
