//! `segments`: sends large TCP packets from one vhost-user device to another through a switch, and measures the
//! switch's CPU time. See `segments --help`.
//!
//! The devices touch no payload: packets to send are written in advance, and only header and length of received packets
//! are read. `memif-check` and the tests verify that content arrives unchanged.

use std::error::Error;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bench::cpu::process_time;
use clap::Parser;
use packet::offload::{Gso, Offload};
use packet::virtio_net;
use serde::Serialize;
use vhost_user::features::device;
use vhost_user::frontend::{Connection, DeviceConfig, HEADER_LEN, NetDevice};

/// Ethernet, IPv4 and TCP headers without options.
const HEADERS: usize = 14 + 20 + 20;
/// Segment size announced to a receiver that accepts unsegmented packets.
const MSS: u16 = 1448;
/// Number of packets published at once.
const BURST: usize = 16;

/// Sends large TCP packets from one vhost-user device to another, unsegmented.
///
/// Prints one JSON object. Exit codes: 0 packets arrived, 1 no packet arrived or the run failed, 2 wrong usage.
#[derive(Debug, Parser)]
#[command(name = "segments", version, max_term_width = 100)]
struct Cli {
    /// Socket of the switch port that receives the packets to forward.
    #[arg(long)]
    from: PathBuf,
    /// Socket of the switch port that delivers the packets.
    #[arg(long)]
    to: PathBuf,
    /// Make the sockets and wait for the switch to connect.
    #[arg(long)]
    listen: bool,
    /// Length of a packet in bytes; by default 45 segments, the size that Linux sends.
    #[arg(long, default_value_t = 65_214, value_parser = clap::value_parser!(u16).range(1500..))]
    size: u16,
    /// Size of a receive buffer in bytes; longer packets take several.
    #[arg(long, default_value_t = 65_600, value_parser = clap::value_parser!(u32).range(1500..=65_600))]
    buffer: u32,
    /// Seconds to measure, after one second of warm-up.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Process whose CPU time is measured: the switch.
    #[arg(long)]
    watch: u32,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    seconds: f64,
    packets: u64,
    bytes: u64,
    /// Packets that arrived unsegmented.
    uncut: u64,
    /// CPU time of the switch's process.
    cpu_seconds: f64,
}

/// Makes a TCP packet of `len` bytes with an offloaded checksum.
fn packet(len: usize) -> Vec<u8> {
    let mut packet = vec![0x5a; len];
    let ip_len = (len - 14) as u16;
    let tcp_len = u32::from(ip_len - 20);
    let mut headers = Vec::with_capacity(HEADERS);
    headers.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    let [h, l] = ip_len.to_be_bytes();
    headers.extend([0x45, 0, h, l, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = !fold(words(&headers[14..34]));
    headers[24..26].copy_from_slice(&sum.to_be_bytes());
    // Port 5001 to itself; sequence and acknowledgement; 5 words; ACK; a window.
    headers.extend([0x13, 0x89, 0x13, 0x89, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    // The sum of the pseudo-header (RFC 9293 §3.1), from which checksum completion continues.
    let pseudo = fold(words(&headers[26..34]) + 6 + tcp_len);
    headers[50..52].copy_from_slice(&pseudo.to_be_bytes());
    packet[..HEADERS].copy_from_slice(&headers);
    packet
}

fn words(bytes: &[u8]) -> u32 {
    bytes.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum()
}

fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

fn connect(socket: &Path, listen: bool, config: DeviceConfig) -> Result<NetDevice, Box<dyn Error>> {
    let failed = |error: &dyn Error| {
        let hint = if listen { "is it free?" } else { "does a vhost-user port of the switch listen there?" };
        format!("{}: {error}; {hint}", socket.display())
    };
    let dial = || match listen {
        true => Connection::new(UnixListener::bind(socket)?.accept()?.0.into()),
        false => Connection::dial(socket),
    };
    let connection = dial().map_err(|error| failed(&error))?;
    let mut device = NetDevice::start(connection, config).map_err(|error| failed(&error))?;
    for ring in 0..2 {
        if let Some(queue) = device.queue(ring) {
            // This client polls.
            queue.set_calls(false);
        }
    }
    Ok(device)
}

fn run(cli: &Cli) -> Result<Report, Box<dyn Error>> {
    let size = usize::from(cli.size);
    let large = device::VERSION_1 | device::PROTOCOL_FEATURES | device::CSUM | device::HOST_TSO4;
    let takes = device::GUEST_CSUM | device::GUEST_TSO4;
    let whole = cli.buffer as usize >= size + HEADER_LEN;
    let merged = if whole { 0 } else { device::MRG_RXBUF };
    let sender = DeviceConfig {
        features: large,
        pairs: 1,
        size: 256,
        send_buffers: 128,
        receive_buffers: 16,
        receive_buffer: 2048,
        pieces: 1,
    };
    let count = if whole { 128 } else { 4096 };
    let receiver = DeviceConfig {
        features: large | takes | merged,
        size: if whole { 256 } else { 4096 },
        send_buffers: 1,
        receive_buffers: count,
        receive_buffer: cli.buffer,
        ..sender
    };
    let each = (size + HEADER_LEN).div_ceil(cli.buffer as usize);
    let window = (usize::from(count) / each).min(96) as u64;
    let mut to = connect(&cli.to, cli.listen, receiver)?;
    let mut from = connect(&cli.from, cli.listen, sender)?;

    let offload = Offload {
        gso: Gso::Tcp4,
        needs_csum: true,
        gso_size: MSS,
        csum_start: 34,
        csum_offset: 16,
        hdr_len: HEADERS as u16,
        ..Offload::NONE
    };
    let header = virtio_net::encode(&offload, 0);
    from.prepare(0, &header, &packet(size))?;

    let begun = Instant::now();
    let (warm, whole_time) = (Duration::from_secs(1), Duration::from_secs_f64(1.0 + cli.seconds));
    let (mut sent, mut arrived, mut report) = (0u64, 0u64, Report::default());
    let mut measured: Option<(Instant, Duration)> = None;
    loop {
        let mut pushed = 0;
        while pushed < BURST && sent - arrived < window && from.push_prepared(0, size)? {
            (pushed, sent) = (pushed + 1, sent + 1);
        }
        if pushed > 0 {
            from.flush(0)?;
        }
        let mut popped = 0;
        while let Some((header, len)) = to.pop_length(0)? {
            (popped, arrived) = (popped + 1, arrived + 1);
            report.packets += 1;
            report.bytes += u64::from(len);
            report.uncut += u64::from(len as usize == size && header[1] == 1);
        }
        if popped > 0 {
            to.refill(0)?;
            continue;
        }
        let now = begun.elapsed();
        match measured {
            None if now >= warm => {
                measured = Some((Instant::now(), process_time(cli.watch)?));
                report = Report::default();
            }
            Some((since, cpu)) if now >= whole_time => {
                report.seconds = since.elapsed().as_secs_f64();
                report.cpu_seconds = (process_time(cli.watch)? - cpu).as_secs_f64();
                return Ok(report);
            }
            _ => std::hint::spin_loop(),
        }
    }
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(report) if report.packets > 0 => {
            println!("{}", serde_json::to_string(&report).unwrap_or_default());
            ExitCode::SUCCESS
        }
        Ok(_) => {
            eprintln!("segments: no packet arrived");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("segments: {error}");
            ExitCode::FAILURE
        }
    }
}
