//! Two systems that monitor a link, and an attacker on it: frames of BFD and CFM are passed on, changed, or made up,
//! and time passes.
//!
//! Invariants:
//! - No panic; a frame that is refused changes nothing that is shown as faulty or forwarding, except by time.
//! - Whatever a session receives, it is due again later than now once it has run and sent all that was due.
//! - A session sends one frame at a time, and a bounded number of frames without time passing.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use oam::{Moment, bfd, cfm};
use packet::MacAddr;
use support::Bytes;

/// Frames of one system at one time: the due one, and an answer to each frame that it has received.
const MOST: usize = 8;

fuzz_target!(|data: &[u8]| {
    let mut from = Bytes::new(data);
    let mut at = Moment { now: 1, received: 0 };
    let mut sessions = [1, 2].map(|i| bfd::Session::new(bfd_settings(&mut from), i, 49_152, i.into(), at));
    let mut points = [1, 2].map(|i| cfm::Point::new(cfm_settings(&mut from, i), i as u64, at));
    while !from.is_empty() {
        at.now += u64::from(from.u16() >> from.below(16));
        at.received += u64::from(from.u8());
        let one = from.below(2);
        match from.below(8) {
            0 => _ = sessions[one].receive(from.slice(100), at),
            1 => _ = points[one].receive(from.slice(100), at.now),
            2 => sessions[one].configure(bfd_settings(&mut from), at),
            3 => points[one].configure(cfm_settings(&mut from, one as i64 + 1), at),
            4 => sessions[one].force(from.flag().then(|| from.flag())),
            5 => points[one].force(from.flag().then(|| from.flag())),
            6 => sessions[one].hear_data(at.now),
            _ => {}
        }
        for i in 0..2 {
            sessions[i].run(at);
            points[i].run(at);
            let mut sent = 0;
            while let Some(frame) = sessions[i].transmit(MacAddr::ZERO, at.now) {
                sent += 1;
                assert!(sent <= MOST, "{sent} frames of BFD at once");
                let _ = sessions[1 - i].receive(&tampered(frame.to_vec(), &mut from), at);
            }
            while let Some(frame) = points[i].transmit(MacAddr::ZERO, at.now) {
                sent += 1;
                assert!(sent <= 2 * MOST, "{sent} frames of CFM at once");
                let _ = points[1 - i].receive(&tampered(frame, &mut from), at.now);
            }
            let _ = (sessions[i].status(), sessions[i].show(at.now), sessions[i].forwards());
            let _ = (points[i].status(), points[i].show("p", at.now), points[i].forwards());
        }
    }
});

/// A frame as the attacker lets it pass: most of the time as it is.
fn tampered(mut frame: Vec<u8>, from: &mut Bytes<'_>) -> Vec<u8> {
    let [change, at, bits] = from.array();
    match change {
        0..8 => frame.truncate(at.into()),
        8..64 => {
            let at = usize::from(at) % frame.len().max(1);
            frame.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= bits);
        }
        _ => {}
    }
    frame
}

fn bfd_settings(from: &mut Bytes<'_>) -> bfd::Settings {
    let mut row = BTreeMap::from([("enable".to_owned(), "true".to_owned())]);
    for key in ["min_tx", "min_rx", "mult", "decay_min_rx"] {
        let value = u64::from(from.u16() >> from.below(16));
        if value > 0 {
            row.insert(key.into(), value.to_string());
        }
    }
    for key in ["forwarding_if_rx", "cpath_down"] {
        row.insert(key.into(), from.flag().to_string());
    }
    bfd::Settings::read(&row).0.expect("enabled")
}

fn cfm_settings(from: &mut Bytes<'_>, point: i64) -> cfm::Settings {
    let mut row = BTreeMap::new();
    for key in ["cfm_extended", "cfm_demand"] {
        row.insert(key.to_owned(), from.flag().to_string());
    }
    let interval = u64::from(from.u16() >> from.below(16)).max(1);
    row.insert("cfm_interval".into(), interval.to_string());
    row.insert("cfm_opstate".into(), if from.flag() { "down" } else { "up" }.into());
    cfm::Settings::read(point, &row).expect("a point and its interval")
}
