//! `floor`: the minimal work of a switch between two memif clients, as a yardstick. See `floor --help`.
//!
//! The loop checks descriptors against the bounds of their regions, copies headers to private memory, learns and looks
//! up MAC addresses in one flat table, copies payloads, publishes up to 64 packets at once, and rings the doorbell of a
//! client that asks for it. It counts packets, batches and busy cycles, and does nothing else: any fault stops it, it
//! has no counters per port, and a packet in several buffers ends it.
//!
//! Invariant: both ports stay mapped as long as the loop runs, which is until the process ends.

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, mpsc};
use std::thread;

use clap::Parser;
use memif::server::{Interface, Limits, Refusal, Session, Step};
use memif::socket::{self, Address, ClientFd, Closer, Listener};
use memif::{Connection, Memory, Ring, RingParts};
use rustix::event::{PollFd, PollFlags, poll};
use serde::Serialize;

/// Measures the minimal work between two memif clients: serves two sockets, one client each.
///
/// For each line on standard input, prints the totals so far as one JSON object; ends with standard input.
#[derive(Debug, Parser)]
#[command(name = "floor", version, max_term_width = 100)]
struct Cli {
    /// Socket of the first client.
    a: PathBuf,
    /// Socket of the second client.
    b: PathBuf,
    /// CPU that the loop runs on.
    #[arg(long, default_value_t = 0)]
    cpu: usize,
}

/// Maximum number of packets taken at once.
const BATCH: usize = 64;
/// Length of a private header in bytes.
const HEADER: usize = 128;
/// Entries of the forwarding table, as a power of two.
const LOG2_TABLE: u32 = 10;
/// Number of region views: region numbers are masked to a byte, so the table needs no bounds check.
const REGIONS: usize = 256;

/// Totals of the loop. Only the loop writes them, once per batch.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Totals {
    packets: AtomicU64,
    batches: AtomicU64,
    busy_cycles: AtomicU64,
}

static TOTALS: Totals =
    Totals { packets: AtomicU64::new(0), batches: AtomicU64::new(0), busy_cycles: AtomicU64::new(0) };

/// Totals in their printed form.
#[derive(Debug, Serialize)]
struct Report {
    seconds: f64,
    packets: u64,
    batches: u64,
    busy_cycles: u64,
    elapsed_cycles: u64,
}

/// Reasons for the loop's end.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error("a descriptor lies outside its region")]
    OutOfBounds,
    #[error("a packet in several buffers")]
    Chained,
    #[error("a packet of {0} bytes for a buffer of {1}")]
    TooLong(u32, u32),
}

/// A region as the loop uses it. Regions that a client does not have are empty.
#[derive(Debug, Clone, Copy)]
struct View {
    base: *mut u8,
    len: u64,
}

/// A ring and the next slot to take from, or to fill.
struct Queue {
    ring: Ring,
    eventfd: OwnedFd,
    next: u16,
}

impl From<RingParts> for Queue {
    fn from(RingParts { ring, eventfd }: RingParts) -> Self {
        Self { ring, eventfd, next: 0 }
    }
}

/// A connected client.
struct Port {
    /// Rings from the client; at least one.
    inputs: Vec<Queue>,
    /// Rings to the client; at least one.
    outputs: Vec<Queue>,
    views: Views,
}

impl Port {
    fn new(connection: Connection) -> Result<Self, Box<dyn Error>> {
        let queues = |rings: Vec<RingParts>| rings.into_iter().map(Queue::from).collect::<Vec<_>>();
        let views = Views::new(connection.memory);
        let (inputs, outputs) = (queues(connection.s2m), queues(connection.m2s));
        if inputs.is_empty() || outputs.is_empty() {
            return Err("the client has no ring in one direction".into());
        }
        Ok(Self { inputs, outputs, views })
    }
}

/// A client's regions as a flat table.
struct Views {
    table: [View; REGIONS],
    /// Keeps the regions mapped.
    _memory: Arc<Memory>,
}

