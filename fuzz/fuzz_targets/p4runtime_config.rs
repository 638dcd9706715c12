//! A forwarding pipeline config: a program as text or bundle, alone or wrapped, with a P4Info.
//!
//! Invariants:
//! - No panic; time, memory and stack are bounded.
//! - A program that loads is the one of its own P4Info and of its own bundle.
#![no_main]

use libfuzzer_sys::fuzz_target;
use p4runtime_proto::v1::ForwardingPipelineConfig;
use p4switch::Program;
use prost::Message;

fuzz_target!(|data: &[u8]| {
    let Ok(config) = ForwardingPipelineConfig::decode(data) else { return };
    let Ok(program) = Program::from_config(&config) else { return };
    let own = ForwardingPipelineConfig {
        p4info: Some((*program.info).clone()),
        p4_device_config: program.bundle().to_vec(),
        ..config
    };
    let again = Program::from_config(&own).expect("a program's bundle has its P4Info");
    assert_eq!(again.info.as_ref(), program.info.as_ref());
});
