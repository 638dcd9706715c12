//! A switch behind a Unix socket, for `ovs-ofctl` and controllers:
//!
//! ```text
//! cargo run -p mswitch-ofswitch --example serve -- /tmp/of.sock [PORTS]
//! ovs-ofctl add-flow unix:/tmp/of.sock in_port=1,actions=output:2
//! ```
//!
//! Its ports are numbered from 1 and have no wires: what leaves through one is printed. A line `PORT HEX` on standard
//! input is a packet that arrives. When the socket is ready, `ready` is printed; at the end of standard input it ends.

use std::io::{BufRead, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ofswitch::{ConnectionId, ConnectionKind, Effect, PortInfo, Settings, Switch};
use openflow::PortNo;
use openflow::message::Header;

struct Shared {
    switch: Mutex<Switch>,
    /// Messages may be waiting.
    changed: Condvar,
    start: Instant,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Switch> {
        self.switch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap_or_else(|| "/tmp/of.sock".to_owned());
    let ports = args.next().and_then(|n| n.parse().ok()).unwrap_or(4u32);
    let mut switch =
        Switch::new(Settings { datapath_id: 0x42, name: "example".to_owned(), ..Settings::default() });
    for number in 1..=ports {
        let address = [2, 0, 0, 0, (number >> 8) as u8, number as u8];
        let info =
            PortInfo { speed: 10_000_000, ..PortInfo::new(PortNo(number), format!("p{number}"), address) };
        switch.set_port(info, 0).map_err(std::io::Error::other)?;
    }
    let shared =
        Arc::new(Shared { switch: Mutex::new(switch), changed: Condvar::new(), start: Instant::now() });
    let listener = UnixListener::bind(path)?;
    let clock = shared.clone();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(200));
            let now = clock.now();
            clock.lock().tick(now);
            clock.changed.notify_all();
        }
    });
    let accepting = shared.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let shared = accepting.clone();
            std::thread::spawn(move || serve(&shared, stream));
        }
    });
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let mut words = line.split_whitespace();
        let (Some(port), Some(bytes)) =
            (words.next().and_then(|n| n.parse().ok()), words.next().and_then(unhex))
        else {
            println!("expected: PORT HEX");
            continue;
        };
        let effects = shared.lock().packet(PortNo(port), &bytes, shared.now());
        print(&effects);
        println!("done");
        shared.changed.notify_all();
    }
    Ok(())
}

/// Serves one connection: reads messages here, writes them in another thread.
fn serve(shared: &Arc<Shared>, mut stream: UnixStream) {
    let Some(id) = shared.lock().connect(ConnectionKind::Service) else { return };
    if let Ok(out) = stream.try_clone() {
        let writer = shared.clone();
        std::thread::spawn(move || write(&writer, id, out));
    }
    while let Some(message) = read(&mut stream) {
        let mut switch = shared.lock();
        while !switch.is_ready(id) && !switch.is_closed(id) {
            switch = shared.changed.wait(switch).unwrap_or_else(PoisonError::into_inner);
        }
        switch.receive(id, &message, shared.now());
        print(&switch.take_effects());
        drop(switch);
        shared.changed.notify_all();
    }
    shared.lock().disconnect(id);
    shared.changed.notify_all();
}

fn write(shared: &Shared, id: ConnectionId, mut stream: UnixStream) {
    let mut switch = shared.lock();
    loop {
        if let Some(message) = switch.next_message(id) {
            drop(switch);
            if stream.write_all(&message).is_err() {
                return;
            }
            shared.changed.notify_all();
            switch = shared.lock();
        } else if switch.is_closed(id) {
            // The peer has gone, or was told why it is no longer welcome: the reader meets the end of the stream.
            let _ = stream.shutdown(std::net::Shutdown::Both);
            return;
        } else {
            switch = shared.changed.wait(switch).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A complete message.
fn read(stream: &mut UnixStream) -> Option<Vec<u8>> {
    let mut message = vec![0; 8];
    stream.read_exact(&mut message).ok()?;
    let length = usize::from(Header::peek(&message)?.length);
    let rest = length.checked_sub(8)?;
    message.resize(8 + rest, 0);
    stream.read_exact(message.get_mut(8..)?).ok()?;
    Some(message)
}

fn print(effects: &[Effect]) {
    for effect in effects {
        match effect {
            Effect::Output { port, packet, queue } => println!("output {port} queue {queue} {}", hex(packet)),
            Effect::Normal { in_port, packet, .. } => println!("normal from {in_port} {}", hex(packet)),
            Effect::Sample { sample, .. } => {
                println!("sample {} {} {}", sample.collectors, sample.domain, sample.point)
            }
            Effect::Drop(reason) => println!("drop: {reason}"),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
