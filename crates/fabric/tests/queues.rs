//! Transmit queue selection: by the logic, or by the flow's hash.
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
