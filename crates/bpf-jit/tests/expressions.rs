//! Machine code against the interpreter on expressions, alone and in lists, and on frames that they keep and reject.

use bpf_jit::{Options, Packet, compile, interpret};
use packet::bpf::Program;

#[expect(dead_code, reason = "the benchmark's order of frames does not matter here")]
#[path = "../examples/filters/frames.rs"]
mod frames;

/// Expressions that, with the common ones, make libpcap emit every kind of instruction.
const OTHERS: [&str; 20] = [
    "dst portrange 50-100",
    "ip6 host fd00::7",
    "ether src 02:00:00:00:00:04 and not ip",
    "vlan 8 and tcp port 80",
    "ip[6:2] & 0x1fff != 0",
    "ip[0] & 0xf > 5",
    "greater 100",
    "less 64",
    "len > 70 and len - 14 < 200",
    "ether[12:2] = 0x0800 and ether[0] & 1 = 0",
    "ip6[6] = 17 and ip6[40:2] = 53",
    "(len * 3 + 1) / 2 & 7 = 1 or len ^ 60 = 2",
    "tcp[((tcp[12] & 0xf0) >> 2):4] = 0",
    "ip[2:2] << 2 > 400 and -1 != ip[1]",
    "ether[14:4] ^ 0x45000000 < 0x10000",
    "arp[6:2] = 1 and arp host 10.0.0.7",
    "udp[200] = 0",
    "ip proto 47 or ip6 proto 47",
    "tcp src port 443 and tcp[13] & 0x10 != 0 and ip[8] > 10",
    "len >= 0",
];

#[test]
fn machine_code_keeps_what_the_interpreter_keeps() {
    let mut frames = frames::mix(800);
    // IPv4 headers with options, and frames that end early.
    for (number, frame) in frames.iter_mut().enumerate() {
        match number % 4 {
            0 if frame[12..14] == [8, 0] => frame[14] = 0x45 + (number / 4 % 11) as u8,
            1 => frame.truncate(number / 4 % 80),
            _ => {}
        }
    }
    let expressions: Vec<&str> = frames::COMMON.into_iter().chain(OTHERS).collect();
    let program = |expression: &&str| Program::new(&libpcap::compile(expression).unwrap()).unwrap();
    let programs: Vec<_> = expressions.iter().map(program).collect();
    let lists =
        (0..programs.len()).map(|i| i..i + 1).chain((0..programs.len() - 3).step_by(3).map(|i| i..i + 3));
    for list in lists.chain(std::iter::once(0..10)) {
        let programs = &programs[list.clone()];
        for (budget, branchless) in [(8192, true), (8192, false), (50, true)] {
            let code = compile(programs, &[], &Options { budget, branchless, ..Options::default() }).unwrap();
            for most in [128, 64, 40] {
                let header = |frame: &'_ Vec<u8>| frame.len().min(most);
                let mut verdicts = vec![None; frames.len()];
                let packets =
                    frames.iter().map(|frame| Packet::new(&frame[..header(frame)], frame.len() as u32));
                code.run(packets, |number, verdict| verdicts[number] = Some(verdict));
                for (frame, verdict) in frames.iter().zip(verdicts) {
                    let expected = interpret(programs, 0, &frame[..header(frame)], frame.len() as u32);
                    assert_eq!(verdict, expected, "{:?}: {frame:x?}", &expressions[list.clone()]);
                }
            }
        }
    }
}

#[test]
fn paths_know_what_was_compared() {
    // Frames that are not ARP's are none of the second expression's, either.
    let (same, other) = (length(&["arp", "arp"], false), length(&["arp", "ip6"], false));
    assert!(same < other, "{same} bytes for an expression and itself, {other} for it and another");
}

#[test]
fn short_lists_do_without_branches() {
    assert_ne!(length(&["udp port 53"], true), length(&["udp port 53"], false));
    let long = frames::COMMON;
    assert_eq!(length(&long, true), length(&long, false));
}

/// Bytes of machine code of a list; 0 if it is refused.
fn length(expressions: &[&str], branchless: bool) -> usize {
    let code = |expression: &&str| libpcap::compile(expression).map_err(|error| error.reason);
    let codes: Vec<_> = expressions.iter().map(code).collect();
    let programs: Vec<_> = codes.iter().flatten().filter_map(|code| Program::new(code).ok()).collect();
    assert_eq!(programs.len(), expressions.len(), "{codes:?}");
    let code = compile(&programs, &[], &Options { branchless, ..Options::default() });
    code.map_or(0, |code| code.len())
}
