//! Replays the inputs of all fuzz targets: findings of the past, and inputs that cover much.
//!
//! The targets are compiled as modules, with a `fuzz_target!` of their own; so the inputs are replayed in seconds, without
//! a fuzzer and without another compilation of everything. `make fuzz` searches for more, with the address sanitizer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unused_attributes, missing_docs)]

extern crate self as libfuzzer_sys;
extern crate self as support;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

#[path = "../../../fuzz/src/lib.rs"]
mod targets_support;
pub use targets_support::*;

/// The part of the fuzzer that targets use: the function that takes an input.
macro_rules! take_input {
    ($(init: $init:expr,)? |$data:ident: &[u8]| $body:expr) => {
        pub(crate) fn take($data: &[u8]) {
            $($init;)?
            $body;
        }
    };
}
pub(crate) use take_input as fuzz_target;

/// Gives each input of a target to it.
fn replay(target: &str, take: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no inputs");
    for file in files {
        let input = fs::read(&file).unwrap();
        if catch_unwind(AssertUnwindSafe(|| take(&input))).is_err() {
            panic!("{} fails", file.display());
        }
    }
}

/// A test for each target.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        mod inputs {
            use std::fs;
            use std::path::Path;

            #[test]
            fn of_all_targets_are_replayed() {
                let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
                let target = |file: fs::DirEntry| file.path().file_stem().unwrap().to_str().unwrap().to_owned();
                let mut found: Vec<_> = fs::read_dir(folder).unwrap().map(|file| target(file.unwrap())).collect();
                found.sort();
                assert_eq!(found, [$(stringify!($name)),*]);
            }

            $(#[test]
            fn $name() {
                super::replay(stringify!($name), crate::$name::take);
            })*
        }
    };
}

#[path = "../../../fuzz/fuzz_targets/bmv2_json.rs"]
mod bmv2_json;
#[path = "../../../fuzz/fuzz_targets/bpf_code.rs"]
mod bpf_code;
#[path = "../../../fuzz/fuzz_targets/capture_file.rs"]
mod capture_file;
#[path = "../../../fuzz/fuzz_targets/codegen.rs"]
mod codegen;
#[path = "../../../fuzz/fuzz_targets/config.rs"]
mod config;
#[path = "../../../fuzz/fuzz_targets/forward.rs"]
mod forward;
#[path = "../../../fuzz/fuzz_targets/inspect.rs"]
mod inspect;
#[path = "../../../fuzz/fuzz_targets/lacp.rs"]
mod lacp;
#[path = "../../../fuzz/fuzz_targets/learning.rs"]
mod learning;
#[path = "../../../fuzz/fuzz_targets/lists.rs"]
mod lists;
#[path = "../../../fuzz/fuzz_targets/memif_control.rs"]
mod memif_control;
#[path = "../../../fuzz/fuzz_targets/memif_rings.rs"]
mod memif_rings;
#[path = "../../../fuzz/fuzz_targets/module_window.rs"]
mod module_window;
#[path = "../../../fuzz/fuzz_targets/oam.rs"]
mod oam;
#[path = "../../../fuzz/fuzz_targets/offload_headers.rs"]
mod offload_headers;
#[path = "../../../fuzz/fuzz_targets/openflow_actions.rs"]
mod openflow_actions;
#[path = "../../../fuzz/fuzz_targets/openflow_code.rs"]
mod openflow_code;
#[path = "../../../fuzz/fuzz_targets/openflow_fields.rs"]
mod openflow_fields;
#[path = "../../../fuzz/fuzz_targets/openflow_message.rs"]
mod openflow_message;
#[path = "../../../fuzz/fuzz_targets/openflow_switch.rs"]
mod openflow_switch;
#[path = "../../../fuzz/fuzz_targets/openflow_text.rs"]
mod openflow_text;
#[path = "../../../fuzz/fuzz_targets/ovsdb_stream.rs"]
mod ovsdb_stream;
#[path = "../../../fuzz/fuzz_targets/p4_check.rs"]
mod p4_check;
#[path = "../../../fuzz/fuzz_targets/p4_source.rs"]
mod p4_source;
#[path = "../../../fuzz/fuzz_targets/p4runtime_config.rs"]
mod p4runtime_config;
#[path = "../../../fuzz/fuzz_targets/p4runtime_write.rs"]
mod p4runtime_write;
#[path = "../../../fuzz/fuzz_targets/packet.rs"]
mod packet;
#[path = "../../../fuzz/fuzz_targets/pipeline.rs"]
mod pipeline;
#[path = "../../../fuzz/fuzz_targets/reservation_requests.rs"]
mod reservation_requests;
#[path = "../../../fuzz/fuzz_targets/spanning_tree.rs"]
mod spanning_tree;
#[path = "../../../fuzz/fuzz_targets/vhost_user_messages.rs"]
mod vhost_user_messages;
#[path = "../../../fuzz/fuzz_targets/virtqueue_packed.rs"]
mod virtqueue_packed;
#[path = "../../../fuzz/fuzz_targets/virtqueue_split.rs"]
mod virtqueue_split;

tests! {
    bmv2_json,
    bpf_code,
    capture_file,
    codegen,
    config,
    forward,
    inspect,
    lacp,
    learning,
    lists,
    memif_control,
    memif_rings,
    module_window,
    oam,
    offload_headers,
    openflow_actions,
    openflow_code,
    openflow_fields,
    openflow_message,
    openflow_switch,
    openflow_text,
    ovsdb_stream,
    p4_check,
    p4_source,
    p4runtime_config,
    p4runtime_write,
    packet,
    pipeline,
    reservation_requests,
    spanning_tree,
    vhost_user_messages,
    virtqueue_packed,
    virtqueue_split,
}