// SAFETY: the pointers refer to regions that `_memory` keeps mapped, and mappings belong to no thread.
unsafe impl Send for Views {}

impl Views {
    fn new(memory: Arc<Memory>) -> Self {
        let mut table = [View { base: std::ptr::null_mut(), len: 0 }; REGIONS];
        for (view, region) in table.iter_mut().zip(memory.regions()) {
            *view = View { base: region.base().as_ptr(), len: region.len() };
        }
        Self { table, _memory: memory }
    }

    /// Returns the address of `len` bytes at `offset` of a region, if they lie within it.
    #[inline(always)]
    fn at(&self, region: u16, offset: u32, len: u32) -> Option<*mut u8> {
        let view = &self.table[usize::from(region as u8)];
        if u64::from(offset) + u64::from(len) > view.len {
            return None;
        }
        // SAFETY: the offset is within the region, which is mapped.
        Some(unsafe { view.base.add(offset as usize) })
    }
}

/// Private memory of the loop.
#[repr(align(64))]
struct Private {
    headers: [[u8; HEADER]; BATCH],
    sources: [*const u8; BATCH],
    lengths: [u32; BATCH],
    /// Whether each packet goes to the other port, not back.
    across: [bool; BATCH],
    /// Forwarding table: address, valid bit, port.
    table: [u64; 1 << LOG2_TABLE],
}

/// Returns the six bytes at `at` as a number.
#[inline(always)]
fn address(header: &[u8; HEADER], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&header[at..at + 8]);
    u64::from_le_bytes(bytes) & 0xffff_ffff_ffff
}

#[inline(always)]
fn slot(address: u64) -> usize {
    (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - LOG2_TABLE)) as usize
}

/// Copies 64 bytes.
///
/// # Safety
/// `from` is readable and `to` writable for 64 bytes.
#[inline(always)]
unsafe fn copy_line(from: *const u8, to: *mut u8) {
    // SAFETY: guaranteed by the caller.
    unsafe { to.cast::<[u8; 64]>().write_unaligned(from.cast::<[u8; 64]>().read_unaligned()) }
}

/// Copies `n` bytes; 33 to 128 of them with two moves that may overlap. It is not inlined, so that its register use
/// does not affect loops over packets of 64 bytes.
///
/// # Safety
/// `from` is readable and `to` writable for `n` bytes.
#[inline(never)]
unsafe fn copy(from: *const u8, to: *mut u8, n: usize) {
    #[inline(always)]
    unsafe fn ends<const N: usize>(from: *const u8, to: *mut u8, n: usize) {
        // SAFETY: N <= n, so the first and the last N bytes are within the caller's n.
        unsafe {
            let first = from.cast::<[u8; N]>().read_unaligned();
            let last = from.add(n - N).cast::<[u8; N]>().read_unaligned();
            to.cast::<[u8; N]>().write_unaligned(first);
            to.add(n - N).cast::<[u8; N]>().write_unaligned(last);
        }
    }
    // SAFETY: each arm copies N <= n bytes at either end, or exactly n.
    unsafe {
        match n {
            65..=128 => ends::<64>(from, to, n),
            33..=64 => ends::<32>(from, to, n),
            // A client's memory may overlap with itself.
            _ => std::ptr::copy(from, to, n),
        }
    }
}

#[inline(always)]
fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint and does not fault, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Reads the time-stamp counter.
#[inline(always)]
fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: RDTSC has no preconditions; Linux leaves it enabled for user space.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    compile_error!("the floor is measured in TSC cycles")
}

