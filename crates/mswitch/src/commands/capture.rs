//! `mswitch capture`: asks the daemon for packets and writes them where they are wanted.
//!
//! - [`filter`] compiles tcpdump's language with libpcap, so that it means what it means everywhere; the daemon runs it;
//! - [`ports::pcap::pcapng`] is the file format, [`mod@recorder`] the files in it, one or a ring of them;
//! - [`line`](mod@line) is a packet in a line, for people and for programs.

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

/// What has been seen, by the ids of the capture.
#[derive(Debug, Default)]
struct Ports(BTreeMap<u32, Port>);

#[derive(Debug, Default)]
struct Port {
    name: String,
    captured: bool,
    counters: proto::CaptureCounters,
}

impl Ports {
    /// The port's name.
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

/// Where packets are to be shown.
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
            Ok(None) => break Err(Failure::new("the daemon ended the capture; its log says why")),
            Err(status) => break Err(status.into()),
        };
        ports.learn(&batch);
        batch.packets.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        left -= batch.packets.len() as u64;
        match show(&mut display, &args, &ports, &batch) {
            Ok(()) => {}
            // Who reads has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => break Err(Failure::new(format_args!("cannot write packets: {error}"))),
        }
        if ports.sum(|c| c.missed) > 0 && !warned {
            warned = true;
            eprintln!("mswitch: the capture does not keep up; packets are missing from it");
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
            return Err(Failure::new("a ring of files cannot go to standard output; name a file"));
        }
        if std::io::stdout().is_terminal() {
            return Err(Failure::new(
                "pcapng is not for terminals; name a file, or pipe it: `mswitch capture ... --write - | tshark -r -`",
            ));
        }
        Recorder::to_stdout(snaplen, args.filter.clone())
    } else {
        Recorder::to_file(file, ring, snaplen, args.filter.clone())
    };
    recorder.map_err(|error| Failure::new(format_args!("cannot write {}: {error}", file.display())))
}

/// Shows one batch, and sees to it that it can be read now.
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
    let count = ports.0.values().filter(|port| port.captured).count();
    let captured = format!("mswitch: {shown} packets captured, of {seen} seen; ports: {count}");
    match ports.sum(|c| c.missed) {
        0 => captured,
        missed => format!(
            "{captured}\nmswitch: {missed} packets are missing, for the capture did not keep up; \
             --filter, --port or --snaplen make it lighter"
        ),
    }
}
