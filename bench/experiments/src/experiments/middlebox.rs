//! Demultiplexer of middleboxes: UDP packets to one of 16 ports, or to all in turn, by port number (figure 14 of the
//! paper).

use std::sync::Arc;

use fabric::{PortIndex, SwitchLogic};
use logic::{Learning, Middlebox, StaticPairs};
use packet::Conversation;

use super::{Experiment, Options, Point, as_egress, cycle};
use crate::logics::{PortNumber, Scanning, address, teach};
use crate::plots::{Horizontal, Measure, Plot};
use crate::replay::Packets;
use crate::rig::{Result, Rig, Sender, Source, Subject};
use crate::samples::take_turns;
use crate::sink::{Shape, Sink};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "middlebox",
    about: "throughput of UDP packets to one or all of 16 ports by port number (figure 14 of the paper)",
    x: "bytes of a packet",
    base: "`static` (one port); VALE's scan (16 ports)",
    workers: 1,
    plots: &[
        Plot {
            name: "middlebox-1",
            title: "UDP packets to one of 16 ports: throughput by packet size",
            y: Measure::Mpps,
            logarithmic: false,
            x: Horizontal::Groups("bytes"),
            group: "1 port: ",
        },
        Plot {
            name: "middlebox-16",
            title: "UDP packets to 16 ports in turn: throughput by packet size",
            y: Measure::Mpps,
            logarithmic: false,
            x: Horizontal::Groups("bytes"),
            group: "16 ports: ",
        },
    ],
    run,
};

const SIZES: [usize; 6] = [60, 124, 252, 508, 1020, 1514];

/// Ports with a function.
const PORTS: usize = 16;

/// Packets of a batch: as many as a worker takes by default.
const BATCH: usize = 64;

/// UDP port number that the function at port 0 asks for; the others follow.
const FIRST: u16 = 5000;

/// Senders' port numbers, each a conversation with each function.
const CONVERSATIONS: usize = 64;

/// What is compared at one port; the first is the base.
const ONE_PORT: [&str; 6] =
    ["static", "port number alone", "middlebox", "middlebox, one function", "learning", "VALE's scan"];

fn run(options: &Options, show: &mut dyn FnMut(Point)) -> Result<()> {
    for (active, names) in [
        (1, &ONE_PORT[..]),
        (PORTS, &["VALE's scan", "middlebox", "middlebox, one function", "learning"][..]),
    ] {
        for size in SIZES {
            let rigs =
                names.iter().map(|name| rig(options, name, active, size)).collect::<Result<Vec<_>>>()?;
            let subjects: Vec<_> = rigs.iter().map(|rig| rig as &dyn Subject).collect();
            let series = take_turns(&subjects, options.effort)?;
            let ports = if active == 1 { "1 port" } else { "16 ports" };
            for (name, measured) in names.iter().zip(&series) {
                show(Point::new(format!("{ports}: {name}"), size as f64, measured, series.first()));
            }
        }
    }
    Ok(())
}

/// One sender to the first `active` of 16 ports, in turn. With one function, all 16 ports are its instances, and each
/// conversation has the port that its hash chooses.
fn rig(options: &Options, name: &str, active: usize, len: usize) -> Result<Rig> {
    let list = |port: usize| (format!("to{port}"), format!("dst:{}/udp", usize::from(FIRST) + port));
    let start = |logic: Arc<dyn SwitchLogic>| {
        let conversations = if active == 1 { 1 } else { CONVERSATIONS };
        let packets = Packets::new(cycle(active) * conversations, len, |i, packet| {
            write(packet, (i % active) as u16, (i / active % conversations) as u16);
        });
        let sender =
            Sender { packets: Source::Repeated(Arc::new(packets)), burst: BATCH, cpu: options.cpu() };
        let receivers = as_egress(Sink::rings(PORTS, Shape::DEFAULT, None));
        Rig::new(&[options.cpu()], logic, receivers, vec![sender])
    };
    match name {
        "static" => start(Arc::new(StaticPairs::new(&[("from0".into(), "to0".into())])?)),
        "port number alone" => start(Arc::new(PortNumber { number: FIRST, to: PortIndex(0) })),
        "middlebox" => start(Arc::new(Middlebox::new(&(0..PORTS).map(list).collect::<Vec<_>>())?)),
        "middlebox, one function" => {
            let all = format!("dst:{FIRST}-{}/udp", usize::from(FIRST) + PORTS - 1);
            let lists: Vec<_> = (0..PORTS).map(|port| (format!("to{port}"), all.clone())).collect();
            start(Arc::new(Middlebox::new(&lists)?))
        }
        "learning" => {
            let learning = Arc::new(Learning::new(&[])?);
            let rig = start(learning.clone())?;
            teach(&learning, PORTS);
            Ok(rig)
        }
        _ => start(Arc::new(Scanning { decide })),
    }
}

/// The decision of `middlebox` for VALE's scan, without tables: the functions' numbers are those of their ports.
fn decide(header: &[u8]) -> PortIndex {
    let port = Conversation::of(header).and_then(|packet| packet.destination.checked_sub(FIRST));
    port.map_or(PortIndex::NONE, PortIndex)
}

/// Writes Ethernet to a port, IPv4 and UDP (RFC 791 §3.1, RFC 768) of a conversation with its function.
fn write(packet: &mut [u8], port: u16, conversation: u16) {
    address(packet, port);
    let length = packet.len() as u16 - 14;
    if let Some(headers) = packet.get_mut(12..42) {
        headers[..12].copy_from_slice(&[8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17]);
        headers[4..6].copy_from_slice(&length.to_be_bytes());
        headers[14..22].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        headers[22..24].copy_from_slice(&(1024 + conversation).to_be_bytes());
        headers[24..26].copy_from_slice(&(FIRST + port).to_be_bytes());
        headers[26..28].copy_from_slice(&(length - 20).to_be_bytes());
    }
}
