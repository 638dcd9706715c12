//! The cost of packet filters: machine code against libpcap's interpreter, interleaved in one process.
//!
//!     cargo run --release -p mswitch-bpf-jit --example filters -- [ROUNDS] [--branches]
//!
//! Ten expressions of real use, each alone and all in a list, and one that looks at nothing but a packet's length and
//! keeps none, over a mix of frames in random order.
//! Both get the same packets, whose headers are in the cache: libpcap's `bpf_filter` one by one, as every program that
//! links it calls it; machine code in batches of 64, as the fabric has them. `--branches`: short lists with branches,
//! too. For each, prints the median over the rounds of nanoseconds per packet, and the median and the quartiles of the
//! rounds' ratios. `bench/filters.sh` runs it on one core.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use bpf_jit::{Code, Options, Packet, Verdict, compile};
use libpcap::reference::Reference;
use packet::bpf::Program;

mod frames;

use frames::COMMON;

/// Keeps no packet, by its length: the rest is the record of a packet and the loop, which no filter does without.
const NOTHING: &str = "less 1";

/// Different frames: with their headers in the cache, as those of a batch are.
const FRAMES: usize = 512;

/// Packets, in an order that is too long for the processor to remember.
const PACKETS: usize = 1 << 16;

/// Packets in a sample: so few that it is seldom interrupted.
const SAMPLE: usize = 1 << 11;

fn main() -> Result<(), Box<dyn Error>> {
    let rounds = std::env::args().nth(1).map_or(Ok(501), |rounds| rounds.parse())?;
    let branchless = std::env::args().nth(2).is_none_or(|option| option != "--branches");
    let options = Options { branchless, ..Options::default() };
    let frames: Vec<_> = frames::mix(FRAMES).iter().map(|frame| Received::new(frame)).collect();
    let frames: Vec<_> = frames::order(PACKETS, FRAMES).map(|number| &frames[number]).collect();
    let (mut filters, mut programs) = (Vec::new(), Vec::new());
    for expression in COMMON.iter().chain(&[NOTHING]) {
        let code = libpcap::compile(expression).map_err(|error| error.reason)?;
        filters.push(Reference::new(&code).ok_or("libpcap's code is wrong")?);
        programs.push(Program::new(&code)?);
    }
    println!(
        "{:46} {:>5} {:>6} {:>8} {:>8}   ratio (quartiles)",
        "expression", "kept", "bytes", "libpcap", "code"
    );
    for (i, expression) in COMMON.iter().enumerate() {
        measure(expression, &filters[i..=i], &programs[i..=i], &frames, rounds, &options)?;
    }
    let ten = ..COMMON.len();
    measure(
        "all ten, the first that keeps a packet",
        &filters[ten],
        &programs[ten],
        &frames,
        rounds,
        &options,
    )?;
    let nothing = COMMON.len()..;
    measure(NOTHING, &filters[nothing.clone()], &programs[nothing], &frames, rounds, &options)
}

/// A packet as a logic sees it: the private copy of its first bytes, and its length.
struct Received {
    bytes: [u8; 128],
    len: u32,
}

impl Received {
    fn new(frame: &[u8]) -> Self {
        let mut bytes = [0; 128];
        let header = frame.len().min(bytes.len());
        bytes[..header].copy_from_slice(&frame[..header]);
        Self { bytes, len: frame.len() as u32 }
    }

    fn header(&self) -> &[u8] {
        &self.bytes[..self.bytes.len().min(self.len as usize)]
    }
}

fn measure(
    name: &str,
    filters: &[Reference],
    programs: &[Program],
    frames: &[&Received],
    rounds: usize,
    options: &Options,
) -> Result<(), Box<dyn Error>> {
    let code = compile(programs, &[], options)?;
    let kept = with_libpcap(filters, frames);
    assert_eq!(kept, with_code(&code, frames), "{name}");
    let mut samples = Vec::new();
    for frames in frames.chunks(SAMPLE).cycle().take(rounds) {
        let theirs = time(|| with_libpcap(filters, frames));
        let ours = time(|| with_code(&code, frames));
        samples.push((theirs, ours, theirs / ours));
    }
    let ratios = sorted(samples.iter().map(|sample| sample.2));
    println!(
        "{name:46} {:4.0}% {:6} {:8.2} {:8.2}   {:5.1} ({:.1}, {:.1})",
        kept.0 as f64 * 100.0 / frames.len() as f64,
        code.len(),
        median(&sorted(samples.iter().map(|sample| sample.0))),
        median(&sorted(samples.iter().map(|sample| sample.1))),
        median(&ratios),
        ratios[ratios.len() / 4],
        ratios[ratios.len() * 3 / 4],
    );
    Ok(())
}

/// Nanoseconds per packet.
fn time(mut run: impl FnMut() -> (usize, usize)) -> f64 {
    let start = Instant::now();
    black_box(run());
    start.elapsed().as_secs_f64() * 1e9 / SAMPLE as f64
}

/// Packets that a filter keeps, and the sum of the numbers of the filters that keep them.
fn with_libpcap(filters: &[Reference], frames: &[&Received]) -> (usize, usize) {
    let (mut kept, mut sum) = (0, 0);
    for frame in black_box(frames) {
        let keeps = |filter: &Reference| filter.run(frame.header(), frame.len) != 0;
        if let Some(index) = filters.iter().position(keeps) {
            kept += 1;
            sum += index;
        }
    }
    (kept, sum)
}

fn with_code(code: &Code, frames: &[&Received]) -> (usize, usize) {
    let (mut kept, mut sum) = (0, 0);
    for frames in black_box(frames).chunks(64) {
        code.run(frames.iter().map(|frame| Packet::new(frame.header(), frame.len)), |_, verdict| {
            if let Verdict::Match(index, _) = verdict {
                kept += 1;
                sum += index;
            }
        });
    }
    (kept, sum)
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}
