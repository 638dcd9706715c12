//! The cost of inspecting payloads, beside reading the same bytes alone.
//!
//!     cargo run --release -p mswitch-inspect --example cost -- [ROUNDS]
//!
//! One TCP stream of packets of 60 and of 1,514 bytes goes through the logic, in batches of 64 as the fabric has them,
//! with lists of 1, 10 and 1,000 literals, none of which occurs. Payloads are random letters. *Reading* sums the bytes
//! of the same packets up, eight at a time. Both alternate in one process; for each, prints the median over the rounds
//! of nanoseconds per packet, the bytes per second, and the ratio of the logic to reading.

use std::error::Error;
use std::hint::black_box;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use fabric::fuzzing::{Bridge, Steps};
use fabric::rx::BatchLimits;
use fabric::worker::Threads;
use fabric::{Fault, PortIndex, RxBatch, RxQueue, SwitchLogic, Tools};
use inspect::Inspect;
use packet::Offload;

const BATCH: usize = 64;

/// A queue whose frames are in memory of its own.
struct Frames<'a>(&'a [Vec<u8>]);

impl RxQueue for Frames<'_> {
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        for frame in self.0 {
            // SAFETY: the frames outlive the batch's use of them.
            unsafe { batch.add_segment(std::ptr::NonNull::from(&frame[..]).cast(), frame.len() as u32)? };
            batch.end_packet(Offload::NONE);
        }
        Ok(())
    }

    fn complete(&mut self, _: &mut Tools) -> Result<(), Fault> {
        Ok(())
    }

    fn set_signalled(&mut self, _: bool) {}

    fn signal(&self) -> BorrowedFd<'_> {
        unreachable!("nobody sleeps here")
    }

    fn cheap_to_poll(&self) -> bool {
        true
    }
}

/// Segments of one stream, in order.
fn frames(len: usize, seed: &mut u64) -> Vec<Vec<u8>> {
    let payload = len - 54;
    let mut letter = || {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        b'a' + (*seed >> 33) as u8 % 26
    };
    let frame = |number: usize| {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
        frame.extend((40 + payload as u16).to_be_bytes());
        frame.extend([0, 7, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x9c, 0x40, 0, 80]);
        frame.extend(((number * payload) as u32).to_be_bytes());
        frame.extend([0, 0, 0, 0, 0x50, 16, 1, 0, 0, 0, 0, 0]);
        frame.extend((0..payload).map(|_| letter()));
        frame
    };
    (0..BATCH).map(frame).collect()
}

/// Moves the segments of a batch on by its length, so that they follow the last ones.
fn advance(frames: &mut [Vec<u8>], payload: usize) {
    for frame in frames {
        let place = &mut frame[38..42];
        let seq = u32::from_be_bytes([place[0], place[1], place[2], place[3]]);
        place.copy_from_slice(&seq.wrapping_add((BATCH * payload) as u32).to_be_bytes());
    }
}

fn read(frames: &[Vec<u8>]) -> u64 {
    let sum = |frame: &Vec<u8>| {
        let (words, rest) = frame.as_chunks::<8>();
        let words = words.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
        rest.iter().fold(words, |sum, byte| sum.wrapping_add(u64::from(*byte)))
    };
    frames.iter().fold(0, |all, frame| all.wrapping_add(sum(frame)))
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let rounds = std::env::args().nth(1).map_or(Ok(1001), |rounds| rounds.parse())?;
    println!(
        "{:>8} {:>6} {:>12} {:>10} {:>10} {:>8} {:>7}",
        "literals", "bytes", "table", "ns/packet", "reading", "GB/s", "ratio"
    );
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    for literals in [1, 10, 1000] {
        for len in [60, 1514] {
            // Words that begin as the payload's letters do.
            let word = |number: usize| {
                let letters: String =
                    (0..7).map(|i| (b'a' + (number * 31 / 7usize.pow(i) % 26) as u8) as char).collect();
                (format!("{}", number + 1), format!("tcp /{letters}{number}/ -> drop"))
            };
            let path = std::env::temp_dir().join(format!("mswitch-cost-{}", std::process::id()));
            let lines: String = (0..literals).map(|number| word(number).1 + "\n").collect();
            std::fs::write(&path, lines)?;
            let logic = Inspect::new(&[("file".into(), path.display().to_string())]);
            std::fs::remove_file(&path)?;
            let logic = logic?;
            logic.prepare(Threads::of(1))?;
            let bridge = Bridge::new(logic::build("hub", &[], &[])?, vec![port("a"), port("b")]);
            let mut steps = Steps::new(BatchLimits { packets: BATCH, bytes: 128 << 10 })?;
            let mut frames = frames(len, &mut seed);
            let (mut own, mut reading) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                advance(&mut frames, len - 54);
                steps.receive(&mut Frames(&frames)).map_err(|fault| fault.to_string())?;
                steps.load();
                let start = Instant::now();
                steps.ask(&bridge, PortIndex(0), &logic);
                own.push(start.elapsed().as_secs_f64());
                let start = Instant::now();
                black_box(read(black_box(&frames)));
                reading.push(start.elapsed().as_secs_f64());
            }
            let counters = logic::Logic::counters(&logic);
            let counter = |name: &str| {
                counters.iter().find(|counter| counter.name == name).map_or(0, |found| found.value)
            };
            assert_eq!(counter("scanned_packets"), (BATCH * rounds) as u64);
            assert_eq!(counter("gaps") + counter("retransmitted"), 0);
            let [own, reading] =
                [median(&mut own), median(&mut reading)].map(|time| time / BATCH as f64 * 1e9);
            println!(
                "{literals:>8} {len:>6} {:>8} KiB {own:>10.1} {reading:>10.1} {:>8.2} {:>7.1}",
                counter("pattern_bytes") >> 10,
                len as f64 / own,
                own / reading
            );
        }
    }
    Ok(())
}

fn port(name: &str) -> fabric::fuzzing::Port {
    fabric::fuzzing::Port {
        up: true,
        settings: fabric::PortSettings::new(name),
        tx: Vec::new(),
        caps: fabric::Caps::default(),
        max_frame: 65_535,
    }
}
