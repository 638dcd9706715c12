//! Seeds of the fuzz targets `p4runtime_write` and `p4runtime_config`: made here, and replayed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::Path;
use std::{env, fs};

use p4runtime_proto::v1::update::Type::{self, Delete, Insert, Modify};
use p4runtime_proto::v1::{ForwardingPipelineConfig, WriteRequest, write_request::Atomicity};
use p4switch::Program;
use prost::Message;
use support::{all, of_text, program, switch};

/// A seed: its name, and a request.
type Seed = (&'static str, Atomicity, &'static [(Type, &'static str)]);

const SEEDS: &[Seed] = &[
    (
        "tables",
        Atomicity::ContinueOnError,
        &[
            (Insert, "exact_t a=1 wide=1 idle=5s metadata=0x01 packets=1 bytes=2 => set(mac=1, delta=2)"),
            (Insert, "lpm_t b=10.0.0.0/8 => drop()"),
            (Insert, "ternary_t src_addr=1&&&3 l4_port=1..2 kind=1 prio=4 cir=1 pir=2 => forward(port=1)"),
            (Modify, "initial_t a=7 => forward(port=8)"),
            (Modify, "exact_t default => forward(port=1)"),
            (Delete, "lpm_t b=10.0.0.0/8"),
        ],
    ),
    (
        "profiles",
        Atomicity::DataplaneAtomic,
        &[
            (Insert, "member hops 1 => drop()"),
            (Insert, "member_t a=1 => member 1"),
            (Insert, "group_t a=1 => drop() weight=2 | forward(port=1) weight=1 watch=3"),
            (Modify, "group_t a=1 => drop() weight=1"),
        ],
    ),
    (
        "others",
        Atomicity::RollbackOnError,
        &[
            (Modify, "counter seen[1] packets=1 bytes=2"),
            (Modify, "meter police cir=1 cburst=2 pir=3 pburst=4"),
            (Modify, "register answer[1] value=7"),
            (Insert, "multicast 1 ports=1,2/3 metadata=0x01"),
            (Insert, "clone 1 ports=510 class=1 length=64"),
        ],
    ),
    ("refused", Atomicity::RollbackOnError, &[(Insert, "lpm_t b=1/32 => drop()"), (Delete, "lpm_t b=2/32")]),
];

/// Compares a seed with its file, or writes it, with `MSWITCH_WRITE_SEEDS` set.
fn compare(target: &str, name: &str, bytes: &[u8]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let path = folder.join(name);
    if env::var_os("MSWITCH_WRITE_SEEDS").is_some() {
        fs::create_dir_all(&folder).unwrap();
        fs::write(&path, bytes).unwrap();
    }
    let is_same = fs::read(&path).unwrap_or_default() == bytes;
    assert!(is_same, "{name}: set MSWITCH_WRITE_SEEDS to write it anew");
}

#[test]
fn requests_are_what_they_say() {
    for (name, atomicity, updates) in SEEDS {
        let mut switch = switch();
        let updates: Vec<_> = updates.iter().map(|(kind, line)| of_text(&switch, *kind, line)).collect();
        let request = WriteRequest { updates, atomicity: (*atomicity).into(), ..Default::default() };
        compare("p4runtime_write", name, &request.encode_to_vec());
        let before = all(&switch);
        match switch.write(&request.updates, request.atomicity(), 0) {
            Ok(()) => assert_ne!(all(&switch), before, "{name}"),
            Err(_) => assert_eq!(all(&switch), before, "{name}"),
        }
    }
}

/// Short, since the fuzzer reads 4,096 bytes of an input. Only the bundle is longer, by the declarations of v1model.
const SMALL: &str = include_str!("programs/small.p4");

#[test]
fn configs_are_what_they_say() {
    let own = program(SMALL);
    let config = |p4info: bool, bytes: &[u8]| ForwardingPipelineConfig {
        p4info: p4info.then(|| (*own.info).clone()),
        p4_device_config: bytes.to_vec(),
        ..Default::default()
    };
    let mut wrapped = vec![0x08, 1, 0x1a];
    prost::encoding::encode_varint(SMALL.len() as u64, &mut wrapped);
    wrapped.extend(SMALL.as_bytes());
    let mut other = config(true, SMALL.as_bytes());
    other.p4info.as_mut().unwrap().tables[0].size = 7;
    let seeds = [
        ("text", config(true, SMALL.as_bytes()), true),
        ("bundle", config(false, own.bundle()), true),
        ("wrapped", config(false, &wrapped), true),
        ("other_p4info", other, false),
    ];
    for (name, config, loads) in seeds {
        compare("p4runtime_config", name, &config.encode_to_vec());
        assert_eq!(Program::from_config(&config).is_ok(), loads, "{name}");
    }
}
