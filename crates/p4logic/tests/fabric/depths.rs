//! Lengths of queues that programs see.

use crate::entities::group;
use crate::frames::op;
use crate::rig::{ALL, By, Client, DEPTHS, OPS, Rig};

/// A packet to a port, or to a group if that is not 0.
fn question(group: u8, port: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 0x88, 0xb5, group, port];
    frame.resize(60, 0xff);
    frame
}

/// What the program has told a packet: its port, depths when it enters and leaves the queue, the time in between.
type Told = (u8, u32, u32, u32);

fn told(frame: &[u8]) -> Told {
    let number = |at: usize| u32::from_be_bytes(*frame[at..].first_chunk().unwrap());
    (frame[15], number(16), number(20), number(24))
}

fn all_told(client: &Client, packets: usize) -> Vec<Told> {
    client.take(packets).iter().map(|frame| told(frame)).collect()
}

#[test]
fn a_program_sees_how_many_packets_wait_for_the_receiver() {
    for by in [By::Code, By::Itself] {
        let rig = Rig::new(by, DEPTHS);
        for _ in 0..20 {
            rig.at(1).send([question(0, 2)]);
            rig.settle(1);
        }
        // The other port's queue is another one.
        rig.at(1).send([question(0, 3)]);
        rig.settle(1);
        assert_eq!(all_told(rig.at(2), 20), (0..20).map(|n| (2, n, n, 0)).collect::<Vec<_>>(), "{by:?}");
        assert_eq!(all_told(rig.at(3), 1), [(3, 0, 0, 0)]);
        rig.at(1).send([question(0, 2)]);
        rig.settle(1);
        assert_eq!(all_told(rig.at(2), 1), [(2, 0, 0, 0)]);
    }
}

#[test]
fn a_batch_asks_once_a_port() {
    let rig = Rig::new(By::Code, DEPTHS);
    rig.write(&[group(7, &[(2, 1), (3, 1), (4, 1), (4, 2)])]);
    rig.at(1).send((0..5).map(|_| question(0, 2)));
    rig.settle(1);
    rig.at(1).send((0..3).map(|_| question(0, 4)));
    rig.settle(1);
    let before: Vec<_> = rig.clients.iter().map(Client::asked).collect();
    rig.at(1).send([0, 7, 0, 7].map(|group| question(group, 2)));
    rig.settle(1);
    let asked: Vec<_> =
        rig.clients.iter().zip(&before).map(|(client, before)| client.asked() - before).collect();
    assert_eq!(asked, [0, 1, 1, 1]);
    // Packets of one batch do not count for each other.
    assert_eq!(all_told(rig.at(2), 9)[5..], [(2, 5, 5, 0); 4]);
    assert_eq!(all_told(rig.at(3), 2), [(3, 0, 0, 0); 2]);
    assert_eq!(all_told(rig.at(4), 7)[3..], [(4, 3, 3, 0); 4]);
}

#[test]
fn a_port_that_does_not_exist_has_no_queue() {
    let rig = Rig::new(By::Code, DEPTHS);
    rig.at(1).send([question(0, 99), question(0, 2)]);
    rig.settle(1);
    assert_eq!(all_told(rig.at(2), 1), [(2, 0, 0, 0)]);
}

#[test]
fn queues_are_measured_only_for_programs_that_look() {
    for by in ALL {
        let rig = Rig::new(by, OPS);
        rig.run(1, [op(0, 2, 0), op(0, 3, 0)]);
        assert_eq!(rig.clients.iter().map(Client::asked).sum::<usize>(), 0, "{by:?}");
    }
}

/// The interpreter runs apart from the workers, which deliver its packets later.
#[test]
fn to_the_interpreter_queues_are_empty() {
    let rig = Rig::new(By::Interpreter, DEPTHS);
    for _ in 0..3 {
        rig.at(1).send([question(0, 2)]);
        rig.settle(1);
    }
    assert_eq!(all_told(rig.at(2), 3), [(2, 0, 0, 0); 3]);
}
