//! Programs that p4c has compiled for BMv2.

use p4runtime_proto::v1::update::Type;
use p4runtime_proto::v1::{ForwardingPipelineConfig, Update};
use p4switch::{Code, Device, InstallAction, text};

use fabric::port::Caps;
use p4::compile;
use p4::preprocess::Options;

use crate::rig::{ALL, Rig};

const SOURCE: &str = include_str!("../../../bmv2/tests/programs/services.p4");
const JSON: &str = include_str!("../../../bmv2/tests/programs/services.json");

/// The device config in the message in which the controllers of the P4 tutorials wrap it.
fn wrapped(json: &str) -> Vec<u8> {
    let mut message = vec![0x08, 1, 0x1a];
    let mut len = json.len();
    while len > 0x7f {
        message.push(0x80 | (len & 0x7f) as u8);
        len >>= 7;
    }
    message.push(len as u8);
    message.extend_from_slice(json.as_bytes());
    message
}

fn config(device_config: Vec<u8>) -> ForwardingPipelineConfig {
    let front = compile::text("services.p4", SOURCE, &Options::default());
    ForwardingPipelineConfig { p4info: front.info, p4_device_config: device_config, ..Default::default() }
}

fn frame(code: u8, value: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 0x90, 0, code, 0];
    frame.extend(value.to_be_bytes());
    frame.resize(60, 0);
    frame
}

#[test]
fn a_controller_installs_what_p4c_made_for_bmv2_and_packets_follow() {
    for (by, device_config) in ALL.into_iter().zip([JSON.into(), wrapped(JSON), JSON.into()]) {
        let rig = Rig::with(by, 1, Caps::default());
        rig.logic.install(InstallAction::VerifyAndCommit, Some(&config(device_config))).unwrap();
        let program = rig.logic.program().unwrap();
        let entry = |line: &str| {
            let entity = text::parse(&program, line).unwrap();
            Update { r#type: Type::Insert.into(), entity: Some(entity) }
        };
        rig.write(&[
            entry("In.services hdr.op.code=2 meta.rounds=0 prio=1 => In.add_up(cell=1)"),
            entry("In.services hdr.op.code=5 meta.rounds=0 prio=1 => In.clamp(limit=7)"),
        ]);
        let got = rig.run(1, [frame(2, 3), frame(2, 4), frame(5, 9), frame(9, 0)]);
        let mut clamped = frame(5, 7);
        clamped[15] = 1;
        assert_eq!(got[1], [frame(2, 3), frame(2, 7), clamped], "{by:?}");
        assert_eq!(got[3], [frame(9, 0)], "{by:?}");
    }
}

#[test]
fn refusals_name_what_is_wrong_and_the_program_before_runs_on() {
    let rig = Rig::with(ALL[0], 1, Caps::default());
    let install =
        |config: &ForwardingPipelineConfig| rig.logic.install(InstallAction::VerifyAndCommit, Some(config));
    install(&config(JSON.into())).unwrap();
    let without = ForwardingPipelineConfig { p4info: None, ..config(JSON.into()) };
    let unknown = JSON.replace("\"modify_field_with_hash_based_offset\"", "\"no_such_primitive\"");
    for (config, expected) in [
        (without, "send the P4Info"),
        (config(unknown.into()), "action In.hash_it: primitive 1 `no_such_primitive`"),
        (
            config(JSON.replace("\"In.ports\"", "\"In.others\"").into()),
            "table In.ports of the P4Info is missing",
        ),
    ] {
        let failure = install(&config).unwrap_err();
        assert_eq!(failure.code, Code::InvalidArgument);
        assert!(failure.message.contains(expected), "{}", failure.message);
    }
    assert_eq!(rig.run(1, [frame(9, 0)])[3], [frame(9, 0)]);
}
