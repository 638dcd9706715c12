//! Programs come and go.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use fabric::port::Caps;
use p4logic::{P4, ProgramSettings, Settings};
use p4runtime_proto::v1::PacketOut;
use p4switch::{Code, Device, InstallAction, Program};
use pipeline::bits::Bits;
use pipeline::env::Functions;
use pipeline::ir::{Constant, Extern};

use crate::frames::{op, plain};
use crate::rig::{ALL, By, L3, OPS, Rig, config};

/// The program `ops`, whose `arg` is a port, with other port numbers.
fn shifted(by: u8) -> String {
    OPS.replace("(bit<9>)hdr.op.arg", &format!("(bit<9>)hdr.op.arg + {by}"))
}

#[test]
fn after_an_installation_no_packet_meets_the_program_before() {
    for by in ALL {
        let rig = Rig::with(by, 1, Caps::default());
        for round in 0..6u8 {
            rig.install(&shifted(round % 3));
            let got = rig.run(1, [op(0, 2, round)]);
            let expected = 2 + usize::from(round % 3);
            assert!((1..).zip(&got).all(|(n, got)| got.len() == usize::from(n == expected)), "{by:?}");
        }
    }
}

#[test]
fn a_replacement_under_traffic_loses_nothing() {
    let rig = Rig::with(By::Itself, 2, Caps::default());
    rig.install(OPS);
    let done = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let send = |from: usize| {
            let (rig, done) = (&rig, &done);
            scope.spawn(move || {
                let mut sent = 0;
                while !done.load(Relaxed) {
                    rig.at(from).send((0..32).map(|n| op(0, 3, n)));
                    rig.at(from).settle();
                    sent += 32;
                }
                sent
            })
        };
        let senders = [send(1), send(2)];
        for round in 0..20 {
            rig.install(&shifted(round % 2));
        }
        done.store(true, Relaxed);
        senders.map(|sender| sender.join().unwrap()).into_iter().sum::<usize>()
    });
    assert!(sent > 0);
    assert_eq!(rig.at(3).delivered() + rig.at(4).delivered(), sent);
}

#[test]
fn programs_are_checked_and_saved_before_they_run() {
    let rig = Rig::with(By::Code, 1, Caps::default());
    let install = |action, program: Option<&str>| {
        let config = program.map(config);
        rig.logic.install(action, config.as_ref()).map_err(|failure| failure.code)
    };
    assert_eq!(install(InstallAction::Commit, None), Err(Code::FailedPrecondition));
    assert_eq!(install(InstallAction::Verify, Some(OPS)), Ok(()));
    assert_eq!(install(InstallAction::VerifyAndCommit, None), Err(Code::InvalidArgument));
    assert_eq!(rig.logic.config(), None);
    assert_eq!(install(InstallAction::VerifyAndSave, Some(OPS)), Ok(()));
    assert_eq!(rig.logic.config(), None);
    assert_eq!(rig.run(1, [op(0, 2, 0)])[1].len(), 0);
    assert_eq!(install(InstallAction::Commit, None), Ok(()));
    assert_eq!(rig.logic.config().as_deref(), Some(&config(OPS)));
    assert_eq!(rig.run(1, [op(0, 2, 0)])[1].len(), 1);
    assert_eq!(install(InstallAction::Commit, None), Err(Code::FailedPrecondition));
    // A program that cannot run leaves the one before.
    let mut broken = config(L3);
    broken.p4_device_config.truncate(2000);
    let failure = rig.logic.install(InstallAction::VerifyAndCommit, Some(&broken)).unwrap_err();
    assert_eq!(failure.code, Code::InvalidArgument);
    assert_eq!(rig.run(1, [op(0, 2, 0)])[1].len(), 1);
}

