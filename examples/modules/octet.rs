//! Uses the last octet of the IPv4 destination as the port's index; `octet.c` in Rust.
#![cfg_attr(target_arch = "wasm32", no_std)]

use mswitch_module::{module, Batch};

fn forward(batch: &mut Batch) {
    for packet in 0..batch.len() {
        // Ethernet without a tag, then IPv4, whose destination ends at byte 33.
        let port = match batch.header(packet) {
            header if header.get(12..14) == Some(&[8, 0]) => header.get(33).copied(),
            _ => None,
        };
        if let Some(port) = port {
            batch.send(packet, port.into());
        }
    }
}

module! {
    describe: r#"{"name": "octet", "summary": "the last octet of the IPv4 destination is the port's index"}"#,
    forward: forward,
}
