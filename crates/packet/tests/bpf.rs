//! Runs the filter machine on generated code. `mswitch capture`, which compiles filters with libpcap, has the tests
//! that compare this machine with libpcap's own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use packet::bpf::{Instruction, Program};
use proptest::prelude::*;

fn instruction() -> impl Strategy<Value = Instruction> {
    let code = prop_oneof![4 => 0u16..0x100, 1 => any::<u16>()];
    let k = prop_oneof![3 => 0u32..40, 1 => any::<u32>()];
    (code, 0u8..12, 0u8..12, k).prop_map(|(code, jt, jf, k)| Instruction { code, jt, jf, k })
}

/// Instructions that exist, with plausible operands and jumps of at most `left`.
fn plausible(left: u8) -> impl Strategy<Value = Instruction> {
    let codes = [
        0x00, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x60, 0x80, 0x01, 0x61, 0x81, 0xb1, 0x02, 0x03, 0x04, 0x0c,
        0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x44, 0x4c, 0x54, 0x5c, 0x64, 0x6c, 0x74, 0x7c, 0x84, 0x94, 0x9c,
        0xa4, 0xac, 0x05, 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0x45, 0x4d, 0x06, 0x16, 0x07, 0x87,
    ];
    (proptest::sample::select(codes.to_vec()), 0..=left, 0..=left, 1u32..16).prop_map(
        move |(code, jt, jf, k)| {
            let k = if code == 0x05 { k.min(left.into()) } else { k };
            Instruction { code, jt, jf, k }
        },
    )
}

fn ended(mut code: Vec<Instruction>) -> Vec<Instruction> {
    code.push(Instruction { code: 0x16, ..Instruction::default() });
    code
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Arbitrary code is refused, or it terminates on any packet.
    #[test]
    fn arbitrary_code_is_refused_or_terminates(
        code in proptest::collection::vec(instruction(), 0..60),
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
        longer in 0u32..100,
    ) {
        if let Ok(program) = Program::new(&ended(code)) {
            let _ = program.run(&bytes, bytes.len() as u32 + longer);
        }
    }

    /// Valid code is accepted and terminates.
    #[test]
    fn valid_code_is_accepted_and_terminates(
        code in (0u8..40).prop_flat_map(|n| (0..n).rev().map(plausible).collect::<Vec<_>>()),
        bytes in proptest::collection::vec(any::<u8>(), 0..40),
        longer in 0u32..100,
    ) {
        let program = Program::new(&ended(code)).unwrap();
        let len = bytes.len() as u32;
        let whole = program.run(&bytes, len);
        prop_assert!(whole.is_ok(), "a whole packet always has a verdict");
        let _ = program.run(&bytes, len + longer);
    }
}
