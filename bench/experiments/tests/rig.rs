//! Rigs deliver what senders send, where it is addressed to, and count it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use experiments::audit::{Audit, sign};
use experiments::logics::{Addressed, Scanning, address};
use experiments::replay::Packets;
use experiments::rig::{Rig, Sender, Source, Subject};
use experiments::sink::{Shape, Sink};
use fabric::{Egress, SwitchLogic};

const TIME: Duration = Duration::from_millis(30);
const SHAPE: Shape = Shape { entries: 64, buffer: 256 };

fn receivers(count: usize, audit: &Arc<Audit>) -> Vec<Arc<dyn Egress>> {
    Sink::rings(count, SHAPE, Some(audit)).into_iter().map(|ring| ring as Arc<dyn Egress>).collect()
}

fn numbered(sender: u16, to: impl Fn(usize) -> u16) -> Source {
    Source::Numbered(Packets::new(48, 60, |i, packet| {
        address(packet, to(i));
        sign(packet, sender);
    }))
}

fn cpu() -> usize {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| set.is_set(*cpu)).unwrap()
}

/// One sender to the ports `0..ports` in turn, all with one audit, which so sees the order across ports.
fn fan_out(logic: Arc<dyn SwitchLogic>, ports: u16, burst: usize) -> (Rig, Arc<Audit>) {
    let audit = Arc::new(Audit::new(1));
    let sender = Sender { packets: numbered(0, |i| i as u16 % ports), burst, cpu: cpu() };
    (Rig::new(&[cpu()], logic, receivers(usize::from(ports), &audit), vec![sender]).unwrap(), audit)
}

#[test]
fn every_packet_arrives_in_order_at_one_port() {
    for logic in [Arc::new(Addressed) as Arc<dyn SwitchLogic>, Arc::new(Scanning::BY_ADDRESS)] {
        let (rig, audit) = fan_out(logic, 1, 16);
        let interval = rig.run(TIME).unwrap();
        rig.settle().unwrap();
        let seen = audit.seen();
        assert!(interval.packets > 0 && interval.rate() > 0.0 && interval.share() > 0.0);
        assert!(seen.packets >= interval.packets, "what came before and after the measurement arrived, too");
        assert_eq!((seen.missing, seen.disorder, rig.drops().unwrap()), (0, 0, 0));
        assert_eq!(interval.bytes, interval.packets * 60);
    }
}

#[test]
fn packets_of_a_batch_are_spread_over_ports() {
    let (rig, audit) = fan_out(Arc::new(Addressed), 3, 1);
    rig.run(TIME).unwrap();
    rig.settle().unwrap();
    // In batches of one packet the ports take turns.
    assert_eq!((audit.seen().missing, audit.seen().disorder), (0, 0));
    let (rig, audit) = fan_out(Arc::new(Addressed), 3, 6);
    rig.run(TIME).unwrap();
    rig.settle().unwrap();
    // In larger ones each port takes its list of the batch, so the audit of all of them sees numbers go back.
    assert!(audit.seen().packets > 0 && audit.seen().disorder > 0);
}

#[test]
fn packets_that_do_not_fit_are_counted_as_dropped() {
    let audit = Arc::new(Audit::new(1));
    let sender = Sender { packets: numbered(0, |_| 0), burst: 100, cpu: cpu() };
    let rig = Rig::new(&[cpu()], Arc::new(Addressed), receivers(1, &audit), vec![sender]).unwrap();
    rig.run(TIME).unwrap();
    rig.settle().unwrap();
    // A burst is limited to the 48 packets that the sender has, which the ring of 64 takes.
    assert_eq!((rig.drops().unwrap(), audit.seen().missing), (0, 0));
    let packets = Arc::new(Packets::new(100, 60, |_, packet| address(packet, 0)));
    let sender = Sender { packets: Source::Repeated(packets), burst: 100, cpu: cpu() };
    let rig = Rig::new(&[cpu()], Arc::new(Addressed), receivers(1, &audit), vec![sender]).unwrap();
    let interval = rig.run(TIME).unwrap();
    assert!(interval.drops > 0, "100 packets for 64 entries");
}
