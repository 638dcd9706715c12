//! Seeds of the fuzz target `p4runtime_write`: made here from text, and replayed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::Path;
use std::{env, fs};

use p4runtime_proto::v1::update::Type::{self, Delete, Insert, Modify};
use p4runtime_proto::v1::{WriteRequest, write_request::Atomicity};
use prost::Message;
use support::{all, of_text, switch};

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

/// With `MSWITCH_WRITE_SEEDS` set, the files are written anew.
#[test]
fn seeds_are_what_they_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/p4runtime_write");
    for (name, atomicity, updates) in SEEDS {
        let mut switch = switch();
        let updates: Vec<_> = updates.iter().map(|(kind, line)| of_text(&switch, *kind, line)).collect();
        let request = WriteRequest { updates, atomicity: (*atomicity).into(), ..Default::default() };
        let bytes = request.encode_to_vec();
        let path = folder.join(name);
        if env::var_os("MSWITCH_WRITE_SEEDS").is_some() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&path, &bytes).unwrap();
        }
        assert_eq!(
            fs::read(&path).unwrap_or_default(),
            bytes,
            "{name}: set MSWITCH_WRITE_SEEDS to write it anew"
        );
        let before = all(&switch);
        match switch.write(&request.updates, request.atomicity(), 0) {
            Ok(()) => assert_ne!(all(&switch), before, "{name}"),
            Err(_) => assert_eq!(all(&switch), before, "{name}"),
        }
    }
}
