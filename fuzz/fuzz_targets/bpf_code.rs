//! Lists of packet filters as machine code, against the interpreter and against libpcap's.
//!
//! Invariants:
//! - Machine code and interpreter agree on every packet, complete or not, from every entry, whatever the budget.
//! - libpcap's interpreter agrees where its result is defined: it does not clear scratch memory, leaves shifts by
//!   large constants to the C compiler, and rejects packets whose bytes are missing.
//! - Every valid list is compiled: none here is beyond the bounds.
#![no_main]

use bpf_jit::{Options, Packet, Verdict, compile, interpret};
use libfuzzer_sys::fuzz_target;
use libpcap::reference::Reference;
use packet::bpf::{Instruction, Program};

/// Codes of all instructions.
const CODES: [u16; 51] = [
    0x00, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x60, 0x80, 0x01, 0x61, 0x81, 0xb1, 0x02, 0x03, 0x04, 0x0c,
    0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x44, 0x4c, 0x54, 0x5c, 0x64, 0x6c, 0x74, 0x7c, 0x84, 0x94, 0x9c,
    0xa4, 0xac, 0x05, 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0x45, 0x4d, 0x06, 0x16, 0x07, 0x87, 0x28, 0x48,
];

/// Reads choices; 0 at their end.
struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A small number more often than a large one.
    fn number(&mut self) -> u32 {
        match self.byte() {
            small @ 0..=239 => small.into(),
            240..=247 => u32::from(self.byte()) << 8 | u32::from(self.byte()),
            248..=251 => u32::MAX - u32::from(self.byte()),
            _ => self.take(4).iter().fold(0, |number, byte| number << 8 | u32::from(*byte)),
        }
    }

    fn instruction(&mut self, left: u8) -> Instruction {
        let code = CODES[usize::from(self.byte()) % CODES.len()];
        let (jt, jf, k) = match code {
            0x05 => (0, 0, u32::from(self.byte() % (left + 1))),
            code if code & 7 == 5 => (self.byte() % (left + 1), self.byte() % (left + 1), self.number()),
            0x02 | 0x03 | 0x60 | 0x61 => (0, 0, u32::from(self.byte() % 16)),
            0x34 | 0x94 => (0, 0, self.number().max(1)),
            0x64 | 0x74 => (0, 0, u32::from(self.byte() % 32)),
            _ => (0, 0, self.number()),
        };
        Instruction { code, jt, jf, k }
    }

    /// A program of choices.
    fn program(&mut self) -> Vec<Instruction> {
        let count = self.byte() % 40;
        let mut code: Vec<_> = (0..count).rev().map(|left| self.instruction(left)).collect();
        code.push(Instruction {
            code: if self.byte().is_multiple_of(2) { 0x06 } else { 0x16 },
            jt: 0,
            jf: 0,
            k: 1,
        });
        code
    }

    /// A program of choices, or that of an expression.
    fn filter(&mut self) -> Option<Vec<Instruction>> {
        if self.byte() % 4 != 3 {
            return Some(self.program());
        }
        let count = usize::from(self.byte());
        let text = std::str::from_utf8(self.take(count)).ok()?;
        // Names would be looked up.
        let safe = |word: &str| {
            word.len() < 3 || word.starts_with(|c: char| c.is_ascii_digit()) || WORDS.contains(&word)
        };
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        if !words.clone().all(safe) {
            return None;
        }
        libpcap::compile(text).ok()
    }
}

/// Words of the language that name nothing.
const WORDS: [&str; 30] = [
    "tcp",
    "udp",
    "arp",
    "ip6",
    "icmp",
    "icmp6",
    "host",
    "net",
    "port",
    "portrange",
    "src",
    "dst",
    "and",
    "not",
    "vlan",
    "len",
    "less",
    "greater",
    "ether",
    "proto",
    "tcpflags",
    "tcp-syn",
    "tcp-ack",
    "multicast",
    "broadcast",
    "icmptype",
    "icmp-echo",
    "mask",
    "mpls",
    "sctp",
];

fn run(data: &[u8]) {
    let mut choices = Choices(data);
    let budget = match choices.byte() {
        all @ 200.. => usize::from(all) * 64,
        few => few.into(),
    };
    let count = 1 + choices.byte() % 4;
    let codes: Vec<_> = (0..count).filter_map(|_| choices.filter()).collect();
    let programs: Result<Vec<_>, _> = codes.iter().map(|code| Program::new(code)).collect();
    let Ok(programs) = programs else { return };
    if programs.is_empty() {
        return;
    }
    let entries: Vec<_> = (0..programs.len()).collect();
    let options = Options { budget, branchless: budget % 2 == 1, ..Options::default() };
    let code = compile(&programs, &entries, &options).unwrap_or_else(|error| panic!("{error}"));
    let packets: Vec<_> = (0..8)
        .map(|_| {
            let (len, more) = (choices.byte(), choices.byte());
            (choices.take(len.into()), u32::from(len) + u32::from(more.saturating_sub(200)))
        })
        .map(|(header, len)| (header.to_vec(), len.max(header.len() as u32)))
        .collect();

    let mut verdicts = vec![None; packets.len()];
    let records = packets.iter().map(|(header, len)| Packet::new(header, *len));
    code.run(records, |number, verdict| verdicts[number] = Some(verdict));
    for ((header, len), verdict) in packets.iter().zip(verdicts) {
        assert_eq!(verdict, interpret(&programs, 0, header, *len), "{header:?} of {len} bytes");
        for from in 0..=programs.len() {
            let verdict = code.run_one(Packet::new(header, *len), from);
            assert_eq!(
                verdict,
                interpret(&programs, from, header, *len),
                "{header:?} of {len} bytes, from {from}"
            );
        }
    }
    with_libpcap(&codes, &packets);
}

/// Compares single programs with libpcap.
fn with_libpcap(codes: &[Vec<Instruction>], packets: &[(Vec<u8>, u32)]) {
    for code in codes.iter().take(1) {
        let store = (0..16).map(|k| Instruction { code: 0x02, jt: 0, jf: 0, k });
        let code: Vec<_> = store.chain(code.iter().copied()).collect();
        let Some(theirs) = Reference::new(&code) else { continue };
        let Ok(ours) = Program::new(&code) else { continue };
        let ours = compile(&[ours], &[], &Options::default()).unwrap_or_else(|error| panic!("{error}"));
        for (header, len) in packets {
            let expected = match theirs.run(header, *len) {
                0 => None,
                result => Some(Verdict::Match(0, result)),
            };
            match ours.run_one(Packet::new(header, *len), 0) {
                Some(Verdict::NeedsMore(0)) => assert!(expected.is_none() && (header.len() as u32) < *len),
                verdict => assert_eq!(verdict, expected, "{header:?} of {len} bytes: {code:?}"),
            }
        }
    }
}

fuzz_target!(|data: &[u8]| run(data));
