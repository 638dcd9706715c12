//! A document of BMv2's JSON through the import, alone or, behind a zero byte, with a P4Info in binary form.
//!
//! Invariants:
//! - No panic; time, memory and stack are bounded.
//! - A document that is accepted has passed the pipeline's validation; with a P4Info it is a program whose entities can be
//!   read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use p4::info::P4Info;
use p4runtime_proto::v1::{Entity, TableEntry, entity::Entity as Kind};
use p4switch::{Program, Switch};
use prost::Message;
use std::sync::Arc;

fuzz_target!(|data: &[u8]| {
    let Some(end) = data.iter().position(|byte| *byte == 0) else {
        let _ = bmv2::lower(data, None).map_err(|refusal| refusal.to_string());
        return;
    };
    let (json, info) = data.split_at(end);
    let Ok(info) = P4Info::decode(&info[1..]) else { return };
    if let Ok(program) = Program::bmv2(json, &info) {
        let switch = Switch::new(Arc::new(program));
        let all = [Entity { entity: Some(Kind::TableEntry(TableEntry::default())) }];
        let _ = switch.read(&all, 0, &mut |_| true);
    }
});
