//! Transmit queue selection: by the logic, by the receive queue, or by the flow's hash.
#![cfg(test)]
#![cfg(not(loom))]

mod support;

use std::sync::Arc;

use fabric::{Batch, Egress, PortIndex, SwitchLogic};
use support::feed::{Feed, Sent};
use support::{CallPort, frame, id_of, rig, wait_until};

/// Sends each packet to port 1: by the queue in its first byte, if that is below 128.
struct ByFirstByte;

impl SwitchLogic for ByFirstByte {
    fn forward(&self, batch: &mut Batch<'_>) {
        for v in batch.packets() {
            match batch.header(v)[0] {
                queue @ 0..128 => batch.send_to_queue(v, PortIndex(1), queue.into()),
                _ => batch.send(v, PortIndex(1)),
            }
        }
    }
}

fn packet(id: u64, first: u8) -> Sent {
    let mut bytes = frame(id, 64);
    bytes[0] = first;
    Sent::whole(&bytes)
}

#[test]
fn a_named_queue_is_used_and_the_last_one_stands_for_higher_numbers() {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(ByFirstByte)).unwrap();
    let feed = Feed::new();
    rig::plug(&switch, bridge, "from", vec![feed.queue()], vec![Arc::new(CallPort::default())]);
    let queues: Vec<_> = (0..3).map(|_| Arc::new(CallPort::default())).collect();
    let egresses = queues.iter().map(|queue| queue.clone() as Arc<dyn Egress>).collect();
    rig::plug(&switch, bridge, "to", vec![], egresses);
    feed.send([0, 2, 1, 77, 0, 1].into_iter().zip(0..).map(|(queue, id)| packet(id, queue)));
    wait_until("all are returned", || feed.returned() == 6);
    let ids = |queue: &CallPort| queue.take().iter().map(|called| id_of(&called.bytes)).collect::<Vec<_>>();
    assert_eq!(
        queues.iter().map(|queue| ids(queue)).collect::<Vec<_>>(),
        [vec![0, 4], vec![2, 5], vec![1, 3]]
    );
    // All packets of a flow leave by one queue, in order.
    feed.send((10..40).map(|id| packet(id, 0x80)));
    wait_until("all are returned", || feed.returned() == 36);
    let mut used: Vec<_> = queues.iter().map(|queue| ids(queue)).filter(|ids| !ids.is_empty()).collect();
    used.iter().for_each(|ids| assert!(ids.is_sorted()));
    used.sort();
    assert_eq!(used.concat().len(), 30);
}

/// Sends packets to port 1: whole batches, or one after the other.
struct ToPort1 {
    whole: bool,
}

impl SwitchLogic for ToPort1 {
    fn forward(&self, batch: &mut Batch<'_>) {
        match self.whole {
            true => batch.send_all(PortIndex(1)),
            false => batch.packets().for_each(|v| batch.send(v, PortIndex(1))),
        }
    }
}

/// Returns, for each of `to` transmit queues, the ids of the packets that leave through it. 40 flows come in through
/// each of `from` receive queues; the id's hundreds are the queue.
fn spread(from: usize, to: usize, whole: bool) -> Vec<Vec<u64>> {
    let switch = rig::switch(1);
    let bridge = switch.add_bridge("b", Arc::new(ToPort1 { whole })).unwrap();
    let feeds: Vec<_> = (0..from).map(|_| Feed::new()).collect();
    let receive = feeds.iter().map(|feed| feed.queue()).collect();
    rig::plug(&switch, bridge, "from", receive, vec![Arc::new(CallPort::default())]);
    let queues: Vec<_> = (0..to).map(|_| Arc::new(CallPort::default())).collect();
    let egresses = queues.iter().map(|queue| queue.clone() as Arc<dyn Egress>).collect();
    rig::plug(&switch, bridge, "to", vec![], egresses);
    for (feed, number) in feeds.iter().zip(0..) {
        feed.send((0..40).map(|flow| packet(100 * number + flow, 2 * flow as u8)));
        wait_until("all are returned", || feed.returned() == 40);
    }
    let ids = |queue: &Arc<CallPort>| queue.take().iter().map(|called| id_of(&called.bytes)).collect();
    queues.iter().map(ids).collect()
}

#[test]
fn a_sender_with_enough_queues_steers_and_flows_of_others_are_hashed() {
    let hundred = |number: u64| (100 * number..100 * number + 40).collect::<Vec<_>>();
    for whole in [false, true] {
        assert_eq!(spread(2, 2, whole), [hundred(0), hundred(1)]);
        assert_eq!(spread(3, 2, whole), [[hundred(0), hundred(2)].concat(), hundred(1)]);
        let hashed = spread(2, 3, whole);
        assert!(hashed.iter().all(|ids| !ids.is_empty() && ids.len() < 40), "{hashed:?}");
        assert_eq!(hashed.concat().len(), 80);
    }
}
