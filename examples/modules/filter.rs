//! Passes ARP, ICMP, and TCP and UDP packets from or to allowed ports; drops all others.
#![cfg_attr(target_arch = "wasm32", no_std)]

use mswitch_module::headers::{Network, Transport};
use mswitch_module::{module, Batch};

/// A bit for each port.
type Allowed = [u64; 1024];

fn start(batch: &mut Batch) -> Result<(), &'static str> {
    let mut allowed: Allowed = [0; 1024];
    for port in batch.text(0).split(',') {
        let port: u16 = port.parse().map_err(|_| "expected port numbers such as 22,53,443")?;
        allowed[usize::from(port / 64)] |= 1 << (port % 64);
    }
    *batch.state_of::<Allowed>() = allowed;
    Ok(())
}

fn passes(batch: &mut Batch, packet: usize) -> Option<bool> {
    let headers = batch.headers(packet)?;
    Some(match (headers.network, headers.transport) {
        // A later fragment is of no use without the first one, which has the ports.
        (Network::Arp, _) | (_, Transport::Icmp(_) | Transport::Fragment) => true,
        _ => {
            let (from, to) = headers.ports()?;
            let allowed = batch.state_of::<Allowed>();
            let is_allowed = |port: u16| allowed[usize::from(port / 64)] >> (port % 64) & 1 == 1;
            is_allowed(from) || is_allowed(to)
        }
    })
}

fn forward(batch: &mut Batch) {
    for packet in 0..batch.len() {
        if passes(batch, packet) == Some(true) {
            batch.flood(packet);
        } else {
            batch.count(0, 1);
            batch.drop(packet);
        }
    }
}

module! {
    describe: r#"{"name": "filter", "summary": "passes packets of allowed TCP and UDP ports", "state": 8192,
        "params": [{"name": "ports", "type": "text", "help": "the allowed ports, separated by commas"}],
        "counters": [{"name": "refused", "help": "packets that were dropped"}]}"#,
    forward: forward,
    start: start,
}
