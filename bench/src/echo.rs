//! A client that returns every packet to its sender.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use packet::MacAddr;

use crate::packet::announcement;
use crate::port::{Error, PortSpec, Rings, check_connected, connect, sleep};

/// Statistics of an echo client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Echoed {
    /// Packets returned.
    pub returned: u64,
    /// Packets dropped for lack of room.
    pub dropped: u64,
    /// Packets to other addresses, which are ignored.
    pub ignored: u64,
}

/// Returns packets to the port's address with source and destination swapped, until `stop` is set.
pub fn echo(spec: &PortSpec, rings: Rings, stop: &AtomicBool) -> Result<Echoed, Error> {
    let mac = spec.address(0);
    let mut client = connect(spec, rings)?;
    client.push(0, &[&announcement(mac)]);
    client.flush(0);
    let (mut counts, mut packet) = (Echoed::default(), Vec::new());
    let (back, queues) = client.queues();
    while !stop.load(Ordering::Relaxed) {
        let mut busy = false;
        for queue in 0..queues {
            // A flow returns on the queue of the same number.
            let to = queue % back.max(1);
            for _ in 0..64 {
                if !client.pop(queue, &mut packet) {
                    break;
                }
                busy = true;
                match swap(&mut packet, mac) {
                    false => counts.ignored += 1,
                    true if client.push(to, &[&packet]) => counts.returned += 1,
                    true => counts.dropped += 1,
                }
            }
            client.refill(queue);
            client.flush(to);
        }
        if !busy {
            check_connected(&mut *client, spec)?;
            sleep(std::iter::once(&mut client), Duration::from_millis(100))?;
        }
    }
    Ok(counts)
}

/// Swaps the addresses of a packet to `mac`; returns `false` for other packets.
fn swap(packet: &mut [u8], mac: MacAddr) -> bool {
    match packet.get_mut(..12) {
        Some(addresses) if addresses[..6] == mac.0 => {
            addresses.rotate_left(6);
            true
        }
        _ => false,
    }
}
