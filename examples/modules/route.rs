//! Routes by longest prefix; `route.c` in Rust. Packets may have VLAN tags.
#![cfg_attr(target_arch = "wasm32", no_std)]

use core::sync::atomic::Ordering;

use mswitch_module::{checksum, module, Batch, Plain, PortName, Prefix};

/// Maximum number of different ports.
const HOPS: usize = 32;

/// A worker's state.
struct State {
    hops: u32,
    hop: [PortName; HOPS],
}

// SAFETY: it consists of a number and port names, which are `Plain`.
unsafe impl Plain for State {}

impl State {
    /// Finds or adds the hop of a port.
    fn hop_of(&mut self, name: &str) -> Result<usize, &'static str> {
        let hops = self.hops as usize;
        if let Some(hop) = self.hop[..hops].iter().position(|port| port.name() == name) {
            return Ok(hop);
        }
        *self.hop.get_mut(hops).ok_or("there are too many ports")? =
            PortName::new(name).ok_or("a port's name is missing or too long")?;
        self.hops += 1;
        Ok(hops)
    }
}

fn start(batch: &mut Batch) -> Result<(), &'static str> {
    let tables = [batch.table(0), batch.table(1)];
    // A copy, because the loop borrows the state.
    let mut text = [0; 1024];
    let routes = batch.text(0).as_bytes();
    text[..routes.len()].copy_from_slice(routes);
    let routes = core::str::from_utf8(&text[..routes.len()]).unwrap_or("");
    for route in routes.split(' ').filter(|route| !route.is_empty()) {
        let (prefix, port) = route.split_once('=').ok_or("expected PREFIX=PORT")?;
        let prefix: Prefix =
            prefix.parse().map_err(|_| "expected a prefix such as 10.0.0.0/8 or 2001:db8::/32")?;
        let hop = batch.state_of::<State>().hop_of(port)? as u64;
        let table = &tables[usize::from(prefix.address().len() == 16)];
        table.insert_prefix(&prefix, &[hop]).ok_or("there are too many routes")?;
    }
    Ok(())
}

/// Finds the hop of the longest prefix that contains an address.
fn find(batch: &Batch, address: &Prefix) -> Option<usize> {
    let (_, value) = batch.table(usize::from(address.address().len() == 16)).find_longest(address)?;
    Some(value[0].load(Ordering::Relaxed) as usize)
}

/// Returns the index of a hop's port.
fn port(batch: &mut Batch, hop: usize) -> Option<u16> {
    let mut port = *batch.state_of::<State>().hop.get(hop)?;
    let index = port.index(batch);
    batch.state_of::<State>().hop[hop] = port;
    index
}

/// Decrements the TTL or hop limit; returns false if it expires.
fn decrement_ttl(ip: &mut [u8], is_v4: bool) -> bool {
    let at = if is_v4 { 8 } else { 7 };
    match ip[at] {
        0 | 1 => return false,
        ttl if is_v4 => checksum::replace_in_ipv4(ip, 8, &[ttl - 1, ip[9]]),
        ttl => ip[at] = ttl - 1,
    }
    true
}

/// Forwards a packet if there is a route to its destination.
fn route(batch: &mut Batch, packet: usize) -> Option<()> {
    let headers = batch.headers(packet)?;
    let (_, address) = headers.addresses()?;
    let hop = find(batch, &address)?;
    let port = port(batch, hop)?;
    if decrement_ttl(batch.header_mut(packet).get_mut(headers.network_at..)?, address.address().len() == 4) {
        batch.count(0, 1);
        batch.send(packet, port);
    } else {
        batch.count(1, 1);
        batch.drop(packet);
    }
    Some(())
}

fn forward(batch: &mut Batch) {
    for packet in 0..batch.len() {
        // A packet without a route has no output, and is dropped.
        let _ = route(batch, packet);
    }
}

fn command(batch: &mut Batch, _: u32) -> i32 {
    let address = match batch.arguments().parse::<Prefix>() {
        Ok(address) if address.length() == address.address().len() as u8 * 8 => address,
        _ => return batch.fail(format_args!("find takes an address, not `{}`", batch.arguments())),
    };
    let hop = find(batch, &address).and_then(|hop| Some((hop, *batch.state_of::<State>().hop.get(hop)?)));
    match hop.map(|(hop, name)| (port(batch, hop), name)) {
        Some((Some(index), name)) => {
            batch.reply(format_args!("{}: port {}, index {}", address, name.name(), index))
        }
        Some((None, name)) => {
            batch.reply(format_args!("{}: port {}, which the bridge does not have", address, name.name()))
        }
        None => batch.fail(format_args!("{}: no route", address)),
    }
}

module! {
    describe: r#"{"name": "route", "summary": "forwards packets by longest prefix", "state": 4096,
        "params": [{"name": "routes", "type": "text", "max": 1024, "help": "PREFIX=PORT, separated by blanks"}],
        "tables": [{"name": "routes4", "capacity": 256, "hand_over": false,
                    "key": [["network", "ipv4"], ["length", "prefix"]], "value": [["hop", "u32"]]},
                   {"name": "routes6", "capacity": 256, "hand_over": false,
                    "key": [["network", "ipv6"], ["length", "prefix"]], "value": [["hop", "u32"]]}],
        "counters": [{"name": "routed", "help": "packets sent to a port"},
                     {"name": "expired", "help": "packets whose TTL expired"}],
        "commands": [{"name": "find", "usage": "ADDRESS", "help": "shows the route to an address"}]}"#,
    forward: forward,
    start: start,
    command: command,
}