#[test]
fn programs_for_psa_have_a_cpu_port_of_32_bits() {
    for by in ALL {
        let rig = Rig::new(by, include_str!("../programs/psa.p4"));
        let sent = |packet: &[u8], port: u32| [&packet[..8], &port.to_be_bytes(), &packet[12..]].concat();
        let mut packet = plain(7, 1);
        packet[6..8].fill(0);
        assert_eq!(rig.run(3, [packet.clone()])[2], [sent(&packet, 3)], "{by:?}");
        rig.logic.packet_out(&PacketOut { payload: packet.clone(), metadata: vec![] }).unwrap();
        assert_eq!(rig.at(2).take(1), [sent(&packet, 2)]);
        packet[..6].fill(0);
        rig.run(3, [packet.clone()]);
        assert_eq!(rig.packet_ins::<1>()[0].payload, sent(&packet, 0xffff_fffd));
    }
}

/// Has `next(out bit<8>, in bit<8>)`, which adds a number.
#[derive(Debug)]
struct Next(u64);

impl Functions for Next {
    fn check(&self, function: &Extern) -> Result<(), String> {
        let is_known = function.to_string() == "next(out bit<8>, in bit<8>)";
        is_known.then_some(()).ok_or_else(|| format!("no `{function}`"))
    }

    fn call(&self, _: &Extern, args: &[Constant], results: &mut [Constant]) -> bool {
        results[0].value = args[0].value.add(&Bits::from_u64(8, self.0));
        true
    }
}

#[test]
fn functions_are_given_by_the_configuration() {
    let program_settings =
        |by| ProgramSettings { functions: Some(Arc::new(Next(by))), ..ProgramSettings::default() };
    let declared = OPS.replace("parser ", "extern bit<8> next(in bit<8> number);\nparser ");
    let text = declared.replace("(bit<9>)hdr.op.arg", "(bit<9>)next(hdr.op.arg)");
    for by in ALL {
        let rig = Rig::with(by, 1, Caps::default());
        let refused = rig.logic.install(InstallAction::Verify, Some(&config(&text))).unwrap_err();
        assert_eq!(refused.code, Code::InvalidArgument);
        assert!(
            refused.message.starts_with("the program calls `next(out bit<8>, in bit<8>)`, which"),
            "{refused:?}"
        );
        rig.logic.configure(None, program_settings(1)).unwrap();
        rig.install(&text);
        assert_eq!(rig.run(1, [op(0, 2, 0)])[2].len(), 1, "{by:?}");
        // Without another program, the one that runs is given other functions.
        rig.logic.configure(None, program_settings(2)).unwrap();
        assert_eq!(rig.run(1, [op(0, 2, 0)])[3].len(), 1, "{by:?}");
        let refused = rig.logic.configure(None, ProgramSettings::default()).unwrap_err();
        assert!(refused.to_string().contains("--param functions=FILE"), "{refused}");
        assert_eq!(rig.run(1, [op(0, 2, 0)])[3].len(), 1, "{by:?}");
        let wrong =
            text.replace("in bit<8> number", "in bit<9> number").replace("next(hdr", "next((bit<9>)hdr");
        let refused = rig.logic.install(InstallAction::VerifyAndCommit, Some(&config(&wrong))).unwrap_err();
        assert_eq!(refused.message, "no `next(out bit<8>, in bit<9>)`");
    }
}

#[test]
fn a_program_of_the_configuration_runs_from_the_start() {
    let program = Program::text("p.p4", OPS, &p4::preprocess::Options::default()).unwrap();
    let program_settings = ProgramSettings { cpu_port: Some(255), ..ProgramSettings::default() };
    let settings = Settings { program: Some(Arc::new(program)), program_settings, ..Settings::default() };
    let logic = P4::new(settings).unwrap();
    // Controllers get what they may send.
    let config = logic.config().unwrap();
    logic.install(InstallAction::VerifyAndCommit, Some(&config)).unwrap();
    assert_eq!(logic.config().unwrap(), config);
    let other = Program::text("p.p4", L3, &p4::preprocess::Options::default()).unwrap();
    logic.configure(Some(Arc::new(other)), ProgramSettings::default()).unwrap();
    assert_ne!(logic.config().unwrap().p4info, config.p4info);
}
