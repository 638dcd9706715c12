//! Machine code against the interpreter and against libpcap's, on programs that no compiler emits.

use bpf_jit::{Options, Packet, Verdict, compile, interpret};
use libpcap::reference::Reference;
use packet::bpf::{Instruction, Program};
use proptest::prelude::*;

/// Valid instructions with plausible operands, and jumps of at most `left`.
fn plausible(left: u8) -> impl Strategy<Value = Instruction> {
    let codes = [
        0x00, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x60, 0x80, 0x01, 0x61, 0x81, 0xb1, 0x02, 0x03, 0x04, 0x0c,
        0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x44, 0x4c, 0x54, 0x5c, 0x64, 0x6c, 0x74, 0x7c, 0x84, 0x94, 0x9c,
        0xa4, 0xac, 0x05, 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0x45, 0x4d, 0x06, 0x16, 0x07, 0x87,
    ];
    let operand = prop_oneof![
        20 => 1u32..16,
        2 => 16u32..300,
        1 => prop_oneof![Just(u32::MAX), Just(u32::MAX - 3), Just(1u32 << 31), Just((1 << 31) - 1), any::<u32>()],
    ];
    (proptest::sample::select(codes.to_vec()), 0..=left, 0..=left, operand).prop_map(
        move |(code, jt, jf, k)| {
            let k = match code {
                0x05 => k.min(left.into()),
                0x02 | 0x03 | 0x60 | 0x61 => k % 16,
                0x34 | 0x94 => k.max(1),
                // libpcap leaves to the C compiler what a shift by a larger constant gives.
                0x64 | 0x74 => k % 32,
                _ => k,
            };
            Instruction { code, jt, jf, k }
        },
    )
}

/// A program of up to 30 instructions and its end.
fn code() -> impl Strategy<Value = Vec<Instruction>> {
    let end = Instruction { code: 0x16, jt: 0, jf: 0, k: 0 };
    (1u8..30)
        .prop_flat_map(|n| (0..n).rev().map(plausible).collect::<Vec<_>>())
        .prop_map(move |code| code.into_iter().chain([end]).collect())
}

/// A header and the bytes of the packet behind it.
fn packets() -> impl Strategy<Value = Vec<(Vec<u8>, u32, u32)>> {
    let byte = prop_oneof![3 => 0u8..8, 1 => any::<u8>()];
    let header = proptest::collection::vec(byte, 0..90);
    proptest::collection::vec((header, prop_oneof![2 => Just(0u32), 1 => 0u32..50], 0u32..4), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn machine_code_gives_the_same_verdict(
        codes in proptest::collection::vec(code(), 1..4),
        packets in packets(),
        budget in prop_oneof![Just(0usize), 0usize..60, Just(8192)],
        branchless in any::<bool>(),
    ) {
        let programs: Vec<_> = codes.iter().map(|code| Program::new(code).unwrap()).collect();
        let entries: Vec<_> = (0..programs.len()).collect();
        let first = |from: &u32| *from as usize % programs.len();
        let options = Options { budget, branchless, ..Options::default() };
        let compiled = compile(&programs, &entries, &options).unwrap();
        let whole = |(header, more): (&Vec<u8>, &u32)| header.len() as u32 + more;
        let mut verdicts = vec![None; packets.len()];
        let records = packets.iter().map(|(header, more, _)| Packet::new(header, whole((header, more))));
        compiled.run(records, |number, verdict| verdicts[number] = Some(verdict));
        for ((header, more, from), verdict) in packets.iter().zip(verdicts) {
            let (from, len) = (first(from), whole((header, more)));
            prop_assert_eq!(verdict, interpret(&programs, 0, header, len), "{:?}", header);
            prop_assert_eq!(compiled.run_one(Packet::new(header, len), programs.len()), None);
            let later = compiled.run_one(Packet::new(header, len), from);
            prop_assert_eq!(later, interpret(&programs, from, header, len), "{:?}", header);
        }
    }

    #[test]
    fn a_single_program_gives_libpcaps_verdict(code in code(), packets in packets()) {
        // libpcap does not clear its scratch memory.
        let store = (0..16).map(|k| Instruction { code: 0x02, jt: 0, jf: 0, k });
        let code: Vec<_> = store.chain(code).collect();
        let theirs = Reference::new(&code).unwrap();
        let ours = compile(&[Program::new(&code).unwrap()], &[], &Options::default()).unwrap();
        for (header, more, _) in &packets {
            let len = header.len() as u32 + more;
            let expected = match theirs.run(header, len) {
                0 => None,
                result => Some(Verdict::Match(0, result)),
            };
            match ours.run_one(Packet::new(header, len), 0) {
                // libpcap rejects packets whose bytes are missing.
                Some(Verdict::NeedsMore(0)) => prop_assert!(expected.is_none() && *more > 0),
                verdict => prop_assert_eq!(verdict, expected, "{:?}", header),
            }
        }
    }
}