/// Takes a batch from a queue of port `from` and delivers it to the other port; returns the number of packets.
#[inline(always)]
fn turn(ports: &mut [Port; 2], from: usize, queue: usize, private: &mut Private) -> Result<usize, Stopped> {
    let [first, second] = ports;
    let (port, peer) = if from == 0 { (first, second) } else { (second, first) };
    let input = &mut port.inputs[queue];
    let n = usize::from(input.ring.head().wrapping_sub(input.next)).min(BATCH);
    if n == 0 {
        return Ok(0);
    }
    let next = input.next;
    for k in 0..n {
        let descriptor = input.ring.desc(next.wrapping_add(k as u16));
        if descriptor.has_next() {
            return Err(Stopped::Chained);
        }
        let at = port.views.at(descriptor.region, descriptor.offset, descriptor.length);
        let at = at.ok_or(Stopped::OutOfBounds)?;
        prefetch(at);
        private.sources[k] = at;
        private.lengths[k] = descriptor.length;
    }
    for k in 0..n {
        let len = private.lengths[k] as usize;
        let header = private.headers[k].as_mut_ptr();
        // SAFETY: the source's `len` bytes lie within its region, and the header has room for all copied bytes.
        unsafe {
            match len {
                64 => copy_line(private.sources[k], header),
                _ => copy(private.sources[k], header, len.min(HEADER)),
            }
        }
    }
    for k in 0..n {
        let header = &private.headers[k];
        let (to, of) = (address(header, 0), address(header, 6));
        let entry = of << 16 | 0x8000 | from as u64;
        let learned = &mut private.table[slot(of)];
        if *learned != entry {
            *learned = entry;
        }
        let found = private.table[slot(to)];
        private.across[k] = found >> 16 != to || found & 1 != from as u64;
    }
    let last = peer.outputs.len() - 1;
    let output = &mut peer.outputs[queue.min(last)];
    let next = output.next;
    let room = output.ring.head().wrapping_sub(next);
    let mut filled = 0;
    for k in 0..n {
        if !private.across[k] || filled == room {
            continue;
        }
        let index = next.wrapping_add(filled);
        let buffer = output.ring.desc(index);
        let len = private.lengths[k];
        if len > buffer.length {
            return Err(Stopped::TooLong(len, buffer.length));
        }
        let to = peer.views.at(buffer.region, buffer.offset, len).ok_or(Stopped::OutOfBounds)?;
        let header = private.headers[k].as_ptr();
        // SAFETY: the buffer's `len` bytes lie within its region, as do the source's; the header has the first `HEADER`
        // of them.
        unsafe {
            match len as usize {
                64 => copy_line(header, to),
                len @ ..HEADER => copy(header, to, len),
                len => {
                    copy(header, to, HEADER);
                    copy(private.sources[k].add(HEADER), to.add(HEADER), len - HEADER);
                }
            }
        }
        output.ring.set_used(index, len, false);
        filled += 1;
    }
    output.next = next.wrapping_add(filled);
    output.ring.set_tail(output.next);
    input.next = input.next.wrapping_add(n as u16);
    input.ring.set_tail(input.next);
    // The client unmasks and then reads the tail; this side publishes the tail before it reads the mask.
    fence(Ordering::SeqCst);
    if !output.ring.interrupts_masked() {
        ring_doorbell(output);
    }
    Ok(n)
}

/// Wakes a client that asks for it.
#[cold]
#[inline(never)]
fn ring_doorbell(output: &Queue) {
    // Fails when the counter is full; the client then has wake-ups pending.
    let _ = rustix::io::write(&output.eventfd, &1u64.to_ne_bytes());
}

#[inline(always)]
fn run_on(mut ports: [Port; 2]) -> Stopped {
    let mut private = Box::new(Private {
        headers: [[0; HEADER]; BATCH],
        sources: [std::ptr::null(); BATCH],
        lengths: [0; BATCH],
        across: [false; BATCH],
        table: [0; 1 << LOG2_TABLE],
    });
    let (mut packets, mut batches, mut busy) = (0, 0, 0);
    loop {
        for from in 0..2 {
            for queue in 0..ports[from].inputs.len() {
                let start = cycles();
                match turn(&mut ports, from, queue, &mut private) {
                    Ok(0) => {}
                    Ok(n) => {
                        packets += n as u64;
                        batches += 1;
                        TOTALS.packets.store(packets, Ordering::Relaxed);
                        TOTALS.batches.store(batches, Ordering::Relaxed);
                        busy += cycles().wrapping_sub(start);
                        TOTALS.busy_cycles.store(busy, Ordering::Relaxed);
                    }
                    Err(stopped) => return stopped,
                }
            }
        }
    }
}

