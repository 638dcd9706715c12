//! `mswitch capture`: requests packets from the daemon, and prints or records them.
//!
//! - [`filter`] compiles filters with libpcap, so that they match as in tcpdump; the daemon runs them;
//! - [`ports::pcap::pcapng`] is the file format, [`mod@recorder`] writes one file or a ring of files;
//! - [`line`](mod@line) formats a packet as one line, for people and for programs.

mod filter;
mod line;
mod recorder;

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::Path;

use control::client::Client;
use control::proto;
use tokio::signal::unix::{SignalKind, signal};

pub(crate) use filter::FilterError;

use crate::cli::CaptureArgs;
use crate::failure::Failure;
use recorder::{Recorder, Ring};

/// Ports of the capture, by their ids in its replies.
#[derive(Debug, Default)]
struct Ports(BTreeMap<u32, Port>);

#[derive(Debug, Default)]
struct Port {
    name: String,
    captured: bool,
    counters: proto::CaptureCounters,
}

impl Ports {
    /// Returns a port's name.
    fn name(&self, id: u32) -> &str {
        self.0.get(&id).map_or("?", |port| &port.name)
    }

    fn learn(&mut self, batch: &proto::CaptureBatch) {
        for port in &batch.ports {
            let known = self.0.entry(port.id).or_default();
            (known.name, known.captured) = (port.name.clone(), port.captured);
        }
        for counters in &batch.counters {
            self.0.entry(counters.port).or_default().counters = *counters;
        }
    }

    fn sum(&self, count: impl Fn(&proto::CaptureCounters) -> u64) -> u64 {
        self.0.values().map(|port| count(&port.counters)).sum()
    }
}

/// Destination of the packets.
enum Display {
    Lines { json: bool },
    Record(Box<Recorder>),
}

pub(super) async fn run(client: &mut Client, args: CaptureArgs) -> Result<(), Failure> {
    let program = args.filter.as_deref().map(filter::compile).transpose()?.unwrap_or_default();
    let mut display = match &args.write {
        None => Display::Lines { json: args.json },
        Some(file) => Display::Record(Box::new(recorder(&args, file)?)),
    };
    let request = proto::CaptureRequest {
        bridge: args.bridge.clone(),
        ports: args.ports.clone(),
        direction: args.direction.name().into(),
        filter: program,
        snaplen: args.snaplen.unwrap_or(0),
    };
    let mut batches = client.capture(request).await?.into_inner();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (mut ports, mut left) = (Ports::default(), args.count.unwrap_or(u64::MAX));
    let mut warned = false;
    let ended = loop {
        let batch = tokio::select! {
            biased;
            _ = terminate.recv() => break Ok(()),
            _ = interrupt.recv() => break Ok(()),
            batch = batches.message() => batch,
        };
        let mut batch = match batch {
            Ok(Some(batch)) => batch,
            Ok(None) => break Err(Failure::new("the daemon ended the capture; its log has the reason")),
            Err(status) => break Err(status.into()),
        };
        ports.learn(&batch);
        batch.packets.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        left -= batch.packets.len() as u64;
        match show(&mut display, &args, &ports, &batch) {
            Ok(()) => {}
            // The reader of the pipe has closed it.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => break Err(Failure::new(format_args!("cannot write packets: {error}"))),
        }
        if ports.sum(|c| c.missed) > 0 && !warned {
            warned = true;
            eprintln!("mswitch: the capture cannot keep up; packets are missing from it");
        }
        if left == 0 {
            break Ok(());
        }
    };
    let shown = args.count.unwrap_or(u64::MAX) - left;
    let finished = match &mut display {
        Display::Record(recorder) => recorder.finish(),
        Display::Lines { .. } => Ok(()),
    };
    eprintln!("{}", summary(&ports, shown));
    ended?;
    match finished {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format_args!("cannot write packets: {error}")))
        }
        _ => Ok(()),
    }
}

fn recorder(args: &CaptureArgs, file: &Path) -> Result<Recorder, Failure> {
    let ring = args.ring_size.zip(args.ring_files).map(|(size, files)| Ring { size, files });
    let snaplen = args.snaplen.unwrap_or(0);
    let recorder = if file == Path::new("-") {
        if ring.is_some() {
            return Err(Failure::new("a ring of files cannot be written to standard output; name a file"));
        }
        if std::io::stdout().is_terminal() {
            return Err(Failure::new(
                "pcapng is binary and not for terminals; name a file, or pipe it: `mswitch capture ... --write - | tshark -r -`",
            ));
        }
        Recorder::to_stdout(snaplen, args.filter.clone())
    } else {
        Recorder::to_file(file, ring, snaplen, args.filter.clone())
    };
    recorder.map_err(|error| Failure::new(format_args!("cannot write {}: {error}", file.display())))
}

/// Shows one batch and flushes the output.
fn show(
    display: &mut Display,
    args: &CaptureArgs,
    ports: &Ports,
    batch: &proto::CaptureBatch,
) -> std::io::Result<()> {
    match display {
        Display::Lines { json } => {
            let mut out = std::io::stdout().lock();
            for packet in &batch.packets {
                let line = if *json { line::json(packet, ports)? } else { line::text(packet, ports) };
                out.write_all(line.as_bytes())?;
            }
            out.flush()
        }
        Display::Record(recorder) => {
            for port in batch.ports.iter().filter(|port| port.captured) {
                let about = format!("port {} of bridge {}", port.name, args.bridge);
                recorder.interface(port.id, &port.name, &about)?;
            }
            for packet in &batch.packets {
                recorder.packet(packet, &line::comment(packet, ports))?;
            }
            for counters in &batch.counters {
                recorder.counters(*counters);
            }
            recorder.flush()
        }
    }
}

fn summary(ports: &Ports, shown: u64) -> String {
    let seen = ports.sum(|c| c.seen);
    let on = ports.0.values().filter(|port| port.captured).count() as u64;
    let captured =
        format!("mswitch: {} captured of {seen} seen, on {}", number(shown, "packet"), number(on, "port"));
    match ports.sum(|c| c.missed) {
        0 => captured,
        missed => format!(
            "{captured}\nmswitch: {} missing: the capture could not keep up; --filter, --port or --snaplen reduce its \
             load",
            number(missed, "packet")
        ),
    }
}

/// `1 packet`, `2 packets`.
fn number(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_packets_and_ports() {
        let port = |missed| Port {
            captured: true,
            counters: proto::CaptureCounters { seen: 2, missed, ..Default::default() },
            ..Default::default()
        };
        let ports = Ports([(0, port(0))].into());
        assert_eq!(summary(&ports, 1), "mswitch: 1 packet captured of 2 seen, on 1 port");
        let ports = Ports([(0, port(0)), (1, port(3))].into());
        assert_eq!(
            summary(&ports, 0),
            "mswitch: 0 packets captured of 4 seen, on 2 ports\n\
             mswitch: 3 packets missing: the capture could not keep up; --filter, --port or --snaplen reduce its load"
        );
    }
}
