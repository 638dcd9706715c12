//! Two maintenance points on a link, on a clock of the test's own.

use super::*;

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa]);

fn settings(point: i64, more: &[(&str, &str)]) -> Settings {
    let row = [("cfm_interval", "300"), ("cfm_extended", "true")];
    let row = row.iter().chain(more).map(|(key, value)| (key.to_string(), value.to_string()));
    Settings::read(point, &row.collect()).unwrap()
}

struct Pair {
    a: Point,
    b: Point,
    now: Millis,
    passes: [bool; 2],
    data: u64,
}

impl Pair {
    fn new(a: Settings, b: Settings) -> Self {
        let at = Moment { now: 1_000_000, received: 0 };
        Self { a: Point::new(a, 1, at), b: Point::new(b, 2, at), now: at.now, passes: [true; 2], data: 0 }
    }

    fn at(&self) -> Moment {
        Moment { now: self.now, received: self.data }
    }

    fn pass(&mut self, time: Millis) {
        let end = self.now + time;
        while self.now < end {
            self.now += 100;
            let at = self.at();
            self.a.run(at);
            self.b.run(at);
            if let Some(frame) = self.a.transmit(A, self.now).filter(|_| self.passes[0]) {
                self.b.receive(&frame, self.now).unwrap();
            }
            if let Some(frame) = self.b.transmit(A, self.now).filter(|_| self.passes[1]) {
                self.a.receive(&frame, self.now).unwrap();
            }
        }
    }

    fn faults(&self) -> (Vec<String>, Vec<String>) {
        let of = |point: &Point| point.status().faults.into_iter().collect();
        (of(&self.a), of(&self.b))
    }
}

#[test]
fn points_hear_each_other() {
    let mut pair = Pair::new(settings(1, &[]), settings(2, &[]));
    pair.pass(10_000);
    assert!(pair.a.forwards() && pair.b.forwards());
    let status = pair.a.status();
    assert_eq!((status.health, status.remotes, status.flaps), (Some(100), vec![2], 0));
    // Nothing passes towards a, which tells b.
    pair.passes[1] = false;
    pair.pass(5000);
    assert_eq!(pair.faults(), (vec!["recv".into()], vec!["rdi".into()]));
    assert_eq!((pair.a.status().flaps, pair.a.forwards(), pair.b.forwards()), (1, false, false));
    pair.passes[1] = true;
    pair.pass(3000);
    assert_eq!((pair.faults(), pair.a.status().flaps), ((vec![], vec![]), 2));
}

#[test]
fn the_operational_state_is_told() {
    let mut pair = Pair::new(settings(1, &[("cfm_opstate", "down")]), settings(2, &[]));
    pair.pass(3000);
    assert_eq!(pair.b.status().remote_is_up, Some(false));
    assert!(pair.a.forwards() && !pair.b.forwards());
    pair.a.configure(settings(1, &[]), pair.at());
    pair.pass(3000);
    assert!(pair.b.forwards());
}

#[test]
fn a_point_that_hears_its_own_number_has_a_loop() {
    let mut pair = Pair::new(settings(7, &[]), settings(7, &[]));
    pair.pass(3000);
    assert_eq!(pair.faults().0, ["loopback"]);
}

#[test]
fn data_keeps_a_port_good_with_demand() {
    let demand = [("cfm_demand", "true")];
    let mut pair = Pair::new(settings(1, &demand), settings(2, &demand));
    pair.pass(20_000);
    pair.passes[1] = false;
    for _ in 0..200 {
        pair.data += 1;
        pair.pass(100);
    }
    assert_eq!(pair.faults().0, Vec::<String>::new());
    for _ in 0..200 {
        pair.data += 1;
        pair.pass(100);
    }
    assert_eq!(pair.faults().0, ["recv"], "for 100 intervals");
}

#[test]
fn remote_points_are_bounded() {
    let mut pair = Pair::new(settings(1, &[]), settings(2, &[]));
    for number in 0..REMOTES as u64 + 10 {
        pair.b.settings.point = number + 2;
        pair.b.next_tx = 0;
        let frame = pair.b.transmit(A, pair.now).unwrap();
        let expected = if number < REMOTES as u64 { Ok(()) } else { Err(Fault::Room(number + 2)) };
        assert_eq!(pair.a.receive(&frame, pair.now), expected);
    }
    pair.now += 10_000;
    pair.a.run(pair.at());
    assert!(pair.faults().0.contains(&"overflow".to_owned()));
    assert_eq!(pair.a.status().remotes.len(), REMOTES);
}

#[test]
fn operators_can_force_the_result() {
    let mut pair = Pair::new(settings(1, &[]), settings(2, &[]));
    pair.a.force(Some(true));
    assert_eq!((pair.faults().0, pair.a.forwards()), (vec!["override".into()], false));
    pair.a.force(Some(false));
    pair.pass(9000);
    assert!(pair.a.forwards());
    assert!(pair.a.show("p0", pair.now).starts_with("---- p0 ----\nMPID 1: extended fault_override\n"));
}

#[test]
fn no_bytes_break_a_point() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut pair = Pair::new(settings(1, &[("cfm_ccm_vlan", "random")]), settings(2, &[]));
    for _ in 0..20_000 {
        pair.b.next_tx = 0;
        let mut frame = pair.b.transmit(A, pair.now).unwrap();
        for _ in 0..random.usize(0..4) {
            let at = random.usize(..frame.len());
            frame[at] = random.u8(..);
        }
        frame.truncate(random.usize(..=frame.len()));
        let at = Moment { now: random.u64(..), received: random.u64(..) };
        let _ = pair.a.receive(&frame, at.now);
        pair.a.run(at);
        let _ = pair.a.transmit(A, at.now);
        assert!(pair.a.remotes.len() <= REMOTES);
        assert!(pair.a.show("p", at.now).ends_with('\n'));
    }
}