/// The loop with the instructions of x86-64-v4.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,avx512f,avx512bw,avx512vl,avx512dq,avx512cd")]
fn run_v4(ports: [Port; 2]) -> Stopped {
    run_on(ports)
}

/// The loop with the instructions of x86-64-v3.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2")]
fn run_v3(ports: [Port; 2]) -> Stopped {
    run_on(ports)
}

fn run(ports: [Port; 2]) -> Stopped {
    #[cfg(target_arch = "x86_64")]
    {
        let v3 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2");
        let v4 = v3
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512cd");
        if v4 {
            // SAFETY: the CPU has all features that the function is compiled for.
            return unsafe { run_v4(ports) };
        }
        if v3 {
            // SAFETY: the CPU has all features that the function is compiled for.
            return unsafe { run_v3(ports) };
        }
    }
    run_on(ports)
}

/// Waits until a descriptor is readable.
fn readable(fd: impl AsFd) -> io::Result<()> {
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], None)?;
    Ok(())
}

/// Waits for a client and performs the handshake. The control socket must stay open.
fn serve(listener: &Listener) -> Result<(Port, ClientFd), Box<dyn Error>> {
    let control = loop {
        match listener.accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => readable(listener)?,
            accepted => break accepted?,
        }
    };
    let mut session = Session::new(Limits::default(), "floor");
    socket::send(control.as_fd(), &session.hello(), None)?;
    let lookup = |_| Ok::<_, Refusal>(Interface { name: "floor".into(), secret: None });
    loop {
        let received = match socket::recv(control.as_fd(), &Closer::default()) {
            Err(error) if error.would_block() => {
                readable(&control)?;
                continue;
            }
            received => received?,
        };
        let (message, fd) = received.ok_or("the client disconnected during the handshake")?;
        match session.handle(message, fd, &lookup)? {
            Step::Reply(reply) => socket::send(control.as_fd(), &reply, None)?,
            Step::Connected { reply, connection } => {
                socket::send(control.as_fd(), &reply, None)?;
                return Ok((Port::new(connection)?, control));
            }
            Step::PeerDisconnected(reason) => return Err(format!("the client disconnected: {reason}").into()),
        }
    }
}

fn start(cli: &Cli) -> Result<(), Box<dyn Error>> {
    let listen = |path: &PathBuf| Listener::bind(&Address::Path(path.clone()));
    let (a, b) = (listen(&cli.a)?, listen(&cli.b)?);
    let mut cpu = rustix::thread::CpuSet::new();
    cpu.set(cli.cpu);
    let (send_error, errors) = mpsc::channel();
    thread::spawn(move || {
        let result = (|| {
            let (first, _first_control) = serve(&a)?;
            let (second, _second_control) = serve(&b)?;
            rustix::thread::sched_setaffinity(None, &cpu)?;
            Err::<(), Box<dyn Error>>(run([first, second]).into())
        })();
        let _ = send_error.send(result.map_err(|error| error.to_string()));
    });
    let (started, started_cycles) = (std::time::Instant::now(), cycles());
    for line in io::stdin().lock().lines() {
        line?;
        if let Ok(result) = errors.try_recv() {
            result?;
        }
        let report = Report {
            seconds: started.elapsed().as_secs_f64(),
            packets: TOTALS.packets.load(Ordering::Relaxed),
            batches: TOTALS.batches.load(Ordering::Relaxed),
            busy_cycles: TOTALS.busy_cycles.load(Ordering::Relaxed),
            elapsed_cycles: cycles().wrapping_sub(started_cycles),
        };
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, &report)?;
        writeln!(out)?;
        out.flush()?;
    }
    Ok(())
}

fn main() -> ExitCode {
    match start(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("floor: {error}");
            ExitCode::FAILURE
        }
    }
}
